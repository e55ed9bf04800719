// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Posting, inline data and polling of libropcie on top of a made-up kernel.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "fake_kernel.h"

namespace {

constexpr uint32_t kDepth = 37;
constexpr uint32_t kInline = 100;

class SendQueue : public testing::Test {
 protected:
  void SetUp() override {
    fake_reset(kDepth);
    pd_.context = &context_;
    qp_ = Create(IBV_QPT_RC, kInline);
    ASSERT_NE(qp_, nullptr);
  }

  void TearDown() override {
    EXPECT_EQ(ropcie_destroy_qp(qp_), 0);
    EXPECT_EQ(fake_regions(), 0);
  }

  ibv_qp* Create(ibv_qp_type type, uint32_t max_inline) {
    ibv_qp_init_attr attr{};
    attr.qp_type = type;
    attr.cap.max_send_wr = kDepth;
    attr.cap.max_send_sge = 1;
    attr.cap.max_inline_data = max_inline;
    ibv_qp* qp = ropcie_create_qp(&pd_, &attr);
    cap_ = attr.cap;
    return qp;
  }

  static ibv_send_wr Wr(uint64_t wr_id, ibv_sge* sge, unsigned int flags) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = sge;
    wr.num_sge = sge == nullptr ? 0 : 1;
    wr.send_flags = flags;
    return wr;
  }

  static ibv_sge Sge(const std::string& data) {
    return {reinterpret_cast<uintptr_t>(data.data()),
            static_cast<uint32_t>(data.size()), 0x2222};
  }

  static std::string DataOf(const fake_request& request) {
    std::string data;
    for (int i = 0; i < request.num_sge; ++i) {
      const ibv_sge& sge = request.sge[i];
      const char* start = nullptr;
      std::memcpy(&start, &sge.addr, sizeof(start));
      data.append(start, sge.length);
    }
    return data;
  }

  static std::vector<ibv_send_wr> List(size_t count) {
    std::vector<ibv_send_wr> list(count);
    for (size_t i = 0; i < count; ++i) {
      list[i] = Wr(i, nullptr, 0);
      list[i].next = i + 1 < count ? &list[i + 1] : nullptr;
    }
    return list;
  }

  ibv_context& context_ = *fake_context();
  ibv_pd pd_{};
  ibv_qp_cap cap_{};
  ibv_qp* qp_ = nullptr;
};

TEST_F(SendQueue, ReportsTheInlineDataThatWasAskedFor) {
  EXPECT_EQ(cap_.max_inline_data, kInline);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ropcie_query_qp(qp_, &attr, 0, &init), 0);
  EXPECT_EQ(attr.cap.max_inline_data, kInline);
  EXPECT_EQ(init.cap.max_inline_data, kInline);
}

TEST_F(SendQueue, RefusesToBeCreatedForMoreInlineDataThanThereIs) {
  EXPECT_EQ(Create(IBV_QPT_RC, 513), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_qp* qp = Create(IBV_QPT_RC, 512);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ropcie_destroy_qp(qp), 0);
}

TEST_F(SendQueue, GivesItsMemoryBackThoughTheKernelIsShortOfSome) {
  ibv_qp* qp = Create(IBV_QPT_RC, kInline);
  ASSERT_NE(qp, nullptr);
  fake_fail_deregs(3);
  EXPECT_EQ(ropcie_destroy_qp(qp), 0);
  EXPECT_EQ(fake_regions(), 1) << "that of the other queue pair";
}

// Its handle may be another QP's by now: ENOENT says nothing of it.
TEST_F(SendQueue, StaysWhereItIsNotHeardThatItIsGone) {
  ibv_qp* qp = Create(IBV_QPT_RC, kInline);
  ASSERT_NE(qp, nullptr);
  for (const int error : {EFAULT, ENOENT}) {
    fake_fail_destroy(error);
    EXPECT_EQ(ropcie_destroy_qp(qp), error);
    EXPECT_EQ(fake_regions(), 2);
  }
  fake_fail_destroy(0);
  EXPECT_EQ(ropcie_destroy_qp(qp), 0);
  EXPECT_EQ(fake_regions(), 1);
}

