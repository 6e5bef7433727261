/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/ledger.h"
#include "t.h"

static struct policy *compiled_as(const char *name, const char *budget)
{
	struct policy *p = NULL;
	json_t *document = NULL;
	struct err err = { 0 };
	char text[500];
	int n = snprintf(text, sizeof(text),
		"rules: [{name: %s, match: {host: a}, action: allow, budget: %s}]", name, budget);

	if (policy_document(text, (size_t)n, &document, &err) < 0 ||
		policy_compile(document, &p, &err) < 0)
		t_fail("%s", err.msg);
	json_decref(document);
	return p;
}

static struct policy *compiled(const char *budget)
{
	return compiled_as("r", budget);
}

static struct ledger_result refusal;
static uint64_t opened; /* by the last one that was let through */

/* Reserve as the gateway does: write the lease down when asked, then again. */
static enum ledger_answer spend(struct ledger *l, const char *body, uint64_t bytes, uint64_t now_ms)
{
	json_t *json = body != NULL ? json_loads(body, 0, NULL) : NULL;
	struct ledger_amounts amounts = { bytes, json };
	enum ledger_answer answer;

	refusal = (struct ledger_result){ 0 };
	answer = ledger_reserve(l, 0, &amounts, now_ms, &refusal);
	check_int(ledger_busy(l, 0, &refusal, now_ms), answer == LEDGER_BUSY);
	if (answer == LEDGER_NEED_LEASE) {
		ledger_lease(l, 0, &amounts);
		ledger_leased(l);
		answer = ledger_reserve(l, 0, &amounts, now_ms, &refusal);
	}
	opened = answer == LEDGER_OK ? refusal.opened : opened;
	json_decref(json);
	return answer;
}

TEST(exactly_as_many_requests_as_allowed)
{
	struct policy *p = compiled("{requests: {max: 100, per: 1h}}");
	struct ledger *l = ledger_new(p);

	for (int i = 0; i < 100; i++)
		check_int(spend(l, NULL, 0, 1000), LEDGER_OK);
	check_int(spend(l, NULL, 0, 2000), LEDGER_OVER);
	check_int(refusal.retry_after_ms, 3600000 - 1000);
	check_int(spend(l, NULL, 0, 1000 + 3600000), LEDGER_OK);
	ledger_free(l);
	policy_unref(p);
}

TEST(sums_of_a_field_are_exact)
{
	struct policy *p = compiled("{sum: {field: amount, max: 1}}");
	struct ledger *l = ledger_new(p);

	for (int i = 0; i < 10; i++)
		check_int(spend(l, "{\"amount\": 0.1}", 0, 1), LEDGER_OK);
	check_int(spend(l, "{\"amount\": 0.000001}", 0, 1), LEDGER_OVER);
	check_int(spend(l, "{\"amount\": 0}", 0, 1), LEDGER_OK);
	ledger_free(l);
	policy_unref(p);
}

TEST(an_amount_that_is_none_is_refused_and_spends_nothing)
{
	static const char *const bad[] = { "{}", "{\"amount\": -1}", "{\"amount\": \"x\"}",
		"{\"amount\": \"-1\"}", "{\"amount\": null}", "{\"amount\": 1e300}",
		"{\"amount\": [1]}", "{\"amount\": \"\"}" };
	struct policy *p = compiled("{requests: {max: 1}, sum: {field: amount, max: 10}}");
	struct ledger *l = ledger_new(p);

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		check_int(spend(l, bad[i], 0, 1), LEDGER_UNKNOWN);
	check_int(spend(l, NULL, 0, 1), LEDGER_UNKNOWN);
	check_int(spend(l, "{\"amount\": \"10\"}", 0, 1), LEDGER_OK);
	ledger_free(l);
	policy_unref(p);
}

TEST(all_budgets_or_none)
{
	struct policy *p = compiled("{requests: {max: 5}, bytes: {max: 100}}");
	struct ledger *l = ledger_new(p);

	check_int(spend(l, NULL, 101, 1), LEDGER_OVER);
	check_int(refusal.budget, 1);
	check_int(refusal.retry_after_ms, 0);
	for (int i = 0; i < 5; i++)
		check_int(spend(l, NULL, 20, 1), LEDGER_OK);
	check_int(spend(l, NULL, 0, 1), LEDGER_OVER);
	check_int(refusal.budget, 0);
	ledger_free(l);
	policy_unref(p);
}

