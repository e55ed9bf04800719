// SPDX-License-Identifier: GPL-2.0
// The handshake with a peer that says anything, at any time.
#include "fuzz.h"

namespace ropcie::fuzz {
namespace {

constexpr ropcie_link_offer kOffer = {
    .lanes = 2, .geom = {.slots = 64, .bytes = 131072}, .features = 3};
constexpr uint64_t kLimit = 1000;
constexpr uint64_t kHold = 100;

class Link {
 public:
  explicit Link(Input* input) : input_(input), room_(Number<uint64_t>(input)) {
    ropcie_link_init(&link_, &kOffer, room_, kLimit, kHold);
  }

  void Run() {
    while (input_->remaining_bytes() > 0) {
      switch (input_->ConsumeIntegralInRange(0, 7)) {
        case 0:
          cleared_ = false;
          Look(ropcie_link_kill(&link_));
          break;
        case 1:
          Look(ropcie_link_prepared(&link_));
          break;
        default:
          Change();
          now_ += input_->ConsumeBool() ? kLimit / 8 : Number<uint16_t>(input_);
          hw_up_ = input_->ConsumeBool();
          cleared_ = cleared_ && hw_up_;
          Look(ropcie_link_step(&link_, hw_up_, &peer_,
                                Number<uint32_t>(input_), now_));
      }
    }
  }

 private:
  // What the peer says next: something else, or an honest answer.
  void Change() {
    switch (input_->ConsumeIntegralInRange(0, 5)) {
      case 0:
        input_->ConsumeData(&peer_, sizeof(peer_));
        return;
      case 1:
        peer_ = {};
        return;
      case 2:
        peer_.w[ROPCIE_LW_MAGIC] = ROPCIE_LINK_MAGIC | ROPCIE_WIRE_VERSION;
        peer_.w[ROPCIE_LW_EPOCH] = Number<uint32_t>(input_);
        peer_.w[ROPCIE_LW_ACK] = 0;
        peer_.w[ROPCIE_LW_GEOM] = input_->ConsumeBool()
                                      ? ropcie_link_geom_pack(&kOffer)
                                      : Number<uint32_t>(input_);
        peer_.w[ROPCIE_LW_FEATURES] = Number<uint32_t>(input_);
        break;
      case 3:
        peer_.w[ROPCIE_LW_ACK] = link_.own.w[ROPCIE_LW_EPOCH];
        break;
      case 4:
        peer_.w[input_->ConsumeIntegralInRange(0, ROPCIE_LW_NUM - 1)] =
            Number<uint32_t>(input_);
        return;
      default:
        peer_.w[ROPCIE_LW_HEARTBEAT]++;
        return;
    }
    peer_.w[ROPCIE_LW_CHECK] = ropcie_link_check(&peer_);
  }

  void Look(uint32_t todo) {
    FUZZ_CHECK(link_.state <= ROPCIE_LINK_UP);
    FUZZ_CHECK(!(todo & ROPCIE_LINK_DO_LOST) || was_up_);
    FUZZ_CHECK(!(todo & ROPCIE_LINK_DO_UP) || link_.state == ROPCIE_LINK_UP);
    FUZZ_CHECK(!was_up_ || link_.state == ROPCIE_LINK_UP ||
               (todo & ROPCIE_LINK_DO_LOST));
    FUZZ_CHECK(
        (link_.state == ROPCIE_LINK_UP) ==
        (was_up_ ? !(todo & ROPCIE_LINK_DO_LOST) || (todo & ROPCIE_LINK_DO_UP)
                 : !!(todo & ROPCIE_LINK_DO_UP)));
    FUZZ_CHECK(!(todo & ROPCIE_LINK_DO_UP) || acknowledged_);
    was_up_ = link_.state == ROPCIE_LINK_UP;
    acknowledged_ = acknowledged_ && link_.state >= ROPCIE_LINK_READY;
    if (link_.state >= ROPCIE_LINK_PREPARE) {
      const ropcie_link_offer& offer = link_.peer_offer;
      FUZZ_CHECK(offer.lanes >= 1 && offer.lanes <= ROPCIE_MAX_LANES);
      FUZZ_CHECK(ropcie_lane_geom_ok(&offer.geom));
      FUZZ_CHECK(ropcie_link_offer_size(&offer) <= room_);
      FUZZ_CHECK(link_.peer_epoch != 0);
    }
    if (link_.state >= ROPCIE_LINK_HELLO) {
      FUZZ_CHECK(link_.own.w[ROPCIE_LW_EPOCH] != 0);
    }
    FUZZ_CHECK(link_.own.w[ROPCIE_LW_MAGIC] == 0 ||
               link_.own.w[ROPCIE_LW_CHECK] == ropcie_link_check(&link_.own));
    FUZZ_CHECK(!was_down_ || link_.state == ROPCIE_LINK_DOWN ||
               (cleared_ && now_ >= cleared_at_ + kHold));
    was_down_ = link_.state == ROPCIE_LINK_DOWN;
    cleared_ = cleared_ && was_down_;
    if ((todo & ROPCIE_LINK_DO_PUBLISH) != 0) {
      const bool sent = input_->ConsumeBool();
      ropcie_link_published(&link_, sent, now_);
      if (was_down_ && hw_up_ && sent && !cleared_) {
        cleared_ = true;
        cleared_at_ = now_;
      }
      acknowledged_ =
          acknowledged_ || (sent && link_.state == ROPCIE_LINK_READY);
    }
  }

  Input* input_;
  uint64_t room_;
  uint64_t now_ = 1;
  bool was_up_ = false;
  bool was_down_ = true;
  bool cleared_ = false;
  bool acknowledged_ = false;
  bool hw_up_ = false;
  uint64_t cleared_at_ = 0;
  ropcie_link_words peer_{};
  ropcie_peer_link link_{};
};

}  // namespace
}  // namespace ropcie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  ropcie::fuzz::Link(&input).Run();
  return 0;
}
