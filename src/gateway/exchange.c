/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nothing of a request reaches the world before it is canonical, its name, server name, authority and port agree, and a rule allows it; what is then sent is
 * written from the parsed values. Every request that was received has exactly one event, whatever came of it.
 */
#include "gateway/exchange.h"
#include "base/clock.h"
#include "base/str.h"
#include "codec/urlpath.h"
#include "gateway/stage.h"

#include <stdarg.h>

#define WORTH_WAITING_S 60 /* for a budget */

/* @text has no room for more of what it says: it ends behind a whole character, and shows it. */
static void show_cut(char *text, size_t size)
{
	static const char dots[] = "...";
	char *end = text + size - sizeof(dots);

	while (end > text && ((unsigned char)*end & 0xC0) == 0x80)
		end--;
	memcpy(end, dots, sizeof(dots));
}

void exchange_because(struct exchange *x, const char *outcome, const char *fmt, ...)
{
	va_list ap;
	int n;

	x->outcome = outcome;
	va_start(ap, fmt);
	n = vsnprintf(x->reason, sizeof(x->reason), fmt, ap);
	va_end(ap);
	if (n >= (int)sizeof(x->reason))
		show_cut(x->reason, sizeof(x->reason));
	str_utf8_tidy(x->reason); /* some of it may be the peer's */
}

/* ---- the beginnings of bodies ----------------------------------------------------------------------------------------------- */

static void keep(struct capture *c, const void *p, size_t n)
{
	size_t left = PROXY_CAPTURE_MAX - c->bytes.n;

	c->cut = c->cut || n > left;
	buf_add(&c->bytes, p, n < left ? n : left);
}

static void stop_hiding(struct capture *c)
{
	scrub_free(c->scrub);
	c->scrub = NULL;
}

/* No more of @p than may be wanted: a part of it is kept when what comes behind it is known. */
static void hide(struct capture *c, const char *p, size_t n)
{
	struct buf hidden = BUF_INIT(SIZE_MAX / 2);

	while (n > 0 && c->bytes.n < PROXY_CAPTURE_MAX) {
		size_t most = PROXY_CAPTURE_MAX - c->bytes.n + SCRUB_SECRET_MAX;
		size_t some = n < most ? n : most;

		buf_reset(&hidden);
		scrub_write(c->scrub, p, some, &hidden);
		keep(c, buf_cstr(&hidden), hidden.n);
		p += some;
		n -= some;
	}
	buf_free(&hidden);
	keep(c, p, n);
	if (c->cut)
		stop_hiding(c);
}

void capture_begin(struct capture *c, struct scrub *scrub)
{
	stop_hiding(c);
	c->scrub = scrub;
	buf_reset(&c->bytes);
	c->cut = false;
}

void capture_add(struct capture *c, const void *p, size_t n)
{
	if (c->scrub != NULL)
		hide(c, p, n);
	else
		keep(c, p, n);
}

void capture_end(struct capture *c)
{
	struct buf hidden = BUF_INIT(SIZE_MAX / 2);

	if (c->scrub == NULL)
		return;
	scrub_flush(c->scrub, &hidden);
	keep(c, buf_cstr(&hidden), hidden.n);
	buf_free(&hidden);
	stop_hiding(c);
}

static void capture_free(struct capture *c)
{
	stop_hiding(c);
	buf_free(&c->bytes);
}

/* ---- answering from here ---------------------------------------------------------------------------------------------------- */

/* npm prints `error` as text, which its registries send there. Client packages of model APIs want an object. */
static json_t *error_for(const struct exchange *x, const char *code)
{
	const char *rule = x->rule != NULL ? x->rule->name : NULL;

	if (head_field(&x->request, "npm-command").p != NULL)
		return json_pack(
			"{s:s, s:s, s:s*}", "error", x->reason, "code", code, "rule", rule);
	return json_pack(
		"{s:{s:s, s:s, s:s*}}", "error", "code", code, "message", x->reason, "rule", rule);
}

static char *error_document(const struct exchange *x, const char *code)
{
	json_t *error = error_for(x, code);
	char *text = error != NULL ? json_dumps(error, JSON_COMPACT) : NULL;

	json_decref(error);
	return text;
}

