// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Mapped queues of libropcie: what it writes to the rings, when it calls the
// kernel, and how it takes completions.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <ropcie-abi.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "fake_kernel.h"
#include "uring.h"

namespace {

constexpr uint32_t kDepth = 5;
constexpr uint32_t kRing = 8;

class MappedQp : public testing::Test {
 protected:
  void SetUp() override {
    fake_reset(kDepth);
    pd_.context = fake_mapped_context(kRing);
    ASSERT_NE(pd_.context, nullptr);
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {.max_send_wr = kDepth,
                .max_recv_wr = kDepth,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 64};
    qp_ = ropcie_create_qp(&pd_, &attr);
    ASSERT_NE(qp_, nullptr);
    EXPECT_EQ(attr.cap.max_inline_data, 64);
    qp_->state = IBV_QPS_RTS;
  }

  void TearDown() override { EXPECT_EQ(ropcie_destroy_qp(qp_), 0); }

  int Send(uint64_t wr_id, unsigned int flags, ibv_sge* sge = nullptr) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = sge;
    wr.num_sge = sge != nullptr ? 1 : 0;
    wr.send_flags = flags;
    ibv_send_wr* bad = nullptr;
    const int ret = ropcie_post_send(qp_, &wr, &bad);
    EXPECT_TRUE(ret == 0 || bad == &wr);
    return ret;
  }

  int Receive(uint64_t wr_id) {
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    ibv_recv_wr* bad = nullptr;
    const int ret = ropcie_post_recv(qp_, &wr, &bad);
    EXPECT_TRUE(ret == 0 || bad == &wr);
    return ret;
  }

  // A copy of the next send queue entry, as the kernel takes it.
  static std::vector<uint64_t> Take() {
    std::vector<uint64_t> entry(fake_ring(0)->stride / sizeof(uint64_t));
    ropcie_uring_take(fake_ring(0), entry.data());
    return entry;
  }

  ibv_pd pd_{};
  ibv_qp* qp_ = nullptr;
};

TEST_F(MappedQp, WritesTheRequestToTheRing) {
  ibv_sge sge{.addr = 0x1234, .length = 99, .lkey = 7};
  ASSERT_EQ(Send(42, IBV_SEND_SIGNALED, &sge), 0);
  ASSERT_EQ(ropcie_uring_ready(fake_ring(0)), 1);
  const auto memory = Take();
  const auto* wqe = reinterpret_cast<const ropcie_abi_send_wqe*>(memory.data());
  EXPECT_EQ(wqe->wr_id, 42);
  EXPECT_EQ(wqe->opcode, IBV_WR_SEND);
  EXPECT_EQ(wqe->flags, IBV_SEND_SIGNALED);
  ASSERT_EQ(wqe->num_sge, 1);
  EXPECT_EQ(wqe->sge[0].addr, 0x1234);
  EXPECT_EQ(wqe->sge[0].length, 99);
  EXPECT_EQ(wqe->sge[0].lkey, 7);
}

// The kernel resets the queue pair and destroys it, whatever the process does.
TEST_F(MappedQp, NothingIsPostedOnceTheDeviceHasGone) {
  for (uint64_t i = 0; i < kDepth; ++i) {
    ASSERT_EQ(Send(i, 0), 0);
    ASSERT_EQ(Receive(i), 0);
  }
  const uint32_t calls = fake_calls();
  for (const int which : {0, 1}) {
    ropcie_uring_reset(fake_ring(which));
    ropcie_uring_end(fake_ring(which));
  }
  EXPECT_EQ(Send(100, 0), EIO) << "not ENOMEM, although none has completed";
  EXPECT_EQ(Receive(100), EIO);
  EXPECT_LE(fake_calls(), calls + 2);
}

// The kernel may complete what it finds without a doorbell.
TEST_F(MappedQp, WhatIsPostedBeforeADoorbellFindsNoDeviceIsPosted) {
  fake_lose_device();
  EXPECT_EQ(Send(1, 0), 0);
  EXPECT_EQ(Send(2, 0), EIO);
  EXPECT_EQ(Receive(3), EIO);
}

