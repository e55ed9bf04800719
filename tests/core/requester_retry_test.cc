// SPDX-License-Identifier: GPL-2.0
// NAKs, time-outs, errors, flush and drain.
#include <cstdint>
#include <utility>
#include <vector>

#include "requester_fixture.h"

namespace ropcie {
namespace {

TEST_F(Requester, RnrNakWaitsForItsTimerAndGoesBack) {
  GiveCredits();
  Post(1, 10);
  Post(2, 2 * kFrag);
  Post(3, 10);
  SendAll();
  EXPECT_TRUE(Rnr(101, 14));
  ExpectComplete(1);  // all before the PSN is done
  ExpectNoneComplete();
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT);
  EXPECT_EQ(req_.deadline, now_ + ropcie_rnr_timer_ns(14));
  now_ = req_.deadline - 1;
  EXPECT_FALSE(ropcie_req_timeout(&req_, now_, true));
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT);
  now_++;
  EXPECT_TRUE(ropcie_req_timeout(&req_, now_, true));
  const std::vector<ropcie_hdr> again = SendAll();
  ASSERT_EQ(again.size(), 3U);
  EXPECT_EQ(again[0].psn, 101U);
  EXPECT_EQ(again[0].flags, ROPCIE_F_FIRST);
  EXPECT_EQ(again[2].psn, 103U);
}

TEST_F(Requester, RnrRetriesAreCounted) {
  Post(1, 10);
  Post(2, 10);
  for (int i = 0; i < 2; i++) {
    SendAll();
    EXPECT_TRUE(Rnr(100));
    ExpectNoneComplete();
    now_ = req_.deadline;
    EXPECT_TRUE(ropcie_req_timeout(&req_, now_, true));
  }
  SendAll();
  EXPECT_TRUE(Rnr(100));
  EXPECT_EQ(Next(), ROPCIE_REQ_FAILED);
  ExpectComplete(1, ROPCIE_WC_RNR_RETRY_EXC_ERR);
  ExpectNoneComplete();
  ExpectFlushed(2);
  ExpectNoneFlushed();
}

TEST_F(Requester, RnrRetryZeroFailsAtOnceAndSevenNever) {
  Connect(100, 3, 0);
  Post(1, 10);
  SendAll();
  Rnr(100);
  ExpectComplete(1, ROPCIE_WC_RNR_RETRY_EXC_ERR);

  Connect(100, 3, 7);
  Post(1, 10);
  for (int i = 0; i < 1000; i++) {
    ASSERT_EQ(SendAll().size(), 1U);
    EXPECT_TRUE(Rnr(100));
    now_ = req_.deadline;
    EXPECT_TRUE(ropcie_req_timeout(&req_, now_, true));
  }
  SendAll();
  Ack(100, 1);
  ExpectComplete(1);
}

TEST_F(Requester, ProgressRefillsTheRetryCounters) {
  GiveCredits();
  for (uint64_t id = 1; id <= 8; id++) {
    Post(id, 10);
    SendAll();
    Rnr(99 + id);
    now_ = req_.deadline;
    ropcie_req_timeout(&req_, now_, true);
    SendAll();
    Rnr(99 + id);
    now_ = req_.deadline;
    ropcie_req_timeout(&req_, now_, true);
    SendAll();
    Ack(99 + id, static_cast<uint32_t>(id), kManyCredits);
    ExpectComplete(id);
  }
}

TEST_F(Requester, ProgressRefillsTheRetriesOfTimeOuts) {
  Connect(100, 1);
  GiveCredits();
  for (uint64_t id = 1; id <= 8; id++) {
    Post(id, 10);
    SendAll();
    now_ = req_.deadline;
    EXPECT_TRUE(ropcie_req_timeout(&req_, now_, true));
    EXPECT_EQ(SendAll().size(), 1U);
    Ack(99 + id, static_cast<uint32_t>(id), kManyCredits);
    ExpectComplete(id);
  }
}

