/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/conn.h - one connection that a sandbox has opened, as everything behind the listener sees it.
 *
 * Life: accepted -> asked whose it is -> judged by name and port (POLICY_CONNECT) -> first bytes read -> served in its own fiber by raw.c or by conn_serve_http() -> closed.
 * What serves it may start further fibers, but ends them all before it returns: the connection is freed right behind it.
 */
#ifndef CAY_GATEWAY_CONN_H
#define CAY_GATEWAY_CONN_H

#include "base/id.h"
#include "base/list.h"
#include "codec/clienthello.h"
#include "gateway/gateway.h"
#include "io/stream.h"

#include <netinet/in.h>

enum conn_protocol {
	CONN_UNKNOWN, /* nothing has come yet, or nothing that we know: raw bytes */
	CONN_TLS,     /* a whole ClientHello lies in s.in; @hello describes it */
	CONN_HTTP1,   /* s.in begins with a method and a space */
	CONN_HTTP2    /* prior knowledge: s.in begins with the preface; refused */
};

/** struct conn - see above; owned by conn.c. Strings are NUL-terminated. */
struct conn {
	struct list node;
	struct gateway *gw;
	struct stream s; /* the sandbox's side; s.in holds what was read and is not consumed */
	uint64_t number; /* of the connections of this gateway, from 1 */
	uint64_t accepted_ns, accepted_wall_ns; /* CLOCK_MONOTONIC; wall */
	struct in6_addr from, to; /* IPv4 as ::ffff:a.b.c.d; @to is what was dialled */
	uint16_t from_port, port;
	char address[INET6_ADDRSTRLEN]; /* @to as canonical text; IPv4 as a.b.c.d */
	char name[256];   /* that our DNS gave out for @to; "" when it was dialled without one */
	const char *host; /* what rules match: @name, else @address */
	char exec[ID_LEN + 1]; /* exec that opened it; "" when unknown */
	enum conn_protocol protocol;
	struct clienthello hello;      /* valid for %CONN_TLS */
	struct policy_verdict verdict; /* at POLICY_CONNECT; may say need_more */
	bool denied;                   /* an event has told the refusal already */
	uint64_t received, sent;       /* bytes from and to the sandbox, of raw connections */
};

/**
 * conn_serve_http() - serve a connection whose first bytes are TLS or HTTP: decrypt, parse, decide, forward, and tell it all in events.
 * @c: protocol %CONN_TLS or %CONN_HTTP1; a rule may still allow it.
 *
 * Returns when both sides are done; conn.c closes the stream. Context: fiber; waits.
 */
void conn_serve_http(struct conn *c);

/**
 * conn_denied() - emit net.denied for this connection, once.
 * @what: "connection", "tls", "request"; @reason: a short sentence. @detail: further members of data, stolen; may be NULL.
 */
void conn_denied(struct conn *c, const char *what, const char *reason, json_t *detail);

/** conn_reset() - make the coming close of the stream a TCP reset: the client learns that it was refused, not that all is said. */
void conn_reset(struct conn *c);

/** conn_peer_json() - {"host","address","port","client_port","connection"} for events; a new reference. */
json_t *conn_peer_json(const struct conn *c);

#endif
