// SPDX-License-Identifier: GPL-2.0
#include "side.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "failure.h"
#include "options.h"

namespace ropcie {
namespace {

using Body = std::function<void(Side&)>;

int RunSide(Side side, const std::string& name, const Body& body) {
  try {
    body(side);
    return 0;
  } catch (const std::exception& error) {
    std::cout << std::flush;
    // At once: whoever is killed while he says it has said nothing.
    std::cerr << Text("FAILED: ", name, ": ", error.what(), "\n");
    return 1;
  }
}

// Forks; the child runs the body and is gone. It does not keep the listener, or
// the next program of a peer that is done would find it, and be cut off.
pid_t RunInChild(Side side, const std::string& name, const Body& body,
                 int listener) {
  std::cout << std::flush;
  const pid_t child = fork();
  CheckErrno(child < 0 ? errno : 0, "fork");
  if (child == 0) {
    close(listener);
    const int status = RunSide(std::move(side), name, body);
    std::cout << std::flush;
    _exit(status);
  }
  return child;
}

int WaitForChildren(const std::vector<pid_t>& children) {
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    CheckErrno(waitpid(child, &status, 0) < 0 ? errno : 0, "waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      worst = 1;
    }
  }
  return worst;
}

int RunBothSides(const Options& options, const Body& body) {
  std::array<int, 2> fds{};
  CheckErrno(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) < 0
                 ? errno
                 : 0,
             "socketpair");
  const pid_t child = fork();
  CheckErrno(child < 0 ? errno : 0, "fork");
  const bool leads = child != 0;
  close(fds.at(leads ? 1 : 0));
  Side side{options, leads ? options.device : options.device2, leads,
            Channel(fds.at(leads ? 0 : 1), options.timeout_s)};
  const int status = RunSide(std::move(side),
                             options.program + (leads ? " (1)" : " (2)"), body);
  std::cout << std::flush;
  if (!leads) {
    _exit(status);
  }
  return WaitForChildren({child}) != 0 ? 1 : status;
}

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList Resolve(const char* host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = host == nullptr ? AF_INET6 : AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(host, std::to_string(port).c_str(), &hints, &list);
  Check(error == 0, "cannot resolve ", host == nullptr ? "*" : host, ": ",
        gai_strerror(error));
  return {list, freeaddrinfo};
}

int Listen(uint16_t port) {
  const AddressList address = Resolve(nullptr, port, AI_PASSIVE);
  const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CheckErrno(fd < 0 ? errno : 0, "socket");
  const int on = 1;
  const int off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  CheckErrno(bind(fd, address->ai_addr, address->ai_addrlen) < 0 ? errno : 0,
             "cannot use TCP port ", port);
  CheckErrno(listen(fd, SOMAXCONN) < 0 ? errno : 0, "listen");
  return fd;
}

int Accept(int listener, int timeout_s) {
  pollfd wait{listener, POLLIN, 0};
  Check(poll(&wait, 1, timeout_s * 1000) == 1, "no peer connected within ",
        timeout_s, " s");
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  CheckErrno(fd < 0 ? errno : 0, "accept");
  return fd;
}

int Connect(const std::string& host, uint16_t port, int timeout_s) {
  const AddressList address = Resolve(host.c_str(), port, 0);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
  int error = 0;
  do {
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CheckErrno(fd < 0 ? errno : 0, "socket");
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0) {
      return fd;
    }
    error = errno;
    close(fd);
    // The other node may not have come so far yet.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (std::chrono::steady_clock::now() < end);
  CheckErrno(error, "cannot connect to ", host, " port ", port, " within ",
             timeout_s, " s");
  return -1;
}

int RunNode(const Options& options, const Body& body) {
  const std::string name =
      options.program + " (" + std::to_string(options.node) + ")";
  if (options.node > 1) {
    const int fd = Connect(options.server, options.tcp_port, options.timeout_s);
    return RunSide(
        {options, options.device, false, Channel(fd, options.timeout_s)}, name,
        body);
  }

  const int listener = Listen(options.tcp_port);
  std::vector<pid_t> children;
  for (int peer = 2; peer <= options.nodes; ++peer) {
    const int fd = Accept(listener, options.timeout_s);
    Side side{options, options.device, true, Channel(fd, options.timeout_s)};
    if (options.nodes == 2) {
      close(listener);
      return RunSide(std::move(side), name, body);
    }
    children.push_back(RunInChild(std::move(side), name, body, listener));
  }
  close(listener);
  return WaitForChildren(children);
}

}  // namespace

Channel::Channel(int fd, int timeout_s) : fd_(fd) {
  const int on = 1;
  const timeval timeout{timeout_s, 0};
  // Fails on the socket pair, which has nothing to delay.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
}

Channel::Channel(Channel&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

Channel::~Channel() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

void Channel::Write(const void* data, size_t length) const {
  const char* from = static_cast<const char*>(data);
  while (length > 0) {
    const ssize_t done = send(fd_, from, length, MSG_NOSIGNAL);
    CheckErrno(done < 0 ? errno : 0, "side channel: write");
    from += done;
    length -= static_cast<size_t>(done);
  }
}

void Channel::Read(void* data, size_t length) const {
  char* to = static_cast<char*>(data);
  while (length > 0) {
    const ssize_t done = recv(fd_, to, length, 0);
    Check(done >= 0 || errno != EAGAIN,
          "side channel: the peer said nothing for too long");
    CheckErrno(done < 0 ? errno : 0, "side channel: read");
    Check(done > 0, "side channel: the peer has given up");
    to += done;
    length -= static_cast<size_t>(done);
  }
}

void Channel::Barrier(uint32_t number) const {
  const uint32_t other = Exchange(number);
  Check(other == number, "out of step: we are at barrier ", number,
        ", the peer at ", other);
}

bool Channel::Readable() const {
  pollfd wait{fd_, POLLIN, 0};
  return poll(&wait, 1, 0) == 1;
}

bool Channel::PeerIsGone() const {
  pollfd wait{fd_, POLLRDHUP, 0};
  return poll(&wait, 1, 0) == 1;
}

Channel Meet(const Options& options, uint16_t tcp_port) {
  if (options.node > 1) {
    return {Connect(options.server, tcp_port, options.timeout_s),
            options.timeout_s};
  }
  const int listener = Listen(tcp_port);
  const int fd = Accept(listener, options.timeout_s);
  close(listener);
  return {fd, options.timeout_s};
}

int RunProgram(int argc, char** argv, const std::string& description,
               const Body& body) {
  const Options options = ParseOptions(argc, argv, description);
  try {
    return options.nodes == 1 ? RunBothSides(options, body)
                              : RunNode(options, body);
  } catch (const std::exception& error) {
    std::cerr << "FAILED: " << options.program << ": " << error.what() << "\n";
    return 1;
  }
}

}  // namespace ropcie