TEST(what_answers_bring_counts_for_the_next_request)
{
	struct policy *p = compiled("{sum: {field: /usage/tokens, of: response, max: 100}}");
	struct ledger *l = ledger_new(p);
	json_t *answer = json_loads("{\"usage\": {\"tokens\": 60}}", 0, NULL);
	struct ledger_amounts amounts = { 0, answer };

	for (int i = 0; i < 2; i++) {
		check_int(spend(l, NULL, 0, 1), LEDGER_OK);
		amounts.opened = opened;
		ledger_add(l, 0, &amounts, 1);
	}
	check_int(spend(l, NULL, 0, 1), LEDGER_OVER);
	json_decref(answer);
	ledger_free(l);
	policy_unref(p);
}

TEST(an_answer_that_does_not_say_it_counts_as_the_budget_says)
{
	struct policy *p = compiled(
		"{sum: [{field: /a, of: response, max: 100, missing: 60}, {field: /b, of: response, max: 1}]}");
	struct ledger *l = ledger_new(p);
	struct ledger_amounts amounts = { .answered = true };

	ledger_add(l, 0, &amounts, 1);
	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	amounts.opened = opened;
	amounts.answered = false;
	ledger_add(l, 0, &amounts, 1);
	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	amounts.opened = opened;
	amounts.answered = true;
	ledger_add(l, 0, &amounts, 1);
	check_int(spend(l, NULL, 0, 1), LEDGER_OVER);
	ledger_free(l);
	policy_unref(p);
}

static void brought(struct ledger *l, int tokens)
{
	json_t *answer = json_pack("{s:i}", "n", tokens);
	struct ledger_amounts amounts = { .body = answer, .answered = true, .opened = opened };

	ledger_add(l, 0, &amounts, 1);
	json_decref(answer);
}

TEST(answers_that_are_open_fit_together)
{
	struct policy *p = compiled("{sum: {field: /n, of: response, max: 640}}");
	struct ledger *l = ledger_new(p);

	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	check_int(spend(l, NULL, 0, 1), LEDGER_BUSY); /* nobody knows what one brings */
	brought(l, 300);
	check_int(spend(l, NULL, 0, 1), LEDGER_OK); /* 300 is held */
	check_int(spend(l, NULL, 0, 1), LEDGER_BUSY);
	brought(l, 200);
	check_int(spend(l, NULL, 0, 1), LEDGER_OK); /* 140 are left: alone */
	check_int(spend(l, NULL, 0, 1), LEDGER_BUSY);
	brought(l, 0);
	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	brought(l, 150);
	check_int(spend(l, NULL, 0, 1), LEDGER_OVER);
	ledger_free(l);
	policy_unref(p);
}

TEST(who_waits_is_not_busy_when_another_sum_is_exhausted)
{
	struct policy *p = compiled(
		"{requests: {max: 3}, sum: [{field: /n, of: response, max: 100, each: 60}, {field: /cents, max: 10}]}");
	struct ledger *l = ledger_new(p), *other = ledger_new(p);
	struct ledger_result cheap, dear;

	check_int(spend(l, "{\"cents\": 1}", 0, 1), LEDGER_OK);
	check_int(spend(l, "{\"cents\": 2}", 0, 1), LEDGER_BUSY);
	cheap = refusal;
	check_int(spend(l, "{\"cents\": 7}", 0, 1), LEDGER_BUSY);
	dear = refusal;
	brought(l, 5);
	check(!ledger_busy(l, 0, &cheap, 1) && !ledger_busy(l, 0, &dear, 1));
	check_int(spend(l, "{\"cents\": 3}", 0, 1), LEDGER_OK);
	check(ledger_busy(l, 0, &cheap, 1) && !ledger_busy(l, 0, &dear, 1)); /* of 10 6 are left */
	check(!ledger_busy(other, 0, &cheap, 1)); /* which nobody has asked */
	brought(l, 5);
	check_int(spend(l, "{\"cents\": 3}", 0, 1), LEDGER_OK); /* the last request */
	check(!ledger_busy(l, 0, &cheap, 1));
	check_int(spend(l, "{\"cents\": 2}", 0, 1), LEDGER_OVER);
	ledger_free(l);
	ledger_free(other);
	policy_unref(p);
}

