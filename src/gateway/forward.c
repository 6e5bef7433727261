/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two flows of bytes, each in its own fiber: the request's body to the world, the answer's to the sandbox. A flow sends what it has before it waits for
 * more, so that streams keep their timing, and it waits while the other side is slow, so that nothing piles up.
 */
#include "base/clock.h"
#include "gateway/body.h"
#include "gateway/form_method.h"
#include "gateway/stage.h"
#include "gateway/upstream.h"
#include "gateway/websocket.h"

struct flow {
	struct exchange *x;
	struct channel *from, *to;
	struct capture *capture;
	const struct shaping *shape;
	struct scrub *scrub;     /* what the body goes through, or NULL */
	struct form_method form; /* looks for another method in a form, in front of the scrub */
	struct buf scrubbed;
	bool sends; /* a request: the scrub watches for placeholders */
	uint64_t passed;
	int read_error, write_error; /* -errno */
	bool cut;                    /* as a fault asks, or where a budget of bytes ends */
	bool misnamed;               /* its form says a method that is not let through */
	bool watched;                /* to its end, for placeholders */
	bool done;
	struct waiters ended;
};

/*
 * Trailers of a request come when it was judged already, and some servers take them for fields of its head: what says how it is to be read, who sends it, or what a
 * rule looks at goes no further. Return: 0 or -EACCES.
 */
static int check_trailers(struct exchange *x)
{
	struct channel *c = x->front;
	size_t kept = 0;

	for (size_t i = 0; i < c->n_trailers; i++)
		if (head_may_trail(c->trailers[i].name) &&
			!policy_reads_header(x->policy, c->trailers[i].name))
			c->trailers[kept++] = c->trailers[i];
	c->n_trailers = kept;
	return secrets_check_fields(x, c->trailers, c->n_trailers);
}

/* A form says @method instead of the request's own: would that be let through, too? Return: 0 or -EACCES. */
static int judge_method(struct exchange *x, struct policy_text method)
{
	struct policy_request asked = exchange_asked(x, POLICY_BODY);
	struct policy_verdict verdict;

	asked.form_says_method = true;
	asked.form_method = method;
	policy_decide(x->policy, &asked, &verdict);
	if (verdict.rule == x->rule ||
		(verdict.action == POLICY_ALLOW && verdict.rule->n_budgets == 0))
		return 0;
	exchange_because(x, "denied",
		"the form says another method (_method) than the request: %.*s",
		method.n > 0 && method.n < 32 ? (int)method.n : 11,
		method.n > 0 && method.n < 32 ? method.p : "nobody knows");
	return -EACCES;
}

/* A piece of the request's body, or its end (@p NULL), is looked at before it goes out. Return: 0 or -EACCES. */
static int check_form(struct exchange *x, struct form_method *form, const char *p, size_t n)
{
	struct policy_text method;
	size_t used;
	int rc = 0;

	while (rc == 0 && form_method_feed(form, p, n, &used, &method)) {
		rc = judge_method(x, method);
		if (p == NULL)
			break;
		p += used;
		n -= used;
	}
	return rc;
}

static int watch_form(struct flow *f, const char *p, size_t n)
{
	int rc = check_form(f->x, &f->form, p, n);

	f->misnamed = rc < 0;
	return rc;
}

/* The same of a body that is held as a whole. */
static int check_held_form(struct exchange *x)
{
	struct held_piece *at = NULL;
	struct form_method form;
	size_t n, done = 0;
	const char *p;
	int rc = 0;

	form_method_begin(&form, &x->request);
	while (rc == 0 && form.kind != FORM_NONE && (p = held_next(&x->body, &at, &n)) != NULL) {
		rc = check_form(x, &form, p, n);
		exchange_turn(&done, n);
	}
	return rc == 0 ? check_form(x, &form, NULL, 0) : rc;
}

/*
 * How long to wait for a piece is a question for the answer's flow alone: the request's is stopped when that has ended, and may be silent until then as a side of a conversation is.
 * A host says nothing while it has not heard everything, so that counts from when the last of the request went out.
 */
static ssize_t await_piece(struct flow *f, const char **ret)
{
	const struct exchange *x = f->x;
	uint64_t sent;
	ssize_t n;

	if (f->sends)
		return channel_recv(f->from, ret, 0);
	do {
		sent = x->back->sent;
		n = channel_recv(f->from, ret, clock_now_ns() + x->proxy->answer_ns);
	} while (n == -ETIMEDOUT && x->back->sent != sent);
	return n;
}

