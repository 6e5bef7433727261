/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: policy/ledger.h - what has been spent of a policy's budgets.
 *
 * Pure: the caller tells the time and writes things down. One ledger a sandbox; it is saved, forked and rewound with it.
 *
 * A budget is spent only out of what was written down before (its lease): when the process that counts dies, the next one starts from the written figure, so
 * that a crash may cost a part of a lease but never lets one request too many through. A window begins with the first amount spent in it and lasts as long as
 * the budget says. Amounts are kept in millionths, so that sums of prices are exact.
 *
 * Bytes of bodies are spent as they pass. What is known only afterwards (fields of answers) is added when it is known; the request after that sees it.
 */
#ifndef CAY_POLICY_LEDGER_H
#define CAY_POLICY_LEDGER_H

#include "policy/policy.h"

#define LEDGER_UNIT 1000000 /* of an amount */

struct ledger;

/** struct ledger_amounts - what one exchange spends, by measure. */
struct ledger_amounts {
	uint64_t bytes; /* known so far */
	const json_t *
		body; /* fields of POLICY_REQUEST_FIELD or POLICY_RESPONSE_FIELD are taken from it; may be NULL */
	bool answered; /* an answer came that ought to say what it used: one that does not counts as its budget says */
};

enum ledger_answer {
	LEDGER_OK,
	LEDGER_OVER,      /* a budget is exhausted */
	LEDGER_UNKNOWN,   /* a field to sum is missing, negative or no number */
	LEDGER_NEED_LEASE /* write down ledger_lease() first, then ask again */
};

/** struct ledger_refusal - which budget said no. */
struct ledger_refusal {
	size_t budget;           /* index in the rule */
	uint64_t retry_after_ms; /* until its window ends; 0 = never */
};

/** ledger_new() - nothing is spent. @policy is borrowed and must outlive the ledger. */
struct ledger *ledger_new(const struct policy *policy) attr_must_use;

/** ledger_free() - NULL is allowed. */
void ledger_free(struct ledger *l);

/**
 * ledger_reserve() - spend from all budgets of a rule, or from none.
 * @rule: its index.
 * @now_ms: wall clock.
 * @ret: filled with %LEDGER_OVER and %LEDGER_UNKNOWN.
 */
enum ledger_answer ledger_reserve(struct ledger *l, size_t rule,
	const struct ledger_amounts *amounts, uint64_t now_ms,
	struct ledger_refusal *ret) attr_must_use;

/**
 * ledger_lease() - raise the leases of a rule so that ledger_reserve() with the same @amounts will not ask again soon.
 * Call ledger_leased() once ledger_save() was written down.
 */
void ledger_lease(struct ledger *l, size_t rule, const struct ledger_amounts *amounts);

/** ledger_leased() - the raised leases count from now on. */
void ledger_leased(struct ledger *l);

/**
 * ledger_take() - spend bytes that are about to pass, as many as all byte budgets of a rule have left, at most @n (above 0).
 * @ret: how many; 0 with %LEDGER_OVER. With %LEDGER_NEED_LEASE how many to ask ledger_lease() for.
 */
enum ledger_answer ledger_take(
	struct ledger *l, size_t rule, uint64_t n, uint64_t now_ms, uint64_t *ret) attr_must_use;

/** ledger_give_back() - leases that are not spent are no longer held, nor those being raised: ledger_save() tells exactly what was spent, and the next amount needs a lease again. */
void ledger_give_back(struct ledger *l);

/** ledger_add() - what an answer brought: response fields that are there. */
void ledger_add(
	struct ledger *l, size_t rule, const struct ledger_amounts *amounts, uint64_t now_ms);

/** ledger_save() - the figures to write down, leases included as if they were spent; a new reference. */
json_t *ledger_save(const struct ledger *l) attr_must_use;

/** ledger_load() - take over saved figures, by name of the rule; rules that are gone are forgotten, malformed ones refused. Return: 0 or -EINVAL. */
int ledger_load(struct ledger *l, const json_t *saved) attr_must_use;

/** ledger_take_over() - go on from @former, of another policy: what its budgets of the same rule (by name), measure, field and window have spent and leased. */
void ledger_take_over(struct ledger *l, const struct ledger *former);

/** ledger_show() - for people: [{"rule","measure","field"?,"spent","max","resets_ms"?}], a new reference. */
json_t *ledger_show(const struct ledger *l, uint64_t now_ms) attr_must_use;

#endif
