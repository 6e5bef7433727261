/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/proxy.h - the HTTP side of the gateway: from an accepted connection to exchanges that are decided, forwarded or answered, and told.
 *
 * Knows nothing of listeners, of cayd or of the keeper: a connection comes in as a descriptor with what is known of it (struct proxy_conn), and what the core needs from
 * outside are the calls in struct proxy_hooks. The gateway process fills them; so does the test program in tests/gateway.
 */
#ifndef CAY_GATEWAY_PROXY_H
#define CAY_GATEWAY_PROXY_H

#include "base/err.h"
#include "codec/frame.h"
#include "gateway/held.h"
#include "gateway/tls.h"
#include "gateway/wire.h"
#include "policy/ledger.h"

#include <jansson.h>
#include <netinet/in.h>

#define PROXY_HEAD_NS \
	(20ULL * 1000000000) /* a head must be whole in that time, from its first byte */
#define PROXY_IDLE_NS  (120ULL * 1000000000) /* between exchanges of a connection */
#define PROXY_STALL_NS (60ULL * 1000000000)  /* the next piece of a body that is held, any write */
#define PROXY_PAUSE_NS \
	(50ULL * 1000000) /* what is held back of a body or message waits for more so long */
#define PROXY_ANSWER_NS \
	(600ULL * \
		1000000000) /* the answer, or its next piece, while nothing of the request goes out */
#define PROXY_LISTEN_NS \
	(120ULL * \
		1000000000) /* the end of an answer that nobody takes any more, for what it says was used */
#define PROXY_CONNECT_NS (20ULL * 1000000000) /* resolve, dial and handshake together */
#define PROXY_BUDGET_NS  (60ULL * 1000000000) /* until what a budget holds for others is there */
#define PROXY_HELD_MAX \
	(64U << 20) /* of all bodies that are held for rules; one more goes beyond it */
#define PROXY_TREES_MAX \
	(POLICY_BODY_TOP + (16U << 20)) /* of what is read of them, and to read them */
#define PROXY_KEPT_MAX \
	(1U << 20) /* of a body that is held until its answer comes, to be sent again */
#define PROXY_CAPTURE_MAX   65536U                      /* of each body, kept for the event */
#define PROXY_EVENT_MAX     (FRAME_PAYLOAD_MAX - 4096U) /* of what is told of an exchange */
#define PROXY_ALONE_MAX     64U
#define PROXY_EXCHANGES_MAX 1000U /* under way at once */
#define PROXY_SHARED_MAX \
	256U /* connections to the world over HTTP/2, in use or not: each has a fiber */

struct proxy;
struct proxy_conn;
struct secrets;
struct upstream;

/** struct proxy_dialled - where a dial led. */
struct proxy_dialled {
	int fd; /* connected, non-blocking */
	char address[INET6_ADDRSTRLEN];
	uint16_t port;
};

/** struct proxy_hooks - what the core asks of whoever embeds it; @ctx is theirs. */
struct proxy_hooks {
	void *ctx;

	/* Wait until another exchange may begin: there must be room for its event. NULL: at once. */
	void (*admit)(void *ctx);

	/* Connect to @host:@port as @rule permits (NULL: as any would): resolve, filter, dial what was judged. Waits. Return: 0, or -errno with @err. */
	int (*dial)(void *ctx, const char *host, uint16_t port, const struct policy_rule *rule,
		uint64_t deadline_ns, struct proxy_dialled *ret, struct err *err);

	/* Spend from the budgets of rule @rule of @policy; NULL: such rules are refused. Waits until the lease is written down. Never LEDGER_NEED_LEASE. */
	enum ledger_answer (*reserve)(void *ctx, const struct policy *policy, size_t rule,
		const struct ledger_amounts *amounts, struct ledger_result *ret);

	/* Would reserve() say LEDGER_BUSY again, which it said in @said? NULL: it must be asked. */
	bool (*busy)(void *ctx, const struct policy *policy, size_t rule,
		const struct ledger_result *said);

	/* Spend bytes that are about to pass from the same budgets. Waits as well. Return: how many of @n may. NULL: all. */
	uint64_t (*take)(void *ctx, const struct policy *policy, size_t rule, uint64_t n);

	/* What the answer brought, for the same budgets; once for each reserve() that said that something is open. Adds it at once, then waits until it is written down. */
	void (*add)(void *ctx, const struct policy *policy, size_t rule,
		const struct ledger_amounts *amounts);

