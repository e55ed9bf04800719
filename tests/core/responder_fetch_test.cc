// SPDX-License-Identifier: GPL-2.0
// RDMA WRITE, READ and atomics at the responder.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core.h"

namespace ropcie {
namespace {

constexpr uint32_t kLocal = 22;
constexpr uint32_t kRemote = 11;
constexpr uint32_t kRkey = 77;
constexpr uint64_t kAddr = 0x1000;
constexpr uint32_t kFrag = 1024;
constexpr uint8_t kFirst = ROPCIE_F_FIRST;
constexpr uint8_t kLast = ROPCIE_F_LAST | ROPCIE_F_ACKREQ;
constexpr uint8_t kOnly = kFirst | kLast;

class FetchResponder : public testing::Test {
 protected:
  void SetUp() override {
    Connect(ROPCIE_ACCESS_REMOTE_WRITE | ROPCIE_ACCESS_REMOTE_READ |
            ROPCIE_ACCESS_REMOTE_ATOMIC);
  }

  void Connect(uint32_t access) {
    const ropcie_rsp_attr attr = {.psn = 100,
                                  .dest_qpn = kRemote,
                                  .src_qpn = kLocal,
                                  .min_rnr_timer = 1,
                                  .max_rd_atomic = 2,
                                  .unreliable = false,
                                  .xrc = false,
                                  .access = access};
    ropcie_rsp_connect(&rsp_, &attr);
  }

  static ropcie_hdr Request(ropcie_op op, uint32_t psn) {
    ropcie_hdr hdr{};
    hdr.op = static_cast<uint8_t>(op);
    hdr.mq = ropcie_mq_id(kLocal, ROPCIE_MQ_REQUEST);
    hdr.src_qpn = kRemote;
    hdr.psn = psn;
    hdr.rkey = kRkey;
    hdr.addr = kAddr;
    return hdr;
  }

  static ropcie_hdr Write(uint32_t psn, uint8_t flags, uint32_t msg_len,
                          uint32_t frag_len) {
    ropcie_hdr hdr = Request(ROPCIE_OP_WRITE, psn);
    hdr.flags = flags;
    hdr.msg_len = msg_len;
    hdr.frag_len = frag_len;
    if ((flags & kFirst) == 0) {
      hdr.rkey = 0;
      hdr.addr = 0;
    }
    return hdr;
  }

  static ropcie_hdr AtomicWrite(uint32_t psn) {
    ropcie_hdr hdr = Request(ROPCIE_OP_ATOMIC_WRITE, psn);
    hdr.flags = kOnly;
    hdr.msg_len = ROPCIE_ATOMIC_LEN;
    hdr.frag_len = ROPCIE_ATOMIC_LEN;
    return hdr;
  }

  static ropcie_hdr Read(uint32_t psn, uint32_t len, uint64_t addr = kAddr) {
    ropcie_hdr hdr = Request(ROPCIE_OP_READ, psn);
    hdr.msg_len = len;
    hdr.imm = kFrag;
    hdr.addr = addr;
    return hdr;
  }

  ropcie_rsp_verdict Come(const ropcie_hdr& hdr, uint32_t ready = 0) {
    return ropcie_rsp_request(&rsp_, &hdr, ready, 1000, &place_);
  }

  void TakeRead(uint32_t psn, uint32_t len) {
    const ropcie_hdr hdr = Read(psn, len);
    ASSERT_EQ(Come(hdr), ROPCIE_RSP_READ);
    ropcie_rsp_fetched(&rsp_, &hdr, 0);
  }

  void TakeAtomic(uint32_t psn, uint64_t orig) {
    const ropcie_hdr hdr = Request(ROPCIE_OP_FAA, psn);
    ASSERT_EQ(Come(hdr), ROPCIE_RSP_ATOMIC);
    ropcie_rsp_fetched(&rsp_, &hdr, orig);
  }

