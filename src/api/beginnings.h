/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/beginnings.h - for what are sandboxes worth preparing, from what the last ones began with? Pure.
 *
 * Somebody starts in one directory again and again; two who work side by side do so in two, in turn. So the last %BEGINNINGS_SEEN count, each new one more than the
 * one before it, and what was seen only once is nothing to prepare for: it may be a directory that is made for one sandbox alone.
 *
 * A beginning is a JSON object (api/keeper_pool.h), or NULL: nothing that can be prepared. That of a fork ({"snapshot": ID}) counts here as NULL, too.
 */
#ifndef CAY_API_BEGINNINGS_H
#define CAY_API_BEGINNINGS_H

#include <jansson.h>
#include <stdbool.h>

#define BEGINNINGS_SEEN 8U

/** struct beginnings - all zero: none was seen. */
struct beginnings {
	json_t *seen[BEGINNINGS_SEEN]; /* newest first */
	unsigned int n;
};

/** beginning_same() - do sandboxes that begin so begin alike? Of forks the snapshot alone counts. */
bool beginning_same(const json_t *a, const json_t *b);

/** beginnings_note() - a new sandbox begins with @beginning (borrowed). */
void beginnings_note(struct beginnings *b, json_t *beginning);

/** beginnings_last() - what the newest began with; borrowed. */
json_t *beginnings_last(const struct beginnings *b);

/** beginnings_weight() - how much speaks for @beginning; 0: nothing is to be prepared for it. */
unsigned int beginnings_weight(const struct beginnings *b, const json_t *beginning);

/**
 * beginnings_lacking() - for what the next one of @target is to be prepared, so that in the end each beginning has its share of them.
 * @have: for what those were prepared that there are, @n of them.
 * Return: borrowed; NULL: for none.
 */
json_t *beginnings_lacking(
	const struct beginnings *b, unsigned int target, json_t *const *have, size_t n);

/** beginnings_fini() - forgets all. */
void beginnings_fini(struct beginnings *b);

#endif
