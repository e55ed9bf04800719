// SPDX-License-Identifier: GPL-2.0
// A lane, and message queues on it, between two threads. Worth most under
// ThreadSanitizer.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "lane.h"
#include "random.h"

namespace ropcie {
namespace {

constexpr int kRecords = 60000;
constexpr uint32_t kQueues = 5;

// Record n of the sequence: both threads compute it alike.
struct Expected {
  explicit Expected(int n) : random(static_cast<uint64_t>(n)) {
    queue = static_cast<uint32_t>(random.Between(1, kQueues));
    const uint64_t most = random.OneIn(50) ? ROPCIE_MAX_FRAG : 300;
    len = static_cast<uint32_t>(random.Below(most + 1));
  }

  Random random;
  uint32_t queue;
  uint32_t len;
};

void SendAll(Lane* lane) {
  std::array<uint32_t, kQueues + 1> sequence{};
  std::vector<uint8_t> payload(ROPCIE_MAX_FRAG);
  for (int n = 0; n < kRecords; n++) {
    Expected expected(n);
    ropcie_hdr hdr =
        SendHeader(expected.len, sequence[expected.queue]++, expected.queue);
    expected.random.Fill({payload.data(), expected.len});
    const uint32_t cut = expected.len / 3;
    const std::array<ropcie_vec, 2> vec = {
        {{.base = payload.data(), .len = cut},
         {.base = payload.data() + cut, .len = expected.len - cut}}};
    int ret = 0;
    while ((ret = ropcie_lane_send(lane->tx(), &hdr, vec.data(), 2)) ==
           -EAGAIN) {
      std::this_thread::yield();
    }
    ASSERT_EQ(ret, 0);
  }
}

TEST(LaneThreads, RecordsArriveWholeAndInOrder) {
  Lane lane;
  std::thread sender([&] { SendAll(&lane); });
  std::vector<uint8_t> got(ROPCIE_MAX_FRAG);
  std::vector<uint8_t> want(ROPCIE_MAX_FRAG);
  for (int n = 0; n < kRecords;) {
    ropcie_rec rec;
    const int ret = ropcie_lane_recv(lane.rx(), &rec);
    EXPECT_GE(ret, 0);
    if (ret == 0) {
      ropcie_lane_publish(lane.rx());
      std::this_thread::yield();
      continue;
    }
    Expected expected(n++);
    EXPECT_EQ(rec.hdr.frag_len, expected.len);
    const ropcie_vec vec = {.base = got.data(), .len = rec.hdr.frag_len};
    ropcie_rec_scatter(&rec, 0, &vec, 1);
    expected.random.Fill({want.data(), expected.len});
    EXPECT_EQ(memcmp(got.data(), want.data(), expected.len), 0);
    ropcie_lane_consume(lane.rx(), &rec);
  }
  sender.join();
  EXPECT_TRUE(lane.GuardsIntact());
}

TEST(MessageQueueThreads, EachQueueSeesItsOwnRecordsInOrder) {
  Lane lane;
  std::thread sender([&] { SendAll(&lane); });
  std::array<uint32_t, kQueues + 1> next{};
  for (int n = 0; n < kRecords;) {
    ropcie_rec rec;
    const int ret = ropcie_lane_recv(lane.rx(), &rec);
    EXPECT_GE(ret, 0);
    if (ret == 0) {
      ropcie_lane_publish(lane.rx());
      std::this_thread::yield();
      continue;
    }
    n++;
    const uint32_t queue = ropcie_mq_qpn(rec.hdr.mq);
    ASSERT_TRUE(queue >= 1 && queue <= kQueues);
    EXPECT_EQ(ropcie_mq_dir(rec.hdr.mq), ROPCIE_MQ_REQUEST);
    EXPECT_EQ(rec.hdr.psn, next[queue]++);
    ropcie_lane_consume(lane.rx(), &rec);
  }
  sender.join();
}

// Others may look at a lane while its two threads work: a poller peeks, a
// timer asks whether all was delivered.
TEST(LaneThreads, OnlookersDoNotDisturb) {
  Lane lane;
  std::atomic<bool> done{false};
  std::thread sender([&] {
    const std::vector<uint8_t> payload(40);
    const ropcie_vec vec = {.base = const_cast<uint8_t*>(payload.data()),
                            .len = 40};
    for (uint32_t n = 0; n < 20000; n++) {
      const ropcie_hdr hdr = SendHeader(40, n);
      while (ropcie_lane_send(lane.tx(), &hdr, &vec, 1) != 0) {
        std::this_thread::yield();
      }
    }
  });
  std::thread onlooker([&] {
    while (!done.load()) {
      ropcie_lane_peek(lane.rx());
      ropcie_lane_tx_idle(lane.tx());
    }
  });
  for (uint32_t n = 0; n < 20000;) {
    ropcie_rec rec;
    if (ropcie_lane_recv(lane.rx(), &rec) != 1) {
      ropcie_lane_publish(lane.rx());
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(rec.hdr.psn, n++);
    ropcie_lane_consume(lane.rx(), &rec);
  }
  ropcie_lane_publish(lane.rx());
  sender.join();
  done.store(true);
  onlooker.join();
  EXPECT_TRUE(ropcie_lane_tx_idle(lane.tx()));
}

// Posts come from any thread; the engine runs in another.
TEST(RequesterThreads, PostsEnterWhileTheEngineRuns) {
  constexpr uint32_t kSize = 16;
  constexpr uint32_t kStride = sizeof(ropcie_send_wqe) + sizeof(ropcie_sge);
  constexpr uint64_t kPosts = 20000;
  std::vector<uint64_t> memory(kSize * kStride / 8);
  ropcie_requester req;
  ropcie_req_init(&req, memory.data(), kSize, kStride);
  ropcie_req_attr attr{};
  attr.frag = 4096;
  attr.dest_qpn = 1;
  attr.src_qpn = 2;
  ropcie_req_connect(&req, &attr);

  std::thread poster([&] {
    for (uint64_t n = 0; n < kPosts; n++) {
      while (ropcie_req_space(&req) == 0) {
        std::this_thread::yield();
      }
      ropcie_send_wqe* wqe = ropcie_req_slot(&req);
      wqe->wr_id = n;
      wqe->length = static_cast<uint32_t>(n % 1000);
      wqe->op = ROPCIE_OP_SEND;
      wqe->flags = 0;
      wqe->num_sge = 1;
      wqe->sge[0] = {.addr = n, .length = wqe->length, .lkey = 1};
      ropcie_req_post(&req);
    }
  });
  for (uint64_t n = 0; n < kPosts;) {
    ropcie_req_rec rec;
    if (ropcie_req_next(&req, &rec) != ROPCIE_REQ_SEND) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(rec.wqe->sge[0].addr, n);
    EXPECT_EQ(rec.hdr.msg_len, n % 1000);
    ropcie_req_sent(&req, &rec, 1);
    ropcie_hdr ack{};
    ack.op = ROPCIE_OP_ACK;
    ack.src_qpn = 1;
    ack.psn = rec.hdr.psn;
    ack.msn = static_cast<uint32_t>((n + 1) & ROPCIE_PSN_MASK);
    ack.credits = 4;
    EXPECT_TRUE(ropcie_req_response(&req, &ack, 1));
    ropcie_req_comp comp;
    while (ropcie_req_complete(&req, &comp)) {
      EXPECT_EQ(comp.wr_id, n++);
    }
  }
  poster.join();
  EXPECT_EQ(ropcie_req_pending(&req), 0U);
}

}  // namespace
}  // namespace ropcie