/* What is over the rule's budget of bytes is cut off. */
static size_t within_budget(struct flow *f, size_t n)
{
	uint64_t paid = 0, may;

	if (f->sends) { /* as much as was said beforehand, or is held */
		paid = f->x->prepaid < n ? f->x->prepaid : n;
		f->x->prepaid -= paid;
	}
	may = paid + exchange_take(f->x, n - paid);
	f->cut = f->cut || may < n;
	return (size_t)may;
}

static int pass(struct flow *f, const char *p, size_t n)
{
	n = within_budget(f, n);
	capture_add(f->capture, p, n);
	if (!f->sends)
		spending_feed(&f->x->spending, p, n);
	f->passed += n;
	return channel_send(f->to, p, n);
}

/* Not faster than asked: slices of a tenth of a second. */
static int pass_slowly(struct flow *f, const char *p, size_t n)
{
	uint64_t slice = f->shape->rate_bytes / 10 + 1;
	int rc = 0;

	while (n > 0 && rc == 0 && !f->x->over_budget) {
		size_t now = n < slice ? n : (size_t)slice;

		stage_sleep(now * NS_PER_S / f->shape->rate_bytes);
		rc = pass(f, p, now);
		if (rc == 0)
			rc = channel_flush(f->to);
		p += now;
		n -= now;
	}
	return rc;
}

static int pass_shaped(struct flow *f, const char *p, size_t n)
{
	const struct shaping *s = f->shape;

	if (s != NULL && s->truncates && f->passed + n > s->truncate_bytes) {
		n = (size_t)(s->truncate_bytes - f->passed);
		f->cut = true;
	}
	return s != NULL && s->rate_bytes > 0 ? pass_slowly(f, p, n) : pass(f, p, n);
}

/* What the scrub gives out for @n bytes, or at the end (@p NULL) for what it held back. */
static int pass_scrubbed(struct flow *f, const char *p, size_t n)
{
	int rc = f->sends ? watch_form(f, p, n) : 0;

	if (rc < 0 || f->scrub == NULL)
		return rc == 0 && p != NULL ? pass_shaped(f, p, n) : rc;
	buf_reset(&f->scrubbed);
	if (p != NULL)
		scrub_write(f->scrub, p, n, &f->scrubbed);
	else
		scrub_end(f->scrub, &f->scrubbed);
	if (f->sends)
		rc = secrets_watched(f->x, f->scrub, "body", p == NULL);
	f->watched = f->watched || p == NULL;
	return rc == 0 && f->scrubbed.n > 0 ? pass_shaped(f, f->scrubbed.p, f->scrubbed.n) : rc;
}

/* What is held back for the bytes behind it goes out without them. */
static void pass_held(struct flow *f)
{
	buf_reset(&f->scrubbed);
	scrub_let_go(f->scrub, &f->scrubbed);
	f->write_error = pass_shaped(f, f->scrubbed.p, f->scrubbed.n);
	if (f->write_error == 0)
		f->write_error = channel_flush(f->to);
}

/* The next piece; what was sent so far goes out before this waits, and before it waits for long what is held back of it: the other side may have to say something to it. */
static ssize_t next_piece(struct flow *f, const char **ret)
{
	ssize_t n = channel_recv(f->from, ret, 1); /* only what is there */

	if (n != -ETIMEDOUT)
		return n;
	f->write_error = channel_flush(f->to);
	if (f->write_error == 0 && f->scrub != NULL && scrub_holds(f->scrub)) {
		n = channel_recv(f->from, ret, clock_now_ns() + PROXY_PAUSE_NS);
		if (n != -ETIMEDOUT)
			return n;
		pass_held(f);
	}
	return f->write_error < 0 || f->cut ? n : await_piece(f, ret);
}

static int pass_end(struct flow *f)
{
	int rc = pass_scrubbed(f, NULL, 0);

	if (rc == 0 && !f->sends)
		rc = secrets_scrub_fields(f->x, f->from->trailers, f->from->n_trailers);
	else if (rc == 0)
		rc = check_trailers(f->x);
	return rc == 0 && !f->cut ? channel_send_end(f->to, f->from->trailers, f->from->n_trailers)
				  : rc;
}

