// SPDX-License-Identifier: GPL-2.0
// RDMA WRITE, READ and atomics: what the requester asks for, and what it makes
// of the answers.
#include <cstdint>
#include <vector>

#include "requester_fixture.h"

namespace ropcie {
namespace {

class Fetch : public Requester {
 protected:
  void Read(uint64_t wr_id, uint32_t length, uint8_t flags = 0) {
    Post(wr_id, length, flags, ROPCIE_OP_READ);
  }

  void Atomic(uint64_t wr_id, ropcie_op op = ROPCIE_OP_FAA) {
    Post(wr_id, 8, 0, op);
  }

  // A response comes; true when it is placed, into place_.
  bool Come(ropcie_op op, uint32_t psn, uint32_t len, bool last) {
    ropcie_hdr hdr{};
    hdr.op = static_cast<uint8_t>(op);
    hdr.mq = ropcie_mq_id(kLocal, ROPCIE_MQ_RESPONSE);
    hdr.src_qpn = kRemote;
    hdr.psn = psn;
    hdr.frag_len = len;
    hdr.flags = last ? ROPCIE_F_LAST : 0;
    if (!ropcie_req_data(&req_, &hdr, &place_, now_)) {
      return false;
    }
    ropcie_req_placed(&req_, &hdr, now_);
    return true;
  }

  bool Data(uint32_t psn, uint32_t len, bool last) {
    return Come(ROPCIE_OP_READ_RESP, psn, len, last);
  }

  bool Value(uint32_t psn) {
    return Come(ROPCIE_OP_ATOMIC_RESP, psn, 0, false);
  }

  ropcie_req_place place_{};
};

TEST_F(Fetch, WriteNamesItsTargetOnceAndIsSolicitedOnlyWithImmediateData) {
  GiveCredits();
  Post(1, 2 * kFrag, ROPCIE_WR_SOLICITED, ROPCIE_OP_WRITE);
  Post(2, 10, ROPCIE_WR_SOLICITED | ROPCIE_WR_IMM, ROPCIE_OP_WRITE);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_EQ(sent[0].op, ROPCIE_OP_WRITE);
  EXPECT_EQ(sent[0].addr, kRemoteAddr);
  EXPECT_EQ(sent[0].rkey, kRkey);
  EXPECT_EQ(sent[1].addr, 0U);
  EXPECT_EQ(sent[1].rkey, 0U);
  EXPECT_EQ(sent[1].flags, ROPCIE_F_LAST | ROPCIE_F_ACKREQ);
  EXPECT_EQ(sent[2].flags, ROPCIE_F_FIRST | ROPCIE_F_LAST | ROPCIE_F_ACKREQ |
                               ROPCIE_F_IMM | ROPCIE_F_SOLICITED);
  EXPECT_EQ(sent[2].imm, 0x1234U);
}

TEST_F(Fetch, OnlyWhatTakesAReceiveNeedsCredits) {
  Post(1, 10);
  Post(2, 10, 0, ROPCIE_OP_WRITE);
  Read(3, 10);
  Post(4, 10, ROPCIE_WR_IMM, ROPCIE_OP_WRITE);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 3U);  // the first to find out, and those without
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT);
}

TEST_F(Fetch, ReadTakesThePsnsOfItsAnswer) {
  Read(1, 2 * kFrag + 1);
  Post(2, 10, 0, ROPCIE_OP_WRITE);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].op, ROPCIE_OP_READ);
  EXPECT_EQ(sent[0].psn, 100U);
  EXPECT_EQ(sent[0].msg_len, 2 * kFrag + 1);
  EXPECT_EQ(sent[0].imm, kFrag);
  EXPECT_EQ(sent[0].frag_len, 0U);
  EXPECT_EQ(sent[0].addr, kRemoteAddr);
  EXPECT_EQ(sent[1].psn, 103U);

  EXPECT_TRUE(Data(100, kFrag, false));
  EXPECT_EQ(place_.off, 0U);
  EXPECT_EQ(place_.len, kFrag);
  EXPECT_FALSE(Data(100, kFrag, false)) << "twice";
  EXPECT_FALSE(Data(102, 1, true)) << "one is missing";
  EXPECT_TRUE(Data(101, kFrag, false));
  ExpectNoneComplete();
  EXPECT_TRUE(Data(102, 1, true));
  EXPECT_EQ(place_.off, 2 * kFrag);
  EXPECT_EQ(place_.len, 1U);
  ExpectComplete(1);
  ExpectNoneComplete();
  EXPECT_TRUE(Ack(103));
  ExpectComplete(2);
  EXPECT_EQ(req_.deadline, 0U);
}

