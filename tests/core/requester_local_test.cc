// SPDX-License-Identifier: GPL-2.0
// Work requests that are executed and not sent: their place in the order.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core.h"
#include "requester_fixture.h"

namespace ropcie {
namespace {

class LocalOperations : public Requester {
 protected:
  void PostLocal(uint64_t wr_id, ropcie_local_op op, uint8_t flags = 0) {
    Post(wr_id, 0, flags, static_cast<ropcie_op>(op));
  }

  void ExpectLocal(uint64_t wr_id) {
    ASSERT_EQ(Next(), ROPCIE_REQ_LOCAL);
    EXPECT_EQ(rec_.wqe->wr_id, wr_id);
  }

  void Execute(uint64_t wr_id) {
    ExpectLocal(wr_id);
    ropcie_req_executed(&req_);
  }
};

TEST_F(LocalOperations, CompleteInTheirTurn) {
  GiveCredits();
  Post(1, 10);
  PostLocal(2, ROPCIE_LOCAL_REG_MR);
  Post(3, 10);
  SendAll();
  Execute(2);
  EXPECT_EQ(SendAll().size(), 1U);
  ExpectNoneComplete();
  Ack(100, 1, kManyCredits);
  ExpectComplete(1);
  ExpectComplete(2);
  ExpectNoneComplete();
  Ack(101, 2, kManyCredits);
  ExpectComplete(3);
}

TEST_F(LocalOperations, TakeNoNumberOfTheirOwn) {
  GiveCredits();
  PostLocal(1, ROPCIE_LOCAL_REG_MR);
  Post(2, 10);
  Execute(1);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].psn, 100U);
  EXPECT_EQ(req_.ssn, 1U) << "the responder counts messages";
}

TEST_F(LocalOperations, DoNotHoldUpAMessageWithoutCredits) {
  PostLocal(1, ROPCIE_LOCAL_REG_MR);
  Post(2, 10);
  Post(3, 10);
  Execute(1);
  EXPECT_EQ(SendAll().size(), 1U) << "one may be under way";
}

TEST_F(LocalOperations, InvalidateWaitsUntilNothingCanBeSentAgain) {
  GiveCredits();
  Post(1, 10);
  PostLocal(2, ROPCIE_LOCAL_INV);
  Post(3, 10);
  EXPECT_EQ(SendAll().size(), 1U);
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT);
  Ack(100, 1, kManyCredits);
  Execute(2);
  EXPECT_EQ(SendAll().size(), 1U);
  ExpectComplete(1);
  ExpectComplete(2);
}

TEST_F(LocalOperations, InvalidateFollowsARegistrationAtOnce) {
  PostLocal(1, ROPCIE_LOCAL_REG_MR);
  PostLocal(2, ROPCIE_LOCAL_INV);
  Execute(1);
  Execute(2);
  EXPECT_EQ(Next(), ROPCIE_REQ_IDLE);
  ExpectComplete(1);
  ExpectComplete(2);
}

TEST_F(LocalOperations, AreNotExecutedAgainWhenRecordsAreSentAgain) {
  GiveCredits();
  Post(1, 10);
  PostLocal(2, ROPCIE_LOCAL_REG_MR);
  Post(3, 10);
  SendAll();
  Execute(2);
  SendAll();
  Rnr(100);
  now_ = req_.deadline;
  ropcie_req_timeout(&req_, now_, true);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].psn, 100U);
  EXPECT_EQ(sent[1].psn, 101U);
}

TEST_F(LocalOperations, OneThatCompletesBeforeItIsPassedAgainIsLeftBehind) {
  GiveCredits();
  Post(1, 10);
  PostLocal(2, ROPCIE_LOCAL_REG_MR);
  SendAll();
  Execute(2);
  Rnr(100);
  now_ = req_.deadline;
  ropcie_req_timeout(&req_, now_, true);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_sent(&req_, &rec_, now_);
  Ack(100, 1, kManyCredits);
  ExpectComplete(1);
  ExpectComplete(2);
  // Round the ring, over the entries that the cursor was at.
  for (uint64_t wr_id = 3; wr_id < 3 + kSize; ++wr_id) {
    Post(wr_id, 10);
  }
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), kSize);
  EXPECT_EQ(sent[0].psn, 101U);
  Ack(101 + kSize - 1, 1 + kSize, kManyCredits);
  for (uint64_t wr_id = 3; wr_id < 3 + kSize; ++wr_id) {
    ExpectComplete(wr_id);
  }
  ExpectNoneComplete();
}

TEST_F(LocalOperations, ALateAcknowledgeDoesNotLeadPastOneThatWaits) {
  GiveCredits();
  Post(1, 10);
  PostLocal(2, ROPCIE_LOCAL_INV);
  SendAll();
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT);
  Rnr(100);
  Ack(100, 1, kManyCredits);
  Execute(2);
  ExpectComplete(1);
  ExpectComplete(2);
  Post(3, 10);
  EXPECT_EQ(SendAll().size(), 1U);
}

TEST_F(LocalOperations, AFenceWaitsForReads) {
  GiveCredits();
  Post(1, 10, 0, ROPCIE_OP_READ);
  PostLocal(2, ROPCIE_LOCAL_REG_MR, ROPCIE_WR_FENCE);
  SendAll();
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT);
}

TEST_F(LocalOperations, OneThatWaitsIsNotExecutedWhileDraining) {
  GiveCredits();
  Post(1, 10);
  PostLocal(2, ROPCIE_LOCAL_INV);
  SendAll();
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT);
  ropcie_req_drain(&req_, true);
  Ack(100, 1, kManyCredits);
  ExpectComplete(1);
  EXPECT_EQ(Next(), ROPCIE_REQ_IDLE);
  EXPECT_TRUE(ropcie_req_drained(&req_));
  ropcie_req_drain(&req_, false);
  Execute(2);
  ropcie_req_drain(&req_, true);
  ExpectComplete(2);
}

TEST_F(LocalOperations, OneThatFailsEndsTheQueueBehindItsPredecessors) {
  GiveCredits();
  Post(1, 10);
  PostLocal(2, ROPCIE_LOCAL_REG_MR);
  Post(3, 10);
  SendAll();
  ExpectLocal(2);
  ropcie_req_local_error(&req_, ROPCIE_WC_MW_BIND_ERR);
  ExpectNoneComplete();
  Ack(100, 1, kManyCredits);
  ExpectComplete(1);
  ExpectComplete(2, ROPCIE_WC_MW_BIND_ERR);
  ExpectFlushed(3);
}

TEST_F(LocalOperations, TheKeyToInvalidateGoesWithTheLastRecord) {
  GiveCredits();
  Post(1, 2 * kFrag, ROPCIE_WR_INV);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].flags & ROPCIE_F_INV, 0);
  EXPECT_EQ(sent[0].imm, 0U);
  EXPECT_NE(sent[1].flags & ROPCIE_F_INV, 0);
  EXPECT_EQ(sent[1].imm, 0x1234U);
}

}  // namespace
}  // namespace ropcie
