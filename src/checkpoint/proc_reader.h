/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/proc_reader.h - texts of /proc of processes that stand still, read by a thread of ours while the dumper does something else with them.
 *
 * The thread makes no call that a tracer must make, holds no lock and takes no signal; it begins with whoever the dumper comes to last. What it has not begun when it is needed the
 * dumper reads itself. Context of all functions: the dumper's own thread, which a signal may tear out of any of them (dump.c: on_given_up()): then readings_fini() alone is called.
 */
#ifndef CAY_CHECKPOINT_PROC_READER_H
#define CAY_CHECKPOINT_PROC_READER_H

#include "base/attr.h"
#include "base/buf.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

/** enum reading_part - what is read at a time. */
enum reading_part {
	READING_MAPS, /* mappings, and which descriptors there are: before a call is made in the process */
	READING_FILES, /* of each descriptor where it leads, and fdinfo; needs the list */
	READING_PARTS
};

/** struct reading_file - a descriptor. Texts lie in struct reading's @texts, each with a 0 behind it. */
struct reading_file {
	int fd;
	int rc; /* of its texts: 0 or -errno */
	size_t target, target_n, info, info_n;
};

/** struct reading - of one process. */
struct reading {
	int proc; /* /proc/PID, borrowed */
	atomic_int state[READING_PARTS];
	int rc[READING_PARTS]; /* 0 or -errno, when it has been read */
	struct buf maps;
	struct reading_file *files;
	size_t n_files;
	struct buf texts;
};

/** struct readings - of all; all zero to begin with. */
struct readings {
	struct reading *list;
	size_t n;
	pthread_t thread;
	bool started;
	atomic_bool over; /* nothing more is to be begun */
	sem_t read;       /* posted for each part that the thread has read */
};

/** reading_init() - nothing is read of the process of directory @proc, which is borrowed. */
void reading_init(struct reading *r, int proc);

/** reading_warm() - read the descriptors of the process of @proc, which runs, for nothing: the kernel makes the entries of /proc when they are first asked for, which takes longer than to read them. */
void reading_warm(int proc);

/** readings_begin() - the @n processes of @list stand still: have a thread read them, if they are many and there is one to be had. Takes @list, which came from malloc(). */
void readings_begin(struct readings *all, struct reading *list, size_t n);

/** readings_need() - read @part of @r, of @all, or wait until it is read. Return: its rc. */
int readings_need(struct readings *all, struct reading *r, enum reading_part part) attr_must_use;

/** readings_fini() - have the thread end, and forget all. */
void readings_fini(struct readings *all);

#endif
