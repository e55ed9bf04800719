// SPDX-License-Identifier: GPL-2.0
// Buffers of the vgem driver, by way of libdrm.
#include "vgem.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xf86drm.h>
#include <xf86drmMode.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "failure.h"

namespace ropcie {
namespace {

int OpenVgem() {
  const int fd = drmOpen("vgem", nullptr);
  Check(fd >= 0, "no vgem device: is the module loaded?");
  return fd;
}

}  // namespace

void File::Close() {
  if (fd_ >= 0) {
    close(fd_);
  }
  fd_ = -1;
}

void File::Open(int fd) {
  Close();
  fd_ = fd;
}

bool HasVgem() { return File(drmOpen("vgem", nullptr)).get() >= 0; }

VgemBuffer::VgemBuffer(uint32_t side) : device_(OpenVgem()) {
  uint32_t pitch = 0;
  CheckErrno(-drmModeCreateDumbBuffer(device_.get(), side, side, 32, 0,
                                      &handle_, &pitch, &size_),
             "creating a buffer");
  uint64_t offset = 0;
  CheckErrno(-drmModeMapDumbBuffer(device_.get(), handle_, &offset),
             "the place of a buffer");
  void* const memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED,
                            device_.get(), static_cast<off_t>(offset));
  Check(memory != MAP_FAILED, "mapping a buffer: ", std::strerror(errno));
  memory_ = static_cast<uint8_t*>(memory);
}

int VgemBuffer::Export(uint32_t flags) const {
  int fd = -1;
  const int ret = drmPrimeHandleToFD(device_.get(), handle_, flags, &fd);
  CheckErrno(ret != 0 ? errno : 0, "exporting a buffer");
  return fd;
}

void VgemBuffer::Forget() {
  if (memory_ != nullptr) {
    munmap(memory_, size_);
  }
  memory_ = nullptr;
  device_.Close();
}

}  // namespace ropcie
