// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "core.h"
#include "random.h"

namespace ropcie {
namespace {

using Grh = std::array<uint8_t, ROPCIE_GRH_LEN>;
using Gid = std::array<uint8_t, ROPCIE_GID_LEN>;

constexpr Gid kSource = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 3, 4, 5, 6, 7, 8, 9};
constexpr Gid kDest = {0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2};
constexpr Gid kSource4 = {0, 0, 0,    0,    0,  0,  0, 0,
                          0, 0, 0xff, 0xff, 10, 77, 0, 1};
constexpr Gid kDest4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224, 1, 2, 3};

ropcie_route Route(ropcie_net net, const Gid& source, const Gid& dest) {
  ropcie_route route{};
  route.net = static_cast<uint8_t>(net);
  std::copy(source.begin(), source.end(), route.sgid);
  std::copy(dest.begin(), dest.end(), route.dgid);
  route.flow_label = 0xabcde;
  route.traffic_class = 0x12;
  route.hop_limit = 64;
  return route;
}

Grh Build(const ropcie_route& route, uint32_t len, bool imm = false) {
  Grh grh;
  grh.fill(0xee);
  ropcie_grh_build(&route, len, imm, grh.data());
  return grh;
}

Gid Dest(const Grh& grh, ropcie_net net) {
  Gid gid;
  gid.fill(0xee);
  ropcie_grh_dgid(grh.data(), static_cast<uint8_t>(net), gid.data());
  return gid;
}

uint32_t Be16(std::span<const uint8_t> bytes, size_t at) {
  return static_cast<uint32_t>(bytes[at]) << 8 | bytes[at + 1];
}

// RFC 1071: the sum of a header with a right check sum is all ones.
uint32_t OnesComplementSum(std::span<const uint8_t> bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i < bytes.size(); i += 2) {
    sum += Be16(bytes, i);
  }
  while (sum > 0xffff) {
    sum = (sum & 0xffff) + (sum >> 16);
  }
  return sum;
}

TEST(Datagram, HeaderOfRoceV1IsAGrh) {
  const Grh grh = Build(Route(ROPCIE_NET_ROCE_V1, kSource, kDest), 100);
  EXPECT_EQ(grh[0], 0x61);
  EXPECT_EQ(grh[1], 0x2a);
  EXPECT_EQ(Be16(grh, 2), 0xbcdeU);
  // BTH, DETH, payload, ICRC.
  EXPECT_EQ(Be16(grh, 4), 12U + 8U + 100U + 4U);
  EXPECT_EQ(grh[6], 0x1b);
  EXPECT_EQ(grh[7], 64);
  EXPECT_TRUE(std::equal(kSource.begin(), kSource.end(), &grh[8]));
  EXPECT_TRUE(std::equal(kDest.begin(), kDest.end(), &grh[24]));
}

TEST(Datagram, HeaderOfIpv6NamesUdp) {
  const Grh grh = Build(Route(ROPCIE_NET_IPV6, kSource, kDest), 1, true);
  EXPECT_EQ(grh[0] >> 4, 6);
  // UDP, BTH, DETH, immediate data, padded payload, ICRC.
  EXPECT_EQ(Be16(grh, 4), 8U + 12U + 8U + 4U + 4U + 4U);
  EXPECT_EQ(grh[6], 17);
  EXPECT_EQ(Dest(grh, ROPCIE_NET_IPV6), kDest);
}

TEST(Datagram, HeaderOfIpv4StandsInTheLastTwentyBytes) {
  const Grh grh = Build(Route(ROPCIE_NET_IPV4, kSource4, kDest4), 256);
  EXPECT_TRUE(std::all_of(grh.begin(), grh.begin() + 20,
                          [](uint8_t byte) { return byte == 0; }));
  const std::span<const uint8_t> ip = std::span(grh).subspan(20);
  EXPECT_EQ(ip[0], 0x45);
  EXPECT_EQ(ip[1], 0x12);
  EXPECT_EQ(Be16(ip, 2), 20U + 8U + 12U + 8U + 256U + 4U);
  EXPECT_EQ(ip[8], 64);
  EXPECT_EQ(ip[9], 17);
  EXPECT_EQ(OnesComplementSum(ip), 0xffffU);
  EXPECT_TRUE(std::equal(kSource4.begin() + 12, kSource4.end(), &ip[12]));
  EXPECT_EQ(Dest(grh, ROPCIE_NET_IPV4), kDest4);
}

TEST(Datagram, CheckSumIsRightForAllAddressesAndLengths) {
  Random random(7);
  for (int i = 0; i < 100000; i++) {
    ropcie_route route = Route(ROPCIE_NET_IPV4, kSource4, kDest4);
    random.Fill({route.sgid + 12, 4});
    random.Fill({route.dgid + 12, 4});
    route.traffic_class = static_cast<uint8_t>(random.Word());
    route.hop_limit = static_cast<uint8_t>(random.Word());
    const Grh grh = Build(
        route, static_cast<uint32_t>(random.Below(ROPCIE_MAX_DATAGRAM + 1)));
    ASSERT_EQ(OnesComplementSum(std::span(grh).subspan(20)), 0xffffU);
  }
}

}  // namespace
}  // namespace ropcie
