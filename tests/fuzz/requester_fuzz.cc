// SPDX-License-Identifier: GPL-2.0
// The send queue of a connection whose peer answers anything: each work request
// completes once, in order, and no answer goes outside of its work request.
#include <vector>

#include "fuzz.h"

namespace ropcie::fuzz {
namespace {

constexpr uint32_t kSize = 8;
constexpr uint32_t kStride = sizeof(ropcie_send_wqe) + sizeof(ropcie_sge);
constexpr uint32_t kLocal = 11;
constexpr uint32_t kRemote = 22;
constexpr uint8_t kOps[] = {
    ROPCIE_OP_SEND,      ROPCIE_OP_WRITE,  ROPCIE_OP_READ,
    ROPCIE_OP_CAS,       ROPCIE_OP_FAA,    ROPCIE_OP_ATOMIC_WRITE,
    ROPCIE_LOCAL_REG_MR, ROPCIE_LOCAL_INV, ROPCIE_LOCAL_BAD,
    ROPCIE_LOCAL_BIND,
};
constexpr size_t kUnreliableOps = 2;  // the first ones

class Queue {
 public:
  explicit Queue(Input* input)
      : input_(input), memory_(size_t{kSize} * kStride / sizeof(uint64_t)) {
    ropcie_req_init(&req_, memory_.data(), kSize, kStride);
    ropcie_req_attr attr{};
    attr.psn = Number<uint32_t>(input_) & ROPCIE_PSN_MASK;
    attr.frag = 256U << input_->ConsumeIntegralInRange(0, 4);
    attr.dest_qpn = kRemote;
    attr.src_qpn = kLocal;
    attr.retry_cnt = input_->ConsumeIntegralInRange<uint8_t>(0, 7);
    attr.rnr_retry = input_->ConsumeIntegralInRange<uint8_t>(0, 7);
    attr.max_rd_atomic = input_->ConsumeIntegralInRange<uint8_t>(1, 16);
    attr.unreliable = input_->ConsumeProbability<float>() < 0.1F;
    attr.timeout_ns = attr.unreliable ? 0 : input_->ConsumeIntegral<uint16_t>();
    datagrams_ = attr.unreliable && input_->ConsumeBool();
    attr_ = attr;
    sent_psn_ = laned_psn_ = attr.psn;
    ropcie_req_connect(&req_, &attr_);
  }

  void Run() {
    while (input_->remaining_bytes() > 0) {
      Step();
      TakeCompletions();
      FUZZ_CHECK(req_.error != 0 ||
                 req_.next - req_.tail <= ropcie_req_pending(&req_));
      // A wait has an end.
      FUZZ_CHECK(!req_.rnr_wait || req_.deadline != 0);
      if (req_.error != 0 && attr_.unreliable && input_->ConsumeBool()) {
        Resume();
      }
      if (req_.error != 0 && input_->ConsumeBool()) {
        break;
      }
    }
    Flush();
  }

 private:
  // In the error state all the rest is flushed, once.
  void Flush() {
    TakeCompletions();
    ropcie_req_comp comp;
    while (ropcie_req_flush(&req_, &comp)) {
      Completed(comp);
      FUZZ_CHECK(comp.status == ROPCIE_WC_WR_FLUSH_ERR);
    }
    FUZZ_CHECK(completed_ == posted_);
    FUZZ_CHECK(ropcie_req_pending(&req_) == 0);
  }

  void Resume() {
    Flush();
    ropcie_req_resume(&req_);
    FUZZ_CHECK(req_.error == 0 && ropcie_req_drained(&req_));
    failed_ = false;
  }

  // It sends again from what it has not got, and no retry is counted.
  void FetchAgain() {
    const ropcie_requester before = req_;
    ropcie_req_fetch_again(&req_);
    FUZZ_CHECK(req_.retry_left == before.retry_left &&
               req_.rnr_left == before.rnr_left);
    FUZZ_CHECK(req_.rnr_wait == before.rnr_wait);
    if (req_.error == 0 && req_.fetches > 0 && !req_.rnr_wait) {
      ropcie_req_rec rec;
      FUZZ_CHECK(req_.psn == req_.acked_psn && req_.local_error == 0);
      FUZZ_CHECK(ropcie_req_next(&req_, &rec) == ROPCIE_REQ_SEND &&
                 rec.hdr.psn == req_.acked_psn);
      FUZZ_CHECK(!ropcie_req_may_place(&req_, &rec));
    }
  }