TEST_F(Requester, CreditsEndAnRnrWait) {
  Post(1, 10);
  SendAll();
  Rnr(100, 0);
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT);
  EXPECT_FALSE(Ack(99, 0, 0));
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT) << "no credits yet";
  Ack(99, 0, ROPCIE_NO_CREDITS);
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT) << "a shared queue promises nothing";
  EXPECT_TRUE(Ack(99, 0, 1));
  EXPECT_EQ(SendAll().size(), 1U);
  EXPECT_EQ(req_.deadline, now_ + kTimeout);
}

// No honest peer sends one then. A wait without a timer would never end.
TEST_F(Requester, SequenceNakEndsAnRnrWait) {
  Post(1, 10);
  SendAll();
  Rnr(100, 0);
  EXPECT_TRUE(Respond(Answer(ROPCIE_NAK_SEQ, 100)));
  EXPECT_EQ(SendAll().size(), 1U);
  EXPECT_EQ(req_.deadline, now_ + kTimeout);
}

TEST_F(Requester, AcknowledgeDuringAnRnrWaitLeavesItsTimer) {
  GiveCredits();
  Post(1, 2 * kFrag);
  Post(2, 10);
  SendAll();
  Rnr(100, 20);
  const uint64_t deadline = req_.deadline;
  EXPECT_TRUE(Ack(100));  // late, and without credits
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT);
  EXPECT_EQ(req_.deadline, deadline);
}

TEST_F(Requester, LateAcknowledgeMovesACursorThatWentBack) {
  GiveCredits();
  for (uint64_t id = 1; id <= 4; id++) {
    Post(id, 10);
  }
  SendAll();
  now_ += kTimeout;
  EXPECT_TRUE(ropcie_req_timeout(&req_, now_, true));  // back to 100
  Ack(101, 2, kManyCredits);
  ExpectComplete(1);
  ExpectComplete(2);
  const std::vector<ropcie_hdr> again = SendAll();
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0].psn, 102U);
}

TEST_F(Requester, GoingBackIntoAMessageFindsItsRecord) {
  GiveCredits();
  Post(1, 5 * kFrag + 7);
  SendAll();
  EXPECT_TRUE(Respond(Answer(ROPCIE_NAK_SEQ, 103)));
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  EXPECT_EQ(rec_.off, 3 * kFrag);
  EXPECT_EQ(rec_.hdr.psn, 103U);
  EXPECT_EQ(rec_.hdr.flags, 0);
  EXPECT_EQ(SendAll().size(), 3U);
}

TEST_F(Requester, TimeoutRetriesFromTheOldestAndThenFails) {
  GiveCredits();
  Post(1, 10);
  Post(2, 10);
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(SendAll().size(), 2U);
    EXPECT_EQ(req_.deadline, now_ + kTimeout);
    now_ += kTimeout;
    EXPECT_TRUE(ropcie_req_timeout(&req_, now_, true));
  }
  SendAll();
  now_ += kTimeout;
  EXPECT_TRUE(ropcie_req_timeout(&req_, now_, true));
  EXPECT_EQ(Next(), ROPCIE_REQ_FAILED);
  ExpectComplete(1, ROPCIE_WC_RETRY_EXC_ERR);
  ExpectNoneComplete();
  ExpectFlushed(2);
}

TEST_F(Requester, SilenceBeforeDeliveryIsNotARetryForAWhile) {
  Post(1, 10);
  SendAll();
  for (int i = 0; i < ROPCIE_REQ_PATIENCE; i++) {
    now_ = req_.deadline;
    EXPECT_FALSE(ropcie_req_timeout(&req_, now_, false));
    EXPECT_GT(req_.deadline, now_);
  }
  EXPECT_EQ(req_.retry_left, 3);
  now_ = req_.deadline;
  EXPECT_TRUE(ropcie_req_timeout(&req_, now_, false));
  EXPECT_EQ(req_.retry_left, 2);
  EXPECT_EQ(SendAll().size(), 1U);
}

