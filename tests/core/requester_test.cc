// SPDX-License-Identifier: GPL-2.0
// What is sent, and what completes when all goes well.
#include <cstdint>
#include <vector>

#include "requester_fixture.h"

namespace ropcie {
namespace {

TEST_F(Requester, EmptyQueueIsIdle) {
  EXPECT_EQ(Next(), ROPCIE_REQ_IDLE);
  ExpectNoneComplete();
  ExpectNoneFlushed();
  EXPECT_EQ(req_.deadline, 0U);
}

TEST_F(Requester, MessageIsCutIntoFullRecordsAndARest) {
  Post(1, 2 * kFrag + 5, ROPCIE_WR_IMM | ROPCIE_WR_SOLICITED);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 3U);
  for (uint32_t i = 0; i < 3; i++) {
    EXPECT_EQ(sent[i].op, ROPCIE_OP_SEND);
    EXPECT_EQ(sent[i].psn, 100 + i);
    EXPECT_EQ(sent[i].mq, ropcie_mq_id(kRemote, ROPCIE_MQ_REQUEST));
    EXPECT_EQ(sent[i].src_qpn, kLocal);
    EXPECT_EQ(sent[i].msg_len, 2 * kFrag + 5);
    EXPECT_EQ(sent[i].frag_len, i < 2 ? kFrag : 5);
    EXPECT_EQ(sent[i].imm, i < 2 ? 0U : 0x1234U);
  }
  EXPECT_EQ(sent[0].flags, ROPCIE_F_FIRST);
  EXPECT_EQ(sent[1].flags, 0);
  EXPECT_EQ(sent[2].flags, ROPCIE_F_LAST | ROPCIE_F_IMM | ROPCIE_F_SOLICITED |
                               ROPCIE_F_ACKREQ);
}

TEST_F(Requester, EveryRecordIsValidOnTheWire) {
  for (const uint32_t length :
       {0U, 1U, 28U, 29U, kFrag - 1, kFrag, kFrag + 1, 3 * kFrag}) {
    Connect(0xfffffe);
    Post(1, length, length % 2 != 0 ? ROPCIE_WR_IMM : 0);
    for (const ropcie_hdr& hdr : SendAll()) {
      ropcie_slot slot;
      ropcie_hdr decoded;
      ropcie_wire_encode(&hdr, &slot);
      EXPECT_EQ(ropcie_wire_decode(&slot, &decoded), 0) << length;
    }
  }
}

TEST_F(Requester, EmptyMessageIsOneRecord) {
  Post(1, 0);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].flags, ROPCIE_F_FIRST | ROPCIE_F_LAST | ROPCIE_F_ACKREQ);
  Ack(100);
  ExpectComplete(1);
}

TEST_F(Requester, RecordStaysNextUntilItIsSent) {
  Post(1, 10);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  const ropcie_req_rec first = rec_;
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  EXPECT_EQ(first.hdr.psn, rec_.hdr.psn);
  EXPECT_EQ(first.hdr.flags, rec_.hdr.flags);
  EXPECT_EQ(first.wqe, rec_.wqe);
  EXPECT_EQ(first.off, rec_.off);
  EXPECT_EQ(first.last, rec_.last);
}

TEST_F(Requester, CompletesWhenTheLastPsnIsAcknowledged) {
  Post(1, 3 * kFrag);
  SendAll();
  EXPECT_TRUE(Ack(100));
  ExpectNoneComplete();
  EXPECT_TRUE(Ack(101));
  ExpectNoneComplete();
  EXPECT_TRUE(Ack(102, 1));
  ExpectComplete(1);
  ExpectNoneComplete();
  EXPECT_EQ(ropcie_req_pending(&req_), 0U);
}

TEST_F(Requester, OneAcknowledgeCompletesAllBeforeItInOrder) {
  GiveCredits();
  for (uint64_t id = 1; id <= 5; id++) {
    Post(id, 10);
  }
  EXPECT_EQ(SendAll().size(), 5U);
  Ack(103, 4, kManyCredits);
  for (uint64_t id = 1; id <= 4; id++) {
    ExpectComplete(id);
  }
  ExpectNoneComplete();
  Ack(104, 5, kManyCredits);
  ExpectComplete(5);
}

TEST_F(Requester, NothingCompletesWithoutBeingSent) {
  GiveCredits();
  Post(1, 10);
  EXPECT_FALSE(Ack(100)) << "acknowledges what was not sent";
  ExpectNoneComplete();
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);  // has its PSN, but is not in the lane
  EXPECT_FALSE(Ack(100));
  ExpectNoneComplete();
}

