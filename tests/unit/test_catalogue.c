/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/str.h"
#include "store/catalogue.h"
#include "t.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static int syncs;

/* In place of libc's, for libsqlite3 too: what reaches the disk is what these are called for. */
__attribute__((visibility("default"))) int fdatasync(int fd)
{
	syncs++;
	return (int)syscall(SYS_fdatasync, fd);
}

__attribute__((visibility("default"))) int fsync(int fd)
{
	syncs++;
	return (int)syscall(SYS_fsync, fd);
}

static char *fresh(void)
{
	char *dir = str_dup("/tmp/cay-catalogue-XXXXXX");

	if (mkdtemp(dir) == NULL)
		abort();
	return dir;
}

static void discard(char *dir)
{
	static const char *const names[] = { "cay.db", "cay.db-wal", "cay.db-shm" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		cleanup_free char *path = str_dupf("%s/%s", dir, names[i]);

		(void)unlink(path);
	}
	(void)rmdir(dir);
	free(dir);
}

static struct catalogue *open_in(const char *dir, bool create, int want)
{
	cleanup_free char *path = str_dupf("%s/cay.db", dir);
	struct catalogue *c = NULL;
	struct err err = { 0 };

	check_int(catalogue_open(path, create, &c, &err) < 0, want < 0);
	check((want < 0) == (err.code != ERR_NONE));
	return c;
}

static char *get(struct catalogue *c, enum catalogue_table table, const char *id)
{
	char *doc = NULL;

	check_int(catalogue_get(c, table, id, &doc, NULL), 0);
	return doc;
}

TEST(what_is_no_catalogue_is_refused)
{
	char *dir = fresh();
	cleanup_free char *path = str_dupf("%s/cay.db", dir);
	struct catalogue *c = NULL;
	struct err err = { 0 };
	int fd;

	check(open_in(dir, false, -1) == NULL);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	for (int i = 0; i < 100; i++)
		check_int(write(fd, "this is not a database at all, but long enough to look at. ",
				  58),
			58);
	(void)close(fd);
	check(catalogue_open(path, false, &c, &err) < 0);
	check_int(err.code, ERR_CORRUPT);
	discard(dir);
}

TEST(a_name_is_taken_once_in_its_table)
{
	char *dir = fresh();
	struct catalogue *c = open_in(dir, true, 0);
	struct err err = { 0 };

	check_int(catalogue_put(c, CATALOGUE_SANDBOXES, "id1", "n", NULL, "{}", false, &err), 0);
	check(catalogue_put(c, CATALOGUE_SANDBOXES, "id2", "n", NULL, "{}", false, &err) < 0);
	check_int(err.code, ERR_EXISTS);
	check_int(catalogue_put(c, CATALOGUE_SNAPSHOTS, "id2", "n", NULL, "{}", true, &err), 0);
	check_int(catalogue_put(c, CATALOGUE_SANDBOXES, "id1", "n", NULL, "{\"x\":1}", false, &err),
		0);
	check_int(catalogue_put(c, CATALOGUE_SANDBOXES, "id3", NULL, NULL, "{}", false, &err), 0);
	check_int(catalogue_put(c, CATALOGUE_SANDBOXES, "id4", NULL, NULL, "{}", false, &err), 0);
	catalogue_close(c);
	discard(dir);
}

static int collect(void *ctx, const char *id, attr_unused const char *doc)
{
	buf_str(ctx, id);
	return 0;
}

