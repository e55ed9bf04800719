/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a datagram carries before its payload: the 40 bytes that a receive work
 * request of an unreliable datagram gets first (IBTA 11.4.1.2; annex A17.4.5.1
 * for IP). The sender writes them, so they are the record's first payload bytes.
 */
#ifndef ROPCIE_CORE_DATAGRAM_H
#define ROPCIE_CORE_DATAGRAM_H

#include "wire.h"

#define ROPCIE_GID_LEN 16

/**
 * struct ropcie_route - where a datagram comes from and goes to
 * @net: enum ropcie_net
 * @sgid: source GID; an IPv4 address stands in its last 4 bytes
 * @dgid: destination GID
 * @flow_label: 20 bits
 * @traffic_class: traffic class, or type of service
 * @hop_limit: hop limit, or time to live
 */
struct ropcie_route {
	u8 net;
	u8 sgid[ROPCIE_GID_LEN];
	u8 dgid[ROPCIE_GID_LEN];
	u32 flow_label;
	u8 traffic_class;
	u8 hop_limit;
};

/**
 * ropcie_grh_build() - the header of a datagram
 * @route: route
 * @len: payload bytes, at most ROPCIE_MAX_DATAGRAM
 * @imm: it has immediate data
 * @grh: result, ROPCIE_GRH_LEN bytes
 */
void ropcie_grh_build(const struct ropcie_route *route, u32 len, bool imm,
		      u8 *grh);

/**
 * ropcie_grh_dgid() - the GID that a datagram goes to
 * @grh: ROPCIE_GRH_LEN bytes, trusted in no way
 * @net: enum ropcie_net
 * @dgid: result, ROPCIE_GID_LEN bytes; an IPv4 address is mapped into IPv6
 */
void ropcie_grh_dgid(const u8 *grh, u8 net, u8 *dgid);

#endif /* ROPCIE_CORE_DATAGRAM_H */
