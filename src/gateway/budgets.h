/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/budgets.h - the sandbox's ledger (policy/ledger.h), with its leases written down by cayd before they are spent.
 *
 * A changed policy goes on with what was spent, by the names of its rules. When cayd is away a lease lasts as long as it lasts; then rules with budgets are refused.
 */
#ifndef CAY_GATEWAY_BUDGETS_H
#define CAY_GATEWAY_BUDGETS_H

#include "gateway/gateway.h"
#include "policy/ledger.h"

/** budgets_init() - nothing is spent; the ledger comes with the first configuration. Before gateway_run()'s loop. */
void budgets_init(struct gateway *gw);

/**
 * budgets_reserve() - ledger_reserve(); %LEDGER_LATER: it could not be asked now (the policy in force has no such rule any more, or one that counts answers where that of @policy, of the verdict, did not; or a
 * lease was not written down). Never %LEDGER_NEED_LEASE. Context: fiber; waits while a lease is written down.
 */
enum ledger_answer budgets_reserve(struct gateway *gw, const struct policy *policy, size_t rule,
	const struct ledger_amounts *amounts, struct ledger_result *ret) attr_must_use;

/** budgets_busy() - would budgets_reserve() say %LEDGER_BUSY again to who was told so in @said, as far as that is known without asking? */
bool budgets_busy(struct gateway *gw, const struct policy *policy, size_t rule,
	const struct ledger_result *said);

/**
 * budgets_take() - ledger_take() of at most @n bytes that pass because of @rule of @policy (held by the caller). When another policy is in force by now, its rule of that name counts.
 * Return: how many may pass; 0: none are left, or there is no such rule any more. Context: fiber; waits while a lease is written down.
 */
uint64_t budgets_take(
	struct gateway *gw, const struct policy *policy, size_t rule, uint64_t n) attr_must_use;

/** budgets_add() - ledger_add(), once for each budgets_reserve() that said that something is open, to the rule that budgets_take() would take. Context: fiber; waits until it is written down, a few seconds at most. */
void budgets_add(struct gateway *gw, const struct policy *policy, size_t rule,
	const struct ledger_amounts *amounts);

#endif
