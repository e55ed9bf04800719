// SPDX-License-Identifier: GPL-2.0
// Both engines without acknowledges: unreliable connections and datagrams.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core.h"
#include "requester_fixture.h"

namespace ropcie {
namespace {

constexpr uint8_t kFirst = ROPCIE_F_FIRST;
constexpr uint8_t kLast = ROPCIE_F_LAST;
constexpr uint8_t kOnly = kFirst | kLast;

class UnreliableRequester : public Requester {
 protected:
  void SetUp() override { Connect(0xffffff, 0, 0, true); }
};

TEST_F(UnreliableRequester, CompletesWhatIsInTheLane) {
  Post(1, 3 * kFrag, ROPCIE_WR_SIGNALED);
  ExpectNoneComplete();
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_EQ(sent[0].flags, ROPCIE_F_FIRST);
  EXPECT_EQ(sent[2].flags, ROPCIE_F_LAST) << "nobody is to acknowledge";
  EXPECT_EQ(sent[2].psn, 1U);
  ExpectComplete(1);
  ExpectNoneComplete();
  EXPECT_EQ(req_.deadline, 0U);
  EXPECT_TRUE(ropcie_req_drained(&req_));
}

TEST_F(UnreliableRequester, DoesNotCompleteAMessageThatIsHalfSent) {
  Post(1, 2 * kFrag);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_sent(&req_, &rec_, now_);
  ExpectNoneComplete();
  EXPECT_FALSE(ropcie_req_drained(&req_));
  SendAll();
  ExpectComplete(1);
}

TEST_F(UnreliableRequester, WaitsForNoCreditsAndNoFence) {
  for (uint64_t id = 0; id < kSize; id++) {
    Post(id, 10, ROPCIE_WR_FENCE);
  }
  EXPECT_EQ(SendAll().size(), size_t{kSize});
  for (uint64_t id = 0; id < kSize; id++) {
    ExpectComplete(id);
  }
}

TEST_F(UnreliableRequester, LocalErrorEndsTheSendQueueUntilItIsResumed) {
  Post(1, 10);
  Post(2, 10);
  Post(3, 10);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_sent(&req_, &rec_, now_);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_local_error(&req_, ROPCIE_WC_LOC_PROT_ERR);
  ExpectComplete(1);
  ExpectComplete(2, ROPCIE_WC_LOC_PROT_ERR);
  ExpectFlushed(3);
  ExpectNoneFlushed();
  Post(4, 10);
  ExpectFlushed(4);

  ropcie_req_resume(&req_);
  Post(5, 2 * kFrag);
  ASSERT_EQ(SendAll().size(), 2U);
  ExpectComplete(5);
  ExpectNoneComplete();
}

TEST_F(UnreliableRequester, ResumesBehindAMessageThatBrokeOff) {
  Post(1, 3 * kFrag);
  Post(2, 5);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_sent(&req_, &rec_, now_);
  ASSERT_EQ(Next(), ROPCIE_REQ_SEND);
  ropcie_req_local_error(&req_, ROPCIE_WC_LOC_PROT_ERR);
  ExpectComplete(1, ROPCIE_WC_LOC_PROT_ERR);
  ExpectFlushed(2);

  ropcie_req_resume(&req_);
  Post(3, 5);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].flags, kOnly);
  EXPECT_EQ(sent[0].msg_len, 5U);
  ExpectComplete(3);
}

// It is not sent (IBTA C10-93.1.1), and must not keep what is behind it.
TEST_F(UnreliableRequester, DatagramThatIsTooLongCompletes) {
  Post(1, 2 * kFrag + 1, 0, ROPCIE_OP_DATAGRAM);
  Post(2, 10, 0, ROPCIE_OP_DATAGRAM);
  req_.deadline = 5;  // until which it waited for space
  EXPECT_EQ(SendAll().size(), 2U);
  EXPECT_EQ(req_.deadline, 0U);
  ExpectComplete(1);
  ExpectComplete(2);
}

TEST_F(UnreliableRequester, DatagramNamesItsOwnDestination) {
  ropcie_send_wqe* wqe = ropcie_req_slot(&req_);
  *wqe = {};
  wqe->wr_id = 1;
  wqe->length = 100;
  wqe->op = ROPCIE_OP_DATAGRAM;
  wqe->flags = ROPCIE_WR_IMM | ROPCIE_WR_SOLICITED;
  wqe->imm = 77;
  wqe->dest_qpn = 0x345;
  wqe->qkey = 0x11111111;
  wqe->net = ROPCIE_NET_IPV4;
  wqe->vlan = 5;
  ropcie_req_post(&req_);
  const std::vector<ropcie_hdr> sent = SendAll();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].mq, ropcie_mq_id(0x345, ROPCIE_MQ_REQUEST));
  EXPECT_EQ(sent[0].flags, kOnly | ROPCIE_F_IMM | ROPCIE_F_SOLICITED);
  EXPECT_EQ(sent[0].frag_len, 140U);
  EXPECT_EQ(sent[0].msg_len, 140U);
  EXPECT_EQ(sent[0].qkey, 0x11111111U);
  EXPECT_EQ(sent[0].net, ROPCIE_NET_IPV4);
  EXPECT_EQ(sent[0].vlan, 5U);
  EXPECT_EQ(sent[0].imm, 77U);
  ropcie_slot slot;
  ropcie_hdr decoded;
  ropcie_wire_encode(sent.data(), &slot);
  EXPECT_EQ(ropcie_wire_decode(&slot, &decoded), 0);
  ExpectComplete(1);
}

