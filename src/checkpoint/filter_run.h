/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: checkpoint/filter_run.h - what system call filters say of a call, as the kernel would (seccomp(2); classic BPF as Documentation/networking/filter.rst describes it). */
#ifndef CAY_CHECKPOINT_FILTER_RUN_H
#define CAY_CHECKPOINT_FILTER_RUN_H

#include "base/attr.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>

/** struct filter_program - one filter; what it says need not be valid. */
struct filter_program {
	const struct sock_filter *code;
	uint32_t n;
};

/** filter_run() - Return: what @f says of @call; a program that the kernel would not take kills the process (SECCOMP_RET_KILL_PROCESS). */
uint32_t filter_run(const struct filter_program *f, const struct seccomp_data *call);

/**
 * filter_refuses() - does @f refuse system call @nr of x86-64 whatever its arguments are, and wherever it is made? What a tracer or a listener may let pass is not refused.
 * Return: false, too, where that cannot be told. What @f says need not be valid.
 */
bool filter_refuses(const struct filter_program *f, int nr);

/** filter_chain_allows() - do all of @n filters let @call be made? Whoever has a tracer or a listener decide does not. */
bool filter_chain_allows(
	const struct filter_program *chain, uint32_t n, const struct seccomp_data *call);

#endif
