/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/moments.h - one epoch of a sandbox: who holds its state, and how processes and files are captured (checkpoint/epoch.h has the order, docs/design/0006 the reasons).
 *
 *   moment_take() or moment_suspend() -> moment_keep() in the snapshot's transaction -> moment_fini()
 */
#ifndef CAY_API_MOMENTS_H
#define CAY_API_MOMENTS_H

#include "api/lives.h"

/** struct moment - zeroed but for @sb and what the function wants. */
struct moment {
	struct sandbox *sb;
	const char *snapshot; /* id of the one that keeps it, or that @sb continues from */
	bool live;            /* with its processes */

	/* what the holders have saved */
	uint64_t epoch;  /* number of the epoch that has ended; 0 = the instant was not reached */
	json_t *execs;   /* documents of the execs that were running */
	json_t *gateway; /* state of its gateway */

	/* what was captured */
	struct live *memory; /* its processes; TAKE_PTR() it to keep it */
	json_t *files;       /* what the job says of the layer */
	json_t *figures;     /* times in microseconds by phase, sizes; NULL without processes */

	/* while it is captured */
	bool for_good; /* it is not to go on */
	const char *layer;
	struct job *job;
	unsigned int job_said; /* how often: it is ready, it has captured */
	struct framecall ready, release;
	bool readying, releasing;
	bool spoiled; /* somebody ended whose memory was being copied: it is as if it had not been tried, and worth another try */
};

/**
 * moment_take() - capture @m->sb for a snapshot: its files into a new layer, @m->layer, and with @m->live its processes. A sandbox that stands still is sealed: its files
 * become the layer. Locked. Return: 0 with @m filled, or an error; then the sandbox is as before. Context: fiber; waits.
 */
int moment_take(struct moment *m, struct err *err) attr_must_use;

/** moment_is_sealed() - does nothing of @sb run, and do its files become the layer themselves? */
bool moment_is_sealed(const struct sandbox *sb);

/** moment_suspend() - stop @m->sb for good: @m->memory holds its processes. moment_go() lets it go on after all. Locked. Return: 0 or an error; then it goes on. Context: fiber; waits. */
int moment_suspend(struct moment *m, struct err *err) attr_must_use;

/** moment_go() - after moment_suspend(): go on. Context: fiber; waits. */
void moment_go(struct moment *m);

/** moment_keep() - write what the holders have saved as a part of snapshot @m->snapshot. Context: within its transaction. Return: 0 or an error. */
int moment_keep(struct moment *m, struct err *err) attr_must_use;

/** moment_fork() - new sandbox @sb begins with what the holders have of snapshot @snapshot (id). Return: 0 or an error. */
int moment_fork(struct sandbox *sb, const char *snapshot, struct err *err) attr_must_use;

/** moment_load() - @sb goes back to what the holders have of @s, in its document: written by the caller. Return: 0 or an error. */
int moment_load(struct sandbox *sb, const struct snapshot *s, struct err *err) attr_must_use;

/** moment_is_undone() - did a rewind of its sandbox go back to before this event or message (member "epoch")? @undone: [[first epoch, last epoch],…] of the sandbox's document; NULL: none did. */
bool moment_is_undone(const json_t *undone, const json_t *of);

/** moment_fini() - end what was not taken. Idempotent. */
void moment_fini(struct moment *m);

#endif
