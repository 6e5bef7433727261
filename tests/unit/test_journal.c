/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "events/journal_parts.h"
#include "t.h"

#include <dirent.h>
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
	DIR *dir = opendir(path);
	const struct dirent *entry;

	while ((entry = readdir(dir)) != NULL)
		(void)unlinkat(dirfd(dir), entry->d_name, 0);
	(void)closedir(dir);
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

	journal_check_begin(j, sandbox, head, &c);
	while (journal_check_step(j, &c, 3, &err) > 0)
		;
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

TEST(data_that_are_too_large_are_not_left_out_in_silence)
{
	struct event e = { .type = EVENT_EXEC_CREATED, .sandbox = a, .epoch = 1 };
	cleanup_free char *large = xalloc((1U << 20) + 1);
	cleanup_buf struct buf line = BUF_INIT(1 << 21);
	char *path = directory();
	struct journal *j = open_in(path);

	memset(large, 'x', 1U << 20);
	e.data = json_pack("{s:s}", "text", large);
	(void)journal_add(j, &e);
	check_int(journal_read(j, a, 1, &line), 0);
	check(strstr(line.p, "\"data\":{\"omitted_bytes\":1048587},") != NULL);
	check_str(verify(j, a, NULL).reason, "");
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
	check(journal_dirty(j)); /* the catalogue may not have taken them */
	journal_heads_written(j);
	check(!journal_dirty(j));
	journal_dirty_heads(j, count, &sum);
	check_int(sum, 22);
	journal_close(j);
	remove_directory(path);
}

/* --- several segments --- */

static const struct journal_keep small = { .segment_bytes = JOURNAL_SEGMENT_MIN };

/* @n events, alternately of a and b; a segment holds about 130 of them. */
static void fill(struct journal *j, int n)
{
	char text[400];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	for (int i = 0; i < n; i++)
		(void)add(j, i % 2 == 0 ? a : b, text);
	check_int(journal_flush(j), 0);
}

static int files_in(const char *path, const char *suffix)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;
	int n = 0;

	while ((entry = readdir(dir)) != NULL)
		n += str_ends(entry->d_name, suffix);
	(void)closedir(dir);
	return n;
}

/* Every event by n and by seq, and both chains. */
static void check_all(struct journal *j)
{
	cleanup_buf struct buf line = BUF_INIT(1 << 20);

	for (uint64_t n = journal_first(j, NULL); n <= journal_last(j); n++) {
		cleanup_free char *want = str_dupf("\"n\":%lu,", n);

		buf_reset(&line);
		check_int(journal_read(j, NULL, n, &line), 0);
		check(strstr(buf_cstr(&line), want) != NULL);
	}
	for (uint64_t seq = journal_first(j, a); seq <= journal_last_seq(j, a); seq++) {
		cleanup_free char *want = str_dupf("\"sandbox\":\"%s\",\"seq\":%lu,", a, seq);

		buf_reset(&line);
		check_int(journal_read(j, a, seq, &line), 0);
		check(strstr(buf_cstr(&line), want) != NULL);
	}
	check(verify(j, a, NULL).reason[0] == '\0');
	check(verify(j, b, NULL).reason[0] == '\0');
}

TEST(many_segments_read_as_one)
{
	char *path = directory();
	struct journal *j = open_in(path);

	check_int(journal_keep_set(j, &small), 0);
	fill(j, 1000);
	check(files_in(path, ".jsonl") > 5);
	check_int(files_in(path, ".index"), files_in(path, ".jsonl") - 1);
	check_all(j);
	check_int(verify(j, a, NULL).events, 500);
	journal_close(j);
	j = open_in(path);
	check_int(journal_last(j), 1000);
	check_int(journal_last_seq(j, b), 500);
	fill(j, 10);
	check_all(j);
	journal_close(j);
	remove_directory(path);
}

/* As on a full disk, until the descriptor that is returned is put back. */
static int fill_disk(struct journal *j)
{
	int fd = j->fd;

	j->fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	return fd;
}

static void empty_disk(struct journal *j, int fd)
{
	(void)close(j->fd);
	j->fd = fd;
}

