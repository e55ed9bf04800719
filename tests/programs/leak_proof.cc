// SPDX-License-Identifier: GPL-2.0
#include "leak_proof.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <ropcie-abi.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>

#include "failure.h"
#include "fuzz_hook.h"
#include "uverbs_raw.h"

namespace ropcie {
namespace {

constexpr int kNetlink = 31;     // LEAK_NETLINK
constexpr uint16_t kBehind = 1;  // LEAK_BEHIND
const std::string kDirectory = "/sys/kernel/debug/uverbs_leak/";

// In the order of their netlink messages.
constexpr std::array<const char*, 5> kKinds = {"nothing", "kmalloc", "page",
                                               "address", "stack"};

using Answer = std::array<uint64_t, 4>;

uint64_t AddressOf(Answer& answer) {
  return reinterpret_cast<uintptr_t>(answer.data());
}

bool AskIoctl(int fd, uint64_t data, uint16_t length, uint16_t method = 0) {
  ib_uverbs_ioctl_hdr header{};
  header.length = sizeof(header) + sizeof(ib_uverbs_attr);
  header.method_id = method;
  header.num_attrs = 1;
  Bytes bytes;
  bytes.Append(header);
  bytes.Append(Attribute(0, data, length));
  return ioctl(fd, RDMA_VERBS_IOCTL, bytes.data()) == 0;
}

bool AskLong(int fd, int /*kind*/) {
  Answer answer{};
  return AskIoctl(fd, AddressOf(answer), sizeof(answer));
}

bool AskShort(int fd, int /*kind*/) {
  Answer answer{};
  return AskIoctl(fd, AddressOf(answer), sizeof(answer[0]));
}

// A number in the attribute itself.
bool AskNumber(int fd, int /*kind*/) { return AskIoctl(fd, 0, 0); }

// Behind the offset, and an address of a number's length leads to it.
bool AskResize(int fd, int /*kind*/) {
  ropcie_abi_create_queue_resp answer{};
  return AskIoctl(fd, reinterpret_cast<uintptr_t>(&answer), sizeof(uint64_t),
                  kBehind);
}

bool Write(int fd, Bytes bytes) {
  const auto size = static_cast<ssize_t>(bytes.size());
  return write(fd, bytes.data(), bytes.size()) == size;
}

bool AskCommand(int fd, int /*kind*/) {
  Answer answer{};
  Bytes bytes;
  bytes.Append(ib_uverbs_cmd_hdr{IB_USER_VERBS_CMD_QUERY_DEVICE, 0, 2});
  bytes.Append(AddressOf(answer));
  return Write(fd, bytes);
}

// uverbs' part of the answer, or the driver's.
bool AskExtended(int fd, uint16_t words, uint16_t driver_words) {
  Answer answer{};
  Bytes bytes;
  bytes.Append(ib_uverbs_cmd_hdr{
      IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_QP, 0,
      words});
  bytes.Append(ib_uverbs_ex_cmd_hdr{AddressOf(answer), 0, driver_words, 0});
  return Write(fd, bytes);
}

bool AskExtendedCore(int fd, int /*kind*/) { return AskExtended(fd, 2, 0); }
bool AskExtendedDriver(int fd, int /*kind*/) { return AskExtended(fd, 0, 2); }

// As the provider makes calls.
bool AskBySyscall(int fd, int /*kind*/) {
  Answer answer{};
  Bytes bytes;
  bytes.Append(ib_uverbs_cmd_hdr{IB_USER_VERBS_CMD_POLL_CQ, 0, 2});
  bytes.Append(AddressOf(answer));
  const auto size = static_cast<long>(bytes.size());
  return syscall(SYS_write, fd, bytes.data(), bytes.size()) == size;
}

bool AskRead(int fd, int /*kind*/) {
  Answer answer{};
  return read(fd, answer.data(), sizeof(answer)) == sizeof(answer);
}

bool AskMapping(int fd, int /*kind*/) {
  return mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) !=
         MAP_FAILED;
}

bool AskNetlink(int /*fd*/, int kind) {
  const int fd = socket(AF_NETLINK, SOCK_RAW, kNetlink);
  std::array<uint8_t, 256> answer{};
  nlmsghdr header{};
  header.nlmsg_len = sizeof(header);
  header.nlmsg_type = static_cast<uint16_t>(NLMSG_MIN_TYPE + kind);
  header.nlmsg_flags = NLM_F_REQUEST;
  return send(fd, &header, sizeof(header), 0) == sizeof(header) &&
         recv(fd, answer.data(), answer.size(), MSG_DONTWAIT) > 64;
}

struct Way {
  const char* name;
  bool (*ask)(int fd, int kind);
};

constexpr std::array<Way, 11> kWays = {{
    {"a long attribute", AskLong},
    {"a short attribute", AskShort},
    {"a number", AskNumber},
    {"a command's answer", AskCommand},
    {"an extended command's answer", AskExtendedCore},
    {"the driver's part of it", AskExtendedDriver},
    {"a command of the provider's", AskBySyscall},
    {"a resized SRQ's", AskResize},
    {"a read", AskRead},
    {"a mapping", AskMapping},
    {"netlink", AskNetlink},
}};

// The status of a process that asks.
int StatusOf(const Way& way, int fd, int kind) {
  const pid_t child = fork();
  CheckErrno(child < 0 ? errno : 0, "fork");
  if (child == 0) {
    close(STDERR_FILENO);  // it is to find something
    _exit(way.ask(fd, kind) ? 0 : 1);
  }
  int status = 0;
  CheckErrno(waitpid(child, &status, 0) == child ? 0 : errno, "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

void ProveThatLeaksAreFound() {
  std::string found;
  for (size_t kind = 0; kind < kKinds.size(); ++kind) {
    const std::string name = kKinds[kind];
    const int fd = open((kDirectory + name).c_str(), O_RDWR);
    if (fd < 0 && errno == ENOENT && name == "stack") {
      continue;  // zero, on this kernel
    }
    CheckErrno(fd < 0 ? errno : 0, kDirectory, name);
    const int expected = kind == 0 ? 0 : kLeak;
    for (const Way& way : kWays) {
      const int status = StatusOf(way, fd, static_cast<int>(kind));
      Check(status == expected, "memory of the kernel (", name, ") by ",
            way.name, ": status ", status, ", not ", expected);
    }
    found += kind == 0 ? "" : " " + name;
    close(fd);
  }
  std::cout << "memory of the kernel is found in all answers:" << found << "\n"
            << std::flush;  // before it forks
}

}  // namespace ropcie
