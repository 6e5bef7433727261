/* SPDX-License-Identifier: Apache-2.0 */
#include "events/log_budget.h"
#include "base/clock.h"

#define MOST  (64U << 20)
#define SHARE 4  /* of a log that is small no sandbox has all */
#define PART  16 /* of the whole is there again before anything is told behind a loss */

static uint64_t whole_of(const struct journal *j)
{
	uint64_t kept = journal_keep(j)->max_bytes;

	return kept == 0 || kept / SHARE > MOST ? MOST : kept / SHARE;
}

static void fill(struct log_budget *b, uint64_t whole)
{
	uint64_t now = clock_now_ns(), ms = (now - b->as_of_ns) / NS_PER_MS;
	uint64_t more = ms < LOG_BUDGET_MS ? whole * ms / LOG_BUDGET_MS : whole;

	b->left = b->left + more < whole ? b->left + more : whole;
	/* what was rounded off counts the next time */
	if (b->left == whole)
		b->as_of_ns = now;
	else if (more > 0)
		b->as_of_ns += more * (LOG_BUDGET_MS * NS_PER_MS) / whole;
}

void log_budget_init(struct log_budget *b, const struct journal *j)
{
	*b = (struct log_budget){ .left = whole_of(j), .as_of_ns = clock_now_ns() };
}

bool log_budget_spend(struct log_budget *b, const struct journal *j, size_t bytes)
{
	uint64_t whole = whole_of(j), part = b->spent ? whole / PART : 0;

	fill(b, whole);
	b->spent = b->left < bytes || b->left < part;
	if (!b->spent)
		b->left -= bytes;
	return !b->spent;
}
