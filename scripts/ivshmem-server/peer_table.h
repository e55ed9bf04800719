// SPDX-License-Identifier: GPL-2.0
//
// The ivshmem server's protocol state: who is connected, which ID and which
// event file descriptors each peer has, and which messages wait to be sent to
// it.  It owns no socket and makes no system call (event descriptors come
// from a factory that the caller passes), so that tests drive it directly.
//
// The protocol is QEMU's docs/specs/ivshmem-spec.txt, "Interrupt setup
// protocol": the server sends 64-bit little-endian values, some with a file
// descriptor attached (SCM_RIGHTS); clients send nothing.
//
// But an ID keeps its event descriptors for ever, and nobody is told when a
// client leaves: QEMU (7.2 and others) frees its table of a peer that leaves,
// and writes to it when the ID comes again.  A client thus learns of each ID
// once, and what it may leave unread is bounded.

#ifndef SCRIPTS_IVSHMEM_SERVER_PEER_TABLE_H_
#define SCRIPTS_IVSHMEM_SERVER_PEER_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace ropcie::ivshmem {

// A file descriptor that is closed (by its deleter) when nobody needs it any
// more: a queued message may outlive the peer whose descriptor it carries.
using SharedFd = std::shared_ptr<const int>;

// The IVPosition register that the guest reads, and the upper half of what it
// writes to the doorbell register: 16 bits.
using PeerId = std::uint16_t;

inline constexpr std::int64_t kProtocolVersion = 0;
inline constexpr std::int64_t kSharedMemoryId = -1;

// One message on its way to a client.
struct Message {
  std::int64_t value = 0;
  SharedFd fd;  // null: none attached

  static constexpr std::size_t kSize = sizeof(std::int64_t);
  [[nodiscard]] std::array<std::uint8_t, kSize> Encode() const;
};

class PeerTable {
 public:
  // Makes one event descriptor; returns null when that fails.
  using EventFactory = std::function<SharedFd()>;

  struct Limits {
    // Connections served at once; more are turned away.
    std::size_t max_peers = 64;
  };

  PeerTable(SharedFd shared_memory, unsigned vectors, EventFactory make_event,
            Limits limits);
  PeerTable(SharedFd shared_memory, unsigned vectors, EventFactory make_event);

  // Admits a client under the lowest free ID, so that a restarted machine gets
  // its old ID back.  Queues the hand-shake for it and, if the ID is a new one,
  // the notices for the others.  Nothing changes when it returns nullopt: table
  // full, or no event descriptors.
  std::optional<PeerId> Join();

  // Forgets a client, but not its ID.  Unknown IDs are ignored.
  void Leave(PeerId id);

  // The next message for a client and how many of its bytes were sent; null
  // when it has nothing to read.
  struct Output {
    Message message;
    std::size_t sent = 0;
  };
  [[nodiscard]] const Output* NextOutput(PeerId id) const;

  // Marks bytes of the next message as sent.
  void Consume(PeerId id, std::size_t bytes);

  [[nodiscard]] std::size_t size() const { return peers_.size(); }
  [[nodiscard]] std::size_t queued(PeerId id) const;

 private:
  using Queue = std::deque<Output>;

  [[nodiscard]] std::optional<PeerId> FreeId() const;
  // Event descriptors for one more ID, of which everybody is told.
  bool AddId();
  static void Send(Queue& queue, std::int64_t value, SharedFd fd = nullptr);
  void SendEvents(Queue& queue, PeerId about) const;

  SharedFd shared_memory_;
  unsigned vectors_;
  EventFactory make_event_;
  Limits limits_;
  std::vector<std::vector<SharedFd>> events_;  // of each ID that there ever was
  std::map<PeerId, Queue> peers_;
};

}  // namespace ropcie::ivshmem

#endif  // SCRIPTS_IVSHMEM_SERVER_PEER_TABLE_H_
