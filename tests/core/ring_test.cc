// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "lane.h"
#include "random.h"

namespace ropcie {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes RandomBytes(Random* random, size_t size) {
  Bytes bytes(size);
  random->Fill(bytes);
  return bytes;
}

// Cuts `bytes` into a few runs, some of them empty.
std::vector<ropcie_vec> Cut(Random* random, Bytes* bytes) {
  std::vector<ropcie_vec> runs;
  size_t at = 0;
  while (at < bytes->size() || random->OneIn(3)) {
    const size_t len = random->OneIn(3) ? bytes->size() - at
                                        : random->Below(bytes->size() - at + 1);
    runs.push_back(
        {.base = bytes->data() + at, .len = static_cast<uint32_t>(len)});
    at += len;
  }
  return runs;
}

int Send(Lane* lane, const ropcie_hdr& hdr, const Bytes& payload) {
  const ropcie_vec vec = {.base = const_cast<uint8_t*>(payload.data()),
                          .len = static_cast<uint32_t>(payload.size())};
  return ropcie_lane_send(lane->tx(), &hdr, &vec, 1);
}

Bytes Payload(const ropcie_rec& rec) {
  Bytes bytes(rec.hdr.frag_len);
  const ropcie_vec vec = {.base = bytes.data(),
                          .len = static_cast<uint32_t>(bytes.size())};
  EXPECT_EQ(ropcie_rec_scatter(&rec, 0, &vec, 1), bytes.size());
  return bytes;
}

TEST(LaneGeom, OnlyPowersOfTwoWithinTheLimits) {
  for (uint32_t slots = 0; slots <= 70000; slots++) {
    const ropcie_lane_geom geom = {.slots = slots, .bytes = 131072};
    const bool power = slots != 0 && (slots & (slots - 1)) == 0;
    ASSERT_EQ(ropcie_lane_geom_ok(&geom),
              power && slots >= 64 && slots <= 65536);
  }
  for (uint32_t shift = 0; shift < 32; shift++) {
    ropcie_lane_geom geom = {.slots = 64, .bytes = 1U << shift};
    EXPECT_EQ(ropcie_lane_geom_ok(&geom), shift >= 17 && shift <= 26);
    geom.bytes |= 3;
    EXPECT_FALSE(ropcie_lane_geom_ok(&geom));
  }
}

TEST(LaneGeom, FitIsTheLargestThatFits) {
  Random random(1);
  for (int i = 0; i < 100000; i++) {
    const uint64_t size = random.Below(uint64_t{1} << random.Between(10, 34));
    const auto lanes = static_cast<uint32_t>(random.Below(9));
    ropcie_lane_geom geom{};
    if (ropcie_lane_geom_fit(size, lanes, &geom) != 0) {
      const ropcie_lane_geom smallest = Lane::kSmallest;
      ASSERT_TRUE(lanes == 0 || ropcie_lane_size(&smallest) * lanes > size);
      continue;
    }
    ASSERT_TRUE(ropcie_lane_geom_ok(&geom));
    ASSERT_LE(ropcie_lane_size(&geom) * lanes, size);
    ropcie_lane_geom larger = geom;
    larger.bytes *= 2;
    larger.slots = 64;
    ASSERT_TRUE(!ropcie_lane_geom_ok(&larger) ||
                ropcie_lane_size(&larger) * lanes > size)
        << "payload ring could be larger";
  }
}

TEST(LaneGeom, NothingSmallerFits) {
  const size_t least = ropcie_lane_size_min();
  ropcie_lane_geom geom{};
  EXPECT_EQ(ropcie_lane_geom_fit(least, 1, &geom), 0);
  EXPECT_EQ(ropcie_lane_size(&geom), least);
  EXPECT_EQ(ropcie_lane_geom_fit(least - 1, 1, &geom), -ENOSPC);
}

TEST(Lane, EmptyLaneGivesNothing) {
  Lane lane;
  ropcie_rec rec;
  EXPECT_FALSE(ropcie_lane_peek(lane.rx()));
  EXPECT_EQ(ropcie_lane_recv(lane.rx(), &rec), 0);
  EXPECT_TRUE(ropcie_lane_tx_idle(lane.tx()));
}

TEST(Lane, RecordStaysUntilItIsConsumed) {
  Lane lane;
  const Bytes payload = {1, 2, 3};
  ASSERT_EQ(Send(&lane, SendHeader(3, 77), payload), 0);
  EXPECT_FALSE(ropcie_lane_tx_idle(lane.tx()));
  ropcie_rec rec;
  for (int i = 0; i < 3; i++) {
    EXPECT_TRUE(ropcie_lane_peek(lane.rx()));
    ASSERT_EQ(ropcie_lane_recv(lane.rx(), &rec), 1);
    EXPECT_EQ(rec.hdr.psn, 77U);
    EXPECT_EQ(Payload(rec), payload);
  }
  ropcie_lane_consume(lane.rx(), &rec);
  EXPECT_EQ(ropcie_lane_recv(lane.rx(), &rec), 0);
  EXPECT_FALSE(ropcie_lane_tx_idle(lane.tx()));
  ropcie_lane_publish(lane.rx());
  EXPECT_TRUE(ropcie_lane_tx_idle(lane.tx()));
}

TEST(Lane, PositionIsPassedWhenAllBeforeItIsConsumed) {
  for (const uint64_t start : {uint64_t{0}, (uint64_t{1} << 32) - 2,
                               (uint64_t{1} << 31) - 2, uint64_t{5} << 32}) {
    Lane lane;
    lane.StartAt(start);
    EXPECT_TRUE(ropcie_lane_tx_passed(lane.tx(), start));
    EXPECT_TRUE(ropcie_lane_tx_passed(lane.tx(), 0)) << "long ago";
    const Bytes payload = {1};
    ropcie_rec rec;
    for (int i = 0; i < 4; i++) {
      ASSERT_EQ(Send(&lane, SendHeader(1, i), payload), 0);
    }
    const uint64_t behind = lane.tx()->head;
    for (int i = 0; i < 4; i++) {
      EXPECT_FALSE(ropcie_lane_tx_passed(lane.tx(), behind));
      ASSERT_EQ(ropcie_lane_recv(lane.rx(), &rec), 1);
      ropcie_lane_consume(lane.rx(), &rec);
      ropcie_lane_publish(lane.rx());
    }
    EXPECT_TRUE(ropcie_lane_tx_passed(lane.tx(), behind));
    ASSERT_EQ(Send(&lane, SendHeader(1, 4), payload), 0);
    EXPECT_TRUE(ropcie_lane_tx_passed(lane.tx(), behind)) << "that is later";
  }
}

TEST(Lane, FullLaneWritesNothing) {
  Lane lane;
  const Bytes payload(4);
  for (uint32_t i = 0; i < lane.geom().slots; i++) {
    ASSERT_EQ(Send(&lane, SendHeader(4, i), payload), 0);
  }
  const Bytes before(lane.base(), lane.base() + ropcie_lane_size(&lane.geom()));
  EXPECT_EQ(Send(&lane, SendHeader(4, 99), payload), -EAGAIN);
  EXPECT_EQ(memcmp(before.data(), lane.base(), before.size()), 0);
}

TEST(Lane, LargestFragmentsFitTwice) {
  Lane lane;
  const Bytes payload(ROPCIE_MAX_FRAG, 0x5a);
  EXPECT_EQ(Send(&lane, SendHeader(ROPCIE_MAX_FRAG), payload), 0);
  EXPECT_EQ(Send(&lane, SendHeader(ROPCIE_MAX_FRAG), payload), 0);
  EXPECT_EQ(Send(&lane, SendHeader(29), Bytes(29)), -EAGAIN);
  EXPECT_EQ(Send(&lane, SendHeader(28), Bytes(28)), 0) << "needs only a slot";
}

// What the deque holds is what the lane holds, and it is full exactly when the
// model is.
class LaneModel {
 public:
  explicit LaneModel(uint64_t seed, uint64_t start) : random_(seed) {
    lane_.StartAt(start);
  }