  void Step() {
    switch (input_->ConsumeIntegralInRange(0, 8)) {
      case 0:
      case 1:
        Post();
        break;
      case 2:
      case 3:
        SendSome();
        break;
      case 4:
        Response();
        break;
      case 5:
        Data();
        break;
      case 8:
        FetchAgain();
        break;
      case 6:
        now_ += Number<uint32_t>(input_);
        ropcie_req_timeout(&req_, now_, input_->ConsumeBool());
        break;
      default: {
        const auto what = input_->ConsumeIntegral<uint8_t>();
        if (what == 0) {
          ropcie_req_fail(&req_, ROPCIE_WC_RETRY_EXC_ERR);
        } else if (what < 32 && !attr_.unreliable) {
          SetRetries();
        } else {
          ropcie_req_drain(&req_, input_->ConsumeBool());
        }
      }
    }
  }

  void Post() {
    if (ropcie_req_space(&req_) == 0) {
      return;
    }
    ropcie_send_wqe* const wqe = ropcie_req_slot(&req_);
    *wqe = {};
    wqe->wr_id = posted_++;
    wqe->op = kOps[input_->ConsumeIntegralInRange<size_t>(
        0, attr_.unreliable ? kUnreliableOps - 1 : sizeof(kOps) - 1)];
    if (datagrams_) {
      Datagram(wqe);
      return;
    }
    wqe->flags = input_->ConsumeIntegral<uint8_t>() &
                 (ROPCIE_WR_SIGNALED | ROPCIE_WR_SOLICITED | ROPCIE_WR_FENCE);
    if (wqe->op == ROPCIE_OP_SEND || wqe->op == ROPCIE_OP_WRITE) {
      wqe->flags |= input_->ConsumeBool() ? ROPCIE_WR_IMM : 0;
    }
    wqe->num_sge = 1;
    switch (wqe->op) {
      case ROPCIE_OP_SEND:
      case ROPCIE_OP_WRITE:
      case ROPCIE_OP_READ:
        wqe->length = Number<uint32_t>(input_) % (1U << 20);
        break;
      case ROPCIE_OP_CAS:
      case ROPCIE_OP_FAA:
      case ROPCIE_OP_ATOMIC_WRITE:
        wqe->length = ROPCIE_ATOMIC_LEN;
        break;
      default:
        wqe->num_sge = 0;
    }
    wqe->sge[0] = {.addr = 0, .length = wqe->length, .lkey = 1};
    ropcie_req_post(&req_);
  }

  // What verbs let be one.
  void Datagram(ropcie_send_wqe* wqe) {
    wqe->op = ROPCIE_OP_DATAGRAM;
    wqe->dest_qpn =
        input_->ConsumeIntegralInRange<uint32_t>(1, ROPCIE_QPN_MASK);
    wqe->qkey = Number<uint32_t>(input_);
    wqe->net = input_->ConsumeIntegralInRange<uint8_t>(ROPCIE_NET_ROCE_V1,
                                                       ROPCIE_NET_END - 1);
    wqe->vlan = input_->ConsumeBool()
                    ? ROPCIE_NO_VLAN
                    : input_->ConsumeIntegralInRange<uint16_t>(0, 4095);
    wqe->length =
        input_->ConsumeIntegralInRange<uint32_t>(0, ROPCIE_MAX_DATAGRAM);
    wqe->num_sge = 1;
    wqe->sge[0] = {.addr = 0, .length = wqe->length, .lkey = 1};
    ropcie_req_post(&req_);
  }