	/* Has whoever opened @conn closed it, now that nothing more comes from there? He may have said only that, and still wait. NULL: nobody knows. Must not wait. */
	bool (*left)(void *ctx, const struct proxy_conn *conn);

	/* Tell that a connection was refused before it held a request. @reason has no names in it. */
	void (*refused)(
		void *ctx, const struct proxy_conn *conn, const char *what, const char *reason);

	/* Tell something of @conn. @data: an object as JSON text, at most %PROXY_EVENT_MAX bytes. */
	void (*event)(
		void *ctx, const struct proxy_conn *conn, const char *type, const struct buf *data);
};

struct proxy {
	uv_loop_t *loop;
	struct policy *policy;   /* NULL: everything is denied; proxy_set_policy() */
	struct secrets *secrets; /* secrets.h; what goes with it */
	struct proxy_hooks hooks;
	struct tls_server server;
	struct tls_client
		client;     /* set up at the first connection to the world: its store is large */
	const char *bundle; /* PEM text of the system's store; borrowed; NULL: none */
	char *extra;        /* of further roots; owned; NULL: none */
	size_t bundle_n, extra_n;
	struct authority
		through; /* an HTTP proxy that all connections to the world go through; host "": none */
	struct list pool;    /* idle and shared connections to the world */
	struct list shared;  /* those of HTTP/2, busy or not */
	size_t n_shared;     /* and such as may turn out to be, or are ending */
	size_t shared_max;   /* %PROXY_SHARED_MAX; a test has fewer */
	struct list opening; /* being opened: others wait to share them */
	uint32_t alone
		[PROXY_ALONE_MAX]; /* hosts that offered nothing to share, as hashes; oldest overwritten */
	size_t n_alone;
	size_t n_pool;
	uv_timer_t pool_timer;
	struct held_pool held; /* bodies that are held for rules */
	struct room trees;     /* what is read of them */
	struct waiters
		counted; /* for what budgets hold for other answers: one was counted, the policy is another one, or somebody waits for room in @held */
	struct list half_closed; /* exchanges whose clients send no more, and may still wait */
	size_t n_exchanges;      /* under way */
	uint64_t exchanges;      /* number of the last one */
	uint64_t *draws;         /* random numbers drawn so far, by rule */
	uint64_t listen_ns;      /* %PROXY_LISTEN_NS; a test waits less */
	uint64_t answer_ns;      /* %PROXY_ANSWER_NS; a test waits less */
	uint64_t write_ns; /* %PROXY_STALL_NS: for what goes to the sandbox; a test waits less */
	uint64_t
		room_ns; /* %PROXY_STALL_NS: how long one waits for room in @held and @trees; a test waits less */
};

/** struct proxy_conn - an accepted connection: whose, what was dialled, and the stream. */
struct proxy_conn {
	struct proxy *proxy;
	int fd;             /* taken over */
	const char *prefix; /* bytes that were read from it already */
	size_t prefix_n;
	bool tls;
	const char *address; /* that was dialled, canonical text */
	const char *name;    /* that our DNS gave out for it; "" when it was dialled without one */
	uint16_t port;
	uint64_t number; /* of the connection, unique */
	void *origin;    /* the embedder's */
	/* the core's own */
	struct wire *w;
	struct tls_hello hello;
};

/** proxy_init() - @root: the sandbox's; borrowed for the call. The rest of @p that is documented as owned or borrowed may be set after it. Return: 0 or -errno with @err. */
int proxy_init(struct proxy *p, uv_loop_t *loop, const struct ca_root *root,
	struct err *err) attr_must_use;

/** proxy_fini() - no connection may be left; run the loop until it has nothing to do. */
void proxy_fini(struct proxy *p);

/** proxy_set_policy() - judge what begins from now on by @policy (one more reference is taken; NULL: deny everything) with its @secrets (taken over; NULL: none). */
void proxy_set_policy(struct proxy *p, struct policy *policy, struct secrets *secrets);

/** proxy_forget_world() - close idle connections to the world and read the trusted roots again when they are next needed. */
void proxy_forget_world(struct proxy *p);

/** proxy_serve() - serve @c until both sides are done. Context: fiber; waits. */
void proxy_serve(struct proxy_conn *c);

#endif
