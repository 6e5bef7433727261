/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/ledger.h"
#include "base/str.h"
#include "policy/pattern.h"

#include <math.h>

#define LEASES  16 /* a lease is this part of a budget, at least what is asked */
#define ANSWERS 64 /* what one answer may bring, at least, as a part of a budget */

struct account {
	uint64_t spent;    /* in millionths */
	uint64_t leased;   /* written down; spent <= leased but for what answers added */
	uint64_t raised;   /* being written down */
	uint64_t since_ms; /* begin of the window; 0 = no window yet */
	uint64_t largest;  /* that one answer brought; 0: none came yet */
};

struct ledger {
	uint64_t number; /* no other one has it */
	const struct policy *policy;
	size_t n_rules;
	struct account (*accounts)[POLICY_BUDGETS_MAX]; /* by rule */
	size_t *n_open; /* by rule: requests whose answers' fields are not known yet */
	uint64_t *
		lives; /* by rule: a number for as long as policies follow each other that have it */
	uint64_t n_lives;
};

static const char *const measure_names[] = { [POLICY_REQUESTS] = "requests",
	[POLICY_BYTES] = "bytes",
	[POLICY_REQUEST_FIELD] = "request_field",
	[POLICY_RESPONSE_FIELD] = "response_field" };

struct ledger *ledger_new(const struct policy *policy)
{
	static uint64_t n_ledgers;
	struct ledger *l = xnew(struct ledger);

	l->number = ++n_ledgers;
	l->policy = policy;
	(void)policy_rules(policy, &l->n_rules);
	l->accounts = xalloc((l->n_rules + 1) * sizeof(*l->accounts));
	l->n_open = xalloc((l->n_rules + 1) * sizeof(*l->n_open));
	l->lives = xalloc((l->n_rules + 1) * sizeof(*l->lives));
	for (size_t rule = 0; rule < l->n_rules; rule++)
		l->lives[rule] = ++l->n_lives;
	return l;
}

void ledger_free(struct ledger *l)
{
	if (l == NULL)
		return;
	free(l->accounts);
	free(l->n_open);
	free(l->lives);
	free(l);
}

static const struct policy_rule *rule_at(const struct ledger *l, size_t rule)
{
	size_t n;
	const struct policy_rule *rules = policy_rules(l->policy, &n);

	BUG_ON(rule >= n);
	return &rules[rule];
}

static uint64_t sum_of(uint64_t a, uint64_t b)
{
	return b < UINT64_MAX - a ? a + b : UINT64_MAX;
}

static uint64_t in_units(uint64_t amount)
{
	return amount <= UINT64_MAX / LEDGER_UNIT ? amount * LEDGER_UNIT : UINT64_MAX;
}

static uint64_t limit_of(const struct policy_budget *b)
{
	return in_units(b->max);
}