  // The next answer, as sent.
  ropcie_hdr Answer() {
    EXPECT_TRUE(ropcie_rsp_owes(&rsp_));
    ropcie_hdr hdr{};
    ropcie_rsp_answer(&rsp_, 5, &hdr);
    if (hdr.op == ROPCIE_OP_READ_RESP) {
      left_ = ropcie_rsp_read_left(&rsp_);
    }
    ropcie_rsp_answered(&rsp_, &hdr);
    ropcie_slot slot;
    ropcie_hdr decoded;
    ropcie_wire_encode(&hdr, &slot);
    EXPECT_EQ(ropcie_wire_decode(&slot, &decoded), 0) << "not valid";
    EXPECT_EQ(hdr.mq, ropcie_mq_id(kRemote, ROPCIE_MQ_RESPONSE));
    EXPECT_EQ(hdr.src_qpn, kLocal);
    return hdr;
  }

  void ExpectData(uint32_t psn, uint32_t off, uint32_t len, uint8_t flags) {
    const ropcie_hdr hdr = Answer();
    EXPECT_EQ(hdr.op, ROPCIE_OP_READ_RESP);
    EXPECT_EQ(hdr.psn, psn);
    EXPECT_EQ(hdr.addr, kAddr + off);
    EXPECT_EQ(hdr.rkey, kRkey);
    EXPECT_EQ(hdr.frag_len, len);
    EXPECT_EQ(hdr.flags, flags);
  }

  void ExpectValue(uint32_t psn, uint64_t orig) {
    const ropcie_hdr hdr = Answer();
    EXPECT_EQ(hdr.op, ROPCIE_OP_ATOMIC_RESP);
    EXPECT_EQ(hdr.psn, psn);
    EXPECT_EQ(hdr.orig, orig);
  }

  void ExpectAck(ropcie_syndrome syndrome, uint32_t psn) {
    const ropcie_hdr hdr = Answer();
    EXPECT_EQ(hdr.op, ROPCIE_OP_ACK);
    EXPECT_EQ(hdr.syndrome, syndrome);
    EXPECT_EQ(hdr.psn, psn);
    EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
  }