TEST_F(Fetch, EmptyReadHasOneAnswer) {
  Read(1, 0);
  SendAll();
  EXPECT_TRUE(Data(100, 0, true));
  ExpectComplete(1);
}

TEST_F(Fetch, AnswerAcknowledgesWhatWasSentBefore) {
  Post(1, 10, 0, ROPCIE_OP_WRITE);
  Read(2, 10);
  SendAll();
  EXPECT_TRUE(Data(101, 10, true));
  ExpectComplete(1);
  ExpectComplete(2);
}

TEST_F(Fetch, AcknowledgeDoesNotStandForData) {
  Read(1, 10);
  Post(2, 10, 0, ROPCIE_OP_WRITE);
  SendAll();
  EXPECT_FALSE(Ack(101));
  EXPECT_FALSE(Ack(100));
  EXPECT_FALSE(Respond(Answer(ROPCIE_NAK_REM_OP, 101)));
  ExpectNoneComplete();
  // Not even for what has to be sent again.
  now_ = req_.deadline;
  EXPECT_TRUE(ropcie_req_timeout(&req_, now_, true));
  EXPECT_FALSE(Ack(101));
  EXPECT_TRUE(Data(100, 10, true));
  EXPECT_TRUE(Ack(101));
  ExpectComplete(1);
  ExpectComplete(2);
}

TEST_F(Fetch, NakForTheReadEndsIt) {
  Post(1, 10, 0, ROPCIE_OP_WRITE);
  Read(2, 2 * kFrag);
  SendAll();
  EXPECT_TRUE(Data(101, kFrag, false));
  EXPECT_TRUE(Respond(Answer(ROPCIE_NAK_REM_ACCESS, 102)));
  ExpectComplete(1);
  ExpectComplete(2, ROPCIE_WC_REM_ACCESS_ERR);
}

TEST_F(Fetch, DepthIsHonoured) {
  Read(1, 10);
  Atomic(2);
  Read(3, 10);
  EXPECT_EQ(SendAll().size(), 2U);
  EXPECT_TRUE(Data(100, 10, true));
  EXPECT_EQ(SendAll().size(), 1U);
  EXPECT_EQ(SendAll().size(), 0U);
  EXPECT_TRUE(Value(101));
  EXPECT_TRUE(Data(102, 10, true));
  ExpectComplete(1);
  ExpectComplete(2);
  ExpectComplete(3);
}

TEST_F(Fetch, DepthZeroAllowsNoAtomicWrite) {
  req_.attr.max_rd_atomic = 0;
  Post(1, 8, 0, ROPCIE_OP_ATOMIC_WRITE);
  EXPECT_TRUE(SendAll().empty());
  ExpectComplete(1, ROPCIE_WC_LOC_QP_OP_ERR);
}

TEST_F(Fetch, DepthZeroIsALocalError) {
  req_.attr.max_rd_atomic = 0;
  Post(1, 10, 0, ROPCIE_OP_WRITE);
  Read(2, 10);
  EXPECT_EQ(SendAll().size(), 1U);
  ExpectNoneComplete();
  Ack(100);
  ExpectComplete(1);
  ExpectComplete(2, ROPCIE_WC_LOC_QP_OP_ERR);
}

TEST_F(Fetch, FenceWaitsForFetchesAndForNothingElse) {
  Post(1, 10, ROPCIE_WR_FENCE, ROPCIE_OP_WRITE);
  Read(2, 10);
  Post(3, 10, 0, ROPCIE_OP_WRITE);
  Read(4, 10, ROPCIE_WR_FENCE);
  EXPECT_EQ(SendAll().size(), 3U);
  EXPECT_TRUE(Data(101, 10, true));
  EXPECT_EQ(SendAll().size(), 1U);
  EXPECT_EQ(Next(), ROPCIE_REQ_IDLE);
}

