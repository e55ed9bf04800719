// SPDX-License-Identifier: GPL-2.0
//
// See peer_table.h.

#include "peer_table.h"

#include <limits>
#include <utility>

namespace ropcie::ivshmem {

std::array<std::uint8_t, Message::kSize> Message::Encode() const {
  std::array<std::uint8_t, kSize> bytes{};
  auto rest = static_cast<std::uint64_t>(value);
  for (auto& byte : bytes) {
    byte = static_cast<std::uint8_t>(rest);
    rest >>= 8;
  }
  return bytes;
}

PeerTable::PeerTable(SharedFd shared_memory, unsigned vectors,
                     EventFactory make_event, Limits limits)
    : shared_memory_(std::move(shared_memory)),
      vectors_(vectors),
      make_event_(std::move(make_event)),
      limits_(limits) {}

PeerTable::PeerTable(SharedFd shared_memory, unsigned vectors,
                     EventFactory make_event)
    : PeerTable(std::move(shared_memory), vectors, std::move(make_event),
                DefaultLimits(vectors)) {}

PeerTable::Limits PeerTable::DefaultLimits(unsigned vectors) {
  // A full table's hand-shake fits four times.  Not more: queued messages keep
  // event descriptors open.
  Limits limits;
  limits.max_queued = 4 * (limits.max_peers + 1) * (vectors + 1);
  return limits;
}

std::optional<PeerId> PeerTable::Join() {
  const auto id = FreeId();
  if (!id) {
    return std::nullopt;
  }

  Peer joining;
  for (unsigned vector = 0; vector < vectors_; ++vector) {
    SharedFd event = make_event_();
    if (!event) {
      return std::nullopt;
    }
    joining.events.push_back(std::move(event));
  }

  // The first three messages are the hand-shake; QEMU waits for the shared
  // memory before it looks at anything else.
  Send(joining, kProtocolVersion);
  Send(joining, *id);
  Send(joining, kSharedMemoryId, shared_memory_);
  for (auto& [other_id, other] : peers_) {
    SendEvents(other, *id, joining.events);
    SendEvents(joining, other_id, other.events);
  }
  // Its own descriptors come last: with them it receives its interrupts.
  SendEvents(joining, *id, joining.events);

  peers_.emplace(*id, std::move(joining));
  return id;
}

void PeerTable::Leave(PeerId id) {
  if (peers_.erase(id) == 0) {
    return;
  }
  for (auto& [other_id, other] : peers_) {
    Send(other, id);
  }
}

const PeerTable::Output* PeerTable::NextOutput(PeerId id) const {
  const auto peer = peers_.find(id);
  if (peer == peers_.end() || peer->second.queue.empty()) {
    return nullptr;
  }
  return &peer->second.queue.front();
}

void PeerTable::Consume(PeerId id, std::size_t bytes) {
  const auto peer = peers_.find(id);
  if (peer == peers_.end() || peer->second.queue.empty()) {
    return;
  }
  auto& queue = peer->second.queue;
  queue.front().sent += bytes;
  if (queue.front().sent >= Message::kSize) {
    queue.pop_front();
  }
}

std::vector<PeerId> PeerTable::TakeOverflowed() {
  std::vector<PeerId> overflowed;
  for (auto& [id, peer] : peers_) {
    if (std::exchange(peer.overflowed, false)) {
      overflowed.push_back(id);
    }
  }
  return overflowed;
}

std::size_t PeerTable::queued(PeerId id) const {
  const auto peer = peers_.find(id);
  return peer == peers_.end() ? 0 : peer->second.queue.size();
}

std::optional<PeerId> PeerTable::FreeId() const {
  if (peers_.size() >= limits_.max_peers) {
    return std::nullopt;
  }
  std::size_t id = 0;
  for (const auto& [taken, peer] : peers_) {
    if (taken != id) {
      break;
    }
    ++id;
  }
  if (id > std::numeric_limits<PeerId>::max()) {
    return std::nullopt;
  }
  return static_cast<PeerId>(id);
}

void PeerTable::Send(Peer& peer, std::int64_t value, SharedFd fd) const {
  // A client with a hole in its message stream would be wired to the wrong
  // descriptors, so one that overflows gets nothing more.
  if (peer.overflowed || peer.queue.size() >= limits_.max_queued) {
    peer.overflowed = true;
    return;
  }
  peer.queue.push_back({.message = {.value = value, .fd = std::move(fd)}});
}

void PeerTable::SendEvents(Peer& to, PeerId about,
                           const std::vector<SharedFd>& events) const {
  for (const auto& event : events) {
    Send(to, about, event);
  }
}

}  // namespace ropcie::ivshmem
