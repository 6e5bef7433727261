/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/ledger.h"
#include "base/str.h"
#include "policy/pattern.h"

#include <math.h>

#define LEASES 16 /* a lease is this part of a budget, at least what is asked */

struct account {
	uint64_t spent;    /* in millionths */
	uint64_t leased;   /* written down; spent <= leased but for what answers added */
	uint64_t raised;   /* being written down */
	uint64_t since_ms; /* begin of the window; 0 = no window yet */
};

struct ledger {
	const struct policy *policy;
	size_t n_rules;
	struct account (*accounts)[POLICY_BUDGETS_MAX]; /* by rule */
};

static const char *const measure_names[] = { [POLICY_REQUESTS] = "requests",
	[POLICY_BYTES] = "bytes",
	[POLICY_REQUEST_FIELD] = "request_field",
	[POLICY_RESPONSE_FIELD] = "response_field" };

struct ledger *ledger_new(const struct policy *policy)
{
	struct ledger *l = xnew(struct ledger);

	l->policy = policy;
	(void)policy_rules(policy, &l->n_rules);
	l->accounts = xalloc((l->n_rules + 1) * sizeof(*l->accounts));
	return l;
}

void ledger_free(struct ledger *l)
{
	if (l == NULL)
		return;
	free(l->accounts);
	free(l);
}

static const struct policy_rule *rule_at(const struct ledger *l, size_t rule)
{
	size_t n;
	const struct policy_rule *rules = policy_rules(l->policy, &n);

	BUG_ON(rule >= n);
	return &rules[rule];
}

static uint64_t limit_of(const struct policy_budget *b)
{
	return b->max <= UINT64_MAX / LEDGER_UNIT ? b->max * LEDGER_UNIT : UINT64_MAX;
}

/* A new window forgets what the last one spent; its lease was for that one. */
static void roll(const struct policy_budget *b, struct account *a, uint64_t now_ms)
{
	if (b->per_ms != 0 && a->since_ms != 0 && now_ms >= a->since_ms + b->per_ms)
		*a = (struct account){ 0 };
	if (a->since_ms == 0)
		a->since_ms = now_ms;
}

struct sum {
	double total;
	bool broken;
};

static bool add_value(const json_t *value, void *ctx)
{
	struct sum *sum = ctx;
	const char *text = json_string_value(value);
	size_t n = json_string_length(value);
	char *end = NULL;
	double number = json_number_value(value);

	if (n > 0 && n <= POLICY_AMOUNT_MAX && strspn(text, "0123456789.") == n)
		number = strtod(text, &end);
	if ((!json_is_number(value) && (end == NULL || *end != '\0')) || !isfinite(number) ||
		number < 0)
		sum->broken = true;
	else
		sum->total += number;
	return true;
}

/* Amount of @b in millionths. Return: false when a field to sum is missing or no amount. */
static bool amount_of(
	const struct policy_budget *b, const struct ledger_amounts *amounts, uint64_t *ret)
{
	struct sum sum = { 0 };

	if (b->measure == POLICY_REQUESTS)
		*ret = LEDGER_UNIT;
	if (b->measure == POLICY_BYTES)
		*ret = amounts->bytes <= UINT64_MAX / LEDGER_UNIT ? amounts->bytes * LEDGER_UNIT
								  : UINT64_MAX;
	if (b->measure == POLICY_REQUESTS || b->measure == POLICY_BYTES)
		return true;
	if (amounts->body == NULL ||
		(b->measure == POLICY_REQUEST_FIELD && pointer_alike(amounts->body, b->field)) ||
		pointer_walk(amounts->body, b->field, add_value, &sum) == 0 || sum.broken ||
		sum.total > (double)(UINT64_MAX / LEDGER_UNIT / 2))
		return false;
	*ret = (uint64_t)ceil(sum.total * LEDGER_UNIT - 1e-6);
	return true;
}

static enum ledger_answer check(const struct policy_budget *b, const struct account *a,
	const struct ledger_amounts *amounts)
{
	uint64_t amount = 0, limit = limit_of(b);

	if (b->measure == POLICY_RESPONSE_FIELD) /* open until it is exhausted */
		return a->spent >= limit ? LEDGER_OVER : LEDGER_OK;
	if (!amount_of(b, amounts, &amount))
		return LEDGER_UNKNOWN;
	if (b->measure == POLICY_BYTES && a->spent >= limit) /* not a byte is left for the answer */
		return LEDGER_OVER;
	if (amount > limit || a->spent > limit - amount)
		return LEDGER_OVER;
	return a->spent + amount > a->leased ? LEDGER_NEED_LEASE : LEDGER_OK;
}

