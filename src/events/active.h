/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: events/active.h - the segment that is written: where its lines begin and which chains they belong to, in memory until it is sealed.
 *
 * Every chain that has an event in it is here, with its head; one that only waits for its head to be told too (dirty).
 */
#ifndef CAY_EVENTS_ACTIVE_H
#define CAY_EVENTS_ACTIVE_H

#include "events/journal.h"
#include "events/segment_index.h"

#define ACTIVE_BUCKETS 4096

struct chain {
	struct chain *next;       /* of the same hash bucket */
	char sandbox[ID_LEN + 1]; /* "" = the instance */
	struct journal_head head;
	uint64_t first_seq;                   /* of its first event here, or what that will have */
	unsigned char before[LINE_HASH_SIZE]; /* hash of the event before that */
	uint32_t *numbers;                    /* its lines, counted from the segment's first */
	uint32_t count;
	size_t cap;
	bool dirty;
	struct chain *next_dirty;
};

/** struct active - zero-initialise; active_clear() releases. */
struct active {
	uint64_t first_n;
	uint32_t *starts;
	uint32_t events;
	size_t cap;
	uint64_t first_time_ns, last_time_ns; /* wall; 0 = no event yet */
	struct chain *buckets[ACTIVE_BUCKETS];
	uint32_t chains; /* that have events */
	struct chain *dirty;
};

/** active_find() - chain of @sandbox ("" = the instance), or NULL. */
struct chain *active_find(const struct active *a, const char *sandbox);

/** active_put() - add a chain whose last event before this segment was @head. */
struct chain *active_put(struct active *a, const char *sandbox, const struct journal_head *head);

/** active_add() - the next line begins at @start and belongs to @c, whose head becomes @hash. */
void active_add(struct active *a, struct chain *c, uint32_t start, uint64_t time_ns,
	const unsigned char hash[LINE_HASH_SIZE]);

/** active_mark_dirty() - the head of @c is to be told. */
void active_mark_dirty(struct active *a, struct chain *c);

/** active_forget() - a chain without events here is not known any more, and its head not told. Nothing when there is none. */
void active_forget(struct active *a, const char *sandbox);

/** active_write_index() - seal: write the index of this segment of @bytes bytes. Return: 0 or -errno. */
int active_write_index(
	const struct active *a, int dir, const char *name, uint64_t bytes) attr_must_use;

/** active_next() - begin the next segment, whose first event is @first_n: all is forgotten but heads that are to be told. */
void active_next(struct active *a, uint64_t first_n);

/** active_clear() - release everything. */
void active_clear(struct active *a);

#endif