  // What is under way has its end then, too.
  void SetRetries() {
    attr_.retry_cnt = input_->ConsumeIntegralInRange<uint8_t>(0, 7);
    attr_.rnr_retry = input_->ConsumeIntegralInRange<uint8_t>(0, 7);
    attr_.timeout_ns = input_->ConsumeIntegral<uint16_t>();
    ropcie_req_set_retries(&req_, attr_.retry_cnt, attr_.rnr_retry,
                           attr_.timeout_ns, now_);
    FUZZ_CHECK(req_.retry_left <= 7 && req_.rnr_left <= 7);
  }

  void SendSome() {
    for (auto left = input_->ConsumeIntegralInRange(1, 40); left > 0; --left) {
      ropcie_req_rec rec;
      switch (ropcie_req_next(&req_, &rec)) {
        case ROPCIE_REQ_SEND: {
          ropcie_hdr decoded;
          FUZZ_CHECK(Passes(rec.hdr, &decoded));
          FUZZ_CHECK(rec.hdr.op == ROPCIE_OP_READ ||
                     rec.off + rec.hdr.frag_len <=
                         rec.wqe->length + (datagrams_ ? ROPCIE_GRH_LEN : 0));
          if (input_->ConsumeIntegralInRange(0, 15) == 0) {
            ropcie_req_local_error(&req_, ROPCIE_WC_LOC_PROT_ERR);
            return;
          }
          Place(&rec);
          Sent(rec);
          break;
        }
        case ROPCIE_REQ_LOCAL:
          if (rec.wqe->op == ROPCIE_LOCAL_BAD || input_->ConsumeBool()) {
            ropcie_req_local_error(&req_, ROPCIE_WC_MW_BIND_ERR);
            return;
          }
          ropcie_req_executed(&req_);
          break;
        default:
          return;
      }
    }
  }

  // Past the lane, where it may be.
  void Place(ropcie_req_rec* rec) {
    if (!ropcie_req_may_place(&req_, rec)) {
      return;
    }
    const bool read = rec->hdr.op == ROPCIE_OP_READ;
    FUZZ_CHECK(!attr_.unreliable && (read || rec->hdr.op == ROPCIE_OP_WRITE));
    FUZZ_CHECK(rec->hdr.psn == sent_psn_);  // for the first time
    const bool clear = ropcie_req_clear(&req_);
    // What is in the lane is acknowledged.
    FUZZ_CHECK(!clear || ropcie_psn_diff(laned_psn_, req_.acked_psn) <= 0);
    if (!input_->ConsumeBool()) {
      return;
    }
    ropcie_hdr decoded;
    if (read) {
      ropcie_req_name_sink(rec);
      FUZZ_CHECK(Passes(rec->hdr, &decoded));
      FUZZ_CHECK(decoded.sink_key == rec->wqe->sge[0].lkey &&
                 decoded.sink_addr == rec->wqe->sge[0].addr);
    } else if (clear) {
      rec->hdr.flags |= ROPCIE_F_PLACED;
      rec->hdr.grant = 1;
      FUZZ_CHECK(Passes(rec->hdr, &decoded));
    }
  }

  void Sent(const ropcie_req_rec& rec) {
    const uint32_t behind = ropcie_psn_add(rec.hdr.psn, rec.npsn);
    ropcie_req_sent(&req_, &rec, now_);
    if (ropcie_psn_diff(behind, sent_psn_) > 0) {
      sent_psn_ = behind;
    }
    // What may be refused for want of a receive is sent again.
    if (rec.hdr.op != ROPCIE_OP_WRITE ||
        (rec.hdr.flags & ROPCIE_F_PLACED) == 0 ||
        (rec.hdr.flags & ROPCIE_F_IMM) != 0) {
      if (ropcie_psn_diff(behind, laned_psn_) > 0 ||
          ropcie_psn_diff(laned_psn_, req_.acked_psn) <= 0) {
        laned_psn_ = behind;
      }
    }
    FUZZ_CHECK(attr_.unreliable || req_.fetches > 0 ||
               !ropcie_req_awaits(&req_, 1, 0));
  }

  // Near what is under way, or anything.
  uint32_t Psn() {
    return input_->ConsumeIntegralInRange(0, 7) != 0
               ? ropcie_psn_add(req_.acked_psn,
                                input_->ConsumeIntegral<uint8_t>() - 4)
               : input_->ConsumeIntegral<uint32_t>() & ROPCIE_PSN_MASK;
  }

