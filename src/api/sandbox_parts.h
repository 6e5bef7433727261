/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/sandbox_parts.h - what the files sandbox_*.c share and nobody else needs; api/server.h has the rest. */
#ifndef CAY_API_SANDBOX_PARTS_H
#define CAY_API_SANDBOX_PARTS_H

#include "api/server.h"

/** sandbox_alloc() - put a sandbox with document @doc (stolen) into the list. Return: the list's reference. */
struct sandbox *sandbox_alloc(struct server *srv, const char *id, const char *name, json_t *doc);

/** sandbox_write_new() - the row of a new sandbox, and the event that it was made. 0 or an error; then nothing was told of it. */
int sandbox_write_new(struct sandbox *sb, struct err *err) attr_must_use;

/** sandbox_discard() - of a new sandbox nothing was written or told: it goes, with its keeper. The list's reference goes. Context: waits. */
void sandbox_discard(struct sandbox *sb);

/** sandbox_created_data() - of its event sandbox.created, as its document says them; a new reference. */
json_t *sandbox_created_data(const struct sandbox *sb);

/** sandbox_unlist() - take it out of the world of names; the memory goes with the last reference. */
void sandbox_unlist(struct sandbox *sb);

/** sandbox_set_time() - @member of the document becomes the time of now. */
void sandbox_set_time(struct sandbox *sb, const char *member);

/** sandbox_check_storage() - is there a pool, and what hides the host image's private parts? Else nothing can start. Context: may wait. */
int sandbox_check_storage(struct server *srv, const char *image, struct err *err);

/** sandbox_want_keeper() - have a keeper started for it unless it has one. Context: may wait. */
int sandbox_want_keeper(struct sandbox *sb, struct err *err) attr_must_use;

/**
 * sandbox_launch() - its keeper builds it and runs its init. Locked. Context: waits.
 * @processes: they will be brought into it, so it gets clocks that suit them; NULL = none are. @restore: they are brought into it now, and run. @ret_ok: the keeper's answer, a new
 * reference. Return: 0 or an error; then its keeper is left.
 */
int sandbox_launch(struct sandbox *sb, const struct live *processes, bool restore, json_t **ret_ok,
	struct err *err) attr_must_use;

/**
 * sandbox_tell_changes() - add to @event by how much its programs see their clocks step back, and that files which they have open have other device numbers, where that is so; which of these are databases, to
 * the document of @sb too. @ok: as of sandbox_launch().
 */
void sandbox_tell_changes(struct sandbox *sb, json_t *event, const json_t *ok);

/** sandbox_bind() - what the kernel says of process @init_pid and its descendants is about this sandbox. */
void sandbox_bind(struct sandbox *sb, json_int_t init_pid);

/** sandbox_lost() - its processes are gone, and not because anybody wanted it: @why becomes its error. Locked. Context: waits. */
void sandbox_lost(struct sandbox *sb, const struct err *why);

/** sandbox_drop_keeper() - end its keeper, if it has one. @save: the output of its execs stays on disk, else it is gone. Context: waits. */
void sandbox_drop_keeper(struct sandbox *sb, bool save);

/** sandbox_usage_keep() - its run is over: add what its keeper, if it still answers, counted to the totals that are kept. Context: waits. */
void sandbox_usage_keep(struct sandbox *sb);

/** sandbox_usage_read() - what its keeper has counted in this run; the caller's, NULL when it does not answer. Context: waits. */
json_t *sandbox_usage_read(struct sandbox *sb);

/** sandbox_usage_add() - its run is over: the same in two steps. @run: of sandbox_usage_read(), stolen; NULL: it is missing from the totals, and they say so. */
void sandbox_usage_add(struct sandbox *sb, json_t *run);

#endif
