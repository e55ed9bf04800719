// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "core.h"
#include "random.h"

namespace ropcie {
namespace {

constexpr uint32_t kKey = 0x1234;
constexpr uint64_t kPage = ROPCIE_GRANT_PAGE;

ropcie_mr_core RegionOf(uint64_t iova, uint64_t length, uint32_t offset) {
  ropcie_mr_core mr{};
  mr.key = kKey;
  mr.iova = iova;
  mr.length = length;
  mr.offset = offset;
  mr.page_shift = ROPCIE_GRANT_SHIFT;
  return mr;
}

TEST(GrantPiece, HoldsWhateverRecordBeginsInIt) {
  Random random(1);
  for (int i = 0; i < 100000; i++) {
    const auto offset = static_cast<uint32_t>(random.Below(kPage));
    const uint64_t length = 1 + random.Below(uint64_t{5} << 20);
    const ropcie_mr_core mr =
        RegionOf(random.Next() >> 8, length, random.OneIn(3) ? 0 : offset);
    const uint64_t off = random.Below(length);
    const uint64_t len =
        std::min<uint64_t>(length - off, 1 + random.Below(ROPCIE_MAX_FRAG));
    uint64_t first = 0;
    const uint32_t have = ropcie_grant_piece(&mr, mr.iova + off, &first);
    ASSERT_GE(first, mr.iova);
    ASSERT_LE(first + have, mr.iova + length);
    ASSERT_LE(first, mr.iova + off);
    ASSERT_GE(first + have, mr.iova + off + len);
    const uint64_t in_page = (first - mr.iova + mr.offset) % kPage;
    ASSERT_LE((in_page + have + kPage - 1) / kPage, ROPCIE_GRANT_PAGES);
    uint64_t same = 0;
    ASSERT_EQ(ropcie_grant_piece(&mr, first, &same), have);
    ASSERT_EQ(same, first);
  }
}

class Owner : public testing::Test {
 protected:
  void SetUp() override { ropcie_grants_init(&out_, 0xfffffff0); }

  uint32_t Give(uint64_t addr, uint32_t len = 100, uint32_t key = kKey,
                bool sink = false) {
    const int at = ropcie_grant_give(&out_, key, sink, addr, len);
    return at < 0 ? 0 : out_.grant[at].id;
  }

  ropcie_grants out_{};
};

TEST_F(Owner, GivesSoManyAndEachANumber) {
  std::set<uint32_t> ids;
  for (int i = 0; i < ROPCIE_GRANTS; i++) {
    ids.insert(Give(i));
  }
  EXPECT_EQ(ids.size(), size_t{ROPCIE_GRANTS});
  EXPECT_EQ(ids.count(0), 0U);
  EXPECT_EQ(Give(1), 0U);
  EXPECT_GE(ropcie_grant_take_back(&out_, *ids.begin()), 0);
  const uint32_t next = Give(1);
  EXPECT_NE(next, 0U);
  EXPECT_EQ(ids.count(next), 0U);
}

TEST_F(Owner, CoversToTheByteAndThatKeyOnly) {
  const uint32_t id = Give(1000, 100);
  EXPECT_TRUE(ropcie_grant_covers(&out_, id, kKey, false, 1000, 100));
  EXPECT_TRUE(ropcie_grant_covers(&out_, id, kKey, false, 1099, 1));
  EXPECT_FALSE(ropcie_grant_covers(&out_, id, kKey, false, 999, 1));
  EXPECT_FALSE(ropcie_grant_covers(&out_, id, kKey, false, 1099, 2));
  EXPECT_FALSE(ropcie_grant_covers(&out_, id, kKey, false, 1100, 1));
  EXPECT_FALSE(ropcie_grant_covers(&out_, id, kKey, false, 1000, UINT32_MAX));
  EXPECT_FALSE(ropcie_grant_covers(&out_, id, kKey + 1, false, 1000, 100));
  EXPECT_FALSE(ropcie_grant_covers(&out_, id + 1, kKey, false, 1000, 100));
  EXPECT_FALSE(ropcie_grant_covers(&out_, 0, kKey, false, 1000, 100));
}

// What was placed before the peer heard of it has arrived in good faith.
TEST_F(Owner, ARevokedOneCoversUntilItIsReturned) {
  const uint32_t id = Give(1000);
  EXPECT_EQ(ropcie_grant_revoke(&out_, kKey), 1U);
  EXPECT_TRUE(ropcie_grant_covers(&out_, id, kKey, false, 1000, 1));
  EXPECT_GE(ropcie_grant_take_back(&out_, id), 0);
  EXPECT_FALSE(ropcie_grant_covers(&out_, id, kKey, false, 1000, 1));
  EXPECT_LT(ropcie_grant_take_back(&out_, id), 0);
  EXPECT_EQ(out_.num, 0U);
}

TEST_F(Owner, TellsOfEachOnceAndOfThatKeyOnly) {
  const uint32_t id = Give(1000);
  const uint32_t other = Give(2000, 100, kKey + 1);
  EXPECT_EQ(ropcie_grant_to_revoke(&out_), nullptr);
  EXPECT_EQ(ropcie_grant_revoke(&out_, kKey), 1U);
  ropcie_grant* g = ropcie_grant_to_revoke(&out_);
  ASSERT_NE(g, nullptr);
  EXPECT_EQ(g->id, id);
  g->tell = false;
  EXPECT_EQ(ropcie_grant_to_revoke(&out_), nullptr);
  EXPECT_EQ(ropcie_grant_revoke(&out_, 0), 2U);
  g = ropcie_grant_to_revoke(&out_);
  ASSERT_NE(g, nullptr);
  EXPECT_EQ(g->id, other);
  // It comes back unasked: there is nothing to be told any more.
  EXPECT_GE(ropcie_grant_take_back(&out_, other), 0);
  EXPECT_EQ(ropcie_grant_to_revoke(&out_), nullptr);
}

TEST_F(Owner, TakesAllBackAtTheEnd) {
  Give(1);
  Give(2);
  EXPECT_GE(ropcie_grant_take_back(&out_, 0), 0);
  EXPECT_GE(ropcie_grant_take_back(&out_, 0), 0);
  EXPECT_LT(ropcie_grant_take_back(&out_, 0), 0);
  EXPECT_EQ(out_.num, 0U);
}

TEST_F(Owner, GivesNothingWhenClosed) {
  out_.closed = true;
  EXPECT_EQ(Give(1), 0U);
}

class Holder : public testing::Test {
 protected:
  void SetUp() override { ropcie_holds_init(&in_, 0xffffff); }

