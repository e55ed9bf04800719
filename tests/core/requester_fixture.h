// SPDX-License-Identifier: GPL-2.0
// A requester, driven by hand: posts, sends into nothing, and answers.
#ifndef ROPCIE_TESTS_CORE_REQUESTER_FIXTURE_H
#define ROPCIE_TESTS_CORE_REQUESTER_FIXTURE_H

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core.h"

namespace ropcie {

inline constexpr uint32_t kFrag = 4096;
inline constexpr uint32_t kLocal = 11;
inline constexpr uint32_t kRemote = 22;
inline constexpr uint64_t kTimeout = 1000000;
inline constexpr uint64_t kRemoteAddr = 0x123456789000;
inline constexpr uint32_t kRkey = 0xabcd;
inline constexpr uint32_t kManyCredits = 1000;

class Requester : public testing::Test {
 protected:
  static constexpr uint32_t kSize = 8;
  static constexpr uint32_t kStride =
      sizeof(ropcie_send_wqe) + sizeof(ropcie_sge);

  void SetUp() override { Connect(100); }

  void Connect(uint32_t psn, uint8_t retry_cnt = 3, uint8_t rnr_retry = 2,
               bool unreliable = false) {
    memory_.assign(kSize * kStride / 8, 0);
    ropcie_req_init(&req_, memory_.data(), kSize, kStride);
    const ropcie_req_attr attr = {.psn = psn,
                                  .frag = kFrag,
                                  .dest_qpn = kRemote,
                                  .src_qpn = kLocal,
                                  .retry_cnt = retry_cnt,
                                  .rnr_retry = rnr_retry,
                                  .max_rd_atomic = 2,
                                  .unreliable = unreliable,
                                  .timeout_ns = unreliable ? 0 : kTimeout};
    ropcie_req_connect(&req_, &attr);
  }

  void Post(uint64_t wr_id, uint32_t length, uint8_t flags = 0,
            ropcie_op op = ROPCIE_OP_SEND) {
    ASSERT_GT(ropcie_req_space(&req_), 0U);
    ropcie_send_wqe* wqe = ropcie_req_slot(&req_);
    wqe->wr_id = wr_id;
    wqe->length = length;
    wqe->imm = 0x1234;
    wqe->op = static_cast<uint8_t>(op);
    wqe->raddr = kRemoteAddr;
    wqe->rkey = kRkey;
    wqe->compare_add = 5;
    wqe->swap = 6;
    wqe->flags = flags;
    wqe->num_sge = 1;
    wqe->sge[0] = {.addr = 0, .length = length, .lkey = 1};
    ropcie_req_post(&req_);
  }

  ropcie_req_verdict Next() { return ropcie_req_next(&req_, &rec_); }

  void SendOne() {
    ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
    ropcie_req_sent(&req_, &rec_, now_);
  }

  // Sends all that may be sent; returns the headers.
  std::vector<ropcie_hdr> SendAll() {
    std::vector<ropcie_hdr> sent;
    while (Next() == ROPCIE_REQ_SEND) {
      sent.push_back(rec_.hdr);
      ropcie_req_sent(&req_, &rec_, now_);
    }
    return sent;
  }

  static ropcie_hdr Answer(ropcie_syndrome syndrome, uint32_t psn,
                           uint32_t msn = 0, uint32_t credits = 0,
                           uint8_t timer = 1) {
    ropcie_hdr hdr{};
    hdr.op = ROPCIE_OP_ACK;
    hdr.mq = ropcie_mq_id(kLocal, ROPCIE_MQ_RESPONSE);
    hdr.src_qpn = kRemote;
    hdr.psn = psn & ROPCIE_PSN_MASK;
    hdr.msn = msn;
    hdr.credits = credits;
    hdr.syndrome = static_cast<uint8_t>(syndrome);
    hdr.timer = syndrome == ROPCIE_RNR_NAK ? timer : 0;
    return hdr;
  }

  bool Respond(const ropcie_hdr& hdr) {
    return ropcie_req_response(&req_, &hdr, now_);
  }

  bool Ack(uint32_t psn, uint32_t msn = 0, uint32_t credits = 0) {
    return Respond(Answer(ROPCIE_ACK, psn, msn, credits));
  }

  bool Rnr(uint32_t psn, uint8_t timer = 1) {
    return Respond(Answer(ROPCIE_RNR_NAK, psn, 0, 0, timer));
  }

  // An early ACK that opens the credit window.
  void GiveCredits() { Ack(req_.acked_psn - 1, 0, kManyCredits); }

  void ExpectComplete(uint64_t wr_id, uint8_t status = ROPCIE_WC_SUCCESS) {
    ropcie_req_comp comp{};
    ASSERT_TRUE(ropcie_req_complete(&req_, &comp));
    EXPECT_EQ(comp.wr_id, wr_id);
    EXPECT_EQ(comp.status, status);
  }

  void ExpectNoneComplete() {
    ropcie_req_comp comp{};
    EXPECT_FALSE(ropcie_req_complete(&req_, &comp));
  }

  void ExpectFlushed(uint64_t wr_id) {
    ropcie_req_comp comp{};
    ASSERT_TRUE(ropcie_req_flush(&req_, &comp));
    EXPECT_EQ(comp.wr_id, wr_id);
    EXPECT_EQ(comp.status, ROPCIE_WC_WR_FLUSH_ERR);
  }

  void ExpectNoneFlushed() {
    ropcie_req_comp comp{};
    EXPECT_FALSE(ropcie_req_flush(&req_, &comp));
  }

  // All that decides what the requester does next.
  [[nodiscard]] std::vector<uint64_t> State() const {
    return {req_.head,
            req_.next,
            req_.tail,
            req_.off,
            req_.fresh,
            req_.psn,
            req_.next_psn,
            req_.acked_psn,
            req_.max_psn,
            req_.credit_limit,
            req_.rnr_left,
            req_.retry_left,
            static_cast<uint64_t>(req_.rnr_wait),
            req_.fetches,
            req_.fetch,
            req_.deadline,
            req_.error,
            static_cast<uint64_t>(req_.reported),
            req_.extended,
            req_.local_error};
  }

  std::vector<uint64_t> memory_;
  ropcie_requester req_{};
  ropcie_req_rec rec_{};
  uint64_t now_ = 5000;
};

}  // namespace ropcie

#endif  // ROPCIE_TESTS_CORE_REQUESTER_FIXTURE_H
