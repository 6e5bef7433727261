/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/conn.h - one connection that a sandbox has opened: whose it is, what was dialled, what it speaks.
 *
 * Life: accepted -> asked whose it is -> judged by name and port (POLICY_CONNECT) -> first bytes looked at, not taken -> served in its own fiber by passthrough.c, by the
 * nameserver or by the HTTP side -> closed. What serves it may start further fibers, but ends them all before it returns.
 */
#ifndef CAY_GATEWAY_CONN_H
#define CAY_GATEWAY_CONN_H

#include "base/id.h"
#include "base/list.h"
#include "codec/clienthello.h"
#include "gateway/gateway.h"
#include "gateway/owner.h"
#include "io/fdwatch.h"

#include <netinet/in.h>

enum conn_protocol {
	CONN_SILENT,  /* the client waits for the server to speak first */
	CONN_UNKNOWN, /* bytes that are none of the following */
	CONN_TLS,     /* begins with a whole ClientHello; @hello describes it */
	CONN_HTTP1,   /* begins with a method and a space */
	CONN_HTTP2    /* begins with the preface, without TLS; refused */
};

/** struct conn - see above; owned by conn.c. Strings are NUL-terminated. */
struct conn {
	struct list node;
	struct gateway *gw;
	struct policy *policy;    /* that it is judged by, a reference */
	int fd;                   /* the sandbox's side; nothing was read from it yet */
	struct fdwatch watch;     /* of @fd, until it is handed to the HTTP side */
	uint64_t number;          /* of the connections of this gateway, from 1 */
	uint64_t accepted_ns;     /* CLOCK_MONOTONIC */
	struct in6_addr from, to; /* IPv4 as ::ffff:a.b.c.d; @to is what was dialled */
	uint16_t from_port, port;
	char address[INET6_ADDRSTRLEN]; /* @to as canonical text; IPv4 as a.b.c.d */
	char name[256];   /* that our DNS gave out for @to; "" when it was dialled without one */
	const char *host; /* what rules match: @name, else @address */
	struct owner_search *
		whose; /* a reference; the answer is waited for when an event is told, not before */
	enum conn_protocol protocol;
	struct clienthello hello; /* valid for %CONN_TLS */
};

/** conn_listen() - accept connections from @gw's listener whenever there is a policy and room. Return: 0 or -errno. */
int conn_listen(struct gateway *gw, int fd) attr_must_use;

/**
 * conn_serve_http() - serve a connection that speaks TLS or HTTP: decrypt, parse, decide, forward, and tell it all in events.
 * @c: its @watch is idle; @c->fd is taken over and set to -1. Context: fiber; waits until both sides are done.
 */
void conn_serve_http(struct conn *c);

/** conn_owner() - whose it is, for an event. Return: borrowed. Context: fiber; may wait for the keeper (owner_search_result()). */
const struct owner *conn_owner(const struct conn *c);

/** conn_denied() - tell (or count), soon, that this connection was refused. @what: "connection" or "tls"; @reason: a short sentence without names in it. */
void conn_denied(struct conn *c, const char *what, const char *reason);

/** conn_reset() - make the coming close a TCP reset: the client learns that it was refused, not that all is said. */
void conn_reset(struct conn *c);

/** conn_peer_json() - {"connection","host","address","port","client_port"} for events; a new reference. */
json_t *conn_peer_json(const struct conn *c);

#endif
