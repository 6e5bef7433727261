/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/held.h"

#include <string.h>
#include <sys/mman.h>

#define MAPPED_MIN (64U << 10) /* smaller pieces are malloc's */

struct held_piece {
	struct held_piece *next;
	size_t n, size;
	char bytes[];
};

/* ---- room ------------------------------------------------------------------------------------------------------------------- */

void room_init(struct room *r, size_t max)
{
	*r = (struct room){ .max = max };
	list_init(&r->queue);
	waiters_init(&r->freed);
}

static bool fits(const struct room *r, size_t n)
{
	return n <= r->max && r->used <= r->max - n;
}

/* Who wants much waits for others to go, so nobody who came later goes before. */
int room_take(struct room *r, size_t n, uint64_t deadline_ns)
{
	struct list *place = xnew(struct list);
	int rc = 0;

	list_append(&r->queue, place);
	while (rc == 0 && (r->queue.next != place || (r->used > 0 && !fits(r, n))))
		rc = waiters_wait(&r->freed, deadline_ns);
	list_remove(place);
	free(place);
	if (rc == 0)
		r->used += n;
	if (!list_empty(&r->queue))
		waiters_wake(&r->freed); /* there may be room for the next one, too */
	return rc;
}

void room_give(struct room *r, size_t n)
{
	BUG_ON(n > r->used);
	r->used -= n;
	if (n > 0)
		waiters_wake(&r->freed);
}

/* ---- a body ----------------------------------------------------------------------------------------------------------------- */

int held_reserve(struct held *h, struct held_pool *pool, size_t n, uint64_t deadline_ns)
{
	size_t more = n > h->reserved ? n - h->reserved : 0;

	h->pool = pool;
	while (more > 0 && !fits(&pool->room, more)) {
		int rc;

		if (pool->apart == NULL || pool->apart == h) {
			pool->apart = h;
			h->reserved += more;
			return 0;
		}
		pool->wanted += more;
		if (pool->in_no_hurry != NULL)
			waiters_wake(pool->in_no_hurry);
		rc = waiters_wait(&pool->room.freed, deadline_ns);
		pool->wanted -= more;
		if (rc < 0)
			return rc;
	}
	pool->room.used += more;
	h->taken += more;
	h->reserved += more;
	return 0;
}

bool held_gives_way(struct held *h)
{
	struct held_pool *pool = h->pool;
	bool apart = pool != NULL && pool->apart == h;

	if (pool == NULL || h->leaves || pool->wanted == 0)
		return false;
	if (!apart && h->taken <= HELD_PIECE)
		return false;
	/* somebody who wants room goes on beyond the limit in a moment, and the others ask anew */
	if (pool->apart == NULL || pool->apart->leaves)
		return false;
	if (pool->room.used - pool->leaving + pool->wanted <= pool->room.max)
		return false;
	h->leaves = true;
	pool->leaving += h->taken;
	return true;
}

static struct held_piece *piece_new(size_t size)
{
	size_t whole = sizeof(struct held_piece) + size;
	struct held_piece *piece;

	if (whole < MAPPED_MIN) {
		piece = malloc(whole);
	} else {
		piece = mmap(
			NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		piece = piece != MAP_FAILED ? piece : NULL;
	}
	if (piece != NULL)
		*piece = (struct held_piece){ .size = size };
	return piece;
}

static void piece_free(struct held_piece *piece)
{
	size_t whole = sizeof(*piece) + piece->size;

	if (whole < MAPPED_MIN)
		free(piece);
	else
		(void)munmap(piece, whole);
}

/* Room for at least one byte behind the last one. */
static int add_piece(struct held *h, size_t n)
{
	size_t ahead = h->reserved > h->n ? h->reserved - h->n : 0;
	size_t size = n > ahead ? n : ahead;
	struct held_piece *piece;

	if (size > HELD_PIECE - sizeof(*piece))
		size = HELD_PIECE - sizeof(*piece);
	piece = piece_new(size);
	if (piece == NULL)
		return -ENOMEM;
	if (h->last != NULL)
		h->last->next = piece;
	else
		h->first = piece;
	h->last = piece;
	return 0;
}

int held_add(struct held *h, const void *p, size_t n)
{
	const char *at = p;

	while (n > 0) {
		struct held_piece *piece = h->last;
		size_t part;

		if (piece == NULL || piece->n == piece->size) {
			if (add_piece(h, n) < 0)
				return -ENOMEM;
			piece = h->last;
		}
		part = piece->size - piece->n < n ? piece->size - piece->n : n;
		memcpy(piece->bytes + piece->n, at, part);
		piece->n += part;
		h->n += part;
		at += part;
		n -= part;
	}
	return 0;
}

const char *held_next(const struct held *h, struct held_piece **at, size_t *ret_n)
{
	*at = *at == NULL ? h->first : (*at)->next;
	*ret_n = *at != NULL ? (*at)->n : 0;
	return *at != NULL ? (*at)->bytes : NULL;
}

static void free_pieces(struct held *h)
{
	struct held_piece *piece = h->first;

	while (piece != NULL) {
		struct held_piece *next = piece->next;

		piece_free(piece);
		piece = next;
	}
	h->first = h->last = NULL;
	h->n = 0;
}

/* Counts what is there. Who went on beyond the limit may go on having that much. */
static void settle(struct held *h)
{
	bool apart = h->pool != NULL && h->pool->apart == h;

	if (h->pool != NULL && !apart && h->n > h->reserved) {
		h->pool->room.used += h->n - h->reserved;
		h->taken = h->n;
	} else if (h->pool != NULL && !apart) {
		room_give(&h->pool->room, h->taken - h->n);
		h->taken = h->n;
	}
	if (!apart || h->n > h->reserved)
		h->reserved = h->n;
}

void held_replace(struct held *h, struct held *with)
{
	free_pieces(h);
	h->first = with->first;
	h->last = with->last;
	h->n = with->n;
	*with = (struct held){ 0 };
	settle(h);
}

void held_free(struct held *h)
{
	free_pieces(h);
	if (h->pool == NULL)
		return;
	if (h->pool->apart == h) {
		h->pool->apart = NULL;
		waiters_wake(&h->pool->room.freed); /* the next one may go on beyond the limit */
	}
	h->pool->leaving -= h->leaves ? h->taken : 0;
	room_give(&h->pool->room, h->taken);
	*h = (struct held){ 0 };
}
