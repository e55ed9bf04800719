// SPDX-License-Identifier: GPL-2.0
//
// The ivshmem server's sockets: accepts clients, moves queued messages into
// their sockets without ever blocking, and notices when they go.  What is
// said to whom is the business of PeerTable.

#ifndef SCRIPTS_IVSHMEM_SERVER_SERVER_H_
#define SCRIPTS_IVSHMEM_SERVER_SERVER_H_

#include <poll.h>

#include <cstdint>
#include <map>
#include <string>

#include "peer_table.h"

namespace ropcie::ivshmem {

struct ServerOptions {
  std::string socket_path;
  std::string shm_path;
  std::uint64_t size = 0;
  unsigned vectors = 0;
};

// Wraps a descriptor so that the last user closes it; null for fd < 0.
SharedFd OwnFd(int fd);

class Server {
 public:
  // Creates the shared memory (zeroed) and the listening socket.  Throws
  // std::runtime_error with a message for the user.
  explicit Server(ServerOptions options);
  // Removes the socket, and the shared memory file if it made it.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves until stop_fd becomes readable.
  void Run(int stop_fd);

 private:
  using PollEvents = decltype(pollfd::revents);

  struct Client {
    SharedFd socket;
  };

  void OpenSharedMemory();
  void Listen();
  void ServeClients(const std::map<int, PollEvents>& events);
  void Accept();
  // Both return false when the client is gone or misbehaves.
  static bool CheckInput(const Client& client, PollEvents events);
  bool Flush(PeerId id, const Client& client);
  void Drop(PeerId id);
  void FlushAll();

  ServerOptions options_;
  SharedFd shm_;
  SharedFd listener_;
  bool created_shm_ = false;
  bool accept_paused_ = false;
  std::unique_ptr<PeerTable> table_;
  std::map<PeerId, Client> clients_;
};

}  // namespace ropcie::ivshmem

#endif  // SCRIPTS_IVSHMEM_SERVER_SERVER_H_
