// SPDX-License-Identifier: GPL-2.0
// The receiving side of a connection whose peer sends any requests: nothing is
// placed outside of a message, of a receive, or of what was named, and every
// answer is one that a decoder lets pass.
#include "fuzz.h"

namespace ropcie::fuzz {
namespace {

constexpr uint32_t kLocal = 11;
constexpr uint32_t kRemote = 22;

class Receiver {
 public:
  explicit Receiver(Input* input) : input_(input) {
    attr_.psn = Number<uint32_t>(input_) & ROPCIE_PSN_MASK;
    attr_.dest_qpn = kRemote;
    attr_.src_qpn = kLocal;
    attr_.min_rnr_timer = input_->ConsumeIntegral<uint8_t>();
    attr_.max_rd_atomic =
        input_->ConsumeIntegralInRange<uint8_t>(0, ROPCIE_RSP_DEPTH);
    attr_.unreliable = input_->ConsumeIntegralInRange(0, 3) == 0;
    attr_.xrc = !attr_.unreliable && input_->ConsumeIntegralInRange(0, 3) == 0;
    attr_.access = input_->ConsumeIntegral<uint8_t>() | 0xe;
    ropcie_rsp_connect(&rsp_, &attr_);
  }

  void Run() {
    while (input_->remaining_bytes() > 0) {
      switch (input_->ConsumeIntegralInRange(0, 8)) {
        case 0:
          ropcie_rsp_replenished(&rsp_);
          break;
        case 3:
          There();
          break;
        case 1:
          Answers();
          break;
        case 2:
          if (input_->ConsumeIntegral<uint8_t>() == 0) {
            ropcie_rsp_stop(&rsp_);
          }
          break;
        default:
          Request();
      }
    }
    Answers();
  }

 private:
  ropcie_hdr Header() {
    constexpr uint8_t kOps[] = {ROPCIE_OP_SEND, ROPCIE_OP_WRITE,
                                ROPCIE_OP_READ, ROPCIE_OP_CAS,
                                ROPCIE_OP_FAA,  ROPCIE_OP_ATOMIC_WRITE};
    ropcie_hdr hdr{};
    hdr.op = kOps[input_->ConsumeIntegralInRange<size_t>(0, sizeof(kOps) - 1)];
    if (rsp_.in_msg && input_->ConsumeBool()) {
      hdr.op = rsp_.op;
    }
    hdr.mq = ropcie_mq_id(kLocal, ROPCIE_MQ_REQUEST);
    hdr.src_qpn = kRemote;
    hdr.psn =
        ropcie_psn_add(rsp_.epsn, input_->ConsumeIntegralInRange(0, 3) != 0
                                      ? 0
                                      : input_->ConsumeIntegral<uint32_t>());
    hdr.flags = input_->ConsumeIntegral<uint8_t>();
    hdr.srqn = attr_.xrc ? 3 : 0;
    hdr.rkey = input_->ConsumeIntegral<uint8_t>();
    hdr.addr = Number<uint64_t>(input_);
    switch (hdr.op) {
      case ROPCIE_OP_READ:
        hdr.flags = 0;
        hdr.msg_len = Number<uint32_t>(input_);
        hdr.imm = input_->ConsumeIntegralInRange<uint32_t>(64, 65536);
        break;
      case ROPCIE_OP_CAS:
      case ROPCIE_OP_FAA:
        hdr.flags = 0;
        break;
      case ROPCIE_OP_ATOMIC_WRITE:
        hdr.flags &= ROPCIE_F_ACKREQ;
        hdr.flags |= ROPCIE_F_FIRST | ROPCIE_F_LAST;
        hdr.msg_len = hdr.frag_len = ROPCIE_ATOMIC_LEN;
        break;
      default:
        if (rsp_.in_msg && input_->ConsumeBool()) {
          hdr.flags &= static_cast<uint8_t>(~ROPCIE_F_FIRST);
          hdr.msg_len = rsp_.msg_len;
          hdr.frag_len = input_->ConsumeBool() ? rsp_.msg_len - rsp_.msg_off
                                               : Number<uint32_t>(input_);
        } else {
          hdr.msg_len = Number<uint32_t>(input_);
          hdr.frag_len =
              input_->ConsumeBool() ? hdr.msg_len : Number<uint32_t>(input_);
        }
        if (hdr.op == ROPCIE_OP_WRITE && (hdr.flags & ROPCIE_F_FIRST) == 0) {
          hdr.rkey = 0;
          hdr.addr = 0;
        }
    }
    return hdr;
  }