/* A new window forgets what the last one spent; its lease was for that one. */
static void roll(const struct policy_budget *b, struct account *a, uint64_t now_ms)
{
	if (b->per_ms != 0 && a->since_ms != 0 && now_ms >= a->since_ms + b->per_ms)
		*a = (struct account){ .largest = a->largest };
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
		*ret = in_units(amounts->bytes);
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

/* What one answer brings, as far as that is known before it has come. */
static uint64_t one_answer(const struct policy_budget *b, const struct account *a)
{
	uint64_t part = limit_of(b) / ANSWERS, missing = in_units(b->missing);
	uint64_t most = part > a->largest ? part : a->largest;

	if (b->each != 0)
		return in_units(b->each);
	return missing > most ? missing : most;
}

/* What has to be there for @n answers that are still to come. */
static uint64_t held_for(const struct policy_budget *b, const struct account *a, size_t n)
{
	bool unknown = b->each == 0 && a->largest == 0;
	uint64_t each = unknown ? limit_of(b) : one_answer(b, a);

	return n == 0 || each <= UINT64_MAX / n ? each * n : UINT64_MAX;
}

/* Answers say what they bring when it is too late to say no: who would not fit together with those that are open waits for them, and the last one goes alone. */
static enum ledger_answer check_answer(
	const struct policy_budget *b, const struct account *a, size_t n_open)
{
	uint64_t limit = limit_of(b), after = sum_of(a->spent, held_for(b, a, n_open + 1));

	if (a->spent >= limit)
		return LEDGER_OVER;
	if (after > limit && n_open > 0)
		return LEDGER_BUSY;
	if (after > limit && b->each != 0)
		return LEDGER_OVER;
	return after > a->leased ? LEDGER_NEED_LEASE : LEDGER_OK;
}

static enum ledger_answer check_amount(
	const struct policy_budget *b, const struct account *a, uint64_t amount)
{
	uint64_t limit = limit_of(b);

	if (b->measure == POLICY_BYTES && a->spent >= limit) /* not a byte is left for the answer */
		return LEDGER_OVER;
	if (amount > limit || a->spent > limit - amount)
		return LEDGER_OVER;
	return a->spent + amount > a->leased ? LEDGER_NEED_LEASE : LEDGER_OK;
}

static enum ledger_answer check(const struct policy_budget *b, const struct account *a,
	const struct ledger_amounts *amounts, size_t n_open)
{
	uint64_t amount = 0;

	if (b->measure == POLICY_RESPONSE_FIELD)
		return check_answer(b, a, n_open);
	return amount_of(b, amounts, &amount) ? check_amount(b, a, amount) : LEDGER_UNKNOWN;
}

static uint64_t window_left(const struct policy_budget *b, const struct account *a, uint64_t now_ms)
{
	return b->per_ms != 0 ? a->since_ms + b->per_ms - now_ms : 0;
}

/* Whoever waits for others need not wait longer than that. */
static void take_sooner(uint64_t *ms, uint64_t other)
{
	if (other != 0 && (*ms == 0 || other < *ms))
		*ms = other;
}

static void note_asked(const struct ledger *l, const struct policy_rule *r,
	const struct ledger_amounts *amounts, struct ledger_result *ret)
{
	ret->ledger = l->number;
	for (size_t i = 0; i < r->n_budgets; i++)
		if (r->budgets[i].measure != POLICY_RESPONSE_FIELD)
			(void)amount_of(&r->budgets[i], amounts, &ret->asked[i]);
}

enum ledger_answer ledger_reserve(struct ledger *l, size_t rule,
	const struct ledger_amounts *amounts, uint64_t now_ms, struct ledger_result *ret)
{
	const struct policy_rule *r = rule_at(l, rule);
	enum ledger_answer worst = LEDGER_OK;
	bool opens = false;

	for (size_t i = 0; i < r->n_budgets; i++) {
		const struct policy_budget *b = &r->budgets[i];
		struct account *a = &l->accounts[rule][i];
		enum ledger_answer answer;

		roll(b, a, now_ms);
		opens = opens || b->measure == POLICY_RESPONSE_FIELD;
		answer = check(b, a, amounts, l->n_open[rule]);
		if (answer == LEDGER_OVER || answer == LEDGER_UNKNOWN) {
			ret->budget = i;
			ret->retry_after_ms = window_left(b, a, now_ms);
			return answer;
		}
		if (answer == LEDGER_BUSY)
			take_sooner(&ret->retry_after_ms, window_left(b, a, now_ms));
		if (answer == LEDGER_BUSY || (answer == LEDGER_NEED_LEASE && worst == LEDGER_OK))
			worst = answer;
	}
	for (size_t i = 0; worst == LEDGER_OK && i < r->n_budgets; i++) {
		uint64_t amount = 0;

		if (r->budgets[i].measure != POLICY_RESPONSE_FIELD &&
			amount_of(&r->budgets[i], amounts, &amount))
			l->accounts[rule][i].spent += amount;
	}
	if (worst == LEDGER_OK && opens) {
		l->n_open[rule]++;
		ret->opened = l->lives[rule];
	}
	if (worst == LEDGER_BUSY)
		note_asked(l, r, amounts, ret);
	return worst;
}

bool ledger_busy(struct ledger *l, size_t rule, const struct ledger_result *said, uint64_t now_ms)
{
	const struct policy_rule *r = rule_at(l, rule);
	bool busy = false;

	if (said->ledger != l->number)
		return false;
	for (size_t i = 0; i < r->n_budgets; i++) {
		const struct policy_budget *b = &r->budgets[i];
		struct account *a = &l->accounts[rule][i];
		enum ledger_answer answer;

		roll(b, a, now_ms);
		answer = b->measure == POLICY_RESPONSE_FIELD ? check_answer(b, a, l->n_open[rule])
							     : check_amount(b, a, said->asked[i]);
		if (answer == LEDGER_OVER)
			return false; /* that comes first */
		busy = busy || answer == LEDGER_BUSY;
	}
	return busy;
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

		if (b->measure == POLICY_RESPONSE_FIELD) {
			a->raised = sum_of(a->spent, held_for(b, a, l->n_open[rule] + 1));
			continue;
		}
		if (!amount_of(b, amounts, &amount) || a->spent > limit)
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
		const struct policy_rule *r = rule_at(l, rule);

		for (size_t i = 0; i < POLICY_BUDGETS_MAX; i++) {
			struct account *a = &l->accounts[rule][i];

			a->leased = a->raised = a->spent;
		}
		for (size_t i = 0; i < r->n_budgets; i++) {
			struct account *a = &l->accounts[rule][i];

			if (r->budgets[i].measure == POLICY_RESPONSE_FIELD)
				a->leased = a->raised = sum_of(
					a->spent, held_for(&r->budgets[i], a, l->n_open[rule]));
		}
	}
}

