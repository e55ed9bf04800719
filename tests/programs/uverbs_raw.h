// SPDX-License-Identifier: GPL-2.0
// Commands of uverbs as a process may write them that has no libibverbs, to
// name what it likes.
#ifndef ROPCIE_TESTS_PROGRAMS_UVERBS_RAW_H_
#define ROPCIE_TESTS_PROGRAMS_UVERBS_RAW_H_

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace ropcie {

// Room for all that commands answer.
using Response = std::array<uint32_t, 128>;

// What is handed to the kernel.
class Bytes {
 public:
  template <typename T>
  void Append(const T& what) {
    std::memcpy(bytes_.data() + size_, &what, sizeof(what));
    size_ += sizeof(what);
  }
  void Append(const Bytes& more) {
    std::memcpy(bytes_.data() + size_, more.bytes_.data(), more.size_);
    size_ += more.size_;
  }

  [[nodiscard]] uint8_t* data() { return bytes_.data(); }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  alignas(uint64_t) std::array<uint8_t, 1024> bytes_{};
  size_t size_ = 0;
};

// Returns 0 or an errno.
int WriteBytes(const ibv_context* context, Bytes bytes);

// The same of a command of old, with what follows it.
template <typename Command>
int WriteCommand(const ibv_context* context, uint32_t number, Command command,
                 const Bytes& more = {}, Response* answer = nullptr) {
  Response none{};
  ib_uverbs_cmd_hdr header{};
  header.command = number;
  if constexpr (requires { command.response; }) {
    Response* const response = answer != nullptr ? answer : &none;
    command.response = reinterpret_cast<uintptr_t>(response->data());
    header.out_words = static_cast<uint16_t>(response->size());
  }
  header.in_words = static_cast<uint16_t>(
      (sizeof(header) + sizeof(command) + more.size()) / 4);
  Bytes bytes;
  bytes.Append(header);
  bytes.Append(command);
  bytes.Append(more);
  return WriteBytes(context, bytes);
}

ib_uverbs_attr Attribute(uint16_t id, uint64_t data, uint16_t length = 0);

// The same of a method. `made`: handle of what the first attribute names then.
int Ioctl(const ibv_context* context, uint16_t object, uint16_t method,
          std::initializer_list<ib_uverbs_attr> attrs,
          uint32_t* made = nullptr);

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_UVERBS_RAW_H_
