/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/listings.h"
#include "base/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 128 /* the kernel's, for each: of those up to 52 bytes long */
#define SPENT_NS   (100 * NS_PER_MS)
#define SIZE_MAX_LISTED \
	(1U << 20)      /* of larger ones that have been listed anew this alone would take long */
#define SIZE_OF_NAME 12 /* of a directory's size, on the file systems that overlays have above */

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

/* Without a trace where the kernel lets us: of what is others' it does not. */
static int open_directory(int fds, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	int fd = openat(fds, name, flags | O_NOATIME);

	return fd < 0 ? openat(fds, name, flags) : fd;
}

static uint64_t count_names(int fds, const char *name)
{
	int fd = open_directory(fds, name);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	uint64_t n = 0;

	if (dir == NULL) {
		if (fd >= 0)
			(void)close(fd);
		return 0;
	}
	while (readdir(dir) != NULL)
		n++;
	(void)closedir(dir);
	return n;
}

static uint64_t names_of(struct listings *l, int fds, const char *name, const struct statx *st)
{
	struct listing *one = NULL;
	uint64_t began_ns;

	for (size_t i = 0; i < l->n; i++) {
		if (l->all[i].inode == st->stx_ino && l->all[i].mount == st->stx_mnt_id)
			return l->all[i].names;
	}
	if (st->stx_size > SIZE_MAX_LISTED)
		return st->stx_size / SIZE_OF_NAME;
	if (l->n == LISTINGS_MAX || l->spent_ns > SPENT_NS)
		return l->names / l->n;
	began_ns = clock_thread_ns();
	one = &l->all[l->n++];
	*one = (struct listing){
		.mount = st->stx_mnt_id, .inode = st->stx_ino, .names = count_names(fds, name)
	};
	l->names += one->names;
	l->spent_ns += clock_thread_ns() - began_ns;
	return one->names;
}

uint64_t listings_bytes(struct listings *l, int fds, const char *name)
{
	struct statx st;

	if (statx(fds, name, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO | STATX_SIZE | STATX_MNT_ID,
		    &st) < 0 ||
		!S_ISDIR(st.stx_mode) || (st.stx_mask & STATX_MNT_ID) == 0 ||
		!is_on_overlay(l, st.stx_mnt_id) || !is_readable(fds, name))
		return 0;
	return names_of(l, fds, name, &st) * NAME_BYTES;
}
