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
#include "gateway/held.h"
#include "gateway/proxy.h"
#include "gateway/secrets.h"
#include "gateway/sigv4.h"
#include "gateway/spending.h"

#define EXCHANGE_ARENA_MAX  (256U << 10) /* heads, trailers, what is changed in them */
#define EXCHANGE_REASON_MAX 2048U        /* bytes of a denial's message, and what is said with it */

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
	struct scrub *scrub; /* what is captured goes through it; NULL: there is nothing to hide */
	bool cut;            /* there was more */
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
	struct held body;        /* of the request, as far as it is held for a rule */
	bool held;               /* exchange_hold() was there */
	bool body_whole;         /* @body is all of it */
	bool body_gone;          /* it was, and is sent: nothing is there to be sent again */
	bool too_large;          /* for rules */
	bool asked_body;         /* a rule wanted to look at it */
	bool readable;           /* and could */
	json_t *json; /* what rules look at in it, or all of it; NULL: unread, or not any more */
	size_t json_room; /* taken of the proxy's trees, for what is written anew too */

	struct secrets *secrets; /* that go with @policy, counted; or NULL */
	char *signature;         /* in the request's head, made with a secret; or NULL */
	char signature_was[SIGV4_HEX];
	struct policy *
		policy; /* that it is judged by: the one in force at the verdict; a reference; NULL: everything is denied */
	struct policy_verdict verdict;
	const struct policy_rule *rule;
	const char *
		outcome; /* "forwarded", "denied", "refused", "answered", "failed", "reset"; static */
	char reason[EXCHANGE_REASON_MAX]; /* why, where it was not forwarded: text */
	uint64_t retry_after_s;           /* said in an answer from here; 0: not */
	bool answered;                    /* the head of a final answer went to the sandbox */
	bool left;                        /* nobody waits for it any more */
	struct list half_closed;          /* of the proxy's */

	char upstream[INET6_ADDRSTRLEN + 8]; /* address and port that were dialled */
	unsigned int back_version;           /* of HTTP towards the world */
	bool reused;                         /* over a connection that was open already */
	bool repeated;                       /* that died, and then over another one */
	struct spending spending;            /* of the answer, for budgets */
	uint64_t prepaid; /* bytes of the request's body that were spent before it was sent */
	uint64_t
		open; /* its answer is still to be counted: the budgets hold something for it; 0: nothing */
	bool whole;                /* its end came, or it was made here */
	bool uncounted;            /* it did not say it, or may have said more */
	size_t window_room;        /* taken of the proxy's trees to undo the answer's coding */
	bool over_budget;          /* cut where the bytes ended */
	struct capture sent, came; /* bodies of the request and of the answer */
	uint64_t ws_messages[2], ws_frames[2],
		ws_bytes[2]; /* WebSocket: from the sandbox, from the world */
};

/**
 * exchange_run() - the whole of one exchange on @front.
 * Return: 0 when there was one (whatever came of it); -EPIPE, -ETIMEDOUT, … when no request came. Context: fiber; waits.
 */
int exchange_run(struct proxy_conn *conn, struct channel *front);

/** exchange_answer() - answer with a short JSON document instead of asking the world; with the head alone where @status has no content (204, 205, 304). @code: a word for programs. Return: 0 or -errno. */
int exchange_answer(struct exchange *x, int status, const char *code);

/** exchange_no() - answer what cannot go on, by @rc: 503 when there is no room now (-EBUSY), 413 when it is too large (-ENOMEM), else 403 with @code. @x->reason says why. */
void exchange_no(struct exchange *x, int rc, const char *code);

/** exchange_because() - note why it was not simply forwarded. */
void exchange_because(struct exchange *x, const char *outcome, const char *fmt, ...)
	attr_printf(3, 4);

/** exchange_invite() - say 100 when the client waits for that before it sends the body. Return: 0 or -errno. */
int exchange_invite(struct exchange *x);

/** exchange_asked() - what is asked of a policy about @x. */
struct policy_request exchange_asked(const struct exchange *x, enum policy_stage stage);

/**
 * exchange_hold() - receive the request's body into @x->body, once. One that is larger than the policy's body_max is not held when its head says so, and only in part otherwise.
 * Return: 0; -ENOMEM when there was no room for it; what receiving said. Context: fiber; waits.
 */
int exchange_hold(struct exchange *x);

/** exchange_hold_anew() - the policy is another one: what is held counts as held for it, and exchange_hold() goes on with what is not. */
void exchange_hold_anew(struct exchange *x);

/** exchange_may_be_json() - can rules read the body? As body_may_be_json(); with two types or codings nobody knows. */
bool exchange_may_be_json(const struct head *rq);

/**
 * exchange_read_json() - read the held body into @x->json; NULL when it cannot be read.
 * @whole: all of it, to be changed; else what rules look at.
 * Return: 0; -ENOMEM when there was no room for it. Context: fiber; waits.
 */
int exchange_read_json(struct exchange *x, bool whole);

/** exchange_forget_json() - nobody looks at @x->json any more. */
void exchange_forget_json(struct exchange *x);

/** exchange_unread() - what is to be said behind a verdict on a body, or a WebSocket, that nobody could read; "" otherwise. Static. */
const char *exchange_unread(const struct exchange *x);

/** exchange_reserve() - make sure that @n bytes can be held in place of the body, which is held as a whole. To be called before room of the proxy's trees is taken: who has that must not wait here. Return: 0; -ENOMEM without room. Context: fiber; waits. */
int exchange_reserve(struct exchange *x, size_t n) attr_must_use;

/** exchange_replace_body() - send what @with holds instead of the request's body, which is held as a whole; it is empty then. */
void exchange_replace_body(struct exchange *x, struct held *with);

/** exchange_restate_body() - @x->json was changed, and is whole: make it the body. Return: false when it is too large. */
bool exchange_restate_body(struct exchange *x);

/** exchange_turn() - @n more bytes of something long were worked through since *@done: let others have a turn now and then. Context: fiber; waits. */
void exchange_turn(size_t *done, size_t n);

/** exchange_take() - spend @n bytes that are about to pass. Return: how many may; when not all, @x says so. Context: fiber; waits. */
uint64_t exchange_take(struct exchange *x, uint64_t n) attr_must_use;

/** exchange_count() - add what the answer brought, if anything, to the budgets that hold something for it; once. Context: fiber; waits. */
void exchange_count(struct exchange *x);

/** exchange_tell() - emit net.exchange. */
void exchange_tell(struct exchange *x);

/** capture_begin() - a body comes, perhaps once more. @scrub is taken over: what it finds is hidden before it is cut or escaped, as it would not be known behind that; NULL: nothing. */
void capture_begin(struct capture *c, struct scrub *scrub);

/** capture_add() - keep a piece, as far as there is room. */
void capture_add(struct capture *c, const void *p, size_t n);

/** capture_end() - nothing follows: what may be the beginning of a secret is hidden too. */
void capture_end(struct capture *c);

#endif
