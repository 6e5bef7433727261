/* SPDX-License-Identifier: Apache-2.0 */
#include "store/catalogue.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"

#include <sqlite3.h>
#include <string.h>

#define LOG_PAGES_MAX 1000      /* where it is never quiet */
#define GROWTH_BYTES  (1 << 20) /* of the file, at once: on a full disk the rest of it is room */

enum statement { PUT, GET, DELETE, DELETE_OWNED, EACH, EACH_OWNED, STATEMENT_COUNT };

enum past_statement {
	PAST_PUT,
	PAST_DROP,
	PAST_CLEAR,
	PAST_OWNER,
	PAST_BEGIN,
	PAST_KEY,
	PAST_FIRST,
	PAST_LAST,
	PAST_COUNT
};

struct catalogue {
	sqlite3 *db;
	sqlite3_stmt *statements[CATALOGUE_TABLE_COUNT][STATEMENT_COUNT];
	sqlite3_stmt *past[PAST_COUNT];
	sqlite3_stmt *begin, *commit;
	bool open;
	bool in_transaction;
	bool full;              /* PRAGMA synchronous is FULL */
	unsigned int log_pages; /* written to the log since it began */
	uint64_t committed_ns;  /* when the last of them were */
};

/* A table is made by the first version of the schema that has it. */
static const struct {
	const char *name;
	int since;
} tables[CATALOGUE_TABLE_COUNT] = {
	[CATALOGUE_SANDBOXES] = { "sandboxes", 1 },
	[CATALOGUE_EXECS] = { "execs", 1 },
	[CATALOGUE_SNAPSHOTS] = { "snapshots", 1 },
	[CATALOGUE_IMAGES] = { "images", 1 },
	[CATALOGUE_HEADS] = { "heads", 1 },
	[CATALOGUE_KEYS] = { "keys", 1 },
	[CATALOGUE_SECRETS] = { "secrets", 2 },
	[CATALOGUE_GATEWAYS] = { "gateways", 2 },
	[CATALOGUE_MAILS] = { "mails", 2 },
};

static const char *const statement_texts[STATEMENT_COUNT] = {
	/* an upsert keeps the rowid, and with it the order of creation */
	"INSERT INTO %s (id, name, owner, doc) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (id) DO UPDATE SET name = ?2, owner = ?3, doc = ?4",
	"SELECT doc FROM %s WHERE id = ?1",
	"DELETE FROM %s WHERE id = ?1",
	"DELETE FROM %s WHERE owner = ?1",
	"SELECT id, doc FROM %s ORDER BY number",
	"SELECT id, doc FROM %s WHERE owner = ?1 ORDER BY number",
};

#define PAST_SINCE 3
static const char *const past_tables =
	"CREATE TABLE past (number INTEGER PRIMARY KEY, owner TEXT NOT NULL, step INTEGER NOT NULL, id TEXT NOT NULL, key TEXT,"
	" doc TEXT NOT NULL); CREATE UNIQUE INDEX past_step ON past (owner, step); CREATE INDEX past_id ON past (owner, id);"
	" CREATE INDEX past_key ON past (owner, key) WHERE key IS NOT NULL";

/* "~" is behind whatever an id has. */
static const char *const past_texts[PAST_COUNT] = {
	[PAST_PUT] =
		"INSERT OR REPLACE INTO past (owner, step, id, key, doc) VALUES (?1, ?2, ?3, ?4, ?5)",
	[PAST_DROP] = "DELETE FROM past WHERE owner = ?1 AND step = ?2",
	[PAST_CLEAR] =
		"DELETE FROM past WHERE number IN (SELECT number FROM past WHERE owner = ?1 LIMIT ?2)",
	[PAST_OWNER] =
		"SELECT owner, step FROM past WHERE owner = (SELECT min(owner) FROM past WHERE owner > ?1) ORDER BY step DESC LIMIT 1",
	[PAST_BEGIN] =
		"SELECT id, doc FROM past WHERE owner = ?1 AND id >= ?2 AND id < ?2 || '~' ORDER BY id LIMIT 2",
	[PAST_KEY] =
		"SELECT id, doc FROM past WHERE owner = ?1 AND key = ?2 ORDER BY step DESC LIMIT 1",
	[PAST_FIRST] =
		"SELECT id, doc FROM past WHERE owner = ?1 AND step > ?2 AND step < ?3 ORDER BY step LIMIT ?4",
	[PAST_LAST] =
		"SELECT id, doc FROM past WHERE owner = ?1 AND step > ?2 AND step < ?3 ORDER BY step DESC LIMIT ?4",
};

