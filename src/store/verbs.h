/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/verbs.h - what jobs can do; members and replies are in docs/design/0002-store.md.
 *
 * A verb gets the opened store and the request, sets the reply on success and the error on failure. Context: a job process; blocks.
 */
#ifndef CAY_STORE_VERBS_H
#define CAY_STORE_VERBS_H

#include "store/job.h"

typedef int store_verb(struct job *job, json_t **ok, struct err *err);

/* VERB(name, needs the pool, lock). What only reads needs no lock. `storage` takes its own: not every operation of it changes anything. */
#define STORE_VERBS(VERB) \
	VERB(storage, false, LOCK_NONE) \
	VERB(apply, true, LOCK_SHARED) \
	VERB(capture, true, LOCK_SHARED) \
	VERB(check_apply, true, LOCK_NONE) \
	VERB(diff, true, LOCK_NONE) \
	VERB(disk, true, LOCK_SHARED) \
	VERB(flatten, true, LOCK_SHARED) \
	VERB(get, true, LOCK_NONE) \
	VERB(put, true, LOCK_NONE) \
	VERB(seal, true, LOCK_SHARED) \
	VERB(undo_apply, false, LOCK_SHARED) \
	VERB(unseal, true, LOCK_SHARED) \
	VERB(sync, true, LOCK_NONE) \
	VERB(verify, true, LOCK_SHARED) \
	VERB(recover, true, LOCK_ALONE) \
	VERB(remove, true, LOCK_SHARED) \
	VERB(gc, true, LOCK_SHARED) \
	VERB(usage, true, LOCK_NONE) \
	VERB(import, true, LOCK_SHARED) \
	VERB(mask, true, LOCK_SHARED)

#define VERB(name, pool, lock) store_verb store_##name;
STORE_VERBS(VERB)
#undef VERB

#endif
