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

// Words, and a register that takes as many of them at a time as it has room
// for.
class WordPass : public testing::Test {
 protected:
  WordPass() {
    for (uint32_t i = 0; i < kWords; i++) {
      val_[i] = 100 + i;
    }
  }

  int Write(uint32_t room) {
    written_.clear();
    room_ = room;
    return ropcie_word_pass_write(&pass_, val_.data(), kWords, Take, this);
  }

  std::array<uint32_t, kWords> val_{};
  ropcie_word_pass pass_{};
  std::vector<uint32_t> written_;

 private:
  static int Take(void* ctx, uint32_t word, uint32_t val) {
    auto* self = static_cast<WordPass*>(ctx);
    EXPECT_EQ(val, self->val_[word]);
    if (self->room_ == 0) {
      return -EAGAIN;
    }
    self->room_--;
    self->written_.push_back(word);
    return 0;
  }

  uint32_t room_ = 0;
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
  EXPECT_EQ(Write(4), -EAGAIN);
  ropcie_word_pass_anew(&pass_);
  EXPECT_EQ(Write(kWords), 0);
  EXPECT_EQ(written_.size(), kWords);
}

TEST_F(WordPass, AnyRegisterThatTakesWordsTakesAll) {
  Random random(1);
  int calls = 0;

  for (int pass = 0; pass < 1000; pass++) {
    val_[ROPCIE_LW_EPOCH]++;
    uint32_t room = 0;
    do {
      calls++;
      val_[ROPCIE_LW_HEARTBEAT]++;
      for (room = 0; room < kWords && random.OneIn(3); room++) {
      }
    } while (Write(room) != 0);
  }
  // Half a word in a call; from the top it would take 3^9 calls.
  EXPECT_LT(calls, 1000 * 20);
}

}  // namespace
}  // namespace ropcie
