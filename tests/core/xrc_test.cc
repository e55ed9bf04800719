// SPDX-License-Identifier: GPL-2.0
// Extended reliable connections: requests that name a shared receive queue.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "core.h"

namespace ropcie {
namespace {

constexpr uint32_t kLocal = 17;
constexpr uint32_t kRemote = 33;
constexpr uint16_t kSrqn = 5;
constexpr uint8_t kFirst = ROPCIE_F_FIRST;
constexpr uint8_t kLast = ROPCIE_F_LAST;
constexpr uint8_t kOnly = ROPCIE_F_FIRST | ROPCIE_F_LAST;

class XrcTarget : public testing::Test {
 protected:
  void SetUp() override { Connect(true); }

  void Connect(bool xrc) {
    const ropcie_rsp_attr attr = {
        .psn = 100,
        .dest_qpn = kRemote,
        .src_qpn = kLocal,
        .min_rnr_timer = 1,
        .max_rd_atomic = 2,
        .unreliable = false,
        .xrc = xrc,
        .access = ROPCIE_ACCESS_REMOTE_WRITE | ROPCIE_ACCESS_REMOTE_READ};
    ropcie_rsp_connect(&rsp_, &attr);
  }

  static ropcie_hdr Request(ropcie_op op, uint32_t psn, uint8_t flags,
                            uint32_t msg_len, uint32_t frag_len) {
    ropcie_hdr hdr{};
    hdr.op = static_cast<uint8_t>(op);
    hdr.flags = flags;
    hdr.srqn = kSrqn;
    hdr.mq = ropcie_mq_id(kLocal, ROPCIE_MQ_REQUEST);
    hdr.src_qpn = kRemote;
    hdr.psn = psn;
    hdr.msg_len = msg_len;
    hdr.frag_len = frag_len;
    hdr.imm = op == ROPCIE_OP_READ ? 4096 : 0;
    return hdr;
  }

  static ropcie_hdr Send(uint32_t psn, uint8_t flags, uint32_t msg_len,
                         uint32_t frag_len) {
    return Request(ROPCIE_OP_SEND, psn, flags, msg_len, frag_len);
  }

  ropcie_rsp_verdict Come(const ropcie_hdr& hdr) {
    return ropcie_rsp_request(&rsp_, &hdr, 1, 10000, &place_);
  }

  void ExpectInvalid(const ropcie_hdr& hdr) {
    EXPECT_EQ(Come(hdr), ROPCIE_RSP_INVALID);
    ropcie_hdr answer{};
    ASSERT_TRUE(ropcie_rsp_owes(&rsp_));
    ropcie_rsp_answer(&rsp_, 0, &answer);
    EXPECT_EQ(answer.syndrome, ROPCIE_NAK_INV_REQ);
    EXPECT_EQ(answer.psn, hdr.psn);
  }

