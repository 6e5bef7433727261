/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: events/log_budget.h - how much of the log what one sandbox does by itself may take.
 *
 * The log has one size for all, and its oldest segment goes whosever events are in it. So events that a sandbox can make without end and without anybody's leave have a budget of bytes: at once
 * what many builds have, and as much again each LOG_BUDGET_MS. What is above it is counted by whoever spends, and told as one loss.
 */
#ifndef CAY_EVENTS_LOG_BUDGET_H
#define CAY_EVENTS_LOG_BUDGET_H

#include "events/journal.h"

#define LOG_BUDGET_MS 256000 /* in which all of it is there again */

/** struct log_budget - of one sandbox and one kind of events. */
struct log_budget {
	uint64_t left;     /* bytes, */
	uint64_t as_of_ns; /* as of then */
	bool spent;        /* until a part of it is there again */
};

/** log_budget_init() - all of it is there. */
void log_budget_init(struct log_budget *b, const struct journal *j);

/** log_budget_spend() - may it have @bytes of the log? One that has spent all waits for a part of it: not one event and one loss by turns. */
bool log_budget_spend(struct log_budget *b, const struct journal *j, size_t bytes);

#endif
