// SPDX-License-Identifier: GPL-2.0
#include "datagram.h"

/* Where the IPv4 header begins: before it the bytes mean nothing. */
#define IPV4_OFF 20
#define IPV4_LEN 20
#define NEXT_HDR_BTH 0x1b
#define PROTO_UDP 17
/* Headers and check sum that a packet has around its payload (IBTA 5.2). */
#define BTH_LEN 12
#define DETH_LEN 8
#define IMM_LEN 4
#define ICRC_LEN 4
#define UDP_LEN 8

static void put_be16(u8 *to, u16 val)
{
	to[0] = (u8)(val >> 8);
	to[1] = (u8)val;
}

/* The sum of RFC 1071. */
static u16 ipv4_checksum(const u8 *hdr)
{
	u32 sum = 0, i;

	for (i = 0; i < IPV4_LEN; i += 2)
		sum += (u32)hdr[i] << 8 | hdr[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return (u16)~(sum + (sum >> 16));
}

static void build_ipv4(const struct ropcie_route *route, u16 len, u8 *ip)
{
	ip[0] = 0x45; /* version 4, header of 5 words */
	ip[1] = route->traffic_class;
	put_be16(&ip[2], (u16)(IPV4_LEN + len));
	ip[6] = 0x40; /* do not fragment */
	ip[8] = route->hop_limit;
	ip[9] = PROTO_UDP;
	memcpy(&ip[12], &route->sgid[12], 4);
	memcpy(&ip[16], &route->dgid[12], 4);
	put_be16(&ip[10], ipv4_checksum(ip));
}

void ropcie_grh_build(const struct ropcie_route *route, u32 len, bool imm,
		      u8 *grh)
{
	/* Payload is padded to words (IBTA 9.2.4). */
	u16 inner = (u16)(BTH_LEN + DETH_LEN + (imm ? IMM_LEN : 0) +
			  ALIGN(len, 4u) + ICRC_LEN);

	memset(grh, 0, ROPCIE_GRH_LEN);
	if (route->net == ROPCIE_NET_IPV4) {
		build_ipv4(route, (u16)(UDP_LEN + inner), grh + IPV4_OFF);
		return;
	}
	grh[0] = (u8)(0x60 | route->traffic_class >> 4);
	grh[1] = (u8)(route->traffic_class << 4 |
		      (route->flow_label >> 16 & 0xf));
	put_be16(&grh[2], (u16)route->flow_label);
	if (route->net == ROPCIE_NET_IPV6) {
		put_be16(&grh[4], (u16)(UDP_LEN + inner));
		grh[6] = PROTO_UDP;
	} else {
		put_be16(&grh[4], inner);
		grh[6] = NEXT_HDR_BTH;
	}
	grh[7] = route->hop_limit;
	memcpy(&grh[8], route->sgid, ROPCIE_GID_LEN);
	memcpy(&grh[24], route->dgid, ROPCIE_GID_LEN);
}

void ropcie_grh_dgid(const u8 *grh, u8 net, u8 *dgid)
{
	if (net != ROPCIE_NET_IPV4) {
		memcpy(dgid, &grh[24], ROPCIE_GID_LEN);
		return;
	}
	memset(dgid, 0, ROPCIE_GID_LEN);
	dgid[10] = 0xff;
	dgid[11] = 0xff;
	memcpy(&dgid[12], &grh[36], 4);
}