TEST(what_a_full_disk_leaves_no_room_for_is_counted_in_its_place)
{
	cleanup_buf struct buf line = BUF_INIT(1 << 20);
	uint64_t last_a;
	char *path = directory(), text[401] = "";
	struct journal *j = open_in(path);
	int disk = fill_disk(j);

	memset(text, 'x', sizeof(text) - 1);
	for (int i = 0; i < 5; i++)
		check(add(j, a, text) != 0);
	last_a = journal_last_seq(j, a);
	j->pending.max = j->pending.n + 500;
	check_int(add(j, a, text), 0);
	check(journal_flush(j) < 0); /* what it could tell now would fill the room that is left */
	check_int(add(j, a, "lost too"), 0);
	check_int(add(j, b, "lost"), 0);
	check(journal_flush(j) < 0);
	check_int(journal_written(j), 0);
	check_int(journal_last_seq(j, a), last_a);
	empty_disk(j, disk);
	check_int(journal_flush(j), 0);
	check(add(j, a, "behind") != 0);
	for (int i = 0; i < 2; i++) { /* before and after a start */
		check_int(journal_last_seq(j, a), last_a + 2);
		buf_reset(&line);
		check_int(journal_read(j, a, last_a + 1, &line), 0);
		check(strstr(line.p, "\"data\":{\"n\":2,\"source\":\"journal\"}") != NULL);
		check(strstr(line.p, "\"type\":\"events.lost\"") != NULL);
		buf_reset(&line);
		check_int(journal_read(j, b, 1, &line), 0);
		check(strstr(line.p, "\"data\":{\"n\":1,\"source\":\"journal\"}") != NULL);
		check_int(journal_last(j), last_a + 3);
		check_all(j);
		journal_close(j);
		j = open_in(path);
	}
	journal_close(j);
	remove_directory(path);
}

TEST(an_index_that_is_lost_or_damaged_is_made_again)
{
	char *path = directory();
	cleanup_free char *second = str_dupf("%s/000002.index", path),
			  *third = str_dupf("%s/000003.index", path);
	struct journal *j = open_in(path);
	int fd;

	check_int(journal_keep_set(j, &small), 0);
	fill(j, 1000);
	journal_close(j);
	check_int(unlink(second), 0);
	fd = open(third, O_WRONLY | O_CLOEXEC);
	check_int(pwrite(fd, "????", 4, 500), 4);
	(void)close(fd);
	j = open_in(path);
	check_int(journal_last(j), 1000);
	check_all(j);
	journal_close(j);
	check_int(files_in(path, ".index"), files_in(path, ".jsonl") - 1);
	remove_directory(path);
}

static bool only_b(attr_unused void *ctx, const char *sandbox)
{
	return str_eq(sandbox, b);
}

static void forget(void *ctx, const char *sandbox)
{
	(void)!str_copy(ctx, ID_LEN + 1, sandbox);
}

static struct journal_retire retire(
	struct journal *j, const struct journal_keep *keep, char *forgotten)
{
	struct journal_retire r = { .alive = only_b, .forget = forget, .ctx = forgotten };

	forgotten[0] = '\0';
	check_int(journal_keep_set(j, keep), 0);
	check_int(journal_retire(j, clock_wall_ns(), &r), 0);
	return r;
}

TEST(a_chain_whose_beginning_was_retired_is_checked_from_its_anchor)
{
	const struct journal_keep keep = { .max_bytes = 200U << 10,
		.segment_bytes = JOURNAL_SEGMENT_MIN };
	char *path = directory(), forgotten[ID_LEN + 1];
	cleanup_buf struct buf line = BUF_INIT(1 << 20);
	struct journal *j = open_in(path);
	struct journal_retire r;
	struct journal_check c;

	check_int(journal_keep_set(j, &small), 0);
	fill(j, 1000);
	r = retire(j, &keep, forgotten);
	check(r.segments > 0 && str_eq(r.reason, "bytes"));
	check_int(r.first_n, 1);
	check_int(journal_first(j, NULL), r.last_n + 1);
	check(forgotten[0] == '\0'); /* both go on */
	check_int(journal_read(j, NULL, r.last_n, &line), -ESTALE);
	check_int(journal_read(j, a, 1, &line), -ESTALE);
	for (int i = 0; i < 2; i++) { /* before and after a start */
		c = verify(j, a, NULL);
		check(c.anchored && c.reason[0] == '\0');
		check_int(c.anchor.seq + c.events, 500);
		check_int(journal_first(j, a), c.anchor.seq + 1);
		check_all(j);
		journal_close(j);
		j = open_in(path);
	}
	fill(j, 300);
	check_all(j);
	journal_close(j);
	remove_directory(path);
}

