/* SPDX-License-Identifier: Apache-2.0 */
#include "io/fiber.h"
#include "t.h"

static uv_loop_t loop;
static uv_async_t alive; /* the timers of fibers do not keep a loop going */
static char trace[256];
static size_t n_trace;

static void setup(void)
{
	if (loop.data == NULL) {
		check_int(uv_loop_init(&loop), 0);
		loop.data = &loop;
		check_int(uv_async_init(&loop, &alive, NULL), 0);
		fiber_init(&loop);
	}
	n_trace = 0;
	trace[0] = '\0';
}

/* Let those run that can. */
static void turn(void)
{
	(void)uv_run(&loop, UV_RUN_NOWAIT);
}

static void note(char c)
{
	trace[n_trace++] = c;
	trace[n_trace] = '\0';
}

struct one {
	struct waiters *gate;
	char name;
	int ended;
};

static void wait_once(void *arg)
{
	struct one *o = arg;

	check(fiber_running());
	note(o->name);
	check_int(waiters_wait(o->gate, 0), 0);
	note((char)(o->name - 'a' + 'A'));
	o->ended++;
}

TEST(fibers_take_turns_in_order)
{
	struct waiters gate;
	struct one a = { &gate, 'a', 0 }, b = { &gate, 'b', 0 };

	setup();
	waiters_init(&gate);
	fiber_start(wait_once, &a);
	fiber_start(wait_once, &b);
	check_str(trace, "");
	turn();
	check_str(trace, "ab");
	check(!fiber_running() && waiters_any(&gate));
	waiters_wake(&gate);
	check_str(trace, "ab");
	turn();
	check_str(trace, "abAB");
	check(!waiters_any(&gate) && a.ended + b.ended == 2);
}

static void start_another(void *arg)
{
	struct one *o = arg;

	note('s');
	fiber_start(wait_once, o);
	note('t'); /* the other one begins when this one waits or ends */
}

TEST(a_fiber_started_by_a_fiber_runs_after_it)
{
	struct waiters gate;
	struct one a = { &gate, 'a', 0 };

	setup();
	waiters_init(&gate);
	fiber_start(start_another, &a);
	turn();
	check_str(trace, "sta");
	waiters_wake(&gate);
	turn();
	check_str(trace, "staA");
}

static void wait_until(void *arg)
{
	struct one *o = arg;

	o->ended = waiters_wait(o->gate, clock_now_ns() + NS_PER_MS);
}

TEST(a_deadline_passes)
{
	struct waiters gate;
	struct one a = { &gate, 'a', 0 };

	setup();
	waiters_init(&gate);
	fiber_start(wait_until, &a);
	while (a.ended == 0)
		turn();
	check_int(a.ended, -ETIMEDOUT);
}

/* More fibers than are kept for reuse, each with a good part of its stack in use; twice, so that some are used again. */
enum { MANY = 200 };

static void use_stack(void *arg)
{
	struct one *o = arg;
	char bytes[64 * 1024];

	memset(bytes, o->name, sizeof(bytes));
	check_int(waiters_wait(o->gate, 0), 0);
	for (size_t i = 0; i < sizeof(bytes); i++)
		o->ended += bytes[i] != o->name;
	o->ended++;
}

TEST(many_fibers_keep_their_stacks_apart)
{
	static struct one all[MANY];
	struct waiters gate;

	setup();
	waiters_init(&gate);
	for (int round = 1; round <= 2; round++) {
		for (int i = 0; i < MANY; i++) {
			all[i].gate = &gate;
			all[i].name = (char)i;
			fiber_start(use_stack, &all[i]);
		}
		turn();
		waiters_wake(&gate);
		turn(); /* frees those that are not kept, too */
		for (int i = 0; i < MANY; i++)
			check_int(all[i].ended, round);
	}
}
