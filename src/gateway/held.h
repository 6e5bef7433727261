/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/held.h - bodies that are held until they are judged, in pieces of memory that go back to the kernel at once, within a limit for all of them together.
 *
 * Who finds no room waits. Bodies of unknown length take room as they grow, so all could wait for each other: therefore one at a time may go on beyond the limit, up to its own greatest length.
 * So all that is held is at most the limit of the pool and once the greatest length of a body.
 */
#ifndef CAY_GATEWAY_HELD_H
#define CAY_GATEWAY_HELD_H

#include "base/list.h"
#include "io/fiber.h"

#define HELD_PIECE (256U << 10) /* bytes of a piece, when there is so much */

/** struct room - bytes of memory that many share. */
struct room {
	size_t used, max;
	struct list queue; /* of room_take(), in the order in which they came */
	struct waiters freed;
};

/** room_init() - nothing is used of @max bytes. */
void room_init(struct room *r, size_t max);

/** room_take() - use @n bytes, in turn; more than there are is given when nothing else is used. Return: 0; -ETIMEDOUT. Context: fiber; waits. */
int room_take(struct room *r, size_t n, uint64_t deadline_ns) attr_must_use;

/** room_give() - @n bytes are not used any more. */
void room_give(struct room *r, size_t n);

struct held;

/** struct held_pool - of all bodies of a gateway. */
struct held_pool {
	struct room room;
	const struct held *apart;    /* goes on beyond the limit; NULL: nobody does */
	size_t wanted;               /* by those who wait for room */
	size_t leaving;              /* of what is used: of those who have been told to give way */
	struct waiters *in_no_hurry; /* woken when somebody begins to wait for room; NULL: nobody */
};

struct held_piece;

/** struct held - a body; zeroed: empty. */
struct held {
	struct held_pool *pool;
	struct held_piece *first, *last;
	size_t n;        /* bytes */
	size_t reserved; /* of @pool or beyond it, for them and more to come */
	size_t taken;    /* of the room in @pool */
	bool leaves;     /* held_gives_way() said so */
};

/** held_reserve() - make sure that @h can hold @n bytes in all. Return: 0; -ETIMEDOUT. Context: fiber; waits. */
int held_reserve(
	struct held *h, struct held_pool *pool, size_t n, uint64_t deadline_ns) attr_must_use;

/**
 * held_gives_way() - is @h one that waits for something else, holds more than a piece, and stands in the way of those who wait for room?
 * Return: true: it must be freed soon, and is counted upon; as many are told so as it takes.
 */
bool held_gives_way(struct held *h);

/** held_add() - append. What was not reserved is not counted. Return: 0; -ENOMEM. */
int held_add(struct held *h, const void *p, size_t n) attr_must_use;

/** held_next() - walk the pieces: *@at is NULL for the first one. Return: its bytes, *@ret_n of them; NULL behind the last one. */
const char *held_next(const struct held *h, struct held_piece **at, size_t *ret_n);

/** held_replace() - @h is what @with is, which was not reserved, from now on, and counts as much, no more and no less; @with is empty then. */
void held_replace(struct held *h, struct held *with);

/** held_free() - forget all; whoever waits for room may go on. */
void held_free(struct held *h);

#endif