TEST_F(Requester, ProgressRestoresPatience) {
  GiveCredits();
  for (uint32_t id = 1; id <= 5; id++) {
    Post(id, 10);
    SendAll();
    for (int i = 0; i < ROPCIE_REQ_PATIENCE; i++) {
      now_ = req_.deadline;
      EXPECT_FALSE(ropcie_req_timeout(&req_, now_, false));
    }
    Ack(99 + id, id, kManyCredits);
    ExpectComplete(id);
  }
}

TEST_F(Requester, DeadlineRunsOnlyWhileSomethingIsOutstanding) {
  GiveCredits();
  EXPECT_EQ(req_.deadline, 0U);
  Post(1, 10);
  Post(2, 10);
  SendAll();
  EXPECT_EQ(req_.deadline, now_ + kTimeout);
  now_ += 10;
  Ack(100, 1, kManyCredits);
  EXPECT_EQ(req_.deadline, now_ + kTimeout);
  Ack(101, 2, kManyCredits);
  EXPECT_EQ(req_.deadline, 0U);
  EXPECT_FALSE(ropcie_req_timeout(&req_, now_ + 10 * kTimeout, true));
}

// A long message is acknowledged when it is complete: a sender that is slow
// must not take the silence until then for a peer that is dead.
TEST_F(Requester, DeadlineWaitsForTheEndOfALoneMessage) {
  GiveCredits();
  Post(1, 2 * kFrag + 1);
  Post(2, 2 * kFrag);
  for (int record = 0; record < 2; record++) {
    SendOne();
    EXPECT_EQ(req_.deadline, 0U);
    now_ += kTimeout + 1;
    EXPECT_FALSE(ropcie_req_timeout(&req_, now_, true));
  }
  SendOne();
  const uint64_t deadline = now_ + kTimeout;
  EXPECT_EQ(req_.deadline, deadline);
  now_ += 10;
  SendOne();
  EXPECT_EQ(req_.deadline, deadline) << "an answer to 1 is due";
  now_ += 10;
  Ack(102, 1, kManyCredits);
  EXPECT_EQ(req_.deadline, 0U) << "2 is not sent to its end";
  SendOne();
  EXPECT_EQ(req_.deadline, now_ + kTimeout);
}

TEST_F(Requester, FullLaneIsATimeOutOnlyWhileThePeerDoesNotDrainIt) {
  GiveCredits();
  req_.retry_left = 0;
  Post(1, 3 * kFrag);
  for (int stall = 0; stall < 3; stall++) {
    ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
    ropcie_req_stuck(&req_, now_);
    for (int i = 0; i < ROPCIE_REQ_PATIENCE; i++) {
      now_ = req_.deadline;
      EXPECT_FALSE(ropcie_req_timeout(&req_, now_, false));
    }
    if (stall == 0) {
      // The lane is empty when the deadline passes: nothing is owed.
      now_ = req_.deadline;
      EXPECT_TRUE(ropcie_req_timeout(&req_, now_, true));
      EXPECT_EQ(req_.deadline, 0U);
    }
    if (stall < 2) {
      SendOne();
      EXPECT_EQ(req_.deadline, 0U);
    }
  }
  now_ = req_.deadline;
  EXPECT_TRUE(ropcie_req_timeout(&req_, now_, false));
  EXPECT_EQ(Next(), ROPCIE_REQ_FAILED);
  ExpectComplete(1, ROPCIE_WC_RETRY_EXC_ERR);
}

TEST_F(Requester, TimeoutZeroIsForEver) {
  req_.attr.timeout_ns = 0;
  Post(1, 10);
  SendAll();
  EXPECT_EQ(req_.deadline, 0U);
  Ack(100, 1);
  ExpectComplete(1);
}