TEST_F(Fetch, FencedRequestThatWaitsDoesNotBeginWhileDraining) {
  Read(1, 10);
  Post(2, 10, ROPCIE_WR_FENCE, ROPCIE_OP_WRITE);
  EXPECT_EQ(SendAll().size(), 1U);
  ropcie_req_drain(&req_, true);
  EXPECT_TRUE(Data(100, 10, true));
  ExpectComplete(1);
  EXPECT_TRUE(SendAll().empty());
  EXPECT_TRUE(ropcie_req_drained(&req_));
  ropcie_req_drain(&req_, false);
  EXPECT_EQ(SendAll().size(), 1U);
}

TEST_F(Fetch, AtomicCarriesItsOperands) {
  Atomic(1, ROPCIE_OP_CAS);
  Atomic(2, ROPCIE_OP_FAA);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].op, ROPCIE_OP_CAS);
  EXPECT_EQ(sent[0].compare_add, 5U);
  EXPECT_EQ(sent[0].swap, 6U);
  EXPECT_EQ(sent[0].addr, kRemoteAddr);
  EXPECT_EQ(sent[0].rkey, kRkey);
  EXPECT_EQ(sent[1].op, ROPCIE_OP_FAA);
  EXPECT_EQ(sent[1].compare_add, 5U);
  EXPECT_EQ(sent[1].swap, 0U);
  EXPECT_EQ(sent[1].psn, 101U);
  EXPECT_TRUE(Value(100));
  EXPECT_EQ(place_.len, 8U);
  EXPECT_TRUE(Value(101));
  ExpectComplete(1);
  ExpectComplete(2);
}

TEST_F(Fetch, AnswerThatDoesNotFitEndsTheQueue) {
  Read(1, kFrag + 10);
  SendAll();
  EXPECT_FALSE(Data(100, kFrag - 1, false));
  ExpectComplete(1, ROPCIE_WC_BAD_RESP_ERR);

  Connect(100);
  Read(1, kFrag + 10);
  SendAll();
  EXPECT_FALSE(Data(100, kFrag, true));
  ExpectComplete(1, ROPCIE_WC_BAD_RESP_ERR);

  Connect(100);
  Read(1, 8);
  SendAll();
  EXPECT_FALSE(Value(100));
  ExpectComplete(1, ROPCIE_WC_BAD_RESP_ERR);

  Connect(100);
  Atomic(1);
  SendAll();
  EXPECT_FALSE(Data(100, 8, true));
  ExpectComplete(1, ROPCIE_WC_BAD_RESP_ERR);
}

TEST_F(Fetch, AnswerThatNobodyAskedForIsIgnored) {
  EXPECT_FALSE(Data(100, 8, true));
  Post(1, 10, 0, ROPCIE_OP_WRITE);
  SendAll();
  EXPECT_FALSE(Data(100, 10, true));
  EXPECT_FALSE(Value(100));
  ExpectNoneComplete();
}

TEST_F(Fetch, TimeOutAsksForTheRest) {
  Read(1, 3 * kFrag);
  Read(2, 10);
  SendAll();
  EXPECT_TRUE(Data(100, kFrag, false));
  now_ = req_.deadline;
  EXPECT_TRUE(ropcie_req_timeout(&req_, now_, true));
  const std::vector<ropcie_hdr> again = SendAll();
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0].psn, 101U);
  EXPECT_EQ(again[0].msg_len, 2 * kFrag);
  EXPECT_EQ(again[0].addr, kRemoteAddr + kFrag);
  EXPECT_EQ(again[1].psn, 103U);
  EXPECT_TRUE(Data(101, kFrag, false));
  EXPECT_TRUE(Data(102, kFrag, true));
  EXPECT_TRUE(Data(103, 10, true));
  ExpectComplete(1);
  ExpectComplete(2);
  ExpectNoneComplete();
}

