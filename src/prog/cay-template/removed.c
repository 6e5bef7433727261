/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/removed.c - directories that were removed and are still used: made again where they were, with what was above them, opened, and removed. Before anything runs; what lies
 * above it all is as it was, its times too. In the opener.
 */
#include "prog/cay-template/fork.h"

#include <linux/fcntl.h>

#define ENAMETOOLONG 36
#define AT_CWD       (-100)
#define PATH_SIZE    4096U
#define NAMES_MAX    1000U  /* that are tried */
#define NOWHERE      "/dev" /* memory, in every sandbox: where nothing can be made there */
#define NEW_NAME     "/.removed-"
#define OMIT         0x3ffffffe /* UTIME_OMIT */

/** struct place - a path that is being made. */
struct place {
	char path[PATH_SIZE + sizeof(NEW_NAME) + 10];
	uint64_t length;
	uint64_t base; /* what lies above it was there: so many bytes of the path */
};

/** struct status - struct stat. */
struct status {
	uint64_t head[11];
	uint64_t changed[2]; /* its content: seconds, nanoseconds */
	uint64_t rest[5];
};

/* As long as @n, "/" at the least. @made: of make(), or another call of one path. */
static long call_with(struct place *p, uint64_t n, long nr, void *argument)
{
	const char kept = p->path[n];
	long rc;

	p->path[n] = '\0';
	rc = CALL2(nr, n > 0 ? p->path : "/", argument);
	p->path[n] = kept;
	return rc;
}

static uint64_t parent_of(const struct place *p, uint64_t n)
{
	while (n > 0 && p->path[n - 1] != '/')
		n--;
	return n > 0 ? n - 1 : 0;
}

/* Another has its name now: one beside it. */
static void choose_name(struct place *p)
{
	const uint64_t above = parent_of(p, p->length);
	struct status st;

	for (uint32_t i = 0; i < NAMES_MAX && call_with(p, p->length, __NR_lstat, &st) == 0; i++) {
		memcpy(p->path + above, NEW_NAME, sizeof(NEW_NAME));
		p->length = above + sizeof(NEW_NAME) - 1;
		p->length += (uint64_t)number_text(p->path + p->length, i);
		p->path[p->length] = '\0';
	}
}

static void remove_all(struct place *p, uint64_t from)
{
	for (uint64_t n = from; n > p->base; n = parent_of(p, n))
		(void)call_with(p, n, __NR_rmdir, NULL);
}

/* What is missing of it, from the top. Return: 0, or -errno and nothing is left. */
static long make_all(struct place *p)
{
	uint64_t made = p->base;
	long rc = 0;

	while (rc == 0 && made < p->length) {
		uint64_t n = made + 1;

		while (n < p->length && p->path[n] != '/')
			n++;
		rc = call_with(p, n, __NR_mkdir, (void *)0700);
		made = rc == 0 ? n : made;
	}
	if (rc < 0)
		remove_all(p, made);
	return rc;
}

/* Return: a descriptor to read it, of which the name is gone again, or -errno. */
static long make(struct place *p)
{
	struct status above = { 0 };
	long fd;

	choose_name(p);
	p->base = parent_of(p, p->length);
	while (p->base > 0 && call_with(p, p->base, __NR_stat, &above) < 0)
		p->base = parent_of(p, p->base);
	if (p->base == 0)
		(void)call_with(p, 0, __NR_stat, &above);
	fd = make_all(p);
	if (fd == 0)
		fd = CALL4(__NR_openat, AT_CWD, p->path, O_DIRECTORY | BARE_CLOEXEC, 0);
	if (fd >= 0) {
		const uint64_t times[4] = { 0, OMIT, above.changed[0], above.changed[1] };
		const char kept = p->path[p->base];

		remove_all(p, p->length);
		p->path[p->base] = '\0';
		(void)CALL4(__NR_utimensat, AT_CWD, p->base > 0 ? p->path : "/", times, 0);
		p->path[p->base] = kept;
	}
	return fd;
}

int removed_directory(const struct image_description *d)
{
	static struct place p;
	long fd = -ENAMETOOLONG;

	if (d->path.length < PATH_SIZE) {
		memcpy(p.path, image_bytes(d->path), d->path.length + 1);
		p.length = d->path.length;
		fd = make(&p);
	}
	if (fd < 0) {
		memcpy(p.path, NOWHERE NEW_NAME, sizeof(NOWHERE NEW_NAME));
		p.length = sizeof(NOWHERE NEW_NAME) - 1;
		fd = make(&p);
	}
	(void)fork_must(fd, "make a directory that was removed");
	(void)CALL3(__NR_fchown, fd, d->uid, d->gid);
	(void)CALL2(__NR_fchmod, fd, d->mode & 07777);
	return (int)fd;
}
