/* SPDX-License-Identifier: Apache-2.0 */
#include "store/copier.h"
#include "store/tree.h"
#include "t.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define NO_LONGER_RACY_NS (100 * NS_PER_MS)

/* A directory with `from`, in which x and y are one file, and an empty `to`. */
struct place {
	char path[32];
	int at, from, to;
};

static int make_dir(int at, const char *name)
{
	check_int(mkdirat(at, name, 0700), 0);
	return openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static struct place place_make(void)
{
	struct place p = { .path = "/tmp/copier-XXXXXX" };
	int fd;

	check(mkdtemp(p.path) != NULL);
	p.at = open(p.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	p.from = make_dir(p.at, "from");
	p.to = make_dir(p.at, "to");
	fd = openat(p.from, "x", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	check_int(write(fd, "one", 3), 3);
	check_int(close(fd), 0);
	check_int(linkat(p.from, "x", p.from, "y", 0), 0);
	return p;
}

static void place_remove(struct place *p)
{
	(void)close(p->from);
	(void)close(p->to);
	check_int(tree_remove(p->at, "from"), 0);
	check_int(tree_remove(p->at, "to"), 0);
	(void)close(p->at);
	check_int(rmdir(p->path), 0);
}

static nlink_t copies(const struct place *p, const char *name)
{
	struct stat st;

	return fstatat(p->to, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_nlink;
}

/* One of two names is copied anew in the second pass: because of a copy that is missing here, else because it was copied too soon after it was changed. */
static void stay_one_file(const char *missing)
{
	struct place p = place_make();
	struct copier *c = copier_new(p.from, p.to, false, "");
	uint64_t since = clock_now_ns();
	struct err err;

	while (clock_now_ns() - since < NO_LONGER_RACY_NS)
		(void)usleep(1000);
	check_int(copier_pass(c, NULL, &err), 0);
	check_int(copies(&p, "x"), 2);
	check_int(unlinkat(p.to, missing, 0), 0);
	check_int(copier_pass(c, NULL, &err), 0);
	check_int(copies(&p, "x"), 2);
	check_int(copies(&p, "y"), 2);
	copier_free(c);
	place_remove(&p);
}

TEST(names_of_one_file_stay_one_file_when_the_first_is_copied_again)
{
	stay_one_file("x");
}

TEST(names_of_one_file_stay_one_file_when_the_second_is_copied_again)
{
	stay_one_file("y");
}