/* Client packages of model APIs wait as long as they are told, a day too, before anybody hears of it; they know a field that says not to. */
static void add_retry_after(struct exchange *x, bool budget)
{
	char text[24], *copy;

	(void)snprintf(text, sizeof(text), "%ju", (uintmax_t)x->retry_after_s);
	copy = arena_copy(&x->arena, text, strlen(text));
	if (x->retry_after_s > 0 && copy != NULL)
		(void)!head_add(&x->answer, "retry-after", text_of(copy));
	if (budget && (x->retry_after_s == 0 || x->retry_after_s > WORTH_WAITING_S))
		(void)!head_add(&x->answer, "x-should-retry", text_of("false"));
}

/* Does an answer with @status have no content at all? Of 205 that is who answers to keep to (RFC 9110 15.3.6). */
static bool has_no_content(int status)
{
	return http_status_bodiless(status) || status == 205;
}

int exchange_answer(struct exchange *x, int status, const char *code)
{
	cleanup_free char *text = error_document(x, code);
	bool empty = has_no_content(status), bare = empty || text_is(x->request.method, "HEAD");
	int rc;

	if (text == NULL) {
		channel_abort(x->front); /* who waits for an answer learns that there is none */
		return -ENOMEM;
	}
	x->answer.n_fields = 0;
	x->answer.status = status;
	x->answer.websocket = false;
	x->answer.has_length = !empty;
	x->answer.length = empty ? 0 : strlen(text);
	x->answer.body = bare ? HTTP_BODY_NONE : HTTP_BODY_LENGTH;
	if (!empty)
		(void)!head_add(&x->answer, "content-type", text_of("application/json"));
	(void)!head_add(&x->answer, "cache-control", text_of("no-store"));
	add_retry_after(x, str_eq(code, "budget"));
	x->at[EXCHANGE_ANSWERED] = clock_now_ns();
	x->answered = x->whole = true;
	rc = channel_send_head(x->front, &x->answer, bare);
	if (bare)
		return rc == 0 ? channel_flush(x->front) : rc;
	capture_add(&x->came, text, strlen(text));
	if (rc == 0)
		rc = channel_send(x->front, text, strlen(text));
	return rc == 0 ? channel_send_end(x->front, NULL, 0) : rc;
}

void exchange_no(struct exchange *x, int rc, const char *code)
{
	if (rc == -EBUSY)
		x->retry_after_s = 1;
	(void)!exchange_answer(x,
		rc == -EBUSY    ? 503
		: rc == -ENOMEM ? 413
				: 403,
		rc == -EBUSY    ? "busy"
		: rc == -ENOMEM ? "too_large"
				: code);
}

static void refuse(struct exchange *x, int status, const char *code, const char *why)
{
	exchange_because(x, "refused", "%s", why);
	(void)!exchange_answer(x, status, code);
}

/* ---- whom it is for --------------------------------------------------------------------------------------------------------- */

/* Clients send what is typed; what they should have made of it is better said than guessed. */
static bool is_raw(struct policy_text text)
{
	for (size_t i = 0; i < text.n; i++)
		if ((unsigned char)text.p[i] <= 0x20 || (unsigned char)text.p[i] >= 0x7f)
			return true;
	return false;
}

static bool canonical(struct exchange *x)
{
	const struct head *rq = &x->request;
	char *out = arena_alloc(&x->arena, rq->path.n + 2);
	ssize_t n;

	if (text_is(rq->method, "CONNECT")) {
		refuse(x, 405, "connect", "tunnels are not opened; connect to the host itself");
		return false;
	}
	if (rq->scheme.n > 0 && !text_is(rq->scheme, x->conn->tls ? "https" : "http")) {
		refuse(x, 400, "scheme", "the target's scheme is not the connection's");
		return false;
	}
	if (head_count(rq, "x-original-url") + head_count(rq, "x-rewrite-url") > 0) {
		refuse(x, 400, "target", "a header names another path than the target");
		return false;
	}
	/* what says it was taken out of the fields: these are written with '_' */
	if (head_count(rq, "content-length") + head_count(rq, "transfer-encoding") > 0) {
		refuse(x, 400, "framing",
			"a header could be read as one that says how long the body is");
		return false;
	}
	if (authority_parse(rq->authority.p, rq->authority.n, &x->host) < 0) {
		refuse(x, 400, "authority", "the host is not well formed");
		return false;
	}
	if (text_is(rq->path, "*") && text_is(rq->method, "OPTIONS")) {
		x->path = rq->path;
		return true;
	}
	n = out != NULL ? urlpath_canonical(rq->path.p, rq->path.n, out) : -ENOMEM;
	if (n < 0 || (rq->has_query && !urlpath_query_valid(rq->query.p, rq->query.n))) {
		refuse(x, 400, "target",
			is_raw(rq->path) || is_raw(rq->query)
				? "the target holds a byte that URLs write as an escape (%20, %C3%A4)"
				: "the target could be read in two ways");
		return false;
	}
	x->path = (struct policy_text){ out, (size_t)n };
	return true;
}