TEST_F(MappedQp, WritesInlineDataToTheRing) {
  std::string data(64, 'x');
  ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(data.data()),
              .length = 64,
              .lkey = 0};
  ASSERT_EQ(Send(1, IBV_SEND_INLINE, &sge), 0);
  sge.length = 65;
  EXPECT_EQ(Send(2, IBV_SEND_INLINE, &sge), EINVAL);
  ASSERT_EQ(ropcie_uring_ready(fake_ring(0)), 1);
  const auto memory = Take();
  const auto* wqe = reinterpret_cast<const ropcie_abi_send_wqe*>(memory.data());
  EXPECT_EQ(wqe->num_sge, 0);
  ASSERT_EQ(wqe->inline_length, 64);
  EXPECT_EQ(std::memcmp(wqe->sge, data.data(), 64), 0);
}

TEST_F(MappedQp, InlineDataNeedsNoElementOfTheQueue) {
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = kDepth;
  attr.cap.max_inline_data = 8;
  ibv_qp* qp = ropcie_create_qp(&pd_, &attr);
  ASSERT_NE(qp, nullptr);
  qp->state = IBV_QPS_RTS;
  std::array<char, 8> data{};
  ibv_sge sge{};
  sge.addr = reinterpret_cast<uint64_t>(data.data());
  sge.length = data.size();
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ropcie_post_send(qp, &wr, &bad), EINVAL) << "a list";
  wr.send_flags = IBV_SEND_INLINE;
  EXPECT_EQ(ropcie_post_send(qp, &wr, &bad), 0);
  EXPECT_EQ(ropcie_destroy_qp(qp), 0);
}

TEST_F(MappedQp, XrcRequestsNameASharedQueue) {
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_XRC_SEND;
  attr.cap.max_send_wr = kDepth;
  attr.cap.max_send_sge = 1;
  ibv_qp* qp = ropcie_create_qp(&pd_, &attr);
  ASSERT_NE(qp, nullptr);
  qp->state = IBV_QPS_RTS;
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.rkey = 3;
  ibv_send_wr* bad = nullptr;
  for (const uint32_t none : {0U, 0x10000U}) {
    wr.qp_type.xrc.remote_srqn = none;
    EXPECT_EQ(ropcie_post_send(qp, &wr, &bad), EINVAL);
  }
  wr.qp_type.xrc.remote_srqn = 0xffff;
  ASSERT_EQ(ropcie_post_send(qp, &wr, &bad), 0);
  const auto memory = Take();
  const auto* wqe = reinterpret_cast<const ropcie_abi_send_wqe*>(memory.data());
  EXPECT_EQ(wqe->remote_srqn, 0xffffU);
  EXPECT_EQ(wqe->rkey, 3U);
  EXPECT_EQ(ropcie_destroy_qp(qp), 0);
}

TEST_F(MappedQp, CallsOnlyAKernelThatDoesNotLook) {
  ropcie_uring_want_call(fake_ring(0), true);
  ASSERT_EQ(Send(1, 0), 0);
  EXPECT_EQ(fake_calls(), 1);
  ropcie_uring_want_call(fake_ring(0), false);
  ASSERT_EQ(Send(2, 0), 0);
  EXPECT_EQ(fake_calls(), 1);
  ropcie_uring_want_call(fake_ring(1), false);
  ASSERT_EQ(Receive(1), 0);
  EXPECT_EQ(fake_calls(), 1);
  ropcie_uring_want_call(fake_ring(1), true);
  ASSERT_EQ(Receive(2), 0);
  EXPECT_EQ(fake_calls(), 2);
}

TEST_F(MappedQp, CallsUntilTheKernelHasHeard) {
  ropcie_uring_want_call(fake_ring(0), true);
  ropcie_uring_want_call(fake_ring(1), true);
  uint32_t calls = 0;
  for (const int error : {ENOMEM, EBUSY, EINTR, EFAULT}) {
    fake_fail_calls(error, 3);
    ASSERT_EQ(Send(calls, 0), 0);
    EXPECT_EQ(fake_calls(), ++calls) << strerror(error);
    fake_fail_calls(error, 3);
    ASSERT_EQ(Receive(calls), 0);
    EXPECT_EQ(fake_calls(), ++calls) << strerror(error);
  }
  const uint32_t writes = fake_writes();
  ASSERT_EQ(Send(calls, 0), 0);
  EXPECT_EQ(fake_writes(), writes + 1) << "that it may write is not forgotten";
}