void exchange_count(struct exchange *x)
{
	const struct proxy_hooks *hooks = &x->proxy->hooks;
	struct ledger_amounts amounts = { 0 };
	json_t *said;

	if (x->open == 0)
		return;
	amounts.opened = x->open;
	x->open = 0;
	said = spending_end(&x->spending);
	amounts.body = said;
	amounts.answered = x->answered && x->answer.status / 100 == 2;
	amounts.cut = !x->whole;
	x->uncounted = amounts.answered && (amounts.cut || spending_lacks(x->rule, said));
	waiters_wake(&x->proxy->counted); /* they go on when it was added, and waits */
	if (hooks->add != NULL)
		hooks->add(hooks->ctx, x->policy, x->verdict.rule_index, &amounts);
	json_decref(said);
}

static void flow_run(struct flow *f)
{
	const char *piece;
	ssize_t n;

	while (f->write_error == 0 && !f->cut && (n = next_piece(f, &piece)) != 0) {
		if (n < 0 && !f->cut) {
			f->read_error = f->write_error == 0 ? (int)n : 0;
			return;
		}
		if (!f->cut)
			f->write_error = pass_scrubbed(f, piece, (size_t)n);
	}
	if (!f->sends && f->write_error == 0) {
		f->x->whole = !f->cut;
		exchange_count(f->x); /* before the sandbox has the end of it */
	}
	if (!f->cut && f->write_error == 0)
		f->write_error = pass_end(f);
	if (f->cut)
		f->write_error = channel_flush(f->to);
}

static void flow_fini(struct flow *f)
{
	scrub_free(f->scrub);
	buf_free(&f->scrubbed);
}

/* ---- who does not wait ------------------------------------------------------------------------------------------------------ */

/* What budgets still want to know of the answer is heard out (listen_on()). */
static void has_left(struct exchange *x)
{
	list_remove(&x->half_closed);
	x->left = true;
	if (x->open == 0)
		channel_stop(x->back);
}

static bool is_gone(const struct exchange *x)
{
	const struct proxy_hooks *hooks = &x->proxy->hooks;

	return hooks->left != NULL && hooks->left(hooks->ctx, x->conn);
}

static void on_left(void *ctx, bool sure)
{
	struct exchange *x = ctx;

	if (sure || is_gone(x))
		has_left(x);
	else
		list_append(&x->proxy->half_closed, &x->half_closed);
}

void forward_tick(struct proxy *p)
{
	list_for_each (&p->half_closed, node, next) {
		struct exchange *x = list_entry(node, struct exchange, half_closed);

		if (is_gone(x))
			has_left(x);
	}
}

/* While the request is received its reader sees the end. */
static void watch(struct exchange *x)
{
	if (x->front->body_ended)
		channel_watch(x->front, on_left, x);
}

static void unwatch(struct exchange *x)
{
	channel_watch(x->front, NULL, NULL);
	list_remove(&x->half_closed);
}

static void not_waited_for(struct exchange *x)
{
	exchange_because(x, "failed", "the sandbox did not wait for the answer");
	channel_abort(x->front);
}

/* ---- the request ------------------------------------------------------------------------------------------------------------ */

/* What is held of the body. Return: 0 or -errno. */
static int send_held(struct exchange *x)
{
	struct held_piece *at = NULL;
	const char *p;
	int rc = 0;
	size_t n;

	while (rc == 0 && (p = held_next(&x->body, &at, &n)) != NULL) {
		capture_add(&x->sent, p, n);
		rc = channel_send(x->back, p, n);
	}
	if (rc == 0 && x->body_whole)
		rc = channel_send_end(x->back, x->front->trailers, x->front->n_trailers);
	return rc;
}

/* What is held is not sent again: others wait for its room. */
static void let_go(struct exchange *x)
{
	x->body_gone = true;
	held_free(&x->body);
}

/* Of a body that is not held as a whole, what is; @f goes on with the rest, so what its scrub holds back was paid for. Return: 0 or -errno. */
static int send_begun(struct flow *f)
{
	struct held_piece *at = NULL;
	size_t n, held = f->x->body.n, sent = 0;
	const char *p;
	int rc = 0;

	while (rc == 0 && (p = held_next(&f->x->body, &at, &n)) != NULL) {
		rc = watch_form(f, p, n);
		if (rc == 0 && f->scrub != NULL) {
			buf_reset(&f->scrubbed);
			scrub_write(f->scrub, p, n, &f->scrubbed);
			rc = secrets_watched(f->x, f->scrub, "body", false);
			p = f->scrubbed.p;
			n = f->scrubbed.n;
		}
		if (rc == 0 && n > 0) {
			capture_add(f->capture, p, n);
			rc = channel_send(f->to, p, n);
		}
		sent += n;
	}
	f->x->prepaid += held - sent;
	if (rc == 0)
		let_go(f->x);
	return rc;
}

