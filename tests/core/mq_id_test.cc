// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstdint>

#include "core.h"

namespace ropcie {
namespace {

TEST(MqId, IsTheQpNumberDoubledPlusTheDirection) {
  for (uint32_t qpn = 0; qpn <= ROPCIE_QPN_MASK; qpn++) {
    const uint32_t request = ropcie_mq_id(qpn, ROPCIE_MQ_REQUEST);
    const uint32_t response = ropcie_mq_id(qpn, ROPCIE_MQ_RESPONSE);
    ASSERT_EQ(request, qpn * 2);
    ASSERT_EQ(response, qpn * 2 + 1);
    ASSERT_EQ(ropcie_mq_qpn(request), qpn);
    ASSERT_EQ(ropcie_mq_qpn(response), qpn);
    ASSERT_EQ(ropcie_mq_dir(request), ROPCIE_MQ_REQUEST);
    ASSERT_EQ(ropcie_mq_dir(response), ROPCIE_MQ_RESPONSE);
    ASSERT_LE(response, ROPCIE_MQ_MAX);
  }
}

TEST(MqId, BitsAboveAQpNumberAreIgnored) {
  EXPECT_EQ(ropcie_mq_id(0xff000001, ROPCIE_MQ_REQUEST), 2U);
}

TEST(MqId, NetdevHasTheNumberOfNoQueuePair) {
  EXPECT_EQ(ropcie_mq_qpn(ROPCIE_MQ_NETDEV), 0U);
  EXPECT_EQ(ropcie_mq_id(ROPCIE_QPN_MASK, ROPCIE_MQ_RESPONSE), ROPCIE_MQ_MAX);
}

}  // namespace
}  // namespace ropcie