TEST(rows_stay_in_the_order_of_creation_and_survive_reopening)
{
	cleanup_buf struct buf all = BUF_INIT(100);
	char *dir = fresh();
	struct catalogue *c = open_in(dir, true, 0);
	char *doc;

	check_int(catalogue_put(c, CATALOGUE_EXECS, "z", NULL, "o", "1", false, NULL), 0);
	check_int(catalogue_put(c, CATALOGUE_EXECS, "a", NULL, "p", "2", false, NULL), 0);
	check_int(catalogue_put(c, CATALOGUE_EXECS, "m", NULL, "o", "3", false, NULL), 0);
	check_int(catalogue_put(c, CATALOGUE_EXECS, "z", NULL, "o", "4", true, NULL), 0);
	catalogue_close(c);
	c = open_in(dir, false, 0);
	check_int(catalogue_each(c, CATALOGUE_EXECS, collect, &all, NULL), 0);
	check_str(buf_cstr(&all), "zam");
	doc = get(c, CATALOGUE_EXECS, "z");
	check_str(doc, "4");
	free(doc);
	check_int(catalogue_delete_owned(c, CATALOGUE_EXECS, "o", NULL), 0);
	check(get(c, CATALOGUE_EXECS, "z") == NULL);
	doc = get(c, CATALOGUE_EXECS, "a");
	check_str(doc, "2");
	free(doc);
	check_int(catalogue_delete(c, CATALOGUE_EXECS, "nothing", NULL), 0);
	catalogue_close(c);
	discard(dir);
}

TEST(a_transaction_is_all_or_nothing)
{
	char *dir = fresh();
	struct catalogue *c = open_in(dir, true, 0);
	char *doc;

	check_int(catalogue_begin(c, false, NULL), 0);
	check_int(catalogue_put(c, CATALOGUE_HEADS, "a", NULL, NULL, "1", false, NULL), 0);
	catalogue_close(c); /* as when the process dies */
	c = open_in(dir, false, 0);
	check(get(c, CATALOGUE_HEADS, "a") == NULL);
	check_int(catalogue_begin(c, false, NULL), 0);
	check_int(catalogue_put(c, CATALOGUE_HEADS, "a", NULL, NULL, "1", false, NULL), 0);
	check_int(catalogue_commit(c, NULL), 0);
	catalogue_close(c);
	c = open_in(dir, false, 0);
	doc = get(c, CATALOGUE_HEADS, "a");
	check_str(doc, "1");
	free(doc);
	catalogue_close(c);
	discard(dir);
}

static sqlite3 *other_in(const char *dir)
{
	cleanup_free char *path = str_dupf("%s/cay.db", dir);
	sqlite3 *db = NULL;

	check_int(sqlite3_open(path, &db), SQLITE_OK);
	return db;
}

static void run(sqlite3 *db, const char *sql)
{
	check_int(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
}

static int put_head(struct catalogue *c, bool durable, struct err *err)
{
	int rc = catalogue_begin(c, durable, err);

	if (rc == 0)
		rc = catalogue_put(c, CATALOGUE_HEADS, "a", NULL, NULL, "1", false, err);
	if (rc == 0)
		return catalogue_commit(c, err);
	catalogue_abort(c);
	return rc;
}

TEST(a_durable_commit_is_on_the_disk_whoever_reads)
{
	char *dir = fresh();
	struct catalogue *c = open_in(dir, true, 0);
	sqlite3 *other = other_in(dir);
	struct err err = { 0 };

	check_int(put_head(c, true, &err), 0);
	run(other,
		"BEGIN; SELECT * FROM heads"); /* and stays: nothing behind it goes into the file */
	for (int i = 0; i < 4; i++) {
		syncs = 0;
		check_int(put_head(c, true, &err), 0);
		check(syncs > 0);
	}
	run(other, "COMMIT");
	(void)sqlite3_close(other);
	catalogue_close(c);
	discard(dir);
}

TEST(a_commit_waits_for_no_disk_behind_one_that_did)
{
	char *dir = fresh();
	struct catalogue *c = open_in(dir, true, 0);
	struct err err = { 0 };

	check_int(put_head(c, true, &err), 0);
	check_int(catalogue_put(c, CATALOGUE_HEADS, "b", NULL, NULL, "1", true, &err), 0);
	syncs = 0;
	check_int(put_head(c, false, &err), 0);
	check_int(syncs, 0);
	catalogue_close(c);
	discard(dir);
}

TEST(a_database_that_somebody_else_writes_is_an_error)
{
	char *dir = fresh();
	struct catalogue *c = open_in(dir, true, 0);
	sqlite3 *other = other_in(dir);
	struct err err = { 0 };

	run(other, "BEGIN IMMEDIATE");
	check(put_head(c, true, &err) < 0);
	check_int(err.code, ERR_INTERNAL);
	err = (struct err){ 0 };
	check(catalogue_put(c, CATALOGUE_HEADS, "a", NULL, NULL, "1", true, &err) < 0);
	check_int(err.code, ERR_INTERNAL);
	run(other, "COMMIT");
	check(get(c, CATALOGUE_HEADS, "a") == NULL);
	check_int(put_head(c, true, &err), 0);
	(void)sqlite3_close(other);
	catalogue_close(c);
	discard(dir);
}

static void empty_log(const char *dir)
{
	cleanup_free char *path = str_dupf("%s/cay.db", dir);
	sqlite3 *db = NULL;

	check_int(sqlite3_open(path, &db), SQLITE_OK);
	check_int(sqlite3_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL), SQLITE_OK);
	(void)sqlite3_close(db);
}