  static ropcie_hdr Answer(uint32_t question, uint64_t addr, uint32_t len,
                           uint32_t id, uint32_t pages) {
    ropcie_hdr hdr{};
    hdr.op = ROPCIE_OP_GRANT;
    hdr.psn = question;
    hdr.rkey = kKey;
    hdr.addr = addr;
    hdr.msg_len = len;
    hdr.imm = id;
    hdr.frag_len = pages * 8;
    return hdr;
  }

  // A grant of a page, from its beginning.
  void Hold(uint64_t addr, uint32_t id, bool sink = false) {
    ASSERT_TRUE(ropcie_hold_wants(&in_, kPage));
    while (ropcie_hold* hold = ropcie_hold_to_return(&in_)) {
      returned_.push_back(hold->id);
      ropcie_hold_free(hold);
    }
    const uint32_t question = ropcie_hold_ask(&in_, kKey, sink, addr);
    const ropcie_hdr hdr = Answer(question, addr, kPage, id, 1);
    const __le64 bus = 0x7000;
    ASSERT_EQ(ropcie_hold_expects(&in_, &hdr, &bus), 1);
    ropcie_hold_fill(&in_, &hdr, &pages_, 0);
  }

  ropcie_holds in_{};
  void* pages_ = nullptr;
  std::vector<uint32_t> returned_;
};

TEST_F(Owner, TellsTargetsFromSinks) {
  const uint32_t target = Give(1000);
  const uint32_t sink = Give(1000, 100, kKey, true);
  EXPECT_EQ(out_.num, 2U);
  EXPECT_TRUE(ropcie_grant_covers(&out_, target, kKey, false, 1000, 100));
  EXPECT_FALSE(ropcie_grant_covers(&out_, target, kKey, true, 1000, 100));
  EXPECT_TRUE(ropcie_grant_covers(&out_, sink, kKey, true, 1000, 100));
  EXPECT_FALSE(ropcie_grant_covers(&out_, sink, kKey, false, 1000, 100));
  EXPECT_GE(ropcie_grant_take_back(&out_, target), 0);
  EXPECT_EQ(out_.num, 1U);
  EXPECT_GE(ropcie_grant_take_back(&out_, sink), 0);
  EXPECT_EQ(out_.num, 0U);
}

TEST_F(Holder, TellsTargetsFromSinks) {
  Hold(0x10000, 5);
  EXPECT_EQ(ropcie_hold_find(&in_, kKey, true, 0x10000, kPage), nullptr);
  Hold(0x10000, 6, true);
  EXPECT_EQ(ropcie_hold_find(&in_, kKey, true, 0x10000, kPage)->id, 6U);
  EXPECT_EQ(ropcie_hold_find(&in_, kKey, false, 0x10000, kPage)->id, 5U);
}

TEST_F(Holder, FindsWhatItHoldsToTheByte) {
  Hold(0x10000, 5);
  EXPECT_NE(ropcie_hold_find(&in_, kKey, false, 0x10000, kPage), nullptr);
  EXPECT_NE(ropcie_hold_find(&in_, kKey, false, 0x10fff, 1), nullptr);
  EXPECT_EQ(ropcie_hold_find(&in_, kKey, false, 0x10fff, 2), nullptr);
  EXPECT_EQ(ropcie_hold_find(&in_, kKey, false, 0xffff, 1), nullptr);
  EXPECT_EQ(ropcie_hold_find(&in_, kKey + 1, false, 0x10000, 1), nullptr);
}

TEST_F(Holder, AsksOneQuestionAtATime) {
  EXPECT_TRUE(ropcie_hold_wants(&in_, kPage));
  const uint32_t question = ropcie_hold_ask(&in_, kKey, false, 0x10000);
  EXPECT_FALSE(ropcie_hold_wants(&in_, kPage));
  const ropcie_hdr no = Answer(question, 0, 0, 0, 0);
  EXPECT_EQ(ropcie_hold_expects(&in_, &no, nullptr), 0);
  EXPECT_TRUE(ropcie_hold_wants(&in_, kPage));
}

// It was asked before anybody was there; a late answer is returned.
TEST_F(Holder, AsksAgainWhenThereIsNoAnswer) {
  EXPECT_TRUE(ropcie_hold_wants(&in_, kPage));
  const uint32_t question = ropcie_hold_ask(&in_, kKey, false, 0x10000);
  int waits = 0;
  while (!ropcie_hold_wants(&in_, kPage) && waits < 100000) {
    waits++;
  }
  EXPECT_GT(waits, 100);
  EXPECT_LT(waits, 10000);
  EXPECT_NE(ropcie_hold_ask(&in_, kKey, false, 0x10000), question);
  const ropcie_hdr hdr = Answer(question, 0x10000, kPage, 5, 1);
  const __le64 bus = 0x7000;
  EXPECT_EQ(ropcie_hold_expects(&in_, &hdr, &bus), -EPROTO);
}

TEST_F(Holder, ReturnsWhatItDidNotAskFor) {
  const __le64 bus = 0x7000;
  ropcie_hdr hdr = Answer(3, 0x10000, kPage, 5, 1);
  EXPECT_EQ(ropcie_hold_expects(&in_, &hdr, &bus), -EPROTO);
  const uint32_t question = ropcie_hold_ask(&in_, kKey, false, 0x10000);
  // The answer to a question of an earlier life does not end this one.
  hdr.psn = question ^ 1;
  EXPECT_EQ(ropcie_hold_expects(&in_, &hdr, &bus), -EPROTO);
  EXPECT_FALSE(ropcie_hold_wants(&in_, kPage));
  ropcie_hold_fill(&in_, &hdr, nullptr, 0);
  EXPECT_EQ(ropcie_hold_find(&in_, kKey, false, 0x10000, 1), nullptr);
  ropcie_hold* hold = ropcie_hold_to_return(&in_);
  ASSERT_NE(hold, nullptr);
  EXPECT_EQ(hold->id, 5U);
  ropcie_hold_free(hold);
  EXPECT_EQ(ropcie_hold_to_return(&in_), nullptr);
  hdr.psn = question;
  EXPECT_EQ(ropcie_hold_expects(&in_, &hdr, &bus), 1);
}

TEST_F(Holder, RefusesAnswersThatDoNotFit) {
  struct Case {
    uint32_t key;
    uint64_t addr;
    uint32_t len;
    std::vector<__le64> bus;
  };
  const Case cases[] = {
      {kKey + 1, 0x10000, 100, {0x7000}},
      {kKey, 0x10001, 100, {0x7000}},           // not what was asked for
      {kKey, 0xff00, 0x100, {0x7000}},          // ends before it
      {kKey, UINT64_MAX - 50, 100, {0x7000}},   // wraps
      {kKey, 0x10000, 4097, {0x7000}},          // a page is missing
      {kKey, 0x10000, 4096, {0x7001}},          // the same
      {kKey, 0x10000, 100, {0x7000, 0x9000}},   // one too many
      {kKey, 0x10000, 4097, {0x7000, 0x9001}},  // begins within a page
  };
  for (const Case& each : cases) {
    const uint32_t question = ropcie_hold_ask(&in_, kKey, false, 0x10000);
    ropcie_hdr hdr = Answer(question, each.addr, each.len, 5,
                            static_cast<uint32_t>(each.bus.size()));
    hdr.rkey = each.key;
    EXPECT_EQ(ropcie_hold_expects(&in_, &hdr, each.bus.data()), -EPROTO)
        << &each - cases;
  }
  const uint32_t question = ropcie_hold_ask(&in_, kKey, false, 0x10000);
  const ropcie_hdr hdr = Answer(question, 0xff00, 8192, 5, 3);
  const __le64 bus[] = {0x7f00, 0x2000, 0x5000};
  EXPECT_EQ(ropcie_hold_expects(&in_, &hdr, bus), 1);
}

TEST_F(Holder, DropsWhatIsRevoked) {
  Hold(0x10000, 5);
  Hold(0x20000, 6);
  ropcie_hold_drop(&in_, 7);
  EXPECT_EQ(ropcie_hold_to_return(&in_), nullptr);
  ropcie_hold_drop(&in_, 5);
  EXPECT_EQ(ropcie_hold_find(&in_, kKey, false, 0x10000, 1), nullptr);
  EXPECT_NE(ropcie_hold_find(&in_, kKey, false, 0x20000, 1), nullptr);
  const ropcie_hold* hold = ropcie_hold_to_return(&in_);
  ASSERT_NE(hold, nullptr);
  EXPECT_EQ(hold->id, 5U);
}

TEST_F(Holder, NothingIsAskedOrTakenWhenClosed) {
  const uint32_t question = ropcie_hold_ask(&in_, kKey, false, 0x10000);
  in_.closed = true;
  const ropcie_hdr hdr = Answer(question, 0x10000, kPage, 5, 1);
  const __le64 bus = 0x7000;
  EXPECT_EQ(ropcie_hold_expects(&in_, &hdr, &bus), -EPROTO);
  EXPECT_FALSE(ropcie_hold_wants(&in_, kPage));
}

TEST_F(Holder, MakesRoomWhereItWasUsedLeast) {
  for (uint32_t i = 0; i < ROPCIE_GRANTS; i++) {
    Hold(uint64_t{i} << 20, i + 1);
    ropcie_hold_used(&in_, 64 * kPage);
  }
  EXPECT_TRUE(returned_.empty());
  EXPECT_NE(ropcie_hold_find(&in_, kKey, false, 0, 1), nullptr);
  Hold(uint64_t{100} << 20, 101);
  EXPECT_EQ(returned_, std::vector<uint32_t>{2});
  EXPECT_NE(ropcie_hold_find(&in_, kKey, false, 0, 1), nullptr);
}

// One that can not be returned yet is enough.
TEST_F(Holder, WhileOneIsReturnedNoOtherHasToGo) {
  for (uint32_t i = 0; i < ROPCIE_GRANTS; i++) {
    Hold(uint64_t{i} << 20, i + 1);
    ropcie_hold_used(&in_, 64 * kPage);
  }
  EXPECT_TRUE(ropcie_hold_wants(&in_, kPage));
  EXPECT_FALSE(ropcie_hold_wants(&in_, kPage));
  ropcie_hold_free(ropcie_hold_to_return(&in_));
  EXPECT_EQ(ropcie_hold_to_return(&in_), nullptr);
  EXPECT_TRUE(ropcie_hold_wants(&in_, kPage));
}

// A question costs more than many WRITEs of a few bytes; those that are placed
// pay for it.
TEST_F(Holder, SmallWritesPayOnlyWhenTheyArePlaced) {
  uint32_t asked = 0;
  for (uint32_t i = 0; i < 100000; i++) {
    if (ropcie_hold_wants(&in_, 64)) {
      const uint32_t question = ropcie_hold_ask(&in_, kKey, false, 0x10000);
      const ropcie_hdr no = Answer(question, 0, 0, 0, 0);
      EXPECT_EQ(ropcie_hold_expects(&in_, &no, nullptr), 0);
      asked++;
    }
  }
  EXPECT_EQ(asked, uint32_t{ROPCIE_GRANTS});
  for (int i = 0; i < 64; i++) {
    EXPECT_FALSE(ropcie_hold_wants(&in_, 64));
    ropcie_hold_used(&in_, 64);
  }
  EXPECT_TRUE(ropcie_hold_wants(&in_, 64));
}

// WRITEs here and there in much more memory than can be held: few questions.
TEST_F(Holder, AsksSeldomWhereItDoesNotPay) {
  Random random(1);
  uint32_t asked = 0;
  uint32_t id = 0;
  constexpr uint32_t kWrites = 64000;
  for (uint32_t i = 0; i < kWrites; i++) {
    const uint64_t addr = random.Below(1 << 16) << 20;
    if (ropcie_hold_find(&in_, kKey, false, addr, 4096) != nullptr) {
      ropcie_hold_used(&in_, 8192);
    } else if (ropcie_hold_wants(&in_, kPage)) {
      if (ropcie_hold* hold = ropcie_hold_to_return(&in_)) {
        ropcie_hold_free(hold);
      }
      const uint32_t question = ropcie_hold_ask(&in_, kKey, false, addr);
      const ropcie_hdr hdr = Answer(question, addr, kPage, ++id, 1);
      const __le64 bus = 0x7000;
      ASSERT_EQ(ropcie_hold_expects(&in_, &hdr, &bus), 1);
      ropcie_hold_fill(&in_, &hdr, &pages_, 0);
      asked++;
    }
  }
  EXPECT_GT(asked, kWrites / 128);
  EXPECT_LT(asked, kWrites / 32);
}

// From one end to the other, again and again: all of it is worth it.
TEST_F(Holder, AsksWhereAllOfAPieceIsWritten) {
  uint32_t missed = 0;
  for (uint32_t piece = 0; piece < 1000; piece++) {
    const uint64_t addr = uint64_t{piece} << 20;
    if (!ropcie_hold_wants(&in_, kPage)) {
      missed++;
      continue;
    }
    if (ropcie_hold* hold = ropcie_hold_to_return(&in_)) {
      ropcie_hold_free(hold);
    }
    const uint32_t question = ropcie_hold_ask(&in_, kKey, false, addr);
    const ropcie_hdr hdr = Answer(question, addr, kPage, piece + 1, 1);
    const __le64 bus = 0x7000;
    ASSERT_EQ(ropcie_hold_expects(&in_, &hdr, &bus), 1);
    ropcie_hold_fill(&in_, &hdr, &pages_, 0);
    for (int i = 0; i < 15; i++) {
      ropcie_hold_used(&in_, 65536);
    }
  }
  EXPECT_EQ(missed, 0U);
}

// A peer that gives what nobody wants fills no more than there is.
TEST_F(Holder, SurplusFindsNoPlace) {
  for (uint32_t i = 0; i < 2 * ROPCIE_GRANTS; i++) {
    const ropcie_hdr hdr = Answer(i, 0x10000, kPage, i + 1, 1);
    ropcie_hold_fill(&in_, &hdr, nullptr, 0);
  }
  uint32_t left = 0;
  while (ropcie_hold* hold = ropcie_hold_to_return(&in_)) {
    ropcie_hold_free(hold);
    left++;
  }
  EXPECT_EQ(left, uint32_t{ROPCIE_HOLDS});
}

// The owner waits for each grant to come back: also for one whose question was
// given up.
TEST_F(Holder, AnswerThatComesLateIsReturnedWhereAllIsHeld) {
  for (uint32_t i = 0; i + 1 < ROPCIE_GRANTS; i++) {
    Hold(uint64_t{i} << 20, i + 1);
    ropcie_hold_used(&in_, 64 * kPage);
  }
  constexpr uint64_t kFirst = uint64_t{100} << 20;
  constexpr uint64_t kSecond = uint64_t{200} << 20;
  ASSERT_TRUE(ropcie_hold_wants(&in_, kPage));
  const uint32_t first = ropcie_hold_ask(&in_, kKey, false, kFirst);
  while (!ropcie_hold_wants(&in_, kPage)) {
  }
  ropcie_hold_ask(&in_, kKey, false, kSecond);
  const ropcie_hdr hdr = Answer(first, kFirst, kPage, 1000, 1);
  const __le64 bus = 0x7000;
  ASSERT_EQ(ropcie_hold_expects(&in_, &hdr, &bus), -EPROTO);
  ropcie_hold_fill(&in_, &hdr, nullptr, 0);
  const ropcie_hold* back = ropcie_hold_to_return(&in_);
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(back->id, 1000U);
}

}  // namespace
}  // namespace ropcie