TEST_F(Requester, FatalNaksNameTheirStatus) {
  const std::vector<std::pair<ropcie_syndrome, uint8_t>> naks = {
      {ROPCIE_NAK_INV_REQ, ROPCIE_WC_REM_INV_REQ_ERR},
      {ROPCIE_NAK_REM_ACCESS, ROPCIE_WC_REM_ACCESS_ERR},
      {ROPCIE_NAK_REM_OP, ROPCIE_WC_REM_OP_ERR}};
  for (const auto& [syndrome, status] : naks) {
    Connect(100);
    GiveCredits();
    for (uint64_t id = 1; id <= 4; id++) {
      Post(id, 10);
    }
    SendAll();
    EXPECT_TRUE(Respond(Answer(syndrome, 101)));
    EXPECT_EQ(Next(), ROPCIE_REQ_FAILED);
    ExpectComplete(1);
    ExpectComplete(2, status);
    ExpectNoneComplete();
    ExpectFlushed(3);
    ExpectFlushed(4);
    ExpectNoneFlushed();
    EXPECT_FALSE(Ack(103, 4, 1)) << "the queue has ended";
  }
}

TEST_F(Requester, SequenceNakCountsAsARetry) {
  GiveCredits();
  Post(1, 10);
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(SendAll().size(), 1U);
    EXPECT_TRUE(Respond(Answer(ROPCIE_NAK_SEQ, 100)));
  }
  SendAll();
  EXPECT_TRUE(Respond(Answer(ROPCIE_NAK_SEQ, 100)));
  ExpectComplete(1, ROPCIE_WC_RETRY_EXC_ERR);
}

TEST_F(Requester, LocalErrorWaitsForItsPredecessors) {
  GiveCredits();
  Post(1, 10);
  Post(2, 10);
  Post(3, 10);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_sent(&req_, &rec_, now_);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_local_error(&req_, ROPCIE_WC_LOC_PROT_ERR);
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT);
  ExpectNoneComplete();
  Ack(100, 1, kManyCredits);
  ExpectComplete(1);
  ExpectComplete(2, ROPCIE_WC_LOC_PROT_ERR);
  ExpectNoneComplete();
  EXPECT_EQ(Next(), ROPCIE_REQ_FAILED);
  ExpectFlushed(3);
}

TEST_F(Requester, LocalErrorOfTheOldestEndsTheQueueAtOnce) {
  Post(1, 10);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_local_error(&req_, ROPCIE_WC_LOC_PROT_ERR);
  EXPECT_EQ(Next(), ROPCIE_REQ_FAILED);
  ExpectComplete(1, ROPCIE_WC_LOC_PROT_ERR);
}

// A predecessor of the bad request is sent again: it must not get the status
// of its successor, nor wait for ever behind it.
TEST_F(Requester, LocalErrorDoesNotStopRetriesOfPredecessors) {
  GiveCredits();
  Post(1, 10);
  Post(2, 10);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_sent(&req_, &rec_, now_);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_local_error(&req_, ROPCIE_WC_LOC_PROT_ERR);
  EXPECT_TRUE(Rnr(100));
  ExpectNoneComplete();
  now_ = req_.deadline;
  EXPECT_TRUE(ropcie_req_timeout(&req_, now_, true));
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  EXPECT_EQ(rec_.hdr.psn, 100U);
  ropcie_req_sent(&req_, &rec_, now_);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_local_error(&req_, ROPCIE_WC_LOC_PROT_ERR);
  Ack(100, 1, kManyCredits);
  ExpectComplete(1);
  ExpectComplete(2, ROPCIE_WC_LOC_PROT_ERR);
}

TEST_F(Requester, LocalErrorInsideAMessageWaitsForItsPredecessors) {
  GiveCredits();
  Post(1, 10);
  Post(2, 3 * kFrag);
  for (int i = 0; i < 2; i++) {
    ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
    ropcie_req_sent(&req_, &rec_, now_);
  }
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  EXPECT_EQ(rec_.off, kFrag);
  ropcie_req_local_error(&req_, ROPCIE_WC_LOC_PROT_ERR);
  Ack(101, 1, kManyCredits);  // also of the part that went out
  ExpectComplete(1);
  ExpectComplete(2, ROPCIE_WC_LOC_PROT_ERR);
}

