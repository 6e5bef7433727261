/* SPDX-License-Identifier: Apache-2.0 */
#include "api/beginnings.h"

#include <stdint.h>

bool beginning_same(const json_t *a, const json_t *b)
{
	const json_t *fork = json_object_get(a, "snapshot");

	if (fork != NULL)
		return json_equal(fork, json_object_get(b, "snapshot"));
	return a == b || json_equal(a, b);
}

void beginnings_note(struct beginnings *b, json_t *beginning)
{
	if (b->n == BEGINNINGS_SEEN)
		json_decref(b->seen[--b->n]);
	for (unsigned int i = b->n; i > 0; i--)
		b->seen[i] = b->seen[i - 1];
	b->seen[0] = json_incref(beginning);
	b->n++;
}

json_t *beginnings_last(const struct beginnings *b)
{
	return b->n > 0 ? b->seen[0] : NULL;
}

/* Of the one that was seen @i others ago. */
static unsigned int weight_at(unsigned int i)
{
	return BEGINNINGS_SEEN - i;
}

static unsigned int whole_weight(const struct beginnings *b)
{
	unsigned int sum = 0;

	for (unsigned int i = 0; i < b->n; i++)
		sum += weight_at(i);
	return sum;
}

unsigned int beginnings_weight(const struct beginnings *b, const json_t *beginning)
{
	unsigned int sum = 0, times = 0;

	if (beginning == NULL || json_object_get(beginning, "snapshot") != NULL)
		return 0;
	for (unsigned int i = 0; i < b->n; i++) {
		if (!beginning_same(beginning, b->seen[i]))
			continue;
		sum += weight_at(i);
		times++;
	}
	return times > 1 ? sum : 0;
}

/* Is it the newest of its kind? */
static bool is_first(const struct beginnings *b, unsigned int at)
{
	for (unsigned int i = 0; i < at; i++) {
		if (beginning_same(b->seen[at], b->seen[i]))
			return false;
	}
	return true;
}

static unsigned int count(const json_t *beginning, json_t *const *have, size_t n)
{
	unsigned int found = 0;

	for (size_t i = 0; i < n; i++)
		found += beginning_same(beginning, have[i]);
	return found;
}

/* How far those that are there fall short of the share; in parts of whole_weight(). */
static int64_t lack(unsigned int weight, unsigned int target, unsigned int have, unsigned int whole)
{
	return (int64_t)weight * target - (int64_t)have * whole;
}

json_t *beginnings_lacking(
	const struct beginnings *b, unsigned int target, json_t *const *have, size_t n)
{
	unsigned int whole = whole_weight(b), rest = whole;
	int64_t most = INT64_MIN;
	json_t *found = NULL;

	for (unsigned int i = 0; i < b->n; i++) {
		unsigned int weight = beginnings_weight(b, b->seen[i]);
		int64_t lacks = lack(weight, target, count(b->seen[i], have, n), whole);

		if (weight == 0 || !is_first(b, i))
			continue;
		rest -= weight;
		if (lacks > most) {
			most = lacks;
			found = b->seen[i];
		}
	}
	return lack(rest, target, count(NULL, have, n), whole) > most ? NULL : found;
}

void beginnings_fini(struct beginnings *b)
{
	while (b->n > 0)
		json_decref(b->seen[--b->n]);
}