  ropcie_responder rsp_{};
  ropcie_rsp_place place_{};
};

TEST_F(XrcTarget, TakesWhatNamesAQueue) {
  const ropcie_hdr first = Send(100, kFirst, 2000, 1000);
  EXPECT_TRUE(ropcie_rsp_names_srq(&rsp_, &first));
  EXPECT_EQ(Come(first), ROPCIE_RSP_PLACE);
  ropcie_rsp_placed(&rsp_, &first);
  // The queue is that of the first record until the message is complete.
  const ropcie_hdr last = Send(101, kLast, 2000, 1000);
  EXPECT_FALSE(ropcie_rsp_names_srq(&rsp_, &last));
  EXPECT_EQ(Come(last), ROPCIE_RSP_PLACE);
  EXPECT_TRUE(ropcie_rsp_placed(&rsp_, &last));
  ropcie_hdr other = Send(102, kOnly, 10, 10);
  other.srqn = kSrqn + 1;
  EXPECT_TRUE(ropcie_rsp_names_srq(&rsp_, &other));
  EXPECT_EQ(Come(other), ROPCIE_RSP_PLACE);
}

TEST_F(XrcTarget, RefusesWhatNamesNone) {
  for (const ropcie_op op : {ROPCIE_OP_SEND, ROPCIE_OP_WRITE, ROPCIE_OP_READ}) {
    Connect(true);
    ropcie_hdr hdr = Request(op, 100, op == ROPCIE_OP_READ ? 0 : kOnly, 10,
                             op == ROPCIE_OP_READ ? 0 : 10);
    hdr.srqn = 0;
    EXPECT_FALSE(ropcie_rsp_names_srq(&rsp_, &hdr));
    ExpectInvalid(hdr);
  }
}

TEST_F(XrcTarget, RefusesAMessageThatChangesItsQueue) {
  const ropcie_hdr first = Send(100, kFirst, 2000, 1000);
  EXPECT_EQ(Come(first), ROPCIE_RSP_PLACE);
  ropcie_rsp_placed(&rsp_, &first);
  ropcie_hdr last = Send(101, kLast, 2000, 1000);
  last.srqn = kSrqn + 1;
  ExpectInvalid(last);
}

// A receive that is taken for nothing would be the wrong queue's later.
TEST_F(XrcTarget, TakesReceivesForNothingElse) {
  ropcie_hdr hdr = Send(100, kOnly, 50, 50);
  EXPECT_TRUE(ropcie_rsp_takes_receive(&rsp_, &hdr));
  hdr.srqn = 0;
  EXPECT_FALSE(ropcie_rsp_takes_receive(&rsp_, &hdr));
  for (const ropcie_op op : {ROPCIE_OP_DATAGRAM, ROPCIE_OP_READ}) {
    hdr = Request(op, 100, kOnly | ROPCIE_F_IMM, 50, 50);
    EXPECT_FALSE(ropcie_rsp_takes_receive(&rsp_, &hdr));
    hdr.srqn = 0;
    EXPECT_FALSE(ropcie_rsp_takes_receive(&rsp_, &hdr));
  }
  const ropcie_hdr first = Request(ROPCIE_OP_WRITE, 100, kFirst, 2000, 1000);
  ASSERT_EQ(Come(first), ROPCIE_RSP_WRITE);
  ropcie_rsp_placed(&rsp_, &first);
  hdr = Send(101, kOnly, 50, 50);
  EXPECT_FALSE(ropcie_rsp_takes_receive(&rsp_, &hdr));
  hdr = Request(ROPCIE_OP_WRITE, 101, kLast | ROPCIE_F_IMM, 2000, 1000);
  EXPECT_TRUE(ropcie_rsp_takes_receive(&rsp_, &hdr));
  hdr.srqn = kSrqn + 1;
  EXPECT_FALSE(ropcie_rsp_takes_receive(&rsp_, &hdr));
}

TEST_F(XrcTarget, LooksForNoQueueOfWhatItDrops) {
  EXPECT_FALSE([&] {
    const ropcie_hdr ahead = Send(101, kOnly, 10, 10);
    return ropcie_rsp_names_srq(&rsp_, &ahead);
  }());
  ropcie_hdr stranger = Send(100, kOnly, 10, 10);
  stranger.src_qpn = kRemote + 1;
  EXPECT_FALSE(ropcie_rsp_names_srq(&rsp_, &stranger));
  ropcie_rsp_fail(&rsp_, ROPCIE_NAK_REM_OP);
  const ropcie_hdr late = Send(100, kOnly, 10, 10);
  EXPECT_FALSE(ropcie_rsp_names_srq(&rsp_, &late));
}

// The key of a READ is looked at again with each answer: by the same queue.
TEST_F(XrcTarget, AnswersOfAReadNameItsQueueToTheCaller) {
  const ropcie_hdr read = Request(ROPCIE_OP_READ, 100, 0, 5000, 0);
  EXPECT_TRUE(ropcie_rsp_names_srq(&rsp_, &read));
  ASSERT_EQ(Come(read), ROPCIE_RSP_READ);
  ropcie_rsp_fetched(&rsp_, &read, 0);
  ropcie_hdr answer{};
  ropcie_rsp_answer(&rsp_, 0, &answer);
  EXPECT_EQ(answer.op, ROPCIE_OP_READ_RESP);
  EXPECT_EQ(answer.srqn, kSrqn);
  // But not to the peer, which could not decode it.
  ropcie_slot slot;
  ropcie_wire_encode(&answer, &slot);
  EXPECT_EQ(slot.srqn, 0);
}

// A READ that comes again for another queue is not the same.
TEST_F(XrcTarget, RepeatsAReadForItsQueueOnly) {
  ropcie_hdr read = Request(ROPCIE_OP_READ, 100, 0, 100, 0);
  ASSERT_EQ(Come(read), ROPCIE_RSP_READ);
  ropcie_rsp_fetched(&rsp_, &read, 0);
  ropcie_hdr answer{};
  ropcie_rsp_answer(&rsp_, 0, &answer);
  ropcie_rsp_answered(&rsp_, &answer);
  ASSERT_FALSE(ropcie_rsp_owes(&rsp_));
  read.srqn = kSrqn + 1;
  EXPECT_EQ(Come(read), ROPCIE_RSP_DROP);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
  read.srqn = kSrqn;
  EXPECT_EQ(Come(read), ROPCIE_RSP_DROP);
  EXPECT_TRUE(ropcie_rsp_owes(&rsp_));
}

TEST_F(XrcTarget, OthersRefuseWhatNamesAQueue) {
  Connect(false);
  const ropcie_hdr hdr = Send(100, kOnly, 10, 10);
  EXPECT_FALSE(ropcie_rsp_names_srq(&rsp_, &hdr));
  ExpectInvalid(hdr);
}

TEST(XrcInitiator, NamesTheQueueInEachRecord) {
  ropcie_requester req{};
  std::array<uint64_t, 64> ring{};
  ropcie_req_init(&req, ring.data(), 2, ring.size() * sizeof(uint64_t) / 2);
  const ropcie_req_attr attr = {.psn = 7,
                                .frag = 1000,
                                .dest_qpn = kRemote,
                                .src_qpn = kLocal,
                                .retry_cnt = 7,
                                .rnr_retry = 7,
                                .max_rd_atomic = 1,
                                .unreliable = false,
                                .timeout_ns = 0};
  ropcie_req_connect(&req, &attr);
  ropcie_send_wqe* wqe = ropcie_req_slot(&req);
  wqe->op = ROPCIE_OP_SEND;
  wqe->flags = ROPCIE_WR_INLINE;
  wqe->length = 2500;
  wqe->srqn = kSrqn;
  ropcie_req_post(&req);
  int records = 0;
  ropcie_req_rec rec{};
  while (ropcie_req_next(&req, &rec) == ROPCIE_REQ_SEND) {
    EXPECT_EQ(rec.hdr.srqn, kSrqn);
    ropcie_req_sent(&req, &rec, 0);
    records++;
  }
  EXPECT_EQ(records, 3);
}

}  // namespace
}  // namespace ropcie