TEST_F(Requester, FailEndsTheOldestAndFlushesTheRest) {
  GiveCredits();
  for (uint64_t id = 1; id <= 4; id++) {
    Post(id, 10);
  }
  SendAll();
  Ack(100, 1, kManyCredits);
  ropcie_req_fail(&req_, ROPCIE_WC_RETRY_EXC_ERR);
  ropcie_req_fail(&req_, ROPCIE_WC_REM_OP_ERR);  // the first counts
  ExpectComplete(1);  // was acknowledged: its true status
  ExpectComplete(2, ROPCIE_WC_RETRY_EXC_ERR);
  ExpectNoneComplete();
  ExpectFlushed(3);
  ExpectFlushed(4);
  Post(5, 10);  // IBTA 10.3.1: posts in ERR are flushed
  ExpectFlushed(5);
  ExpectNoneFlushed();
  EXPECT_EQ(req_.deadline, 0U);
}

TEST_F(Requester, FailOfAnEmptyQueueHasNobodyToTell) {
  ropcie_req_fail(&req_, ROPCIE_WC_RETRY_EXC_ERR);
  ExpectNoneComplete();
  ExpectNoneFlushed();
  EXPECT_EQ(Next(), ROPCIE_REQ_FAILED);
}

// The program moved the QP to ERR: no work request failed.
TEST_F(Requester, FlushEndsTheQueue) {
  ExpectNoneComplete();
  ExpectNoneFlushed();
  EXPECT_EQ(Next(), ROPCIE_REQ_FAILED);
  for (uint64_t id = 1; id <= 20; id++) {
    Post(id, 10);
    ExpectNoneComplete();
    ExpectFlushed(id);
    ExpectNoneComplete();
    ExpectNoneFlushed();
  }
  EXPECT_EQ(ropcie_req_pending(&req_), 0U);
}

TEST_F(Requester, FlushLeavesNothingToAcknowledge) {
  GiveCredits();
  Post(1, 10);
  Post(2, 10);
  SendAll();
  ExpectFlushed(1);
  ExpectFlushed(2);
  EXPECT_FALSE(Ack(101, 2, 1));
  ExpectNoneComplete();
  EXPECT_EQ(req_.deadline, 0U);
}

TEST_F(Requester, DrainingFinishesWhatWasBegun) {
  GiveCredits();
  Post(1, 3 * kFrag);
  Post(2, 10);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_sent(&req_, &rec_, now_);
  ropcie_req_drain(&req_, true);
  EXPECT_EQ(SendAll().size(), 2U);
  EXPECT_EQ(Next(), ROPCIE_REQ_IDLE);
  EXPECT_FALSE(ropcie_req_drained(&req_));
  Ack(102, 1, kManyCredits);
  ExpectComplete(1);
  EXPECT_TRUE(ropcie_req_drained(&req_));
  ropcie_req_drain(&req_, false);
  EXPECT_EQ(SendAll().size(), 1U);
}

// What was looked at, and had to wait, has not begun (IBTA 10.3.1.5).
TEST_F(Requester, RequestThatCouldNotBeginIsNotBegunWhileDraining) {
  Post(1, 10);
  Post(2, 10);
  EXPECT_EQ(SendAll().size(), 1U) << "there are no credits yet";
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT);
  ropcie_req_drain(&req_, true);
  EXPECT_EQ(Next(), ROPCIE_REQ_IDLE);
  Ack(100, 1, kManyCredits);
  ExpectComplete(1);
  EXPECT_TRUE(ropcie_req_drained(&req_));
  EXPECT_EQ(Next(), ROPCIE_REQ_IDLE);
  ropcie_req_drain(&req_, false);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].psn, 101U);
  EXPECT_EQ(req_.ssn, 2U);
  Ack(101, 2, kManyCredits);
  ExpectComplete(2);
}

