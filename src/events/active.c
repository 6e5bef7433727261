/* SPDX-License-Identifier: Apache-2.0 */
#include "events/active.h"
#include "base/str.h"

static struct chain **bucket_of(const struct active *a, const char *sandbox)
{
	uint32_t h = 2166136261U;

	for (const char *p = sandbox; *p != '\0'; p++)
		h = (h ^ (unsigned char)*p) * 16777619U;
	return (struct chain **)(uintptr_t)&a->buckets[h % ACTIVE_BUCKETS];
}

struct chain *active_find(const struct active *a, const char *sandbox)
{
	for (struct chain *c = *bucket_of(a, sandbox); c != NULL; c = c->next) {
		if (str_eq(c->sandbox, sandbox))
			return c;
	}
	return NULL;
}

struct chain *active_put(struct active *a, const char *sandbox, const struct journal_head *head)
{
	struct chain **bucket = bucket_of(a, sandbox), *c = xnew(struct chain);

	(void)!str_copy(c->sandbox, sizeof(c->sandbox), sandbox);
	c->head = *head;
	c->first_seq = head->seq + 1;
	memcpy(c->before, head->hash, sizeof(c->before));
	c->next = *bucket;
	*bucket = c;
	return c;
}

static void grow(uint32_t **p, size_t *cap, size_t used, size_t least)
{
	size_t want = *cap * 2 > least ? *cap * 2 : least;

	if (used < *cap)
		return;
	*p = reallocarray(*p, want, sizeof(**p));
	if (*p == NULL)
		abort();
	*cap = want;
}

void active_add(struct active *a, struct chain *c, uint32_t start, uint64_t time_ns,
	const unsigned char hash[LINE_HASH_SIZE])
{
	grow(&a->starts, &a->cap, a->events, 1024);
	grow(&c->numbers, &c->cap, c->count, 16);
	a->chains += c->count == 0;
	c->numbers[c->count++] = a->events;
	a->starts[a->events++] = start;
	if (a->first_time_ns == 0)
		a->first_time_ns = time_ns;
	a->last_time_ns = time_ns;
	c->head.seq++;
	memcpy(c->head.hash, hash, sizeof(c->head.hash));
}

void active_mark_dirty(struct active *a, struct chain *c)
{
	if (c->dirty)
		return;
	c->dirty = true;
	c->next_dirty = a->dirty;
	a->dirty = c;
}

static void add_chain(
	const struct chain *c, struct index_chain *row, uint32_t *numbers, uint32_t first)
{
	*row = (struct index_chain){ .count = c->count, .first = first, .first_seq = c->first_seq };
	memcpy(row->sandbox, c->sandbox, strlen(c->sandbox));
	memcpy(row->before, c->before, sizeof(row->before));
	memcpy(row->after, c->head.hash, sizeof(row->after));
	memcpy(numbers + first, c->numbers, c->count * sizeof(*numbers));
}

int active_write_index(const struct active *a, int dir, const char *name, uint64_t bytes)
{
	struct index_head head = { .first_n = a->first_n,
		.bytes = bytes,
		.first_time_ns = a->first_time_ns,
		.last_time_ns = a->last_time_ns,
		.events = a->events,
		.chains = a->chains };
	cleanup_free struct index_chain *chains =
		xalloc((a->chains + 1) * sizeof(struct index_chain));
	cleanup_free uint32_t *numbers = xalloc((a->events + 1) * sizeof(uint32_t));
	uint32_t n = 0, first = 0;

	for (size_t i = 0; i < ACTIVE_BUCKETS; i++) {
		for (const struct chain *c = a->buckets[i]; c != NULL; c = c->next) {
			if (c->count == 0)
				continue;
			add_chain(c, &chains[n++], numbers, first);
			first += c->count;
		}
	}
	BUG_ON(n != a->chains || first != a->events);
	return segment_index_write(dir, name, head, a->starts, chains, numbers);
}

static void chain_free(struct chain *c)
{
	free(c->numbers);
	free(c);
}

static void remove_dirty(struct active *a, const struct chain *c)
{
	for (struct chain **at = &a->dirty; *at != NULL; at = &(*at)->next_dirty) {
		if (*at == c) {
			*at = c->next_dirty;
			return;
		}
	}
}

void active_forget(struct active *a, const char *sandbox)
{
	for (struct chain **at = bucket_of(a, sandbox); *at != NULL; at = &(*at)->next) {
		struct chain *c = *at;

		if (!str_eq(c->sandbox, sandbox) || c->count > 0)
			continue;
		*at = c->next;
		remove_dirty(a, c);
		chain_free(c);
		return;
	}
}

void active_next(struct active *a, uint64_t first_n)
{
	for (size_t i = 0; i < ACTIVE_BUCKETS; i++) {
		for (struct chain **at = &a->buckets[i]; *at != NULL;) {
			struct chain *c = *at;

			if (!c->dirty) {
				*at = c->next;
				chain_free(c);
				continue;
			}
			c->first_seq = c->head.seq + 1;
			memcpy(c->before, c->head.hash, sizeof(c->before));
			c->count = 0;
			at = &c->next;
		}
	}
	a->first_n = first_n;
	a->events = a->chains = 0;
	a->first_time_ns = a->last_time_ns = 0;
}

void active_clear(struct active *a)
{
	for (size_t i = 0; i < ACTIVE_BUCKETS; i++) {
		while (a->buckets[i] != NULL) {
			struct chain *c = a->buckets[i];

			a->buckets[i] = c->next;
			chain_free(c);
		}
	}
	free(a->starts);
	*a = (struct active){ 0 };
}