TEST_F(MappedQp, WritesItsCallsAndLeavesThemToLibibverbsWhereItMayNot) {
  ropcie_uring_want_call(fake_ring(0), true);
  ropcie_uring_want_call(fake_ring(1), true);
  ASSERT_EQ(Send(1, 0), 0);
  ASSERT_EQ(Receive(1), 0);
  EXPECT_EQ(fake_calls(), 2);
  EXPECT_EQ(fake_writes(), 2);
  fake_refuse_writes();
  ASSERT_EQ(Send(2, 0), 0);
  ASSERT_EQ(Receive(2), 0);
  ASSERT_EQ(Send(3, 0), 0);
  EXPECT_EQ(fake_calls(), 5);
  EXPECT_EQ(fake_writes(), 3) << "it has heard of it";
}

TEST_F(MappedQp, IsFullAtWhatWasAskedForUntilRequestsAreComplete) {
  for (uint32_t i = 0; i < kDepth; ++i) {
    ASSERT_EQ(Send(i, 0), 0);
    ASSERT_EQ(Receive(i), 0);
  }
  EXPECT_EQ(Send(9, 0), ENOMEM);
  EXPECT_EQ(Receive(9), ENOMEM);
  Take();
  EXPECT_EQ(Send(9, 0), ENOMEM);
  ropcie_uring_release(fake_ring(0), 1);
  ropcie_uring_release(fake_ring(1), 1);
  EXPECT_EQ(Send(9, 0), 0);
  EXPECT_EQ(Receive(9), 0);
  EXPECT_EQ(Send(10, 0), ENOMEM);
}

TEST_F(MappedQp, AListIsPostedUpToTheRequestThatIsWrong) {
  std::array<ibv_send_wr, 2> wr{};
  ibv_send_wr* bad = nullptr;
  wr[0].opcode = wr[1].opcode = IBV_WR_SEND;
  wr[0].next = &wr[1];
  wr[1].send_flags = 1U << 30;
  EXPECT_EQ(ropcie_post_send(qp_, wr.data(), &bad), EINVAL);
  EXPECT_EQ(bad, &wr[1]);
  EXPECT_EQ(ropcie_uring_ready(fake_ring(0)), 1U);
}

TEST_F(MappedQp, ABatchIsPostedWholeOrNotAtAll) {
  EXPECT_EQ(ropcie_destroy_qp(qp_), 0);
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {.max_send_wr = kDepth,
              .max_recv_wr = kDepth,
              .max_send_sge = 2,
              .max_recv_sge = 2,
              .max_inline_data = 64};
  attr.comp_mask =
      unsigned{IBV_QP_INIT_ATTR_PD} | unsigned{IBV_QP_INIT_ATTR_SEND_OPS_FLAGS};
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  attr.pd = &pd_;
  qp_ = ropcie_create_qp_ex(pd_.context, &attr);
  ASSERT_NE(qp_, nullptr);
  qp_->state = IBV_QPS_RTS;
  auto* const ex = reinterpret_cast<ibv_qp_ex*>(qp_);
  const auto post = [&](uint32_t count, unsigned int last_flags) {
    ibv_wr_start(ex);
    for (uint32_t i = 0; i < count; ++i) {
      ex->wr_flags = i + 1 == count ? last_flags : 0;
      ibv_wr_send(ex);
    }
    return ibv_wr_complete(ex);
  };
  EXPECT_EQ(post(3, 1U << 30), EINVAL);
  EXPECT_EQ(ropcie_uring_ready(fake_ring(0)), 0U);
  EXPECT_EQ(post(kDepth - 1, 0), 0);
  EXPECT_EQ(post(2, 0), ENOMEM) << "one has room";
  EXPECT_EQ(ropcie_uring_ready(fake_ring(0)), kDepth - 1);
  EXPECT_EQ(post(1, 0), 0);
  EXPECT_EQ(ropcie_uring_ready(fake_ring(0)), kDepth);
}

