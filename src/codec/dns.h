/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/dns.h - DNS messages, for somebody who answers: strict in what it takes.
 *
 * Exactly one question of class IN with an uncompressed name, no answers or authorities, at most an EDNS record behind it. Answers repeat the question byte by byte (letter case
 * included) and name the owner by a pointer to it. Formats: RFC 1035, RFC 6891, RFC 3596, RFC 2782.
 */
#ifndef CAY_CODEC_DNS_H
#define CAY_CODEC_DNS_H

#include "base/buf.h"

#include <netinet/in.h>

#define DNS_MESSAGE_MAX  65535U
#define DNS_NAME_MAX     253U /* as text, without the final dot */
#define DNS_QUESTION_MAX 259U /* bytes of a question */
#define DNS_PLAIN_MAX    512U /* of an answer over UDP when the asker says nothing else */

enum dns_type {
	DNS_A = 1,
	DNS_CNAME = 5,
	DNS_SOA = 6,
	DNS_PTR = 12,
	DNS_MX = 15,
	DNS_TXT = 16,
	DNS_AAAA = 28,
	DNS_SRV = 33,
	DNS_OPT = 41,
	DNS_HTTPS = 65,
	DNS_ANY = 255
};

enum dns_code {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5
};

/** struct dns_query - one question. */
struct dns_query {
	uint16_t id;
	uint16_t type; /* enum dns_type, or another */
	bool recursion;
	bool edns;
	uint16_t edns_size; /* largest answer that the asker takes over UDP; 0 without EDNS */
	char name[DNS_NAME_MAX + 1];   /* lower case, labels between dots; "" = the root */
	bool plain;                    /* the name is letters, digits, '-' and '_' only */
	const unsigned char *question; /* view of the question in the message */
	size_t question_n;
};

/**
 * dns_parse_query() - read a query.
 * @p: a whole message. @ret: on -EBADMSG its id is right when the message has one.
 *
 * Return: 0; -EBADMSG malformed, worth a FORMERR; -ENOTSUP well-formed but of a kind that nobody needs (other opcodes, classes), worth a NOTIMP;
 * -EINVAL not a query or too short: say nothing.
 */
int dns_parse_query(const unsigned char *p, size_t n, struct dns_query *ret) attr_must_use;

/** struct dns_answer - an answer under construction. Initialise with dns_answer_begin(). */
struct dns_answer {
	struct buf *out;
	size_t start; /* of the message in @out */
	uint16_t count;
	const struct dns_query *query;
};

/** dns_answer_begin() - begin the answer to @q behind what @out holds. @q: borrowed until the end; its question may be NULL after a malformed one. */
void dns_answer_begin(
	struct dns_answer *a, struct buf *out, const struct dns_query *q, enum dns_code code);

/** dns_answer_add() - one record for the name that was asked. @data: in wire format. */
void dns_answer_add(
	struct dns_answer *a, uint16_t type, uint32_t ttl_s, const void *data, size_t n);

/** dns_answer_end() - finish. @limit: bytes; what is longer is cut to the question and marked as truncated. */
void dns_answer_end(struct dns_answer *a, size_t limit);

/** dns_name_encode() - @name ("a.b.c", no final dot) as labels. Return: bytes written, at most 255, or -EINVAL. */
ssize_t dns_name_encode(const char *name, unsigned char out[255]) attr_must_use;

/** dns_name_plain() - is @name letters, digits, '-', '_' and dots only, and short enough? "" is the root. */
bool dns_name_plain(const char *name);

/** dns_answer_add_name() - a record whose data ends in a name: @prefix (at most 6 bytes), then @name. Return: 0; -EINVAL when @name is none (nothing is added). */
int dns_answer_add_name(struct dns_answer *a, uint16_t type, uint32_t ttl_s,
	const unsigned char *prefix, size_t prefix_n, const char *name) attr_must_use;

/** dns_reverse() - the address that "4.3.2.1.in-addr.arpa" or an ip6.arpa name is about. Return: 0 or -EINVAL. */
int dns_reverse(const char *name, struct in6_addr *ret) attr_must_use;

#endif
