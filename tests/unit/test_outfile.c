/* SPDX-License-Identifier: Apache-2.0 */
#include "io/outfile.h"
#include "t.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

struct place {
	char path[64];
	int dir;
};

static struct place place_new(void)
{
	struct place p = { .path = "/tmp/cay-outfile-XXXXXX" };

	if (mkdtemp(p.path) == NULL)
		abort();
	p.dir = open(p.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return p;
}

static void place_end(struct place *p)
{
	(void)unlinkat(p->dir, "x.bytes", 0);
	(void)unlinkat(p->dir, "x.runs", 0);
	(void)close(p->dir);
	(void)rmdir(p->path);
}

static struct outfile create(struct place *p)
{
	struct outfile f;

	check_int(outfile_create(&f, p->dir, "x", (uid_t)-1, (gid_t)-1), 0);
	return f;
}

static void want(const struct outfile *f, uint64_t at, uint64_t offset, bool err, const char *text)
{
	struct outfile_part part;
	char bytes[64] = "";

	check_int(outfile_find(f, at, &part), 1);
	check_int(part.offset, offset);
	check_int(part.err, err);
	check_int(part.n, strlen(text));
	check_int(outfile_read(f, &part, bytes, (size_t)part.n), 0);
	check(strcmp(bytes, text) == 0);
}

TEST(what_is_cut_off_is_gone_and_something_else_comes)
{
	static const uint64_t cuts[] = { 99, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0 };
	static const uint64_t ends[] = { 12, 12, 12, 11, 6, 6, 6, 6, 6, 5, 4, 3, 2, 1, 0 };
	struct place p = place_new();
	struct outfile f = create(&p), again;
	struct outfile_part part;

	/* 0..3 out, 3..6 err, a gap, 10..12 err */
	check_int(outfile_add(&f, 0, false, "one", 3), 0);
	check_int(outfile_add(&f, 3, true, "two", 3), 0);
	check_int(outfile_add(&f, 10, true, "xy", 2), 0);
	outfile_close(&f);
	for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++) {
		check_int(outfile_append(&f, p.dir, "x"), 0);
		check_int(outfile_cut(&f, cuts[i]), 0);
		check_int(f.end, ends[i]);
		check_int(outfile_find(&f, ends[i], &part), 0);
		outfile_close(&f);
		check_int(outfile_append(&again, p.dir, "x"), 0);
		check_int(again.end, ends[i]);
		outfile_close(&again);
		if (cuts[i] == 5) {
			check_int(outfile_append(&f, p.dir, "x"), 0);
			want(&f, 0, 0, false, "one");
			want(&f, 3, 3, true, "tw");
			check_int(outfile_add(&f, 5, false, "!", 1), 0);
			want(&f, 3, 3, true, "tw");
			want(&f, 5, 5, false, "!");
			outfile_close(&f);
		}
	}
	place_end(&p);
}

TEST(runs_are_found_by_offset)
{
	struct place p = place_new();
	struct outfile f = create(&p), again;
	struct outfile_part part;

	check_int(outfile_find(&f, 0, &part), 0);
	check_int(outfile_add(&f, 0, false, "one", 3), 0);
	check_int(outfile_add(&f, 3, false, "two", 3), 0);
	check_int(outfile_add(&f, 6, true, "err", 3), 0);
	check_int(outfile_add(&f, 9, false, "out", 3), 0);
	check_int(f.n_runs, 3);
	check_int(outfile_open(&again, p.dir, "x"), 0);
	want(&again, 0, 0, false, "onetwo");
	want(&again, 4, 4, false, "wo");
	want(&again, 6, 6, true, "err");
	want(&again, 11, 11, false, "t");
	check_int(outfile_find(&again, 12, &part), 0);
	outfile_close(&again);
	outfile_close(&f);
	place_end(&p);
}

TEST(a_gap_shows_in_the_offset)
{
	struct place p = place_new();
	struct outfile f = create(&p);

	check_int(outfile_add(&f, 5, false, "five", 4), 0);
	check_int(outfile_add(&f, 100, false, "later", 5), 0);
	want(&f, 0, 5, false, "five");
	want(&f, 8, 8, false, "e");
	want(&f, 9, 100, false, "later");
	want(&f, 50, 100, false, "later");
	outfile_close(&f);
	place_end(&p);
}

/* What a crash leaves: a run without its bytes, bytes cut short, half a run. */
TEST(a_torn_end_is_the_beginning_of_the_truth)
{
	struct place p = place_new();
	struct outfile f = create(&p);
	struct outfile_part part;

	check_int(outfile_add(&f, 0, false, "whole", 5), 0);
	check_int(outfile_add(&f, 5, true, "gone", 4), 0);
	check_int(ftruncate(f.bytes, 7), 0);
	want(&f, 0, 0, false, "whole");
	want(&f, 5, 5, true, "go");
	check_int(ftruncate(f.bytes, 5), 0);
	want(&f, 0, 0, false, "whole");
	check_int(outfile_find(&f, 5, &part), 0);
	check_int(ftruncate(f.runs, 24), 0);
	want(&f, 0, 0, false, "whole");
	check_int(outfile_find(&f, 5, &part), 0);
	outfile_close(&f);
	place_end(&p);
}

TEST(many_runs_at_every_offset)
{
	struct place p = place_new();
	struct outfile f = create(&p);

	for (uint64_t i = 0; i < 1000; i++)
		check_int(outfile_add(&f, i * 3, i % 2 == 1, "abc", 3), 0);
	for (uint64_t at = 0; at < 3000; at++)
		want(&f, at, at, at / 3 % 2 == 1, &"abc"[at % 3]);
	outfile_close(&f);
	place_end(&p);
}

TEST(what_is_there_is_not_overwritten)
{
	struct place p = place_new();
	struct outfile f = create(&p), other;

	check_int(outfile_create(&other, p.dir, "x", (uid_t)-1, (gid_t)-1), -EEXIST);
	check_int(outfile_open(&other, p.dir, "y"), -ENOENT);
	outfile_close(&f);
	place_end(&p);
}