TEST(what_one_answer_brings_at_most_is_never_exceeded)
{
	struct policy *p = compiled("{sum: {field: /n, of: response, max: 100, each: 40}}");
	struct ledger *l = ledger_new(p);

	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	check_int(spend(l, NULL, 0, 1), LEDGER_BUSY);
	brought(l, 10);
	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	brought(l, 40);
	brought(l, 40);
	check_int(spend(l, NULL, 0, 1), LEDGER_OVER); /* 10 are left */
	ledger_free(l);
	policy_unref(p);
}

/* The answer broke off behind having said @tokens. */
static void broke_off(struct ledger *l, int tokens)
{
	json_t *body = json_pack("{s:i}", "n", tokens);
	struct ledger_amounts amounts = {
		.body = body, .answered = true, .cut = true, .opened = opened
	};

	ledger_add(l, 0, &amounts, 1);
	json_decref(body);
}

TEST(an_answer_without_its_end_counts_as_what_was_held_for_it)
{
	static const struct {
		const char *budget;
		int said, then; /* what is left behind it can be spent at once */
	} cases[] = { { "{sum: {field: /n, of: response, max: 1000, each: 400}}", 1, 400 },
		{ "{sum: {field: /n, of: response, max: 1000, each: 400}}", 500, 500 },
		{ "{sum: {field: /n, of: response, max: 1000, missing: 50}}", 1, 50 },
		{ "{sum: {field: /n, of: response, max: 640}}", 1, 10 } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct policy *p = compiled(cases[i].budget);
		struct ledger *l = ledger_new(p);
		json_t *shown;

		check_int(spend(l, NULL, 0, 1), LEDGER_OK);
		broke_off(l, cases[i].said);
		shown = ledger_show(l, 1);
		check_int(
			(int)json_number_value(json_object_get(json_array_get(shown, 0), "spent")),
			cases[i].then);
		json_decref(shown);
		ledger_free(l);
		policy_unref(p);
	}
}

TEST(who_dies_in_the_middle_of_an_answer_has_spent_what_was_held)
{
	struct policy *p = compiled("{sum: {field: /n, of: response, max: 100, each: 40}}");
	struct ledger *l = ledger_new(p), *next = ledger_new(p), *kept = ledger_new(p);
	json_t *saved;

	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	brought(l, 10);
	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	saved = ledger_save(l);
	check_int(ledger_load(next, saved), 0);
	check_int(spend(next, NULL, 0, 1), LEDGER_OK); /* 50 are left */
	brought(next, 40);
	check_int(spend(next, NULL, 0, 1), LEDGER_OVER);
	json_decref(saved);
	/* held for a capture, and by another policy's ledger, it is the same */
	ledger_give_back(l);
	ledger_take_over(kept, l);
	check_int(spend(kept, NULL, 0, 1), LEDGER_OK);
	check_int(spend(kept, NULL, 0, 1), LEDGER_BUSY);
	brought(kept, 0);
	brought(kept, 0);
	check_int(spend(kept, NULL, 0, 1), LEDGER_OK);
	check_int(spend(kept, NULL, 0, 1), LEDGER_OK);
	ledger_free(l);
	ledger_free(next);
	ledger_free(kept);
	policy_unref(p);
}

TEST(who_waits_for_others_is_told_when_the_window_ends)
{
	struct policy *p =
		compiled("{sum: {field: /n, of: response, max: 100, each: 40, per: 1h}}");
	struct ledger *l = ledger_new(p);

	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	brought(l, 40);
	check_int(spend(l, NULL, 0, 1001), LEDGER_BUSY);
	check_int(refusal.retry_after_ms, 3600000 - 1000);
	check_int(spend(l, NULL, 0, 1 + 3600000),
		LEDGER_OK); /* beside the other one, that is open still */
	check_int(spend(l, NULL, 0, 1 + 3600000), LEDGER_BUSY);
	ledger_free(l);
	policy_unref(p);
}