class UnreliableResponder : public testing::Test {
 protected:
  static constexpr uint64_t kRoom = 10000;

  void SetUp() override {
    Connect(ROPCIE_ACCESS_REMOTE_WRITE | ROPCIE_ACCESS_REMOTE_READ);
  }

  void Connect(uint32_t access) {
    const ropcie_rsp_attr attr = {.psn = 100,
                                  .dest_qpn = kRemote,
                                  .src_qpn = kLocal,
                                  .min_rnr_timer = 1,
                                  .max_rd_atomic = 0,
                                  .unreliable = true,
                                  .xrc = false,
                                  .access = access};
    ropcie_rsp_connect(&rsp_, &attr);
  }

  static ropcie_hdr Request(ropcie_op op, uint32_t psn, uint8_t flags,
                            uint32_t msg_len, uint32_t frag_len) {
    ropcie_hdr hdr{};
    hdr.op = static_cast<uint8_t>(op);
    hdr.flags = flags;
    hdr.mq = ropcie_mq_id(kLocal, ROPCIE_MQ_REQUEST);
    hdr.src_qpn = kRemote;
    hdr.psn = psn & ROPCIE_PSN_MASK;
    hdr.msg_len = msg_len;
    hdr.frag_len = frag_len;
    if (op == ROPCIE_OP_WRITE && (flags & kFirst) != 0) {
      hdr.rkey = kRkey;
      hdr.addr = kRemoteAddr;
    }
    return hdr;
  }

  static ropcie_hdr Send(uint32_t psn, uint8_t flags, uint32_t msg_len,
                         uint32_t frag_len) {
    return Request(ROPCIE_OP_SEND, psn, flags, msg_len, frag_len);
  }

  ropcie_rsp_verdict Come(const ropcie_hdr& hdr, uint32_t ready = 5) {
    return ropcie_rsp_request(&rsp_, &hdr, ready, kRoom, &place_);
  }

  // A record that is placed; returns whether it completes a receive.
  bool Take(const ropcie_hdr& hdr) {
    EXPECT_EQ(Come(hdr),
              hdr.op == ROPCIE_OP_SEND ? ROPCIE_RSP_PLACE : ROPCIE_RSP_WRITE);
    return ropcie_rsp_placed(&rsp_, &hdr);
  }

  void ExpectDropped(const ropcie_hdr& hdr, uint32_t ready = 5) {
    EXPECT_FALSE(ready > 0 && ropcie_rsp_takes_receive(&rsp_, &hdr) &&
                 Needs(hdr) <= kRoom)
        << "others of a shared queue lose a receive by it";
    EXPECT_EQ(Come(hdr, ready), ROPCIE_RSP_DROP);
  }

  [[nodiscard]] uint32_t Needs(const ropcie_hdr& hdr) const {
    return ropcie_rsp_needs(&rsp_, &hdr);
  }

  void TearDown() override {
    EXPECT_FALSE(ropcie_rsp_owes(&rsp_)) << "it never answers";
    EXPECT_FALSE(rsp_.dead) << "and its peer can not end it";
  }

  ropcie_responder rsp_{};
  ropcie_rsp_place place_{};
};

TEST_F(UnreliableResponder, SaysHowLongAReceiveItNeeds) {
  EXPECT_EQ(Needs(Send(100, kFirst, 3000, 1024)), 3000U);
  EXPECT_EQ(Needs(Request(ROPCIE_OP_WRITE, 100, kOnly | ROPCIE_F_IMM, 10, 10)),
            0U)
      << "its bytes go elsewhere";
}

TEST_F(UnreliableResponder, TakesWholeMessages) {
  EXPECT_FALSE(Take(Send(100, kFirst, 5000, 4096)));
  EXPECT_TRUE(Take(Send(101, kLast, 5000, 904)));
  EXPECT_EQ(place_.off, 4096U);
  EXPECT_TRUE(Take(Send(102, kOnly, 0, 0)));
  EXPECT_FALSE(Take(Request(ROPCIE_OP_WRITE, 103, kFirst, 5000, 4096)));
  EXPECT_FALSE(Take(Request(ROPCIE_OP_WRITE, 104, kLast, 5000, 904)));
  EXPECT_EQ(place_.addr, kRemoteAddr + 4096);
  EXPECT_EQ(place_.rkey, kRkey);
}

TEST_F(UnreliableResponder, AMissingRecordCostsItsMessageOnly) {
  EXPECT_FALSE(Take(Send(100, kFirst, 10000, 4096)));
  ExpectDropped(Send(102, kLast, 10000, 1808));
  EXPECT_TRUE(Take(Send(103, kOnly, 10, 10)));
  EXPECT_EQ(place_.off, 0U);
}

