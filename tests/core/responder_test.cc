// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstdint>

#include "core.h"
#include "random.h"

namespace ropcie {
namespace {

constexpr uint32_t kLocal = 22;
constexpr uint32_t kRemote = 11;
constexpr uint64_t kRoom = 10000;
constexpr uint8_t kFirst = ROPCIE_F_FIRST;
constexpr uint8_t kLast = ROPCIE_F_LAST | ROPCIE_F_ACKREQ;
constexpr uint8_t kOnly = kFirst | kLast;

class Responder : public testing::Test {
 protected:
  void SetUp() override { Connect(100); }

  void Connect(uint32_t psn) {
    const ropcie_rsp_attr attr = {.psn = psn,
                                  .dest_qpn = kRemote,
                                  .src_qpn = kLocal,
                                  .min_rnr_timer = 14,
                                  .max_rd_atomic = 2,
                                  .unreliable = false,
                                  .xrc = false,
                                  .access = 0};
    ropcie_rsp_connect(&rsp_, &attr);
  }

  static ropcie_hdr Request(uint32_t psn, uint8_t flags, uint32_t msg_len,
                            uint32_t frag_len) {
    ropcie_hdr hdr{};
    hdr.op = ROPCIE_OP_SEND;
    hdr.flags = flags;
    hdr.mq = ropcie_mq_id(kLocal, ROPCIE_MQ_REQUEST);
    hdr.src_qpn = kRemote;
    hdr.psn = psn & ROPCIE_PSN_MASK;
    hdr.msg_len = msg_len;
    hdr.frag_len = frag_len;
    return hdr;
  }

  ropcie_rsp_verdict Come(const ropcie_hdr& hdr, uint32_t ready = 5,
                          uint64_t room = kRoom) {
    return ropcie_rsp_request(&rsp_, &hdr, ready, room, &place_);
  }

  // A record that is placed; returns whether the message is complete.
  bool Take(const ropcie_hdr& hdr, uint32_t ready = 5) {
    EXPECT_EQ(Come(hdr, ready), ROPCIE_RSP_PLACE);
    return ropcie_rsp_placed(&rsp_, &hdr);
  }

  // The answer that is owed, as sent.
  ropcie_hdr Answer(uint32_t ready = 5) {
    EXPECT_TRUE(ropcie_rsp_owes(&rsp_));
    ropcie_hdr hdr{};
    ropcie_rsp_answer(&rsp_, ready, &hdr);
    ropcie_rsp_answered(&rsp_, &hdr);
    EXPECT_FALSE(ropcie_rsp_owes(&rsp_));

    ropcie_slot slot;
    ropcie_hdr decoded;
    ropcie_wire_encode(&hdr, &slot);
    EXPECT_EQ(ropcie_wire_decode(&slot, &decoded), 0) << "not valid";
    EXPECT_EQ(hdr.mq, ropcie_mq_id(kRemote, ROPCIE_MQ_RESPONSE));
    EXPECT_EQ(hdr.src_qpn, kLocal);
    return hdr;
  }

  void ExpectAnswer(ropcie_syndrome syndrome, uint32_t psn, uint32_t msn) {
    const ropcie_hdr hdr = Answer();
    EXPECT_EQ(hdr.syndrome, syndrome);
    EXPECT_EQ(hdr.psn, psn);
    EXPECT_EQ(hdr.msn, msn);
  }

