/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/budgets.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "gateway/spending.h"

#define LEASE_NS (10 * NS_PER_S) /* how long a lease may take to be written down */

struct budgets {
	struct ledger *ledger; /* NULL: no policy yet */
	struct policy *policy; /* a reference: the ledger points into it */
	bool leasing;          /* a lease is being written down: no other may be raised meanwhile */
	struct waiters leased;
};

static uint64_t now_ms(void)
{
	return clock_wall_ns() / NS_PER_MS;
}

static struct ledger *ledger_from_state(const struct gateway *gw)
{
	const json_t *saved = json_object_get(json_object_get(gw->config, "state"), "budgets");
	struct ledger *ledger = ledger_new(gw->policy);

	if (saved != NULL && ledger_load(ledger, saved) < 0)
		log_error("gateway", "what was spent of the budgets cannot be read");
	return ledger;
}

/* The ledger of the policy in force: it goes on from the one before, or from what cayd has kept. */
static void on_config(struct gateway *gw)
{
	struct budgets *b = gw->budgets;
	struct ledger *former = b->ledger;

	if (b->policy == gw->policy)
		return;
	b->ledger = former != NULL ? ledger_new(gw->policy) : ledger_from_state(gw);
	if (former != NULL)
		ledger_take_over(b->ledger, former);
	ledger_free(former);
	policy_unref(b->policy);
	b->policy = policy_ref(gw->policy);
}

/* What others find in the state is what was spent, exactly; whoever spends next leases again. */
static void on_hold(struct gateway *gw)
{
	struct budgets *b = gw->budgets;
	json_t *saved;

	if (b->ledger == NULL)
		return;
	ledger_give_back(b->ledger);
	saved = ledger_save(b->ledger);
	if (json_object_size(saved) > 0)
		(void)gateway_state(gw, "budgets", saved);
	else
		json_decref(saved);
}

void budgets_init(struct gateway *gw)
{
	struct budgets *b = gw->budgets = xnew(struct budgets);

	waiters_init(&b->leased);
	gateway_on_config(on_config);
	gateway_on_hold(on_hold);
}

/* @rule: of the policy in force. Return: false when cayd did not write it down in time. */
static bool lease(struct gateway *gw, size_t rule, const struct ledger_amounts *amounts)
{
	struct budgets *b = gw->budgets;
	struct policy *policy = policy_ref(b->policy);
	uint64_t number;
	int rc;

	b->leasing = true;
	ledger_lease(b->ledger, rule, amounts);
	number = gateway_state(gw, "budgets", ledger_save(b->ledger));
	rc = gateway_state_written(gw, number, clock_now_ns() + LEASE_NS);
	if (rc == 0 && b->policy == policy) /* else that ledger is gone */
		ledger_leased(b->ledger);
	policy_unref(policy);
	b->leasing = false;
	waiters_wake(&b->leased);
	return rc == 0;
}

/* The rule in force that has the name of @rule of @policy: what that one let through goes on being counted there. Return: false when there is none. */
static bool rule_now(const struct budgets *b, const struct policy *policy, size_t rule, size_t *ret)
{
	const struct policy_rule *rules;
	const char *name;
	size_t n;

	*ret = rule;
	if (b->ledger == NULL || b->policy == policy)
		return b->ledger != NULL;
	name = policy_rules(policy, &n)[rule].name;
	rules = policy_rules(b->policy, &n);
	for (*ret = 0; *ret < n; (*ret)++)
		if (str_eq(rules[*ret].name, name))
			return true;
	return false;
}

/* Does the rule in force count answers, and @rule, which the request was judged by, did not? Nobody would look into the answer for it. */
static bool counts_now(
	const struct budgets *b, size_t now, const struct policy *policy, size_t rule)
{
	size_t n;

	return spending_wanted(&policy_rules(b->policy, &n)[now]) &&
	       !spending_wanted(&policy_rules(policy, &n)[rule]);
}

enum ledger_answer budgets_reserve(struct gateway *gw, const struct policy *policy, size_t rule,
	const struct ledger_amounts *amounts, struct ledger_result *ret)
{
	struct budgets *b = gw->budgets;
	enum ledger_answer answer;
	size_t now;

	for (;;) {
		while (b->leasing)
			(void)!waiters_wait(&b->leased, 0);
		if (!rule_now(b, policy, rule, &now) || counts_now(b, now, policy, rule))
			return LEDGER_LATER; /* judged by a rule that is no more */
		*ret = (struct ledger_result){ 0 };
		answer = ledger_reserve(b->ledger, now, amounts, now_ms(), ret);
		if (answer != LEDGER_NEED_LEASE)
			return answer;
		if (!lease(gw, now, amounts))
			return LEDGER_LATER;
	}
}

bool budgets_busy(struct gateway *gw, const struct policy *policy, size_t rule,
	const struct ledger_result *said)
{
	const struct budgets *b = gw->budgets;
	size_t now;

	return rule_now(b, policy, rule, &now) && !counts_now(b, now, policy, rule) &&
	       ledger_busy(b->ledger, now, said, now_ms());
}

uint64_t budgets_take(struct gateway *gw, const struct policy *policy, size_t rule, uint64_t n)
{
	struct budgets *b = gw->budgets;

	for (;;) {
		struct ledger_amounts amounts = { 0 };
		enum ledger_answer answer;
		size_t now;

		while (b->leasing)
			(void)!waiters_wait(&b->leased, 0);
		if (!rule_now(b, policy, rule, &now))
			return 0;
		answer = ledger_take(b->ledger, now, n, now_ms(), &amounts.bytes);
		if (answer != LEDGER_NEED_LEASE)
			return amounts.bytes;
		if (!lease(gw, now, &amounts))
			return 0;
	}
}

void budgets_add(struct gateway *gw, const struct policy *policy, size_t rule,
	const struct ledger_amounts *amounts)
{
	struct budgets *b = gw->budgets;
	uint64_t number;
	size_t now;

	if (!rule_now(b, policy, rule, &now))
		return;
	ledger_add(b->ledger, now, amounts, now_ms());
	number = gateway_state(gw, "budgets", ledger_save(b->ledger));
	(void)!gateway_state_written(gw, number, clock_now_ns() + LEASE_NS);
}
