/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: io/context.h - leave one stack and go on at another, within one thread.
 *
 * On x86-64 and aarch64 a switch is a few instructions (context_swap.S): callee-saved registers, the control words of floating point and the stack
 * pointer; nothing asks the kernel. The mask of signals and alternate signal stacks belong to the thread and are the same in all contexts. Other
 * machines, and programs under AddressSanitizer (which must be told of each switch), use ucontext: the same, with two system calls a switch.
 */
#ifndef CAY_IO_CONTEXT_H
#define CAY_IO_CONTEXT_H

#include "base/attr.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CONTEXT_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define CONTEXT_ASAN 1
#endif
#if defined(CONTEXT_ASAN) || (!defined(__x86_64__) && !defined(__aarch64__))
#define CONTEXT_UCONTEXT 1
#include <ucontext.h>
#endif

/** struct context - where a stack was left; all zero is right for the stack of the thread itself. Must not move. */
struct context {
#ifdef CONTEXT_UCONTEXT
	ucontext_t ucontext;
	void (*entry)(void);
	const void *stack;
	size_t size;
	void *fake_stack; /* AddressSanitizer's */
#else
	void *sp;
#endif
};

/**
 * context_init() - @c will begin with @entry on the stack of @size bytes at @stack, the first time that it is switched to.
 * @stack: page-aligned, borrowed until @c is never switched to again.
 * @entry: must not return.
 */
void context_init(struct context *c, void *stack, size_t size, void (*entry)(void));

/** context_switch() - leave @from, which is what runs now, and go on where @to was left. Returns when somebody switches to @from. */
void context_switch(struct context *from, struct context *to);

#endif