/* What an answer counts. */
static uint64_t brought(const struct policy_budget *b, const struct account *a,
	const struct ledger_amounts *amounts)
{
	uint64_t amount = 0, held = amounts->cut ? one_answer(b, a) : 0;

	if (!amount_of(b, amounts, &amount) && amounts->answered)
		amount = in_units(b->missing);
	return amounts->answered && held > amount ? held : amount;
}

void ledger_add(
	struct ledger *l, size_t rule, const struct ledger_amounts *amounts, uint64_t now_ms)
{
	const struct policy_rule *r = rule_at(l, rule);

	if (amounts->opened == l->lives[rule] && l->n_open[rule] > 0)
		l->n_open[rule]--;
	for (size_t i = 0; i < r->n_budgets; i++) {
		const struct policy_budget *b = &r->budgets[i];
		struct account *a = &l->accounts[rule][i];
		uint64_t amount;

		if (b->measure != POLICY_RESPONSE_FIELD)
			continue;
		roll(b, a, now_ms);
		amount = brought(b, a, amounts);
		a->spent = sum_of(a->spent, amount);
		if (!amounts->cut && (amounts->answered || amount > 0))
			a->largest = amount > a->largest ? amount : a->largest > 0 ? a->largest : 1;
		/* what was held for it and not used is there again; others that are being let in ask anew */
		a->leased = a->raised = sum_of(a->spent, held_for(b, a, l->n_open[rule]));
	}
}

static bool same_budget(const struct policy_budget *a, const struct policy_budget *b)
{
	return a->measure == b->measure && a->per_ms == b->per_ms &&
	       (a->field == NULL || str_eq(a->field, b->field));
}

static json_int_t saved_number(uint64_t n)
{
	return (json_int_t)(n <= INT64_MAX ? n : INT64_MAX);
}

