// SPDX-License-Identifier: GPL-2.0
#include "rnr.h"

#include "env.h"

namespace ropcie::sim {

void RnrRule::Sent(const ropcie_hdr& hdr, uint64_t now) {
  Require(!used_up_, "sends with no retry left");
  Require(now >= until_, "sends again before the receiver is ready");
  until_ = 0;
  const uint32_t behind = ropcie_psn_add(hdr.psn, 1);
  if (ropcie_psn_diff(behind, end_) > 0) {
    end_ = behind;
  }
}

void RnrRule::Heard(const ropcie_hdr& hdr, uint64_t now) {
  const bool ack = hdr.syndrome == ROPCIE_ACK;
  const uint32_t psn = ropcie_psn_add(hdr.psn, ack ? 1 : 0);
  // Late, or of what was never sent.
  if (ropcie_psn_diff(psn, done_) < 0 || ropcie_psn_diff(psn, end_) > 0 ||
      (!ack && psn == end_)) {
    return;
  }
  if (psn != done_) {
    done_ = psn;
    refused_ = 0;
  }
  if ((ack && hdr.credits != 0 && hdr.credits != ROPCIE_NO_CREDITS) ||
      hdr.syndrome == ROPCIE_NAK_SEQ) {
    until_ = 0;
  }
  if (hdr.syndrome == ROPCIE_RNR_NAK) {
    refused_++;
    used_up_ = retries_ != kForEver && refused_ > retries_;
    until_ = now + ropcie_rnr_timer_ns(hdr.timer);
  }
}

}  // namespace ropcie::sim