TEST_F(SendQueue, RegistersNothingWithoutInlineData) {
  const int before = fake_regions();
  ibv_qp* qp = Create(IBV_QPT_RC, 0);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(fake_regions(), before);
  std::string data(1, 'x');
  ibv_sge sge = Sge(data);
  ibv_send_wr wr = Wr(1, &sge, IBV_SEND_INLINE);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ropcie_post_send(qp, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  EXPECT_EQ(ropcie_destroy_qp(qp), 0);
}

TEST_F(SendQueue, DoesNotWriteToTheCallersRequests) {
  std::string data = "data";
  ibv_sge sge = Sge(data);
  ibv_send_wr wr = Wr(7, &sge, IBV_SEND_INLINE);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ropcie_post_send(qp_, &wr, &bad), 0);
  EXPECT_EQ(wr.sg_list, &sge);
  EXPECT_EQ(wr.send_flags, unsigned{IBV_SEND_INLINE});
  EXPECT_EQ(sge.lkey, 0x2222U);
  const fake_request request = fake_retire();
  EXPECT_EQ(request.sge[0].lkey, FAKE_LKEY_INLINE);
  EXPECT_EQ(request.wr_id, 7U);
}

TEST_F(SendQueue, GathersInlineDataOfSeveralElements) {
  std::string one = "one";
  std::string two;
  std::string three = "three";
  std::array<ibv_sge, 3> sges = {Sge(one), Sge(two), Sge(three)};
  ibv_send_wr wr = Wr(1, sges.data(), IBV_SEND_INLINE);
  wr.num_sge = 3;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ropcie_post_send(qp_, &wr, &bad), 0);
  one = "xxx";
  EXPECT_EQ(DataOf(fake_retire()), "onethree");
}

TEST_F(SendQueue, RefusesTooMuchInlineDataAfterWhatCameBefore) {
  std::string data(kInline + 1, 'x');
  ibv_sge sge = Sge(data);
  std::vector<ibv_send_wr> list = List(5);
  list[3].sg_list = &sge;
  list[3].num_sge = 1;
  list[3].send_flags = IBV_SEND_INLINE;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ropcie_post_send(qp_, list.data(), &bad), EINVAL);
  EXPECT_EQ(bad, &list[3]);
  EXPECT_EQ(fake_taken(), 3U);
}

TEST_F(SendQueue, RefusesWhatUverbsCannotCarry) {
  // Numbers, since the last is none of the enumeration's.
  for (const int opcode : {int{IBV_WR_BIND_MW}, int{IBV_WR_LOCAL_INV},
                           int{IBV_WR_TSO}, int{IBV_WR_ATOMIC_WRITE}, 77}) {
    std::vector<ibv_send_wr> list = List(3);
    std::memcpy(&list[1].opcode, &opcode, sizeof(opcode));
    ibv_send_wr* bad = nullptr;
    const uint32_t before = fake_taken();
    EXPECT_EQ(ropcie_post_send(qp_, list.data(), &bad), EOPNOTSUPP) << opcode;
    EXPECT_EQ(bad, &list[1]);
    EXPECT_EQ(fake_taken(), before + 1);
  }
}

TEST_F(SendQueue, RefusesAWrongNumberOfElements) {
  for (const int count : {-1, FAKE_MAX_SGE + 1}) {
    ibv_send_wr wr = Wr(1, nullptr, 0);
    wr.num_sge = count;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ropcie_post_send(qp_, &wr, &bad), EINVAL);
    EXPECT_EQ(bad, &wr);
  }
}

TEST_F(SendQueue, PostsLongListsInShortCommands) {
  fake_set_depth(1000);
  std::vector<ibv_send_wr> list = List(900);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ropcie_post_send(qp_, list.data(), &bad), 0);
  EXPECT_EQ(fake_taken(), 900U);
  EXPECT_LE(fake_longest_command(), 64U);
  for (uint64_t i = 0; i < 900; ++i) {
    EXPECT_EQ(fake_retire().wr_id, i);
  }
}

TEST_F(SendQueue, SaysWhichRequestDidNotFit) {
  std::vector<ibv_send_wr> list = List(kDepth + 20);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ropcie_post_send(qp_, list.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &list[kDepth]);
  EXPECT_EQ(fake_outstanding(), kDepth);
}