  ropcie_responder rsp_{};
  ropcie_rsp_place place_{};
};

TEST_F(Responder, MessageInOneRecordIsPlacedAndAcknowledged) {
  EXPECT_TRUE(Take(Request(100, kOnly, 50, 50)));
  EXPECT_EQ(place_.off, 0U);
  EXPECT_TRUE(place_.first);
  EXPECT_TRUE(place_.last);
  ExpectAnswer(ROPCIE_ACK, 100, 1);
}

TEST_F(Responder, EmptyMessageConsumesAReceive) {
  EXPECT_TRUE(Take(Request(100, kOnly, 0, 0)));
  ExpectAnswer(ROPCIE_ACK, 100, 1);
  EXPECT_EQ(Come(Request(101, kOnly, 0, 0), 0), ROPCIE_RSP_DROP);
  ExpectAnswer(ROPCIE_RNR_NAK, 101, 1);
}

TEST_F(Responder, RecordsFollowEachOtherInTheReceive) {
  EXPECT_FALSE(Take(Request(100, kFirst, 5000, 2000)));
  EXPECT_TRUE(place_.first);
  EXPECT_FALSE(place_.last);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_)) << "nobody asked";
  EXPECT_FALSE(Take(Request(101, 0, 5000, 2000)));
  EXPECT_EQ(place_.off, 2000U);
  EXPECT_FALSE(place_.first);
  EXPECT_TRUE(Take(Request(102, kLast, 5000, 1000)));
  EXPECT_EQ(place_.off, 4000U);
  EXPECT_TRUE(place_.last);
  ExpectAnswer(ROPCIE_ACK, 102, 1);
}

TEST_F(Responder, OneAnswerServesABatch) {
  for (uint32_t i = 0; i < 10; i++) {
    EXPECT_TRUE(Take(Request(100 + i, kOnly, 50, 50)));
  }
  ExpectAnswer(ROPCIE_ACK, 109, 10);
}

TEST_F(Responder, PlacedDecidesNotTheRequestAlone) {
  EXPECT_EQ(Come(Request(100, kOnly, 50, 50)), ROPCIE_RSP_PLACE);
  EXPECT_EQ(rsp_.epsn, 100U);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
}

TEST_F(Responder, WithoutAReceiveRnrNakOnceAndNothingChanges) {
  EXPECT_EQ(Come(Request(100, kFirst, 5000, 2000), 0), ROPCIE_RSP_DROP);
  EXPECT_EQ(Come(Request(101, 0, 5000, 2000), 0), ROPCIE_RSP_DROP);
  EXPECT_EQ(Come(Request(102, kLast, 5000, 1000), 0), ROPCIE_RSP_DROP);
  const ropcie_hdr hdr = Answer(0);
  EXPECT_EQ(hdr.syndrome, ROPCIE_RNR_NAK);
  EXPECT_EQ(hdr.psn, 100U);
  EXPECT_EQ(hdr.timer, 14);
  EXPECT_EQ(Come(Request(103, kOnly, 9, 9), 1), ROPCIE_RSP_DROP);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_)) << "no sequence NAK behind an RNR NAK";
  // It comes again, and there is a receive.
  EXPECT_FALSE(Take(Request(100, kFirst, 5000, 2000)));
  EXPECT_FALSE(Take(Request(101, 0, 5000, 2000)));
  EXPECT_TRUE(Take(Request(102, kLast, 5000, 1000)));
  ExpectAnswer(ROPCIE_ACK, 102, 1);
}

TEST_F(Responder, EachRetryWithoutAReceiveIsAnswered) {
  for (int i = 0; i < 5; i++) {
    EXPECT_EQ(Come(Request(100, kOnly, 5, 5), 0), ROPCIE_RSP_DROP);
    ExpectAnswer(ROPCIE_RNR_NAK, 100, 0);
  }
}

TEST_F(Responder, ReceiveInUseNeedsNoOtherForTheRest) {
  EXPECT_FALSE(Take(Request(100, kFirst, 5000, 2000), 1));
  EXPECT_TRUE(Take(Request(101, kLast, 5000, 3000), 1));
}

TEST_F(Responder, MissingPsnIsNakedOnce) {
  EXPECT_EQ(Come(Request(102, kOnly, 5, 5)), ROPCIE_RSP_DROP);
  EXPECT_EQ(Come(Request(103, kOnly, 5, 5)), ROPCIE_RSP_DROP);
  ExpectAnswer(ROPCIE_NAK_SEQ, 100, 0);
  EXPECT_EQ(Come(Request(104, kOnly, 5, 5)), ROPCIE_RSP_DROP);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
  EXPECT_TRUE(Take(Request(100, kOnly, 5, 5)));
  ExpectAnswer(ROPCIE_ACK, 100, 1);
  EXPECT_EQ(Come(Request(105, kOnly, 5, 5)), ROPCIE_RSP_DROP);
  ExpectAnswer(ROPCIE_NAK_SEQ, 101, 1);
}

