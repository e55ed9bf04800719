// SPDX-License-Identifier: GPL-2.0
#include "fuzz_hook.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <ropcie-abi.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <list>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "leak.h"

namespace ropcie {
namespace {

// libc's: that of this file is another. Libraries call that before anything of
// this file is initialized.
using SystemCall = long (*)(long, ...);
constinit std::atomic<SystemCall> libc_syscall{nullptr};

template <typename... Arguments>
long Kernel(long number, Arguments... arguments) {
  SystemCall call = libc_syscall.load(std::memory_order_relaxed);
  if (call == nullptr) {
    call = reinterpret_cast<SystemCall>(dlsym(RTLD_NEXT, "syscall"));
    libc_syscall.store(call, std::memory_order_relaxed);
  }
  return call(number, arguments...);
}

thread_local std::mt19937_64 generator;
std::atomic<size_t> one_in{0};
constinit std::atomic<std::atomic<uint64_t>*> searched{nullptr};

// Memory of this process that a call may write to, wherever that is: an address
// that was changed may be nobody's. A file of this process and not of its
// parent: not every kernel has process_vm_readv().
std::vector<uint8_t> Read(uint64_t address, size_t length) {
  std::vector<uint8_t> bytes(length);
  const int fd = static_cast<int>(
      Kernel(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDONLY | O_CLOEXEC));
  const ssize_t got = Kernel(SYS_pread64, fd, bytes.data(), length, address);
  Kernel(SYS_close, fd);
  bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return bytes;
}

// All of it, as it was before the call. errno stays.
class Watch {
 public:
  explicit Watch(const char* call, size_t step = sizeof(uint64_t))
      : call_(call), step_(step) {}

  void Add(uint64_t address, size_t length) {
    if (length != 0) {
      buffers_.push_back({address, Read(address, length)});
    }
  }
  void Add(const void* begin, size_t length) {
    Add(reinterpret_cast<uintptr_t>(begin), length);
  }

  void CheckNothingLeaks() const {
    const int error = errno;
    for (const Buffer& buffer : buffers_) {
      const std::vector<uint8_t> now =
          Read(buffer.address, buffer.before.size());
      Check(buffer.before, now);
    }
    errno = error;
  }

  void Check(std::span<const uint8_t> before,
             std::span<const uint8_t> now) const {
    if (std::atomic<uint64_t>* const bytes = searched.load()) {
      *bytes += now.size();
    }
    const std::optional<size_t> at =
        FindLeak(before.first(now.size()), now, step_);
    if (!at) {
      return;
    }
    std::fprintf(stderr, "LEAK: %s wrote, at byte %zu of %zu:", call_, *at,
                 now.size());
    for (size_t i = *at; i < std::min(*at + 16, now.size()); ++i) {
      std::fprintf(stderr, " %02x", now[i]);
    }
    std::fprintf(stderr, "\n");
    _exit(kLeak);
  }

 private:
  struct Buffer {
    uint64_t address;
    std::vector<uint8_t> before;
  };

