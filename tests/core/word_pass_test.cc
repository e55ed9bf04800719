// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "core.h"
#include "random.h"

namespace ropcie {
namespace {

constexpr uint32_t kWords = ROPCIE_LW_NUM + 2;

// Words, and a register that takes as many parts of them at a time as it has
// room for.
class WordPass : public testing::Test {
 protected:
  WordPass() {
    const ropcie_link_offer offer = {
        .lanes = 1, .geom = {.slots = 64, .bytes = 131072}, .features = 0};
    ropcie_link_init(&link_, &offer, uint64_t{1} << 32, 1000, 100);
    Step(true);
    for (uint32_t i = 0; i < kWords; i++) {
      val_[i] = 100 + i;
    }
  }

  void Step(bool hw_up) {
    const ropcie_link_words nobody{};
    ropcie_link_step(&link_, hw_up, &nobody, 1, now_++);
  }

  int Write(uint32_t room) {
    written_.clear();
    room_ = room;
    return ropcie_word_pass_write(&pass_, &link_, val_.data(), kWords, parts_,
                                  Take, this);
  }

  std::array<uint32_t, kWords> val_{};
  ropcie_peer_link link_{};
  ropcie_word_pass pass_{};
  uint32_t parts_ = 1;
  std::vector<uint32_t> written_;  // word * parts + part

 private:
  static int Take(void* ctx, uint32_t word, uint32_t part, uint32_t val) {
    auto* self = static_cast<WordPass*>(ctx);
    EXPECT_EQ(val, self->val_[word]);
    EXPECT_LT(part, self->parts_);
    if (self->room_ == 0) {
      return -EAGAIN;
    }
    self->room_--;
    self->written_.push_back(word * self->parts_ + part);
    return 0;
  }

  uint32_t room_ = 0;
  uint64_t now_ = 1;
};

using Numbers = std::vector<uint32_t>;

TEST_F(WordPass, AllWordsBackwards) {
  for (int pass = 0; pass < 2; pass++) {
    EXPECT_EQ(Write(kWords), 0);
    EXPECT_EQ(written_, (Numbers{8, 7, 6, 5, 4, 3, 2, 1, 0}));
  }
}

TEST_F(WordPass, GoesOnWithTheWordThatWasNotTaken) {
  EXPECT_EQ(Write(4), -EAGAIN);
  EXPECT_EQ(written_, (Numbers{8, 7, 6, 5}));
  val_[ROPCIE_LW_HEARTBEAT]++;
  EXPECT_EQ(Write(0), -EAGAIN);
  EXPECT_EQ(Write(2), -EAGAIN);
  EXPECT_EQ(written_, (Numbers{4, 3}));
  EXPECT_EQ(Write(3), 0);
  EXPECT_EQ(written_, (Numbers{2, 1, 0}));
  EXPECT_EQ(Write(kWords), 0);
  EXPECT_EQ(written_.size(), kWords);
}

TEST_F(WordPass, GoesOnWithTheOtherHalfOfAWord) {
  parts_ = 2;
  for (uint32_t part = 2 * kWords; part-- > 0;) {
    EXPECT_EQ(Write(1), part == 0 ? 0 : -EAGAIN);
    EXPECT_EQ(written_, Numbers{part});
  }
}

TEST_F(WordPass, OtherWordsBeginAnew) {
  for (uint32_t word = 0; word < ROPCIE_LW_HEARTBEAT; word++) {
    EXPECT_EQ(Write(4), -EAGAIN);
    val_[word]++;
    // Also if nothing was taken when they changed.
    if (word % 2 == 0) {
      EXPECT_EQ(Write(0), -EAGAIN);
    }
    EXPECT_EQ(Write(kWords), 0) << word;
    EXPECT_EQ(written_.size(), kWords) << word;
  }
}

TEST_F(WordPass, BeginsAnewBehindALinkThatWasDown) {
  for (const bool written_while_down : {false, true}) {
    EXPECT_EQ(Write(4), -EAGAIN);
    Step(false);
    if (written_while_down) {
      EXPECT_EQ(Write(3), -EAGAIN);
      EXPECT_EQ(written_, (Numbers{8, 7, 6}));
    }
    Step(true);
    EXPECT_EQ(Write(kWords), 0);
    EXPECT_EQ(written_.size(), kWords);
  }
}

// What is out is repeated; the heartbeat is not kept waiting by that.
TEST_F(WordPass, HeartbeatFirstOnceAllAreOut) {
  parts_ = 2;
  EXPECT_EQ(Write(2 * kWords), 0);
  ropcie_link_published(&link_, true, 1);
  ASSERT_TRUE(link_.told);
  EXPECT_EQ(Write(1), -EAGAIN);
  EXPECT_EQ(written_, Numbers{13});
  EXPECT_EQ(Write(3), -EAGAIN);
  EXPECT_EQ(written_, (Numbers{12, 17, 16}));
  EXPECT_EQ(Write(3), -EAGAIN);
  EXPECT_EQ(written_, (Numbers{13, 12, 15}));
  EXPECT_EQ(Write(17), 0);
  EXPECT_EQ(written_, (Numbers{13, 12, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3,
                               2, 1, 0}));
  // Others are new, and go from the first to the last.
  EXPECT_EQ(Write(4), -EAGAIN);
  link_.told = false;
  val_[ROPCIE_LW_ACK]++;
  EXPECT_EQ(Write(1), -EAGAIN);
  EXPECT_EQ(written_, Numbers{17});
}

TEST_F(WordPass, AnyRegisterThatTakesPartsTakesAll) {
  Random random(1);
  int calls = 0;

  parts_ = 2;
  for (int pass = 0; pass < 1000; pass++) {
    val_[ROPCIE_LW_EPOCH]++;
    uint32_t room = 0;
    do {
      calls++;
      val_[ROPCIE_LW_HEARTBEAT]++;
      for (room = 0; room < 2 * kWords && random.OneIn(3); room++) {
      }
    } while (Write(room) != 0);
  }
  // Half a part in a call; from the top it would take 3^18 calls.
  EXPECT_LT(calls, 1000 * 40);
}

}  // namespace
}  // namespace ropcie