  ropcie_hdr Answer(ropcie_op op) {
    ropcie_hdr hdr{};
    hdr.op = op;
    hdr.mq = ropcie_mq_id(kLocal, ROPCIE_MQ_RESPONSE);
    hdr.src_qpn = kRemote;
    hdr.psn = Psn();
    return hdr;
  }

  void Response() {
    ropcie_hdr hdr = Answer(ROPCIE_OP_ACK);
    hdr.msn = input_->ConsumeIntegral<uint32_t>() & ROPCIE_PSN_MASK;
    if (input_->ConsumeBool()) {
      hdr.msn = ropcie_psn_add(req_.ssn, input_->ConsumeIntegral<uint8_t>());
    }
    hdr.credits = Number<uint32_t>(input_) & ROPCIE_PSN_MASK;
    hdr.syndrome =
        input_->ConsumeIntegralInRange<uint8_t>(0, ROPCIE_SYNDROME_END - 1);
    hdr.timer = input_->ConsumeIntegralInRange<uint8_t>(0, 31);
    ropcie_hdr decoded;
    FUZZ_CHECK(Passes(hdr, &decoded));
    ropcie_req_response(&req_, &decoded, now_);
  }

  void Data() {
    ropcie_hdr hdr = Answer(input_->ConsumeBool() ? ROPCIE_OP_READ_RESP
                                                  : ROPCIE_OP_ATOMIC_RESP);
    if (hdr.op == ROPCIE_OP_READ_RESP) {
      hdr.flags =
          input_->ConsumeIntegral<uint8_t>() & (ROPCIE_F_FIRST | ROPCIE_F_LAST);
      hdr.frag_len =
          input_->ConsumeBool() ? attr_.frag : Number<uint32_t>(input_);
      hdr.msg_len =
          input_->ConsumeBool() ? hdr.frag_len : Number<uint32_t>(input_);
    }
    ropcie_hdr decoded;
    if (!Passes(hdr, &decoded)) {
      return;
    }
    ropcie_req_place place;
    if (!ropcie_req_data(&req_, &decoded, &place, now_)) {
      return;
    }
    FUZZ_CHECK(place.len <= place.wqe->length);
    FUZZ_CHECK(place.off <= place.wqe->length - place.len);
    FUZZ_CHECK(place.len ==
               (hdr.op == ROPCIE_OP_READ_RESP ? hdr.frag_len : 8U));
    if (place.wqe->op == ROPCIE_OP_READ && place.len > 0) {
      FUZZ_CHECK(ropcie_req_awaits(&req_, 1, place.off));
    }
    switch (input_->ConsumeIntegralInRange(0, 15)) {
      case 0:
        ropcie_req_fail(&req_, ROPCIE_WC_LOC_PROT_ERR);
        break;
      case 1:  // its memory is not there
        break;
      default:
        ropcie_req_placed(&req_, &decoded, now_);
    }
  }

  void TakeCompletions() {
    ropcie_req_comp comp;
    while (ropcie_req_complete(&req_, &comp)) {
      Completed(comp);
    }
  }

  void Completed(const ropcie_req_comp& comp) {
    FUZZ_CHECK(comp.wr_id == completed_);
    ++completed_;
    FUZZ_CHECK(completed_ <= posted_);
    FUZZ_CHECK(!failed_ || comp.status == ROPCIE_WC_WR_FLUSH_ERR);
    failed_ = failed_ || comp.status != 0;
  }

  Input* input_;
  std::vector<uint64_t> memory_;
  ropcie_req_attr attr_{};
  ropcie_requester req_{};
  uint64_t now_ = 1;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  bool failed_ = false;
  bool datagrams_ = false;
  uint32_t sent_psn_ = 0;   // behind all that was ever sent
  uint32_t laned_psn_ = 0;  // of that, behind what went through the lane
};

}  // namespace
}  // namespace ropcie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  ropcie::fuzz::Queue(&input).Run();
  return 0;
}