TEST_F(Requester, StaleAndImpossibleAnswersAreIgnored) {
  GiveCredits();
  Post(1, kFrag * 2);
  SendAll();
  EXPECT_TRUE(Ack(100));
  const std::vector<uint64_t> before = State();
  EXPECT_FALSE(Ack(98));
  EXPECT_FALSE(Ack(102));
  EXPECT_FALSE(Ack(100 + 0x800000));
  EXPECT_FALSE(Rnr(99));
  EXPECT_FALSE(Rnr(102)) << "names a request that was not sent";
  EXPECT_FALSE(Respond(Answer(ROPCIE_NAK_REM_OP, 99)));
  EXPECT_FALSE(Respond(Answer(ROPCIE_NAK_SEQ, 102)));
  ropcie_hdr other = Answer(ROPCIE_ACK, 101);
  other.src_qpn = kRemote + 1;
  EXPECT_FALSE(Respond(other)) << "from another QP";
  EXPECT_EQ(State(), before);
}

TEST_F(Requester, WithoutCreditsOneRequestProbes) {
  Post(1, 10);
  Post(2, 10);
  EXPECT_EQ(SendAll().size(), 1U);
  EXPECT_EQ(Next(), ROPCIE_REQ_WAIT);
  Ack(100, 1, 0);
  ExpectComplete(1);
  EXPECT_EQ(SendAll().size(), 1U);
}

TEST_F(Requester, CreditsCountFromTheMsnOfTheAnswer) {
  for (uint64_t id = 1; id <= 8; id++) {
    Post(id, 10);
  }
  SendAll();
  Ack(100, 1, 3);
  ExpectComplete(1);
  EXPECT_EQ(SendAll().size(), 3U);
  Ack(101, 2, 2);  // consumed one, and none was posted
  ExpectComplete(2);
  EXPECT_EQ(SendAll().size(), 0U);
  Ack(102, 3, 4);
  ExpectComplete(3);
  EXPECT_EQ(SendAll().size(), 3U);
}

TEST_F(Requester, UnaskedAcknowledgeOpensTheWindow) {
  Post(1, 10);
  Post(2, 10);
  Post(3, 10);
  EXPECT_TRUE(Ack(99, 0, 2));
  EXPECT_EQ(SendAll().size(), 2U);
}

TEST_F(Requester, MessageOnceBegunNeedsNoFurtherCredit) {
  Ack(99, 0, 1);
  Post(1, 10);
  Post(2, 3 * kFrag);
  EXPECT_EQ(SendAll().size(), 1U);
  Ack(100, 1, 1);
  ExpectComplete(1);
  EXPECT_EQ(SendAll().size(), 3U);
}

TEST_F(Requester, MessageOnceBegunGoesOnWhenCreditsShrink) {
  Ack(99, 0, 2);
  Post(1, 10);
  Post(2, 3 * kFrag);
  for (int i = 0; i < 2; i++) {
    ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
    ropcie_req_sent(&req_, &rec_, now_);
  }
  Ack(100, 1, 0);
  EXPECT_EQ(SendAll().size(), 2U);
}

TEST_F(Requester, MsnWrapsWithTheSsn) {
  for (uint32_t n = 0; n < 20; n++) {
    if (n == 0) {
      // As if 2^24 - 3 messages had gone by.
      req_.ssn = 0xfffffd;
      req_.credit_limit = 0xfffffd;
    }
    Post(n, 10);
    ASSERT_EQ(SendAll().size(), 1U);
    Ack(100 + n, (0xfffffd + n + 1) & ROPCIE_PSN_MASK, 2);
    ExpectComplete(n);
    EXPECT_EQ(req_.credit_limit, 0xfffffd + n + 1 + 2);
  }
}

TEST_F(Requester, PsnWraps) {
  Connect(0xfffffe);
  Post(1, 4 * kFrag);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 4U);
  EXPECT_EQ(sent[3].psn, 1U);
  Ack(0xffffff);
  ExpectNoneComplete();
  Ack(1);
  ExpectComplete(1);
}

TEST_F(Requester, QueueHoldsItsSizeAndIsUsedRoundAndRound) {
  uint32_t psn = 100;
  uint32_t msn = 0;
  for (uint64_t lap = 0; lap < 50; lap++) {
    for (uint32_t i = 0; i < kSize; i++) {
      EXPECT_EQ(ropcie_req_space(&req_), kSize - i);
      Post(lap * 100 + i, 10);
    }
    EXPECT_EQ(ropcie_req_space(&req_), 0U);
    while (ropcie_req_pending(&req_) > 0) {
      const auto sent = static_cast<uint32_t>(SendAll().size());
      ASSERT_GT(sent, 0U);
      psn += sent;
      msn += sent;
      Ack(psn - 1, msn, kManyCredits);
      for (uint32_t i = 0; i < sent; i++) {
        ExpectComplete(lap * 100 + kSize - ropcie_req_pending(&req_));
      }
    }
  }
}

TEST_F(Requester, ConnectBeginsAtTheGivenPsn) {
  Connect(0xff123456);  // bits above 24 are not part of a PSN
  Post(1, 10);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].psn, 0x123456U);
}

}  // namespace
}  // namespace ropcie
