/* SPDX-License-Identifier: Apache-2.0 */
/* The server of these tests writes down what it is told when the test says so, and meanwhile the policy can change. */
#include "base/clock.h"
#include "fibers.h"
#include "gateway/budgets.h"
#include "t.h"

/* ---- what budgets.c asks of the gateway -------------------------------------------------------------------------------------- */

static gateway_fn *on_config;
static uint64_t stated, written;
static struct waiters changed = { { &changed.fibers, &changed.fibers } };

void gateway_on_config(gateway_fn *fn)
{
	on_config = fn;
}

void gateway_on_hold(attr_unused gateway_fn *fn)
{
}

uint64_t gateway_state(attr_unused struct gateway *gw, attr_unused const char *part, json_t *value)
{
	json_decref(value);
	return ++stated;
}

int gateway_state_written(
	attr_unused struct gateway *gw, uint64_t number, attr_unused uint64_t deadline_ns)
{
	while (written < number)
		(void)waiters_wait(&changed, 0);
	return 0;
}

/* ----------------------------------------------------------------------------------------------------------------------------- */

static struct gateway gw;

static struct policy *compiled(const char *budget)
{
	struct policy *p = NULL;
	json_t *document = NULL;
	struct err err = { 0 };
	char text[500];
	int n = snprintf(text, sizeof(text),
		"rules: [{name: r, match: {host: a}, action: allow, budget: %s}]", budget);

	if (policy_document(text, (size_t)n, &document, &err) < 0 ||
		policy_compile(document, &p, &err) < 0)
		t_fail("%s", err.msg);
	json_decref(document);
	return p;
}

static void configure(struct policy *policy)
{
	policy_unref(gw.policy);
	gw.policy = policy;
	on_config(&gw);
}

static void write_down(void)
{
	written = stated;
	waiters_wake(&changed);
	turns();
}

struct asker {
	struct policy *policy;
	struct ledger_result said;
	enum ledger_answer answer;
	bool done;
};

static void ask(void *arg)
{
	const struct ledger_amounts amounts = { 0 };
	struct asker *a = arg;

	a->answer = budgets_reserve(&gw, a->policy, 0, &amounts, &a->said);
	a->done = true;
}

static void asks(struct asker *a)
{
	*a = (struct asker){ .policy = policy_ref(gw.policy) };
	fiber_start(ask, a);
	turns();
}

/* What a gateway has it has until it ends. */
static void begin(void)
{
	static struct gateway all[2] __attribute__((used));
	static size_t n;

	(void)loop();
	budgets_init(&gw);
	all[n++] = gw;
}

#define SUM "sum: {field: /n, of: response, max: 100, each: 60}"

TEST(a_rule_that_begins_to_count_answers_while_a_lease_is_written)
{
	struct asker a, b;

	begin();
	configure(compiled("{requests: {max: 10}}"));
	asks(&a);
	check(!a.done);
	configure(compiled("{requests: {max: 10}, " SUM "}"));
	write_down();
	check(!a.done || a.answer != LEDGER_OK); /* nobody would look into its answer */
	write_down();
	check(a.done);
	check_int(a.answer, LEDGER_LATER);
	/* nothing is open: the next one, judged by that rule, has the place */
	asks(&b);
	write_down();
	check(b.done);
	check_int(b.answer, LEDGER_OK);
	check(b.said.opened != 0);
	policy_unref(a.policy);
	policy_unref(b.policy);
}

TEST(a_rule_that_no_longer_counts_answers_opens_nothing)
{
	struct asker a;

	begin();
	configure(compiled("{" SUM "}"));
	asks(&a);
	check(!a.done);
	configure(compiled("{requests: {max: 10}}"));
	write_down();
	write_down();
	check(a.done);
	check_int(a.answer, LEDGER_OK);
	check_int(a.said.opened, 0);
	policy_unref(a.policy);
}