// What inline.h argues: a slot is never written to while its request is
// outstanding, whatever is posted, refused and retired in between.
TEST_F(SendQueue, InlineDataLastsUntilItsRequestRetires) {
  std::mt19937 random(1);
  std::deque<std::string> outstanding;
  uint64_t wr_id = 0;
  for (int step = 0; step < 20000; ++step) {
    const bool mixed = step % 1000 < 500;
    const size_t count = 1 + random() % 50;
    std::vector<std::string> data(count);
    std::vector<ibv_sge> sges(count);
    std::vector<ibv_send_wr> list(count);
    for (size_t i = 0; i < count; ++i) {
      data[i].resize(random() % (kInline + 1));
      for (char& byte : data[i]) {
        byte = static_cast<char>(random());
      }
      sges[i] = Sge(data[i]);
      list[i] = Wr(++wr_id, &sges[i],
                   mixed && random() % 4 == 0 ? 0U : unsigned{IBV_SEND_INLINE});
      if (list[i].send_flags == 0) {
        list[i].num_sge = 0;
        data[i].clear();
      }
      list[i].next = i + 1 < count ? &list[i + 1] : nullptr;
    }
    ibv_send_wr* bad = nullptr;
    const int error = ropcie_post_send(qp_, list.data(), &bad);
    const size_t taken =
        error == 0 ? count : static_cast<size_t>(bad - list.data());
    ASSERT_TRUE(error == 0 || error == ENOMEM);
    outstanding.insert(outstanding.end(), data.begin(),
                       data.begin() + static_cast<ptrdiff_t>(taken));
    ASSERT_EQ(fake_outstanding(), outstanding.size());
    for (std::string& one : data) {
      one.assign(one.size(), '!');
    }
    for (size_t i = random() % (outstanding.size() + 1); i > 0; --i) {
      ASSERT_EQ(DataOf(fake_retire()), outstanding.front());
      outstanding.pop_front();
    }
  }
}

// To uverbs, it is a list of one piece.
TEST_F(SendQueue, InlineDataNeedsNoRoomForAList) {
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = kDepth;
  attr.cap.max_inline_data = kInline;
  ibv_qp* qp = ropcie_create_qp(&pd_, &attr);
  ASSERT_NE(qp, nullptr);
  EXPECT_GE(attr.cap.max_send_sge, 1U);
  std::string data = "payload";
  ibv_sge sge = Sge(data);
  ibv_send_wr wr = Wr(1, &sge, IBV_SEND_INLINE);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ropcie_post_send(qp, &wr, &bad), 0);
  EXPECT_EQ(DataOf(fake_retire()), "payload");
  EXPECT_EQ(ropcie_destroy_qp(qp), 0);
}

TEST_F(SendQueue, DatagramsCarrySendsOnly) {
  ibv_qp* qp = Create(IBV_QPT_UD, 0);
  ASSERT_NE(qp, nullptr);
  ibv_send_wr wr = Wr(1, nullptr, 0);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ropcie_post_send(qp, &wr, &bad), 0);
  wr.opcode = IBV_WR_RDMA_WRITE;
  EXPECT_EQ(ropcie_post_send(qp, &wr, &bad), EOPNOTSUPP);
  EXPECT_EQ(ropcie_destroy_qp(qp), 0);
}

class ExtendedSendQueue : public SendQueue {
 protected:
  void SetUp() override {
    SendQueue::SetUp();
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = kDepth;
    attr.cap.max_send_sge = 1;
    attr.cap.max_inline_data = kInline;
    attr.comp_mask = unsigned{IBV_QP_INIT_ATTR_PD} |
                     unsigned{IBV_QP_INIT_ATTR_SEND_OPS_FLAGS};
    attr.send_ops_flags =
        unsigned{IBV_QP_EX_WITH_SEND} | unsigned{IBV_QP_EX_WITH_RDMA_WRITE};
    attr.pd = &pd_;
    base_ = ropcie_create_qp_ex(&context_, &attr);
    ASSERT_NE(base_, nullptr);
    ex_ = reinterpret_cast<ibv_qp_ex*>(base_);
  }

  void TearDown() override {
    EXPECT_EQ(ropcie_destroy_qp(base_), 0);
    SendQueue::TearDown();
  }

  void AddInline(uint64_t wr_id, std::string* data) {
    ex_->wr_id = wr_id;
    ex_->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex_);
    ibv_wr_set_inline_data(ex_, data->data(), data->size());
  }

  ibv_qp* base_ = nullptr;
  ibv_qp_ex* ex_ = nullptr;
};

