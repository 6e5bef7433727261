/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/stage.h"
#include "base/clock.h"
#include "base/str.h"
#include "policy/pattern.h"

void stage_sleep(uint64_t ns)
{
	struct waiters nobody;

	waiters_init(&nobody);
	(void)!waiters_wait(&nobody, clock_now_ns() + (ns > 0 ? ns : 1));
}

static void break_off(struct exchange *x, const char *outcome)
{
	x->outcome = outcome;
	channel_abort(x->front);
}

/* ---- deny ------------------------------------------------------------------------------------------------------------------- */

static void deny(struct exchange *x)
{
	const struct policy_rule *rule = x->rule;
	int status = rule != NULL && rule->deny.status != 0 ? rule->deny.status : 403;

	if (rule == NULL)
		exchange_because(x, "denied", "no rule allows %.*s %s%s", (int)x->request.method.n,
			x->request.method.p, x->host.host, exchange_unread(x));
	else if (rule->deny.message != NULL)
		exchange_because(x, "denied", "%s%s", rule->deny.message, exchange_unread(x));
	else
		exchange_because(
			x, "denied", "rule '%s' denies it%s", rule->name, exchange_unread(x));
	if (rule != NULL && rule->action == POLICY_DENY && rule->deny.status == 0)
		break_off(x, "denied");
	else if (status == 403 && x->asked_body && x->too_large)
		(void)!exchange_answer(x, 413, "too_large");
	else
		(void)!exchange_answer(x, status, "denied");
}

/* ---- budgets ---------------------------------------------------------------------------------------------------------------- */

static bool within_budget(struct exchange *x)
{
	const struct proxy_hooks *hooks = &x->proxy->hooks;
	struct ledger_amounts amounts = { .body = x->json };
	struct ledger_refusal refusal = { 0 };
	enum ledger_answer answer;

	if (x->rule == NULL || x->rule->n_budgets == 0) {
		exchange_forget_json(x);
		return true;
	}
	amounts.bytes = x->request.has_length ? x->request.length : x->body.n;
	x->prepaid = amounts.bytes > x->body.n ? amounts.bytes - x->body.n : 0;
	answer = hooks->reserve != NULL ? hooks->reserve(hooks->ctx, x->policy,
						  x->verdict.rule_index, &amounts, &refusal)
					: LEDGER_UNKNOWN;
	exchange_forget_json(x);
	if (answer == LEDGER_OK)
		return true;
	exchange_because(x, "denied", "a budget of rule '%s' %s", x->rule->name,
		answer == LEDGER_OVER ? "is exhausted" : "cannot be counted");
	if (answer != LEDGER_OVER && *exchange_unread(x) != '\0')
		exchange_because(x, "denied", "a budget of rule '%s' cannot be counted%s",
			x->rule->name, exchange_unread(x));
	x->retry_after_s = (refusal.retry_after_ms + 999) / 1000;
	(void)!exchange_answer(x, 429, "budget");
	return false;
}

/* ---- fault ------------------------------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ULL;
	v = (v ^ v >> 27) * 0x94d049bb133111ebULL;
	return v ^ v >> 31;
}

/* The next number of the rule's own sequence, which depends on its seed and on how many were drawn (splitmix64). */
static double draw(struct exchange *x)
{
	struct proxy *p = x->proxy;

	if (p->policy != x->policy)
		return 0; /* its sequence ended with its policy */
	return (double)(mix(x->rule->fault.seed +
				++p->draws[x->verdict.rule_index] * 0x9e3779b97f4a7c15ULL) >>
			11) *
	       0x1.0p-53;
}

static void misbehave(struct exchange *x)
{
	const struct policy_fault f = x->rule->fault;
	struct shaping shape = { f.truncates, f.truncate_bytes, f.rate_bytes };

	if (f.chance < 1 && draw(x) >= f.chance) {
		forward(x, NULL);
		return;
	}
	exchange_because(x, "fault", "rule '%s' asks for a fault", x->rule->name);
	if (f.latency_ms > 0 || f.jitter_ms > 0)
		stage_sleep((f.latency_ms + (uint64_t)(draw(x) * f.jitter_ms)) * NS_PER_MS);
	if (f.status != 0)
		(void)!exchange_answer(x, f.status, "fault");
	else if (f.reset)
		break_off(x, "fault");
	else
		forward(x, &shape);
}

/* ---- transform -------------------------------------------------------------------------------------------------------------- */

static bool set_field(struct exchange *x, const struct policy_change *change)
{
	const char *value = json_string_value(change->value);
	char *copy;

	head_remove(&x->request, change->name);
	if (change->value == NULL)
		return true;
	copy = value != NULL ? arena_copy(&x->arena, value, strlen(value)) : NULL;
	return copy != NULL && head_add(&x->request, change->name, text_of(copy)) == 0;
}

static bool change_request(struct exchange *x)
{
	const struct policy_rule *rule = x->rule;
	bool body = false, ok = true;

	for (size_t i = 0; i < rule->n_changes && ok; i++) {
		const struct policy_change *change = &rule->changes[i];

		if (change->in_body && !body)
			ok = exchange_read_json(x, true) == 0;
		body = body || change->in_body;
		if (!ok)
			break;
		if (!change->in_body)
			ok = set_field(x, change);
		else
			ok = !pointer_alike(x->json, change->name) &&
			     pointer_set(x->json, change->name, change->value);
	}
	return ok && (!body || exchange_restate_body(x));
}

static void transform(struct exchange *x)
{
	if (change_request(x)) {
		exchange_forget_json(x);
		forward(x, NULL);
		return;
	}
	exchange_because(x, "denied", "rule '%s' changes something that this request has not%s",
		x->rule->name, x->too_large ? ": its body is larger than rules read" : "");
	(void)!exchange_answer(x, x->too_large ? 413 : 403, x->too_large ? "too_large" : "denied");
}

/* ----------------------------------------------------------------------------------------------------------------------------- */

void stage_run(struct exchange *x)
{
	switch (x->verdict.action) {
	case POLICY_ALLOW:
		if (within_budget(x))
			forward(x, NULL);
		return;
	case POLICY_FAULT:
		if (within_budget(x))
			misbehave(x);
		return;
	case POLICY_TRANSFORM:
		if (within_budget(x))
			transform(x);
		return;
	case POLICY_DENY:
	case POLICY_MAILBOX:
	case POLICY_ACTION_COUNT:
		deny(x);
	}
}