static void upload(void *arg)
{
	struct flow *f = arg;
	struct exchange *x = f->x;

	f->write_error = x->body_whole ? send_held(x) : send_begun(f);
	if (f->write_error == 0 && !x->body_whole)
		flow_run(f);
	if (f->scrub != NULL && !f->watched && f->write_error != -EACCES)
		(void)!secrets_watched(x, f->scrub, "body", true); /* told, though it broke off */
	if (f->write_error == 0 && (x->body.n > PROXY_KEPT_MAX || x->answered))
		let_go(x);
	if (!x->body_whole)
		watch(x);
	/* When the rest will never come no answer can be waited for; a host that closed may have answered before. */
	if (f->read_error < 0 || f->write_error == -ETIMEDOUT || f->write_error == -EACCES ||
		f->cut)
		channel_stop(f->to);
	f->done = true;
	waiters_wake(&f->ended);
}

static struct policy_text authority_text(struct exchange *x)
{
	const struct authority *a = &x->host;
	bool v6 = strchr(a->host, ':') != NULL;
	char text[AUTHORITY_HOST_SIZE + 10], *copy;

	if (a->port == (x->conn->tls ? 443 : 80))
		(void)snprintf(text, sizeof(text), v6 ? "[%s]" : "%s", a->host);
	else
		(void)snprintf(text, sizeof(text), v6 ? "[%s]:%u" : "%s:%u", a->host, a->port);
	copy = arena_copy(&x->arena, text, strlen(text));
	return copy != NULL ? text_of(copy) : (struct policy_text){ 0 };
}

/* Makes of the request what is sent to the world. */
static void prepare(struct exchange *x)
{
	struct head *rq = &x->request;

	rq->authority = authority_text(x);
	rq->scheme = text_of(x->conn->tls ? "https" : "http");
	rq->path = x->path;
	if (spending_wanted(x->rule)) { /* a compressed stream could not be read as it passes */
		head_remove(rq, "accept-encoding");
		(void)!head_add(rq, "accept-encoding", text_of("identity"));
	}
	if (rq->websocket)
		head_remove(rq,
			"sec-websocket-extensions"); /* no compression: frames must be readable */
}

/* A small body goes together with its head; of a large one an answer may come before its end. */
static bool sent_at_once(const struct exchange *x)
{
	return x->request.body == HTTP_BODY_NONE || (x->body_whole && x->body.n <= HELD_PIECE);
}

/* The head, and a small body. Return: 0 or -errno. */
static int send_request(struct exchange *x)
{
	bool bare = x->request.body == HTTP_BODY_NONE;
	int rc = channel_send_head(x->back, &x->request, bare);

	capture_begin(&x->sent, bare ? NULL : secrets_hide_body(x));
	if (rc == 0 && !bare && sent_at_once(x))
		rc = send_held(x);
	else if (rc == 0)
		rc = channel_flush(x->back);
	x->at[EXCHANGE_SENT] = clock_now_ns();
	return rc;
}

/* ---- the answer ------------------------------------------------------------------------------------------------------------- */

/* The final answer's head; what comes before it (1xx) concerns nobody here. */
static int await_answer(struct exchange *x)
{
	uint64_t sent;
	int rc;

	do {
		sent = x->back->sent;
		rc = channel_recv_head(x->back, &x->answer, clock_now_ns() + x->proxy->answer_ns);
	} while ((rc == 0 && x->answer.status < 200 && x->answer.status != 101) ||
		 (rc == -ETIMEDOUT && x->back->sent != sent));
	x->at[EXCHANGE_ANSWERED] = clock_now_ns();
	return rc;
}

/* @why: @detail; answered with @status when nothing was yet. */
static void fail(struct exchange *x, int status, const char *why, const char *detail)
{
	if (!x->over_budget)
		exchange_because(x, "failed", "%s%s%s", why, detail != NULL ? ": " : "",
			detail != NULL ? detail : "");
	if (!x->answered)
		(void)!exchange_answer(x, status, "upstream");
}

