// SPDX-License-Identifier: GPL-2.0
// What the records alone say of a requester that is refused for want of a
// receive: how often, and until when it waits. Nothing here is the engine's.
// Only for connections without READs and atomics.
#ifndef ROPCIE_TESTS_SIM_RNR_H
#define ROPCIE_TESTS_SIM_RNR_H

#include <cstdint>

#include "core/core.h"

namespace ropcie::sim {

class RnrRule {
 public:
  // A first PSN, and the retries that the program allows: 7 is no limit.
  RnrRule(uint32_t psn, uint8_t retries)
      : done_(psn), end_(psn), retries_(retries) {}

  // A request goes out.
  void Sent(const ropcie_hdr& hdr, uint64_t now);
  // An acknowledge comes in.
  void Heard(const ropcie_hdr& hdr, uint64_t now);
  // It has to fail now; else it may not.
  [[nodiscard]] bool UsedUp() const { return used_up_; }

 private:
  static constexpr uint8_t kForEver = 7;

  uint32_t done_;  // PSNs before it are acknowledged
  uint32_t end_;   // behind the last that was sent
  uint8_t retries_;
  uint32_t refused_ = 0;  // since an acknowledge was worth something
  uint64_t until_ = 0;    // not to send before
  bool used_up_ = false;
};

}  // namespace ropcie::sim

#endif  // ROPCIE_TESTS_SIM_RNR_H
