// SPDX-License-Identifier: GPL-2.0
// Every decoder of what a peer writes: slots, the shape of a lane, network
// headers of datagrams.
#include "fuzz.h"

namespace ropcie::fuzz {
namespace {

// To the byte: a slot has no padding.
bool Same(const ropcie_slot& a, const ropcie_slot& b) {
  return std::memcmp(static_cast<const void*>(&a), static_cast<const void*>(&b),
                     sizeof(a)) == 0;
}

void Slot(const uint8_t* data) {
  ropcie_slot slot;
  std::memcpy(&slot, data, sizeof(slot));
  ropcie_hdr hdr;
  if (ropcie_wire_decode(&slot, &hdr) != 0) {
    return;
  }
  FUZZ_CHECK(hdr.op > 0 && hdr.op < ROPCIE_OP_END);
  // The payload of a grant is where its bytes lie.
  FUZZ_CHECK(hdr.frag_len <= hdr.msg_len || hdr.op == ROPCIE_OP_GRANT);
  FUZZ_CHECK(hdr.frag_len <= ROPCIE_MAX_FRAG);
  FUZZ_CHECK(hdr.msg_len <= ROPCIE_MAX_MSG);
  FUZZ_CHECK(hdr.psn <= ROPCIE_PSN_MASK);
  FUZZ_CHECK(ropcie_hdr_ring_len(&hdr) <= ROPCIE_MAX_FRAG);
  // There is one way to write a header: nothing was passed over unseen.
  ropcie_slot again;
  ropcie_wire_encode(&hdr, &again);
  ropcie_hdr second;
  FUZZ_CHECK(ropcie_wire_decode(&again, &second) == 0);
  again.valid = slot.valid;
  if (!ropcie_hdr_inline(&hdr)) {
    FUZZ_CHECK(Same(again, slot));
  }
  ropcie_slot third;
  ropcie_wire_encode(&second, &third);
  third.valid = slot.valid;
  FUZZ_CHECK(Same(third, again));
}

void Geometry(Input* input) {
  const auto word = input->ConsumeIntegral<uint32_t>();
  ropcie_link_offer offer{};
  if (ropcie_link_geom_unpack(word, &offer) == 0) {
    FUZZ_CHECK(offer.lanes >= 1 && offer.lanes <= ROPCIE_MAX_LANES);
    FUZZ_CHECK(ropcie_lane_geom_ok(&offer.geom));
    FUZZ_CHECK(ropcie_link_geom_pack(&offer) == word);
    FUZZ_CHECK(ropcie_link_offer_size(&offer) >
               offer.lanes * ropcie_lane_size(&offer.geom));
  }
  const auto size = Number<uint64_t>(input);
  const auto lanes = input->ConsumeIntegralInRange<uint32_t>(1, 64);
  ropcie_lane_geom geom{};
  if (ropcie_lane_geom_fit(size, lanes, &geom) == 0) {
    FUZZ_CHECK(ropcie_lane_geom_ok(&geom));
    FUZZ_CHECK(lanes * ropcie_lane_size(&geom) <= size);
  }
}

void Datagram(Input* input) {
  uint8_t grh[ROPCIE_GRH_LEN] = {};
  input->ConsumeData(grh, sizeof(grh));
  uint8_t dgid[ROPCIE_GID_LEN];
  const auto net = static_cast<uint8_t>(
      input->ConsumeIntegralInRange(1, ROPCIE_NET_END - 1));
  ropcie_grh_dgid(grh, net, dgid);

  ropcie_route route{};
  route.net = net;
  input->ConsumeData(route.sgid, sizeof(route.sgid));
  input->ConsumeData(route.dgid, sizeof(route.dgid));
  if (net == ROPCIE_NET_IPV4) {
    const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    std::memcpy(route.dgid, mapped, sizeof(mapped));
  }
  route.flow_label = input->ConsumeIntegral<uint32_t>() & 0xfffff;
  route.traffic_class = input->ConsumeIntegral<uint8_t>();
  route.hop_limit = input->ConsumeIntegral<uint8_t>();
  ropcie_grh_build(
      &route, input->ConsumeIntegralInRange<uint32_t>(0, ROPCIE_MAX_DATAGRAM),
      input->ConsumeBool(), grh);
  ropcie_grh_dgid(grh, net, dgid);
  FUZZ_CHECK(std::memcmp(dgid, route.dgid, sizeof(dgid)) == 0);
}

}  // namespace
}  // namespace ropcie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == sizeof(ropcie_slot)) {
    ropcie::fuzz::Slot(data);
    return 0;
  }
  FuzzedDataProvider input(data, size);
  if (input.ConsumeBool()) {
    ropcie::fuzz::Geometry(&input);
  } else {
    ropcie::fuzz::Datagram(&input);
  }
  return 0;
}
