/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/resolver.h - asks the host's name servers, or the one that a rule names. On c-ares; all of it on the loop.
 *
 * Who asks waits until c-ares has an answer or gives up; it has deadlines of its own (six seconds for each server at most).
 */
#ifndef CAY_GATEWAY_RESOLVER_H
#define CAY_GATEWAY_RESOLVER_H

#include "base/buf.h"
#include "base/err.h"
#include "gateway/gateway.h"

#include <netinet/in.h>

/** resolver_init() - read the host's resolver configuration, while files can still be opened; of name servers that come later cayd tells. Sets @gw->resolver. Return: 0 or -errno. */
int resolver_init(struct gateway *gw) attr_must_use;

/**
 * resolver_addresses() - the addresses of @host, IPv4 as ::ffff:a.b.c.d, both families by turns.
 * @host: a name of at most %DNS_NAME_MAX characters, no address; one without a dot is looked for in the domains that the host's configuration searches, any other as it stands.
 * @ret: room for @max; @ret_n: how many there are.
 * Return: 0 with at least one; -ENOENT, -EHOSTUNREACH with @err. Context: fiber; waits.
 */
int resolver_addresses(struct gateway *gw, const char *host, struct in6_addr *ret, size_t max,
	size_t *ret_n, struct err *err) attr_must_use;

/**
 * resolver_ask() - records of any type.
 * @type: of DNS. @server: "address:port" to ask instead of the host's name servers, one question after the other; NULL: those.
 * @reply: the whole message is appended.
 *
 * Return: 0; -ENOENT no such name; -ENODATA none of that type; -EHOSTUNREACH no usable answer. Context: fiber; waits.
 */
int resolver_ask(struct gateway *gw, const char *name, int type, const char *server,
	struct buf *reply) attr_must_use;

#endif
