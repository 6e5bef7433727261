/* SPDX-License-Identifier: Apache-2.0 */
#include "io/fiber.h"
#include "base/clock.h"
#include "base/log.h"
#include "io/context.h"

#include <sys/mman.h>

#define STACK_SIZE (256U * 1024) /* reserved, not used: pages are touched on demand */
#define GUARD_SIZE 4096U
#define IDLE_MAX   64 /* fibers kept for reuse */
#define TURN_NS    (5 * NS_PER_MS)

struct fiber {
	struct list node; /* in a struct waiters, in ready, or in idle */
	struct context context;
	void *stack;
	void (*fn)(void *arg);
	void *arg;
	void *task;
	uv_timer_t timer;
	bool timed_out;
	bool ended;
};

static uv_loop_t *the_loop;
/*
 * When fibers that are ready run: behind what woke them in the loop's wait (`after`), so before anything is freed that was closed there; else, as
 * after a timer, before the loop waits again (`before`: active while one is ready, and as long the loop does not wait).
 */
static uv_check_t after;
static uv_idle_t before;
static struct context main_context;
static struct fiber *current;
static uint64_t current_ns; /* since when it runs */
static struct list ready = { &ready, &ready };
static struct list idle = { &idle, &idle };
static size_t n_idle;

bool fiber_running(void)
{
	return current != NULL;
}

void fiber_set_task(void *task)
{
	current->task = task;
}

void *fiber_task(void)
{
	return current->task;
}

static void fiber_closed(uv_handle_t *handle)
{
	struct fiber *f = handle->data;

	(void)munmap(f->stack, STACK_SIZE + GUARD_SIZE);
	free(f);
}

static void fiber_retire(struct fiber *f)
{
	if (n_idle < IDLE_MAX) {
		n_idle++;
		list_append(&idle, &f->node);
		return;
	}
	uv_close((uv_handle_t *)&f->timer, fiber_closed);
}

/* Let those run that are ready, and those that they make ready. */
static void take_turns(void)
{
	while (!list_empty(&ready)) {
		struct fiber *next = list_entry(ready.next, struct fiber, node);

		list_remove(&next->node);
		current = next;
		current_ns = clock_now_ns();
		context_switch(&main_context, &next->context);
		current = NULL;
		if (next->ended)
			fiber_retire(next);
	}
	(void)uv_idle_stop(&before);
}

static void on_before(attr_unused uv_idle_t *handle)
{
	take_turns();
}

static void on_after(attr_unused uv_check_t *handle)
{
	take_turns();
}

void fiber_init(uv_loop_t *loop)
{
	the_loop = loop;
	(void)uv_idle_init(loop, &before);
	(void)uv_check_init(loop, &after);
	(void)uv_check_start(&after, on_after);
	uv_unref((uv_handle_t *)&after);
}

static void make_ready(struct fiber *f)
{
	(void)uv_timer_stop(&f->timer); /* who is woken does not time out any more */
	list_remove(&f->node);
	list_append(&ready, &f->node);
	(void)uv_idle_start(&before, on_before);
}

static void entry(void)
{
	for (;;) {
		struct fiber *f = current;

		f->fn(f->arg);
		f->ended = true;
		context_switch(&f->context, &main_context);
	}
}

static struct fiber *fiber_new(void)
{
	struct fiber *f = xnew(struct fiber);

	f->stack = mmap(NULL, STACK_SIZE + GUARD_SIZE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (f->stack == MAP_FAILED || mprotect(f->stack, GUARD_SIZE, PROT_NONE) < 0)
		abort();
	list_init(&f->node);
	context_init(&f->context, (char *)f->stack + GUARD_SIZE, STACK_SIZE, entry);
	(void)uv_timer_init(the_loop, &f->timer);
	f->timer.data = f;
	uv_unref((uv_handle_t *)&f->timer);
	return f;
}

void fiber_start(void (*fn)(void *arg), void *arg)
{
	struct fiber *f;

	if (list_empty(&idle)) {
		f = fiber_new();
	} else {
		f = list_entry(idle.next, struct fiber, node);
		list_remove(&f->node);
		n_idle--;
	}
	f->fn = fn;
	f->arg = arg;
	f->task = NULL;
	f->ended = false;
	make_ready(f);
}

static void on_timeout(uv_timer_t *timer)
{
	struct fiber *f = timer->data;

	f->timed_out = true;
	make_ready(f);
}

bool fiber_strict(void)
{
	return getenv("CAY_STRICT") != NULL;
}

/*
 * Who runs meanwhile may free the nodes that a list_for_each() on the way here still looks at: a fault, though mostly without harm. It is told;
 * under the tests (CAY_STRICT) it ends the program.
 */
static void check_walks(void)
{
	if (list_walks == 0)
		return;
	log_error("fiber", "a fiber waits inside a walk of a list");
	if (fiber_strict())
		abort();
}

static void start_timer(struct fiber *f, uint64_t timeout_ms)
{
	uv_update_time(the_loop);
	(void)uv_timer_start(&f->timer, on_timeout, timeout_ms, 0);
}

static int let_wait(struct fiber *f, struct waiters *w)
{
	unsigned walks = list_walks;

	list_append(&w->fibers, &f->node);
	list_walks = 0;
	context_switch(&f->context, &main_context);
	list_walks = walks;
	return f->timed_out ? -ETIMEDOUT : 0;
}

int waiters_wait(struct waiters *w, uint64_t deadline_ns)
{
	struct fiber *f = current;

	BUG_ON(f == NULL);
	check_walks();
	f->timed_out = false;
	if (deadline_ns != 0) {
		uint64_t now = clock_now_ns();

		if (now >= deadline_ns)
			return -ETIMEDOUT;
		start_timer(f, (deadline_ns - now) / NS_PER_MS + 1);
	}
	return let_wait(f, w);
}

/* Not by going to the end of `ready`: the loop does not look at what has come before nobody is ready. */
void fiber_yield(void)
{
	struct waiters nobody;

	BUG_ON(current == NULL);
	check_walks();
	if (clock_now_ns() - current_ns < TURN_NS)
		return;
	waiters_init(&nobody);
	start_timer(current, 0);
	(void)let_wait(current, &nobody);
}

void waiters_wake(struct waiters *w)
{
	while (!list_empty(&w->fibers))
		make_ready(list_entry(w->fibers.next, struct fiber, node));
}
