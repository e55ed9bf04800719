// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstdint>

#include "core.h"

namespace ropcie {
namespace {

constexpr uint64_t kStart = 1000;
constexpr uint64_t kOwn = ROPCIE_POLLER_OWN_NS;

class Poller : public testing::Test {
 protected:
  Poller() { ropcie_poller_init(&poller_, kStart); }

  // The records were gone after so many looks, 0 for never.
  bool Watched(uint32_t looks) {
    return ropcie_poller_watched(&poller_, looks, now_);
  }

  bool MayTake() const { return ropcie_poller_may_take(&poller_, now_); }

  // The receiver has the lane for `own`, and not longer.
  void ExpectOwnedFor(uint64_t own) {
    now_ += own - 1;
    EXPECT_FALSE(MayTake());
    now_++;
    EXPECT_TRUE(MayTake());
  }

  ropcie_poller poller_;
  uint64_t now_ = kStart;
};

TEST_F(Poller, MayTakeALaneThatNobodyHasLeft) { EXPECT_TRUE(MayTake()); }

TEST_F(Poller, WhoComesInTimeKeepsTheLane) {
  for (int i = 0; i < 100; i++) {
    EXPECT_FALSE(Watched(1));
    EXPECT_TRUE(MayTake());
  }
}

TEST_F(Poller, WhoNeverComesLosesItAtOnce) {
  EXPECT_TRUE(Watched(0));
  ExpectOwnedFor(kOwn);
}

TEST_F(Poller, WhoComesLateHasSoManyChances) {
  for (uint32_t i = 1; i < ROPCIE_POLLER_LOOKS; i++) {
    EXPECT_FALSE(Watched(2)) << i;
    EXPECT_TRUE(MayTake());
  }
  EXPECT_TRUE(Watched(2));
  ExpectOwnedFor(kOwn);
  EXPECT_FALSE(Watched(ROPCIE_POLLER_LOOKS)) << "they are counted anew";
}

TEST_F(Poller, ComingInTimeMakesUpForComingLate) {
  for (uint32_t i = 0; i < 10 * ROPCIE_POLLER_LOOKS; i++) {
    EXPECT_FALSE(Watched(i % ROPCIE_POLLER_LOOKS == 0 ? 1 : 2)) << i;
  }
}

TEST_F(Poller, EachTimeItIsTwiceAsLongUpToALimit) {
  uint64_t own = kOwn;
  for (int i = 0; i < 8; i++) {
    EXPECT_TRUE(Watched(0));
    ExpectOwnedFor(own);
    own =
        own * 2 < ROPCIE_POLLER_OWN_MAX_NS ? own * 2 : ROPCIE_POLLER_OWN_MAX_NS;
  }
  EXPECT_FALSE(Watched(1));
  EXPECT_TRUE(Watched(0));
  ExpectOwnedFor(kOwn);
}

}  // namespace
}  // namespace ropcie