  void Step() {
    switch (random_.Below(6)) {
      case 0:
      case 1:
        TrySend();
        break;
      case 2:
      case 3:
        TryRecv();
        break;
      case 4:
        TryFill();
        break;
      default:
        Publish();
        break;
    }
    ASSERT_EQ(ropcie_lane_peek(lane_.rx()), Visible());
    ASSERT_EQ(ropcie_lane_tx_idle(lane_.tx()), slots_used_ == 0);
    ASSERT_EQ(ropcie_lane_tx_unseen(lane_.tx()),
              consumed_slots_ != 0 || Visible());
    ASSERT_EQ(ropcie_lane_tx_shown(lane_.tx()), lane_.rx()->head + Shown());
  }

  bool GuardsIntact() { return lane_.GuardsIntact(); }
  [[nodiscard]] int full() const { return full_; }
  [[nodiscard]] int late() const { return late_; }

 private:
  struct Record {
    ropcie_hdr hdr{};
    Bytes payload;
    bool filled = true;
    ropcie_lane_hole hole{};
  };

  [[nodiscard]] bool Visible() const {
    return !held_.empty() && held_.front().filled;
  }

  [[nodiscard]] size_t Shown() const {
    size_t n = 0;
    while (n < held_.size() && held_[n].filled) {
      n++;
    }
    return n;
  }

