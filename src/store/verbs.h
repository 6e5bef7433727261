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

/* VERB(name, needs the pool) */
#define STORE_VERBS(VERB) \
	VERB(storage, false) \
	VERB(apply, true) \
	VERB(capture, true) \
	VERB(check_apply, true) \
	VERB(diff, true) \
	VERB(get, true) \
	VERB(put, true) \
	VERB(seal, true) \
	VERB(sync, true) \
	VERB(verify, true) \
	VERB(recover, true) \
	VERB(remove, true) \
	VERB(gc, true) \
	VERB(usage, true) \
	VERB(import, true) \
	VERB(mask, true)

#define VERB(name, pool) store_verb store_##name;
STORE_VERBS(VERB)
#undef VERB

#endif
