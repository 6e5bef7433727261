/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/exchange.h - one request and its answer: canonical, judged, carried out by a stage, told in an event.
 *
 *   received -> canonical -> agreed (name, SNI, authority, port) -> judged by its head, or by its body too -> stage (stage.h) -> answered -> told
 */
#ifndef CAY_GATEWAY_EXCHANGE_H
#define CAY_GATEWAY_EXCHANGE_H

#include "base/buf.h"
#include "gateway/channel.h"
#include "gateway/proxy.h"
#include "gateway/secrets.h"
#include "gateway/sigv4.h"
#include "gateway/spending.h"

#define EXCHANGE_ARENA_MAX (256U << 10) /* heads, trailers, what is changed in them */

/** enum exchange_phase - moments of an exchange, CLOCK_MONOTONIC; 0: did not happen. */
enum exchange_phase {
	EXCHANGE_BEGAN,     /* its head was whole */
	EXCHANGE_DECIDED,   /* the policy had spoken */
	EXCHANGE_CONNECTED, /* there was a connection to the world */
	EXCHANGE_SENT,      /* the request's head was sent on */
	EXCHANGE_ANSWERED,  /* the answer's head came, or was made */
	EXCHANGE_ENDED,
	EXCHANGE_PHASES
};

/** struct capture - the beginning of a body, for the event. */
struct capture {
	struct buf bytes;
	bool cut; /* there was more */
};

struct exchange {
	struct proxy_conn *conn;
	struct proxy *proxy;
	struct channel *front, *back;
	struct arena arena;
	uint64_t number;
	uint64_t at[EXCHANGE_PHASES], began_wall_ns;

	struct head request, answer;
	struct authority host;   /* whom it is for */
	struct policy_text path; /* canonical */
	struct buf body;         /* of the request, as far as it was held for a rule */
	bool body_whole;         /* @body is all of it */
	json_t *json;            /* the same parsed, or NULL */

	struct secrets *secrets; /* that it began with, counted; or NULL */
	char *signature;         /* in the request's head, made with a secret; or NULL */
	char signature_was[SIGV4_HEX];
	struct policy *policy; /* that it is judged by, a reference; NULL: everything is denied */
	struct policy_verdict verdict;
	const struct policy_rule *rule;
	const char *
		outcome; /* "forwarded", "denied", "refused", "answered", "failed", "reset"; static */
	char reason[256];       /* why, where it was not forwarded */
	uint64_t retry_after_s; /* said in an answer from here; 0: not */
	bool answered;          /* the head of a final answer went to the sandbox */

	char upstream[INET6_ADDRSTRLEN + 8]; /* address and port that were dialled */
	unsigned int back_version;           /* of HTTP towards the world */
	bool reused;                         /* over a connection that was open already */
	bool repeated;                       /* that died, and then over another one */
	struct spending spending;            /* of the answer, for budgets */
	uint64_t prepaid; /* bytes of the request's body that were spent before it was sent */
	bool counted;     /* what the answer brought */
	bool uncounted;   /* it did not say it */
	bool over_budget; /* cut where the bytes ended */
	struct capture sent, came; /* bodies of the request and of the answer */
	uint64_t ws_messages[2], ws_frames[2],
		ws_bytes[2]; /* WebSocket: from the sandbox, from the world */
};

/**
 * exchange_run() - the whole of one exchange on @front.
 * Return: 0 when there was one (whatever came of it); -EPIPE, -ETIMEDOUT, … when no request came. Context: fiber; waits.
 */
int exchange_run(struct proxy_conn *conn, struct channel *front);

/** exchange_answer() - answer with a short JSON document instead of asking the world. @code: a word for programs. Return: 0 or -errno. */
int exchange_answer(struct exchange *x, int status, const char *code);

/** exchange_because() - note why it was not simply forwarded. */
void exchange_because(struct exchange *x, const char *outcome, const char *fmt, ...)
	attr_printf(3, 4);

/** exchange_invite() - say 100 when the client waits for that before it sends the body. Return: 0 or -errno. */
int exchange_invite(struct exchange *x);

/** exchange_hold() - read the request's body into @x->body, as far as %PROXY_BODY_MAX and the memory of all allow. Return: 0 or -errno. */
int exchange_hold(struct exchange *x);

/** exchange_take() - spend @n bytes that are about to pass. Return: how many may; when not all, @x says so. Context: fiber; waits. */
uint64_t exchange_take(struct exchange *x, uint64_t n) attr_must_use;

/** exchange_tell() - emit net.exchange. */
void exchange_tell(struct exchange *x);

/** capture_add() - keep a piece, as far as there is room. */
void capture_add(struct capture *c, const void *p, size_t n);

#endif