TEST(a_rule_that_comes_back_holds_nothing_for_what_it_let_in_before)
{
	const char *budget = "{sum: {field: /n, of: response, max: 100, each: 40}}";
	struct policy *p = compiled(budget), *without = compiled_as("other", budget);
	struct ledger *l = ledger_new(p), *dropped = ledger_new(without), *back = ledger_new(p);
	uint64_t before, others;

	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	before = opened;
	ledger_take_over(dropped, l);
	check_int(spend(dropped, NULL, 0, 1), LEDGER_OK);
	others = opened;
	ledger_take_over(back, dropped);
	check_int(spend(back, NULL, 0, 1), LEDGER_OK);
	check_int(spend(back, NULL, 0, 1), LEDGER_OK);
	check(opened != before && opened != others && before != others);
	opened = before;
	brought(back, 10); /* it counts, and the two are open still */
	check_int(spend(back, NULL, 0, 1), LEDGER_BUSY);
	opened = others;
	brought(back, 0);
	check_int(spend(back, NULL, 0, 1), LEDGER_BUSY);
	ledger_free(l);
	ledger_free(dropped);
	ledger_free(back);
	policy_unref(p);
	policy_unref(without);
}

/* Takes @n bytes, with a lease when it needs one. Return: how many it gets. */
static uint64_t take(struct ledger *l, uint64_t n, uint64_t now_ms)
{
	struct ledger_amounts amounts = { 0 };

	while (ledger_take(l, 0, n, now_ms, &amounts.bytes) == LEDGER_NEED_LEASE) {
		ledger_lease(l, 0, &amounts);
		ledger_leased(l);
	}
	return amounts.bytes;
}

TEST(bytes_are_taken_to_the_last_one)
{
	struct policy *p = compiled(
		"{bytes: [{max: 1000, per: 1h}, {max: 1500}], requests: {max: 2, per: 1h}}");
	struct ledger *l = ledger_new(p);

	check_int(spend(l, NULL, 100, 1), LEDGER_OK);
	check_int(take(l, 800, 1), 800);
	check_int(take(l, 800, 1), 100);
	check_int(take(l, 1, 1), 0);
	check_int(spend(l, NULL, 0, 1), LEDGER_OVER);
	check_int(refusal.budget, 1);
	check_int(take(l, UINT64_MAX, 1 + 3600000), 500);
	check_int(take(l, 1, 1 + 3600000), 0);
	ledger_free(l);
	policy_unref(p);
}

/* Whoever dies after any request and starts again from what was written never lets more through in all than allowed. */
TEST(a_crash_never_gives_a_request_for_free)
{
	struct policy *p = compiled("{requests: {max: 50}}");

	for (int crash_after = 0; crash_after <= 50; crash_after++) {
		struct ledger *l = ledger_new(p), *next = ledger_new(p);
		struct ledger_amounts amounts = { 0 };
		json_t *written = ledger_save(l);
		int passed = 0;

		while (passed < crash_after) {
			enum ledger_answer answer = ledger_reserve(l, 0, &amounts, 1, &refusal);

			if (answer == LEDGER_NEED_LEASE) {
				ledger_lease(l, 0, &amounts);
				json_decref(written);
				written = ledger_save(l);
				ledger_leased(l);
				continue;
			}
			passed++;
		}
		check_int(ledger_load(next, written), 0);
		while (spend(next, NULL, 0, 1) == LEDGER_OK)
			passed++;
		check(passed <= 50 && passed >= 50 - 50 / 16);
		json_decref(written);
		ledger_free(l);
		ledger_free(next);
	}
	policy_unref(p);
}

TEST(malformed_figures_are_refused)
{
	struct policy *p = compiled("{requests: {max: 50}}");
	struct ledger *l = ledger_new(p);
	json_t *bad = json_loads("{\"r\": [{\"spent\": -1, \"since_ms\": 0}]}", 0, NULL);

	check_int(ledger_load(l, bad), -EINVAL);
	check_int(ledger_load(l, NULL), -EINVAL);
	json_decref(bad);
	ledger_free(l);
	policy_unref(p);
}

/* @l, freed, goes on under the policy @next: of a gateway that runs, or as the next one finds it. */
static struct ledger *go_on(struct ledger *l, const struct policy *next, bool runs)
{
	struct ledger *after = ledger_new(next);
	json_t *saved = ledger_save(l);

