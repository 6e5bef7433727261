/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/passthrough.h"
#include "base/clock.h"
#include "gateway/budgets.h"
#include "gateway/dial.h"
#include "gateway/wire.h"

#include <fcntl.h>
#include <sys/socket.h>

#define PIECE      65536U
#define CONNECT_NS (20 * NS_PER_S)
#define IDLE_NS    (3600 * NS_PER_S) /* SSH sessions and database pools are quiet for long */

struct passthrough;

/* One direction; the two of a connection are fibers of their own. */
struct half {
	struct passthrough *raw;
	int from, to;
	struct fdwatch *from_watch, *to_watch;
	uint64_t bytes;
};

struct passthrough {
	struct fdwatch upstream; /* first: freed by its address */
	struct half out, in;     /* to the world, from it */
	uint64_t moved_ns;       /* when the last bytes passed, either way */
	unsigned int running;
	struct waiters done;
	const char *end; /* why it ended; static */
	struct conn *c;
	const struct policy_rule *rule;
	size_t index; /* of @rule */
};

/* Wait for more to move. A side that says nothing may be listening to the other: what counts is how long both are silent. */
static int await_more(struct half *h)
{
	uint64_t until;
	int rc;

	do {
		until = h->raw->moved_ns + IDLE_NS;
		rc = fdwatch_wait(h->from_watch, false, until);
	} while (rc < 0 && h->raw->moved_ns + IDLE_NS > until);
	return rc;
}