/* All of its file behind the first page, which has the schema. */
static void damage(const char *dir)
{
	cleanup_free char *path = str_dupf("%s/cay.db", dir);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	struct stat st;
	char rubbish[4096];

	memset(rubbish, 0xA5, sizeof(rubbish));
	check(fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 4096);
	for (off_t at = 4096; at < st.st_size; at += 4096)
		check_int(pwrite(fd, rubbish, sizeof(rubbish), at), 4096);
	(void)close(fd);
}

TEST(what_cannot_be_read_is_not_taken_for_what_is_not_there)
{
	char *dir = fresh();
	struct catalogue *c = open_in(dir, true, 0);
	struct err err = { 0 };
	char *doc = NULL;

	check_int(catalogue_put(c, CATALOGUE_KEYS, "a", NULL, NULL, "1", true, &err), 0);
	catalogue_close(c);
	empty_log(dir);
	c = open_in(dir, false, 0); /* nothing of it is in memory yet */
	damage(dir);
	check(catalogue_get(c, CATALOGUE_KEYS, "a", &doc, &err) < 0);
	check(doc == NULL);
	check_int(err.code, ERR_INTERNAL);
	err = (struct err){ 0 };
	check(catalogue_put(c, CATALOGUE_SNAPSHOTS, "s", NULL, NULL, "1", true, &err) < 0);
	check_int(err.code, ERR_INTERNAL); /* ERR_CORRUPT would be said of the snapshot */
	catalogue_close(c);
	discard(dir);
}

TEST(an_older_schema_gains_what_it_lacks)
{
	char *dir = fresh();
	struct catalogue *c = open_in(dir, true, 0);
	cleanup_free char *path = str_dupf("%s/cay.db", dir);
	sqlite3 *db = NULL;
	char *doc;

	check_int(catalogue_put(c, CATALOGUE_IMAGES, "a", NULL, NULL, "1", false, NULL), 0);
	catalogue_close(c);
	check_int(sqlite3_open(path, &db), SQLITE_OK);
	check_int(
		sqlite3_exec(db,
			"DROP TABLE secrets; DROP TABLE gateways; DROP TABLE mails; DROP TABLE past; PRAGMA user_version = 1",
			NULL, NULL, NULL),
		SQLITE_OK);
	(void)sqlite3_close(db);
	c = open_in(dir, false, 0);
	doc = get(c, CATALOGUE_IMAGES, "a");
	check_str(doc, "1");
	free(doc);
	check_int(catalogue_put(c, CATALOGUE_MAILS, "m", NULL, "o", "2", false, NULL), 0);
	catalogue_close(c);
	discard(dir);
}

