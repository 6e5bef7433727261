/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
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

/* --- between the callbacks of the loop --- */

static void wake_in_prepare(uv_prepare_t *handle)
{
	waiters_wake(handle->data);
	(void)uv_prepare_stop(handle);
}

TEST(one_that_is_woken_just_before_the_loop_waits_does_not_wait_with_it)
{
	struct waiters gate;
	struct one a = { &gate, 'a', 0 };
	static uv_prepare_t prepare;

	setup();
	waiters_init(&gate);
	fiber_start(wait_once, &a);
	turn();
	check_int(uv_prepare_init(&loop, &prepare), 0);
	prepare.data = &gate;
	check_int(uv_prepare_start(&prepare, wake_in_prepare), 0);
	while (a.ended == 0)
		(void)uv_run(&loop, UV_RUN_ONCE); /* nothing else would ever wake it */
	check_str(trace, "aA");
}

static struct waiters closing_gate;

static void on_gone(attr_unused uv_handle_t *handle)
{
	note('x');
}

static void close_and_wake(uv_async_t *handle)
{
	uv_close((uv_handle_t *)handle, on_gone);
	waiters_wake(&closing_gate);
}

TEST(who_is_woken_runs_before_what_was_closed_is_freed)
{
	struct one a = { &closing_gate, 'a', 0 };
	static uv_async_t ringing;

	setup();
	waiters_init(&closing_gate);
	check_int(uv_async_init(&loop, &ringing, close_and_wake), 0);
	fiber_start(wait_once, &a);
	turn();
	check_int(uv_async_send(&ringing), 0);
	while (n_trace < 3)
		(void)uv_run(&loop, UV_RUN_ONCE);
	check_str(trace, "aAx");
}

static uv_timer_t timer; /* due before the deadline of wait_until() */

static void wake_in_timer(uv_timer_t *handle)
{
	waiters_wake(handle->data);
}

static void be_woken_or_late(void *arg)
{
	struct one *o = arg;

	uv_update_time(&loop);
	timer.data = o->gate;
	check_int(uv_timer_start(&timer, wake_in_timer, 0, 0), 0);
	wait_until(o);
}

TEST(who_was_woken_does_not_time_out)
{
	struct waiters gate;
	struct one a = { &gate, 'a', 1 };
	uint64_t both;

	setup();
	waiters_init(&gate);
	check_int(uv_timer_init(&loop, &timer), 0);
	fiber_start(be_woken_or_late, &a);
	turn();
	both = clock_now_ns() + 5 * NS_PER_MS;
	while (clock_now_ns() < both)
		;
	while (a.ended == 1)
		turn();
	check_int(a.ended, 0);
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

static bool looked;

static void on_look(attr_unused uv_async_t *handle)
{
	looked = true;
}

static void work_on(void *arg)
{
	uint64_t *until_ns = arg;

	while (!looked && clock_now_ns() < *until_ns)
		fiber_yield();
}

TEST(the_loop_looks_at_what_has_come_while_one_goes_on)
{
	uint64_t until_ns = clock_now_ns() + 60 * NS_PER_S;
	uv_async_t event;

	setup();
	check_int(uv_async_init(&loop, &event, on_look), 0);
	fiber_start(work_on, &until_ns);
	check_int(uv_async_send(&event), 0);
	while (!looked && clock_now_ns() < until_ns)
		turn();
	check(looked && clock_now_ns() < until_ns);
	turn();
	uv_close((uv_handle_t *)&event, NULL);
	turn();
}