  const char* call_;
  size_t step_;
  std::vector<Buffer> buffers_;
};

uint64_t ChangedSomehow(uint64_t word) {
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

// The attributes of an ioctl lie behind its header. What the kernel gives of
// one is in the attribute itself, or where that says: what looks like an
// address but is a number does no harm.
int VerbsIoctl(int fd, ib_uverbs_ioctl_hdr* original) {
  const size_t length = original->length;
  if (length < sizeof(*original)) {
    return static_cast<int>(Kernel(SYS_ioctl, fd, RDMA_VERBS_IOCTL, original));
  }
  std::vector<uint64_t> copy((length + 7) / 8);
  auto* const header = reinterpret_cast<ib_uverbs_ioctl_hdr*>(copy.data());
  std::memcpy(header, original, length);
  const size_t room = (length - sizeof(*header)) / sizeof(ib_uverbs_attr);
  const std::span<ib_uverbs_attr> attrs(
      header->attrs, std::min<size_t>(header->num_attrs, room));
  std::list<std::vector<uint8_t>> changed;
  const bool change = ChangeThis();
  for (ib_uverbs_attr& attr : attrs) {
    if (change && attr.len > sizeof(attr.data) && OneIn(3)) {
      changed.push_back(Read(attr.data, attr.len));
      changed.back().resize(attr.len);
      ChangeBytes(changed.back().data(), changed.back().size());
      attr.data = reinterpret_cast<uintptr_t>(changed.back().data());
    }
  }
  if (change && (changed.empty() || OneIn(2))) {
    ChangeBytes(reinterpret_cast<uint8_t*>(header), length);
  }
  Watch watch("an ioctl");
  watch.Add(header, length);
  for (const ib_uverbs_attr& attr : attrs) {
    // Where RoPCIe tells of a resized SRQ is a number of eight bytes.
    watch.Add(attr.data, attr.len == sizeof(ropcie_abi_resize_srq_req)
                             ? sizeof(ropcie_abi_create_queue_resp)
                             : attr.len);
  }
  const int result =
      static_cast<int>(Kernel(SYS_ioctl, fd, RDMA_VERBS_IOCTL, header));
  watch.CheckNothingLeaks();
  const int error = errno;
  std::memcpy(original, header, length);
  errno = error;
  return result;
}

// A command of old: a header, where the answer goes, and the rest.
ssize_t WriteCommand(int fd, const uint8_t* command, size_t length) {
  ib_uverbs_cmd_hdr header{};
  ib_uverbs_ex_cmd_hdr more{};
  uint64_t response = 0;
  std::memcpy(&header, command, sizeof(header));
  std::memcpy(&response, command + sizeof(header), sizeof(response));
  Watch watch("a command");
  if ((header.command & IB_USER_VERBS_CMD_FLAG_EXTENDED) == 0) {
    watch.Add(response, header.out_words * sizeof(uint32_t));
  } else if (length >= sizeof(header) + sizeof(more)) {
    std::memcpy(&more, command + sizeof(header), sizeof(more));
    watch.Add(response, (size_t{header.out_words} + more.provider_out_words) *
                            sizeof(uint64_t));
  }
  const ssize_t result = Kernel(SYS_write, fd, command, length);
  watch.CheckNothingLeaks();
  return result;
}

}  // namespace

void SeedRandom(uint64_t seed) { generator.seed(seed); }
uint64_t Random() {
  uint64_t word = 0;
  do {
    word = generator();
  } while (MightLookLeaked(word));
  return word;
}
size_t Below(size_t bound) { return Random() % bound; }
bool OneIn(size_t n) { return Below(n) == 0; }

uint64_t Changed(uint64_t word) {
  const uint64_t changed = ChangedSomehow(word);
  return MightLookLeaked(changed) ? Random() : changed;
}

void CheckMapping(const void* begin, size_t length) {
  constexpr size_t kPiece = 1 << 16;
  const std::vector<uint8_t> zeros(std::min(kPiece, length));
  const Watch watch("the kernel");
  const auto* const bytes = static_cast<const uint8_t*>(begin);
  for (size_t at = 0; at < length; at += kPiece) {
    watch.Check(zeros, Read(reinterpret_cast<uintptr_t>(bytes + at),
                            std::min(kPiece, length - at)));
  }
}

void CountSearched(std::atomic<uint64_t>* bytes) { searched = bytes; }
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
  return static_cast<int>(ropcie::Kernel(SYS_ioctl, fd, request, argument));
}

extern "C" ssize_t write(int fd, const void* buf, size_t n) {
  if (fd <= STDERR_FILENO || n < sizeof(ib_uverbs_cmd_hdr) + sizeof(uint64_t)) {
    return ropcie::Kernel(SYS_write, fd, buf, n);
  }
  const auto* const bytes = static_cast<const uint8_t*>(buf);
  std::vector<uint8_t> copy(bytes, bytes + n);
  if (ropcie::ChangeThis()) {
    ropcie::ChangeBytes(copy.data(), n);
  }
  return ropcie::WriteCommand(fd, copy.data(), n);
}

// The provider writes commands so, where it may not be cancelled.
extern "C" long syscall(long sysno, ...) noexcept {
  std::array<long, 6> more{};
  va_list arguments;
  va_start(arguments, sysno);
  for (long& argument : more) {
    argument = va_arg(arguments, long);
  }
  va_end(arguments);
  if (sysno == SYS_write) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): so the system call has it
    return write(static_cast<int>(more[0]), reinterpret_cast<void*>(more[1]),
                 static_cast<size_t>(more[2]));
  }
  return ropcie::Kernel(sysno, more[0], more[1], more[2], more[3], more[4],
                        more[5]);
}

// Events.
extern "C" ssize_t read(int fd, void* buf, size_t nbytes) {
  ropcie::Watch watch("read");
  watch.Add(buf, nbytes);
  const ssize_t result = ropcie::Kernel(SYS_read, fd, buf, nbytes);
  watch.CheckNothingLeaks();
  return result;
}

// Netlink, whose words of eight bytes are at multiples of four.
extern "C" ssize_t recv(int fd, void* buf, size_t n, int flags) {
  ropcie::Watch watch("recv", sizeof(uint32_t));
  watch.Add(buf, n);
  const ssize_t result =
      ropcie::Kernel(SYS_recvfrom, fd, buf, n, flags, nullptr, nullptr);
  watch.CheckNothingLeaks();
  return result;
}

extern "C" void* mmap(void* addr, size_t len, int prot, int flags, int fd,
                      off_t offset) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): so the system call has it
  auto* const begin = reinterpret_cast<void*>(
      ropcie::Kernel(SYS_mmap, addr, len, prot, flags, fd, offset));
  if (begin != MAP_FAILED && fd >= 0 && (flags & MAP_SHARED) != 0) {
    ropcie::CheckMapping(begin, len);
  }
  return begin;
}
