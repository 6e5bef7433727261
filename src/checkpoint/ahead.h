/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/ahead.h - copies out of processes that stand still, made by a thread of ours while the dumper does something else with them.
 *
 * The thread makes no call that a tracer must make, holds no lock, takes no signal and ends with the list. Context of all functions: the dumper's own thread, which a signal may tear
 * out of any of them (dump.c: on_given_up()): then ahead_fini() alone is called.
 */
#ifndef CAY_CHECKPOINT_AHEAD_H
#define CAY_CHECKPOINT_AHEAD_H

#include "base/attr.h"
#include "checkpoint/page_set.h"
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/types.h>

/** struct ahead_block - bytes to be copied: of a process, or of what is lent (keep_lent()). */
struct ahead_block {
	pid_t host;       /* whose, without @lent */
	const char *lent; /* mapped here from its beginning on; NULL: out of @host */
	int fd;           /* open on what @lent is of */
	int rc;           /* of the copy, when it was made */
	uint64_t from;    /* address in @host; offset in what is lent */
	uint64_t at;      /* offset in the object */
	uint64_t length;
	char *to;
	struct page_set
		there; /* of the object (borrowed): what of it is to be copied; gets what is there of what is lent */
};

/** struct ahead - what is to be copied; all zero to begin with. */
struct ahead {
	struct ahead_block *blocks;
	size_t n;
	atomic_size_t next; /* that nobody has taken */
	atomic_bool ended;  /* the thread */
	bool started, gone; /* there is one; it may begin */
	bool finished;
	sem_t begin, end;
};

/** ahead_add() - before ahead_start(). @all: of any length; its @to, @lent, @fd and @there stay until ahead_finish(). Return: 0 or -ENOMEM. */
int ahead_add(struct ahead *a, const struct ahead_block *all) attr_must_use;

/** ahead_start() - have a thread wait for ahead_go(). Where there can be none, ahead_finish() does all. */
void ahead_start(struct ahead *a);

/** ahead_go() - all of them stand still. */
void ahead_go(struct ahead *a);

/** ahead_finish() - copy what is not copied yet. After ahead_go(); idempotent. */
void ahead_finish(struct ahead *a);

/** ahead_holds() - after ahead_finish(): was all copied that goes to @to..@to + @length? */
bool ahead_holds(const struct ahead *a, const char *to, uint64_t length);

/** ahead_fini() - have the thread end, and forget all. */
void ahead_fini(struct ahead *a);

#endif