  uint32_t RandomLength() {
    switch (random_.Below(4)) {
      case 0:
        return static_cast<uint32_t>(random_.Below(30));
      case 1:
        return static_cast<uint32_t>(random_.Below(200));
      case 2:
        return static_cast<uint32_t>(random_.Below(ROPCIE_MAX_FRAG + 1));
      default:
        return static_cast<uint32_t>(random_.Below(8192));
    }
  }

  void TrySend() {
    const uint32_t len = RandomLength();
    Record record{.hdr = SendHeader(len, random_.Word()),
                  .payload = RandomBytes(&random_, len)};
    if (random_.OneIn(8)) {
      record.hdr = {};
      record.hdr.op = ROPCIE_OP_ETH;
      record.hdr.flags = ROPCIE_F_FIRST | ROPCIE_F_LAST;
      record.hdr.msg_len = record.hdr.frag_len = len;
    }
    const uint32_t bytes = ropcie_hdr_ring_len(&record.hdr);
    std::vector<ropcie_vec> runs = Cut(&random_, &record.payload);
    record.filled = bytes == 0 || random_.OneIn(2);
    const int ret =
        record.filled
            ? ropcie_lane_send(lane_.tx(), &record.hdr, runs.data(),
                               static_cast<uint32_t>(runs.size()))
            : ropcie_lane_reserve(lane_.tx(), &record.hdr, &record.hole);
    const bool fits = slots_used_ < lane_.geom().slots &&
                      bytes_used_ + bytes <= lane_.geom().bytes;
    ASSERT_EQ(ret, fits ? 0 : -EAGAIN);
    if (ret != 0) {
      full_++;
      return;
    }
    slots_used_++;
    bytes_used_ += bytes;
    held_.push_back(std::move(record));
  }

  void TryRecv() {
    ropcie_rec rec;
    const int ret = ropcie_lane_recv(lane_.rx(), &rec);
    ASSERT_EQ(ret, Visible() ? 1 : 0);
    if (ret == 0) {
      return;
    }
    const Record& record = held_.front();
    ASSERT_EQ(rec.hdr.op, record.hdr.op);
    ASSERT_EQ(rec.hdr.psn, record.hdr.psn);
    ASSERT_EQ(rec.hdr.frag_len, record.hdr.frag_len);
    ASSERT_TRUE(Payload(rec) == record.payload);
    ropcie_lane_consume(lane_.rx(), &rec);
    consumed_slots_++;
    consumed_bytes_ += ropcie_hdr_ring_len(&rec.hdr);
    held_.pop_front();
    // A quarter of either ring is told without being asked.
    if (consumed_slots_ >= lane_.geom().slots / 4 ||
        consumed_bytes_ >= lane_.geom().bytes / 4) {
      Told();
    }
  }

