// SPDX-License-Identifier: GPL-2.0
// Tests of the simulation itself: it must notice each way of breaking the
// driver layer, and a seed must always give the same run.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>

#include "region.h"
#include "world.h"

namespace ropcie::sim {
namespace {

// The first seed that notices the fault.
std::optional<uint64_t> FirstToNotice(Fault fault, uint64_t seeds) {
  for (uint64_t seed = 0; seed < seeds; seed++) {
    try {
      World({.seed = seed, .fault = fault}).Run();
    } catch (const Violation&) {
      return seed;
    }
  }
  return std::nullopt;
}

// What ropcie_sim says, and how it ends.
std::string Output(const std::string& arguments, int* status) {
  const std::string command = ROPCIE_SIM " " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> part;
  while (pipe != nullptr && fgets(part.data(), part.size(), pipe) != nullptr) {
    text += part.data();
  }
  *status = pipe != nullptr ? pclose(pipe) : 0;
  return text;
}

std::string TestName(const testing::TestParamInfo<FaultName>& info) {
  std::string name(info.param.name);
  std::erase(name, '-');
  return name;
}

class SimFault : public testing::TestWithParam<FaultName> {};

INSTANTIATE_TEST_SUITE_P(Sim, SimFault, testing::ValuesIn(kFaults), TestName);

TEST_P(SimFault, IsNoticed) {
  EXPECT_TRUE(FirstToNotice(GetParam().fault, 4000).has_value());
}

class SimFatalFault : public testing::TestWithParam<FaultName> {};

INSTANTIATE_TEST_SUITE_P(Sim, SimFatalFault, testing::ValuesIn(kFatalFaults),
                         TestName);

TEST_P(SimFatalFault, TellsTheSeed) {
  int status = 0;
  const std::string text = Output(
      "--seeds 7:9 --limit 1 --break " + std::string(GetParam().name), &status);
  EXPECT_NE(text.find("replay: ropcie_sim --seed 7 --trace --break " +
                      std::string(GetParam().name) + "\n"),
            std::string::npos)
      << text;
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Sim, ViolationPrintsItsTrace) {
  int status = 0;
  const std::string text =
      Output("--seeds 0:4000 --break " + std::string(kFaults[0].name), &status);
  std::istringstream lines(text);
  std::string reason;
  std::string event;
  std::getline(lines, reason);
  std::getline(lines, event);
  EXPECT_TRUE(reason.starts_with("seed ")) << text;
  EXPECT_LT(event.find_first_not_of("0123456789"), event.size()) << text;
  EXPECT_EQ(event.find_first_not_of("0123456789"), event.find("us ")) << text;
  EXPECT_NE(text.find("\nreplay: "), std::string::npos) << text;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

TEST(Sim, ReplayIsOfTheSameFault) {
  int status = 0;
  const std::string text =
      Output("--seeds 0:4000 --break " + std::string(kFaults[0].name), &status);
  const std::string say = "\nreplay: ropcie_sim ";
  const size_t at = text.find(say);
  ASSERT_NE(at, std::string::npos) << text;
  const size_t begin = at + say.size();
  const std::string again =
      Output(text.substr(begin, text.find('\n', begin) - begin), &status);
  EXPECT_NE(again.find("\nseed "), std::string::npos) << again;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

TEST(Sim, SaysWhatIsNoSeed) {
  int status = 0;
  EXPECT_NE(Output("--seed 18446744073709551615 2>&1", &status).find("usage"),
            std::string::npos);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2);
  EXPECT_NE(Output("--help", &status).find("usage"), std::string::npos);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Sim, HoldsWithoutFaults) {
  EXPECT_FALSE(FirstToNotice(Fault::kNone, 100).has_value());
}

TEST(Sim, SeedGivesTheSameRun) {
  for (uint64_t seed = 0; seed < 50; seed++) {
    World first({.seed = seed});
    World second({.seed = seed});
    first.Run();
    second.Run();
    EXPECT_EQ(first.Fingerprint(), second.Fingerprint());
  }
}

TEST(Sim, CrowdIsOne) {
  World world({.seed = kCrowdEvery - 1});
  world.Run();
  EXPECT_GE(world.coverage().connections, 4000U);  // twice each
}

TEST(Sim, SeedsDiffer) {
  World first({.seed = 1});
  World second({.seed = 2});
  first.Run();
  second.Run();
  EXPECT_NE(first.Fingerprint(), second.Fingerprint());
}

TEST(Sim, RegionNoticesStrayBytes) {
  Env env(1);
  for (int round = 0; round < 100; round++) {
    Region region(&env, 5000, 1, 0);
    const std::vector<uint8_t> bytes(700, 0x11);
    region.Write(100, bytes);
    EXPECT_TRUE(region.Intact());

    // Through the engine's own mapping, as a record would be placed.
    ropcie_vec runs[64];
    uint32_t count = 0;
    ropcie_mr_map(region.mr(), region.Address(3000), 1, runs, 64, &count);
    *static_cast<uint8_t*>(runs[0].base) ^= 1;
    EXPECT_FALSE(region.Intact());
    region.Accept(2999, 1);
    EXPECT_FALSE(region.Intact());
    region.Accept(3000, 1);
    EXPECT_TRUE(region.Intact());

    EXPECT_FALSE(region.Arrived(2000, bytes));
    region.Accept(2000, 700);
    EXPECT_TRUE(region.Arrived(100, bytes));
    EXPECT_TRUE(region.Intact());
  }
}

TEST(Sim, ListsAreCutWithoutLoss) {
  Env env(2);
  for (int round = 0; round < 5000; round++) {
    Region region(&env, 300, 1, 0);
    const auto off = static_cast<uint32_t>(env.random.Below(100));
    const auto len = static_cast<uint32_t>(env.random.Below(200));
    uint64_t at = region.Address(off);
    const auto list = CutIntoSges(&env, &region, off, len, 4);
    EXPECT_GE(list.size(), 1U);
    EXPECT_LE(list.size(), 4U);
    for (const ropcie_sge& sge : list) {
      if (sge.length > 0) {
        EXPECT_EQ(sge.addr, at);
        at += sge.length;
      }
    }
    EXPECT_EQ(at, region.Address(off + len));
  }
}

}  // namespace
}  // namespace ropcie::sim
