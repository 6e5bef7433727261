/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/numbers.h"
#include "store/tree.h"
#include "t.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* A layer with a/b/file, which says that it was copied up, an empty upper, and what is outside of both. */
struct place {
	char path[32];
	int at, layer, upper, outside;
};

static int make_dir(int at, const char *name)
{
	check_int(mkdirat(at, name, 0755), 0);
	return openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static struct place place_make(void)
{
	struct place p = { .path = "/tmp/numbers-XXXXXX" };
	int a, b, fd;

	check(mkdtemp(p.path) != NULL);
	p.at = open(p.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	p.layer = make_dir(p.at, "layer");
	p.upper = make_dir(p.at, "upper");
	p.outside = make_dir(p.at, "outside");
	a = make_dir(p.layer, "a");
	b = make_dir(a, "b");
	check_int(fchmod(b, 0751), 0);
	fd = openat(b, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	check_int(write(fd, "text", 4), 4);
	check_int(fsetxattr(fd, "trusted.overlay.origin", "a handle", 8, 0), 0);
	check_int(close(fd), 0);
	check_int(close(a), 0);
	check_int(close(b), 0);
	return p;
}

static void place_remove(struct place *p)
{
	(void)close(p->layer);
	(void)close(p->upper);
	(void)close(p->outside);
	check_int(tree_remove(p->at, "layer"), 0);
	check_int(tree_remove(p->at, "upper"), 0);
	check_int(tree_remove(p->at, "outside"), 0);
	(void)close(p->at);
	check_int(rmdir(p->path), 0);
}

TEST(with_its_parents)
{
	struct place p;
	struct stat st;

	if (geteuid() != 0)
		skip("only root may say where a file was copied from");
	p = place_make();
	check_int(numbers_copy_up(p.layer, "a/b/file", p.upper, 1), 1);
	check_int(fstatat(p.upper, "a/b/file", &st, AT_SYMLINK_NOFOLLOW), 0);
	check_int(st.st_size, 4);
	check_int(fstatat(p.upper, "a/b", &st, AT_SYMLINK_NOFOLLOW), 0);
	check_int(st.st_mode & 07777, 0751);
	/* it is there now */
	check_int(numbers_copy_up(p.layer, "a/b/file", p.upper, 1), 0);
	place_remove(&p);
}

/* The upper may be what a program has written: a link in it leads nowhere. */
TEST(through_no_link)
{
	struct place p;
	struct stat st;

	if (geteuid() != 0)
		skip("only root may say where a file was copied from");
	p = place_make();
	check_int(symlinkat("../outside", p.upper, "a"), 0);
	check(numbers_copy_up(p.layer, "a/b/file", p.upper, 1) < 0);
	check_int(fstatat(p.outside, "b", &st, AT_SYMLINK_NOFOLLOW), -1);
	place_remove(&p);
}