/* A host whose addresses take another rule stays so: clients that see a 502 try again and again. */
static void unreachable(struct exchange *x, const struct err *why)
{
	bool denied = why->code == ERR_DENIED;

	exchange_because(x, "failed", "%s", why->msg);
	(void)!exchange_answer(x, denied ? 403 : 502, denied ? "denied" : "upstream");
}

/* The answer's head cannot be shown. Return: false. */
static bool refuse_answer(struct exchange *x)
{
	(void)!exchange_answer(x, 502, "secret");
	return false;
}

static bool upgraded(struct exchange *x)
{
	if (!x->answer.websocket)
		return false;
	if (!websocket_agreed(x)) {
		fail(x, 502, "the world agrees on a WebSocket that was not asked for", NULL);
		return true;
	}
	if (head_field(&x->answer, "sec-websocket-extensions").p != NULL) {
		fail(x, 502, "the world agrees on a WebSocket extension that was not asked for",
			NULL);
		return true;
	}
	if (secrets_scrub_head(x) < 0) {
		(void)refuse_answer(x);
		return true;
	}
	x->answered = true;
	unwatch(x); /* both sides are read from now on */
	if (channel_send_head(x->front, &x->answer, true) == 0 && channel_flush(x->front) == 0)
		websocket_relay(x, container_of(x->front, struct http1, ch),
			container_of(x->back, struct http1, ch));
	return true;
}

/* Nobody takes the answer any more; what it says at its end is counted all the same, when that comes before too long. */
static void listen_on(struct flow *f)
{
	uint64_t until = clock_now_ns() + f->x->proxy->listen_ns, next;
	const char *piece;
	ssize_t n = 1;

	while (f->x->open != 0 && n > 0 && clock_now_ns() < until) {
		next = clock_now_ns() + PROXY_STALL_NS;
		n = channel_recv(f->from, &piece, next < until ? next : until);
		if (n > 0)
			spending_feed(&f->x->spending, piece, (size_t)n);
	}
	f->x->whole = n == 0;
}

/* A host may code its answer though it was asked not to: room to undo that. Without it the answer counts as one that cannot be read. */
static void begin_spending(struct exchange *x)
{
	size_t window = 0;

	if (!spending_wanted(x->rule))
		return;
	spending_begin(&x->spending, x->rule, &x->answer);
	if (x->spending.decoder != NULL && x->answer.body != HTTP_BODY_NONE)
		window = body_window(head_field(&x->answer, "content-encoding"));
	if (window == 0)
		return;
	if (room_take(&x->proxy->trees, window, clock_now_ns() + PROXY_STALL_NS) < 0)
		spending_fini(&x->spending);
	else
		x->window_room += window;
}

/* Return: did both sides end well? */
static bool pass_answer(struct exchange *x, const struct shaping *shape)
{
	bool bare = x->answer.body == HTTP_BODY_NONE;
	struct flow f = { .x = x,
		.from = x->back,
		.to = x->front,
		.capture = &x->came,
		.shape = shape,
		.scrub = secrets_scrub_body(x),
		.scrubbed = BUF_INIT(SIZE_MAX / 2) };

	x->answered = true;
	x->whole = bare;
	begin_spending(x);
	f.write_error = channel_send_head(x->front, &x->answer, bare);
	if (bare && f.write_error == 0)
		f.write_error = channel_flush(x->front);
	else if (f.write_error == 0)
		flow_run(&f);
	if (f.read_error < 0 && x->left) {
		not_waited_for(x);
	} else if (f.read_error < 0 || f.cut) {
		if (f.read_error < 0)
			fail(x, 502, "the answer broke off", strerror(-f.read_error));
		/* a reset would take along what is on its way; without its end the answer is seen to be cut */
		if (!x->over_budget || x->front->version != 1)
			channel_abort(x->front);
	} else if (f.write_error < 0) {
		listen_on(&f);
		exchange_because(x, "failed", "the sandbox did not take the answer: %s",
			strerror(-f.write_error));
	}
	flow_fini(&f);
	return f.read_error == 0 && f.write_error == 0 && !f.cut;
}

/* ---- both ------------------------------------------------------------------------------------------------------------------- */

static void upload_begin(struct flow *f, struct exchange *x)
{
	*f = (struct flow){ .x = x,
		.from = x->front,
		.to = x->back,
		.capture = &x->sent,
		.scrubbed = BUF_INIT(SIZE_MAX / 2),
		.sends = true,
		.done = true };
	waiters_init(&f->ended);
	if (sent_at_once(x))
		return;
	if (!x->body_whole) {
		f->scrub = secrets_watch(x);
		form_method_begin(&f->form, &x->request);
	}
	f->done = false;
	fiber_start(upload, f);
}

