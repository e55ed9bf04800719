// SPDX-License-Identifier: GPL-2.0
// Which payload may go past the lane: none that something in the lane could
// overwrite, or that comes before what the other end has yet to execute.
#include <gtest/gtest.h>

#include "requester_fixture.h"

namespace ropcie {
namespace {

class Placing : public Requester {
 protected:
  bool MayPlace() { return ropcie_req_may_place(&req_, &rec_); }
  [[nodiscard]] bool Clear() const { return ropcie_req_clear(&req_); }

  void SendPlaced() {
    ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
    ASSERT_TRUE(MayPlace());
    ASSERT_TRUE(Clear());
    rec_.hdr.flags |= ROPCIE_F_PLACED;
    ropcie_req_sent(&req_, &rec_, now_);
  }
};

TEST_F(Placing, OnlyWritesWithPayload) {
  Post(1, 100, 0, ROPCIE_OP_WRITE);
  Post(2, 0, 0, ROPCIE_OP_WRITE);
  Post(3, 100);
  Post(4, 8, 0, ROPCIE_OP_ATOMIC_WRITE);
  GiveCredits();
  const bool want[] = {true, false, false, false};
  for (const bool may : want) {
    ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
    EXPECT_EQ(MayPlace(), may);
    ropcie_req_sent(&req_, &rec_, now_);
  }
}

TEST_F(Placing, NotOfAnUnreliableConnection) {
  Connect(100, 0, 0, true);
  Post(1, 100, 0, ROPCIE_OP_WRITE);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  EXPECT_FALSE(MayPlace());
}

TEST_F(Placing, WaitsForAllThatWentThroughTheLane) {
  EXPECT_TRUE(Clear());
  Post(1, 100);  // PSN 100
  Post(2, 2 * kFrag, 0, ROPCIE_OP_WRITE);
  SendOne();
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  EXPECT_TRUE(MayPlace());
  EXPECT_FALSE(Clear());
  Ack(100, 1, kManyCredits);
  EXPECT_TRUE(Clear());
  SendPlaced();
  EXPECT_TRUE(Clear());
  SendPlaced();
  EXPECT_TRUE(Clear());
}

// It is refused for want of a receive, and sent again: what was placed behind
// it would be there first, and then once more.
TEST_F(Placing, WaitsForAWriteThatNeedsAReceive) {
  GiveCredits();
  Post(1, 100, ROPCIE_WR_IMM, ROPCIE_OP_WRITE);  // PSN 100
  SendPlaced();
  EXPECT_FALSE(Clear());
  Post(2, 100, 0, ROPCIE_OP_WRITE);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  EXPECT_FALSE(Clear());
  Ack(100, 1, kManyCredits);
  EXPECT_TRUE(Clear());
}

TEST_F(Placing, WaitsForTheDataOfARead) {
  Post(1, 2 * kFrag, 0, ROPCIE_OP_READ);
  SendOne();
  Post(2, 100, 0, ROPCIE_OP_WRITE);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  for (uint32_t psn = 100; psn < 102; psn++) {
    EXPECT_FALSE(Clear());
    ropcie_hdr data{};
    data.op = ROPCIE_OP_READ_RESP;
    data.src_qpn = kRemote;
    data.psn = psn;
    data.frag_len = kFrag;
    data.flags = psn == 101 ? ROPCIE_F_LAST : 0;
    ropcie_req_place at;
    ASSERT_TRUE(ropcie_req_data(&req_, &data, &at, now_));
    ropcie_req_placed(&req_, &data, now_);
  }
  EXPECT_TRUE(Clear());
}

TEST_F(Placing, WhatIsRepeatedGoesThroughTheLane) {
  Post(1, kFrag, 0, ROPCIE_OP_WRITE);  // PSN 100
  Post(2, kFrag, 0, ROPCIE_OP_WRITE);
  SendPlaced();
  SendPlaced();
  Respond(Answer(ROPCIE_NAK_SEQ, 100));
  for (int i = 0; i < 2; i++) {
    ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
    EXPECT_FALSE(MayPlace());
    ropcie_req_sent(&req_, &rec_, now_);
  }
  Post(3, kFrag, 0, ROPCIE_OP_WRITE);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  EXPECT_TRUE(MayPlace());
  EXPECT_FALSE(Clear());
  Ack(100);
  EXPECT_FALSE(Clear());
  Ack(101);
  EXPECT_TRUE(Clear());
}

TEST_F(Placing, AnswersToAReadThatIsSentForTheFirstTime) {
  Post(1, 2 * kFrag, 0, ROPCIE_OP_READ);  // PSN 100
  Post(2, 0, 0, ROPCIE_OP_READ);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  EXPECT_TRUE(MayPlace());
  ropcie_req_name_sink(&rec_);
  EXPECT_EQ(rec_.hdr.sink_key, 1U);
  EXPECT_EQ(rec_.hdr.sink_addr, 0U);
  ropcie_req_sent(&req_, &rec_, now_);
  EXPECT_FALSE(Clear()) << "a READ is in the lane, wherever its answers go";
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  EXPECT_FALSE(MayPlace()) << "there are none";
  ropcie_req_sent(&req_, &rec_, now_);
  Respond(Answer(ROPCIE_NAK_SEQ, 100));
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  EXPECT_FALSE(MayPlace());
}

TEST_F(Placing, KnowsWhereAnswersAreDue) {
  Post(1, 100, 0, ROPCIE_OP_WRITE);
  Post(2, kFrag, 0, ROPCIE_OP_READ);
  EXPECT_FALSE(ropcie_req_awaits(&req_, 1, 0)) << "it was not sent yet";
  SendAll();
  EXPECT_TRUE(ropcie_req_awaits(&req_, 1, 0));
  EXPECT_TRUE(ropcie_req_awaits(&req_, 1, kFrag - 1));
  EXPECT_FALSE(ropcie_req_awaits(&req_, 1, kFrag));
  EXPECT_FALSE(ropcie_req_awaits(&req_, 1, UINT64_MAX));
  EXPECT_FALSE(ropcie_req_awaits(&req_, 2, 0));
}

TEST_F(Placing, AwaitsNothingOfAnAtomic) {
  Post(1, ROPCIE_ATOMIC_LEN, 0, ROPCIE_OP_FAA);
  SendAll();
  EXPECT_FALSE(ropcie_req_awaits(&req_, 1, 0));
}

// More PSNs than half of the circle since something was in the lane.
TEST_F(Placing, StaysClearForEver) {
  Post(1, 100);
  SendOne();
  Ack(100, 1, kManyCredits);
  ExpectComplete(1);
  for (uint32_t i = 0; i < (9U << 20); i++) {
    Post(2, 1, 0, ROPCIE_OP_WRITE);
    ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
    ASSERT_TRUE(Clear()) << i;
    rec_.hdr.flags |= ROPCIE_F_PLACED;
    ropcie_req_sent(&req_, &rec_, now_);
    Ack(101 + i);
    ropcie_req_comp comp{};
    ASSERT_TRUE(ropcie_req_complete(&req_, &comp));
  }
}

}  // namespace
}  // namespace ropcie
