/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/memories.h - memory of snapshots and of suspended sandboxes on disk: which objects there are, who needs them (docs/design/0009). */
#ifndef CAY_API_MEMORIES_H
#define CAY_API_MEMORIES_H

#include "api/lives.h"

/**
 * memory_save() - have the memory of template @l written as object @id, synced; what the last snapshot of the same sandbox has too is not written again. @sandbox: id of the
 * source. @ret: {"stored","shared","bytes"}, a new reference. Context: waits.
 */
int memory_save(struct server *srv, const struct live *l, const char *id, const char *sandbox,
	json_t **ret, struct err *err) attr_must_use;

/** memory_load() - a template filled from object @id; @execs (borrowed): documents of the execs in it. NULL with @err set. Context: waits. */
struct live *memory_load(struct server *srv, const char *id, json_t *execs, struct err *err);

/** struct memory_loading - a template that is being filled from an object. */
struct memory_loading {
	struct live *live; /* a keeper may be started with it; its processes are not there yet */
	struct job *job;
	unsigned int said;
};

/** memory_load_begin() - as memory_load(), but as far only as a keeper needs. @lazy: one fork will be made of it, and may run before all pages are there, where that can be had. Return: 0, and memory_load_end() must follow; or an error. Context: waits. */
int memory_load_begin(struct server *srv, const char *id, json_t *execs, bool lazy,
	struct memory_loading *m, struct err *err) attr_must_use;

/** memory_load_end() - wait until it is filled. @wanted: false = give it up. NULL with @err set, if it is wanted. Context: waits. */
struct live *memory_load_end(struct memory_loading *m, bool wanted, struct err *err);

/** memory_check() - is every byte of object @id as it was written? %ERR_CORRUPT. Context: waits. */
int memory_check(struct server *srv, const char *id, struct err *err) attr_must_use;

/** memory_is_exact() - did a keeper end the processes just as they are in object @id? Return: 1: yes; 0: no, or there is no such object; or an error: nobody can say. Context: waits. */
int memory_is_exact(struct server *srv, const char *id, struct err *err) attr_must_use;

/** memory_of() - id of the object that document @doc of a snapshot or sandbox names, or NULL. Borrowed. */
const char *memory_of(const json_t *doc);

/** memory_forget() - remove object @id unless something needs it. NULL is allowed. Failure is logged: the next start clears up. Context: waits. */
void memory_forget(struct server *srv, const char *id);

/** memory_forget_later() - the same, in the background. */
void memory_forget_later(struct server *srv, const char *id);

#endif