TEST_F(MappedQp, TakesNothingBeforeItsTime) {
  for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR}) {
    qp_->state = state;
    EXPECT_EQ(Send(1, 0), EINVAL);
    EXPECT_EQ(Receive(1), state == IBV_QPS_RESET ? EINVAL : 0);
  }
  qp_->state = IBV_QPS_ERR;
  EXPECT_EQ(Send(1, 0), 0);
}

TEST_F(MappedQp, IsEmptyAfterReset) {
  ASSERT_EQ(Send(1, 0), 0);
  ASSERT_EQ(Receive(1), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ropcie_modify_qp(qp_, &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(Send(1, 0), EINVAL);
  qp_->state = IBV_QPS_RTS;
  for (uint32_t i = 0; i < kDepth; ++i) {
    ASSERT_EQ(Send(i, 0), 0);
  }
  EXPECT_EQ(ropcie_uring_ready(fake_ring(0)), kDepth);
  EXPECT_EQ(ropcie_uring_ready(fake_ring(1)), 0);
}

class MappedCq : public testing::Test {
 protected:
  void SetUp() override {
    fake_reset(kDepth);
    cq_ = ropcie_create_cq(fake_mapped_context(kRing), kRing, nullptr, 0);
    ASSERT_NE(cq_, nullptr);
  }

  void TearDown() override { EXPECT_EQ(ropcie_destroy_cq(cq_), 0); }

  static void Put(const ropcie_abi_cqe& cqe) {
    ropcie_uring* const ring = fake_ring(0);
    std::memcpy(ropcie_uring_at(ring, ring->next), &cqe, sizeof(cqe));
    ropcie_uring_publish(ring);
  }

  static void Complete(uint64_t wr_id, uint32_t qp_num = 3) {
    ropcie_abi_cqe cqe{};
    cqe.wr_id = wr_id;
    cqe.qp_num = qp_num;
    ASSERT_LT(ropcie_uring_used(fake_ring(0)), kRing);
    Put(cqe);
  }

  std::vector<uint64_t> Poll(int num) {
    std::array<ibv_wc, 16> wc{};
    const int got = ropcie_poll_cq(cq_, num, wc.data());
    std::vector<uint64_t> ids;
    ids.reserve(wc.size());
    for (int i = 0; i < got; ++i) {
      ids.push_back(wc.at(static_cast<size_t>(i)).wr_id);
    }
    return ids;
  }

  ibv_cq* cq_ = nullptr;
};

using Ids = std::vector<uint64_t>;

TEST_F(MappedCq, PollTakesInOrderAndCallsOnlyWhenThereIsNothing) {
  for (uint64_t round = 0; round < 20; ++round) {
    Complete(3 * round);
    Complete(3 * round + 1);
    Complete(3 * round + 2);
    EXPECT_EQ(Poll(2), (Ids{3 * round, 3 * round + 1}));
    EXPECT_EQ(Poll(2), (Ids{3 * round + 2}));
    EXPECT_EQ(fake_calls(), round);
    EXPECT_EQ(Poll(2), Ids{});
    EXPECT_EQ(fake_calls(), round + 1);
  }
}

TEST_F(MappedCq, EventsAreAskedForInTheRing) {
  EXPECT_EQ(fake_ring(0)->ctl->wake, 0U);
  EXPECT_EQ(ropcie_req_notify_cq(cq_, 1), 0);
  EXPECT_EQ(fake_ring(0)->ctl->wake, uint32_t{ROPCIE_ABI_NOTIFY_SOLICITED});
  EXPECT_EQ(ropcie_req_notify_cq(cq_, 0), 0);
  EXPECT_EQ(fake_ring(0)->ctl->wake,
            uint32_t{ROPCIE_ABI_NOTIFY_SOLICITED | ROPCIE_ABI_NOTIFY_ANY})
      << "both were asked for";
  EXPECT_EQ(fake_calls(), 0);
}

TEST_F(MappedCq, NobodyWaitsOnceTheDeviceHasGone) {
  ASSERT_EQ(ropcie_req_notify_cq(cq_, 0), 0);
  Complete(5);
  fake_lose_device();
  ropcie_uring_end(fake_ring(0));
  EXPECT_EQ(Poll(2), (Ids{5})) << "what was there is not lost";
  ibv_wc wc{};
  EXPECT_LT(ropcie_poll_cq(cq_, 1, &wc), 0);
  EXPECT_EQ(ropcie_req_notify_cq(cq_, 0), EIO);
  EXPECT_LT(ropcie_poll_cq(cq_, 1, &wc), 0);
}

TEST_F(MappedCq, ResizingThatIsRefusedChangesNothing) {
  Complete(5);
  fake_fail_resize(ENOMEM, false);
  EXPECT_EQ(ropcie_resize_cq(cq_, 2 * kRing), ENOMEM);
  EXPECT_EQ(Poll(2), (Ids{5}));
  EXPECT_EQ(ropcie_req_notify_cq(cq_, 0), 0);
}

TEST_F(MappedCq, ResizingWithoutADeviceLosesNothing) {
  Complete(5);
  fake_fail_resize(EIO, true);
  EXPECT_EQ(ropcie_resize_cq(cq_, 2 * kRing), EIO);
  EXPECT_EQ(Poll(2), (Ids{5}));
  EXPECT_EQ(ropcie_req_notify_cq(cq_, 0), EIO);
}

// Its completions are where nobody knows.
TEST_F(MappedCq, ResizingWhoseAnswerIsLostLosesTheQueue) {
  Complete(5);
  fake_fail_resize(EFAULT, true);
  EXPECT_EQ(ropcie_resize_cq(cq_, 2 * kRing), EFAULT);
  ibv_wc wc{};
  errno = 0;
  EXPECT_EQ(ropcie_poll_cq(cq_, 1, &wc), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(ropcie_req_notify_cq(cq_, 0), EINVAL);
  ropcie_cq_forget(cq_, 3);
}

// Whoever waits for an event is given his completions without asking.
TEST_F(MappedCq, PollCallsNobodyWhileAnEventIsToCome) {
  ASSERT_EQ(ropcie_req_notify_cq(cq_, 0), 0);
  EXPECT_EQ(Poll(2), Ids{});
  EXPECT_EQ(fake_calls(), 0);
  Complete(5);
  EXPECT_TRUE(ropcie_uring_wants_event(fake_ring(0), false));
  EXPECT_EQ(Poll(2), (Ids{5}));
  EXPECT_EQ(fake_calls(), 0);
  EXPECT_EQ(Poll(2), Ids{});
  EXPECT_EQ(fake_calls(), 1) << "polls again";
}

TEST_F(MappedCq, TheKernelHearsOfASleepThatFollowsPolls) {
  EXPECT_EQ(Poll(1), Ids{});
  EXPECT_EQ(fake_calls(), 1);
  ASSERT_EQ(ropcie_req_notify_cq(cq_, 0), 0);
  EXPECT_EQ(fake_calls(), 2);
  ASSERT_EQ(ropcie_req_notify_cq(cq_, 0), 0);
  EXPECT_EQ(fake_calls(), 2) << "once is enough";
  EXPECT_EQ(fake_writes(), 2);
}

// Nothing but this call may raise an event for them.
TEST_F(MappedCq, TheKernelHearsOfCompletionsThatNoEventHasToldOf) {
  ASSERT_EQ(ropcie_req_notify_cq(cq_, 0), 0);
  Complete(1);
  ASSERT_TRUE(ropcie_uring_wants_event(fake_ring(0), false));
  ASSERT_EQ(ropcie_req_notify_cq(cq_, 0), 0);
  EXPECT_EQ(fake_calls(), 0) << "the event has told of this one";
  Complete(2);
  ASSERT_EQ(ropcie_req_notify_cq(cq_, 0), 0);
  EXPECT_EQ(fake_calls(), 1);
  ASSERT_TRUE(ropcie_uring_wants_event(fake_ring(0), false));
  EXPECT_EQ(Poll(1), (Ids{1}));
  ASSERT_EQ(ropcie_req_notify_cq(cq_, 0), 0);
  EXPECT_EQ(fake_calls(), 2) << "one was left";
  EXPECT_EQ(Poll(1), (Ids{2}));
  ASSERT_EQ(ropcie_req_notify_cq(cq_, 0), 0);
  EXPECT_EQ(fake_calls(), 2);
}

TEST_F(MappedCq, LeavesItsCallsToLibibverbsWhereItMayNotWrite) {
  fake_refuse_writes();
  EXPECT_EQ(Poll(1), Ids{});
  ASSERT_EQ(ropcie_req_notify_cq(cq_, 0), 0);
  EXPECT_EQ(fake_calls(), 2);
  EXPECT_EQ(fake_writes(), 1) << "it has heard of it";
}

TEST_F(MappedCq, CompletionsKeepWhatTheyAre) {
  ropcie_abi_cqe cqe{};
  cqe.status = IBV_WC_REM_ACCESS_ERR;
  cqe.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  cqe.byte_len = 77;
  cqe.imm = 0x01020304;
  cqe.qp_num = 5;
  cqe.src_qp = 6;
  cqe.flags = ROPCIE_ABI_WC_GRH | ROPCIE_ABI_WC_IMM;
  Put(cqe);
  ibv_wc wc{};
  ASSERT_EQ(ropcie_poll_cq(cq_, 1, &wc), 1);
  EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.byte_len, 77);
  EXPECT_EQ(wc.imm_data, 0x01020304U);
  EXPECT_EQ(wc.qp_num, 5);
  EXPECT_EQ(wc.src_qp, 6);
  EXPECT_EQ(wc.wc_flags,
            static_cast<unsigned int>(IBV_WC_GRH | IBV_WC_WITH_IMM));
}

TEST_F(MappedCq, ExtendedPollingReadsTimeStamps) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = kRing;
  attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                  IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  ibv_cq_ex* cq = ropcie_create_cq_ex(cq_->context, &attr);
  ASSERT_NE(cq, nullptr);
  constexpr uint64_t kMono = 5'000'000'000;
  constexpr uint64_t kWall = 1'700'000'000'000'000'000;
  ropcie_abi_cqe cqe{};
  for (uint64_t i = 0; i < 3; ++i) {
    cqe.timestamp = kMono + i;
    Put(cqe);
  }
  ibv_poll_cq_attr poll{};
  ASSERT_EQ(ibv_start_poll(cq, &poll), 0);
  EXPECT_EQ(ibv_wc_read_completion_ts(cq), kMono);
  // Whoever loses the processor between two looks at clocks is not misled.
  for (uint32_t stop = 0; stop < 5; ++stop) {
    fake_clocks(kMono, kWall, stop);
    const uint64_t stamp = ibv_wc_read_completion_wallclock_ns(cq);
    EXPECT_LE(stamp, kWall) << stop;
    EXPECT_GE(stamp, kWall - 1000) << stop;
  }
  ASSERT_EQ(ibv_next_poll(cq), 0);
  EXPECT_EQ(ibv_wc_read_completion_ts(cq), kMono + 1);
  ibv_end_poll(cq);
  EXPECT_EQ(ropcie_destroy_cq(reinterpret_cast<ibv_cq*>(cq)), 0);
}

TEST_F(MappedCq, ForgetsOneQueuePairsCompletionsAndKeepsTheOrderOfTheRest) {
  for (uint64_t i = 0; i < 5; ++i) {
    Complete(i);
  }
  EXPECT_EQ(Poll(5), (Ids{0, 1, 2, 3, 4}));
  const std::array<uint32_t, 7> qp = {1, 2, 1, 1, 3, 1, 2};
  for (uint64_t i = 0; i < qp.size(); ++i) {
    Complete(i, qp.at(i));
  }
  ropcie_cq_forget(cq_, 1);
  EXPECT_EQ(ropcie_uring_used(fake_ring(0)), 3);
  Complete(7);
  EXPECT_EQ(Poll(8), (Ids{1, 4, 6, 7}));
  ropcie_cq_forget(cq_, 1);
  EXPECT_EQ(Poll(8), Ids{});
}

}  // namespace
