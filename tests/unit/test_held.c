/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "fibers.h"
#include "gateway/held.h"
#include "t.h"

static struct room room;
static char order[20];

struct taker {
	char name;
	size_t n;
	uint64_t wait_ns;
	int rc;
};

static void take(void *arg)
{
	struct taker *t = arg;
	size_t at;

	t->rc = room_take(&room, t->n, t->wait_ns > 0 ? clock_now_ns() + t->wait_ns : 0);
	at = strlen(order);
	order[at] = t->rc == 0 ? t->name : (char)(t->name - 'a' + 'A');
}

TEST(who_wants_much_has_a_turn)
{
	struct taker first = { 'a', 60, 0, 0 }, much = { 'b', 90, 0, 0 },
		     little = { 'c', 10, 0, 0 }, late = { 'd', 50, NS_PER_MS, 0 },
		     last = { 'e', 10, 0, 0 };
	struct taker *all[] = { &first, &much, &little, &late, &last };

	room_init(&room, 100);
	(void)loop();
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		fiber_start(take, all[i]);
	while (strchr(order, 'D') == NULL)
		(void)uv_run(loop(), UV_RUN_ONCE);
	check_str(order, "aD"); /* c would fit, b came before it */
	check_int(late.rc, -ETIMEDOUT);
	room_give(&room, first.n);
	turns();
	check_str(order, "aDbc"); /* b, and c beside it; not e */
	check_int(room.used, 100);
	room_give(&room, much.n);
	turns();
	check_str(order, "aDbce");
	room_give(&room, little.n + last.n);
	check_int(room.used, 0);
}

static struct held_pool pool;
static struct waiters idlers;
static struct held idle[3], wanting;
static char gone[4];

/* Holds what it holds until somebody else wants the room. */
static void idler(void *arg)
{
	struct held *h = arg;

	while (!held_gives_way(h))
		(void)waiters_wait(&idlers, 0);
	gone[strlen(gone)] = (char)('0' + (h - idle));
	held_free(h);
}

static void wanter(void *arg)
{
	check_int(held_reserve(&wanting, &pool, *(const size_t *)arg, 0), 0);
}

/* Whoever idles from before stays where it is: cases come in the order that the compiler has put them in. */
static void pool_new(void)
{
	(void)loop();
	memset(gone, 0, sizeof(gone));
	memset(idle, 0, sizeof(idle));
	waiters_init(&idlers);
	pool = (struct held_pool){ 0 };
	room_init(&pool.room, 100 * HELD_PIECE);
	pool.in_no_hurry = &idlers;
}

TEST(who_waits_for_something_else_gives_way_as_many_as_it_takes)
{
	struct held apart = { 0 };
	size_t much = 40 * HELD_PIECE;

	pool_new();
	check_int(held_reserve(&idle[0], &pool, HELD_PIECE, 0), 0); /* too little to matter */
	check_int(held_reserve(&idle[1], &pool, 50 * HELD_PIECE, 0), 0);
	check_int(held_reserve(&idle[2], &pool, 49 * HELD_PIECE, 0), 0);
	for (size_t i = 0; i < 3; i++)
		fiber_start(idler, &idle[i]);
	turns();
	check_int(held_reserve(&apart, &pool, HELD_PIECE, 0), 0); /* the one beyond the limit */
	turns();
	check_str(gone, "");
	fiber_start(wanter, &much);
	turns();
	check_str(gone, "1");
	check_int(wanting.taken, much);
	check_int(pool.wanted, 0);
	check_int(pool.leaving, 0);
	held_free(&wanting);
	held_free(&apart);
}

/* The one beyond the limit, and one of those within it: each would do. */
static void one_of_two_gives_way(size_t first, const char *expect)
{
	size_t much = 40 * HELD_PIECE;

	pool_new();
	check_int(held_reserve(&idle[0], &pool, 80 * HELD_PIECE, 0), 0);
	check_int(held_reserve(&idle[1], &pool, 60 * HELD_PIECE, 0), 0);
	check(pool.apart == &idle[1]);
	fiber_start(idler, &idle[first]);
	fiber_start(idler, &idle[1 - first]);
	turns();
	fiber_start(wanter, &much);
	turns();
	check_str(gone, expect);
	check_int(pool.wanted, 0);
	held_free(&wanting);
	pool.wanted = much; /* the other one goes, too */
	check_int(held_reserve(&wanting, &pool, pool.room.max, 0), 0);
	waiters_wake(&idlers);
	turns();
	check_int((long long)strlen(gone), 2);
	held_free(&wanting);
	check_int(pool.room.used, 0);
	check_int(pool.leaving, 0);
}

TEST(no_more_give_way_than_it_takes_when_one_is_beyond_the_limit)
{
	one_of_two_gives_way(0, "0");
	one_of_two_gives_way(1, "1");
}

TEST(what_takes_the_place_of_a_body_counts_as_what_it_is)
{
	char bytes[1000] = { 0 };
	struct held body = { 0 }, less = { 0 }, more = { 0 };

	pool = (struct held_pool){ 0 };
	room_init(&pool.room, 2000);
	check_int(held_reserve(&body, &pool, 1500, 0), 0);
	check_int(held_add(&body, bytes, 500), 0);
	check_int(held_add(&less, bytes, 100), 0);
	check_int(held_add(&more, bytes, 1000), 0);
	held_replace(&body, &less);
	check_int(body.n, 100);
	check_int(pool.room.used, 100);
	held_replace(&body, &more);
	check_int(pool.room.used, 1000);
	held_free(&body);
	check_int(pool.room.used, 0);
}
