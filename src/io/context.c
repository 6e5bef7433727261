/* SPDX-License-Identifier: Apache-2.0 */
#include "io/context.h"

#ifdef CONTEXT_UCONTEXT

#ifdef CONTEXT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

static struct context *left, *entered; /* of the last switch */

static void depart(struct context *from, struct context *to)
{
	left = from;
	entered = to;
#ifdef CONTEXT_ASAN
	__sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->size);
#endif
}

/* The first thing on the stack that was switched to: only here does AddressSanitizer say where the thread's own stack lies. */
static void arrive(void)
{
#ifdef CONTEXT_ASAN
	__sanitizer_finish_switch_fiber(entered->fake_stack, &left->stack, &left->size);
#endif
}

static void begin(void)
{
	arrive();
	entered->entry();
}

void context_init(struct context *c, void *stack, size_t size, void (*entry)(void))
{
	*c = (struct context){ .stack = stack, .size = size, .entry = entry };
	(void)getcontext(&c->ucontext);
	c->ucontext.uc_stack.ss_sp = stack;
	c->ucontext.uc_stack.ss_size = size;
	makecontext(&c->ucontext, begin, 0);
}

void context_switch(struct context *from, struct context *to)
{
	depart(from, to);
	(void)swapcontext(&from->ucontext, &to->ucontext);
	arrive();
}

#else

void context_swap(void **leave, void *enter);

/* What context_swap() finds on a stack that was left, lowest word first. Behind it lies the frame of its caller: for a new stack nothing, so that a backtrace ends. */
#ifdef __x86_64__
enum {
	FLOATING = 0,
	RETURN = 7,
	FRAME = 8,
	BEHIND = 1
}; /* a function begins with its stack 8 bytes off 16 */
#else
enum { FLOATING = 20, RETURN = 1, FRAME = 22, BEHIND = 0 };
#endif

/* Control words of floating point as they are now, in the form of the frame. */
static uint64_t floating_now(void)
{
#ifdef __x86_64__
	uint32_t word[2] = { 0, 0 };

	__asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(word[0]), "=m"(word[1]));
	return (uint64_t)word[1] << 32 | word[0];
#else
	uint64_t word;

	__asm__ volatile("mrs %0, fpcr" : "=r"(word));
	return word;
#endif
}

void context_init(struct context *c, void *stack, size_t size, void (*entry)(void))
{
	uint64_t *top = (uint64_t *)stack + size / sizeof(*top) - 2;
	uint64_t *frame = top - BEHIND - FRAME;

	for (uint64_t *word = frame; word < top + 2; word++)
		*word = 0;
	frame[FLOATING] = floating_now();
	frame[RETURN] = (uintptr_t)entry;
	c->sp = frame;
}

void context_switch(struct context *from, struct context *to)
{
	context_swap(&from->sp, to->sp);
}

#endif