/* For the index of its log (cay.db-shm), which each first connection makes anew, SQLite has no word of its own. */
static bool has_no_room(struct catalogue *c, int rc)
{
	int why = sqlite3_system_errno(c->db);

	return rc == SQLITE_FULL || (rc == SQLITE_IOERR && (why == ENOSPC || why == EDQUOT));
}

static int fail(struct catalogue *c, struct err *err, const char *what)
{
	int rc = sqlite3_errcode(c->db) & 0xFF;

	switch (has_no_room(c, rc) ? SQLITE_FULL : rc) {
	case SQLITE_FULL:
		return err_hint(err,
			err_raise(err, ERR_DISK_FULL, "%s: %s", what, sqlite3_errstr(SQLITE_FULL)),
			"make room on the disk of the state directory: cay rm, cay prune, or remove other files there");
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB: /* once it is open, nothing is said with it of the object that was asked for */
		return err_hint(err,
			err_raise(err, c->open ? ERR_INTERNAL : ERR_CORRUPT, "%s: %s", what,
				sqlite3_errmsg(c->db)),
			"cay.db in the state directory is damaged: see to the disk; 'sqlite3 cay.db .recover' saves what can be read of it");
	default:
		return err_raise(err, ERR_INTERNAL, "%s: %s", what, sqlite3_errmsg(c->db));
	}
}

static int run_text(struct catalogue *c, const char *sql, struct err *err)
{
	if (sqlite3_exec(c->db, sql, NULL, NULL, NULL) != SQLITE_OK)
		return fail(c, err, "catalogue");
	return 0;
}

static int read_version(struct catalogue *c, int64_t *version, struct err *err)
{
	sqlite3_stmt *s = NULL;

	if (sqlite3_prepare_v2(c->db, "PRAGMA user_version", -1, &s, NULL) != SQLITE_OK ||
		sqlite3_step(s) != SQLITE_ROW) {
		(void)sqlite3_finalize(s);
		return fail(c, err, "open catalogue");
	}
	*version = sqlite3_column_int64(s, 0);
	(void)sqlite3_finalize(s);
	return 0;
}

/* Make what a database of @version lacks. */
static int create_tables(struct catalogue *c, int64_t version, struct err *err)
{
	char sql[512];
	int rc = run_text(c, "BEGIN IMMEDIATE", err);

	for (size_t i = 0; i < CATALOGUE_TABLE_COUNT && rc == 0; i++) {
		const char *name = tables[i].name;

		if (tables[i].since <= version)
			continue;
		(void)snprintf(sql, sizeof(sql),
			"CREATE TABLE %s (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, name TEXT UNIQUE,"
			" owner TEXT, doc TEXT NOT NULL); CREATE INDEX %s_owner ON %s (owner)",
			name, name, name);
		rc = run_text(c, sql, err);
	}
	if (rc == 0 && version < PAST_SINCE)
		rc = run_text(c, past_tables, err);
	(void)snprintf(sql, sizeof(sql), "PRAGMA user_version = %d", CATALOGUE_VERSION);
	if (rc == 0)
		rc = run_text(c, sql, err);
	if (rc == 0)
		rc = run_text(c, "COMMIT", err);
	return rc;
}

static int prepare(struct catalogue *c, struct err *err)
{
	char sql[512];

	for (size_t t = 0; t < CATALOGUE_TABLE_COUNT; t++) {
		for (size_t k = 0; k < STATEMENT_COUNT; k++) {
			int n = 0;

			/* %s stands once in every text */
			n = snprintf(sql, sizeof(sql), "%.*s%s%s",
				(int)(strstr(statement_texts[k], "%s") - statement_texts[k]),
				statement_texts[k], tables[t].name,
				strstr(statement_texts[k], "%s") + 2);
			if (sqlite3_prepare_v3(c->db, sql, n, SQLITE_PREPARE_PERSISTENT,
				    &c->statements[t][k], NULL) != SQLITE_OK)
				return fail(c, err, "open catalogue");
		}
	}
	for (size_t k = 0; k < PAST_COUNT; k++) {
		if (sqlite3_prepare_v3(c->db, past_texts[k], -1, SQLITE_PREPARE_PERSISTENT,
			    &c->past[k], NULL) != SQLITE_OK)
			return fail(c, err, "open catalogue");
	}
	if (sqlite3_prepare_v2(c->db, "BEGIN IMMEDIATE", -1, &c->begin, NULL) != SQLITE_OK ||
		sqlite3_prepare_v2(c->db, "COMMIT", -1, &c->commit, NULL) != SQLITE_OK)
		return fail(c, err, "open catalogue");
	return 0;
}