/* Whatever is known of where this was meant to go must say the same. */
static bool agreed(struct exchange *x)
{
	const struct proxy_conn *c = x->conn;
	uint16_t port = x->host.port != 0 ? x->host.port : c->tls ? 443 : 80;
	const char *host = x->host.host;

	x->host.port = port;
	if (port != c->port)
		exchange_because(x, "refused",
			"the request is for port %u, the connection went to %u", port, c->port);
	else if (c->tls && c->hello.sni[0] != '\0' && strcmp(c->hello.sni, host) != 0)
		exchange_because(x, "refused",
			"the request is for '%s', the TLS server name was '%s'", host,
			c->hello.sni);
	else if (c->name[0] != '\0' && strcmp(c->name, host) != 0)
		exchange_because(x, "refused",
			"the request is for '%s', the connection went to '%s'", host, c->name);
	else if (x->host.is_address && strcmp(c->address, host) != 0)
		exchange_because(x, "refused",
			"the request is for '%s', the connection went to '%s'", host, c->address);
	else
		return true;
	(void)!exchange_answer(x, 421, "misdirected");
	return false;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------------------ */

int exchange_invite(struct exchange *x)
{
	struct head *interim;
	int rc;

	if (!x->request.expect_continue)
		return 0;
	x->request.expect_continue = false;
	interim = &x->answer;
	interim->status = 100;
	interim->n_fields = 0;
	interim->body = HTTP_BODY_NONE;
	rc = channel_send_head(x->front, interim, true);
	return rc == 0 ? channel_flush(x->front) : rc;
}

struct policy_request exchange_asked(const struct exchange *x, enum policy_stage stage)
{
	const struct head *rq = &x->request;

	return (struct policy_request){ .stage = stage,
		.host = x->host.host,
		.port = x->host.port,
		.transport = POLICY_HTTP,
		.method = rq->method,
		.websocket = rq->websocket,
		.path = x->path,
		.query = rq->query,
		.headers = rq->fields,
		.n_headers = rq->n_fields,
		.has_body = rq->body != HTTP_BODY_NONE,
		.body = x->json };
}

static void ask(struct exchange *x, enum policy_stage stage)
{
	struct policy_request asked = exchange_asked(x, stage);

	if (x->policy != NULL)
		policy_decide(x->policy, &asked, &x->verdict);
	else
		x->verdict = (struct policy_verdict){ .action = POLICY_DENY };
	x->rule = x->verdict.need_more ? NULL : x->verdict.rule;
}

static bool changes_body(const struct policy_rule *rule)
{
	for (size_t i = 0; rule != NULL && i < rule->n_changes; i++)
		if (rule->changes[i].in_body)
			return true;
	return false;
}

/* What the head says is enough to know that nobody could read it: then it is not held. */
static int read_for_rules(struct exchange *x)
{
	int rc = 0;

	x->asked_body = true;
	if (exchange_may_be_json(&x->request)) {
		rc = exchange_hold(x);
		if (rc == 0)
			rc = exchange_read_json(x, false);
	}
	x->readable = x->json != NULL;
	if (rc == 0 && x->verdict.need_more)
		ask(x, POLICY_BODY);
	return rc;
}

static int judge(struct exchange *x)
{
	bool bare = x->request.body == HTTP_BODY_NONE;
	int rc = 0;

	ask(x, bare ? POLICY_BODY : POLICY_HEAD);
	if (!bare && (x->verdict.need_more || spending_of_request(x->rule)))
		rc = read_for_rules(x);
	if (rc == 0 && !bare && x->verdict.action != POLICY_DENY &&
		(changes_body(x->rule) || secrets_want_body(x)))
		rc = exchange_hold(x);
	BUG_ON(rc == 0 && x->verdict.need_more);
	return rc;
}

/* Another policy came while the request did: that one judges, with its secrets, what is held of the body and what still comes. */
static void renew(struct exchange *x)
{
	const struct proxy *p = x->proxy;

	policy_unref(x->policy);
	x->policy = policy_ref(p->policy);
	secrets_unref(x->secrets);
	x->secrets = secrets_ref(p->secrets);
	exchange_forget_json(x);
	exchange_hold_anew(x);
	x->asked_body = x->readable = false;
}

/* Return: 0 when there is a verdict; -errno when the body did not come. */
static int decide(struct exchange *x)
{
	int rc = judge(x);

	while (rc == 0 && (x->policy != x->proxy->policy || x->secrets != x->proxy->secrets)) {
		renew(x);
		rc = judge(x);
	}
	x->at[EXCHANGE_DECIDED] = clock_now_ns();
	return rc;
}

uint64_t exchange_take(struct exchange *x, uint64_t n)
{
	const struct proxy_hooks *hooks = &x->proxy->hooks;
	uint64_t may = n;
	bool bytes = false;

	for (size_t i = 0; x->rule != NULL && i < x->rule->n_budgets; i++)
		bytes = bytes || x->rule->budgets[i].measure == POLICY_BYTES;
	if (n == 0 || !bytes || hooks->take == NULL)
		return n;
	may = hooks->take(hooks->ctx, x->policy, x->verdict.rule_index, n);
	if (may < n) {
		exchange_because(x, "denied", "a budget of rule '%s' is exhausted: it was cut off",
			x->rule->name);
		x->over_budget = true;
	}
	return may;
}

/* ---- the whole of it -------------------------------------------------------------------------------------------------------- */

static struct exchange *exchange_new(struct proxy_conn *conn, struct channel *front)
{
	struct exchange *x = xnew(struct exchange);

	x->conn = conn;
	x->proxy = conn->proxy;
	x->front = front;
	x->arena = (struct arena)ARENA_INIT(EXCHANGE_ARENA_MAX);
	x->sent.bytes = (struct buf)BUF_INIT(PROXY_CAPTURE_MAX);
	x->came.bytes = (struct buf)BUF_INIT(PROXY_CAPTURE_MAX);
	x->outcome = "forwarded";
	list_init(&x->half_closed);
	x->policy = policy_ref(conn->proxy->policy);
	x->secrets = secrets_ref(conn->proxy->secrets);
	channel_next(front, &x->arena);
	return x;
}

static void exchange_free(struct exchange *x)
{
	exchange_forget_json(x);
	secrets_unref(x->secrets);
	policy_unref(x->policy);
	spending_fini(&x->spending);
	room_give(&x->proxy->trees, x->window_room);
	held_free(&x->body);
	capture_free(&x->sent);
	capture_free(&x->came);
	arena_free(&x->arena);
	free(x);
}

static void begin(struct exchange *x)
{
	x->at[EXCHANGE_BEGAN] = clock_now_ns();
	x->began_wall_ns = clock_wall_ns();
	x->number = ++x->proxy->exchanges;
	x->proxy->n_exchanges++;
}

static void carry_out(struct exchange *x)
{
	int rc;

	if (x->proxy->n_exchanges > PROXY_EXCHANGES_MAX) {
		refuse(x, 503, "busy", "too many requests are under way");
		return;
	}
	if (!canonical(x) || !agreed(x))
		return;
	rc = decide(x);
	if (rc == -ENOMEM)
		refuse(x, 503, "busy",
			"too many large bodies are held for rules at once; try again later");
	else if (rc == -EBADMSG)
		refuse(x, 400, "body", x->front->reason);
	else if (rc < 0)
		exchange_because(x, "failed", "the request's body did not come: %s", strerror(-rc));
	else
		stage_run(x);
	exchange_count(x);
}

int exchange_run(struct proxy_conn *conn, struct channel *front)
{
	struct exchange *x = exchange_new(conn, front);
	int rc = channel_recv_head(front, &x->request, clock_now_ns() + PROXY_HEAD_NS);

	if (rc < 0 && rc != -EBADMSG) {
		exchange_free(x);
		return rc;
	}
	if (x->proxy->hooks.admit != NULL)
		x->proxy->hooks.admit(x->proxy->hooks.ctx);
	begin(x);
	if (rc == -EBADMSG)
		refuse(x, 400, "malformed", front->reason);
	else
		carry_out(x);
	x->at[EXCHANGE_ENDED] = clock_now_ns();
	exchange_tell(x);
	x->proxy->n_exchanges--;
	exchange_free(x);
	return 0;
}
