// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "core.h"

namespace ropcie {
namespace {

class EventPolicy : public ::testing::Test {
 protected:
  EventPolicy() { ropcie_event_init(&policy_, true); }

  // One event with bursts of completions `gap` ns apart, `count` at most.
  // Returns how many it has told of.
  uint32_t Event(uint32_t gap, uint32_t count) {
    uint32_t delay = ropcie_event_first(&policy_);
    if (delay == 0) {
      waited_ = 0;
      return 1;
    }
    uint32_t come = 1;
    for (waited_ = delay;; waited_ += delay) {
      while (come < count && come / burst_ * gap <= waited_) {
        come++;
        if (ropcie_event_more(&policy_, false)) {
          waited_ = (come - 1) * gap;
          ropcie_event_told(&policy_);
          return come;
        }
      }
      delay = ropcie_event_look(&policy_);
      if (delay == 0) {
        ropcie_event_told(&policy_);
        return come;
      }
    }
  }

  bool Pays() const { return policy_.trial.credit == ROPCIE_TRIAL_CREDIT; }

  ropcie_event_policy policy_;
  uint32_t waited_ = 0;
  uint32_t burst_ = 1;
};

TEST_F(EventPolicy, WhoDoesNotWantItIsToldAtOnce) {
  ropcie_event_init(&policy_, false);
  for (int i = 0; i < 5000; i++) {
    EXPECT_EQ(ropcie_event_first(&policy_), 0U);
  }
}

TEST_F(EventPolicy, SingleCompletionsAreToldAtOnceButForFewTrials) {
  uint32_t late = 0;
  for (int i = 0; i < 10000; i++) {
    EXPECT_EQ(Event(0, 1), 1U);
    late += waited_ != 0 ? 1 : 0;
    EXPECT_LE(waited_, uint32_t{ROPCIE_EVENT_LOOK_NS});
  }
  EXPECT_GT(late, 5U);
  EXPECT_LT(late, 20U);
}

TEST_F(EventPolicy, AStreamIsFoundAndKept) {
  uint32_t told = 0;
  int events = 0;
  while (told < 100000) {
    told += Event(1000, 1000000);
    events++;
    EXPECT_LE(waited_, uint32_t{ROPCIE_EVENT_MOST_NS});
  }
  EXPECT_LT(events, 1100) << "90 of 100 us";
  EXPECT_TRUE(Pays());
}

TEST_F(EventPolicy, AStreamInBurstsIsFoundAndKept) {
  burst_ = 3;
  uint32_t told = 0;
  int events = 0;
  while (told < 100000) {
    told += Event(8000, 1000000);
    events++;
  }
  EXPECT_LT(events, 4000) << "bursts of 12 times 8 us";
  EXPECT_TRUE(Pays());
}

TEST_F(EventPolicy, AStreamThatEndsIsToldSoon) {
  while (!Pays()) {
    Event(1000, 1000000);
  }
  EXPECT_EQ(Event(1000, 10), 10U);
  EXPECT_LE(waited_, 9000U + 2 * ROPCIE_EVENT_LOOK_NS);
  for (int i = 0; i < ROPCIE_TRIAL_CREDIT; i++) {
    EXPECT_EQ(Event(0, 1), 1U);
    EXPECT_EQ(waited_, uint32_t{ROPCIE_EVENT_LOOK_NS});
  }
  EXPECT_EQ(ropcie_event_first(&policy_), 0U);
}

TEST_F(EventPolicy, APauseDoesNotEndAStream) {
  while (!Pays()) {
    Event(1000, 1000000);
  }
  for (int i = 0; i < 1000; i++) {
    Event(0, 1);
    EXPECT_GT(Event(1000, 1000000), 80U);
  }
}

// Few that come together, and wait for their answers: a window of requests.
TEST_F(EventPolicy, SmallWindowsDoNotPay) {
  uint32_t late = 0;
  for (int i = 0; i < 10000; i++) {
    Event(500, ROPCIE_EVENT_WORTH - 1);
    late += waited_ != 0 ? 1 : 0;
  }
  EXPECT_LT(late, 20U);
}

TEST_F(EventPolicy, SlowStreamsAreToldAtOnce) {
  uint32_t late = 0;
  for (int i = 0; i < 10000; i++) {
    EXPECT_LE(Event(15000, 1000000), uint32_t{ROPCIE_EVENT_WORTH});
    late += waited_ != 0 ? 1 : 0;
  }
  EXPECT_LT(late, 20U);
}

TEST_F(EventPolicy, AfterAStreamTheNextIsFoundSoon) {
  for (int i = 0; i < 10000; i++) {
    Event(0, 1);
  }
  while (!Pays()) {
    Event(1000, 1000000);
  }
  Event(0, 1);
  int events = 0;
  while (!Pays()) {
    Event(1000, 1000000);
    events++;
  }
  EXPECT_LE(events, 2 * ROPCIE_TRIAL_PAUSE);
}

TEST_F(EventPolicy, TheConsumersWordHolds) {
  ropcie_event_set(&policy_, 5, 30000);
  for (int i = 0; i < 100; i++) {
    EXPECT_EQ(Event(1000, 1000000), 5U);
    EXPECT_EQ(waited_, 4000U);
    EXPECT_EQ(Event(10000, 1000000), 4U);
    EXPECT_EQ(waited_, 30000U);
    EXPECT_EQ(Event(0, 1), 1U);
    EXPECT_EQ(waited_, 30000U);
  }
  for (const auto& [count, period] :
       {std::pair<uint32_t, uint32_t>{0, 30000}, {1, 30000}, {5, 0}}) {
    ropcie_event_set(&policy_, count, period);
    for (int i = 0; i < 5000; i++) {
      EXPECT_EQ(ropcie_event_first(&policy_), 0U);
    }
  }
}

TEST_F(EventPolicy, AQueueThatFillsIsToldOf) {
  ropcie_event_set(&policy_, 100, 30000);
  EXPECT_NE(ropcie_event_first(&policy_), 0U);
  EXPECT_TRUE(ropcie_event_holds(&policy_));
  EXPECT_FALSE(ropcie_event_more(&policy_, false));
  EXPECT_TRUE(ropcie_event_more(&policy_, true));
  ropcie_event_told(&policy_);
  EXPECT_FALSE(ropcie_event_holds(&policy_));
}

}  // namespace
}  // namespace ropcie
