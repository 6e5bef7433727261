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
 * Bytes of bodies are spent as they pass. What is known only afterwards (fields of answers) is added when it is known. Until then something is held for each request
 * that is open: what the budget says that one answer brings at most, else the most that one brought so far, at least a 64th of the budget (all of it before the first answer has come). It is written down before the request goes out, so a process
 * that dies in the middle of an answer has spent it. Who does not fit beside what is held waits; when nothing is open and something is left, one goes alone, and may go beyond the bound
 * by what its answer brings (not where the budget says what one brings at most). An answer whose end nobody has heard counts as what was held for it (of one that went alone before
 * any had come, a 64th).
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
	bool cut; /* its end did not come, where the last word is: it counts as what was held for it, or as what it said when that is more */
	uint64_t opened; /* for ledger_add(): what ledger_reserve() said */
};

enum ledger_answer {
	LEDGER_OK,
	LEDGER_OVER,    /* a budget is exhausted */
	LEDGER_UNKNOWN, /* a field to sum is missing, negative or no number */
	LEDGER_BUSY, /* what is left is held for answers that are still to come: ask again after ledger_add() */
	LEDGER_NEED_LEASE, /* write down ledger_lease() first, then ask again */
	LEDGER_LATER       /* never of this file: whoever keeps the ledger cannot ask it now */
};

/** struct ledger_result - what goes with an answer. */
struct ledger_result {
	size_t budget; /* that said no: index in the rule */
	uint64_t
		retry_after_ms; /* until its window ends; of %LEDGER_BUSY: the first window of those that hold too much; 0 = never */
	uint64_t
		ledger; /* of %LEDGER_BUSY: which one was asked, a number; and, for ledger_busy(), */
	uint64_t asked[POLICY_BUDGETS_MAX]; /* how much of each budget, in millionths */
	uint64_t
		opened; /* of %LEDGER_OK: something is held for the answer until ledger_add() is told this; 0: nothing is, and it must not be called */
};

/** ledger_new() - nothing is spent. @policy is borrowed and must outlive the ledger. */
struct ledger *ledger_new(const struct policy *policy) attr_must_use;

/** ledger_free() - NULL is allowed. */
void ledger_free(struct ledger *l);

/**
 * ledger_reserve() - spend from all budgets of a rule, or from none. With %LEDGER_OK for a rule that counts fields of answers ledger_add() must follow, once.
 * @rule: its index.
 * @now_ms: wall clock.
 * @ret: zeroed by the caller; filled as it says.
 */
enum ledger_answer ledger_reserve(struct ledger *l, size_t rule,
	const struct ledger_amounts *amounts, uint64_t now_ms,
	struct ledger_result *ret) attr_must_use;

/** ledger_busy() - would ledger_reserve() say %LEDGER_BUSY again to who was told so in @said? Nobody has to read a body for that. Return: false also when another ledger was asked. */
bool ledger_busy(struct ledger *l, size_t rule, const struct ledger_result *said, uint64_t now_ms);

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

/** ledger_give_back() - leases that are not spent are no longer held, nor those being raised: ledger_save() tells exactly what was spent, and what is held for answers that are still to come; and the next amount needs a lease again. */
void ledger_give_back(struct ledger *l);

/**
 * ledger_add() - a request that was reserved is over: what its answer brought, response fields that are there (nothing: none came). What was held for it is let go, unless its rule was dropped
 * meanwhile and came back: that one holds nothing for it, only for those that it let in itself.
 */
void ledger_add(
	struct ledger *l, size_t rule, const struct ledger_amounts *amounts, uint64_t now_ms);

/** ledger_save() - the figures to write down, leases included as if they were spent; a new reference. */
json_t *ledger_save(const struct ledger *l) attr_must_use;

/** ledger_load() - take over saved figures as ledger_take_over() does, of the same rule (by name), measure, field and window; what is of others is forgotten, malformed figures are refused. Return: 0 or -EINVAL. */
int ledger_load(struct ledger *l, const json_t *saved) attr_must_use;

/** ledger_take_over() - go on from @former, of another policy: what its budgets of the same rule (by name), measure, field and window have spent and leased, and the requests that are open under it. */
void ledger_take_over(struct ledger *l, const struct ledger *former);

/** ledger_show() - for people: [{"rule","measure","field"?,"spent","max","resets_ms"?}], a new reference. */
json_t *ledger_show(const struct ledger *l, uint64_t now_ms) attr_must_use;

#endif
