/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/authority.h - who a request is for: host names and addresses in one canonical form.
 *
 * Every spelling that some resolver takes for an address (decimal, octal, hexadecimal, short forms, IPv4-mapped IPv6) becomes the dotted or RFC 5952 form; names
 * become lower case without a final dot. What is neither is refused. Sources: RFC 3986 section 3.2, the WHATWG host parser, RFC 1123.
 */
#ifndef CAY_CODEC_AUTHORITY_H
#define CAY_CODEC_AUTHORITY_H

#include "base/attr.h"

#define AUTHORITY_HOST_SIZE 254 /* with the NUL */

struct authority {
	char host[AUTHORITY_HOST_SIZE];
	bool is_address;
	uint16_t port; /* 0: not given */
};

/** authority_parse() - "host", "host:port", "[v6]", "[v6]:port"; no user information. Return: 0 or -EBADMSG. */
int authority_parse(const char *p, size_t n, struct authority *ret) attr_must_use;

/** authority_host() - a host alone (a server name, an address without brackets). Return: 0 or -EBADMSG. */
int authority_host(
	const char *p, size_t n, char ret[AUTHORITY_HOST_SIZE], bool *ret_is_address) attr_must_use;

#endif
