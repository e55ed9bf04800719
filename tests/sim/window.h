// SPDX-License-Identifier: GPL-2.0
// The memory of one node that another node writes, and the posted writes on
// their way to it: in order, as late as the scheduler wants, or lost with the
// link. Knows nothing of what they mean.
#ifndef ROPCIE_TESTS_SIM_WINDOW_H
#define ROPCIE_TESTS_SIM_WINDOW_H

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/core.h"

namespace ropcie::sim {

// The bridge between two nodes. Writes that meet it while it is down are gone,
// so each side must hear of every time that it was, however short.
struct Bridge {
  bool up = true;
  bool was_down[2] = {false, false};  // not yet seen by either side
};

class Window {
 public:
  Window(const ropcie_link_offer& offer, const Bridge* bridge)
      : offer_(offer),
        bridge_(bridge),
        memory_(Allocate(Size())),
        view_(Allocate(Size())),
        slots_(size_t{offer.lanes} * offer.geom.slots) {}

  // As the owner sees it.
  ropcie_control* control() { return Control(memory_.get()); }
  uint8_t* lane(uint32_t n) { return memory_.get() + LaneAt(n); }
  // The peer's link words: scratchpads, behind the memory.
  __le32* words() { return Words(memory_.get()); }
  // As the writer sees it; what it stores there has to be posted.
  ropcie_control* control_view() { return Control(view_.get()); }
  __le32* words_view() { return Words(view_.get()); }
  uint8_t* lane_view(uint32_t n) { return view_.get() + LaneAt(n); }

  // The bytes at `at` of the view are on their way.
  void Post(const void* at, size_t len) { PostOf(kNone, false, at, len); }
  // The same for those of the record in a slot, counted over all lanes; what
  // is `valid` says that it is there.
  void PostOf(size_t slot, bool valid, const void* at, size_t len) {
    if (len == 0 || !bridge_->up) {
      return;
    }
    const auto* from = static_cast<const uint8_t*>(at);
    flight_.push_back({.to = static_cast<size_t>(from - view_.get()),
                       .memory = false,
                       .valid = valid,
                       .slot = slot,
                       .bytes = {from, from + len}});
    if (slot != kNone) {
      slots_[slot].under_way++;
    }
  }
  // Is all of the record with this valid word there?
  [[nodiscard]] bool Landed(size_t slot, uint64_t valid) const {
    return slots_[slot].valid == valid && slots_[slot].under_way == 0;
  }

  // The same for bytes on their way to other memory of the owner.
  void PostTo(uint64_t bus, std::vector<uint8_t> bytes) {
    if (!bytes.empty() && bridge_->up) {
      flight_.push_back({.to = bus,
                         .memory = true,
                         .valid = false,
                         .slot = kNone,
                         .bytes = std::move(bytes)});
    }
  }

  // Takes what was posted to it.
  using Sink = std::function<void(uint64_t, std::span<const uint8_t>)>;
  void SetMemory(Sink memory) { other_ = std::move(memory); }

  void Deliver(size_t writes) {
    for (; writes > 0 && !flight_.empty(); writes--) {
      const Write& write = flight_.front();
      if (write.memory) {
        other_(write.to, write.bytes);
      } else {
        memcpy(memory_.get() + write.to, write.bytes.data(),
               write.bytes.size());
      }
      if (write.slot != kNone) {
        Land(write);
      }
      flight_.pop_front();
    }
  }

  void LoseFlight() {
    flight_.clear();
    for (Slot& slot : slots_) {
      slot.under_way = 0;
    }
  }
  [[nodiscard]] size_t in_flight() const { return flight_.size(); }
  [[nodiscard]] const ropcie_link_offer& offer() const { return offer_; }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  struct Write {
    uint64_t to;
    bool memory;
    bool valid;
    size_t slot;
    std::vector<uint8_t> bytes;
  };
  // What is known of the record in a slot, but for the memory itself.
  struct Slot {
    uint64_t valid = 0;
    uint32_t under_way = 0;
  };
  struct Free {
    void operator()(uint8_t* memory) const { free(memory); }
  };
  using Memory = std::unique_ptr<uint8_t[], Free>;

  void Land(const Write& write) {
    Slot& slot = slots_[write.slot];
    slot.under_way--;
    if (write.valid) {
      memcpy(&slot.valid, write.bytes.data(), sizeof(slot.valid));
    }
  }

  // Zeroed by the system, page by page when touched: windows are large.
  static Memory Allocate(size_t size) {
    return Memory(static_cast<uint8_t*>(calloc(1, size)));
  }

  static ropcie_control* Control(uint8_t* base) {
    return reinterpret_cast<ropcie_control*>(base);
  }

  [[nodiscard]] size_t Size() const {
    return ropcie_link_offer_size(&offer_) + sizeof(ropcie_link_words);
  }

  __le32* Words(uint8_t* base) const {
    return reinterpret_cast<__le32*>(base + ropcie_link_offer_size(&offer_));
  }

  [[nodiscard]] size_t LaneAt(uint32_t n) const {
    return ROPCIE_CONTROL_SIZE + n * ropcie_lane_size(&offer_.geom);
  }

  ropcie_link_offer offer_;
  const Bridge* bridge_;
  Memory memory_;
  Memory view_;
  std::deque<Write> flight_;
  std::vector<Slot> slots_;
  Sink other_;
};

}  // namespace ropcie::sim

#endif  // ROPCIE_TESTS_SIM_WINDOW_H
