/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's body, held and read for rules. Three bounds: how long it may be (the policy says it), how much of all bodies is held at once (held.h), and how much of trees and decoders there is at once
 * (proxy->trees): of a tree that is read to decide only what rules look at (policy/sieve.h), all of it only for whoever changes the body. While a long one is read others have their turn.
 */
#include "base/clock.h"
#include "gateway/body.h"
#include "gateway/exchange.h"
#include "policy/body_type.h"
#include "policy/sieve.h"

#define TREE_MAX   (8U << 20) /* of what rules look at in one body */
#define TREE_RATIO 80         /* bytes of tree that a byte of text can make, at most */
#define TURN       (2U << 20) /* bytes that are read in a turn */
#define FIRST      16384U     /* reserved of a body of unknown length */

/* Let everybody else go on for once. */
static void yield(void)
{
	struct waiters nobody;

	waiters_init(&nobody);
	(void)!waiters_wait(&nobody, clock_now_ns() + NS_PER_MS);
}

void exchange_turn(size_t *done, size_t n)
{
	*done += n;
	if (*done < TURN)
		return;
	*done = 0;
	yield();
}

/* ---- holding ---------------------------------------------------------------------------------------------------------------- */

int exchange_reserve(struct exchange *x, size_t n)
{
	return held_reserve(&x->body, &x->proxy->held, n, clock_now_ns() + x->proxy->room_ns) < 0
		       ? -ENOMEM
		       : 0;
}

/* Room for @n more bytes of a body whose length nobody knows: it doubles up to a piece. */
static int reserve_more(struct exchange *x, size_t n)
{
	size_t want = x->body.n + n, step = x->body.n < HELD_PIECE ? x->body.n : HELD_PIECE;

	if (want <= x->body.reserved)
		return 0;
	return exchange_reserve(x, want + (step > FIRST ? step : FIRST));
}

static size_t body_max(const struct exchange *x)
{
	return x->policy != NULL ? policy_body_max(x->policy) : 0;
}

void exchange_hold_anew(struct exchange *x)
{
	x->held = x->held && x->body_whole;
	x->too_large = x->held && x->body.n > body_max(x);
}

int exchange_hold(struct exchange *x)
{
	size_t max = body_max(x);
	bool known = x->request.body == HTTP_BODY_LENGTH;
	int rc;

	if (x->held)
		return 0;
	x->held = true;
	x->too_large = known && x->request.length > max;
	if (x->too_large)
		return 0; /* none of it */
	rc = exchange_reserve(x, known ? x->request.length : FIRST);
	if (rc == 0)
		rc = exchange_invite(x);
	while (rc == 0 && !x->front->body_ended && x->body.n <= max) {
		const char *piece;
		ssize_t n = channel_recv(x->front, &piece, clock_now_ns() + PROXY_STALL_NS);

		if (n < 0)
			return (int)n;
		rc = reserve_more(x, (size_t)n);
		if (rc == 0)
			rc = held_add(&x->body, piece, (size_t)n);
	}
	x->body_whole = x->front->body_ended;
	x->too_large = !x->body_whole;
	return rc;
}

/* ---- what it says that it is ------------------------------------------------------------------------------------------------ */

/* What is sent by POST without a type is a form for many (Rack, CGI.pm, Python's cgi). */
static bool is_form_by_default(const struct head *rq)
{
	return head_field(rq, "content-type").n == 0 && text_is(rq->method, "POST");
}

bool exchange_may_be_json(const struct head *rq)
{
	return !head_unclear(rq, "content-type") && !head_unclear(rq, "content-encoding") &&
	       !is_form_by_default(rq) && body_may_be_json(head_field(rq, "content-type"));
}

/* ---- reading ---------------------------------------------------------------------------------------------------------------- */

static void add_path(const char *pointer, size_t string_bytes, void *ctx)
{
	sieve_paths_add(ctx, pointer, string_bytes);
}

struct reading {
	struct sieve *sieve;
	size_t done;
};

static int into_sieve(void *ctx, const char *p, size_t n)
{
	struct reading *r = ctx;

	exchange_turn(&r->done, n);
	return sieve_feed(r->sieve, p, n);
}

static json_t *read_through(
	const struct exchange *x, struct policy_text coding, size_t max, struct sieve *sieve)
{
	struct reading reading = { .sieve = sieve };
	struct body_decoder *d = body_decoder_new(coding, max, into_sieve, &reading);
	struct held_piece *at = NULL;
	const char *p;
	size_t n;
	int rc = d != NULL ? 0 : -EOPNOTSUPP;

	while (rc == 0 && (p = held_next(&x->body, &at, &n)) != NULL)
		rc = body_decoder_feed(d, p, n);
	if (rc == 0)
		rc = body_decoder_end(d);
	body_decoder_free(d);
	return rc == 0 ? sieve_end(sieve) : NULL;
}

/* Room for a tree, what is there beside it while a string of it is written anew, and what undoes the coding; it is taken at once, so nobody waits for more who has some. */
static int read_tree(
	struct exchange *x, const struct sieve_paths *paths, size_t tree_max, size_t beside)
{
	struct policy_text coding = head_field(&x->request, "content-encoding");
	size_t need = body_window(coding) + tree_max + beside;
	struct sieve *sieve;

