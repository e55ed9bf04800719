// SPDX-License-Identifier: GPL-2.0
// Buffers of the vgem driver, which the stock kernels have: memory that a
// program can have as a dma-buf without any hardware.
#ifndef ROPCIE_TESTS_PROGRAMS_VGEM_H_
#define ROPCIE_TESTS_PROGRAMS_VGEM_H_

#include <cstdint>

namespace ropcie {

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() { Close(); }
  File(const File&) = delete;
  File(File&&) = delete;
  File& operator=(const File&) = delete;
  File& operator=(File&&) = delete;

  [[nodiscard]] int get() const { return fd_; }
  void Open(int fd);
  void Close();

 private:
  int fd_;
};

// Is the module loaded?
bool HasVgem();

// A buffer of `side` * `side` pixels of 4 bytes, mapped into this process.
class VgemBuffer {
 public:
  explicit VgemBuffer(uint32_t side);
  ~VgemBuffer() { Forget(); }
  VgemBuffer(const VgemBuffer&) = delete;
  VgemBuffer(VgemBuffer&&) = delete;
  VgemBuffer& operator=(const VgemBuffer&) = delete;
  VgemBuffer& operator=(VgemBuffer&&) = delete;

  // Another name of the buffer: a file, for reading or for writing too
  // (DRM_RDWR).
  [[nodiscard]] int Export(uint32_t flags) const;

  // Nothing of this process knows it any more.
  void Forget();

  [[nodiscard]] uint8_t* memory() const { return memory_; }
  [[nodiscard]] uint64_t size() const { return size_; }

 private:
  File device_;
  uint32_t handle_ = 0;
  uint64_t size_ = 0;
  uint8_t* memory_ = nullptr;
};

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_VGEM_H_
