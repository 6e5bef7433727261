/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever waits for a descriptor here goes on when the test says so: with bytes, or because the time is over. */
#include "fibers.h"
#include "gateway/budgets.h"
#include "gateway/dial.h"
#include "gateway/passthrough.h"
#include "gateway/wire.h"
#include "t.h"

#include <sys/socket.h>
#include <unistd.h>

/* ---- what passthrough.c asks of others --------------------------------------------------------------------------------------- */

static struct side {
	struct waiters waiting;
	int ours, theirs; /* the gateway's end of the connection, and the other one */
	int rc;           /* of a wait that ends */
	unsigned int waits;
} client, world;

static struct gateway gw;
static struct conn conn;
static json_t *told;

int fdwatch_open(
	attr_unused struct fdwatch *w, attr_unused uv_loop_t *l, attr_unused int descriptor)
{
	return 0;
}

int fdwatch_wait(struct fdwatch *w, attr_unused bool write, attr_unused uint64_t deadline_ns)
{
	struct side *side = w == &conn.watch ? &client : &world;

	side->waits++;
	(void)waiters_wait(&side->waiting, 0);
	return side->rc;
}

void fdwatch_close(struct fdwatch *w, void (*closed)(struct fdwatch *w))
{
	closed(w);
}

int dial(attr_unused struct gateway *g, attr_unused const struct dial_target *target,
	attr_unused uint64_t deadline_ns, struct dial_result *ret, attr_unused struct err *err)
{
	*ret = (struct dial_result){ .fd = world.ours, .address = "192.0.2.1" };
	return 0;
}

enum ledger_answer budgets_reserve(attr_unused struct gateway *g,
	attr_unused const struct policy *policy, attr_unused size_t rule,
	attr_unused const struct ledger_amounts *amounts, attr_unused struct ledger_result *ret)
{
	return LEDGER_OK;
}

uint64_t budgets_take(attr_unused struct gateway *g, attr_unused const struct policy *policy,
	attr_unused size_t rule, uint64_t n)
{
	return n;
}

uint64_t gateway_event(attr_unused struct gateway *g, attr_unused const char *type,
	attr_unused const struct owner *owner, json_t *data)
{
	told = data;
	return 1;
}

json_t *conn_peer_json(attr_unused const struct conn *c)
{
	return json_object();
}

const struct owner *conn_owner(attr_unused const struct conn *c)
{
	return NULL;
}

void conn_reset(attr_unused struct conn *c)
{
}

void wire_count(attr_unused size_t n)
{
}

/* ----------------------------------------------------------------------------------------------------------------------------- */

static void side_open(struct side *s)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	*s = (struct side){ .ours = pair[0], .theirs = pair[1] };
	waiters_init(&s->waiting);
}

static void goes_on(struct side *s, int rc)
{
	s->rc = rc;
	waiters_wake(&s->waiting);
	turns();
}

static void serve(attr_unused void *arg)
{
	size_t n;

	passthrough_serve(&conn, policy_rules(conn.policy, &n), "tcp");
}

static struct policy *compiled(void)
{
	static const char text[] =
		"rules: [{name: r, match: {host: a, port: 1, transport: tcp}, action: allow}]";
	struct policy *p = NULL;
	json_t *document = NULL;
	struct err err = { 0 };

	if (policy_document(text, strlen(text), &document, &err) < 0 ||
		policy_compile(document, &p, &err) < 0)
		t_fail("%s", err.msg);
	json_decref(document);
	return p;
}

static void begin(void)
{
	(void)loop();
	side_open(&client);
	side_open(&world);
	told = NULL;
	conn = (struct conn){ .gw = &gw, .fd = client.ours, .host = "a", .policy = compiled() };
	fiber_start(serve, NULL);
	turns();
	check_int(client.waits, 1);
	check_int(world.waits, 1);
}

static void says(struct side *s, struct side *to)
{
	char got[8];

	check_int(write(s->theirs, "bytes", 5), 5);
	goes_on(s, 0);
	check_int(read(to->theirs, got, sizeof(got)), 5);
}

/* How it was told to have ended, with the rest of it out of the way. */
static void check_ended(const char *want)
{
	goes_on(&client, 0);
	goes_on(&world, 0);
	check(told != NULL);
	check_str(json_string_value(json_object_get(told, "end")), want);
	json_decref(told);
	policy_unref(conn.policy);
	(void)close(client.ours);
	(void)close(client.theirs);
	(void)close(world.theirs);
}

TEST(who_only_listens_is_not_idle)
{
	begin();
	for (unsigned int hour = 1; hour <= 3; hour++) {
		says(&world, &client);
		goes_on(&client, -ETIMEDOUT);
		check(told == NULL);
		check_int(client.waits, hour + 1);
	}
	(void)shutdown(world.theirs, SHUT_WR);
	goes_on(&world, 0);
	(void)shutdown(client.theirs, SHUT_WR);
	check_ended("closed");
}

TEST(who_only_speaks_is_not_idle)
{
	begin();
	says(&client, &world);
	goes_on(&world, -ETIMEDOUT);
	check(told == NULL);
	check_int(world.waits, 2);
	(void)shutdown(world.theirs, SHUT_WR);
	(void)shutdown(client.theirs, SHUT_WR);
	check_ended("closed");
}

TEST(where_nobody_speaks_it_ends)
{
	begin();
	says(&world, &client);
	goes_on(&client, -ETIMEDOUT);
	check(told == NULL);
	goes_on(&client, -ETIMEDOUT);
	check_ended("idle");
}