TEST(rows_of_one_owner)
{
	char *dir = fresh();
	struct catalogue *c = open_in(dir, true, 0);
	struct buf all = BUF_INIT(100);

	check_int(catalogue_put(c, CATALOGUE_MAILS, "a", NULL, "o", "1", false, NULL), 0);
	check_int(catalogue_put(c, CATALOGUE_MAILS, "b", NULL, "p", "2", false, NULL), 0);
	check_int(catalogue_put(c, CATALOGUE_MAILS, "c", NULL, "o", "3", false, NULL), 0);
	check_int(catalogue_each_owned(c, CATALOGUE_MAILS, "o", collect, &all, NULL), 0);
	check_str(buf_cstr(&all), "ac");
	buf_free(&all);
	catalogue_close(c);
	discard(dir);
}

struct seen {
	char ids[256];
	size_t n;
};

static int see(void *ctx, const char *id, const char *doc)
{
	struct seen *s = ctx;

	check(strstr(doc, id) != NULL);
	s->n += (size_t)snprintf(s->ids + s->n, sizeof(s->ids) - s->n, "%s ", id);
	return 0;
}

static void put_past(struct catalogue *c, const char *owner, uint64_t step, const char *id)
{
	check_int(catalogue_put(c, CATALOGUE_EXECS, id, NULL, owner, "{}", false, NULL), 0);
	check_int(catalogue_begin(c, false, NULL), 0);
	check_int(catalogue_past_put(c, id,
			  &(struct past_exec){ .owner = owner,
				  .step = step,
				  .id = id,
				  .key = step == 2 ? "key" : NULL,
				  .doc = id },
			  NULL),
		0);
	check_int(catalogue_commit(c, NULL), 0);
	check(get(c, CATALOGUE_EXECS, id) == NULL);
}

static const char *range(struct catalogue *c, struct past_range r)
{
	static struct seen s;

	s = (struct seen){ 0 };
	check_int(catalogue_past_each(c, "box", &r, see, &s, NULL), 0);
	return s.ids;
}

TEST(past_execs_are_found_by_what_is_asked_for)
{
	char *dir = fresh(), *owner = NULL;
	struct catalogue *c = open_in(dir, true, 0);
	struct seen s = { 0 };
	uint64_t step = 0;

	put_past(c, "box", 1, "aa1");
	put_past(c, "box", 2, "ab2");
	put_past(c, "box", 3, "ab3");
	put_past(c, "box", 4, "ac4");
	put_past(c, "other", 9, "ab9");
	check_int(catalogue_past_begin(c, "box", "ab", see, &s, NULL), 0);
	check_str(s.ids, "ab2 ab3 ");
	s = (struct seen){ 0 };
	check_int(catalogue_past_begin(c, "box", "ab3", see, &s, NULL), 0);
	check_int(catalogue_past_begin(c, "box", "b", see, &s, NULL), 0);
	check_int(catalogue_past_key(c, "box", "key", see, &s, NULL), 0);
	check_int(catalogue_past_key(c, "other", "key", see, &s, NULL), 0);
	check_str(s.ids, "ab3 ab2 ");
	check_str(range(c, (struct past_range){ 1, UINT64_MAX, 2, false }), "ab2 ab3 ");
	check_str(range(c, (struct past_range){ 0, 4, 2, true }), "ab3 ab2 ");
	check_int(catalogue_past_drop(c, "box", 3, NULL), 0);
	check_str(range(c, (struct past_range){ 0, 9, 9, false }), "aa1 ab2 ac4 ");

	check_int(catalogue_past_owner(c, "", &owner, &step, NULL), 0);
	check_str(owner, "box");
	check_int((int)step, 4);
	free(owner);
	check_int(catalogue_past_owner(c, "other", &owner, &step, NULL), 0);
	check(owner == NULL);
	check_int(catalogue_past_clear(c, "box", 2, NULL), 2);
	check_int(catalogue_past_clear(c, "box", 2, NULL), 1);
	check_int(catalogue_past_clear(c, "box", 2, NULL), 0);
	check_int(catalogue_past_owner(c, "", &owner, &step, NULL), 0);
	check_str(owner, "other");
	free(owner);
	catalogue_close(c);
	discard(dir);
}