// ibv_wr_post(3): a QP is not created with operations that its type has not.
TEST_F(ExtendedSendQueue, HasTheOperationsOfItsType) {
  constexpr uint64_t kSends =
      uint64_t{IBV_QP_EX_WITH_SEND} | uint64_t{IBV_QP_EX_WITH_SEND_WITH_IMM};
  constexpr uint64_t kWrites = uint64_t{IBV_QP_EX_WITH_RDMA_WRITE} |
                               uint64_t{IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM};
  constexpr uint64_t kFetches = uint64_t{IBV_QP_EX_WITH_RDMA_READ} |
                                uint64_t{IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP} |
                                uint64_t{IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD} |
                                uint64_t{IBV_QP_EX_WITH_SEND_WITH_INV};
  const std::map<ibv_qp_type, uint64_t> types = {
      {IBV_QPT_RC, kSends | kWrites | kFetches},
      {IBV_QPT_UC, kSends | kWrites},
      {IBV_QPT_UD, kSends}};
  for (const auto& [type, ops] : types) {
    for (uint64_t op = 1; op < uint64_t{1} << 63; op <<= 1) {
      ibv_qp_init_attr_ex attr{};
      attr.qp_type = type;
      attr.cap.max_send_wr = kDepth;
      attr.cap.max_send_sge = 1;
      attr.comp_mask = unsigned{IBV_QP_INIT_ATTR_PD} |
                       unsigned{IBV_QP_INIT_ATTR_SEND_OPS_FLAGS};
      attr.send_ops_flags = op;
      attr.pd = &pd_;
      ibv_qp* qp = ropcie_create_qp_ex(&context_, &attr);
      EXPECT_EQ(qp != nullptr, (ops & op) != 0) << type << ' ' << op;
      if (qp == nullptr) {
        EXPECT_EQ(errno, EOPNOTSUPP);
      } else {
        EXPECT_EQ(ropcie_destroy_qp(qp), 0);
      }
    }
  }
}