  void Request() {
    ropcie_hdr hdr;
    if (!Passes(Header(), &hdr)) {
      return;
    }
    if (ropcie_rsp_names_srq(&rsp_, &hdr) && input_->ConsumeBool()) {
      ropcie_rsp_fail(&rsp_, ROPCIE_NAK_INV_REQ);
      return;
    }
    const bool takes = ropcie_rsp_takes_receive(&rsp_, &hdr);
    const bool holds = ropcie_rsp_holds_receive(&rsp_);
    const uint32_t ready = holds || (takes && input_->ConsumeBool()) ? 1 : 0;
    const uint64_t room = holds ? room_ : Number<uint32_t>(input_);
    const bool dead = rsp_.dead;
    ropcie_rsp_place place{};
    switch (ropcie_rsp_request(&rsp_, &hdr, ready, room, &place)) {
      case ROPCIE_RSP_PLACE:
        FUZZ_CHECK(!dead && ready == 1);
        FUZZ_CHECK(hdr.op == ROPCIE_OP_SEND);
        FUZZ_CHECK(hdr.msg_len <= room);
        CheckPlace(hdr, place);
        room_ = room;
        Place(hdr, place);
        break;
      case ROPCIE_RSP_WRITE:
        FUZZ_CHECK(!dead);
        FUZZ_CHECK(hdr.op == ROPCIE_OP_WRITE ||
                   hdr.op == ROPCIE_OP_ATOMIC_WRITE);
        FUZZ_CHECK(attr_.access & ROPCIE_ACCESS_REMOTE_WRITE);
        CheckPlace(hdr, place);
        if (place.first) {
          addr_ = hdr.addr;
          rkey_ = hdr.rkey;
        }
        FUZZ_CHECK(place.addr == addr_ + place.off && place.rkey == rkey_);
        Place(hdr, place);
        break;
      case ROPCIE_RSP_READ:
        FUZZ_CHECK(!dead && !attr_.unreliable);
        FUZZ_CHECK(attr_.access & ROPCIE_ACCESS_REMOTE_READ);
        Fetch(hdr);
        break;
      case ROPCIE_RSP_ATOMIC:
        FUZZ_CHECK(!dead && !attr_.unreliable);
        FUZZ_CHECK(attr_.access & ROPCIE_ACCESS_REMOTE_ATOMIC);
        FUZZ_CHECK(hdr.addr % 8 == 0);
        Fetch(hdr);
        break;
      case ROPCIE_RSP_TOO_LONG:
      case ROPCIE_RSP_INVALID:
        FUZZ_CHECK(rsp_.dead && !attr_.unreliable);
        break;
      case ROPCIE_RSP_DROP:
        break;
    }
  }

  void CheckPlace(const ropcie_hdr& hdr, const ropcie_rsp_place& place) const {
    FUZZ_CHECK(place.first == (place.off == 0 && (hdr.flags & 1)));
    FUZZ_CHECK(place.off <= hdr.msg_len);
    FUZZ_CHECK(hdr.frag_len <= hdr.msg_len - place.off);
    FUZZ_CHECK(place.last == (place.off + hdr.frag_len == hdr.msg_len));
    FUZZ_CHECK(place.first || (place.off == off_ && hdr.msg_len == length_));
  }

  // It is not executed. Return: true when it may not be, or not yet.
  bool Refuse() {
    switch (input_->ConsumeIntegralInRange(0, 31)) {
      case 0:
        ropcie_rsp_fail(&rsp_, ROPCIE_NAK_REM_ACCESS);
        return true;
      case 1:
      case 2:
        NotThere();
        return true;
      default:
        return false;
    }
  }