	if (runs)
		ledger_take_over(after, l);
	else
		check_int(ledger_load(after, saved), 0);
	json_decref(saved);
	ledger_free(l);
	return after;
}

TEST(another_policy_goes_on_with_what_was_spent_and_no_more)
{
	for (int runs = 0; runs < 2; runs++) {
		struct policy *p = compiled("{requests: {max: 16, per: 1h}, bytes: {max: 1000}}");
		struct ledger *l = ledger_new(p);

		for (int i = 0; i < 16; i++) {
			struct policy *next = compiled(
				i % 2 == 0
					? "{requests: {max: 16, per: 1h}}"
					: "{bytes: {max: 1000}, requests: [{max: 99, per: 1d}, {max: 16, per: 1h}]}");

			check_int(spend(l, NULL, 0, 1000), LEDGER_OK);
			l = go_on(l, next, runs == 1);
			policy_unref(p);
			p = next;
		}
		check_int(spend(l, NULL, 0, 1000), LEDGER_OVER);
		ledger_free(l);
		policy_unref(p);
	}
}

TEST(what_was_spent_stays_with_its_measure_window_and_field)
{
	for (int runs = 0; runs < 2; runs++) {
		struct policy *p = compiled(
			"{bytes: {max: 1000}, sum: [{field: /a, max: 100}, {field: /b, max: 100}]}");
		struct policy *next = compiled(
			"{requests: {max: 5}, bytes: [{max: 1000, per: 1h}, {max: 1000}], sum: {field: /b, max: 100}}");
		struct ledger *l = ledger_new(p);

		check_int(spend(l, "{\"a\": 90, \"b\": 10}", 900, 1), LEDGER_OK);
		ledger_give_back(l);
		l = go_on(l, next, runs == 1);
		check_int(spend(l, "{\"b\": 80}", 101, 2), LEDGER_OVER);
		check_int(refusal.budget, 2);
		for (int i = 0; i < 5; i++)
			check_int(spend(l, "{\"b\": 18}", 1, 2), LEDGER_OK);
		check_int(spend(l, "{\"b\": 0}", 1, 2), LEDGER_OVER);
		check_int(refusal.budget, 0);
		ledger_free(l);
		policy_unref(p);
		policy_unref(next);
	}
}

TEST(figures_of_an_older_version_are_in_the_order_of_the_budgets)
{
	struct policy *p = compiled("{requests: {max: 5}, bytes: {max: 1000}}");
	struct ledger *l = ledger_new(p);
	json_t *saved =
		json_pack("{s:[{s:I,s:i},{s:I,s:i}]}", "r", "spent", (json_int_t)4 * LEDGER_UNIT,
			"since_ms", 1, "spent", (json_int_t)100 * LEDGER_UNIT, "since_ms", 1);

	check_int(ledger_load(l, saved), 0);
	check_int(spend(l, NULL, 900, 2), LEDGER_OK);
	check_int(spend(l, NULL, 0, 2), LEDGER_OVER);
	json_decref(saved);
	ledger_free(l);
	policy_unref(p);
}

TEST(what_was_leased_and_not_spent_is_given_back)
{
	struct policy *p = compiled("{requests: {max: 100}}");
	struct ledger *l = ledger_new(p), *next = ledger_new(p);
	struct ledger_amounts amounts = { 0 };
	json_t *saved;

	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	check_int(spend(l, NULL, 0, 1), LEDGER_OK);
	ledger_lease(l, 0, &amounts); /* being raised, not yet written down */
	ledger_give_back(l);
	ledger_leased(l);
	saved = ledger_save(l);
	check_int(json_integer_value(
			  json_object_get(json_array_get(json_object_get(saved, "r"), 0), "spent")),
		2 * LEDGER_UNIT);
	check_int(ledger_load(next, saved), 0);
	check_int(ledger_reserve(l, 0, &amounts, 1, &refusal), LEDGER_NEED_LEASE);
	for (int i = 0; i < 98; i++)
		check_int(spend(next, NULL, 0, 1), LEDGER_OK);
	check_int(spend(next, NULL, 0, 1), LEDGER_OVER);
	json_decref(saved);
	ledger_free(l);
	ledger_free(next);
	policy_unref(p);
}
