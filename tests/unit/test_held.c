/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "gateway/held.h"
#include "t.h"

static uv_async_t alive; /* the timers of fibers do not keep a loop going */

static uv_loop_t *loop(void)
{
	static uv_loop_t l;
	static bool begun;

	if (!begun) {
		(void)uv_loop_init(&l);
		fiber_init(&l);
		(void)uv_async_init(&l, &alive, NULL);
		begun = true;
	}
	return &l;
}

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

/* Until nobody goes on by himself. */
static void turns(void)
{
	for (int i = 0; i < 10; i++)
		(void)uv_run(loop(), UV_RUN_NOWAIT);
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
