/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/packet.h"

#include <string.h>

#define HEADER4     20U
#define HEADER6     40U
#define EXTENSIONS  8 /* no honest packet has more */
#define FRAGMENT_AT 6 /* of the IPv4 header: offset in units of 8 bytes */

static uint16_t get_u16(const unsigned char *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void map_v4(struct in6_addr *to, const unsigned char *from)
{
	*to = (struct in6_addr){ 0 };
	to->s6_addr[10] = to->s6_addr[11] = 0xff;
	memcpy(to->s6_addr + 12, from, 4);
}

/* Where the next header begins; @n when it is not there. */
static size_t skip_extensions(const unsigned char *p, size_t n, size_t at, uint8_t *protocol)
{
	for (int i = 0; i < EXTENSIONS && at + 2 <= n; i++) {
		size_t size = 8U * (p[at + 1] + 1U);

		if (*protocol == IPPROTO_FRAGMENT) {
			size = 8;
			if (at + 4 <= n && (get_u16(p + at + 2) & 0xfff8) != 0) {
				*protocol = p[at];
				return n; /* not the first: the ports are elsewhere */
			}
		} else if (*protocol != IPPROTO_HOPOPTS && *protocol != IPPROTO_ROUTING &&
			   *protocol != IPPROTO_DSTOPTS) {
			return at;
		}
		*protocol = p[at];
		at += size;
	}
	return at < n ? at : n;
}

static bool has_ports(uint8_t protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_UDPLITE ||
	       protocol == IPPROTO_SCTP || protocol == IPPROTO_DCCP;
}

static int parse_v4(const unsigned char *p, size_t n, struct packet *ret, size_t *at)
{
	size_t header = 4U * (p[0] & 15U);

	if (n < HEADER4 || header < HEADER4)
		return -EBADMSG;
	map_v4(&ret->from, p + 12);
	map_v4(&ret->to, p + 16);
	ret->protocol = p[9];
	*at = (get_u16(p + FRAGMENT_AT) & 0x1fff) != 0 || header > n ? n : header;
	return 0;
}

static int parse_v6(const unsigned char *p, size_t n, struct packet *ret, size_t *at)
{
	if (n < HEADER6)
		return -EBADMSG;
	memcpy(&ret->from, p + 8, sizeof(ret->from));
	memcpy(&ret->to, p + 24, sizeof(ret->to));
	ret->protocol = p[6];
	*at = skip_extensions(p, n, HEADER6, &ret->protocol);
	return 0;
}

int packet_parse(const unsigned char *p, size_t n, struct packet *ret)
{
	size_t at = n;
	int rc;

	*ret = (struct packet){ 0 };
	if (n == 0)
		return -EBADMSG;
	rc = p[0] >> 4 == 4   ? parse_v4(p, n, ret, &at)
	     : p[0] >> 4 == 6 ? parse_v6(p, n, ret, &at)
			      : -EBADMSG;
	if (rc == 0 && has_ports(ret->protocol) && at + 4 <= n) {
		ret->from_port = get_u16(p + at);
		ret->port = get_u16(p + at + 2);
	}
	if (rc == 0 && at < n && (ret->protocol == IPPROTO_ICMP || ret->protocol == IPPROTO_ICMPV6))
		ret->icmp_type = p[at];
	return rc;
}
