/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "codec/packet.h"

#define V4 "\x45\x00\x00\x28\x00\x01\x00\x00\x40\x06\x00\x00\x0a\x00\x00\x02\x5d\xb8\xd8\x22"

static int parse(const char *p, size_t n, struct packet *ret)
{
	return packet_parse((const unsigned char *)p, n, ret);
}

TEST(ports_are_behind_the_headers)
{
	static const char v4[] = V4 "\x9c\x40\x01\xbb";
	struct packet p;

	check_int(parse(v4, sizeof(v4) - 1, &p), 0);
	check_int(p.protocol, IPPROTO_TCP);
	check_int(p.from_port, 40000);
	check_int(p.port, 443);
	check(IN6_IS_ADDR_V4MAPPED(&p.to) && p.to.s6_addr[15] == 0x22);
	/* cut off before them */
	check_int(parse(v4, 22, &p), 0);
	check_int(p.port, 0);
	check_int(parse(v4, 19, &p), -EBADMSG);
	check_int(parse("", 0, &p), -EBADMSG);
	check_int(parse("\x15", 1, &p), -EBADMSG);
}

TEST(icmp_says_what_it_is)
{
	static const char v4[] = V4 "\x03\x01", v6[] = "\x60\0\0\0\0\x08\x3a\x40"
						       "0123456789abcdef0123456789abcdef\x80\0";
	char cut[sizeof(v4)], later[sizeof(v4)];
	struct packet p;

	memcpy(cut, v4, sizeof(v4));
	cut[9] = IPPROTO_ICMP;
	check_int(parse(cut, 22, &p), 0);
	check_int(p.icmp_type, 3);
	check_int(p.port, 0);
	check_int(parse(cut, 20, &p), 0);
	check_int(p.icmp_type, 0);
	/* not the first part of it */
	memcpy(later, cut, sizeof(cut));
	later[7] = 1;
	check_int(parse(later, 22, &p), 0);
	check_int(p.icmp_type, 0);
	check_int(parse(v6, sizeof(v6) - 1, &p), 0);
	check_int(p.icmp_type, 128);
	check_int(parse(v4, 22, &p), 0);
	check_int(p.icmp_type, 0);
}
