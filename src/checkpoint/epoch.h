/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/epoch.h - the order in which all of a sandbox is captured at one instant, and the seam for whatever holds a part of its state.
 *
 *   stop what goes out -> freeze -> capture all -> let go
 *
 * Holders are rows of one table. They are stopped and saved in its order, let go and loaded in reverse. Pure: what is done is in the rows and steps; tests/unit/test_epoch.c watches the order.
 */
#ifndef CAY_CHECKPOINT_EPOCH_H
#define CAY_CHECKPOINT_EPOCH_H

#include "base/err.h"

/**
 * struct holder - a part of a sandbox's state that lies neither in its processes nor in its files. Members may be NULL.
 * @stop: nothing of it goes out, and it does not change, until @go. May wait; nothing of the sandbox is frozen yet. Undoes its own half when it fails.
 * @save: the instant; everything stands still, so memory only: no disk, no wait, no failure.
 * @go: undo @stop, after the processes. Also called when the instant was not reached.
 * @keep: write what was saved as a part of the snapshot, in the snapshot's transaction.
 * @fork: a new sandbox begins with what the snapshot has.
 * @load: a sandbox goes back to what the snapshot has.
 */
struct holder {
	const char *name;
	int (*stop)(void *of, struct err *err);
	void (*save)(void *of);
	void (*go)(void *of);
	int (*keep)(void *of, struct err *err);
	int (*fork)(void *of, struct err *err);
	int (*load)(void *of, struct err *err);
};

/**
 * struct epoch_steps - how the processes and files of a sandbox are captured. Members may be NULL.
 * @freeze: nothing runs any more, or it fails and all is as before: with ERR_BUSY, what stood in the way is elsewhere in a moment. It may have begun to capture.
 * @capture: the files.
 * @release: what @freeze has stopped goes on when what it has begun to capture is there. Called whenever @freeze succeeded.
 * @wait: let a moment pass. Never NULL.
 */
struct epoch_steps {
	int (*freeze)(void *of, struct err *err);
	int (*capture)(void *of, struct err *err);
	void (*release)(void *of);
	void (*wait)(void *of);
};

/**
 * struct epoch - one capture; all borrowed. @of goes to every function.
 * @instead: what whoever asks can do where something stands in the way each time, as the end of "try again, or ..."; NULL = nothing.
 * @patience_ns: when that is over no further freeze is tried, of EPOCH_TRIES; 0 = never. One may take all of the 2 s that a process has to stand still.
 */
struct epoch {
	const struct holder *holders;
	size_t n_holders;
	const struct epoch_steps *steps;
	void *of;
	const char *instead;
	uint64_t patience_ns;
};

#define EPOCH_TRIES 8 /* of a freeze that finds something in its way */

/** epoch_stop() - up to the instant: holders stopped, processes frozen, everything captured and saved. Return: 0 and epoch_go() is to follow, unless all of it ends; or an error, and everything goes on. */
int epoch_stop(const struct epoch *e, struct err *err) attr_must_use;

/** epoch_go() - let go what epoch_stop() has stopped. */
void epoch_go(const struct epoch *e);

/** epoch_take() - both. */
int epoch_take(const struct epoch *e, struct err *err) attr_must_use;

/** epoch_keep() - write what was saved, in the order of the table. Return: 0 or the first error. */
int epoch_keep(const struct epoch *e, struct err *err) attr_must_use;

/** epoch_fork() - begin with what a snapshot has, in reverse order. Return: 0 or the first error. */
int epoch_fork(const struct epoch *e, struct err *err) attr_must_use;

/** epoch_load() - go back to what a snapshot has, in reverse order. Return: 0 or the first error. */
int epoch_load(const struct epoch *e, struct err *err) attr_must_use;

#endif