/* Return: is all of the log in the file? Who reads keeps the rest of it out of there, which is no error. */
static bool checkpoint(struct catalogue *c)
{
	int pages = -1, done = -1;

	return sqlite3_wal_checkpoint_v2(c->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &done) ==
		       SQLITE_OK &&
	       done == pages;
}

/* Behind each commit, in place of SQLite's own checkpoints: somebody waits for this commit. */
static int on_logged(void *ctx, attr_unused sqlite3 *db, attr_unused const char *name, int pages)
{
	struct catalogue *c = ctx;

	c->log_pages = (unsigned int)pages;
	c->committed_ns = clock_now_ns();
	if (pages >= LOG_PAGES_MAX)
		(void)checkpoint(c);
	return SQLITE_OK;
}

bool catalogue_settle(struct catalogue *c, uint64_t now_ns)
{
	if (c->in_transaction || c->log_pages < CATALOGUE_LOG_PAGES ||
		now_ns < c->committed_ns + CATALOGUE_QUIET_NS || !checkpoint(c))
		return false;
	c->log_pages = 0;
	return true;
}

unsigned int catalogue_log_pages(const struct catalogue *c)
{
	return c->log_pages;
}

/* The -wal and -shm files stay when the last connection closes: cayd may not make files in STATE. */
static int configure(struct catalogue *c, struct err *err)
{
	int persist = 1, growth = GROWTH_BYTES;

	(void)sqlite3_busy_timeout(c->db, 2000);
	(void)sqlite3_file_control(c->db, "main", SQLITE_FCNTL_PERSIST_WAL, &persist);
	(void)sqlite3_file_control(c->db, "main", SQLITE_FCNTL_CHUNK_SIZE, &growth);
	(void)sqlite3_wal_hook(c->db, on_logged, c);
	return run_text(c,
		"PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF",
		err);
}

/* SQLite makes paths absolute by following links; ours may lead through a descriptor (/proc/self/fd/N/…) and must be used as it is. */
static int full_path_as_is(attr_unused sqlite3_vfs *vfs, const char *name, int size, char *out)
{
	if (str_copy(out, (size_t)size, name) < 0)
		return SQLITE_CANTOPEN;
	return SQLITE_OK;
}

static const char *vfs_name(void)
{
	static sqlite3_vfs vfs;
	const sqlite3_vfs *standard = sqlite3_vfs_find("unix");

	if (vfs.zName != NULL || standard == NULL)
		return vfs.zName;
	vfs = *standard;
	vfs.pNext = NULL;
	vfs.zName = "cay";
	vfs.xFullPathname = full_path_as_is;
	(void)sqlite3_vfs_register(&vfs, 0);
	return vfs.zName;
}

int catalogue_open(const char *path, bool create, struct catalogue **ret, struct err *err)
{
	struct catalogue *c = xnew(struct catalogue);
	int64_t version = 0;
	int rc;

	rc = sqlite3_open_v2(path, &c->db,
		     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX |
			     (create ? SQLITE_OPEN_CREATE : 0),
		     vfs_name()) != SQLITE_OK
		     ? fail(c, err, "open catalogue")
		     : 0;
	if (rc == 0)
		rc = configure(c, err);
	if (rc == 0)
		rc = read_version(c, &version, err);
	if (rc == 0 && version > CATALOGUE_VERSION)
		rc = err_raise(err, ERR_UNSUPPORTED,
			"the catalogue '%s' was written by a newer version of cay (schema %ld)",
			path, version);
	if (rc == 0 && version < CATALOGUE_VERSION)
		rc = create_tables(c, version, err);
	if (rc == 0)
		rc = prepare(c, err);
	if (rc < 0) {
		catalogue_close(c);
		return rc;
	}
	c->open = true;
	*ret = c;
	return 0;
}

void catalogue_close(struct catalogue *c)
{
	if (c == NULL)
		return;
	for (size_t t = 0; t < CATALOGUE_TABLE_COUNT; t++) {
		for (size_t k = 0; k < STATEMENT_COUNT; k++)
			(void)sqlite3_finalize(c->statements[t][k]);
	}
	for (size_t k = 0; k < PAST_COUNT; k++)
		(void)sqlite3_finalize(c->past[k]);
	(void)sqlite3_finalize(c->begin);
	(void)sqlite3_finalize(c->commit);
	(void)sqlite3_close_v2(c->db);
	free(c);
}

