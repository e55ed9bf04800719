// SPDX-License-Identifier: GPL-2.0
// Both halves of a lane over memory of their own, with guards around it.
#ifndef ROPCIE_TESTS_CORE_LANE_H
#define ROPCIE_TESTS_CORE_LANE_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core.h"

namespace ropcie {

class Lane {
 public:
  static constexpr ropcie_lane_geom kSmallest = {.slots = 64, .bytes = 131072};

  explicit Lane(uint32_t epoch = 7, const ropcie_lane_geom& geom = kSmallest)
      : geom_(geom),
        // Aligned to 64 by hand: valid words are 8 bytes, read at once.
        memory_(ropcie_lane_size(&geom) + 3 * kGuard, kPattern),
        ends_(geom.slots) {
    std::fill_n(base(), ropcie_lane_size(&geom_), 0);
    Restart(epoch);
  }

  // Both ends begin anew over whatever is in the memory.
  void Restart(uint32_t epoch) {
    cons_ = 0;
    ropcie_lane_tx_init(&tx_, base(), &geom_, &cons_, ends_.data(), epoch,
                        false);
    ropcie_lane_rx_init(&rx_, base(), &geom_, &cons_, epoch);
  }

  // As if `position` records had passed already.
  void StartAt(uint64_t position) {
    tx_.head = tx_.tail = position;
    rx_.head = rx_.published = position;
    cons_ = static_cast<uint32_t>(position);
  }

  ropcie_lane_tx* tx() { return &tx_; }
  ropcie_lane_rx* rx() { return &rx_; }
  __le32* cons() { return &cons_; }
  ropcie_slot* slots() { return reinterpret_cast<ropcie_slot*>(base()); }
  uint8_t* base() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data()) + kGuard;
    return memory_.data() + kGuard + (64 - address % 64) % 64;
  }
  [[nodiscard]] const ropcie_lane_geom& geom() const { return geom_; }

  bool GuardsIntact() {
    const size_t size = ropcie_lane_size(&geom_);
    const auto is_pattern = [](uint8_t byte) { return byte == kPattern; };
    return std::all_of(memory_.data(), base(), is_pattern) &&
           std::all_of(base() + size, memory_.data() + memory_.size(),
                       is_pattern);
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr uint8_t kPattern = 0xa5;

  ropcie_lane_geom geom_;
  std::vector<uint8_t> memory_;
  std::vector<u64> ends_;
  // Two threads may have a half each: no line is of both.
  alignas(64) ropcie_lane_tx tx_{};
  alignas(64) ropcie_lane_rx rx_{};
  __le32 cons_ = 0;
};

// The header of a message in one record.
inline ropcie_hdr SendHeader(uint32_t len, uint32_t psn = 0, uint32_t qpn = 5) {
  ropcie_hdr hdr{};
  hdr.op = ROPCIE_OP_SEND;
  hdr.flags = ROPCIE_F_FIRST | ROPCIE_F_LAST;
  hdr.mq = ropcie_mq_id(qpn, ROPCIE_MQ_REQUEST);
  hdr.src_qpn = 9;
  hdr.psn = psn & ROPCIE_PSN_MASK;
  hdr.msg_len = len;
  hdr.frag_len = len;
  return hdr;
}

}  // namespace ropcie

#endif  // ROPCIE_TESTS_CORE_LANE_H
