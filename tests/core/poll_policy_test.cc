// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstdint>

#include "core.h"
#include "random.h"

namespace ropcie {
namespace {

constexpr uint64_t kMax = 100000;
constexpr uint64_t kWake = 20000;

ropcie_poll_policy Policy(uint64_t max = kMax, uint64_t wake = kWake) {
  ropcie_poll_policy policy;
  ropcie_poll_init(&policy, max, wake);
  return policy;
}

// Lets `count` things arrive `gap` apart; returns the time of the last.
uint64_t Arrive(ropcie_poll_policy* policy, uint64_t now, uint64_t gap,
                int count) {
  for (int i = 0; i < count; i++) {
    now += gap;
    ropcie_poll_arrival(policy, now);
  }
  return now;
}

TEST(PollPolicy, SpinsForOneWakeUpWhileNothingIsKnown) {
  ropcie_poll_policy policy = Policy();
  EXPECT_EQ(ropcie_poll_budget(&policy), kWake);
  Arrive(&policy, 0, 5, 1);
  EXPECT_EQ(ropcie_poll_budget(&policy), kWake);
}

TEST(PollPolicy, NeverSpinsWhenSwitchedOff) {
  ropcie_poll_policy policy = Policy(0);
  EXPECT_EQ(ropcie_poll_budget(&policy), 0U);
  Arrive(&policy, 0, 10, 100);
  EXPECT_EQ(ropcie_poll_budget(&policy), 0U);
}

TEST(PollPolicy, SpinsTwiceTheGap) {
  ropcie_poll_policy policy = Policy();
  Arrive(&policy, 0, 8000, 100);
  EXPECT_EQ(ropcie_poll_budget(&policy), 16000U);
}

TEST(PollPolicy, SleepsWhenArrivalsAreFartherApartThanAWakeUpCosts) {
  ropcie_poll_policy policy = Policy();
  Arrive(&policy, 0, kWake + 100, 100);
  EXPECT_EQ(ropcie_poll_budget(&policy), 0U);
}

TEST(PollPolicy, BudgetIsWithinItsLimits) {
  Random random(1);
  for (int round = 0; round < 200; round++) {
    const uint64_t max = random.Below(200000);
    const uint64_t wake = random.Below(50000);
    ropcie_poll_policy policy = Policy(max, wake);
    uint64_t now = random.Next() >> 8;
    for (int i = 0; i < 200; i++) {
      now += random.Below(uint64_t{1} << random.Below(40));
      ropcie_poll_arrival(&policy, now);
      EXPECT_LE(ropcie_poll_budget(&policy), max);
      EXPECT_LE(policy.gap_ns, 4 * wake + 8);
    }
  }
}

TEST(PollPolicy, FollowsTheNewestGapByAnEighth) {
  ropcie_poll_policy policy = Policy();
  const uint64_t now = Arrive(&policy, 0, 8000, 10);
  Arrive(&policy, now, 16000, 1);
  EXPECT_EQ(policy.gap_ns, 9000U);
}

TEST(PollPolicy, BurstDoesNotSpinToNothing) {
  ropcie_poll_policy policy = Policy();
  Arrive(&policy, 1000, 0, 100);
  EXPECT_EQ(ropcie_poll_budget(&policy), kWake / 4);
}

TEST(PollPolicy, OnePauseDoesNotEndSpinning) {
  ropcie_poll_policy policy = Policy();
  uint64_t now = Arrive(&policy, 0, 1000, 100);
  now = Arrive(&policy, now, 3600ULL * 1000000000, 1);
  EXPECT_GT(ropcie_poll_budget(&policy), 0U);
  Arrive(&policy, now, 3600ULL * 1000000000, 5);
  EXPECT_EQ(ropcie_poll_budget(&policy), 0U);
}

TEST(PollPolicy, SpinsAgainSoonAfterARestFromTraffic) {
  ropcie_poll_policy policy = Policy();
  const uint64_t now = Arrive(&policy, 0, 1000000000, 100);
  EXPECT_EQ(ropcie_poll_budget(&policy), 0U);
  Arrive(&policy, now, 500, 16);
  EXPECT_GT(ropcie_poll_budget(&policy), 0U);
}

TEST(PollPolicy, ClockThatStepsBackStandsStill) {
  ropcie_poll_policy policy = Policy();
  ropcie_poll_arrival(&policy, 1000);
  ropcie_poll_arrival(&policy, 10);
  ropcie_poll_arrival(&policy, 20);
  EXPECT_LE(policy.gap_ns, 10U);
}

}  // namespace
}  // namespace ropcie
