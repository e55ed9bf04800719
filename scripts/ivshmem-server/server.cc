// SPDX-License-Identifier: GPL-2.0
//
// See server.h.

#include "server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

namespace ropcie::ivshmem {
namespace {

// How long new clients wait when the process is out of file descriptors and
// no old client leaves.
constexpr int kAcceptRetryMs = 1000;

[[noreturn]] void Fail(const std::string& what) {
  throw std::runtime_error(what + ": " +
                           std::generic_category().message(errno));
}

sockaddr_un SocketAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    throw std::runtime_error("socket path is empty or too long: " + path);
  }
  std::copy(path.begin(), path.end(), std::begin(address.sun_path));
  return address;
}

// Removes a socket that a killed server left behind; one that still answers
// belongs to somebody else.
void RemoveStaleSocket(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    return;
  }
  if (!S_ISSOCK(info.st_mode)) {
    throw std::runtime_error(path + " exists and is not a socket");
  }
  const SharedFd probe = OwnFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe) {
    Fail("socket");
  }
  if (connect(*probe, reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) == 0) {
    throw std::runtime_error("another server is listening on " + path);
  }
  if (unlink(path.c_str()) != 0) {
    Fail("cannot remove " + path);
  }
}

// Every client takes a socket and an event descriptor per vector.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return;
  }
  limit.rlim_cur = limit.rlim_max;
  // Not being allowed to only means fewer clients.
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

// Sends the rest of one message; the descriptor travels with its first byte.
ssize_t SendOutput(int socket, const PeerTable::Output& output) {
  auto bytes = output.message.Encode();
  iovec vec{.iov_base = bytes.data() + output.sent,
            .iov_len = bytes.size() - output.sent};
  msghdr header{};
  header.msg_iov = &vec;
  header.msg_iovlen = 1;

  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (output.message.fd && output.sent == 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), output.message.fd.get(), sizeof(int));
  }
  return sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

SharedFd OwnFd(int fd) {
  if (fd < 0) {
    return nullptr;
  }
  return {new int(fd), [](const int* owned) {
            close(*owned);
            delete owned;
          }};
}

Server::Server(ServerOptions options) : options_(std::move(options)) {
  RaiseDescriptorLimit();
  Listen();
  try {
    OpenSharedMemory();
  } catch (...) {
    unlink(options_.socket_path.c_str());
    throw;
  }
  table_ = std::make_unique<PeerTable>(shm_, options_.vectors, [] {
    return OwnFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  });
}

Server::~Server() {
  unlink(options_.socket_path.c_str());
  if (created_shm_) {
    unlink(options_.shm_path.c_str());
  }
}

void Server::OpenSharedMemory() {
  const char* path = options_.shm_path.c_str();
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  int fd = open(path, kFlags | O_CREAT | O_EXCL, 0600);
  created_shm_ = fd >= 0;
  if (fd < 0 && errno == EEXIST) {
    fd = open(path, kFlags);
  }
  shm_ = OwnFd(fd);
  if (!shm_) {
    Fail("cannot open " + options_.shm_path);
  }
  // Guests that have it share the open file with their server.
  if (flock(*shm_, LOCK_EX | LOCK_NB) != 0) {
    Fail(options_.shm_path + " is another server's, or its guests' still");
  }
  // Down to nothing first: what an earlier run left must not be seen.
  if (ftruncate(*shm_, 0) != 0 ||
      ftruncate(*shm_, static_cast<off_t>(options_.size)) != 0) {
    const int error = errno;
    if (created_shm_) {
      unlink(path);
    }
    errno = error;
    Fail("cannot size " + options_.shm_path);
  }
}