TEST(nothing_is_retired_before_its_anchors_are_on_disk)
{
	const struct journal_keep keep = { .max_bytes = 200U << 10,
		.segment_bytes = JOURNAL_SEGMENT_MIN };
	char *path = directory(), forgotten[ID_LEN + 1];
	cleanup_free char *first = str_dupf("%s/000001.jsonl", path),
			  *blocked = str_dupf("%s/anchors.json.new", path);
	struct journal_retire r = { .alive = only_b, .forget = forget, .ctx = forgotten };
	struct journal *j = open_in(path);

	check_int(journal_keep_set(j, &small), 0);
	fill(j, 1000);
	check_int(journal_keep_set(j, &keep), 0);
	check_int(mkdir(blocked, 0700), 0); /* they cannot be written, as on a full disk */
	for (int i = 0; i < 3; i++) {
		check(journal_retire(j, clock_wall_ns(), &r) < 0);
		check_int(access(first, F_OK), 0);
	}
	check_int(rmdir(blocked), 0);
	r = retire(j, &keep, forgotten);
	check(access(first, F_OK) < 0);
	journal_close(j);
	j = open_in(path);
	check(verify(j, a, NULL).anchored);
	check_all(j);
	journal_close(j);
	remove_directory(path);
}

TEST(a_beginning_that_was_cut_off_without_an_anchor_is_found)
{
	char *path = directory();
	cleanup_free char *first = str_dupf("%s/000001.jsonl", path);
	struct journal *j = open_in(path);

	check_int(journal_keep_set(j, &small), 0);
	fill(j, 1000);
	journal_close(j);
	check_int(unlink(first), 0);
	j = open_in(path);
	check(verify(j, a, NULL).reason[0] != '\0');
	check(!verify(j, a, NULL).anchored);
	journal_close(j);
	remove_directory(path);
}

TEST(an_anchor_that_was_changed_is_found)
{
	const struct journal_keep keep = { .max_bytes = 200U << 10,
		.segment_bytes = JOURNAL_SEGMENT_MIN };
	char *path = directory(), forgotten[ID_LEN + 1], text[2000] = "", *at;
	cleanup_free char *file = str_dupf("%s/anchors.json", path);
	struct journal *j = open_in(path);
	int fd;

	check_int(journal_keep_set(j, &small), 0);
	fill(j, 1000);
	(void)retire(j, &keep, forgotten);
	journal_close(j);
	fd = open(file, O_RDWR | O_CLOEXEC);
	check(read(fd, text, sizeof(text) - 1) > 0);
	at = strstr(text, "\"hash\":\"");
	check(at != NULL);
	check_int(pwrite(fd, at[8] == '0' ? "1" : "0", 1, at + 8 - text), 1);
	(void)close(fd);
	j = open_in(path);
	check(verify(j, a, NULL).reason[0] != '\0' || verify(j, b, NULL).reason[0] != '\0');
	journal_close(j);
	remove_directory(path);
}

TEST(what_concerns_only_removed_sandboxes_goes_earlier)
{
	const struct journal_keep removed = { .removed_age_ns = 1,
		.segment_bytes = JOURNAL_SEGMENT_MIN };
	char *path = directory(), forgotten[ID_LEN + 1], text[400];
	struct journal *j = open_in(path);
	struct journal_retire r;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	check_int(journal_keep_set(j, &small), 0);
	for (int i = 0; i < 400; i++)
		(void)add(j, a, text);
	fill(j, 400);
	r = retire(j, &removed, forgotten);
	check(r.segments >= 2 && str_eq(r.reason, "removed"));
	check(r.last_n <= 402); /* from there on b, which is alive, has events */
	check(forgotten[0] == '\0');
	check_all(j);
	journal_close(j);
	remove_directory(path);
}

