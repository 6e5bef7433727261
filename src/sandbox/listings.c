/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/listings.h"
#include "base/clock.h"
#include "base/str.h"
#include "codec/proctext.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 96 /* the kernel's, for each at least */
#define TRIES      64 /* places where a directory may be in the table */
#define OPENED_MAX 16 /* times that it is tried */
#define OFTEN      256
#define STAT_MAX   4096
#define ORDER      0x9e3779b97f4a7c15ULL

static void learn_line(struct listings *l, const char *line)
{
	static const char kind[] = " - overlay ";
	unsigned long id;

	if (l->n_mounts < LISTINGS_MOUNTS && strstr(line, kind) != NULL &&
		sscanf(line, "%lu", &id) == 1)
		l->mounts[l->n_mounts++] = id;
}

void listings_learn(struct listings *l, int32_t pid)
{
	cleanup_free char *line = NULL;
	char path[32];
	size_t size = 0;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
	f = fopen(path, "re");
	l->n_mounts = 0;
	while (f != NULL && getline(&line, &size, f) > 0)
		learn_line(l, line);
	if (f != NULL)
		(void)fclose(f);
}

void listings_began(struct listings *l, int32_t pid)
{
	cleanup_buf struct buf text = BUF_INIT(STAT_MAX);
	struct proc_stat stat;
	char path[32];
	uint64_t age_ns;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (file_read_at(AT_FDCWD, path, &text) < 0 || proc_stat_parse(buf_cstr(&text), &stat) < 0)
		return;
	age_ns = clock_boot_ns() - stat.started * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
	l->began_ns = clock_wall_ns() - age_ns;
}

static bool is_on_overlay(const struct listings *l, uint64_t mount)
{
	for (size_t i = 0; i < l->n_mounts; i++) {
		if (l->mounts[i] == mount)
			return true;
	}
	return false;
}

/* Who has it for its name alone (O_PATH) cannot have listed it. */
static bool is_readable(int fds, const char *name)
{
	struct stat st;

	return fstatat(fds, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & S_IRUSR) != 0;
}

/* A directory that lies in several layers has one link, whatever their file systems say. */
static bool may_be_kept(const struct listings *l, const struct statx *st)
{
	return S_ISDIR(st->stx_mode) && (st->stx_mask & STATX_MNT_ID) != 0 && st->stx_nlink == 1 &&
	       is_on_overlay(l, st->stx_mnt_id);
}

static struct listing *place_of(struct listings *l, const struct statx *st)
{
	const uint64_t first = (st->stx_ino * ORDER) >> 32;

	for (size_t i = 0; i < TRIES; i++) {
		struct listing *one = &l->all[(first + i) % LISTINGS_DIRECTORIES];

		if (one->n == 0) {
			one->mount = st->stx_mnt_id;
			one->inode = st->stx_ino;
		}
		if (one->inode == st->stx_ino && one->mount == st->stx_mnt_id)
			return one;
	}
	return NULL;
}

void listings_note(struct listings *l, int32_t pid, int fds, const char *name, uint64_t group)
{
	struct listing *one;
	struct statx st;
	uint64_t fd;

	if (l->n == LISTINGS_DESCRIPTORS || str_to_u64(name, 0, INT32_MAX, &fd) < 0 ||
		statx(fds, name, AT_STATX_DONT_SYNC,
			STATX_TYPE | STATX_NLINK | STATX_INO | STATX_CTIME | STATX_MNT_ID,
			&st) < 0 ||
		!may_be_kept(l, &st) || !is_readable(fds, name) || (one = place_of(l, &st)) == NULL)
		return;
	l->descriptors[l->n++] = (struct listed){
		.group = group, .pid = pid, .fd = (int32_t)fd, .before = one->last
	};
	one->last = l->n;
	one->n++;
	one->changed_ns = (uint64_t)st.stx_ctime.tv_sec * NS_PER_S + st.stx_ctime.tv_nsec;
}

static bool is_same(const struct listing *one, int fd)
{
	struct statx st;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_MNT_ID, &st) ==
		       0 &&
	       st.stx_ino == one->inode && st.stx_mnt_id == one->mount;
}

