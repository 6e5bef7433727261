/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: checkpoint/memory_job.h - the jobs that bring the memory of a template to disk and back (docs/design/0009). */
#ifndef CAY_CHECKPOINT_MEMORY_JOB_H
#define CAY_CHECKPOINT_MEMORY_JOB_H

#include "store/job.h"

/**
 * memory_save_verb() - {run, template, memory, sandbox, base} -> {stored, shared, bytes}: memory object `memory` is on disk, synced. `base` (may be missing): an object whose
 * bytes need not be written again; when it cannot be read all are written.
 */
int memory_save_verb(struct job *job, json_t **ok, struct err *err) attr_must_use;

/** memory_load_verb() - {run, template, memory}: fill the fresh `template`, which can be forked then, from object `memory`. */
int memory_load_verb(struct job *job, json_t **ok, struct err *err) attr_must_use;

/** memory_check_verb() - {memories}: every byte of these objects is as it was written. */
int memory_check_verb(struct job *job, json_t **ok, struct err *err) attr_must_use;

/** memory_exact_verb() - {memory} -> {exact}: is the object there, and did a keeper end the processes as they are in it? Whatever keeps it from looking is an error, not a no. */
int memory_exact_verb(struct job *job, json_t **ok, struct err *err) attr_must_use;

#define MEMORY_VERBS \
	{ "memory_save", memory_save_verb, true, true, LOCK_SHARED }, \
		{ "memory_load", memory_load_verb, true, true, LOCK_NONE }, \
		{ "memory_check", memory_check_verb, true, true, LOCK_NONE }, \
	{ \
		"memory_exact", memory_exact_verb, true, true, LOCK_NONE \
	}

#endif
