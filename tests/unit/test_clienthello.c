/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/clienthello.h"
#include "t.h"

#include <string.h>

struct message {
	unsigned char p[80000];
	size_t n;
};

static void put(struct message *m, const void *p, size_t n)
{
	memcpy(m->p + m->n, p, n);
	m->n += n;
}

static void put_number(struct message *m, size_t value, int bytes)
{
	while (bytes-- > 0)
		m->p[m->n++] = value >> (8 * bytes);
}

static void put_name(struct message *m, const char *name, size_t n)
{
	put_number(m, 0, 2);
	put_number(m, n + 5, 2);
	put_number(m, n + 3, 2);
	put_number(m, 0, 1);
	put_number(m, n, 2);
	put(m, name, n);
}

/* A ClientHello with these extensions, in records of at most @record bytes. */
static struct message *hello(const struct message *extensions, size_t record)
{
	static struct message body, out;
	size_t at = 0;

	body.n = out.n = 0;
	put_number(&body, 1, 1);
	put_number(&body, 2 + 32 + 1 + 4 + 2 + 2 + extensions->n, 3);
	put_number(&body, 0x0303, 2);
	put(&body, (char[32]){ 0 }, 32);
	put_number(&body, 0, 1);
	put_number(&body, 0x00021301, 4);
	put_number(&body, 0x0100, 2);
	put_number(&body, extensions->n, 2);
	put(&body, extensions->p, extensions->n);
	while (at < body.n) {
		size_t n = body.n - at < record ? body.n - at : record;

		put_number(&out, 0x160301, 3);
		put_number(&out, n, 2);
		put(&out, body.p + at, n);
		at += n;
	}
	return &out;
}

static int parse_name(const char *name, size_t n, size_t record, struct clienthello *ret)
{
	static struct message extensions;
	const struct message *m;

	extensions.n = 0;
	put_name(&extensions, name, n);
	m = hello(&extensions, record);
	return clienthello_parse(m->p, m->n, ret);
}

TEST(a_server_name_is_read_however_it_is_cut)
{
	static const size_t records[] = { 1, 2, 5, 64, 16384 };
	struct clienthello h;

	for (size_t i = 0; i < 5; i++) {
		check_int(parse_name("API.Shop.example.", 17, records[i], &h), 1);
		check_str(h.server_name, "api.shop.example");
	}
}

TEST(every_beginning_is_incomplete)
{
	static struct message extensions;
	const struct message *m;
	struct clienthello h;

	extensions.n = 0;
	put_name(&extensions, "a.example", 9);
	m = hello(&extensions, 20);
	for (size_t n = 0; n < m->n; n++)
		check_int(clienthello_parse(m->p, n, &h), 0);
	check_int(clienthello_parse(m->p, m->n, &h), 1);
}

TEST(names_that_no_client_sends_are_refused)
{
	struct clienthello h;

	check_int(parse_name("a\0b.example", 11, 16384, &h), -EBADMSG);
	check_int(parse_name("a b", 3, 16384, &h), -EBADMSG);
	check_int(parse_name(".a", 2, 16384, &h), -EBADMSG);
	check_int(parse_name("a..b", 4, 16384, &h), -EBADMSG);
	check_int(parse_name("", 0, 16384, &h), -EBADMSG);
	check_int(parse_name("\xd0\xb0.example", 10, 16384, &h), -EBADMSG);
}

TEST(what_is_no_hello_is_refused_at_once)
{
	struct clienthello h;

	check_int(clienthello_parse((const unsigned char *)"GET / HTTP/1.1\r\n", 16, &h), -EBADMSG);
	check_int(
		clienthello_parse((const unsigned char *)"\x16\x03\x01\x00\x00", 5, &h), -EBADMSG);
	check_int(clienthello_parse((const unsigned char *)"\x16\x03\x01\x00\x01\x02", 6, &h),
		-EBADMSG);
	check_int(clienthello_parse(
			  (const unsigned char *)"\x16\x03\x01\x00\x04\x01\xff\xff\xff", 9, &h),
		-EMSGSIZE);
}

TEST(protocols_versions_and_encrypted_names_are_told)
{
	static struct message extensions;
	const struct message *m;
	struct clienthello h;

	extensions.n = 0;
	put(&extensions, "\x00\x10\x00\x0e\x00\x0c\x02h2\x08http/1.1", 18);
	put(&extensions, "\x00\x2b\x00\x03\x02\x03\x04", 7);
	put(&extensions, "\xfe\x0d\x00\x01\x00", 5);
	m = hello(&extensions, 16384);
	check_int(clienthello_parse(m->p, m->n, &h), 1);
	check(clienthello_offers(&h, "h2") && clienthello_offers(&h, "http/1.1"));
	check(!clienthello_offers(&h, "h"));
	check(h.tls13 && h.encrypted);
	check_str(h.server_name, "");
}