TEST_F(Responder, NakThatWasNotSentYieldsToTheExpectedPsn) {
  EXPECT_EQ(Come(Request(102, kOnly, 5, 5)), ROPCIE_RSP_DROP);
  EXPECT_FALSE(Take(Request(100, kFirst, 5000, 2000)));
  ExpectAnswer(ROPCIE_ACK, 100, 0);
}

TEST_F(Responder, DuplicateIsAcknowledgedAgainAndNotPlaced) {
  Take(Request(100, kOnly, 5, 5));
  Take(Request(101, kOnly, 5, 5));
  Answer();
  EXPECT_EQ(Come(Request(100, kOnly, 5, 5)), ROPCIE_RSP_DROP);
  ExpectAnswer(ROPCIE_ACK, 101, 2);
  EXPECT_EQ(Come(Request(100 - 500, kOnly, 5, 5)), ROPCIE_RSP_DROP);
  ExpectAnswer(ROPCIE_ACK, 101, 2);
}

TEST_F(Responder, DuplicateDoesNotHideAnOwedNak) {
  Take(Request(100, kOnly, 5, 5));
  Answer();
  EXPECT_EQ(Come(Request(101, kOnly, 5, 5), 0), ROPCIE_RSP_DROP);
  EXPECT_EQ(Come(Request(100, kOnly, 5, 5), 0), ROPCIE_RSP_DROP);
  ExpectAnswer(ROPCIE_RNR_NAK, 101, 1);
}

TEST_F(Responder, RecordsOfAnotherQpAreDropped) {
  ropcie_hdr hdr = Request(100, kOnly, 5, 5);
  hdr.src_qpn = kRemote + 1;
  EXPECT_EQ(Come(hdr), ROPCIE_RSP_DROP);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
  EXPECT_EQ(rsp_.epsn, 100U);
}

TEST_F(Responder, MessageLongerThanTheReceiveEndsTheQp) {
  EXPECT_EQ(Come(Request(100, kOnly, 101, 101), 5, 100), ROPCIE_RSP_TOO_LONG);
  ExpectAnswer(ROPCIE_NAK_INV_REQ, 100, 0);
  EXPECT_EQ(Come(Request(100, kOnly, 5, 5)), ROPCIE_RSP_DROP) << "dead";
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));

  Connect(100);
  EXPECT_EQ(Come(Request(100, kFirst, 101, 50), 5, 100), ROPCIE_RSP_TOO_LONG)
      << "seen at the first record, before anything is placed";
  Connect(100);
  EXPECT_EQ(Come(Request(100, kOnly, 100, 100), 5, 100), ROPCIE_RSP_PLACE);
}

TEST_F(Responder, BrokenMessagesEndTheQp) {
  struct Case {
    const char* why;
    ropcie_hdr first;
    ropcie_hdr second;
  };
  const Case cases[] = {
      {.why = "a message within a message",
       .first = Request(100, kFirst, 5000, 2000),
       .second = Request(101, kFirst, 5000, 2000)},
      {.why = "a whole message within a message",
       .first = Request(100, kFirst, 5000, 2000),
       .second = Request(101, kOnly, 50, 50)},
      {.why = "another length half-way",
       .first = Request(100, kFirst, 5000, 2000),
       .second = Request(101, kLast, 5001, 3000)},
      {.why = "more than the message has",
       .first = Request(100, kFirst, 5000, 2000),
       .second = Request(101, kLast, 5000, 3001)},
      {.why = "less than the message has",
       .first = Request(100, kFirst, 5000, 2000),
       .second = Request(101, kLast, 5000, 2999)},
      {.why = "all of it, but not the last",
       .first = Request(100, kFirst, 5000, 2000),
       .second = Request(101, 0, 5000, 3000)},
      {.why = "a middle without a first",
       .first = Request(100, kOnly, 50, 50),
       .second = Request(101, 0, 5000, 2000)},
  };
  for (const Case& c : cases) {
    Connect(100);
    Take(c.first);
    EXPECT_EQ(Come(c.second), ROPCIE_RSP_INVALID) << c.why;
    const ropcie_hdr hdr = Answer();
    EXPECT_EQ(hdr.syndrome, ROPCIE_NAK_INV_REQ) << c.why;
    EXPECT_EQ(hdr.psn, 101U);
    EXPECT_EQ(Come(Request(101, kOnly, 5, 5)), ROPCIE_RSP_DROP) << c.why;
  }
}