  // The peer is asked for this record again, and nothing else has changed.
  void NotThere() {
    const ropcie_responder before = rsp_;
    ropcie_rsp_not_there(&rsp_);
    FUZZ_CHECK(rsp_.msn == before.msn && rsp_.fetch_head == before.fetch_head);
    FUZZ_CHECK(rsp_.epsn == before.epsn && rsp_.dead == before.dead);
    if (attr_.unreliable) {
      FUZZ_CHECK(!rsp_.in_msg && !ropcie_rsp_owes(&rsp_));
      return;
    }
    FUZZ_CHECK(rsp_.in_msg == before.in_msg && rsp_.owes && rsp_.nak_sent);
    FUZZ_CHECK(rsp_.nak == ROPCIE_RNR_NAK && rsp_.nak_psn == rsp_.epsn);
  }

  // Who was told to wait for memory hears of it when there are receives.
  void There() {
    const bool waits = rsp_.paging && rsp_.nak_sent && !rsp_.owes && !rsp_.dead;
    ropcie_rsp_there(&rsp_);
    FUZZ_CHECK(!rsp_.paging);
    if (waits && input_->ConsumeBool()) {
      FUZZ_CHECK(ropcie_rsp_replenished(&rsp_) && rsp_.nak == ROPCIE_ACK);
    }
  }

  void Place(const ropcie_hdr& hdr, const ropcie_rsp_place& place) {
    if (Refuse()) {
      return;
    }
    off_ = place.off + hdr.frag_len;
    length_ = hdr.msg_len;
    ropcie_rsp_placed(&rsp_, &hdr);
  }

  void Fetch(const ropcie_hdr& hdr) {
    if (Refuse()) {
      return;
    }
    ropcie_rsp_fetched(&rsp_, &hdr, input_->ConsumeIntegral<uint64_t>());
  }

  // Answers of a READ may be very many: the lane is full after some. Each
  // brings the end nearer.
  void Answers() {
    for (int left = 200; ropcie_rsp_owes(&rsp_) && left > 0; --left) {
      const ropcie_responder before = rsp_;
      ropcie_hdr hdr;
      ropcie_rsp_answer(&rsp_, input_->ConsumeIntegral<uint8_t>(), &hdr);
      // With them the payload's place is handed over, which is not encoded.
      const bool data = hdr.op == ROPCIE_OP_READ_RESP;
      FUZZ_CHECK(!data || attr_.access & ROPCIE_ACCESS_REMOTE_READ);
      ropcie_hdr decoded;
      FUZZ_CHECK(Passes(hdr, &decoded));
      // Nobody waits for longer than the consumer has said.
      FUZZ_CHECK(hdr.op != ROPCIE_OP_ACK || hdr.syndrome != ROPCIE_RNR_NAK ||
                 ropcie_rnr_timer_ns(hdr.timer) <=
                     ropcie_rnr_timer_ns(attr_.min_rnr_timer & 31));
      if (data && input_->ConsumeIntegralInRange(0, 63) == 0) {
        ropcie_rsp_fail_read(&rsp_, ROPCIE_NAK_REM_ACCESS);
        continue;
      }
      ropcie_rsp_answered(&rsp_, &hdr);
      const auto& fetch =
          rsp_.fetch[before.fetch_next % ROPCIE_RSP_DEPTH];  // the same
      FUZZ_CHECK(
          hdr.op == ROPCIE_OP_ACK
              ? !rsp_.owes
              : rsp_.fetch_next == before.fetch_next + 1 ||
                    fetch.off >
                        before.fetch[before.fetch_next % ROPCIE_RSP_DEPTH].off);
    }
  }

  Input* input_;
  ropcie_rsp_attr attr_{};
  ropcie_responder rsp_{};
  uint64_t room_ = 0;
  uint64_t addr_ = 0;
  uint32_t rkey_ = 0;
  uint32_t off_ = 0;
  uint32_t length_ = 0;
};

}  // namespace
}  // namespace ropcie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  ropcie::fuzz::Receiver(&input).Run();
  return 0;
}
