/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: codec/packet.h - who wanted to send what to whom: the heads of an IPv4 or IPv6 packet, as far as they are there. */
#ifndef CAY_CODEC_PACKET_H
#define CAY_CODEC_PACKET_H

#include "base/attr.h"

#include <netinet/in.h>

struct packet {
	struct in6_addr from, to; /* IPv4 as ::ffff:a.b.c.d */
	uint8_t protocol;         /* IPPROTO_*, behind all extension headers that were there */
	uint8_t icmp_type;        /* of ICMP and ICMPv6; 0 otherwise, and where it is not there */
	uint16_t from_port, port; /* of TCP, UDP, UDP-Lite, SCTP, DCCP; 0 otherwise */
};

/** packet_parse() - read the beginning of a packet, which may be cut off anywhere behind the addresses. Return: 0 or -EBADMSG. */
int packet_parse(const unsigned char *p, size_t n, struct packet *ret) attr_must_use;

#endif
