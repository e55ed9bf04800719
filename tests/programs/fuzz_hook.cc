// SPDX-License-Identifier: GPL-2.0
#include "fuzz_hook.h"

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <list>
#include <random>
#include <vector>

namespace ropcie {
namespace {

thread_local std::mt19937_64 generator;
std::atomic<size_t> one_in{0};

// Bytes that a call may read or write, as they were before it.
struct Buffer {
  uint8_t* begin;
  std::vector<uint8_t> before;
};

Buffer Remember(void* begin, size_t length) {
  auto* const bytes = static_cast<uint8_t*>(begin);
  return {bytes, {bytes, bytes + length}};
}

// What the allocators of a kernel with slub_debug=P or page_poison=1 leave, and
// addresses of its memory.
bool IsOfTheKernel(uint64_t word) {
  constexpr uint64_t kDirectMap = 0xffff888000000000;
  constexpr uint64_t kEndOfVmalloc = 0xffffe90000000000;
  return word == 0x6b6b6b6b6b6b6b6b || word == 0x5a5a5a5a5a5a5a5a ||
         word == 0xaaaaaaaaaaaaaaaa ||
         (word >= kDirectMap && word < kEndOfVmalloc);
}

void CheckNothingLeaks(const Buffer& buffer, const char* call) {
  for (size_t i = 0; i + sizeof(uint64_t) <= buffer.before.size();
       i += sizeof(uint32_t)) {
    uint64_t now = 0;
    std::memcpy(&now, buffer.begin + i, sizeof(now));
    if (IsOfTheKernel(now) &&
        std::memcmp(&now, buffer.before.data() + i, sizeof(now)) != 0) {
      std::fprintf(stderr, "LEAK: %s wrote 0x%llx at byte %zu of %zu\n", call,
                   static_cast<unsigned long long>(now), i,
                   buffer.before.size());
      _exit(kLeak);
    }
  }
}

bool ChangeThis() {
  const size_t calls = one_in.load(std::memory_order_relaxed);
  return calls != 0 && OneIn(calls);
}

void ChangeBytes(uint8_t* bytes, size_t length) {
  for (size_t n = Below(3) + 1; n != 0 && length >= sizeof(uint16_t); --n) {
    const size_t width = length < 4 ? 2 : length < 8 || OneIn(2) ? 4 : 8;
    uint8_t* const at = bytes + Below(length / width) * width;
    uint64_t word = 0;
    std::memcpy(&word, at, width);
    word = Changed(word);
    std::memcpy(at, &word, width);
  }
}

// The attributes of an ioctl lie behind its header; those of more than eight
// bytes lie elsewhere.
int VerbsIoctl(int fd, ib_uverbs_ioctl_hdr* original) {
  const size_t length = original->length;
  if (length < sizeof(*original)) {
    return static_cast<int>(syscall(SYS_ioctl, fd, RDMA_VERBS_IOCTL, original));
  }
  std::vector<uint64_t> copy((length + 7) / 8);
  auto* const header = reinterpret_cast<ib_uverbs_ioctl_hdr*>(copy.data());
  std::memcpy(header, original, length);
  std::list<Buffer> buffers;
  std::list<std::vector<uint8_t>> changed;
  const bool change = ChangeThis();
  for (size_t i = 0; i < header->num_attrs; ++i) {
    ib_uverbs_attr& attr = header->attrs[i];
    if (attr.len <= sizeof(attr.data)) {
      continue;
    }
    // The kernel's structures have pointers as numbers.
    auto* const memory =
        reinterpret_cast<uint8_t*>(  // NOLINT(performance-no-int-to-ptr)
            attr.data);
    buffers.push_back(Remember(memory, attr.len));
    if (change && OneIn(3)) {
      changed.emplace_back(memory, memory + attr.len);
      ChangeBytes(changed.back().data(), attr.len);
      attr.data = reinterpret_cast<uintptr_t>(changed.back().data());
      buffers.back() = Remember(changed.back().data(), attr.len);
    }
  }
  if (change && (buffers.empty() || OneIn(2))) {
    ChangeBytes(reinterpret_cast<uint8_t*>(header), length);
  }
  const int result =
      static_cast<int>(syscall(SYS_ioctl, fd, RDMA_VERBS_IOCTL, header));
  const int error = errno;
  for (const Buffer& buffer : buffers) {
    CheckNothingLeaks(buffer, "an ioctl");
  }
  std::memcpy(original, header, length);
  errno = error;
  return result;
}

}  // namespace

void SeedRandom(uint64_t seed) { generator.seed(seed); }
uint64_t Random() { return generator(); }
size_t Below(size_t bound) { return Random() % bound; }
bool OneIn(size_t n) { return Below(n) == 0; }

uint64_t Changed(uint64_t word) {
  constexpr size_t kNear = 16;
  switch (Below(7)) {
    case 0:
      return word ^ uint64_t { 1 } << Below(64);
    case 1:
      return word + Below(kNear) + 1;
    case 2:
      return word - Below(kNear) - 1;
    case 3:
      return OneIn(2) ? 0 : ~uint64_t{0};
    case 4:
      return uint64_t{1} << Below(64);
    case 5:
      return Below(kNear);
    default:
      return Random();
  }
}

void ChangeOneCallIn(size_t calls) { one_in = calls; }

}  // namespace ropcie

// libibverbs finds these before libc's.
extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == RDMA_VERBS_IOCTL) {
    return ropcie::VerbsIoctl(fd, static_cast<ib_uverbs_ioctl_hdr*>(argument));
  }
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

// Commands of old are written: a header, where the answer goes, and the rest.
extern "C" ssize_t write(int fd, const void* buf, size_t n) {
  ib_uverbs_cmd_hdr header{};
  if (fd <= STDERR_FILENO || n < sizeof(header) + sizeof(uint64_t) ||
      !ropcie::ChangeThis()) {
    return syscall(SYS_write, fd, buf, n);
  }
  std::vector<uint8_t> copy(n);
  std::memcpy(copy.data(), buf, n);
  std::memcpy(&header, buf, sizeof(header));
  ropcie::ChangeBytes(copy.data(), n);
  // The answer is longer than asked for, if it was that word.
  return syscall(SYS_write, fd, copy.data(), n);
}