/* With what it is of: the policy that reads it may have other budgets. */
static json_t *save_account(const struct policy_budget *b, const struct account *a)
{
	uint64_t written = a->raised > a->leased ? a->raised : a->leased;

	if (written < a->spent)
		written = a->spent;
	return json_pack("{s:s, s:I, s:s*, s:I, s:I, s:I}", "measure", measure_names[b->measure],
		"per_ms", saved_number(b->per_ms), "field", b->field, "spent",
		saved_number(written), "since_ms", saved_number(a->since_ms), "largest",
		saved_number(a->largest));
}

json_t *ledger_save(const struct ledger *l)
{
	json_t *saved = json_object();

	for (size_t rule = 0; rule < l->n_rules; rule++) {
		const struct policy_rule *r = rule_at(l, rule);
		json_t *list = json_array();

		for (size_t i = 0; i < r->n_budgets; i++)
			json_array_append_new(
				list, save_account(&r->budgets[i], &l->accounts[rule][i]));
		if (r->n_budgets > 0)
			json_object_set(saved, r->name, list);
		json_decref(list);
	}
	return saved;
}

static bool is_of(const json_t *saved, const struct policy_budget *b)
{
	const char *measure = json_string_value(json_object_get(saved, "measure"));
	const char *field = json_string_value(json_object_get(saved, "field"));

	return measure != NULL && str_eq(measure, measure_names[b->measure]) &&
	       json_integer_value(json_object_get(saved, "per_ms")) == saved_number(b->per_ms) &&
	       (b->field == NULL || (field != NULL && str_eq(field, b->field)));
}

/* What @list holds of the budget @i of @r, or NULL. An older version did not say of which one it is: that was the order. */
static const json_t *find_saved(const json_t *list, const struct policy_rule *r, size_t i)
{
	const json_t *same = json_array_get(list, i), *one;
	size_t k;

	json_array_foreach ((json_t *)(uintptr_t)list, k, one)
		if (is_of(one, &r->budgets[i]))
			return one;
	return json_object_get(same, "measure") == NULL ? same : NULL;
}

static int load_account(const json_t *saved, struct account *a)
{
	const json_t *spent = json_object_get(saved, "spent"),
		     *since = json_object_get(saved, "since_ms"),
		     *largest = json_object_get(saved, "largest");

	if (!json_is_integer(spent) || !json_is_integer(since) || json_integer_value(spent) < 0 ||
		json_integer_value(since) < 0)
		return -EINVAL;
	a->spent = a->leased = (uint64_t)json_integer_value(spent);
	a->since_ms = (uint64_t)json_integer_value(since);
	if (json_integer_value(largest) > 0)
		a->largest = (uint64_t)json_integer_value(largest);
	return 0;
}

int ledger_load(struct ledger *l, const json_t *saved)
{
	if (!json_is_object(saved))
		return -EINVAL;
	for (size_t rule = 0; rule < l->n_rules; rule++) {
		const struct policy_rule *r = rule_at(l, rule);
		const json_t *list = json_object_get(saved, r->name);

		for (size_t i = 0; i < r->n_budgets; i++) {
			const json_t *one = find_saved(list, r, i);
			int rc = one != NULL ? load_account(one, &l->accounts[rule][i]) : 0;

			if (rc < 0)
				return rc;
		}
	}
	return 0;
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

/* What is open under the rule @to of @l, which the former policy may have had by that name. */
static void take_open(struct ledger *l, size_t to, const struct ledger *former)
{
	const char *name = rule_at(l, to)->name;

	for (size_t rule = 0; rule < former->n_rules; rule++) {
		if (!str_eq(rule_at(former, rule)->name, name))
			continue;
		l->n_open[to] = former->n_open[rule];
		l->lives[to] = former->lives[rule];
		return;
	}
	l->lives[to] = ++l->n_lives;
}

void ledger_take_over(struct ledger *l, const struct ledger *former)
{
	l->n_lives = former->n_lives;
	for (size_t rule = 0; rule < l->n_rules; rule++) {
		const struct policy_rule *r = rule_at(l, rule);

		take_open(l, rule, former);
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
