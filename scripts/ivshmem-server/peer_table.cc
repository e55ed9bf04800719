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
                Limits()) {}

std::optional<PeerId> PeerTable::Join() {
  const auto id = FreeId();
  if (!id || (*id == events_.size() && !AddId())) {
    return std::nullopt;
  }

  // The first three messages are the hand-shake; QEMU waits for the shared
  // memory before it looks at anything else.
  Queue& queue = peers_[*id];
  Send(queue, kProtocolVersion);
  Send(queue, *id);
  Send(queue, kSharedMemoryId, shared_memory_);
  for (std::size_t other = 0; other < events_.size(); ++other) {
    if (other != *id) {
      SendEvents(queue, static_cast<PeerId>(other));
    }
  }
  // Its own descriptors come last: with them it receives its interrupts.
  SendEvents(queue, *id);
  return id;
}

void PeerTable::Leave(PeerId id) { peers_.erase(id); }

const PeerTable::Output* PeerTable::NextOutput(PeerId id) const {
  const auto peer = peers_.find(id);
  if (peer == peers_.end() || peer->second.empty()) {
    return nullptr;
  }
  return &peer->second.front();
}

void PeerTable::Consume(PeerId id, std::size_t bytes) {
  const auto peer = peers_.find(id);
  if (peer == peers_.end() || peer->second.empty()) {
    return;
  }
  Queue& queue = peer->second;
  queue.front().sent += bytes;
  if (queue.front().sent >= Message::kSize) {
    queue.pop_front();
  }
}

std::size_t PeerTable::queued(PeerId id) const {
  const auto peer = peers_.find(id);
  return peer == peers_.end() ? 0 : peer->second.size();
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

bool PeerTable::AddId() {
  std::vector<SharedFd> events;
  for (unsigned vector = 0; vector < vectors_; ++vector) {
    SharedFd event = make_event_();
    if (!event) {
      return false;
    }
    events.push_back(std::move(event));
  }
  events_.push_back(std::move(events));
  for (auto& [id, queue] : peers_) {
    SendEvents(queue, static_cast<PeerId>(events_.size() - 1));
  }
  return true;
}

void PeerTable::Send(Queue& queue, std::int64_t value, SharedFd fd) {
  queue.push_back({.message = {.value = value, .fd = std::move(fd)}});
}

void PeerTable::SendEvents(Queue& queue, PeerId about) const {
  for (const auto& event : events_[about]) {
    Send(queue, about, event);
  }
}

}  // namespace ropcie::ivshmem