// In SQD, where nothing else begins to wait.
TEST_F(Requester, AnotherTimeOutBeginsAtOnce) {
  const ropcie_req_attr attr = req_.attr;
  const auto set_timeout = [&](uint64_t timeout_ns) {
    ropcie_req_set_retries(&req_, attr.retry_cnt, attr.rnr_retry, timeout_ns,
                           now_);
  };
  GiveCredits();
  set_timeout(0);
  Post(1, 10);
  SendAll();
  EXPECT_EQ(req_.deadline, 0U);
  set_timeout(1000);
  EXPECT_EQ(req_.deadline, now_ + 1000);
  now_ += 10;
  set_timeout(1000);
  EXPECT_EQ(req_.deadline, now_ + 990) << "it has not changed";
  set_timeout(0);
  EXPECT_EQ(req_.deadline, 0U);
  Ack(100, 1, kManyCredits);
  ExpectComplete(1);
  set_timeout(1000);
  EXPECT_EQ(req_.deadline, 0U) << "nothing is awaited";
  Post(2, 10);
  SendAll();
  Rnr(101);
  const uint64_t asked_for = req_.deadline;
  set_timeout(2000);
  EXPECT_EQ(req_.deadline, asked_for);
}

TEST_F(Requester, RequestThatCouldNotBeginIsLeftOutAlsoBehindARetry) {
  Post(1, 10);
  Post(2, 10);
  SendAll();
  Rnr(100);
  ropcie_req_drain(&req_, true);
  now_ = req_.deadline;
  ropcie_req_timeout(&req_, now_, true);
  EXPECT_EQ(SendAll().size(), 1U);
  Ack(100, 1, kManyCredits);
  ExpectComplete(1);
  EXPECT_TRUE(ropcie_req_drained(&req_));
}

TEST_F(Requester, NewRetryCountsHoldFromTheNextRequestOn) {
  Connect(100, 0, 0);
  ropcie_req_set_retries(&req_, 1, 2, kTimeout, now_);
  Post(1, 10);
  SendAll();
  Rnr(100);
  EXPECT_EQ(req_.error, 0) << "two retries are allowed now";
  now_ = req_.deadline;
  ropcie_req_timeout(&req_, now_, true);
  SendAll();
  now_ = req_.deadline;
  ropcie_req_timeout(&req_, now_, true);
  EXPECT_EQ(req_.error, 0) << "and one when nobody answers";
  SendAll();
  // What is not new does not count anew.
  ropcie_req_set_retries(&req_, 1, 2, kTimeout, now_);
  now_ = req_.deadline;
  ropcie_req_timeout(&req_, now_, true);
  EXPECT_EQ(req_.error, ROPCIE_WC_RETRY_EXC_ERR);
}

// It would be time for something again and again, and nothing is to be done.
TEST_F(Requester, RequestThatCouldNotBeginHasNoDeadlineWhileDraining) {
  GiveCredits();
  Post(1, 10);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_stuck(&req_, now_);
  ASSERT_NE(req_.deadline, 0U);
  ropcie_req_drain(&req_, true);
  EXPECT_EQ(req_.deadline, 0U);
}

TEST_F(Requester, AnswerThatIsDueHasItsDeadlineWhileDraining) {
  Post(1, 10);
  Post(2, 10);
  SendAll();
  const uint64_t deadline = req_.deadline;
  ASSERT_NE(deadline, 0U);
  ropcie_req_drain(&req_, true);
  EXPECT_EQ(req_.deadline, deadline);
}

TEST_F(Requester, RequestThatWaitsForItsRetryIsNotDrained) {
  GiveCredits();
  Post(1, 10);
  SendAll();
  ropcie_req_drain(&req_, true);
  Rnr(100);
  EXPECT_FALSE(ropcie_req_drained(&req_));
  now_ = req_.deadline;
  ropcie_req_timeout(&req_, now_, true);
  EXPECT_FALSE(ropcie_req_drained(&req_));
  EXPECT_EQ(SendAll().size(), 1U) << "it had begun";
  Ack(100, 1, kManyCredits);
  ExpectComplete(1);
  EXPECT_TRUE(ropcie_req_drained(&req_));
}

}  // namespace
}  // namespace ropcie