static int step_done(struct catalogue *c, sqlite3_stmt *s, struct err *err, const char *what)
{
	int rc = sqlite3_step(s);

	if (rc != SQLITE_DONE && rc != SQLITE_ROW) {
		int extended = sqlite3_extended_errcode(c->db);

		rc = extended == SQLITE_CONSTRAINT_UNIQUE
			     ? err_raise(err, ERR_EXISTS, "%s: the name is taken", what)
			     : fail(c, err, what);
	} else {
		rc = 0;
	}
	(void)sqlite3_reset(s);
	(void)sqlite3_clear_bindings(s);
	return rc;
}

/* NORMAL syncs only at checkpoints; FULL syncs the log at every commit. */
static int set_full(struct catalogue *c, bool full, struct err *err)
{
	int rc = 0;

	if (c->full != full)
		rc = run_text(
			c, full ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL", err);
	if (rc == 0)
		c->full = full;
	return rc;
}

int catalogue_begin(struct catalogue *c, bool durable, struct err *err)
{
	int rc;

	BUG_ON(c->in_transaction);
	rc = set_full(c, durable, err); /* cannot be changed inside */
	if (rc == 0)
		rc = step_done(c, c->begin, err, "catalogue");
	c->in_transaction = rc == 0;
	return rc;
}

int catalogue_commit(struct catalogue *c, struct err *err)
{
	int rc;

	BUG_ON(!c->in_transaction);
	c->in_transaction = false;
	rc = fault("catalogue.commit.before");
	if (rc < 0)
		err_raise_sys(err, rc, "catalogue");
	if (rc == 0)
		rc = step_done(c, c->commit, err, "catalogue");
	if (rc < 0)
		(void)sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
	return rc;
}

void catalogue_abort(struct catalogue *c)
{
	if (c->in_transaction)
		(void)sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
	c->in_transaction = false;
}

int catalogue_put(struct catalogue *c, enum catalogue_table table, const char *id, const char *name,
	const char *owner, const char *doc, bool durable, struct err *err)
{
	sqlite3_stmt *s = c->statements[table][PUT];
	int rc = c->in_transaction ? 0 : set_full(c, durable, err);

	if (rc == 0 && (rc = fault("catalogue.put.before")) < 0)
		return err_raise_sys(err, rc, "catalogue");
	if (rc < 0)
		return rc;
	(void)sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(s, 2, name, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(s, 3, owner, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(s, 4, doc, -1, SQLITE_STATIC);
	return step_done(c, s, err, "catalogue");
}

int catalogue_get(struct catalogue *c, enum catalogue_table table, const char *id, char **ret,
	struct err *err)
{
	sqlite3_stmt *s = c->statements[table][GET];
	int rc = fault("catalogue.get.before");

	*ret = NULL;
	if (rc < 0)
		return err_raise_sys(err, rc, "read catalogue");
	(void)sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
	rc = sqlite3_step(s);
	if (rc == SQLITE_ROW)
		*ret = str_dup((const char *)sqlite3_column_text(s, 0));
	rc = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : fail(c, err, "read catalogue");
	(void)sqlite3_reset(s);
	(void)sqlite3_clear_bindings(s);
	return rc;
}

static int delete_with(struct catalogue *c, sqlite3_stmt *s, const char *key, struct err *err)
{
	int rc = c->in_transaction ? 0 : set_full(c, false, err);

	if (rc < 0)
		return rc;
	(void)sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC);
	return step_done(c, s, err, "catalogue");
}

int catalogue_delete(
	struct catalogue *c, enum catalogue_table table, const char *id, struct err *err)
{
	return delete_with(c, c->statements[table][DELETE], id, err);
}

int catalogue_delete_owned(
	struct catalogue *c, enum catalogue_table table, const char *owner, struct err *err)
{
	return delete_with(c, c->statements[table][DELETE_OWNED], owner, err);
}

static int each_row(struct catalogue *c, sqlite3_stmt *s,
	int (*fn)(void *ctx, const char *id, const char *doc), void *ctx, struct err *err)
{
	int rc, result = 0;

	while ((rc = sqlite3_step(s)) == SQLITE_ROW && result >= 0)
		result = fn(ctx, (const char *)sqlite3_column_text(s, 0),
			(const char *)sqlite3_column_text(s, 1));
	if (result >= 0 && rc != SQLITE_DONE)
		result = fail(c, err, "read catalogue");
	(void)sqlite3_reset(s);
	(void)sqlite3_clear_bindings(s);
	return result;
}

int catalogue_each(struct catalogue *c, enum catalogue_table table,
	int (*fn)(void *ctx, const char *id, const char *doc), void *ctx, struct err *err)
{
	return each_row(c, c->statements[table][EACH], fn, ctx, err);
}

int catalogue_each_owned(struct catalogue *c, enum catalogue_table table, const char *owner,
	int (*fn)(void *ctx, const char *id, const char *doc), void *ctx, struct err *err)
{
	sqlite3_stmt *s = c->statements[table][EACH_OWNED];

	(void)sqlite3_bind_text(s, 1, owner, -1, SQLITE_STATIC);
	return each_row(c, s, fn, ctx, err);
}

/* --- past execs --- */

int catalogue_past_put(
	struct catalogue *c, const char *row, const struct past_exec *e, struct err *err)
{
	sqlite3_stmt *s = c->past[PAST_PUT];
	int rc = fault("catalogue.past.before");

	if (rc < 0)
		return err_raise_sys(err, rc, "catalogue");
	rc = catalogue_delete(c, CATALOGUE_EXECS, row, err);
	if (rc < 0)
		return rc;
	(void)sqlite3_bind_text(s, 1, e->owner, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(s, 2, (sqlite3_int64)e->step);
	(void)sqlite3_bind_text(s, 3, e->id, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(s, 4, e->key, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(s, 5, e->doc, -1, SQLITE_STATIC);
	return step_done(c, s, err, "catalogue");
}

int catalogue_past_drop(struct catalogue *c, const char *owner, uint64_t step, struct err *err)
{
	sqlite3_stmt *s = c->past[PAST_DROP];

	(void)sqlite3_bind_int64(s, 2, (sqlite3_int64)step);
	return delete_with(c, s, owner, err);
}

int catalogue_past_clear(struct catalogue *c, const char *owner, unsigned int max, struct err *err)
{
	sqlite3_stmt *s = c->past[PAST_CLEAR];
	int rc;

	(void)sqlite3_bind_int64(s, 2, max);
	rc = delete_with(c, s, owner, err);
	return rc < 0 ? rc : sqlite3_changes(c->db);
}

int catalogue_past_owner(
	struct catalogue *c, const char *after, char **ret, uint64_t *ret_step, struct err *err)
{
	sqlite3_stmt *s = c->past[PAST_OWNER];
	int rc;

	*ret = NULL;
	(void)sqlite3_bind_text(s, 1, after, -1, SQLITE_STATIC);
	rc = sqlite3_step(s);
	if (rc == SQLITE_ROW) {
		*ret = str_dup((const char *)sqlite3_column_text(s, 0));
		*ret_step = (uint64_t)sqlite3_column_int64(s, 1);
	}
	rc = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : fail(c, err, "read catalogue");
	(void)sqlite3_reset(s);
	(void)sqlite3_clear_bindings(s);
	return rc;
}

static int each_past(struct catalogue *c, enum past_statement k, const char *owner,
	const char *text, int (*fn)(void *ctx, const char *id, const char *doc), void *ctx,
	struct err *err)
{
	sqlite3_stmt *s = c->past[k];

	(void)sqlite3_bind_text(s, 1, owner, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(s, 2, text, -1, SQLITE_STATIC);
	return each_row(c, s, fn, ctx, err);
}

int catalogue_past_begin(struct catalogue *c, const char *owner, const char *begin,
	int (*fn)(void *ctx, const char *id, const char *doc), void *ctx, struct err *err)
{
	return each_past(c, PAST_BEGIN, owner, begin, fn, ctx, err);
}

int catalogue_past_key(struct catalogue *c, const char *owner, const char *key,
	int (*fn)(void *ctx, const char *id, const char *doc), void *ctx, struct err *err)
{
	return each_past(c, PAST_KEY, owner, key, fn, ctx, err);
}

int catalogue_past_each(struct catalogue *c, const char *owner, const struct past_range *range,
	int (*fn)(void *ctx, const char *id, const char *doc), void *ctx, struct err *err)
{
	sqlite3_stmt *s = c->past[range->newest ? PAST_LAST : PAST_FIRST];
	uint64_t before = range->before < INT64_MAX ? range->before : INT64_MAX;

	(void)sqlite3_bind_text(s, 1, owner, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(s, 2, (sqlite3_int64)range->after);
	(void)sqlite3_bind_int64(s, 3, (sqlite3_int64)before);
	(void)sqlite3_bind_int64(s, 4, range->max);
	return each_row(c, s, fn, ctx, err);
}
