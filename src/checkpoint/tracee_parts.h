/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: checkpoint/tracee_parts.h - what the files share that have to do with stopped processes. */
#ifndef CAY_CHECKPOINT_TRACEE_PARTS_H
#define CAY_CHECKPOINT_TRACEE_PARTS_H

#include "checkpoint/tracee.h"

/** tracee_trace() - ptrace(2). Return: 0 or -errno. */
int tracee_trace(int request, pid_t tid, uintptr_t address, const void *data);

/** tracee_wait() - wait until thread @tid stops. Return: its status, -ESRCH when it has ended, -ETIMEDOUT (tracee_hurry()), -errno. */
int tracee_wait(pid_t tid);

/** tracee_has_taken_over() - was tracee_take_over() called? */
bool tracee_has_taken_over(void);

/**
 * tracee_await() - wait until @thread has come to its end; whom a call of it has made is in ->child.
 * @child: a process that a call makes is an end, too: it has made that, and waits.
 *
 * Return: 0 at the end, 1 with a child (tracee_on() has it go on), -errno.
 */
int tracee_await(struct tracee_thread *thread, bool child) attr_must_use;

/** tracee_on() - have @thread go on to the same end. Return: 0 or -errno. */
int tracee_on(struct tracee_thread *thread) attr_must_use;

/** tracee_read_words() - tracee_read() of a stopped process that may be closed. A word that is there in part is not read. Return: 0 or -errno. */
int tracee_read_words(const struct tracee *t, uint64_t address, void *to, size_t n) attr_must_use;

/** struct tracee_row - one call of the program that lies in the scratch memory. */
struct tracee_row {
	uint64_t nr, arguments[6];
	int64_t result;
	unsigned char answer[TRACEE_ANSWER_MAX];
};

/** tracee_row_at() - address of row @row in @t, which has its scratch memory. */
uint64_t tracee_row_at(const struct tracee *t, size_t row);

/** tracee_run_rows() - have @thread of @t, which can be given a program, make the calls of @n rows, which have been written, beginning with @row. tracee_await() it. Return: 0 or -errno. */
int tracee_run_rows(
	struct tracee *t, struct tracee_thread *thread, size_t row, size_t n) attr_must_use;

/** tracee_programs() - can thread @i of @t be given a program? What catches or ignores SIGTRAP cannot, and where no memory may be written and executed nobody. */
bool tracee_programs(const struct tracee *t, size_t i);

#endif