TEST_F(Responder, FailedPlacingEndsTheQpWithItsNak) {
  Take(Request(100, kOnly, 5, 5));
  EXPECT_EQ(Come(Request(101, kOnly, 5, 5)), ROPCIE_RSP_PLACE);
  ropcie_rsp_fail(&rsp_, ROPCIE_NAK_REM_OP);
  ExpectAnswer(ROPCIE_NAK_REM_OP, 101, 1);
  EXPECT_EQ(Come(Request(101, kOnly, 5, 5)), ROPCIE_RSP_DROP);
  EXPECT_FALSE(ropcie_rsp_replenished(&rsp_));
}

TEST_F(Responder, ReceivesDoNotBringADeadQpBack) {
  EXPECT_EQ(Come(Request(100, kOnly, 101, 101), 5, 100), ROPCIE_RSP_TOO_LONG);
  Answer(0);
  EXPECT_FALSE(ropcie_rsp_replenished(&rsp_));
}

TEST_F(Responder, AnswersCarryCredits) {
  Take(Request(100, kOnly, 5, 5));
  EXPECT_EQ(Answer(7).credits, 7U);
  Take(Request(101, kOnly, 5, 5));
  EXPECT_EQ(Answer(0x2000000).credits, uint32_t{ROPCIE_PSN_MASK});
}

// Without credits it may send one request (IBTA 9.7.7.2).
TEST_F(Responder, NobodyWaitsForReceivesAfterAnAnswerWithoutCredits) {
  EXPECT_FALSE(ropcie_rsp_replenished(&rsp_));
  Take(Request(100, kOnly, 5, 5));
  EXPECT_EQ(Answer(0).credits, 0U);
  EXPECT_FALSE(ropcie_rsp_replenished(&rsp_));
  EXPECT_EQ(Come(Request(101, kOnly, 5, 5)), ROPCIE_RSP_PLACE);
}

TEST_F(Responder, ReceivesAfterAnRnrNakAreTold) {
  Take(Request(100, kOnly, 5, 5));
  Answer(0);
  EXPECT_EQ(Come(Request(101, kOnly, 5, 5), 0), ROPCIE_RSP_DROP);
  EXPECT_EQ(Answer(0).syndrome, ROPCIE_RNR_NAK);
  EXPECT_TRUE(ropcie_rsp_replenished(&rsp_));
  EXPECT_TRUE(ropcie_rsp_replenished(&rsp_)) << "still owed";
  ExpectAnswer(ROPCIE_ACK, 100, 1);
  EXPECT_FALSE(ropcie_rsp_replenished(&rsp_)) << "once is enough";
}

// What was sent before the refused one came again meanwhile, and is
// acknowledged.
TEST_F(Responder, AnAcknowledgeWithoutCreditsDoesNotEndTheWaitForThem) {
  Take(Request(100, kOnly, 5, 5));
  Answer(0);
  EXPECT_EQ(Come(Request(101, kOnly, 5, 5), 0), ROPCIE_RSP_DROP);
  EXPECT_EQ(Answer(0).syndrome, ROPCIE_RNR_NAK);
  EXPECT_EQ(Come(Request(100, kOnly, 5, 5)), ROPCIE_RSP_DROP);
  EXPECT_EQ(Answer(0).syndrome, ROPCIE_ACK);
  EXPECT_TRUE(ropcie_rsp_replenished(&rsp_));
  EXPECT_EQ(Answer(1).credits, 1U);
  EXPECT_FALSE(ropcie_rsp_replenished(&rsp_));
}