enum ledger_answer ledger_reserve(struct ledger *l, size_t rule,
	const struct ledger_amounts *amounts, uint64_t now_ms, struct ledger_refusal *ret)
{
	const struct policy_rule *r = rule_at(l, rule);
	enum ledger_answer worst = LEDGER_OK;

	for (size_t i = 0; i < r->n_budgets; i++) {
		const struct policy_budget *b = &r->budgets[i];
		struct account *a = &l->accounts[rule][i];
		enum ledger_answer answer;

		roll(b, a, now_ms);
		answer = check(b, a, amounts);
		if (answer == LEDGER_OVER || answer == LEDGER_UNKNOWN) {
			ret->budget = i;
			ret->retry_after_ms = b->per_ms != 0 ? a->since_ms + b->per_ms - now_ms : 0;
			return answer;
		}
		if (answer == LEDGER_NEED_LEASE)
			worst = answer;
	}
	for (size_t i = 0; worst == LEDGER_OK && i < r->n_budgets; i++) {
		uint64_t amount = 0;

		if (r->budgets[i].measure != POLICY_RESPONSE_FIELD &&
			amount_of(&r->budgets[i], amounts, &amount))
			l->accounts[rule][i].spent += amount;
	}
	return worst;
}

enum ledger_answer ledger_take(
	struct ledger *l, size_t rule, uint64_t n, uint64_t now_ms, uint64_t *ret)
{
	const struct policy_rule *r = rule_at(l, rule);
	enum ledger_answer answer = LEDGER_OK;

	*ret = n < INT64_MAX / LEDGER_UNIT ? n : INT64_MAX / LEDGER_UNIT;
	for (size_t i = 0; i < r->n_budgets; i++) {
		struct account *a = &l->accounts[rule][i];
		uint64_t limit = limit_of(&r->budgets[i]), left;

		if (r->budgets[i].measure != POLICY_BYTES)
			continue;
		roll(&r->budgets[i], a, now_ms);
		left = a->spent < limit ? (limit - a->spent) / LEDGER_UNIT : 0;
		*ret = left < *ret ? left : *ret;
	}
	for (size_t i = 0; i < r->n_budgets; i++)
		if (r->budgets[i].measure == POLICY_BYTES &&
			l->accounts[rule][i].spent + *ret * LEDGER_UNIT >
				l->accounts[rule][i].leased)
			answer = LEDGER_NEED_LEASE;
	if (*ret == 0)
		return LEDGER_OVER;
	for (size_t i = 0; answer == LEDGER_OK && i < r->n_budgets; i++)
		if (r->budgets[i].measure == POLICY_BYTES)
			l->accounts[rule][i].spent += *ret * LEDGER_UNIT;
	return answer;
}

void ledger_lease(struct ledger *l, size_t rule, const struct ledger_amounts *amounts)
{
	const struct policy_rule *r = rule_at(l, rule);

	for (size_t i = 0; i < r->n_budgets; i++) {
		const struct policy_budget *b = &r->budgets[i];
		struct account *a = &l->accounts[rule][i];
		uint64_t amount = 0, limit = limit_of(b), block = limit / LEASES;

		if (b->measure == POLICY_RESPONSE_FIELD || !amount_of(b, amounts, &amount) ||
			a->spent > limit)
			continue;
		if (block < amount)
			block = amount;
		a->raised = block < limit - a->spent ? a->spent + block : limit;
	}
}

void ledger_leased(struct ledger *l)
{
	for (size_t rule = 0; rule < l->n_rules; rule++) {
		for (size_t i = 0; i < POLICY_BUDGETS_MAX; i++) {
			struct account *a = &l->accounts[rule][i];

			if (a->raised > a->leased)
				a->leased = a->raised;
		}
	}
}

void ledger_give_back(struct ledger *l)
{
	for (size_t rule = 0; rule < l->n_rules; rule++) {
		for (size_t i = 0; i < POLICY_BUDGETS_MAX; i++) {
			struct account *a = &l->accounts[rule][i];

			a->leased = a->raised = a->spent;
		}
	}
}

void ledger_add(
	struct ledger *l, size_t rule, const struct ledger_amounts *amounts, uint64_t now_ms)
{
	const struct policy_rule *r = rule_at(l, rule);

