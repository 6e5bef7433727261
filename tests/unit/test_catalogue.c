/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/str.h"
#include "store/catalogue.h"
#include "t.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

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
	doc = catalogue_get(c, CATALOGUE_EXECS, "z");
	check_str(doc, "4");
	free(doc);
	check_int(catalogue_delete_owned(c, CATALOGUE_EXECS, "o", NULL), 0);
	check(catalogue_get(c, CATALOGUE_EXECS, "z") == NULL);
	doc = catalogue_get(c, CATALOGUE_EXECS, "a");
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

	check_int(catalogue_begin(c, NULL), 0);
	check_int(catalogue_put(c, CATALOGUE_HEADS, "a", NULL, NULL, "1", false, NULL), 0);
	catalogue_close(c); /* as when the process dies */
	c = open_in(dir, false, 0);
	check(catalogue_get(c, CATALOGUE_HEADS, "a") == NULL);
	check_int(catalogue_begin(c, NULL), 0);
	check_int(catalogue_put(c, CATALOGUE_HEADS, "a", NULL, NULL, "1", false, NULL), 0);
	check_int(catalogue_commit(c, true, NULL), 0);
	catalogue_close(c);
	c = open_in(dir, false, 0);
	doc = catalogue_get(c, CATALOGUE_HEADS, "a");
	check_str(doc, "1");
	free(doc);
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
			"DROP TABLE secrets; DROP TABLE gateways; DROP TABLE mails; PRAGMA user_version = 1",
			NULL, NULL, NULL),
		SQLITE_OK);
	(void)sqlite3_close(db);
	c = open_in(dir, false, 0);
	doc = catalogue_get(c, CATALOGUE_IMAGES, "a");
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