  ropcie_responder rsp_{};
  ropcie_rsp_place place_{};
  uint32_t left_ = 0;
};

TEST_F(FetchResponder, WriteIsPlacedWhereItsFirstRecordSays) {
  ropcie_hdr hdr = Write(100, kFirst, 2500, 1024);
  EXPECT_EQ(Come(hdr), ROPCIE_RSP_WRITE);
  EXPECT_EQ(place_.addr, kAddr);
  EXPECT_EQ(place_.rkey, kRkey);
  EXPECT_TRUE(place_.first);
  EXPECT_FALSE(ropcie_rsp_placed(&rsp_, &hdr));
  hdr = Write(101, 0, 2500, 1024);
  EXPECT_EQ(Come(hdr), ROPCIE_RSP_WRITE);
  EXPECT_EQ(place_.addr, kAddr + 1024);
  EXPECT_FALSE(place_.first);
  EXPECT_FALSE(ropcie_rsp_placed(&rsp_, &hdr));
  EXPECT_FALSE(ropcie_rsp_holds_receive(&rsp_));
  hdr = Write(102, kLast, 2500, 452);
  EXPECT_EQ(Come(hdr), ROPCIE_RSP_WRITE);
  EXPECT_EQ(place_.addr, kAddr + 2048);
  EXPECT_EQ(place_.rkey, kRkey);
  EXPECT_TRUE(place_.last);
  EXPECT_FALSE(ropcie_rsp_placed(&rsp_, &hdr)) << "takes no receive";
  ExpectAck(ROPCIE_ACK, 102);
}

TEST_F(FetchResponder, AtomicWriteIsPlacedAndAcknowledged) {
  ropcie_hdr hdr = AtomicWrite(100);
  ASSERT_EQ(Come(hdr), ROPCIE_RSP_WRITE);
  EXPECT_EQ(place_.addr, kAddr);
  EXPECT_EQ(place_.rkey, kRkey);
  EXPECT_TRUE(place_.first && place_.last);
  EXPECT_FALSE(ropcie_rsp_placed(&rsp_, &hdr)) << "it takes no receive";
  ropcie_hdr answer;
  ropcie_rsp_answer(&rsp_, 0, &answer);
  EXPECT_EQ(answer.op, ROPCIE_OP_ACK);
  EXPECT_EQ(answer.psn, 100U);
  ropcie_rsp_answered(&rsp_, &answer);

  EXPECT_EQ(Come(hdr), ROPCIE_RSP_DROP) << "it is not executed twice";
  EXPECT_TRUE(ropcie_rsp_owes(&rsp_));
}

TEST_F(FetchResponder, AnswersMayBePlacedOnce) {
  ropcie_hdr read = Read(100, 2500);
  read.flags = ROPCIE_F_PLACED;
  read.sink_key = 77;
  read.sink_addr = 5000;
  ASSERT_EQ(Come(read), ROPCIE_RSP_READ);
  ropcie_rsp_fetched(&rsp_, &read, 0);
  ropcie_hdr other = read;
  other.psn = 103;
  other.sink_addr = 9000;
  ASSERT_EQ(Come(other), ROPCIE_RSP_READ);
  ropcie_rsp_fetched(&rsp_, &other, 0);
  for (uint64_t off = 0; off < 2048; off += kFrag) {
    const ropcie_hdr hdr = Answer();
    EXPECT_EQ(hdr.sink_key, 77U);
    EXPECT_EQ(hdr.sink_addr, 5000 + off);
  }
  // It comes again, from the second answer on: that may be in use already.
  read = Read(101, 2500 - kFrag, kAddr + kFrag);
  EXPECT_EQ(Come(read), ROPCIE_RSP_DROP);
  for (const uint32_t psn : {101, 102, 103, 104, 105}) {
    const ropcie_hdr hdr = Answer();
    EXPECT_EQ(hdr.psn, psn);
    EXPECT_EQ(hdr.sink_key, 0U);
  }
  // All of it once more, when nothing is under way.
  EXPECT_EQ(Come(other), ROPCIE_RSP_DROP);
  EXPECT_EQ(Answer().sink_key, 0U);
}

TEST_F(FetchResponder, WhatWasAnsweredIsNotPlacedAgain) {
  ropcie_hdr read = Read(100, 10);
  read.flags = ROPCIE_F_PLACED;
  read.sink_key = 77;
  ASSERT_EQ(Come(read), ROPCIE_RSP_READ);
  ropcie_rsp_fetched(&rsp_, &read, 0);
  EXPECT_EQ(Answer().sink_key, 77U);
  EXPECT_EQ(Come(read), ROPCIE_RSP_DROP);
  EXPECT_EQ(Answer().sink_key, 0U);
}

TEST_F(FetchResponder, AtomicWriteHasToBeAligned) {
  for (uint64_t off = 1; off < 8; off++) {
    SetUp();
    ropcie_hdr hdr = AtomicWrite(100);
    hdr.addr += off;
    EXPECT_EQ(Come(hdr), ROPCIE_RSP_INVALID);
  }
}

TEST_F(FetchResponder, AtomicWriteNeedsTheRightToWrite) {
  Connect(ROPCIE_ACCESS_REMOTE_READ | ROPCIE_ACCESS_REMOTE_ATOMIC);
  EXPECT_EQ(Come(AtomicWrite(100)), ROPCIE_RSP_INVALID);
  Connect(ROPCIE_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(Come(AtomicWrite(100)), ROPCIE_RSP_WRITE);
}

TEST_F(FetchResponder, AtomicWriteNeedsResponderResources) {
  rsp_.attr.max_rd_atomic = 0;
  EXPECT_EQ(Come(AtomicWrite(100)), ROPCIE_RSP_INVALID);
}

TEST_F(FetchResponder, AtomicWriteDoesNotEndAWrite) {
  const ropcie_hdr hdr = Write(100, kFirst, 2000, 1024);
  ASSERT_EQ(Come(hdr), ROPCIE_RSP_WRITE);
  ropcie_rsp_placed(&rsp_, &hdr);
  EXPECT_EQ(Come(AtomicWrite(101)), ROPCIE_RSP_INVALID);
}

TEST_F(FetchResponder, ImmediateDataTakeAReceiveAtTheEnd) {
  ropcie_hdr hdr = Write(100, kFirst, 2000, 1024);
  EXPECT_EQ(Come(hdr, 0), ROPCIE_RSP_WRITE);
  EXPECT_FALSE(ropcie_rsp_placed(&rsp_, &hdr));
  hdr = Write(101, kLast | ROPCIE_F_IMM, 2000, 976);
  EXPECT_EQ(Come(hdr, 0), ROPCIE_RSP_DROP);
  ExpectAck(ROPCIE_RNR_NAK, 101);
  EXPECT_EQ(Come(hdr, 1), ROPCIE_RSP_WRITE);
  EXPECT_EQ(place_.addr, kAddr + 1024);
  EXPECT_TRUE(ropcie_rsp_placed(&rsp_, &hdr));
  ExpectAck(ROPCIE_ACK, 101);
}

TEST_F(FetchResponder, SaysWhichRequestWillTakeAReceive) {
  ropcie_hdr hdr = Write(100, kOnly | ROPCIE_F_IMM, 10, 10);
  EXPECT_TRUE(ropcie_rsp_takes_receive(&rsp_, &hdr));
  hdr.psn = 99;
  EXPECT_FALSE(ropcie_rsp_takes_receive(&rsp_, &hdr)) << "was seen before";
  hdr.psn = 100;
  hdr.src_qpn++;
  EXPECT_FALSE(ropcie_rsp_takes_receive(&rsp_, &hdr)) << "is of a stranger";
  hdr = Write(100, kOnly, 10, 10);
  EXPECT_FALSE(ropcie_rsp_takes_receive(&rsp_, &hdr));
  hdr.op = ROPCIE_OP_SEND;
  EXPECT_TRUE(ropcie_rsp_takes_receive(&rsp_, &hdr));
  EXPECT_EQ(ropcie_rsp_needs(&rsp_, &hdr), 0U) << "too short a one fails";
  hdr.flags = kLast;
  EXPECT_FALSE(ropcie_rsp_takes_receive(&rsp_, &hdr)) << "holds one already";
  hdr = Read(100, 10);
  EXPECT_FALSE(ropcie_rsp_takes_receive(&rsp_, &hdr));
  ropcie_rsp_fail(&rsp_, ROPCIE_NAK_REM_OP);
  hdr = Write(100, kOnly | ROPCIE_F_IMM, 10, 10);
  EXPECT_FALSE(ropcie_rsp_takes_receive(&rsp_, &hdr)) << "is dead";
}

TEST_F(FetchResponder, WhatTheQueuePairDoesNotAllowIsAnInvalidRequest) {
  Connect(0);
  EXPECT_EQ(Come(Write(100, kOnly, 10, 10)), ROPCIE_RSP_INVALID);
  Connect(ROPCIE_ACCESS_REMOTE_WRITE | ROPCIE_ACCESS_REMOTE_ATOMIC);
  EXPECT_EQ(Come(Read(100, 10)), ROPCIE_RSP_INVALID);
  Connect(ROPCIE_ACCESS_REMOTE_WRITE | ROPCIE_ACCESS_REMOTE_READ);
  EXPECT_EQ(Come(Request(ROPCIE_OP_CAS, 100)), ROPCIE_RSP_INVALID);
  ExpectAck(ROPCIE_NAK_INV_REQ, 100);
}

TEST_F(FetchResponder, MessagesDoNotMix) {
  ropcie_hdr hdr = Write(100, kFirst, 2000, 1024);
  EXPECT_EQ(Come(hdr), ROPCIE_RSP_WRITE);
  ropcie_rsp_placed(&rsp_, &hdr);
  const ropcie_responder saved = rsp_;
  EXPECT_EQ(Come(Read(101, 10)), ROPCIE_RSP_INVALID);
  rsp_ = saved;
  EXPECT_EQ(Come(Request(ROPCIE_OP_FAA, 101)), ROPCIE_RSP_INVALID);
  rsp_ = saved;
  hdr = Write(101, kLast, 2000, 976);
  hdr.op = ROPCIE_OP_SEND;
  EXPECT_EQ(Come(hdr, 3), ROPCIE_RSP_INVALID);
}

TEST_F(FetchResponder, ReadIsAnsweredInRecordsOfTheSizeAskedFor) {
  TakeRead(100, 2 * kFrag + 1);
  EXPECT_EQ(rsp_.epsn, 103U);
  EXPECT_EQ(rsp_.msn, 1U);
  ExpectData(100, 0, kFrag, ROPCIE_F_FIRST);
  EXPECT_EQ(left_, 2 * kFrag + 1);
  ExpectData(101, kFrag, kFrag, 0);
  EXPECT_EQ(left_, kFrag + 1);
  ExpectData(102, 2 * kFrag, 1, ROPCIE_F_LAST);
  EXPECT_EQ(left_, 1U);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
  TakeRead(103, 0);
  ExpectData(103, 0, 0, ROPCIE_F_FIRST | ROPCIE_F_LAST);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
}

TEST_F(FetchResponder, AnswersKeepTheOrderOfTheRequests) {
  TakeRead(100, kFrag);
  TakeAtomic(101, 42);
  const ropcie_hdr hdr = Write(102, kOnly, 10, 10);
  EXPECT_EQ(Come(hdr), ROPCIE_RSP_WRITE);
  ropcie_rsp_placed(&rsp_, &hdr);
  ExpectData(100, 0, kFrag, ROPCIE_F_FIRST | ROPCIE_F_LAST);
  ExpectValue(101, 42);
  ExpectAck(ROPCIE_ACK, 102);
}

TEST_F(FetchResponder, MoreThanAgreedIsAnInvalidRequest) {
  TakeRead(100, 10);
  TakeAtomic(101, 1);
  EXPECT_EQ(Come(Read(102, 10)), ROPCIE_RSP_INVALID);
  ExpectData(100, 0, 10, ROPCIE_F_FIRST | ROPCIE_F_LAST);
  ExpectValue(101, 1);
  ExpectAck(ROPCIE_NAK_INV_REQ, 102);
}

TEST_F(FetchResponder, AtomicHasToBeAligned) {
  ropcie_hdr hdr = Request(ROPCIE_OP_CAS, 100);
  hdr.addr = kAddr + 4;
  EXPECT_EQ(Come(hdr), ROPCIE_RSP_INVALID);
}

TEST_F(FetchResponder, AtomicThatComesAgainIsAnsweredButNotExecuted) {
  TakeAtomic(100, 7);
  TakeAtomic(101, 8);
  ExpectValue(100, 7);
  ExpectValue(101, 8);
  EXPECT_EQ(Come(Request(ROPCIE_OP_FAA, 100)), ROPCIE_RSP_DROP);
  EXPECT_EQ(Come(Request(ROPCIE_OP_FAA, 101)), ROPCIE_RSP_DROP);
  ExpectValue(100, 7);
  ExpectValue(101, 8);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
  EXPECT_EQ(rsp_.epsn, 102U);
  EXPECT_EQ(rsp_.msn, 2U);
}

TEST_F(FetchResponder, ReadThatComesAgainGoesOnWhereItAsks) {
  TakeRead(100, 3 * kFrag);
  TakeRead(103, 2 * kFrag);
  for (int i = 0; i < 4; i++) {
    Answer();
  }
  // Its second answer, and that to the next one, of which half is sent.
  EXPECT_EQ(Come(Read(101, 2 * kFrag, kAddr + kFrag)), ROPCIE_RSP_DROP);
  ExpectData(101, kFrag, kFrag, 0);
  ExpectData(102, 2 * kFrag, kFrag, ROPCIE_F_LAST);
  ExpectData(103, 0, kFrag, ROPCIE_F_FIRST);
  EXPECT_EQ(Come(Read(104, kFrag, kAddr + kFrag)), ROPCIE_RSP_DROP)
      << "is pending";
  ExpectData(104, kFrag, kFrag, ROPCIE_F_LAST);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
}

// The other end had no memory for what was sent (on-demand paging).
TEST_F(FetchResponder, ReadThatIsBeingAnsweredGoesBackToWhatIsMissing) {
  TakeRead(100, 4 * kFrag);
  TakeRead(104, kFrag);
  for (int i = 0; i < 3; i++) {
    Answer();
  }
  EXPECT_EQ(Come(Read(101, 3 * kFrag, kAddr + kFrag)), ROPCIE_RSP_DROP);
  EXPECT_EQ(Come(Read(104, kFrag)), ROPCIE_RSP_DROP);
  ExpectData(101, kFrag, kFrag, 0);
  ExpectData(102, 2 * kFrag, kFrag, 0);
  ExpectData(103, 3 * kFrag, kFrag, ROPCIE_F_LAST);
  ExpectData(104, 0, kFrag, ROPCIE_F_FIRST | ROPCIE_F_LAST);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
}

TEST_F(FetchResponder, AtomicWithoutMemoryIsAskedForAgain) {
  const ropcie_hdr hdr = Request(ROPCIE_OP_FAA, 100);
  ASSERT_EQ(Come(hdr), ROPCIE_RSP_ATOMIC);
  ropcie_rsp_not_there(&rsp_);
  ExpectAck(ROPCIE_RNR_NAK, 100);
  ropcie_rsp_there(&rsp_);
  TakeAtomic(100, 7);
  ExpectValue(100, 7);
}

TEST_F(FetchResponder, RepetitionsDoNotCountAndGiveWay) {
  TakeRead(100, 10);
  TakeRead(101, 10);
  Answer();
  Answer();
  EXPECT_EQ(Come(Read(100, 10)), ROPCIE_RSP_DROP);
  EXPECT_TRUE(ropcie_rsp_owes(&rsp_));
  // The peer has both answers by now, and goes on.
  TakeRead(102, 10);
  ExpectData(101, 0, 10, ROPCIE_F_FIRST | ROPCIE_F_LAST);
  TakeRead(103, 10);
  ExpectData(102, 0, 10, ROPCIE_F_FIRST | ROPCIE_F_LAST);
  ExpectData(103, 0, 10, ROPCIE_F_FIRST | ROPCIE_F_LAST);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
}

TEST_F(FetchResponder, RepetitionThatMayNotBeIsPassedOver) {
  TakeRead(100, 10);
  TakeAtomic(101, 3);
  Answer();
  Answer();
  EXPECT_EQ(Come(Read(100, 10)), ROPCIE_RSP_DROP);
  EXPECT_FALSE(ropcie_rsp_fail_read(&rsp_, ROPCIE_NAK_REM_ACCESS));
  ExpectValue(101, 3);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
  TakeRead(102, 10);
}

TEST_F(FetchResponder, RepetitionHasToBeTheSameRequest) {
  TakeRead(100, 3 * kFrag);
  for (int i = 0; i < 3; i++) {
    Answer();
  }
  ropcie_hdr hdr = Read(101, 2 * kFrag, kAddr + kFrag);
  hdr.imm = 2 * kFrag;
  EXPECT_EQ(Come(hdr), ROPCIE_RSP_DROP) << "another size of records";
  hdr = Read(101, 2 * kFrag + 1, kAddr + kFrag);
  EXPECT_EQ(Come(hdr), ROPCIE_RSP_DROP) << "more than it was";
  hdr = Read(101, 2 * kFrag);
  EXPECT_EQ(Come(hdr), ROPCIE_RSP_DROP) << "from elsewhere";
  hdr = Read(101, 2 * kFrag, kAddr + kFrag);
  hdr.rkey++;
  EXPECT_EQ(Come(hdr), ROPCIE_RSP_DROP) << "another key";
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
  hdr.rkey--;
  EXPECT_EQ(Come(hdr), ROPCIE_RSP_DROP);
  ExpectData(101, kFrag, kFrag, 0);
}

TEST_F(FetchResponder, StoppedItAnswersNothing) {
  TakeRead(100, 10);
  const ropcie_hdr hdr = Write(101, kOnly, 1, 1);
  EXPECT_EQ(Come(hdr), ROPCIE_RSP_WRITE);
  ropcie_rsp_placed(&rsp_, &hdr);
  ropcie_rsp_stop(&rsp_);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
}

TEST_F(FetchResponder, CountsGoRound) {
  rsp_.fetch_head = rsp_.fetch_next = rsp_.fetch_done = UINT32_MAX - 1;
  for (uint32_t i = 0; i < 5; i++) {
    TakeAtomic(100 + i, i);
    ExpectValue(100 + i, i);
  }
  EXPECT_EQ(Come(Request(ROPCIE_OP_FAA, 100)), ROPCIE_RSP_DROP);
  for (uint32_t i = 0; i < 5; i++) {
    ExpectValue(100 + i, i);
  }
  EXPECT_EQ(Come(Request(ROPCIE_OP_CAS, 100)), ROPCIE_RSP_DROP);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
}

TEST_F(FetchResponder, WhatIsNotRememberedIsNotAnswered) {
  for (uint32_t i = 0; i < ROPCIE_RSP_DEPTH + 1; i++) {
    TakeAtomic(100 + i, i);
    ExpectValue(100 + i, i);
  }
  EXPECT_EQ(Come(Request(ROPCIE_OP_FAA, 100)), ROPCIE_RSP_DROP);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
  EXPECT_EQ(Come(Request(ROPCIE_OP_CAS, 102)), ROPCIE_RSP_DROP) << "not a CAS";
  EXPECT_EQ(Come(Read(102, 10)), ROPCIE_RSP_DROP) << "nor a READ";
  EXPECT_FALSE(ropcie_rsp_owes(&rsp_));
  EXPECT_EQ(Come(Request(ROPCIE_OP_FAA, 101)), ROPCIE_RSP_DROP);
  ExpectValue(101, 1);
}

TEST_F(FetchResponder, ReadThatIsRevokedIsRefusedAtItsPsn) {
  TakeRead(100, 3 * kFrag);
  TakeAtomic(103, 1);
  Answer();
  EXPECT_TRUE(ropcie_rsp_fail_read(&rsp_, ROPCIE_NAK_REM_ACCESS));
  ExpectAck(ROPCIE_NAK_REM_ACCESS, 101);
  EXPECT_EQ(Come(Read(104, 10)), ROPCIE_RSP_DROP);
}

TEST_F(FetchResponder, SequenceNakIsDroppedWhenTheMissingFetchComes) {
  EXPECT_EQ(Come(Write(101, kOnly, 1, 1)), ROPCIE_RSP_DROP);
  TakeRead(100, 10);
  ExpectData(100, 0, 10, ROPCIE_F_FIRST | ROPCIE_F_LAST);
  ExpectAck(ROPCIE_ACK, 100);
}

}  // namespace
}  // namespace ropcie