	for (size_t i = 0; i < r->n_budgets; i++) {
		const struct policy_budget *b = &r->budgets[i];
		struct account *a = &l->accounts[rule][i];
		uint64_t amount = 0;

		if (b->measure != POLICY_RESPONSE_FIELD)
			continue;
		roll(b, a, now_ms);
		if (!amount_of(b, amounts, &amount) && amounts->answered)
			amount = b->missing <= UINT64_MAX / LEDGER_UNIT ? b->missing * LEDGER_UNIT
									: UINT64_MAX;
		if (amount > 0)
			a->spent = amount < UINT64_MAX - a->spent ? a->spent + amount : UINT64_MAX;
	}
}

json_t *ledger_save(const struct ledger *l)
{
	json_t *saved = json_object();

	for (size_t rule = 0; rule < l->n_rules; rule++) {
		const struct policy_rule *r = rule_at(l, rule);
		json_t *list = json_array();

		for (size_t i = 0; i < r->n_budgets; i++) {
			const struct account *a = &l->accounts[rule][i];
			uint64_t written = a->raised > a->leased ? a->raised : a->leased;

			if (written < a->spent)
				written = a->spent;
			json_array_append_new(list,
				json_pack("{s:I, s:I}", "spent",
					(json_int_t)(written <= INT64_MAX ? written : INT64_MAX),
					"since_ms", (json_int_t)a->since_ms));
		}
		if (r->n_budgets > 0)
			json_object_set(saved, r->name, list);
		json_decref(list);
	}
	return saved;
}

static int load_account(const json_t *saved, struct account *a)
{
	const json_t *spent = json_object_get(saved, "spent"),
		     *since = json_object_get(saved, "since_ms");

	if (!json_is_integer(spent) || !json_is_integer(since) || json_integer_value(spent) < 0 ||
		json_integer_value(since) < 0)
		return -EINVAL;
	a->spent = a->leased = (uint64_t)json_integer_value(spent);
	a->since_ms = (uint64_t)json_integer_value(since);
	return 0;
}

int ledger_load(struct ledger *l, const json_t *saved)
{
	if (!json_is_object(saved))
		return -EINVAL;
	for (size_t rule = 0; rule < l->n_rules; rule++) {
		const struct policy_rule *r = rule_at(l, rule);
		const json_t *list = json_object_get(saved, r->name);

		for (size_t i = 0; i < r->n_budgets && i < json_array_size(list); i++) {
			int rc = load_account(json_array_get(list, i), &l->accounts[rule][i]);

			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

static bool same_budget(const struct policy_budget *a, const struct policy_budget *b)
{
	return a->measure == b->measure && a->per_ms == b->per_ms &&
	       (a->field == NULL || str_eq(a->field, b->field));
}

static const struct account *find_account(
	const struct ledger *l, const char *name, const struct policy_budget *b)
{
	for (size_t rule = 0; rule < l->n_rules; rule++) {
		const struct policy_rule *r = rule_at(l, rule);

		for (size_t i = 0; i < r->n_budgets && str_eq(r->name, name); i++)
			if (same_budget(&r->budgets[i], b))
				return &l->accounts[rule][i];
	}
	return NULL;
}

void ledger_take_over(struct ledger *l, const struct ledger *former)
{
	for (size_t rule = 0; rule < l->n_rules; rule++) {
		const struct policy_rule *r = rule_at(l, rule);

		for (size_t i = 0; i < r->n_budgets; i++) {
			const struct account *a = find_account(former, r->name, &r->budgets[i]);

			if (a != NULL)
				l->accounts[rule][i] = *a;
		}
	}
}

static json_t *show_account(const struct policy_rule *r, const struct policy_budget *b,
	const struct account *a, uint64_t now_ms)
{
	bool over = b->per_ms != 0 && a->since_ms != 0 && now_ms >= a->since_ms + b->per_ms;
	double spent = over ? 0 : (double)a->spent / LEDGER_UNIT;
	json_t *o = json_pack("{s:s, s:s, s:f, s:I}", "rule", r->name, "measure",
		measure_names[b->measure], "spent", spent, "max", (json_int_t)b->max);

	if (b->field != NULL)
		json_object_set_new(o, "field", json_string(b->field));
	if (b->per_ms != 0 && a->since_ms != 0 && !over)
		json_object_set_new(
			o, "resets_ms", json_integer((json_int_t)(a->since_ms + b->per_ms)));
	return o;
}

json_t *ledger_show(const struct ledger *l, uint64_t now_ms)
{
	json_t *list = json_array();

	for (size_t rule = 0; rule < l->n_rules; rule++) {
		const struct policy_rule *r = rule_at(l, rule);

		for (size_t i = 0; i < r->n_budgets; i++)
			json_array_append_new(list,
				show_account(r, &r->budgets[i], &l->accounts[rule][i], now_ms));
	}
	return list;
}