/* While it is checked: its end is not before the head that the catalogue held when the check began. */
TEST(a_chain_that_is_retired_while_it_is_checked_is_not_broken)
{
	const struct journal_keep old = { .max_age_ns = 1, .segment_bytes = JOURNAL_SEGMENT_MIN };
	char *path = directory(), forgotten[ID_LEN + 1];
	struct journal *j = open_in(path);
	struct journal_head head;
	struct journal_check c;
	struct err err = { 0 };

	(void)add(j, a, "one");
	(void)add(j, a, "two");
	check(journal_chain_last(j, a, &head));
	journal_check_begin(j, a, &head, &c);
	check_int(journal_check_step(j, &c, 1, &err), 1);
	(void)retire(j, &old, forgotten);
	check(str_eq(forgotten, a));
	check(journal_check_step(j, &c, 1, &err) < 0);
	check_int(err.code, ERR_BUSY);
	check(c.reason[0] == '\0');
	journal_close(j);
	remove_directory(path);
}

TEST(age_retires_what_was_never_a_full_segment)
{
	const struct journal_keep old = { .max_age_ns = 1, .segment_bytes = JOURNAL_SEGMENT_MIN };
	char *path = directory(), forgotten[ID_LEN + 1];
	struct journal *j = open_in(path);
	struct journal_retire r;

	(void)add(j, a, "one");
	(void)add(j, b, "two");
	r = retire(j, &old, forgotten);
	check_int(r.segments, 1);
	check(str_eq(forgotten, a));
	check_int(journal_last(j), 2);
	check_int(journal_last_seq(j, a), 0);
	check_int(journal_last_seq(j, b), 1);
	(void)add(j, b, "three");
	check_int(journal_last(j), 3);
	journal_close(j);
	j = open_in(path);
	check_int(journal_last(j), 3);
	check_int(journal_first(j, NULL), 3);
	check_int(verify(j, b, NULL).events, 1);
	check(verify(j, b, NULL).anchored);
	journal_close(j);
	remove_directory(path);
}

/* A directory has the name that the index would get. */
static char *unsealable(struct journal **ret)
{
	char *path = directory();
	cleanup_free char *obstacle = str_dupf("%s/000001.index.new", path);

	*ret = open_in(path);
	check_int(journal_keep_set(*ret, &(struct journal_keep){ .segment_bytes = 65536 }), 0);
	check_int(mkdir(obstacle, 0700), 0);
	return path;
}

static void remove_obstacle(const char *path)
{
	cleanup_free char *obstacle = str_dupf("%s/000001.index.new", path);

	check_int(rmdir(obstacle), 0);
}

TEST(a_segment_that_cannot_be_ended_is_tried_again_after_a_while)
{
	struct journal *j;
	char *path = unsealable(&j);

	while (!j->unsealed)
		check(add(j, a, "one more") != 0);
	remove_obstacle(path);
	check(add(j, a, "at once") != 0);
	check_int(j->segment, 1);
	j->seal_ns = 0;
	check(add(j, a, "later") != 0);
	check_int(j->segment, 2);
	check(!j->unsealed);
	check_str(verify(j, a, NULL).reason, "");
	journal_close(j);
	remove_directory(path);
}

static void beginning(const char *path, char text[64])
{
	cleanup_free char *file = str_dupf("%s/000001.jsonl", path);
	cleanup_fd int fd = open(file, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, text, 63);

	text[n > 0 ? n : 0] = '\0';
	check(n > 0);
}

TEST(a_segment_does_not_grow_beyond_what_places_in_it_can_say)
{
	struct journal *j;
	char *path = unsealable(&j), first[64], now[64];
	uint32_t written;

	check(add(j, a, "first") != 0);
	check_int(journal_flush(j), 0);
	beginning(path, first);
	written = j->written;
	j->written = UINT32_MAX - 1000;
	check(journal_is_full(j));
	while (add(j, a, "more than there is room for") != 0)
		check_int(journal_flush(j), 0);
	check_int(journal_flush(j), 0);
	beginning(path, now);
	check_str(now, first);
	check_int(j->n_losses, 1);
	/* with another segment it goes on, and what was lost is told there */
	j->written = written;
	journal_close(j);
	remove_obstacle(path);
	remove_directory(path);
}
