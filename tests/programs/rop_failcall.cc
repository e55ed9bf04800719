// SPDX-License-Identifier: GPL-2.0
// One call of this process outside of verbs, with the N-th of the kernel's
// allocations and copies in it failing:
//
//   rop_failcall N load FILE [PARAMETERS]     a module
//   rop_failcall N write FILE TEXT            of sysfs, debugfs
//   rop_failcall N up INTERFACE               and down before
//   rop_failcall N send ADDRESS BYTES         a datagram of IPv4
//   rop_failcall N link NAME INTERFACE        rdma link add NAME type ropcie
//
// Says what came of it. Exits with 0 when the call worked although something
// has failed in it, 1 when the call failed, 3 when nothing was left to fail;
// with 2 when it failed although nothing else did.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/rdma_netlink.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "failure.h"
#include "injector.h"

namespace ropcie {
namespace {

constexpr int kWorked = 0;
constexpr int kTold = 1;
constexpr int kWrong = 2;
constexpr int kOver = 3;

// Prepares what it needs, and is then called with the failure: an errno.
using Call = std::function<int()>;
using Words = std::vector<std::string>;

int ErrnoOf(int64_t result) { return result < 0 ? errno : 0; }

int OpenFile(const std::string& name, int flags) {
  const int fd = open(name.c_str(), flags | O_CLOEXEC);
  CheckErrno(ErrnoOf(fd), name);
  return fd;
}

int OpenSocket(int family, int type, int protocol) {
  const int fd = socket(family, type | SOCK_CLOEXEC, protocol);
  CheckErrno(ErrnoOf(fd), "socket");
  return fd;
}

Call Load(const Words& words) {
  const int fd = OpenFile(words[0], O_RDONLY);
  const std::string params = words.size() > 1 ? words[1] : "";
  return
      [=] { return ErrnoOf(syscall(SYS_finit_module, fd, params.c_str(), 0)); };
}

Call Write(const Words& words) {
  const int fd = OpenFile(words[0], O_WRONLY);
  const std::string& text = words.at(1);
  return [=] { return ErrnoOf(write(fd, text.data(), text.size())); };
}

int SetUp(int fd, const std::string& name, bool up) {
  ifreq request{};
  name.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  request.ifr_flags = up ? IFF_UP : 0;
  return ErrnoOf(ioctl(fd, SIOCSIFFLAGS, &request));
}

Call Up(const Words& words) {
  const int fd = OpenSocket(AF_INET, SOCK_DGRAM, 0);
  const std::string& name = words[0];
  CheckErrno(SetUp(fd, name, false), name, " down");
  return [=] { return SetUp(fd, name, true); };
}

Call Send(const Words& words) {
  const int fd = OpenSocket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);  // discard
  Check(inet_pton(AF_INET, words[0].c_str(), &to.sin_addr) == 1, words[0],
        " is no address");
  const auto data =
      std::make_shared<std::vector<char>>(std::stoul(words.at(1)), 'x');
  return [=] {
    return ErrnoOf(sendto(fd, data->data(), data->size(), MSG_DONTWAIT,
                          reinterpret_cast<const sockaddr*>(&to), sizeof(to)));
  };
}

// A message to the kernel's RDMA core.
class Message {
 public:
  explicit Message(uint16_t command) {
    nlmsghdr header{};
    header.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
    header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    Append(&header, sizeof(header));
  }

  void Add(uint16_t type, const std::string& text) {
    nlattr attribute{};
    attribute.nla_type = type;
    attribute.nla_len =
        static_cast<uint16_t>(sizeof(attribute) + text.size() + 1);
    Append(&attribute, sizeof(attribute));
    Append(text.c_str(), text.size() + 1);
  }

  // The kernel does it before send() returns; its answer is there then.
  [[nodiscard]] int Ask(int fd) {
    const auto length = static_cast<uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &length, sizeof(length));
    if (send(fd, bytes_.data(), bytes_.size(), 0) < 0) {
      return errno;
    }
    struct {
      nlmsghdr header;
      nlmsgerr error;
      std::array<char, 512> rest;
    } answer{};
    if (recv(fd, &answer, sizeof(answer), MSG_DONTWAIT) < 0) {
      return errno;
    }
    return answer.header.nlmsg_type == NLMSG_ERROR ? -answer.error.error
                                                   : EPROTO;
  }

 private:
  void Append(const void* data, size_t length) {
    const auto* const begin = static_cast<const char*>(data);
    bytes_.insert(bytes_.end(), begin, begin + length);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }

  std::vector<char> bytes_;
};

Call Link(const Words& words) {
  const int fd = OpenSocket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);
  const auto message = std::make_shared<Message>(RDMA_NLDEV_CMD_NEWLINK);
  message->Add(RDMA_NLDEV_ATTR_DEV_NAME, words[0]);
  message->Add(RDMA_NLDEV_ATTR_LINK_TYPE, "ropcie");
  message->Add(RDMA_NLDEV_ATTR_NDEV_NAME, words.at(1));
  return [=] { return message->Ask(fd); };
}

Call Prepare(const std::string& what, const Words& words) {
  Check(!words.empty(), what, " of what?");
  if (what == "load") {
    return Load(words);
  }
  if (what == "write") {
    return Write(words);
  }
  if (what == "up") {
    return Up(words);
  }
  if (what == "send") {
    return Send(words);
  }
  Check(what == "link", "there is no call '", what, "'");
  return Link(words);
}

int Run(const Words& words) {
  Check(words.size() >= 3, "usage: N CALL WORD...");
  const int nth = std::stoi(words[0]);
  const Injector injector;
  Check(injector.works(), "this kernel has no fault injection");
  const Call call = Prepare(words[1], Words(words.begin() + 2, words.end()));

  injector.Arm(nth);
  const int error = call();
  const bool failed = injector.Disarm();
  std::cout << words[1] << " with failure " << nth << ": "
            << (error == 0 ? "worked" : std::strerror(error)) << "\n";
  if (!failed) {
    return error == 0 ? kOver : kWrong;
  }
  return error == 0 ? kWorked : kTold;
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  try {
    return ropcie::Run(ropcie::Words(argv + 1, argv + argc));
  } catch (const std::exception& failure) {
    std::cerr << "rop_failcall: " << failure.what() << "\n";
    return ropcie::kWrong;
  }
}
