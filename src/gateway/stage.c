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

/*
 * Wait while something is held for other answers. What was read of the body is not needed meanwhile, and the body itself gives way to those who wait for its room: whoever sent it comes again.
 * Return: shall it be asked again?
 */
static bool wait_for_others(
	struct exchange *x, const struct ledger_result *said, uint64_t deadline_ns)
{
	const struct proxy_hooks *hooks = &x->proxy->hooks;
	uint64_t now = clock_now_ns(), until = deadline_ns, ms = said->retry_after_ms;
	bool busy = true;

	exchange_forget_json(x);
	if (ms != 0 && ms < (deadline_ns - now) / NS_PER_MS)
		until = now + ms * NS_PER_MS; /* then its window begins anew */
	while (busy && now < until) {
		if (held_gives_way(&x->body))
			return false;
		(void)!waiters_wait(&x->proxy->counted, until);
		now = clock_now_ns();
		/* most of those who are woken have not their turn yet: that costs no look into the body */
		busy = hooks->busy != NULL &&
		       hooks->busy(hooks->ctx, x->policy, x->verdict.rule_index, said);
	}
	return now < deadline_ns;
}

/* Is it to be counted what messages say? Nobody reads them. */
static bool sums_messages(const struct exchange *x)
{
	return x->request.websocket && (spending_wanted(x->rule) || spending_of_request(x->rule));
}

static enum ledger_answer reserve(struct exchange *x, uint64_t bytes, struct ledger_result *said)
{
	const struct proxy_hooks *hooks = &x->proxy->hooks;
	uint64_t deadline_ns = clock_now_ns() + PROXY_BUDGET_NS;
	enum ledger_answer answer;

	if (hooks->reserve == NULL || sums_messages(x))
		return LEDGER_UNKNOWN;
	do {
		struct ledger_amounts amounts = { .bytes = bytes, .body = x->json };

		*said = (struct ledger_result){ 0 };
		answer = hooks->reserve(
			hooks->ctx, x->policy, x->verdict.rule_index, &amounts, said);
	} while (answer == LEDGER_BUSY && wait_for_others(x, said, deadline_ns) &&
		 (!spending_of_request(x->rule) || exchange_read_json(x, false) == 0));
	exchange_forget_json(x);
	return answer;
}

static bool within_budget(struct exchange *x)
{
	struct ledger_result said = { 0 };
	enum ledger_answer answer;
	uint64_t bytes;

	if (x->rule == NULL || x->rule->n_budgets == 0) {
		exchange_forget_json(x);
		return true;
	}
	bytes = x->request.has_length ? x->request.length : x->body.n;
	x->prepaid = bytes > x->body.n ? bytes - x->body.n : 0;
	answer = reserve(x, bytes, &said);
	x->open = said.opened;
	if (answer == LEDGER_OK)
		return true;
	if (answer == LEDGER_BUSY || answer == LEDGER_LATER) {
		exchange_because(x, "denied",
			"a budget of rule '%s' cannot be asked now: try again", x->rule->name);
		x->retry_after_s = 1;
		(void)!exchange_answer(x, 503, "busy");
		return false;
	}
	exchange_because(x, "denied", "a budget of rule '%s' %s", x->rule->name,
		answer == LEDGER_OVER ? "is exhausted" : "cannot be counted");
	if (answer != LEDGER_OVER && *exchange_unread(x) != '\0')
		exchange_because(x, "denied", "a budget of rule '%s' cannot be counted%s",
			x->rule->name, exchange_unread(x));
	x->retry_after_s = (said.retry_after_ms + 999) / 1000;
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

/* Is a member removed of which there is none, since there is no body? A WebSocket's messages may have it. */
static bool is_done(const struct exchange *x, const struct policy_change *change)
{
	return change->in_body && change->value == NULL && x->request.body == HTTP_BODY_NONE &&
	       !x->request.websocket;
}

/* Return: 0; -EBUSY when there is no room now; -ENOMEM when it is too large; -EACCES when there is nothing to change. */
static int change_request(struct exchange *x)
{
	const struct policy_rule *rule = x->rule;
	bool body = false, ok = true;

	for (size_t i = 0; i < rule->n_changes && ok; i++) {
		const struct policy_change *change = &rule->changes[i];

		if (is_done(x, change))
			continue;
		if (change->in_body && !body && exchange_read_json(x, true) < 0)
			return -EBUSY;
		body = body || change->in_body;
		if (!change->in_body)
			ok = set_field(x, change);
		else
			ok = x->json != NULL && !pointer_alike(x->json, change->name) &&
			     pointer_set(x->json, change->name, change->value);
	}
	if (!ok)
		return x->too_large ? -ENOMEM : -EACCES;
	return !body || exchange_restate_body(x) ? 0 : -ENOMEM;
}

static void transform(struct exchange *x)
{
	int rc = change_request(x);

	exchange_forget_json(x);
	if (rc == 0) {
		forward(x, NULL);
		return;
	}
	if (rc == -EBUSY)
		exchange_because(
			x, "failed", "too many large bodies are changed at once; try again later");
	else
		exchange_because(x, "denied",
			"rule '%s' changes something that this request has not%s", x->rule->name,
			rc == -ENOMEM ? ": its body is larger than rules read"
				      : exchange_unread(x));
	exchange_no(x, rc, "denied");
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