/* Nobody wants the rest of the request when its answer is complete. */
static void upload_end(struct flow *f)
{
	if (!f->done)
		channel_stop(f->from);
	while (!f->done)
		(void)!waiters_wait(&f->ended, 0);
	flow_fini(f);
}

/* May the request be sent a second time though the first may have been carried out (RFC 9110 9.2.2)? */
static bool idempotent(const struct head *rq)
{
	static const char *const methods[] = { "GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE" };

	if (head_count(rq, "x-http-method-override") + head_count(rq, "x-http-method") +
			head_count(rq, "x-method-override") >
		0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (text_is(rq->method, methods[i]))
			return true;
	return false;
}

static bool broke_off(int rc)
{
	return rc == -EPIPE || rc == -ECONNRESET || rc == -EPROTO;
}

/* Can the request that a kept connection died under be sent once more? */
static bool repeatable(const struct exchange *x, const struct upstream *up)
{
	if (!x->reused || x->back->begun || x->body_gone ||
		(x->request.body != HTTP_BODY_NONE && !x->body_whole))
		return false;
	return upstream_untouched(x, up) || idempotent(&x->request);
}

static void no_answer(struct exchange *x, int rc)
{
	if (broke_off(rc) && x->reused && !x->back->begun && !idempotent(&x->request)) {
		exchange_because(x, "failed",
			"the kept connection ended before an answer; a %.*s is not sent twice",
			(int)x->request.method.n, x->request.method.p);
		(void)exchange_answer(x, 502, "upstream");
		return;
	}
	fail(x, rc == -ETIMEDOUT ? 504 : 502, "no answer from the host",
		rc == -EBADMSG ? x->back->reason : strerror(-rc));
}

/* One try. Return: 0; -EAGAIN when a kept connection died under it and it may be sent again. */
static int attempt(struct exchange *x, const struct shaping *shape, bool fresh)
{
	struct upstream *up;
	struct err err;
	struct flow sending = { 0 };
	bool well = false;
	int rc = upstream_open(x, fresh, &up, &err);

	if (rc < 0) {
		unreachable(x, &err);
		return 0;
	}
	x->at[EXCHANGE_CONNECTED] = clock_now_ns();
	rc = send_request(x);
	if (rc == 0) {
		upload_begin(&sending, x);
		watch(x);
		rc = await_answer(x);
		if (rc == 0 && sending.done)
			let_go(x);
		if (rc == 0 && !upgraded(x))
			well = secrets_scrub_head(x) == 0 ? pass_answer(x, shape)
							  : refuse_answer(x);
		upload_end(&sending);
		unwatch(x);
		well = well && sending.read_error == 0 && sending.write_error == 0 && !sending.cut;
	}
	if (rc == -ECANCELED && sending.write_error == -EACCES)
		(void)!exchange_answer(x, 403, sending.misnamed ? "denied" : "secret");
	else if (rc == -ECANCELED && sending.cut)
		(void)!exchange_answer(x, 429, "budget");
	else if (rc < 0 && x->left)
		not_waited_for(x);
	else if (rc == -ECANCELED)
		fail(x, 400, "the request's body broke off",
			x->front->reason != NULL ? x->front->reason
						 : strerror(-sending.read_error));
	else if (broke_off(rc) && !fresh && repeatable(x, up))
		rc = -EAGAIN;
	else if (rc < 0)
		no_answer(x, rc);
	x->back_version = x->back->version;
	upstream_close(x, up, well);
	return rc == -EAGAIN ? rc : 0;
}

void forward(struct exchange *x, const struct shaping *shape)
{
	int rc;

	prepare(x);
	if (x->request.authority.n == 0) {
		fail(x, 503, "no memory", NULL);
		return;
	}
	if (x->body_whole && check_held_form(x) < 0) {
		exchange_no(x, -EACCES, "denied");
		return;
	}
	rc = secrets_place(x);
	if (rc == 0 && x->body_whole)
		rc = check_trailers(x);
	if (rc < 0) {
		exchange_no(x, rc, "secret");
		return;
	}
	if (exchange_invite(x) == 0 && attempt(x, shape, false) == -EAGAIN) {
		x->repeated = true;
		(void)!attempt(x, shape, true);
	}
}