TEST_F(ExtendedSendQueue, PostsABatchInOrder) {
  std::string data = "payload";
  ibv_wr_start(ex_);
  ex_->wr_id = 1;
  ex_->wr_flags = 0;
  ibv_wr_rdma_write(ex_, 0x3333, 0x4444);
  ibv_wr_set_sge(ex_, 0x2222, reinterpret_cast<uintptr_t>(data.data()),
                 static_cast<uint32_t>(data.size()));
  AddInline(2, &data);
  EXPECT_EQ(fake_taken(), 0U);
  EXPECT_EQ(ibv_wr_complete(ex_), 0);
  const fake_request first = fake_retire();
  EXPECT_EQ(first.opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(first.wr_id, 1U);
  EXPECT_EQ(DataOf(first), "payload");
  const fake_request second = fake_retire();
  EXPECT_EQ(second.wr_id, 2U);
  EXPECT_EQ(second.send_flags, unsigned{IBV_SEND_SIGNALED});
}

TEST_F(ExtendedSendQueue, CopiesInlineDataWhenItIsGiven) {
  std::string data = "before";
  ibv_wr_start(ex_);
  AddInline(1, &data);
  data = "after!";
  EXPECT_EQ(ibv_wr_complete(ex_), 0);
  EXPECT_EQ(DataOf(fake_retire()), "before");
}

TEST_F(ExtendedSendQueue, PostsNothingOfABatchWithAnError) {
  std::string data = "good";
  std::string longer(kInline + 1, 'x');
  ibv_wr_start(ex_);
  AddInline(1, &data);
  AddInline(2, &longer);
  AddInline(3, &data);
  EXPECT_EQ(ibv_wr_complete(ex_), EINVAL);
  EXPECT_EQ(fake_taken(), 0U);

  ibv_wr_start(ex_);
  AddInline(1, &data);
  ex_->wr_flags = 1U << 30;
  ibv_wr_send(ex_);
  EXPECT_EQ(ibv_wr_complete(ex_), EINVAL);
  EXPECT_EQ(fake_taken(), 0U);

  ibv_wr_start(ex_);
  AddInline(1, &data);
  ibv_wr_send(ex_);
  ibv_wr_set_sge(ex_, 0x2222, 0, (1U << 31) + 1);
  EXPECT_EQ(ibv_wr_complete(ex_), EINVAL);
  EXPECT_EQ(fake_taken(), 0U);

  ibv_wr_start(ex_);
  for (uint64_t i = 0; i < kDepth + 1; ++i) {
    AddInline(i, &data);
  }
  EXPECT_EQ(ibv_wr_complete(ex_), ENOMEM);
  EXPECT_EQ(fake_taken(), 0U);
}

TEST_F(ExtendedSendQueue, PostsNothingOfAnAbortedBatch) {
  std::string data = "data";
  ibv_wr_start(ex_);
  AddInline(1, &data);
  ibv_wr_abort(ex_);
  EXPECT_EQ(fake_taken(), 0U);
  ibv_wr_start(ex_);
  AddInline(2, &data);
  EXPECT_EQ(ibv_wr_complete(ex_), 0);
  EXPECT_EQ(fake_retire().wr_id, 2U);
}

class CompletionQueue : public testing::Test {
 protected:
  void SetUp() override { fake_reset(1); }

  static void Complete(uint64_t wr_id, unsigned int kernel_flags) {
    ibv_wc wc{};
    wc.wr_id = wr_id;
    wc.wc_flags = kernel_flags;
    fake_complete(&wc);
  }

  ibv_context& context_ = *fake_context();
};

TEST_F(CompletionQueue, TranslatesTheKernelsFlags) {
  ibv_cq* cq = ropcie_create_cq(&context_, 16, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  Complete(0, 1U << 0);  // IB_WC_GRH
  Complete(1, 1U << 1);  // IB_WC_WITH_IMM
  Complete(2, 1U << 2);  // IB_WC_WITH_INVALIDATE
  Complete(3, 1U << 3);  // IB_WC_IP_CSUM_OK
  Complete(4, 1U << 6);  // IB_WC_WITH_NETWORK_HDR_TYPE: not the user's
  std::array<ibv_wc, 8> wc{};
  ASSERT_EQ(ropcie_poll_cq(cq, 8, wc.data()), 5);
  EXPECT_EQ(wc[0].wc_flags, unsigned{IBV_WC_GRH});
  EXPECT_EQ(wc[1].wc_flags, unsigned{IBV_WC_WITH_IMM});
  EXPECT_EQ(wc[2].wc_flags, unsigned{IBV_WC_WITH_INV});
  EXPECT_EQ(wc[3].wc_flags, unsigned{IBV_WC_IP_CSUM_OK});
  EXPECT_EQ(wc[4].wc_flags, 0U);
  EXPECT_EQ(ropcie_destroy_cq(cq), 0);
}

TEST_F(CompletionQueue, PollsAsManyAsAreAskedFor) {
  ibv_cq* cq = ropcie_create_cq(&context_, 4000, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  for (uint64_t i = 0; i < 3000; ++i) {
    Complete(i, 0);
  }
  std::vector<ibv_wc> wc(4000);
  ASSERT_EQ(ropcie_poll_cq(cq, 2900, wc.data()), 2900);
  EXPECT_EQ(wc[2899].wr_id, 2899U);
  EXPECT_EQ(ropcie_poll_cq(cq, 4000, wc.data()), 100);
  EXPECT_EQ(ropcie_poll_cq(cq, 0, wc.data()), 0);
  EXPECT_EQ(ropcie_destroy_cq(cq), 0);
}

TEST_F(CompletionQueue, ExtendedPollingHoldsNothingBack) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* cq = ropcie_create_cq_ex(&context_, &attr);
  ASSERT_NE(cq, nullptr);
  ibv_poll_cq_attr poll{};
  // A start that finds nothing has no end, and leaves no lock behind.
  EXPECT_EQ(ibv_start_poll(cq, &poll), ENOENT);
  for (uint64_t i = 1; i <= 4; ++i) {
    Complete(i, 1U << 1);
  }
  ASSERT_EQ(ibv_start_poll(cq, &poll), 0);
  EXPECT_EQ(cq->wr_id, 1U);
  EXPECT_EQ(ibv_wc_read_wc_flags(cq), unsigned{IBV_WC_WITH_IMM});
  ASSERT_EQ(ibv_next_poll(cq), 0);
  EXPECT_EQ(cq->wr_id, 2U);
  ibv_end_poll(cq);
  ibv_wc wc{};
  ASSERT_EQ(ropcie_poll_cq(reinterpret_cast<ibv_cq*>(cq), 1, &wc), 1);
  EXPECT_EQ(wc.wr_id, 3U);
  ASSERT_EQ(ibv_start_poll(cq, &poll), 0);
  EXPECT_EQ(cq->wr_id, 4U);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);
  EXPECT_EQ(ropcie_destroy_cq(reinterpret_cast<ibv_cq*>(cq)), 0);
}

TEST_F(CompletionQueue, RefusesWhatACompletionCannotCarry) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  EXPECT_EQ(ropcie_create_cq_ex(&context_, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attr.wc_flags = 0;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  EXPECT_EQ(ropcie_create_cq_ex(&context_, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