TEST_F(UnreliableResponder, ANewMessageEndsOneThatBrokeOff) {
  EXPECT_FALSE(Take(Send(100, kFirst, 10000, 4096)));
  EXPECT_FALSE(Take(Send(300, kFirst, 5000, 4096)));
  EXPECT_EQ(place_.off, 0U);
  EXPECT_TRUE(Take(Send(301, kLast, 5000, 904)));
  EXPECT_EQ(place_.off, 4096U);
}

TEST_F(UnreliableResponder, AMessageWithoutAReceiveIsPassedOver) {
  ExpectDropped(Send(100, kFirst, 5000, 4096), 0);
  ExpectDropped(Send(101, kLast, 5000, 904));
  EXPECT_TRUE(Take(Send(102, kOnly, 10, 10)));
}

TEST_F(UnreliableResponder, AMessageLongerThanItsReceiveIsPassedOver) {
  ExpectDropped(Send(100, kFirst, kRoom + 1, 4096));
  ExpectDropped(Send(101, 0, kRoom + 1, 4096));
  EXPECT_TRUE(Take(Send(103, kOnly, 10, 10)));
}

TEST_F(UnreliableResponder, ImmediateDataWithoutAReceiveIsLost) {
  const uint8_t imm = kOnly | ROPCIE_F_IMM;
  ExpectDropped(Request(ROPCIE_OP_WRITE, 100, imm, 10, 10), 0);
  EXPECT_TRUE(Take(Request(ROPCIE_OP_WRITE, 101, imm, 10, 10)));
}

TEST_F(UnreliableResponder, WhatItDoesNotAllowOrKnowIsPassedOver) {
  ExpectDropped(Request(ROPCIE_OP_READ, 100, 0, 10, 0));
  ExpectDropped(Request(ROPCIE_OP_FAA, 101, 0, 0, 0));
  ExpectDropped(Request(ROPCIE_OP_DATAGRAM, 102, kOnly, 50, 50));
  ExpectDropped(Send(103, kOnly | ROPCIE_F_INV, 50, 50));
  ExpectDropped(Request(ROPCIE_OP_ATOMIC_WRITE, 104, kOnly, 8, 8));
  ExpectDropped(Request(ROPCIE_OP_WRITE, 105, kOnly | ROPCIE_F_PLACED, 10, 10));
  Connect(0);
  ExpectDropped(Request(ROPCIE_OP_WRITE, 100, kOnly, 10, 10));
  EXPECT_TRUE(Take(Send(101, kOnly, 10, 10)));
}

TEST_F(UnreliableResponder, AFragmentThatDoesNotFitIsPassedOver) {
  EXPECT_FALSE(Take(Send(100, kFirst, 5000, 4096)));
  ExpectDropped(Send(101, kLast, 5000, 905));
  EXPECT_FALSE(Take(Send(102, kFirst, 5000, 4096)));
  ExpectDropped(Send(103, kLast, 6000, 904));
  EXPECT_FALSE(Take(Send(104, kFirst, 5000, 4096)));
  ExpectDropped(Request(ROPCIE_OP_WRITE, 105, kLast, 5000, 904));
}

TEST_F(UnreliableResponder, MemoryThatMayNotBeWrittenCostsTheMessage) {
  const ropcie_hdr first = Request(ROPCIE_OP_WRITE, 100, kFirst, 5000, 4096);
  EXPECT_EQ(Come(first), ROPCIE_RSP_WRITE);
  ropcie_rsp_fail(&rsp_, ROPCIE_NAK_REM_ACCESS);
  ExpectDropped(Request(ROPCIE_OP_WRITE, 101, kLast, 5000, 904));
  EXPECT_TRUE(Take(Send(102, kOnly, 10, 10)));
}

TEST_F(UnreliableResponder, OthersAreNotHeard) {
  ropcie_hdr hdr = Send(100, kOnly, 10, 10);
  hdr.src_qpn = kRemote + 1;
  ExpectDropped(hdr);
  EXPECT_TRUE(Take(Send(100, kOnly, 10, 10)));
}

// A responder of a reliable connection does not know datagrams either.
TEST(ReliableResponder, DropsDatagrams) {
  ropcie_responder rsp{};
  ropcie_rsp_place place{};
  const ropcie_rsp_attr attr = {.psn = 100,
                                .dest_qpn = kRemote,
                                .src_qpn = kLocal,
                                .min_rnr_timer = 1,
                                .max_rd_atomic = 2,
                                .unreliable = false,
                                .xrc = false,
                                .access = ROPCIE_ACCESS_REMOTE_ATOMIC};
  ropcie_rsp_connect(&rsp, &attr);
  ropcie_hdr hdr{};
  hdr.op = ROPCIE_OP_DATAGRAM;
  hdr.flags = kOnly;
  hdr.src_qpn = kRemote;
  hdr.psn = 100;
  EXPECT_EQ(ropcie_rsp_request(&rsp, &hdr, 5, 100, &place), ROPCIE_RSP_DROP);
  EXPECT_EQ(rsp.epsn, 100U);
  EXPECT_FALSE(ropcie_rsp_owes(&rsp));
}

}  // namespace
}  // namespace ropcie
