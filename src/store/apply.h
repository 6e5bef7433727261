/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/apply.h - steps of an apply: a journal of renames that is done whole or undone whole (docs/design/0002 "Apply").
 *
 * A journal is JSON: {"id","sandbox","uid","gid","groups"?,"targets":[dir…],"steps":[{"tree","op","path" (hex),"old","new" (inodes),"mtime","new_mtime"? (ns),"mode","was","origin"?}…]}. Operations: `remove` (entry ->
 * staging/oN), `replace` (staging/nN <-> entry), `add` (staging/nN -> entry), `mode`, and `close`, the mode of a directory that another step has added. Staging is <target>/.cay-apply-<id>.
 */
#ifndef CAY_STORE_APPLY_H
#define CAY_STORE_APPLY_H

#include "base/clock.h"
#include "store/diff.h"
#include "store/job.h"

#define APPLY_STAGING ".cay-apply-"

/* Beside the targets in what apply_recall() gives: handles of the host's files that an apply of a part took away, and what was copied up from them was not brought by it; */
#define APPLY_TAKEN "taken"
/* and how many such there are of each target where files have no handles (rootless) */
#define APPLY_VACATED "vacated"

/** apply_mtime_ns() - when it was last written to, in ns of the wall clock. */
static inline int64_t apply_mtime_ns(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * (int64_t)NS_PER_S + st->st_mtim.tv_nsec;
}

/** apply_as() - act on files as @uid, @gid, with @groups (job_groups()), without any capability over them (0 = as root). Context: single-threaded. */
int apply_as(uid_t uid, gid_t gid, const json_t *groups) attr_must_use;

/** apply_parent() - open the directory that holds @path below @target, never through a link or into another file system; @name is its last part. */
int apply_parent(int target, const char *path, char name[NAME_MAX + 1]) attr_must_use;

/** apply_staging() - open the staging directory of journal @id in @target; with @make create it. */
int apply_staging(int target, const char *id, bool make) attr_must_use;

/** apply_bytes() - the bytes of a hexadecimal path; NULL when it is none. Free it. */
char *apply_bytes(const json_t *hex) attr_must_use;

/** apply_hex() - the reverse. */
json_t *apply_hex(const char *bytes) attr_must_use;

/**
 * apply_recall() - which entries of the host are as an apply of @sandbox left them: {target: {hex path: [inode, ctime, origin]}}. The origin is the handle (hex) of
 * the host's file that the sandbox had copied up, "" when there was none; written before that was recorded, it is missing.
 * @sandbox: NULL gives an empty object. New reference, never NULL.
 */
json_t *apply_recall(const struct store *store, const char *sandbox);

/** apply_record() - add the entry @hex_path of @target as it is now, which came from @origin (NULL: as before), and the directory that it is in, to what apply_recall() gave; or take it out, when it is gone. */
void apply_record(json_t *known, const char *target, const char *hex_path, const char *origin);

/** apply_keep() - write it back. A failure only makes a later apply report conflicts with this one. */
void apply_keep(const struct store *store, const char *sandbox, const json_t *known);

/** apply_forget() - remove what apply_keep() wrote before @until_ns (wall time) for sandboxes that are no members of @keep. */
void apply_forget(const struct store *store, const json_t *keep, uint64_t until_ns);

/** apply_forget_one() - the same for @sandbox (an id), which is no more, whenever it was written. A failure leaves it to apply_forget(). */
void apply_forget_one(const struct store *store, const char *sandbox);

/** apply_begin() - write a journal without steps, before anything is staged: recovery then removes the staging directories. */
int apply_begin(const struct store *store, const json_t *journal, struct err *err) attr_must_use;

/** apply_abandon() - remove what apply_begin() and staging made. */
void apply_abandon(const struct store *store, const json_t *journal);

/**
 * apply_run() - write @journal to STATE/apply, do its steps, mark it done, clean up. Everything is staged already. What says that it was done stays until apply_recover().
 * Return: 0; -errno with @err when it was undone: %ERR_CONFLICT when something on the host moved under our hands. Where not all of it could be undone
 * the staging directories stay, and the journal as STATE/apply/ID.json.failed: @err names both.
 */
int apply_run(const struct store *store, const json_t *journal, struct err *err) attr_must_use;

/**
 * apply_recover() - undo journals that are not done, clean up after those that are.
 * @id: only that of this apply, whose job has ended; NULL: all, and no job runs.
 * Return: 0; -errno with @err when one cannot be undone: it is kept as `.failed`, and the others are done all the same.
 */
int apply_recover(const struct store *store, const char *id, int *undone, int *finished,
	struct err *err) attr_must_use;

#endif