  // Any of those that have not been filled: a DMA engine may have its own
  // order.
  void TryFill() {
    std::vector<Record*> holes;
    for (Record& record : held_) {
      if (!record.filled) {
        holes.push_back(&record);
      }
    }
    if (holes.empty()) {
      return;
    }
    Record* record = holes[random_.Below(holes.size())];
    const ropcie_lane_hole& hole = record->hole;
    ASSERT_EQ(hole.dst[0].len + (hole.ndst == 2 ? hole.dst[1].len : 0),
              record->payload.size());
    size_t off = 0;
    for (uint32_t i = 0; i < hole.ndst; i++) {
      memcpy(hole.dst[i].base, record->payload.data() + off, hole.dst[i].len);
      off += hole.dst[i].len;
    }
    ropcie_lane_fill(lane_.tx(), &hole);
    record->filled = true;
    late_++;
  }

  void Publish() {
    ropcie_lane_publish(lane_.rx());
    Told();
  }

  void Told() {
    slots_used_ -= consumed_slots_;
    bytes_used_ -= consumed_bytes_;
    consumed_slots_ = 0;
    consumed_bytes_ = 0;
  }

  Random random_;
  Lane lane_;
  std::deque<Record> held_;
  uint32_t slots_used_ = 0;
  uint32_t bytes_used_ = 0;
  uint32_t consumed_slots_ = 0;
  uint32_t consumed_bytes_ = 0;
  int full_ = 0;
  int late_ = 0;
};

TEST(Lane, BehavesLikeADeque) {
  for (const uint64_t start :
       {uint64_t{0}, uint64_t{0xffffff80}, uint64_t{0xfffffffffffff000}}) {
    LaneModel model(start + 1, start);
    for (int i = 0; i < 40000; i++) {
      model.Step();
      ASSERT_FALSE(HasFatalFailure()) << "step " << i << " from " << start;
    }
    EXPECT_TRUE(model.GuardsIntact());
    EXPECT_GT(model.full(), 100);
    EXPECT_GT(model.late(), 1000);
  }
}

TEST(Lane, SlotsOfAnEarlierLifeAreNotTakenForNewOnes) {
  Random random(2);
  Lane lane(100);
  for (uint32_t life = 0; life < 50; life++) {
    for (uint64_t n = random.Below(64); n > 0; n--) {
      ASSERT_EQ(Send(&lane, SendHeader(8), Bytes(8)), 0);
    }
    lane.Restart(101 + life);
    ropcie_rec rec;
    ASSERT_EQ(ropcie_lane_recv(lane.rx(), &rec), 0);
  }
}

TEST(Lane, SlotsOfAnEarlierLapAreNotTakenForNewOnes) {
  Lane lane;
  ropcie_rec rec;
  for (uint32_t i = 0; i < 10 * lane.geom().slots; i++) {
    ASSERT_EQ(ropcie_lane_recv(lane.rx(), &rec), 0);
    ASSERT_EQ(Send(&lane, SendHeader(8, i), Bytes(8)), 0);
    ASSERT_EQ(ropcie_lane_recv(lane.rx(), &rec), 1);
    ropcie_lane_consume(lane.rx(), &rec);
  }
}

TEST(Lane, ConsumerPositionThatCanNotBeIsRefused) {
  const std::vector<uint32_t> lies = {65, 0xffffffff, 0x80000000, 200};
  for (const uint32_t lie : lies) {
    Lane lane;
    for (uint32_t i = 0; i < 64; i++) {
      ASSERT_EQ(Send(&lane, SendHeader(8), Bytes(8)), 0);
    }
    *lane.cons() = lie;
    EXPECT_EQ(Send(&lane, SendHeader(8), Bytes(8)), -EPROTO) << lie;
    *lane.cons() = 64;
    EXPECT_EQ(Send(&lane, SendHeader(8), Bytes(8)), 0);
  }
}

TEST(Lane, NothingIsSeenBeforeTheFirstHoleIsFilled) {
  Lane lane;
  ropcie_rec rec;
  ropcie_lane_hole holes[2];
  const ropcie_hdr large = SendHeader(5000);
  ASSERT_EQ(ropcie_lane_reserve(lane.tx(), &large, &holes[0]), 0);
  ASSERT_EQ(Send(&lane, SendHeader(3), Bytes(3)), 0);
  ASSERT_EQ(ropcie_lane_reserve(lane.tx(), &large, &holes[1]), 0);
  ropcie_lane_fill(lane.tx(), &holes[1]);
  EXPECT_EQ(ropcie_lane_recv(lane.rx(), &rec), 0);
  EXPECT_FALSE(ropcie_lane_tx_unseen(lane.tx())) << "worth no doorbell";
  EXPECT_FALSE(ropcie_lane_tx_idle(lane.tx()));
  ropcie_lane_fill(lane.tx(), &holes[0]);
  EXPECT_TRUE(ropcie_lane_tx_unseen(lane.tx()));
  for (const uint32_t len : {5000U, 3U, 5000U}) {
    ASSERT_EQ(ropcie_lane_recv(lane.rx(), &rec), 1);
    EXPECT_EQ(rec.hdr.frag_len, len);
    ropcie_lane_consume(lane.rx(), &rec);
  }
}

// A peer can not have consumed what it has not seen. If it says so, what is
// still being copied would go where newer records are.
TEST(Lane, ConsumerPositionBehindAHoleIsRefused) {
  Lane lane;
  ropcie_lane_hole hole;
  const ropcie_hdr large = SendHeader(5000);
  for (uint32_t i = 0; i < 64; i++) {
    if (i == 10) {
      ASSERT_EQ(ropcie_lane_reserve(lane.tx(), &large, &hole), 0);
    } else {
      ASSERT_EQ(Send(&lane, SendHeader(8), Bytes(8)), 0);
    }
  }
  *lane.cons() = 11;
  EXPECT_EQ(Send(&lane, SendHeader(8), Bytes(8)), -EPROTO);
  *lane.cons() = 10;
  EXPECT_EQ(Send(&lane, SendHeader(8), Bytes(8)), 0);
  ropcie_lane_fill(lane.tx(), &hole);
  for (int i = 0; i < 9; i++) {
    ASSERT_EQ(Send(&lane, SendHeader(8), Bytes(8)), 0);
  }
  EXPECT_EQ(ropcie_lane_reserve(lane.tx(), &large, &hole), -EAGAIN);
  *lane.cons() = 11;
  EXPECT_EQ(ropcie_lane_reserve(lane.tx(), &large, &hole), 0);
}

// Holes that the link's end has left are none of the next life.
TEST(Lane, HolesEndWithTheLife) {
  Lane lane(100);
  ropcie_lane_hole hole;
  ropcie_rec rec;
  const ropcie_hdr large = SendHeader(5000);
  for (uint32_t life = 0; life < 5; life++) {
    ASSERT_EQ(ropcie_lane_reserve(lane.tx(), &large, &hole), 0);
    lane.Restart(101 + life);
    ASSERT_EQ(ropcie_lane_recv(lane.rx(), &rec), 0);
    ASSERT_EQ(Send(&lane, SendHeader(8), Bytes(8)), 0);
    ASSERT_EQ(ropcie_lane_recv(lane.rx(), &rec), 1);
    ropcie_lane_consume(lane.rx(), &rec);
    ropcie_lane_publish(lane.rx());
    ASSERT_TRUE(ropcie_lane_tx_idle(lane.tx()));
  }
}

TEST(Lane, ConsumerPositionThatRunsBackIsRefused) {
  Lane lane;
  for (int i = 0; i < 64; i++) {
    ASSERT_EQ(Send(&lane, SendHeader(8), Bytes(8)), 0);
  }
  *lane.cons() = 10;
  for (int i = 0; i < 10; i++) {
    ASSERT_EQ(Send(&lane, SendHeader(8), Bytes(8)), 0);
  }
  *lane.cons() = 9;
  EXPECT_EQ(Send(&lane, SendHeader(8), Bytes(8)), -EPROTO);
}

// Whatever a peer writes: records are validated, their spans lie in the lane,
// and reading them touches nothing else.
TEST(Lane, HostileMemoryStaysInTheLane) {
  Random random(3);
  Lane lane;
  int taken = 0;
  for (int i = 0; i < 300000; i++) {
    ropcie_lane_rx* rx = lane.rx();
    ropcie_slot* slot = &lane.slots()[rx->head % lane.geom().slots];
    random.Fill({reinterpret_cast<uint8_t*>(slot), sizeof(*slot)});
    slot->op = static_cast<uint8_t>(random.Below(5));
    slot->flags &= 3;
    slot->srqn = 0;
    slot->imm = 0;
    slot->frag_len = slot->msg_len =
        static_cast<uint32_t>(random.Below(ROPCIE_MAX_FRAG + 9));
    if (!random.OneIn(4)) {
      slot->src_qpn &= ROPCIE_QPN_MASK;
      slot->psn &= ROPCIE_PSN_MASK;
      slot->mq &= ROPCIE_MQ_MAX & ~1U;
      memset(slot->inl, 0, sizeof(slot->inl));
    }
    slot->valid = ropcie_valid(rx->epoch, rx->head);
    ropcie_rec rec;
    const int ret = ropcie_lane_recv(rx, &rec);
    ASSERT_TRUE(ret == 1 || ret == -EBADMSG);
    if (ret != 1) {
      continue;
    }
    taken++;
    const uint8_t* payload =
        lane.base() + size_t{lane.geom().slots} * ROPCIE_SLOT_SIZE;
    uint32_t sum = 0;
    for (uint32_t s = 0; s < rec.nspan; s++) {
      const auto* base = static_cast<const uint8_t*>(rec.span[s].base);
      sum += rec.span[s].len;
      ASSERT_TRUE(base == rec.slot.inl ||
                  (base >= payload &&
                   base + rec.span[s].len <= payload + lane.geom().bytes));
    }
    ASSERT_EQ(sum, rec.hdr.frag_len);
    ropcie_lane_consume(rx, &rec);
  }
  EXPECT_GT(taken, 1000);
  EXPECT_TRUE(lane.GuardsIntact());
}

TEST(Lane, ScatterCopiesWhatFitsFromWhereItIsAsked) {
  Random random(4);
  Lane lane;
  for (int i = 0; i < 5000; i++) {
    const auto len = static_cast<uint32_t>(
        random.OneIn(3) ? random.Below(29) : random.Below(3000));
    const Bytes payload = RandomBytes(&random, len);
    ASSERT_EQ(Send(&lane, SendHeader(len), payload), 0);
    ropcie_rec rec;
    ASSERT_EQ(ropcie_lane_recv(lane.rx(), &rec), 1);

    const auto from = static_cast<uint32_t>(random.Below(len + 2));
    Bytes room = RandomBytes(&random, random.Below(4000));
    const Bytes before = room;
    const std::vector<ropcie_vec> runs = Cut(&random, &room);
    const uint32_t done = ropcie_rec_scatter(
        &rec, from, runs.data(), static_cast<uint32_t>(runs.size()));
    const size_t rest = len - std::min(from, len);
    ASSERT_EQ(done, std::min<size_t>(rest, room.size()));
    ASSERT_TRUE(std::equal(room.begin(), room.begin() + done,
                           payload.begin() + std::min(from, len)));
    ASSERT_TRUE(
        std::equal(room.begin() + done, room.end(), before.begin() + done))
        << "bytes behind the payload were touched";
    ropcie_lane_consume(lane.rx(), &rec);
    ropcie_lane_publish(lane.rx());
  }
}

TEST(Lane, WriteCombiningSendsTheSame) {
  Lane lane;
  lane.tx()->write_combining = true;
  const Bytes payload(1000, 0x33);
  ASSERT_EQ(Send(&lane, SendHeader(1000), payload), 0);
  ropcie_rec rec;
  ASSERT_EQ(ropcie_lane_recv(lane.rx(), &rec), 1);
  EXPECT_EQ(Payload(rec), payload);
}

}  // namespace
}  // namespace ropcie
