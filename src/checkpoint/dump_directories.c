/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_directories.c - directories in the middle of being read, and those that were removed.
 * A place in one is a number of its file system's own: an overlay counts the entries of a directory that lies in several layers in its own way, and those of one that lies in one as
 * the file system below does; one in memory counts by when an entry was made. So what is carried are the names that come next, and entries in memory are made again so that they are
 * listed in the same order (cay-template: nodes.c). Other file systems are the same in a fork.
 *
 * They are read by the program's own description, whose place is put back: another description of the same directory may count in another way. In pause, so it is one call.
 *
 * One that was removed is empty for good: its name, its mode and whose it is are all that is carried.
 */
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#define NEXT_SIZE \
	1024 /* of entries: several names, as the first may be one that was removed meanwhile */

static bool has_own_places(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 &&
	       (fs.f_type == OVERLAYFS_SUPER_MAGIC || fs.f_type == TMPFS_MAGIC);
}

/* Return: bytes of entries, 0 = it was read to its end, or -errno. */
static int read_next(int fd, uint64_t place, char entries[NEXT_SIZE])
{
	ssize_t n = getdents64(fd, entries, NEXT_SIZE);
	int rc = n < 0 ? -errno : (int)n;

	return lseek(fd, (off_t)place, SEEK_SET) < 0 ? -errno : rc;
}

int dump_reading(struct dump *d, struct subject *s)
{
	char entries[NEXT_SIZE] __attribute__((aligned(8))), names[NEXT_SIZE];
	size_t length = 0;
	int n;

	if (d->examination != NULL || s->out.position == 0 || !has_own_places(s->copy))
		return 0;
	n = read_next(s->copy, s->out.position, entries);
	if (n < 0)
		return n;
	for (int at = 0; at < n;) {
		const struct dirent64 *e = (const struct dirent64 *)(const void *)(entries + at);
		size_t size = strlen(e->d_name) + 1;

		memcpy(names + length, e->d_name, size);
		length += size;
		at += e->d_reclen;
	}
	s->out.b = 1;
	if (length > 0)
		s->out.place = image_add_bytes(&d->image, names, length - 1);
	return 0;
}

/* --- those that were removed --- */

/* The description that was seen first of the same one, or NULL. */
static const struct dump_known *first_of_removed(struct dump *d, const struct stat *st)
{
	for (size_t i = 0; i < d->n_known; i++) {
		const struct dump_known *k = &d->known[i];
		const struct image_description *o;

		if (k->device != st->st_dev || k->inode != st->st_ino)
			continue;
		o = dump_description(d, k->index);
		if (o->kind == DESCRIPTION_UNLINKED && S_ISDIR(o->mode))
			return k;
	}
	return NULL;
}

/* 1 + that which is made again, and opened by the others; 0 = it is @k. */
static uint64_t made_by(struct dump *d, const struct dump_known *k)
{
	const struct image_description *o = k == NULL ? NULL : dump_description(d, k->index);

	return o == NULL ? 0 : o->a != 0 ? o->a : k->index + UINT64_C(1);
}

void dump_removed_open(struct dump *d, struct subject *s)
{
	s->out.kind = DESCRIPTION_UNLINKED;
	s->out.path = image_add_bytes(&d->image, s->target, s->target_n - strlen(DUMP_GONE));
	s->out.a = made_by(d, first_of_removed(d, &s->st));
}

uint32_t dump_removed_place(struct dump *d, const char *path, const struct stat *st)
{
	struct image_description out = { .kind = DESCRIPTION_UNLINKED,
		.peer = IMAGE_NONE,
		.flags = O_PATH | O_DIRECTORY,
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid };
	const struct dump_known *first = first_of_removed(d, st);

	/* whoever works in it may share a description, also one that a descriptor has */
	if (first != NULL)
		return first->index;
	out.path = image_add_bytes(&d->image, path, strlen(path) - strlen(DUMP_GONE));
	return dump_remember(
		d, st->st_dev, st->st_ino, 0, -2, IMAGE_ADD(&d->image, TABLE_DESCRIPTIONS, &out))
		->index;
}