	if (room_take(&x->proxy->trees, need, clock_now_ns() + x->proxy->room_ns) < 0)
		return -ENOMEM;
	sieve = sieve_new(paths, tree_max);
	x->json = read_through(x, coding, policy_body_max(x->policy), sieve);
	x->json_room = x->json != NULL ? sieve_memory(sieve) + beside : 0;
	room_give(&x->proxy->trees, need - x->json_room);
	sieve_free(sieve);
	return 0;
}

static int read_to_judge(struct exchange *x)
{
	bool coded = head_field(&x->request, "content-encoding").n > 0;
	size_t most = x->body.n * TREE_RATIO + 1024;
	struct policy_request asked = exchange_asked(x, POLICY_HEAD);
	struct sieve_paths *paths = sieve_paths_new();
	int rc;

	policy_reads_body(x->policy, &asked, add_path, paths);
	rc = read_tree(x, paths, !coded && most < TREE_MAX ? most : TREE_MAX, 0);
	sieve_paths_free(paths);
	return rc;
}

/* Reads all of it and keeps nothing. Return: 0, with what its tree takes and what it is when it is written anew, at most, both 0 when it cannot be read; -ENOMEM without room. */
static int measure(const struct exchange *x, size_t *ret_tree, size_t *ret_text)
{
	struct policy_text coding = head_field(&x->request, "content-encoding");
	struct room *trees = &x->proxy->trees;
	struct sieve_paths *nothing = NULL;
	struct sieve *sieve;
	json_t *root;

	*ret_tree = *ret_text = 0;
	if (room_take(trees, body_window(coding), clock_now_ns() + x->proxy->room_ns) < 0)
		return -ENOMEM;
	nothing = sieve_paths_new();
	sieve = sieve_new(nothing, TREE_MAX);
	root = read_through(x, coding, policy_body_max(x->policy), sieve);
	if (root != NULL) {
		*ret_tree = sieve_memory_of_all(sieve);
		*ret_text = sieve_text_of_all(sieve);
	}
	json_decref(root);
	sieve_free(sieve);
	sieve_paths_free(nothing);
	room_give(trees, body_window(coding));
	return 0;
}

/*
 * How much a body becomes when its coding is undone, and how much of a tree, nobody knows before: it may be a thousand times as much. So it is read twice, and counts as what it is.
 * A string that is written anew is there twice beside the tree: as it was found or put together, and as the tree or the body gets it. What the body becomes has its room before there is a tree: who
 * has room for that waits for no other, so those who wait here get theirs.
 */
static int read_to_change(struct exchange *x)
{
	size_t max = policy_body_max(x->policy), tree, text;
	int rc = measure(x, &tree, &text);

	if (rc < 0 || tree == 0)
		return rc;
	text = secrets_grown(x->secrets, text);
	text = text < max ? text : max;
	if (exchange_reserve(x, text) < 0)
		return -ENOMEM;
	return read_tree(x, NULL, tree < max + TREE_MAX ? tree : max + TREE_MAX, 2 * text);
}

int exchange_read_json(struct exchange *x, bool whole)
{
	exchange_forget_json(x);
	if (!x->body_whole || x->too_large || !exchange_may_be_json(&x->request))
		return 0;
	return whole ? read_to_change(x) : read_to_judge(x);
}

void exchange_forget_json(struct exchange *x)
{
	json_decref(x->json);
	x->json = NULL;
	room_give(&x->proxy->trees, x->json_room);
	x->json_room = 0;
}

const char *exchange_unread(const struct exchange *x)
{
	if (x->request.websocket)
		return " (it asks for a WebSocket, whose messages no rule reads: upgrade in the policy)";
	if (x->request.body == HTTP_BODY_NONE || !x->asked_body || x->readable)
		return "";
	if (x->too_large)
		return " (its body is larger than rules read: body_max of the policy)";
	return is_form_by_default(&x->request)
		       ? " (its body could be a form: there is no Content-Type)"
		       : " (its body is no JSON that a rule can read)";
}

/* ---- changing --------------------------------------------------------------------------------------------------------------- */

void exchange_replace_body(struct exchange *x, struct held *with)
{
	held_replace(&x->body, with);
	head_remove(&x->request, "content-encoding");
	x->request.body = HTTP_BODY_LENGTH;
	x->request.has_length = true;
	x->request.length = x->body.n;
}

struct restated {
	struct held text;
	size_t max;
};

static int add_text(const char *p, size_t n, void *ctx)
{
	struct restated *r = ctx;

	return n > r->max - r->text.n || held_add(&r->text, p, n) < 0 ? -1 : 0;
}

bool exchange_restate_body(struct exchange *x)
{
	struct restated r = { .max = policy_body_max(x->policy) };
	bool ok;

	/* pieces of the length that it will be, at most: what is written comes in bytes */
	r.text.reserved = x->body.reserved;
	ok = sieve_write(x->json, add_text, &r) == 0;
	r.text.reserved = 0;
	if (ok)
		exchange_replace_body(x, &r.text);
	held_free(&r.text);
	return ok;
}
