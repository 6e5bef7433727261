/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/removed.c - directories that were removed and are still used: made again where they were, with what was above them, opened, and removed. Before anything runs; what lies
 * above it all is as it was, its times too. In the opener.
 *
 * The topmost has a name of its own, and never the one that it had: an overlay that has deleted that name would do so anew, as of now, and `cay apply` takes what the host put there meanwhile for
 * older than that. What was deleted by nobody leaves nothing behind. What another opener, that was killed, has left is removed, as it has such a name.
 */
#include "prog/cay-template/fork.h"

#include <linux/fcntl.h>

#define AT_CWD      (-100)
#define PATH_SIZE   4096U
#define NAMES_MAX   1000U          /* that are tried */
#define NOWHERE     "/dev/removed" /* memory, in every sandbox: where nothing can be made there */
#define NEW_NAME    "/.cay-removed-"
#define OMIT        0x3ffffffe /* UTIME_OMIT */
#define S_KIND      0170000
#define S_DIRECTORY 0040000

/** struct made - a path that is being made. */
struct made {
	char path[PATH_SIZE + sizeof(NEW_NAME) + 10];
	uint64_t length;
	uint64_t base; /* what lies above it was there: so many bytes of the path */
};

/** struct status - struct stat. */
struct status {
	uint64_t head[3];
	uint32_t mode, uid;
	uint64_t more[7];
	uint64_t changed[2]; /* its content: seconds, nanoseconds */
	uint64_t rest[5];
};

/* As long as @n, "/" at the least. */
static long call_with(struct made *m, uint64_t n, long nr, void *argument)
{
	const char kept = m->path[n];
	long rc;

	m->path[n] = '\0';
	rc = CALL2(nr, n > 0 ? m->path : "/", argument);
	m->path[n] = kept;
	return rc;
}

static uint64_t parent_of(const char *path, uint64_t n)
{
	while (n > 0 && path[n - 1] != '/')
		n--;
	return n > 0 ? n - 1 : 0;
}

static uint64_t child_of(const struct made *m, uint64_t n)
{
	do
		n++;
	while (n < m->length && m->path[n] != '/');
	return n;
}

/* Its own name with number @i, below which all is called as it was in @former, of length @n. */
static void choose_name(struct made *m, const char *former, uint64_t n, uint32_t i)
{
	uint64_t topmost = m->base + 1;

	while (topmost < n && former[topmost] != '/')
		topmost++;
	memcpy(m->path + m->base, NEW_NAME, sizeof(NEW_NAME));
	m->length = m->base + sizeof(NEW_NAME) - 1;
	m->length += (uint64_t)number_text(m->path + m->length, i);
	memcpy(m->path + m->length, former + topmost, n - topmost);
	m->length += n - topmost;
	m->path[m->length] = '\0';
}

static void remove_all(struct made *m, uint64_t from)
{
	for (uint64_t n = from; n > m->base; n = parent_of(m->path, n))
		(void)call_with(m, n, __NR_rmdir, NULL);
}

/* Of somebody else's links none is followed. Return: whether there was something. */
static bool remove_stray(struct made *m)
{
	struct status st;
	uint64_t there = m->base;

	while (there < m->length) {
		const uint64_t n = child_of(m, there);

		if (call_with(m, n, __NR_lstat, &st) < 0 || (st.mode & S_KIND) != S_DIRECTORY)
			break;
		there = n;
	}
	remove_all(m, there);
	return there > m->base;
}

/* From the top. Return: 0 or -errno. @made: how long it is. */
static long make_all(struct made *m, uint64_t *made)
{
	long rc = 0;

	*made = m->base;
	while (rc == 0 && *made < m->length) {
		const uint64_t n = child_of(m, *made);

		rc = call_with(m, n, __NR_mkdir, (void *)0700);
		*made = rc == 0 ? n : *made;
	}
	return rc;
}

/* Return: a descriptor to read it, of which the name is gone again, or -errno. */
static long make_once(struct made *m)
{
	struct status above = { 0 };
	uint64_t made;
	bool changed;
	long fd;

	(void)call_with(m, m->base, __NR_stat, &above);
	changed = remove_stray(m);
	fd = make_all(m, &made);
	if (fd == 0) {
		bare_fault("live.opener.removed");
		fd = CALL4(__NR_openat, AT_CWD, m->path, O_DIRECTORY | BARE_CLOEXEC, 0);
	}
	remove_all(m, made);
	if (changed || made > m->base) {
		const uint64_t times[4] = { 0, OMIT, above.changed[0], above.changed[1] };

		m->path[m->base] = '\0';
		(void)CALL4(__NR_utimensat, AT_CWD, m->base > 0 ? m->path : "/", times, 0);
	}
	return fd;
}

/* Another may have the name, or, where it is a directory of the host's, be at this too. Return: as make_once(). */
static long make(struct made *m, const char *former, uint64_t n)
{
	struct status above;
	long fd = -EEXIST;

	memcpy(m->path, former, n + 1);
	m->base = parent_of(former, n);
	while (m->base > 0 && call_with(m, m->base, __NR_stat, &above) < 0)
		m->base = parent_of(former, m->base);
	for (uint32_t i = 0; (fd == -EEXIST || fd == -ENOENT) && i < NAMES_MAX; i++) {
		choose_name(m, former, n, i);
		fd = make_once(m);
	}
	return fd;
}

int removed_directory(const struct image_description *d)
{
	static struct made m;
	long fd = -ENAMETOOLONG;

	if (d->path.length > 1 && d->path.length < PATH_SIZE)
		fd = make(&m, image_bytes(d->path), d->path.length);
	if (fd < 0)
		fd = make(&m, NOWHERE, sizeof(NOWHERE) - 1);
	(void)fork_must(fd, "make a directory that was removed");
	(void)CALL3(__NR_fchown, fd, d->uid, d->gid);
	(void)CALL2(__NR_fchmod, fd, d->mode & 07777);
	return (int)fd;
}
