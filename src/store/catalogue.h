/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/catalogue.h - the objects that outlive cayd, in SQLite (STATE/cay.db, WAL).
 *
 * Each table holds documents: {id, name, owner, doc}, where doc is JSON that cayd alone reads and writes. What cayd holds in memory is read from here at
 * start; a change is written here before it is answered. A write survives kill -9 of cayd; one with @durable also a power cut.
 */
#ifndef CAY_STORE_CATALOGUE_H
#define CAY_STORE_CATALOGUE_H

#include "base/clock.h"
#include "base/err.h"

#define CATALOGUE_VERSION 3

#define CATALOGUE_LOG_PAGES 128U             /* of 4 KiB: some seven sandboxes that came and went */
#define CATALOGUE_QUIET_NS  (20 * NS_PER_MS) /* without a commit */

enum catalogue_table {
	CATALOGUE_SANDBOXES,
	CATALOGUE_EXECS,
	CATALOGUE_SNAPSHOTS,
	CATALOGUE_IMAGES,
	CATALOGUE_HEADS,    /* heads of event chains; id = sandbox */
	CATALOGUE_KEYS,     /* idempotency keys */
	CATALOGUE_SECRETS,  /* id = name; the value is encrypted */
	CATALOGUE_GATEWAYS, /* what a gateway must find again; id = sandbox/part, owner = sandbox */
	CATALOGUE_MAILS,    /* kept messages; owner = sandbox */
	CATALOGUE_TABLE_COUNT
};

struct catalogue;

/**
 * catalogue_open() - open or create the database.
 * @create: make it when missing.
 *
 * Return: 0, or -errno with @err set: ERR_UNSUPPORTED for a newer schema, ERR_CORRUPT when it is no database of ours.
 */
int catalogue_open(const char *path, bool create, struct catalogue **ret, struct err *err);

/** catalogue_close() - NULL is allowed. */
void catalogue_close(struct catalogue *c);

/** catalogue_begin() - from here to catalogue_commit() several writes are one; may not be nested, and nothing may wait in between. @durable: once committed they survive a power cut. Return: 0 or an error. */
int catalogue_begin(struct catalogue *c, bool durable, struct err *err) attr_must_use;
/** catalogue_commit() - all writes since catalogue_begin(), or none: then with an error, whoever else has the database open. Return: 0 or an error. */
int catalogue_commit(struct catalogue *c, struct err *err) attr_must_use;
/**
 * catalogue_settle() - take what is in the log into the file, if that is worth while and nothing was written for a moment: it waits for the disk. The log then begins anew where it
 * began before, in pages that are still in memory: what is written over pages that are not is read from the disk first, while somebody waits.
 * The first commit behind it waits for the disk all the same: SQLite syncs the head of a log that begins anew.
 * @now_ns: CLOCK_MONOTONIC. Return: was it done? Not as long as somebody else reads what the file has.
 */
bool catalogue_settle(struct catalogue *c, uint64_t now_ns);

/** catalogue_log_pages() - how many pages are in the log that are not known to be in the file. */
unsigned int catalogue_log_pages(const struct catalogue *c);

/** catalogue_abort() - none of the writes since catalogue_begin(); nothing to do when it was not called. */
void catalogue_abort(struct catalogue *c);

/**
 * catalogue_put() - insert or replace.
 * @name: unique within the table, or NULL. @owner: id of what it belongs to, or NULL.
 *
 * Return: 0, or -errno with @err set: ERR_EXISTS when another object has that name.
 */
int catalogue_put(struct catalogue *c, enum catalogue_table table, const char *id, const char *name,
	const char *owner, const char *doc, bool durable, struct err *err);

/** catalogue_get() - *@ret: doc of @id, free() it; NULL when there is none. Return: 0, or an error: nobody knows whether there is one. */
int catalogue_get(struct catalogue *c, enum catalogue_table table, const char *id, char **ret,
	struct err *err) attr_must_use;

/** catalogue_delete() - delete @id; deleting what is not there is no error. */
int catalogue_delete(
	struct catalogue *c, enum catalogue_table table, const char *id, struct err *err);

/** catalogue_delete_owned() - delete everything whose owner is @owner. */
int catalogue_delete_owned(
	struct catalogue *c, enum catalogue_table table, const char *owner, struct err *err);

/** catalogue_each() - call @fn for every row, oldest first; a negative result stops and is returned. */
int catalogue_each(struct catalogue *c, enum catalogue_table table,
	int (*fn)(void *ctx, const char *id, const char *doc), void *ctx, struct err *err);

/** catalogue_each_owned() - the same for the rows whose owner is @owner. */
int catalogue_each_owned(struct catalogue *c, enum catalogue_table table, const char *owner,
	int (*fn)(void *ctx, const char *id, const char *doc), void *ctx, struct err *err);

/* --- past execs: rows of their own, which are looked for and never all read --- */

/** struct past_exec - an exec that is only looked up any more; all borrowed. */
struct past_exec {
	const char *owner; /* its sandbox */
	uint64_t step;     /* its number there */
	const char *id;
	const char *key; /* idempotency key, or NULL */
	const char *doc;
};

/** catalogue_past_put() - in a transaction: instead of row @row of %CATALOGUE_EXECS there is @e from now on. Return: 0 or an error. */
int catalogue_past_put(struct catalogue *c, const char *row, const struct past_exec *e,
	struct err *err) attr_must_use;

/** catalogue_past_drop() - past exec @step of @owner is none any more. Return: 0 or an error. */
int catalogue_past_drop(
	struct catalogue *c, const char *owner, uint64_t step, struct err *err) attr_must_use;

/** catalogue_past_clear() - delete past execs of @owner, @max at most. Return: how many, or an error. */
int catalogue_past_clear(
	struct catalogue *c, const char *owner, unsigned int max, struct err *err) attr_must_use;

/** catalogue_past_owner() - the first owner behind @after in order: *@ret (free() it; NULL: there is none) and the largest step of it. Return: 0 or an error. */
int catalogue_past_owner(struct catalogue *c, const char *after, char **ret, uint64_t *ret_step,
	struct err *err) attr_must_use;

/** catalogue_past_begin() - call @fn for those past execs of @owner whose ids begin with @begin, two at most; a negative result stops and is returned. */
int catalogue_past_begin(struct catalogue *c, const char *owner, const char *begin,
	int (*fn)(void *ctx, const char *id, const char *doc), void *ctx, struct err *err);

/** catalogue_past_key() - the same for the latest with that idempotency key. */
int catalogue_past_key(struct catalogue *c, const char *owner, const char *key,
	int (*fn)(void *ctx, const char *id, const char *doc), void *ctx, struct err *err);

/** struct past_range - steps @after < step < @before: the first @max of them, or the last (@newest: from the largest down). */
struct past_range {
	uint64_t after, before;
	unsigned int max;
	bool newest;
};

/** catalogue_past_each() - the same for a range of steps. */
int catalogue_past_each(struct catalogue *c, const char *owner, const struct past_range *range,
	int (*fn)(void *ctx, const char *id, const char *doc), void *ctx, struct err *err);

#endif
