// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <tuple>

#include "core.h"
#include "random.h"

namespace ropcie {
namespace {

struct Rule {
  ropcie_qpt type;
  int cur;
  int next;
  uint32_t required;
  uint32_t optional;
};

// Every transition that ib_modify_qp_is_ok() of Linux 6.1 knows, in numbers:
// printed by a program around its table, not typed. States: 0 RESET, 1 INIT,
// 2 RTR, 3 RTS, 4 SQD, 5 SQE, 6 ERR. Masks are enum ib_qp_attr_mask.
constexpr Rule kLinux[] = {
    // clang-format off
    {ROPCIE_QPT_RC, 0, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_RC, 0, 1, 0x000038, 0x000000},
    {ROPCIE_QPT_RC, 1, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_RC, 1, 1, 0x000000, 0x000038},
    {ROPCIE_QPT_RC, 1, 2, 0x129180, 0x004018},
    {ROPCIE_QPT_RC, 1, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_RC, 2, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_RC, 2, 3, 0x012e00, 0x04c00a},
    {ROPCIE_QPT_RC, 2, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_RC, 3, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_RC, 3, 3, 0x000000, 0x04c00a},
    {ROPCIE_QPT_RC, 3, 4, 0x000000, 0x000004},
    {ROPCIE_QPT_RC, 3, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_RC, 4, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_RC, 4, 3, 0x000000, 0x04c00a},
    {ROPCIE_QPT_RC, 4, 4, 0x000000, 0x06eeb8},
    {ROPCIE_QPT_RC, 4, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_RC, 5, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_RC, 5, 3, 0x000000, 0x000000},
    {ROPCIE_QPT_RC, 5, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_RC, 6, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_RC, 6, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_UC, 0, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UC, 0, 1, 0x000038, 0x000000},
    {ROPCIE_QPT_UC, 1, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UC, 1, 1, 0x000000, 0x000038},
    {ROPCIE_QPT_UC, 1, 2, 0x101180, 0x004018},
    {ROPCIE_QPT_UC, 1, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_UC, 2, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UC, 2, 3, 0x010000, 0x04400a},
    {ROPCIE_QPT_UC, 2, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_UC, 3, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UC, 3, 3, 0x000000, 0x04400a},
    {ROPCIE_QPT_UC, 3, 4, 0x000000, 0x000004},
    {ROPCIE_QPT_UC, 3, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_UC, 4, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UC, 4, 3, 0x000000, 0x04400a},
    {ROPCIE_QPT_UC, 4, 4, 0x000000, 0x044098},
    {ROPCIE_QPT_UC, 4, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_UC, 5, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UC, 5, 3, 0x000000, 0x00000a},
    {ROPCIE_QPT_UC, 5, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_UC, 6, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UC, 6, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_UD, 0, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UD, 0, 1, 0x000070, 0x000000},
    {ROPCIE_QPT_UD, 1, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UD, 1, 1, 0x000000, 0x000070},
    {ROPCIE_QPT_UD, 1, 2, 0x000000, 0x000050},
    {ROPCIE_QPT_UD, 1, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_UD, 2, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UD, 2, 3, 0x010000, 0x000042},
    {ROPCIE_QPT_UD, 2, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_UD, 3, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UD, 3, 3, 0x000000, 0x000042},
    {ROPCIE_QPT_UD, 3, 4, 0x000000, 0x000004},
    {ROPCIE_QPT_UD, 3, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_UD, 4, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UD, 4, 3, 0x000000, 0x000042},
    {ROPCIE_QPT_UD, 4, 4, 0x000000, 0x000050},
    {ROPCIE_QPT_UD, 4, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_UD, 5, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UD, 5, 3, 0x000000, 0x000042},
    {ROPCIE_QPT_UD, 5, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_UD, 6, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_UD, 6, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_GSI, 0, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_GSI, 0, 1, 0x000050, 0x000000},
    {ROPCIE_QPT_GSI, 1, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_GSI, 1, 1, 0x000000, 0x000050},
    {ROPCIE_QPT_GSI, 1, 2, 0x000000, 0x000050},
    {ROPCIE_QPT_GSI, 1, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_GSI, 2, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_GSI, 2, 3, 0x010000, 0x000042},
    {ROPCIE_QPT_GSI, 2, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_GSI, 3, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_GSI, 3, 3, 0x000000, 0x000042},
    {ROPCIE_QPT_GSI, 3, 4, 0x000000, 0x000004},
    {ROPCIE_QPT_GSI, 3, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_GSI, 4, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_GSI, 4, 3, 0x000000, 0x000042},
    {ROPCIE_QPT_GSI, 4, 4, 0x000000, 0x000050},
    {ROPCIE_QPT_GSI, 4, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_GSI, 5, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_GSI, 5, 3, 0x000000, 0x000042},
    {ROPCIE_QPT_GSI, 5, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_GSI, 6, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_GSI, 6, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 0, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 0, 1, 0x000038, 0x000000},
    {ROPCIE_QPT_XRC_INI, 1, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 1, 1, 0x000000, 0x000038},
    {ROPCIE_QPT_XRC_INI, 1, 2, 0x101180, 0x004018},
    {ROPCIE_QPT_XRC_INI, 1, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 2, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 2, 3, 0x012e00, 0x04400a},
    {ROPCIE_QPT_XRC_INI, 2, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 3, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 3, 3, 0x000000, 0x04400a},
    {ROPCIE_QPT_XRC_INI, 3, 4, 0x000000, 0x000004},
    {ROPCIE_QPT_XRC_INI, 3, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 4, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 4, 3, 0x000000, 0x04400a},
    {ROPCIE_QPT_XRC_INI, 4, 4, 0x000000, 0x046eb8},
    {ROPCIE_QPT_XRC_INI, 4, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 5, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 5, 3, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 5, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 6, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_INI, 6, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 0, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 0, 1, 0x000038, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 1, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 1, 1, 0x000000, 0x000038},
    {ROPCIE_QPT_XRC_TGT, 1, 2, 0x129180, 0x004018},
    {ROPCIE_QPT_XRC_TGT, 1, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 2, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 2, 3, 0x010200, 0x04c00a},
    {ROPCIE_QPT_XRC_TGT, 2, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 3, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 3, 3, 0x000000, 0x04c00a},
    {ROPCIE_QPT_XRC_TGT, 3, 4, 0x000000, 0x000004},
    {ROPCIE_QPT_XRC_TGT, 3, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 4, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 4, 3, 0x000000, 0x04c00a},
    {ROPCIE_QPT_XRC_TGT, 4, 4, 0x000000, 0x06c2b8},
    {ROPCIE_QPT_XRC_TGT, 4, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 5, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 5, 3, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 5, 6, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 6, 0, 0x000000, 0x000000},
    {ROPCIE_QPT_XRC_TGT, 6, 6, 0x000000, 0x000000},
    // clang-format on
};

constexpr uint32_t kAllBits = (1U << 21) - 1;
constexpr uint32_t kState = ROPCIE_QP_STATE;
constexpr uint32_t kCurState = ROPCIE_QP_CUR_STATE;

using Key = std::tuple<int, int, int>;

const Rule* Find(int type, int cur, int next) {
  static const std::map<Key, const Rule*> rules = [] {
    std::map<Key, const Rule*> map;
    for (const Rule& rule : kLinux) {
      map.emplace(Key(rule.type, rule.cur, rule.next), &rule);
    }
    return map;
  }();
  const auto it = rules.find(Key(type, cur, next));
  return it == rules.end() ? nullptr : it->second;
}

// What ib_modify_qp_is_ok() says.
bool LinuxAllows(int type, int cur, int next, uint32_t mask) {
  if ((mask & kCurState) != 0 && (cur < ROPCIE_QPS_RTR || cur == 6)) {
    return false;
  }
  const Rule* rule = Find(type, cur, next);
  return rule != nullptr && (mask & rule->required) == rule->required &&
         (mask & ~(rule->required | rule->optional | kState)) == 0;
}

int Transition(int type, int cur, int next, uint32_t mask) {
  return ropcie_qp_transition(static_cast<ropcie_qpt>(type),
                              static_cast<ropcie_qps>(cur),
                              static_cast<ropcie_qps>(next), mask);
}

void ExpectLikeLinux(int type, int cur, int next, uint32_t mask) {
  ASSERT_EQ(Transition(type, cur, next, mask),
            LinuxAllows(type, cur, next, mask) ? 0 : -EINVAL)
      << "type " << type << " " << cur << "->" << next << " mask " << std::hex
      << mask;
}

class EachTransition
    : public testing::TestWithParam<std::tuple<int, int, int>> {};

INSTANTIATE_TEST_SUITE_P(
    QpState, EachTransition,
    testing::Combine(testing::Range(0, static_cast<int>(ROPCIE_QPT_NUM)),
                     testing::Range(0, 7), testing::Range(0, 7)));

TEST_P(EachTransition, TakesWhatLinuxTakes) {
  const auto [type, cur, next] = GetParam();
  const Rule* rule = Find(type, cur, next);
  const uint32_t required = rule != nullptr ? rule->required : 0;
  const uint32_t optional = rule != nullptr ? rule->optional : 0;
  for (const uint32_t base :
       {0U, required, required | optional, kAllBits, ~0U}) {
    for (const uint32_t state : {0U, kState}) {
      ExpectLikeLinux(type, cur, next, base | state);
      for (int bit = 0; bit < 32; bit++) {
        ExpectLikeLinux(type, cur, next, (base | state) ^ (1U << bit));
      }
    }
  }
  Random random(type * 100 + cur * 10 + next);
  for (int i = 0; i < 20000; i++) {
    // Near the border: required, some of the optional, rarely one more.
    uint32_t mask = required | (optional & random.Word());
    if (random.OneIn(2)) {
      mask ^= 1U << random.Below(32);
    }
    ExpectLikeLinux(type, cur, next, mask);
    ExpectLikeLinux(type, cur, next, random.Word() & kAllBits);
  }
}

TEST(QpState, ValuesOutOfRangeAreRefused) {
  EXPECT_EQ(Transition(ROPCIE_QPT_NUM, 0, 0, 0), -EINVAL);
  EXPECT_EQ(Transition(-1, 0, 0, 0), -EINVAL);
  EXPECT_EQ(Transition(0, ROPCIE_QPS_NUM, 0, 0), -EINVAL);
  EXPECT_EQ(Transition(0, -1, 0, 0), -EINVAL);
  EXPECT_EQ(Transition(0, 0, ROPCIE_QPS_NUM, 0), -EINVAL);
  EXPECT_EQ(Transition(0, 0, -1, 0), -EINVAL);
}

// IBTA 10.3.1: what each state allows.
TEST(QpState, SendsArePostedFromRtsOn) {
  for (int i = 0; i < ROPCIE_QPS_NUM; i++) {
    EXPECT_EQ(ropcie_qp_may_post_send(static_cast<ropcie_qps>(i)),
              i >= ROPCIE_QPS_RTS);
  }
}

TEST(QpState, ReceivesArePostedFromInitOn) {
  for (int i = 0; i < ROPCIE_QPS_NUM; i++) {
    EXPECT_EQ(ropcie_qp_may_post_recv(static_cast<ropcie_qps>(i)),
              i != ROPCIE_QPS_RESET);
  }
}

TEST(QpState, RequestsAreTakenFromRtrUntilError) {
  for (int i = 0; i < ROPCIE_QPS_NUM; i++) {
    EXPECT_EQ(ropcie_qp_responds(static_cast<ropcie_qps>(i)),
              i >= ROPCIE_QPS_RTR && i != ROPCIE_QPS_ERR);
  }
}

TEST(QpState, AcknowledgesAreTakenWhileSendsAreUnderWay) {
  for (int i = 0; i < ROPCIE_QPS_NUM; i++) {
    EXPECT_EQ(ropcie_qp_requests(static_cast<ropcie_qps>(i)),
              i == ROPCIE_QPS_RTS || i == ROPCIE_QPS_SQD);
  }
}

}  // namespace
}  // namespace ropcie
