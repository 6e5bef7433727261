/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/dial.h - from a name that a rule allows to a connected socket outside: resolve, filter, dial exactly what was judged.
 *
 * Nothing a sandbox says becomes an address: names are resolved here with the resolvers of the host, all answers that are private, loopback, link-local, multicast or
 * metadata are dropped unless the rule permits them, and the addresses left are tried in order, each for its share of the time. What was checked is what is dialled.
 */
#ifndef CAY_GATEWAY_DIAL_H
#define CAY_GATEWAY_DIAL_H

#include "base/err.h"
#include "gateway/gateway.h"

#include <netinet/in.h>

/** struct dial_target - where to; all borrowed. */
struct dial_target {
	const char *host; /* name or address as text */
	uint16_t port;
	const struct policy_rule
		*rule; /* its @upstream and @private_addresses are honoured; NULL = neither */
};

/** struct dial_result - what was reached. */
struct dial_result {
	int fd; /* connected, non-blocking, close-on-exec, TCP_NODELAY; owned by the caller */
	char address[INET6_ADDRSTRLEN];
	uint16_t port;
	uint64_t resolved_us, connected_us; /* how long each step took */
};

/**
 * dial() - connect.
 * Return: 0 with @ret filled; -ENOENT the name does not exist, -EACCES only forbidden addresses, -EHOSTUNREACH, -ECONNREFUSED, -ETIMEDOUT; @err says it in words.
 * Context: fiber; waits until @deadline_ns at most.
 */
int dial(struct gateway *gw, const struct dial_target *target, uint64_t deadline_ns,
	struct dial_result *ret, struct err *err) attr_must_use;

#endif