// A receive came between the request and its RNR NAK: the other end must not
// wait for its timer.
TEST_F(Responder, RnrNakThatCarriesCreditsIsFollowedByAnAcknowledge) {
  EXPECT_EQ(Come(Request(100, kOnly, 5, 5), 0), ROPCIE_RSP_DROP);
  EXPECT_EQ(Answer(1).syndrome, ROPCIE_RNR_NAK);
  EXPECT_TRUE(ropcie_rsp_replenished(&rsp_));
  const ropcie_hdr hdr = Answer(1);
  EXPECT_EQ(hdr.syndrome, ROPCIE_ACK);
  EXPECT_EQ(hdr.credits, 1U);
  EXPECT_FALSE(ropcie_rsp_replenished(&rsp_));
}

TEST_F(Responder, ReplenishingBeforeTheFirstRequestAcknowledgesNothing) {
  EXPECT_EQ(Come(Request(100, kOnly, 5, 5), 0), ROPCIE_RSP_DROP);
  EXPECT_EQ(Answer(0).syndrome, ROPCIE_RNR_NAK);
  EXPECT_TRUE(ropcie_rsp_replenished(&rsp_));
  ExpectAnswer(ROPCIE_ACK, 99, 0);
}

TEST_F(Responder, ReplenishingDoesNotHideAnOwedNak) {
  Take(Request(100, kOnly, 5, 5));
  Answer(0);
  EXPECT_EQ(Come(Request(101, kOnly, 5, 5), 0), ROPCIE_RSP_DROP);
  EXPECT_TRUE(ropcie_rsp_replenished(&rsp_));
  ExpectAnswer(ROPCIE_RNR_NAK, 101, 1);
}

TEST_F(Responder, MemoryThatIsNotThereMakesThePeerWaitUntilItIs) {
  const ropcie_hdr first = Request(100, kFirst, 5000, 2000);
  EXPECT_EQ(Come(first), ROPCIE_RSP_PLACE);
  ropcie_rsp_not_there(&rsp_);
  EXPECT_EQ(Come(Request(101, 0, 5000, 2000)), ROPCIE_RSP_DROP);
  const ropcie_hdr nak = Answer(5);
  EXPECT_EQ(nak.syndrome, ROPCIE_RNR_NAK);
  EXPECT_EQ(nak.psn, 100U);
  EXPECT_EQ(nak.timer, 12) << "not as long as for a receive";
  EXPECT_FALSE(ropcie_rsp_replenished(&rsp_)) << "receives do not help";
  ropcie_rsp_there(&rsp_);
  EXPECT_TRUE(ropcie_rsp_replenished(&rsp_));
  ExpectAnswer(ROPCIE_ACK, 99, 0);
  EXPECT_FALSE(Take(first));
  ropcie_rsp_there(&rsp_);
  EXPECT_FALSE(ropcie_rsp_replenished(&rsp_)) << "nobody waits";
}

TEST_F(Responder, MemoryInTheMiddleOfAMessageIsWaitedForToo) {
  EXPECT_FALSE(Take(Request(100, kFirst, 5000, 2000)));
  EXPECT_EQ(Come(Request(101, 0, 5000, 2000)), ROPCIE_RSP_PLACE);
  ropcie_rsp_not_there(&rsp_);
  ExpectAnswer(ROPCIE_RNR_NAK, 101, 0);
  // It comes again too early.
  EXPECT_EQ(Come(Request(101, 0, 5000, 2000)), ROPCIE_RSP_PLACE);
  ropcie_rsp_not_there(&rsp_);
  ropcie_rsp_there(&rsp_);
  EXPECT_EQ(Answer(5).syndrome, ROPCIE_RNR_NAK);
  EXPECT_TRUE(ropcie_rsp_replenished(&rsp_)) << "it was there before the NAK";
  Answer(5);
  EXPECT_FALSE(Take(Request(101, 0, 5000, 2000)));
  EXPECT_TRUE(Take(Request(102, kLast, 5000, 1000)));
  EXPECT_EQ(place_.off, 4000U);
  ExpectAnswer(ROPCIE_ACK, 102, 1);
}

TEST_F(Responder, AReceiveThatIsMissingIsTheConsumersTime) {
  EXPECT_EQ(Come(Request(100, kOnly, 5, 5)), ROPCIE_RSP_PLACE);
  ropcie_rsp_not_there(&rsp_);
  Answer(5);
  EXPECT_EQ(Come(Request(100, kOnly, 5, 5), 0), ROPCIE_RSP_DROP);
  EXPECT_EQ(Answer(0).timer, 14);
  EXPECT_TRUE(ropcie_rsp_replenished(&rsp_));
}

