/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "events/journal.h"
#include "t.h"

#include <fcntl.h>
#include <sys/stat.h>

static const char a[] = "aaaaaaaaaaaaaaaaaaaa", b[] = "bbbbbbbbbbbbbbbbbbbb";

static char *directory(void)
{
	char *path = str_dup("/tmp/cay-journal-XXXXXX");

	if (mkdtemp(path) == NULL)
		abort();
	return path;
}

static void remove_directory(char *path)
{
	cleanup_free char *file = str_dupf("%s/000001.jsonl", path);

	(void)unlink(file);
	(void)rmdir(path);
	free(path);
}

static struct journal *open_in(const char *path)
{
	struct journal *j = NULL;
	struct err err;

	check_int(journal_open(path, &j, &err), 0);
	return j;
}

static uint64_t add(struct journal *j, const char *sandbox, const char *text)
{
	struct event e = { .type = EVENT_EXEC_CREATED,
		.sandbox = sandbox,
		.epoch = 1,
		.data = json_pack("{s:s}", "text", text) };

	return journal_add(j, &e);
}

static struct journal_check verify(
	struct journal *j, const char *sandbox, const struct journal_head *head)
{
	struct journal_check c;
	struct err err;

	check_int(journal_verify(j, sandbox, head, &c, &err), 0);
	return c;
}

/* Replace the first @from of the segment by @to, of the same length. */
static void tamper(const char *path, const char *from, const char *to)
{
	cleanup_free char *file = str_dupf("%s/000001.jsonl", path), *text = xalloc(1 << 16);
	char *at;
	cleanup_fd int fd = open(file, O_RDWR | O_CLOEXEC);
	ssize_t n = read(fd, text, (1 << 16) - 1);

	at = n > 0 ? strstr(text, from) : NULL;
	check(at != NULL);
	if (at != NULL)
		check_int(pwrite(fd, to, strlen(to), at - text), strlen(to));
}

TEST(a_changed_record_breaks_its_chain_and_no_other)
{
	char *path = directory();
	struct journal *j = open_in(path);
	struct journal_check c;

	(void)add(j, a, "one");
	(void)add(j, b, "two");
	(void)add(j, a, "three");
	journal_close(j);
	tamper(path, "one", "One");
	j = open_in(path);
	c = verify(j, a, NULL);
	check_int(c.bad_seq, 1);
	check_int(c.bad_n, 1);
	check_int(verify(j, b, NULL).events, 1);
	check_str(verify(j, b, NULL).reason, "");
	journal_close(j);
	remove_directory(path);
}

TEST(a_journal_that_was_cut_short_is_found_by_the_head)
{
	struct journal_head head = { .seq = 2 };
	char *path = directory();
	struct journal *j = open_in(path);
	struct journal_check c;

	(void)add(j, a, "one");
	(void)journal_flush(j);
	c = verify(j, a, &head);
	check_int(c.bad_seq, 2);
	check(c.reason[0] != '\0');
	head = verify(j, a, NULL).head;
	check_str(verify(j, a, &head).reason, "");
	head.hash[0] ^= 1;
	check(verify(j, a, &head).reason[0] != '\0');
	journal_close(j);
	remove_directory(path);
}

TEST(a_line_without_its_end_is_cut_off_and_numbering_goes_on)
{
	char *path = directory();
	cleanup_free char *file = str_dupf("%s/000001.jsonl", path);
	cleanup_buf struct buf line = BUF_INIT(1 << 16);
	struct journal *j = open_in(path);
	int fd;

	(void)add(j, a, "one");
	journal_close(j);
	fd = open(file, O_WRONLY | O_APPEND | O_CLOEXEC);
	check_int(write(fd, "{\"cause\":nul", 12), 12);
	(void)close(fd);
	j = open_in(path);
	check_int(journal_last(j), 1);
	check_int(add(j, a, "two"), 2);
	check_int(journal_last_seq(j, a), 2);
	check_str(verify(j, a, NULL).reason, "");
	check_int(journal_read(j, NULL, 2, &line), 0);
	check(strstr(line.p, "\"two\"") != NULL);
	check_int(journal_read(j, NULL, 3, &line), -ENOENT);
	check_int(journal_read(j, b, 1, &line), -ENOENT);
	journal_close(j);
	remove_directory(path);
}

TEST(data_that_looks_like_an_event_fools_nobody)
{
	static const char lie[] =
		",\"epoch\":9,\"exec\":null,\"member\":null,\"n\":77,\"sandbox\":null,\"seq\":88,\"time\"";
	struct event e = { .type = EVENT_KEEPER, .sandbox = a, .epoch = 3 };
	char *path = directory();
	struct journal *j = open_in(path);

	e.data = json_pack("{s:s,s:i,s:i,s:i}", "text", lie, "epoch", 5, "n", 6, "seq", 7);
	(void)journal_add(j, &e);
	(void)add(j, a, lie);
	journal_close(j);
	j = open_in(path);
	check_int(journal_last_seq(j, a), 2);
	check_str(verify(j, a, NULL).reason, "");
	check_int(verify(j, a, NULL).events, 2);
	journal_close(j);
	remove_directory(path);
}

TEST(lines_are_canonical)
{
	struct event e = {
		.type = EVENT_EXEC_ENDED, .sandbox = a, .epoch = 1, .time_ns = 1000000000, .exec = b
	};
	cleanup_buf struct buf line = BUF_INIT(1 << 16);
	char *path = directory();
	struct journal *j = open_in(path);

	e.data = json_pack("{s:i,s:s}", "z", 1, "a", "\x1f\xc3\xa9");
	(void)journal_add(j, &e);
	check_int(journal_read(j, a, 1, &line), 0);
	check(str_starts(line.p,
		"{\"cause\":null,\"data\":{\"a\":\"\\u001f\xc3\xa9\",\"z\":1},\"epoch\":1,\"exec\":\"bbbbbbbbbbbbbbbbbbbb\","
		"\"member\":\"aaaaaaaaaaaaaaaaaaaa\",\"n\":1,\"sandbox\":\"aaaaaaaaaaaaaaaaaaaa\",\"seq\":1,"
		"\"time\":\"1970-01-01T00:00:01.000000Z\",\"type\":\"exec.ended\",\"hash\":\""));
	journal_close(j);
	remove_directory(path);
}

static void count(void *ctx, const char *sandbox, const struct journal_head *head)
{
	*(uint64_t *)ctx += head->seq + strlen(sandbox);
}

TEST(heads_are_told_once)
{
	char *path = directory();
	struct journal *j = open_in(path);
	uint64_t sum = 0;

	(void)add(j, a, "one");
	(void)add(j, a, "two");
	check(journal_dirty(j));
	journal_dirty_heads(j, count, &sum);
	check_int(sum, 22);
	check(!journal_dirty(j));
	journal_dirty_heads(j, count, &sum);
	check_int(sum, 22);
	journal_close(j);
	remove_directory(path);
}