void Server::Listen() {
  const auto address = SocketAddress(options_.socket_path);
  RemoveStaleSocket(options_.socket_path, address);
  listener_ =
      OwnFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) {
    Fail("socket");
  }
  if (bind(*listener_, reinterpret_cast<const sockaddr*>(&address),
           sizeof(address)) != 0) {
    Fail("cannot bind " + options_.socket_path);
  }
  if (listen(*listener_, SOMAXCONN) != 0) {
    const int error = errno;
    unlink(options_.socket_path.c_str());
    errno = error;
    Fail("cannot listen on " + options_.socket_path);
  }
}

void Server::Run(int stop_fd) {
  for (;;) {
    std::vector<pollfd> polled;
    polled.push_back({.fd = stop_fd, .events = POLLIN, .revents = 0});
    polled.push_back({.fd = accept_paused_ ? -1 : *listener_,
                      .events = POLLIN,
                      .revents = 0});
    for (const auto& [id, client] : clients_) {
      const bool pending = table_->NextOutput(id) != nullptr;
      polled.push_back({.fd = *client.socket,
                        .events = static_cast<PollEvents>(
                            pending ? POLLIN | POLLOUT : POLLIN),
                        .revents = 0});
    }

    const int ready = poll(polled.data(), polled.size(),
                           accept_paused_ ? kAcceptRetryMs : -1);
    if (ready < 0 && errno != EINTR) {
      Fail("poll");
    }
    if (ready < 0) {
      continue;
    }
    if (ready == 0) {
      accept_paused_ = false;
    }
    if (polled[0].revents != 0) {
      return;
    }

    // Those who left go before those who come, so that a restarted client
    // finds its ID free.
    std::map<int, PollEvents> events;
    for (std::size_t i = 2; i < polled.size(); ++i) {
      events[polled[i].fd] = polled[i].revents;
    }
    ServeClients(events);
    if (polled[1].revents != 0) {
      Accept();
    }
    FlushAll();
  }
}

void Server::ServeClients(const std::map<int, PollEvents>& events) {
  std::vector<PeerId> gone;
  for (const auto& [id, client] : clients_) {
    if (!CheckInput(client, events.at(*client.socket))) {
      gone.push_back(id);
    }
  }
  for (const PeerId id : gone) {
    Drop(id);
  }
}

bool Server::CheckInput(const Client& client, PollEvents events) {
  if ((events & (POLLIN | POLLHUP | POLLERR)) == 0) {
    return true;
  }
  std::uint8_t byte = 0;
  const ssize_t got = recv(*client.socket, &byte, sizeof(byte), MSG_DONTWAIT);
  // The protocol has no message from client to server: one that talks is not
  // an ivshmem client.
  return got < 0 && (errno == EAGAIN || errno == EINTR);
}

void Server::Accept() {
  for (;;) {
    const int fd =
        accept4(*listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // Out of descriptors: polling on would spin.
      accept_paused_ = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
      return;
    }
    Client client{.socket = OwnFd(fd)};
    // Those that hung up in the backlog would only fill the table.
    if (!CheckInput(client, POLLIN)) {
      continue;
    }
    const auto id = table_->Join();
    if (id) {
      clients_.emplace(*id, std::move(client));
    }
  }
}

bool Server::Flush(PeerId id, const Client& client) {
  while (const auto* output = table_->NextOutput(id)) {
    const ssize_t sent = SendOutput(*client.socket, *output);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    // ETOOMANYREFS: descriptors in flight that nobody has read yet.
    if (sent < 0) {
      return errno == EAGAIN || errno == ETOOMANYREFS;
    }
    table_->Consume(id, static_cast<std::size_t>(sent));
  }
  return true;
}

void Server::Drop(PeerId id) {
  clients_.erase(id);
  table_->Leave(id);
  accept_paused_ = false;
}

void Server::FlushAll() {
  std::vector<PeerId> gone;
  for (const auto& [id, client] : clients_) {
    if (!Flush(id, client)) {
      gone.push_back(id);
    }
  }
  for (const PeerId id : gone) {
    Drop(id);
  }
}

}  // namespace ropcie::ivshmem