/* The overlay knows no end of what it has put together of several layers, and asks the one that there is otherwise. */
static bool is_merged(int fd)
{
	return lseek(fd, 0, SEEK_END) < 0 && errno == EINVAL;
}

/* Without a trace where the kernel lets us: of what is others' it does not. */
static int open_again(const struct listed *d)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", d->pid, d->fd);
	fd = open(path, flags | O_NOATIME);
	return fd < 0 ? open(path, flags) : fd;
}

/* By one of some of its descriptors: others may have been closed meanwhile. */
static int open_directory(const struct listings *l, const struct listing *one)
{
	uint32_t at = one->last;

	for (int i = 0; i < OPENED_MAX && at != 0; i++) {
		int fd = open_again(&l->descriptors[at - 1]);

		if (fd >= 0 && is_same(one, fd))
			return fd;
		if (fd >= 0)
			(void)close(fd);
		at = l->descriptors[at - 1].before;
	}
	return -1;
}

/* Return: 0 also where they are kept for nobody, or there is no time to count all. */
static uint64_t count_names(const struct listings *l, const struct listing *one, uint64_t until_ns)
{
	int fd = open_directory(l, one);
	DIR *dir = fd >= 0 && is_merged(fd) ? fdopendir(fd) : NULL;
	uint64_t n = 0;

	if (dir == NULL) {
		if (fd >= 0)
			(void)close(fd);
		return 0;
	}
	while (readdir(dir) != NULL && (++n % OFTEN != 0 || clock_now_ns() < until_ns))
		;
	(void)closedir(dir);
	return clock_now_ns() < until_ns ? n : 0;
}

static int compare(const struct listed *a, const struct listed *b)
{
	return raw_kcmp(a->pid, b->pid, KCMP_FILE, (unsigned long)a->fd, (unsigned long)b->fd);
}

/* Add to the @n that were opened each for itself; not what is there already, or cannot be told. Those that are met and closed by now are none any more. */
static void add_opened(struct listings *l, size_t *n, uint32_t which)
{
	const struct listed *d = &l->descriptors[which];
	size_t low = 0, high = *n;

	while (low < high) {
		const size_t middle = (low + high) / 2;
		const struct listed *other = &l->descriptors[l->opened[middle]];
		const int order = compare(d, other);

		if (order == 1) {
			high = middle;
		} else if (order == 2) {
			low = middle + 1;
		} else if (order >= 0 || compare(d, d) != 0 || compare(other, other) == 0) {
			return;
		} else {
			memmove(&l->opened[middle], &l->opened[middle + 1],
				(--*n - middle) * sizeof(l->opened[0]));
			high--;
		}
	}
	memmove(&l->opened[low + 1], &l->opened[low], ((*n)++ - low) * sizeof(l->opened[0]));
	l->opened[low] = which;
}

static void add_directory(
	struct listings *l, const struct listing *one, struct holders *h, uint64_t until_ns)
{
	const uint64_t bytes = NAME_BYTES * count_names(l, one, until_ns);
	const bool changed = l->began_ns == 0 || one->changed_ns >= l->began_ns;
	size_t n = 0;

	for (uint32_t i = one->last; bytes > 0 && i != 0 && clock_now_ns() < until_ns;
		i = changed ? l->descriptors[i - 1].before : 0)
		add_opened(l, &n, i - 1);
	for (size_t i = 0; i < n; i++)
		holders_add(h, l->descriptors[l->opened[i]].group, bytes);
}

static int most_first(const void *a, const void *b)
{
	const struct listing *left = a, *right = b;

	return left->n < right->n ? 1 : left->n > right->n ? -1 : 0;
}

void listings_add(struct listings *l, struct holders *h, uint64_t until_ns)
{
	qsort(l->all, LISTINGS_DIRECTORIES, sizeof(l->all[0]), most_first);
	for (size_t i = 0; i < LISTINGS_DIRECTORIES && l->all[i].n > 0 && clock_now_ns() < until_ns;
		i++)
		add_directory(l, &l->all[i], h, until_ns);
}
