/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/learned.h - the system call filters that programs have installed, as they were seen when they were (docs/design/0006, "Filters"): where nobody may read them
 * afterwards, this is what is known of them.
 *
 * A filter is known with those below it, so that one number stands for the whole of what a thread has. Threads and processes inherit filters, which nobody sees: from a thread of
 * their process, or of that of their parent. Whose those are is said only where no other answer is possible.
 */
#ifndef CAY_SANDBOX_LEARNED_H
#define CAY_SANDBOX_LEARNED_H

#include "base/attr.h"
#include "base/buf.h"
#include "checkpoint/filter_run.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>

#define LEARNED_UNKNOWN UINT32_MAX

/** struct learned_thread - a thread; numbers of the host's pid namespace. */
struct learned_thread {
	int32_t tid, process, parent;
	uint64_t started; /* as of /proc: with its number it is one thread for ever */
	uint32_t n;       /* filters above the sandbox's own */
	uint32_t threads; /* of its process */
	bool traced;      /* somebody traces it */
};

/** struct learned_install - what a thread is about to install. */
struct learned_install {
	struct learned_thread who; /* with what it has before */
	bool all, log;             /* SECCOMP_FILTER_FLAG_TSYNC, _LOG */
	const struct sock_filter *code;
	uint32_t n; /* instructions, 1 to BPF_MAXINSNS */
	uint32_t
		quiet; /* what is known of its process while it does, and lasts: bits of checkpoint/asker.h */
};

struct learned_filter;
struct learned_record;

/** struct learned - of one sandbox; all zeros at first. */
struct learned {
	struct learned_filter *filters;
	struct learned_record *records; /* who has installed what last */
	size_t n_filters, n_records, bytes;
	bool forgot; /* somebody has installed what is not here: of what is inherited nothing can be said */
	bool hands_on; /* a filter may hand a call to a tracer (SECCOMP_RET_TRACE) */
	bool adopted; /* somebody may have another parent than who made it, as long as that lives */
};

/** struct learned_tree - who there is. @all: every thread of the processes in question and of their ancestors, as they are now. @init: the process that orphans come to. */
struct learned_tree {
	const struct learned_thread *all;
	size_t n;
	int32_t init;
};

/** learned_needs_tree() - does it take more to know what @who has now than what is known of itself? */
bool learned_needs_tree(const struct learned *l, const struct learned_thread *who);

/**
 * learned_add() - take note of it; whether the kernel takes it shows later, by how many a thread has. What there is no room for is forgotten.
 * @tree: where learned_needs_tree(). @lives: does this process still exist? Asked when room is short.
 */
void learned_add(struct learned *l, const struct learned_install *install,
	const struct learned_tree *tree, bool (*lives)(int32_t process));

#define LEARNED_CHAIN_MAX 64U

/** learned_programs() - the filters that @who has, oldest first. @ret: valid until something is added. Return: how many, -ENODATA when they are not known or too many. */
int learned_programs(const struct learned *l, const struct learned_tree *tree,
	const struct learned_thread *who,
	struct filter_program ret[LEARNED_CHAIN_MAX]) attr_must_use;

/** learned_lost() - @who (process 0: nobody knows who) installs a filter that could not be read, for @all threads of its process or for itself. */
void learned_lost(struct learned *l, const struct learned_thread *who, bool all);

/** learned_adoption() - somebody has orphans come to itself (PR_SET_CHILD_SUBREAPER). */
void learned_adoption(struct learned *l);

/** learned_chain() - what @t of @tree has. Return: the uppermost filter, or %LEARNED_UNKNOWN. */
uint32_t learned_chain(
	const struct learned *l, const struct learned_tree *tree, const struct learned_thread *t);

/**
 * learned_refuses() - does a filter that @t of @tree has, or may have where nobody knows which, hand @call to a tracer? The kernel refuses that where nobody traces; but not if somebody below
 * it is told of the call and lets it go on, which comes before that.
 */
bool learned_refuses(const struct learned *l, const struct learned_tree *tree,
	const struct learned_thread *t, const struct seccomp_data *call);

/** learned_write() - append to @out, in the format of checkpoint/seizer.h, the filters of each of @tree that has some. */
void learned_write(const struct learned *l, const struct learned_tree *tree, struct buf *out);

/** learned_fini() - free it. */
void learned_fini(struct learned *l);

#endif
