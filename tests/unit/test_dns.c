/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/dns.h"
#include "t.h"

#include <string.h>

#define HEAD "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"

static int parse(const char *p, size_t n, struct dns_query *q)
{
	return dns_parse_query((const unsigned char *)p, n, q);
}

TEST(a_question_is_read)
{
	static const char m[] = HEAD "\x03"
				     "WwW"
				     "\x07"
				     "example"
				     "\x00\x00\x1c\x00\x01";
	struct dns_query q;

	check_int(parse(m, sizeof(m) - 1, &q), 0);
	check_str(q.name, "www.example");
	check_int(q.type, DNS_AAAA);
	check_int(q.id, 0x1234);
	check(q.plain && q.recursion && !q.edns);
}

TEST(malformed_questions_are_refused)
{
	static const char good[] = HEAD "\x01"
					"a\x00\x00\x01\x00\x01",
			  compressed[] = HEAD "\xc0\x0c\x00\x01\x00\x01",
			  other_class[] = HEAD "\x01"
					       "a\x00\x00\x01\x00\x03";
	struct dns_query q;

	check_int(parse(good, sizeof(good) - 1, &q), 0);
	check_int(parse(good, sizeof(good) - 2, &q), -EBADMSG);
	check_int(parse(good, sizeof(good), &q), -EBADMSG);
	check_int(parse(good, 11, &q), -EINVAL);
	check_int(parse(compressed, sizeof(compressed) - 1, &q), -EBADMSG);
	check_int(parse(other_class, sizeof(other_class) - 1, &q), -ENOTSUP);
}

TEST(a_dot_or_nul_inside_a_label_makes_no_other_name)
{
	static const char dot[] = HEAD "\x03"
				       "a.b"
				       "\x00\x00\x01\x00\x01",
			  nul[] = HEAD "\x03"
				       "a\0b"
				       "\x00\x00\x01\x00\x01";
	struct dns_query q;

	check_int(parse(dot, sizeof(dot) - 1, &q), 0);
	check(!q.plain);
	check_str(q.name, "a?b");
	check_int(parse(nul, sizeof(nul) - 1, &q), 0);
	check(!q.plain);
}

TEST(an_answer_that_is_too_long_is_cut_to_the_question)
{
	static const char m[] = HEAD "\x01"
				     "a\x00\x00\x01\x00\x01";
	cleanup_buf struct buf out = BUF_INIT(4096);
	struct dns_answer a;
	struct dns_query q;

	check_int(parse(m, sizeof(m) - 1, &q), 0);
	dns_answer_begin(&a, &out, &q, DNS_NOERROR);
	for (int i = 0; i < 40; i++)
		dns_answer_add(&a, DNS_A, 60, "\x7f\0\0\1", 4);
	dns_answer_end(&a, DNS_PLAIN_MAX);
	check_int(out.n, sizeof(m) - 1);
	check((out.p[2] & 0x82) == 0x82 && out.p[7] == 0);
}

TEST(records_that_point_to_names)
{
	static const char m[] = HEAD "\x01"
				     "a\x00\x00\x0f\x00\x01";
	cleanup_buf struct buf out = BUF_INIT(4096);
	struct dns_answer a;
	struct dns_query q;

	check_int(parse(m, sizeof(m) - 1, &q), 0);
	dns_answer_begin(&a, &out, &q, DNS_NOERROR);
	check_int(
		dns_answer_add_name(&a, DNS_MX, 60, (const unsigned char *)"\0\x0a", 2, "Mx.b"), 0);
	check_int(dns_answer_add_name(&a, DNS_MX, 60, (const unsigned char *)"\0\x0a", 2, "m x"),
		-EINVAL);
	check_int(dns_answer_add_name(&a, DNS_MX, 60, (const unsigned char *)"\0\x0a", 2, "a..b"),
		-EINVAL);
	check_int(dns_answer_add_name(&a, DNS_MX, 60, (const unsigned char *)"\0\0", 2, ""), 0);
	dns_answer_end(&a, DNS_PLAIN_MAX);
	check_int(a.count, 2);
	check_int(out.n, sizeof(m) - 1 + 12 + 2 + 6 + 12 + 2 + 1);
	check(memcmp(out.p + sizeof(m) - 1 + 10,
		      "\0\x08\0\x0a\x02Mx\x01"
		      "b\0",
		      10) == 0);
}

TEST(reverse_names_are_addresses)
{
	struct in6_addr v4, v6;

	check_int(dns_reverse("1.0.18.198.in-addr.arpa", &v4), 0);
	check(memcmp(v4.s6_addr + 10, "\xff\xff\xc6\x12\x00\x01", 6) == 0);
	check_int(
		dns_reverse(
			"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.e.f.a.c.0.0.d.f.ip6.arpa",
			&v6),
		0);
	check(memcmp(v6.s6_addr, "\xfd\x00\xca\xfe", 4) == 0 && v6.s6_addr[15] == 1);
	check_int(dns_reverse("in-addr.arpa", &v4), -EINVAL);
	check_int(dns_reverse("1.2.3.in-addr.arpa", &v4), -EINVAL);
	check_int(dns_reverse("1.0.ip6.arpa", &v6), -EINVAL);
}