/* Read what is there into the pipe. Return: bytes, 0 at the end, -errno. */
static ssize_t fill(struct half *h, int pipe_in)
{
	for (;;) {
		ssize_t n = splice(
			h->from, NULL, pipe_in, NULL, PIECE, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

		if (n >= 0 || errno != EAGAIN)
			return n < 0 ? -errno : n;
		if (await_more(h) < 0)
			return -ETIMEDOUT;
	}
}

static int empty(struct half *h, int pipe_out, size_t n)
{
	while (n > 0) {
		ssize_t sent =
			splice(pipe_out, NULL, h->to, NULL, n, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

		if (sent > 0) {
			n -= (size_t)sent;
			h->bytes += (size_t)sent;
			h->raw->moved_ns = clock_now_ns();
			wire_count((size_t)sent);
		} else if (sent < 0 && errno == EAGAIN) {
			if (fdwatch_wait(h->to_watch, true, clock_now_ns() + IDLE_NS) < 0)
				return -ETIMEDOUT;
		} else {
			return sent < 0 ? -errno : -EPIPE;
		}
	}
	return 0;
}

/* Return: how many of @n bytes the rule's budgets let pass. */
static uint64_t take(struct passthrough *raw, uint64_t n)
{
	const struct policy_rule *rule = raw->rule;

	for (size_t i = 0; i < rule->n_budgets; i++)
		if (rule->budgets[i].measure == POLICY_BYTES)
			return budgets_take(raw->c->gw, raw->c->policy, raw->index, n);
	return n;
}

static int move(struct half *h)
{
	cleanup_fd int pipe_out = -1, pipe_in = -1;
	int pipe_fd[2];
	ssize_t n;
	int rc = 0;

	if (pipe2(pipe_fd, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	pipe_out = pipe_fd[0];
	pipe_in = pipe_fd[1];
	while (rc == 0 && (n = fill(h, pipe_in)) != 0) {
		uint64_t may = n > 0 ? take(h->raw, (uint64_t)n) : 0;

		rc = n < 0 ? (int)n : empty(h, pipe_out, (size_t)may);
		if (rc == 0 && may < (uint64_t)n)
			rc = -EDQUOT;
	}
	return rc;
}

static void half_main(void *arg)
{
	struct half *h = arg;
	int rc = move(h);

	if (rc == 0) {
		(void)shutdown(h->to, SHUT_WR); /* the other direction may go on */
	} else {
		h->raw->end = rc == -ETIMEDOUT ? "idle" : rc == -EDQUOT ? "budget" : "reset";
		(void)shutdown(h->from, SHUT_RDWR);
		(void)shutdown(h->to, SHUT_RDWR);
	}
	h->raw->running--;
	waiters_wake(&h->raw->done);
}

static void upstream_closed(struct fdwatch *w)
{
	free(container_of(w, struct passthrough, upstream));
}

static void tell(struct conn *c, const struct policy_rule *rule, const char *transport,
	const struct dial_result *d, const struct passthrough *raw)
{
	json_t *data = conn_peer_json(c);
	uint64_t now = clock_now_ns();

	(void)json_object_update_new(
		data, json_pack("{s:s,s:s,s:s,s:i,s:I,s:I,s:I,s:I,s:s}", "transport", transport,
			      "rule", rule->name, "upstream", d->address, "upstream_port", d->port,
			      "connect_us", (json_int_t)d->connected_us, "duration_us",
			      (json_int_t)((now - c->accepted_ns) / 1000U), "sent",
			      (json_int_t)raw->out.bytes, "received", (json_int_t)raw->in.bytes,
			      "end", raw->end));
	gateway_event(c->gw, "net.connection", conn_owner(c), data);
}

static void tell_failed(struct conn *c, const struct policy_rule *rule, const char *transport,
	const struct err *err)
{
	json_t *data = conn_peer_json(c);

	(void)json_object_update_new(
		data, json_pack("{s:s,s:s,s:I,s:I,s:s,s:s}", "transport", transport, "rule",
			      rule->name, "sent", (json_int_t)0, "received", (json_int_t)0, "end",
			      "failed", "error", err->msg));
	gateway_event(c->gw, "net.connection", conn_owner(c), data);
}

/* A connection counts as a request. Return: 0; -EDQUOT, or -EBUSY when nobody can say now, with @err. */
static int within_budget(
	struct conn *c, const struct policy_rule *rule, size_t index, struct err *err)
{
	const struct ledger_amounts amounts = { 0 };
	struct ledger_result refusal;
	enum ledger_answer answer = LEDGER_OK;

	if (rule->n_budgets > 0)
		answer = budgets_reserve(c->gw, c->policy, index, &amounts, &refusal);
	if (answer == LEDGER_OK)
		return 0;
	if (answer == LEDGER_BUSY || answer == LEDGER_LATER) {
		(void)err_raise(err, ERR_UNAVAILABLE,
			"a budget of rule '%s' cannot be asked now: try again", rule->name);
		return -EBUSY;
	}
	(void)err_raise(err, ERR_LIMIT, "a budget of rule '%s' is exhausted", rule->name);
	return -EDQUOT;
}

void passthrough_serve(struct conn *c, const struct policy_rule *rule, const char *transport)
{
	const struct dial_target target = { .host = c->host, .port = c->port, .rule = rule };
	struct dial_result d;
	struct err err = { 0 };
	struct passthrough *raw;
	size_t n, index = (size_t)(rule - policy_rules(c->policy, &n));
	int rc = within_budget(c, rule, index, &err);

	if (rc == 0)
		rc = dial(c->gw, &target, clock_now_ns() + CONNECT_NS, &d, &err);
	if (rc < 0) {
		conn_reset(c);
		tell_failed(c, rule, transport, &err);
		return;
	}
	raw = xnew(struct passthrough);
	waiters_init(&raw->done);
	if (fdwatch_open(&raw->upstream, c->gw->loop, d.fd) < 0)
		abort();
	raw->end = "closed";
	raw->c = c;
	raw->rule = rule;
	raw->index = index;
	raw->moved_ns = clock_now_ns();
	raw->running = 2;
	raw->out = (struct half){ raw, c->fd, d.fd, &c->watch, &raw->upstream, 0 };
	raw->in = (struct half){ raw, d.fd, c->fd, &raw->upstream, &c->watch, 0 };
	fiber_start(half_main, &raw->out);
	half_main(&raw->in);
	while (raw->running > 0)
		(void)waiters_wait(&raw->done, 0);
	tell(c, rule, transport, &d, raw);
	fdwatch_close(&raw->upstream, upstream_closed);
	(void)close(d.fd);
}