TEST(a_newer_schema_is_refused)
{
	char *dir = fresh();
	struct catalogue *c = open_in(dir, true, 0);
	cleanup_free char *path = str_dupf("%s/cay.db", dir);
	struct err err = { 0 };
	sqlite3 *db = NULL;

	catalogue_close(c);
	check_int(sqlite3_open(path, &db), SQLITE_OK);
	check_int(sqlite3_exec(db, "PRAGMA user_version = 99", NULL, NULL, NULL), SQLITE_OK);
	(void)sqlite3_close(db);
	c = NULL;
	check(catalogue_open(path, false, &c, &err) < 0);
	check_int(err.code, ERR_UNSUPPORTED);
	discard(dir);
}

static void put_many(struct catalogue *c, int n)
{
	struct err err = { 0 };

	for (int i = 0; i < n; i++)
		check_int(catalogue_put(
				  c, CATALOGUE_SANDBOXES, "id", "name", NULL, "{}", false, &err),
			0);
}

TEST(the_log_goes_into_the_file_when_it_is_quiet)
{
	char *dir = fresh();
	struct catalogue *c = open_in(dir, true, 0);
	uint64_t quiet;
	unsigned int few;

	put_many(c, 2);
	quiet = clock_now_ns() + CATALOGUE_QUIET_NS;
	few = catalogue_log_pages(c);
	check(few > 0 && few < CATALOGUE_LOG_PAGES);
	check(!catalogue_settle(c, quiet)); /* not worth while */
	put_many(c, CATALOGUE_LOG_PAGES);
	check(catalogue_log_pages(c) >= CATALOGUE_LOG_PAGES);
	check(!catalogue_settle(c, clock_now_ns())); /* somebody is writing */
	check_int(catalogue_begin(c, false, NULL), 0);
	check(!catalogue_settle(c, UINT64_MAX));
	catalogue_abort(c);
	check(catalogue_settle(c, clock_now_ns() + CATALOGUE_QUIET_NS));
	check_int(catalogue_log_pages(c), 0);
	check(!catalogue_settle(c, UINT64_MAX));
	put_many(c, 1); /* it begins anew */
	check(catalogue_log_pages(c) > 0 && catalogue_log_pages(c) < few);
	catalogue_close(c);
	discard(dir);
}

TEST(a_log_that_somebody_reads_is_not_in_the_file)
{
	char *dir = fresh();
	struct catalogue *c = open_in(dir, true, 0);
	sqlite3 *other = other_in(dir);

	put_many(c, 1);
	run(other, "BEGIN; SELECT * FROM heads");
	put_many(c, CATALOGUE_LOG_PAGES);
	check(!catalogue_settle(c, clock_now_ns() + CATALOGUE_QUIET_NS));
	check(catalogue_log_pages(c) >= CATALOGUE_LOG_PAGES);
	run(other, "COMMIT");
	check(catalogue_settle(c, clock_now_ns() + CATALOGUE_QUIET_NS));
	check_int(catalogue_log_pages(c), 0);
	(void)sqlite3_close(other);
	catalogue_close(c);
	discard(dir);
}

TEST(the_log_is_bounded_where_it_is_never_quiet)
{
	char *dir = fresh();
	struct catalogue *c = open_in(dir, true, 0);
	unsigned int most = 0;

	for (int i = 0; i < 2000; i++) {
		put_many(c, 1);
		most = catalogue_log_pages(c) > most ? catalogue_log_pages(c) : most;
	}
	check(most >= 1000 && most < 1100);
	catalogue_close(c);
	discard(dir);
}
