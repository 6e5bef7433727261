/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/dns.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <string.h>

#define HEADER    12U
#define CLASS_IN  1U
#define EDNS_SIZE 1232U /* of ours; what passes every link unfragmented */

#define FLAG_RESPONSE  0x8000U
#define FLAG_OPCODE    0x7800U
#define FLAG_TRUNCATED 0x0200U
#define FLAG_RECURSION 0x0100U /* wished for */
#define FLAG_AVAILABLE 0x0080U

static uint16_t get_u16(const unsigned char *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void put_u16(unsigned char *p, unsigned int value)
{
	p[0] = (unsigned char)(value >> 8);
	p[1] = (unsigned char)value;
}

static void add_u16(struct buf *out, unsigned int value)
{
	unsigned char bytes[2];

	put_u16(bytes, value);
	buf_add(out, bytes, sizeof(bytes));
}

static char to_lower(unsigned char c)
{
	return (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

static bool plain_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Return: bytes of the name, or -EBADMSG. No compression: there is nothing before the first name that it could point to. */
static ssize_t parse_name(const unsigned char *p, size_t n, struct dns_query *q)
{
	size_t at = 0, out = 0;

	q->plain = true;
	while (at < n && p[at] != 0) {
		size_t label = p[at++];

		if (label > 63 || at + label > n || out + label + (out > 0) > DNS_NAME_MAX)
			return -EBADMSG;
		if (out > 0)
			q->name[out++] = '.';
		for (size_t i = 0; i < label; i++) {
			char c = to_lower(p[at + i]);

			/* a dot or a NUL inside a label would make another name of it */
			q->plain &= plain_char(c);
			q->name[out++] = c == '.' || c == '\0' ? '?' : c;
		}
		at += label;
	}
	q->name[out] = '\0';
	return at < n ? (ssize_t)(at + 1) : -EBADMSG;
}

/* The one record that may stand behind the question. */
static int parse_edns(const unsigned char *p, size_t n, struct dns_query *q)
{
	if (n < 11 || p[0] != 0 || get_u16(p + 1) != DNS_OPT || 11U + get_u16(p + 9) != n)
		return -EBADMSG;
	q->edns = true;
	q->edns_size = get_u16(p + 3);
	return 0;
}

int dns_parse_query(const unsigned char *p, size_t n, struct dns_query *ret)
{
	unsigned int flags, additional;
	ssize_t name;
	size_t at;

	*ret = (struct dns_query){ 0 };
	if (n < HEADER || (get_u16(p + 2) & FLAG_RESPONSE) != 0)
		return -EINVAL;
	ret->id = get_u16(p);
	flags = get_u16(p + 2);
	additional = get_u16(p + 10);
	ret->recursion = (flags & FLAG_RECURSION) != 0;
	if ((flags & FLAG_OPCODE) != 0)
		return -ENOTSUP;
	if (get_u16(p + 4) != 1 || get_u16(p + 6) != 0 || get_u16(p + 8) != 0 || additional > 1)
		return -EBADMSG;
	name = parse_name(p + HEADER, n - HEADER, ret);
	at = HEADER + (size_t)(name > 0 ? name : 0) + 4;
	if (name < 0 || at > n)
		return -EBADMSG;
	ret->question = p + HEADER;
	ret->question_n = at - HEADER;
	ret->type = get_u16(p + at - 4);
	if (get_u16(p + at - 2) != CLASS_IN)
		return -ENOTSUP;
	if (additional == 0)
		return at == n ? 0 : -EBADMSG;
	return parse_edns(p + at, n - at, ret);
}

void dns_answer_begin(
	struct dns_answer *a, struct buf *out, const struct dns_query *q, enum dns_code code)
{
	*a = (struct dns_answer){ .out = out, .start = out->n, .query = q };
	add_u16(out, q->id);
	add_u16(out, FLAG_RESPONSE | FLAG_AVAILABLE | (q->recursion ? FLAG_RECURSION : 0) |
			     (unsigned int)code);
	add_u16(out, q->question != NULL);
	add_u16(out, 0);
	add_u16(out, 0);
	add_u16(out, 0);
	if (q->question != NULL)
		buf_add(out, q->question, q->question_n);
}

void dns_answer_add(struct dns_answer *a, uint16_t type, uint32_t ttl_s, const void *data, size_t n)
{
	add_u16(a->out, 0xc000U | HEADER); /* the name of the question */
	add_u16(a->out, type);
	add_u16(a->out, CLASS_IN);
	add_u16(a->out, ttl_s >> 16);
	add_u16(a->out, ttl_s & 0xffff);
	add_u16(a->out, (unsigned int)n);
	buf_add(a->out, data, n);
	a->count++;
}

static void cut(struct dns_answer *a, unsigned char *message)
{
	a->out->n = a->start + HEADER + a->query->question_n;
	a->count = 0;
	put_u16(message + 2, get_u16(message + 2) | FLAG_TRUNCATED);
}

void dns_answer_end(struct dns_answer *a, size_t limit)
{
	static const unsigned char edns[11] = { 0, 0, DNS_OPT, EDNS_SIZE >> 8, EDNS_SIZE & 255 };
	size_t extra = a->query->edns ? sizeof(edns) : 0;
	unsigned char *message;

	if (buf_failed(a->out))
		return;
	message = (unsigned char *)a->out->p + a->start;
	if (a->out->n - a->start + extra > limit)
		cut(a, message);
	put_u16(message + 6, a->count);
	put_u16(message + 10, extra > 0);
	buf_add(a->out, edns, extra);
}

ssize_t dns_name_encode(const char *name, unsigned char out[255])
{
	size_t at = 0;

	for (const char *p = name; *p != '\0';) {
		size_t label = strcspn(p, ".");

		if (label == 0 || label > 63 || at + label + 2 > 255)
			return -EINVAL;
		out[at++] = (unsigned char)label;
		memcpy(out + at, p, label);
		at += label;
		p += label;
		if (*p == '.' && *++p == '\0')
			return -EINVAL;
	}
	out[at++] = 0;
	return (ssize_t)at;
}

bool dns_name_plain(const char *name)
{
	size_t n = 0;

	for (; name[n] != '\0'; n++)
		if (name[n] != '.' && !plain_char(to_lower((unsigned char)name[n])))
			return false;
	return n <= DNS_NAME_MAX;
}

int dns_answer_add_name(struct dns_answer *a, uint16_t type, uint32_t ttl_s,
	const unsigned char *prefix, size_t prefix_n, const char *name)
{
	unsigned char data[6 + 255];
	ssize_t n = dns_name_plain(name) && prefix_n <= 6 ? dns_name_encode(name, data + prefix_n)
							  : -EINVAL;

	if (n < 0)
		return -EINVAL;
	memcpy(data, prefix, prefix_n);
	dns_answer_add(a, type, ttl_s, data, prefix_n + (size_t)n);
	return 0;
}

static int reverse_v4(const char *name, size_t n, struct in6_addr *ret)
{
	char text[INET_ADDRSTRLEN];
	struct in_addr address;
	uint32_t swapped;

	if (n >= sizeof(text))
		return -EINVAL;
	memcpy(text, name, n);
	text[n] = '\0';
	if (inet_pton(AF_INET, text, &address) != 1)
		return -EINVAL;
	*ret = (struct in6_addr){ 0 };
	ret->s6_addr[10] = ret->s6_addr[11] = 0xff;
	swapped = __builtin_bswap32(address.s_addr);
	memcpy(ret->s6_addr + 12, &swapped, sizeof(swapped));
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int reverse_v6(const char *name, size_t n, struct in6_addr *ret)
{
	if (n != 63)
		return -EINVAL;
	for (size_t i = 0; i < 16; i++) {
		const char *p = name + 60 - 4 * i; /* "l.h" or "l.h." */
		int low = hex_digit(p[0]), high = hex_digit(p[2]);

		if (low < 0 || high < 0 || p[1] != '.' || (i > 0 && p[3] != '.'))
			return -EINVAL;
		ret->s6_addr[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

int dns_reverse(const char *name, struct in6_addr *ret)
{
	static const char v4[] = ".in-addr.arpa", v6[] = ".ip6.arpa";
	size_t n = strlen(name);

	if (n > sizeof(v4) - 1 && str_eq(name + n - (sizeof(v4) - 1), v4))
		return reverse_v4(name, n - (sizeof(v4) - 1), ret);
	if (n > sizeof(v6) - 1 && str_eq(name + n - (sizeof(v6) - 1), v6))
		return reverse_v6(name, n - (sizeof(v6) - 1), ret);
	return -EINVAL;
}