TEST_F(Fetch, DataWithoutMemoryAreAskedForAgain) {
  Read(1, 3 * kFrag);
  Atomic(2);
  SendAll();
  EXPECT_TRUE(Data(100, kFrag, false));
  const uint8_t left = req_.retry_left;
  ropcie_hdr hdr{};
  hdr.op = ROPCIE_OP_READ_RESP;
  hdr.src_qpn = kRemote;
  hdr.psn = 101;
  hdr.frag_len = kFrag;
  EXPECT_TRUE(ropcie_req_data(&req_, &hdr, &place_, now_));
  // It is not placed, and what comes behind it is of no use.
  EXPECT_FALSE(Data(102, kFrag, true));
  EXPECT_FALSE(Value(103));
  ropcie_req_fetch_again(&req_);
  const std::vector<ropcie_hdr> again = SendAll();
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0].psn, 101U);
  EXPECT_EQ(again[0].msg_len, 2 * kFrag);
  EXPECT_EQ(again[1].psn, 103U);
  EXPECT_EQ(req_.retry_left, left) << "it costs no retry";
  EXPECT_NE(req_.deadline, 0U);
  EXPECT_TRUE(Data(101, kFrag, false));
  EXPECT_TRUE(Data(102, kFrag, true));
  EXPECT_TRUE(Value(103));
  ExpectComplete(1);
  ExpectComplete(2);
  ropcie_req_fetch_again(&req_);
  EXPECT_TRUE(SendAll().empty()) << "nothing is missing";
}

TEST_F(Fetch, WhoWaitsForThePeerAsksAgainWhenItIsTime) {
  Atomic(1);
  SendAll();
  ropcie_hdr hdr{};
  hdr.op = ROPCIE_OP_ACK;
  hdr.src_qpn = kRemote;
  hdr.psn = 100;
  hdr.syndrome = ROPCIE_RNR_NAK;
  hdr.timer = 1;
  EXPECT_TRUE(ropcie_req_response(&req_, &hdr, now_));
  const uint64_t deadline = req_.deadline;
  ropcie_req_fetch_again(&req_);
  EXPECT_EQ(req_.deadline, deadline);
  EXPECT_TRUE(SendAll().empty());
  now_ = deadline;
  EXPECT_TRUE(ropcie_req_timeout(&req_, now_, true));
  EXPECT_EQ(SendAll().size(), 1U);
}

TEST_F(Fetch, LateAnswerOvertakesTheRepetition) {
  Read(1, 10);
  Read(2, 10);
  SendAll();
  now_ = req_.deadline;
  EXPECT_TRUE(ropcie_req_timeout(&req_, now_, true));
  EXPECT_TRUE(Data(100, 10, true));
  EXPECT_TRUE(Data(101, 10, true));
  EXPECT_EQ(SendAll().size(), 0U);
  ExpectComplete(1);
  ExpectComplete(2);
  Read(3, 10);
  EXPECT_EQ(SendAll().size(), 1U);
  EXPECT_TRUE(Data(102, 10, true));
  ExpectComplete(3);
}

TEST_F(Fetch, PlaceThatMayNotBeIsALocalError) {
  Post(1, 10, 0, ROPCIE_OP_WRITE);
  Read(2, 10);
  SendAll();
  ropcie_hdr hdr{};
  hdr.op = ROPCIE_OP_READ_RESP;
  hdr.src_qpn = kRemote;
  hdr.psn = 101;
  hdr.frag_len = 10;
  hdr.flags = ROPCIE_F_LAST;
  EXPECT_TRUE(ropcie_req_data(&req_, &hdr, &place_, now_));
  ropcie_req_fail(&req_, ROPCIE_WC_LOC_PROT_ERR);
  ExpectComplete(1);
  ExpectComplete(2, ROPCIE_WC_LOC_PROT_ERR);
}

TEST_F(Fetch, AcknowledgeThatSaysNothingNewIsNoReasonToRun) {
  Post(1, 10, 0, ROPCIE_OP_WRITE);
  SendAll();
  EXPECT_TRUE(Ack(100, 1, 3));
  EXPECT_FALSE(Ack(100, 1, 3));
  EXPECT_TRUE(Ack(100, 1, 4)) << "more credits";
}

}  // namespace
}  // namespace ropcie