TEST_F(Responder, AShortTimeToWaitStaysShort) {
  rsp_.attr.min_rnr_timer = 1;
  EXPECT_EQ(Come(Request(100, kOnly, 5, 5)), ROPCIE_RSP_PLACE);
  ropcie_rsp_not_there(&rsp_);
  EXPECT_EQ(Answer(5).timer, 1);
  rsp_.attr.min_rnr_timer = 0;  // the longest
  EXPECT_EQ(Come(Request(100, kOnly, 5, 5)), ROPCIE_RSP_PLACE);
  ropcie_rsp_not_there(&rsp_);
  EXPECT_EQ(Answer(5).timer, 16);
}

TEST_F(Responder, MemoryThatTakesLongHasTheConsumersTime) {
  rsp_.attr.min_rnr_timer = 30;
  const ropcie_hdr request = Request(100, kOnly, 5, 5);
  for (const int code : {12, 16, 20, 24, 28, 30, 30}) {
    EXPECT_EQ(Come(request), ROPCIE_RSP_PLACE);
    ropcie_rsp_not_there(&rsp_);
    EXPECT_EQ(Answer(5).timer, code);
  }
  ropcie_rsp_there(&rsp_);
  EXPECT_TRUE(Take(request));
  EXPECT_EQ(Come(Request(101, kOnly, 5, 5)), ROPCIE_RSP_PLACE);
  ropcie_rsp_not_there(&rsp_);
  EXPECT_EQ(Answer(5).timer, 12) << "the next one begins again";
}

TEST_F(Responder, PsnAndMsnWrap) {
  Connect(0xffffff);
  rsp_.msn = 0xffffff;
  EXPECT_TRUE(Take(Request(0xffffff, kOnly, 5, 5)));
  ExpectAnswer(ROPCIE_ACK, 0xffffff, 0);
  EXPECT_TRUE(Take(Request(0, kOnly, 5, 5)));
  ExpectAnswer(ROPCIE_ACK, 0, 1);
}

// Whatever comes: nothing is placed outside the receive, a receive completes
// only when all its bytes were placed, and a dead responder stays dead.
TEST_F(Responder, NoiseIsNeverPlacedOutsideTheReceive) {
  Random random(1);
  int complete = 0;
  for (int round = 0; round < 20000; round++) {
    Connect(0xfffffa);
    uint64_t placed = 0;
    uint64_t room = 0;
    for (int i = 0; i < 30; i++) {
      // Mostly what a good peer would send next.
      auto msg = static_cast<uint32_t>(random.Below(9));
      uint32_t left = msg;
      uint8_t flags = kFirst;
      if (!rsp_.in_msg) {
        room = random.Below(20);
      } else if (!random.OneIn(20)) {
        msg = rsp_.msg_len;
        left = msg - rsp_.msg_off;
        flags = 0;
      }
      const auto len = static_cast<uint32_t>(random.Below(left + 1));
      flags |= len == left ? ROPCIE_F_LAST : 0;
      flags ^= random.OneIn(20) ? random.Below(32) : 0;
      const uint32_t ahead = random.OneIn(6) ? random.Below(5) : 0;
      const ropcie_hdr hdr = Request(rsp_.epsn + ahead, flags, msg, len);
      const bool was_dead = rsp_.dead;
      const ropcie_rsp_verdict verdict =
          Come(hdr, static_cast<uint32_t>(random.Below(3)), room);
      ASSERT_TRUE(!was_dead || verdict == ROPCIE_RSP_DROP);
      if (verdict != ROPCIE_RSP_PLACE) {
        continue;
      }
      ASSERT_EQ(place_.off, place_.first ? 0 : placed);
      placed = place_.off + hdr.frag_len;
      ASSERT_LE(placed, room);
      if (ropcie_rsp_placed(&rsp_, &hdr)) {
        ASSERT_EQ(placed, hdr.msg_len);
        complete++;
      }
    }
  }
  EXPECT_GT(complete, 10000);
}

}  // namespace
}  // namespace ropcie
