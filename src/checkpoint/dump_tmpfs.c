/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_tmpfs.c - what is in the sandbox's memory file systems: no snapshot of files has it, so it belongs to the image, whoever has it open.
 *
 * Devices, and what other file systems are mounted on, are made with each sandbox. Extended attributes are not carried.
 */
#include "base/str.h"
#include "checkpoint/alive.h"
#include "checkpoint/dump.h"
#include "sys/raw.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#define DEPTH_MAX 64

/* A file with several names, where its first one is. */
struct name {
	uint64_t inode;
	uint32_t node;
};

/* A file that has a name: for who maps it under another, which it has no more. */
struct place {
	uint64_t device, inode;
	uint32_t node;
};

struct walk {
	struct dump *d;
	struct buf path; /* inside, of the directory that is being read */
	struct buf names;
	uint64_t device;
};

static uint32_t first_name(struct walk *w, const struct stat *st)
{
	const struct name *all = (const struct name *)(const void *)w->names.p;
	struct name mine = { .inode = st->st_ino,
		.node = image_count(&w->d->image, TABLE_NODES, sizeof(struct image_node)) };

	if (S_ISDIR(st->st_mode) || st->st_nlink < 2)
		return IMAGE_NONE;
	for (size_t i = 0; i < w->names.n / sizeof(*all); i++) {
		if (all[i].inode == st->st_ino)
			return all[i].node;
	}
	buf_add(&w->names, &mine, sizeof(mine));
	return IMAGE_NONE;
}

static int add_piece(struct walk *w, int fd, off_t from, off_t to, struct image_node *node)
{
	size_t n = (size_t)(to - from);
	struct image_piece piece = { .at = (uint64_t)from };
	char *bytes = malloc(n);
	ssize_t got = bytes == NULL ? -1 : pread(fd, bytes, n, from);
	int rc = bytes == NULL ? -ENOMEM : got < 0 ? -errno : got != (ssize_t)n ? -EIO : 0;

	if (rc == 0) {
		piece.data = image_add_bytes(&w->d->image, bytes, n);
		(void)IMAGE_ADD(&w->d->image, TABLE_PIECES, &piece);
		node->n_pieces++;
	}
	alive();
	free(bytes);
	return rc;
}

static int add_content(struct walk *w, int directory, const char *name, struct image_node *node)
{
	cleanup_fd int fd =
		openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOATIME | O_CLOEXEC);
	off_t from = 0, to = 0;
	int rc = fd < 0 ? -errno : 0;

	while (rc == 0 && (from = lseek(fd, to, SEEK_DATA)) >= 0) {
		to = lseek(fd, from, SEEK_HOLE);
		rc = to < 0 ? -errno : add_piece(w, fd, from, to, node);
	}
	return rc == 0 && from < 0 && errno != ENXIO ? -errno : rc;
}

static int add_target(struct walk *w, int directory, const char *name, struct image_node *node)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(directory, name, target, sizeof(target));

	if (n >= 0)
		node->target = image_add_bytes(&w->d->image, target, (size_t)n);
	return n < 0 ? -errno : 0;
}

static int add_node(struct walk *w, int directory, const char *name, const struct stat *st)
{
	struct image_node node = { .path = image_add_bytes(&w->d->image, w->path.p, w->path.n),
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.link = first_name(w, st),
		.size = (uint64_t)st->st_size,
		.first_piece = image_count(&w->d->image, TABLE_PIECES, sizeof(struct image_piece)),
		.times = { st->st_atim.tv_sec, st->st_atim.tv_nsec, st->st_mtim.tv_sec,
			st->st_mtim.tv_nsec } };
	struct place place = { .device = st->st_dev,
		.inode = st->st_ino,
		.node = image_count(&w->d->image, TABLE_NODES, sizeof(node)) };
	int rc = 0;

	if (node.link == IMAGE_NONE && S_ISREG(st->st_mode)) {
		rc = add_content(w, directory, name, &node);
		buf_add(&w->d->places, &place, sizeof(place));
	} else if (S_ISLNK(st->st_mode)) {
		rc = add_target(w, directory, name, &node);
	}
	(void)IMAGE_ADD(&w->d->image, TABLE_NODES, &node);
	return rc;
}

static int walk(struct walk *w, int fd, int depth);

static int enter(struct walk *w, int directory, const char *name, int depth)
{
	cleanup_fd int fd = openat(
		directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC);

	return fd < 0 ? -errno : walk(w, fd, depth);
}

static int visit(struct walk *w, int directory, const char *name, int depth)
{
	size_t before = w->path.n;
	struct stat st;
	int rc;

	if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (st.st_dev != w->device || S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))
		return 0;
	buf_char(&w->path, '/');
	buf_str(&w->path, name);
	rc = buf_failed(&w->path) ? -ENAMETOOLONG : add_node(w, directory, name, &st);
	if (rc == 0 && S_ISDIR(st.st_mode))
		rc = enter(w, directory, name, depth);
	w->path.n = before;
	return rc;
}

static int walk(struct walk *w, int fd, int depth)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3), rc = depth == DEPTH_MAX ? -ELOOP : 0;
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *e;

	if (dir == NULL)
		return -errno;
	while (rc == 0 && (e = readdir(dir)) != NULL) {
		if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, ".."))
			rc = visit(w, fd, e->d_name, depth + 1);
	}
	(void)closedir(dir);
	return rc;
}

/* 1 when @path is where a memory file system is mounted. */
static int is_tmpfs(int root, const char *path, int *ret)
{
	struct statfs fs;

	*ret = raw_openat2(root, path, O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC, 0,
		RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
	if (*ret < 0)
		return *ret == -ENOENT || *ret == -ENOTDIR || *ret == -ELOOP ? 0 : *ret;
	return fstatfs(*ret, &fs) < 0 ? -errno : fs.f_type == TMPFS_MAGIC;
}

static int dump_one(struct dump *d, int root, const char *path)
{
	struct walk w = { .d = d, .path = BUF_INIT(PATH_MAX), .names = BUF_INIT(1 << 20) };
	cleanup_fd int fd = -1;
	int rc = is_tmpfs(root, path, &fd);
	struct stat st;

	if (rc <= 0)
		return rc;
	if (fstat(fd, &st) < 0)
		return -errno;
	w.device = st.st_dev;
	buf_str(&w.path, path);
	rc = add_node(&w, fd, ".", &st);
	if (rc == 0)
		rc = walk(&w, fd, 0);
	buf_free(&w.path);
	buf_free(&w.names);
	return rc;
}

static const char *const places[] = { "/dev", "/dev/shm", "/tmp", "/run" };

static int open_root(const struct dump *d)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%d/root", d->order->init_pid);
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

void dump_tmpfs_devices(struct dump *d)
{
	cleanup_fd int root = open_root(d);

	for (size_t i = 0; root >= 0 && i < ARRAY_SIZE(places); i++) {
		cleanup_fd int fd = -1;
		struct stat st;

		if (is_tmpfs(root, places[i], &fd) > 0 && fstat(fd, &st) == 0 &&
			d->n_memory_devices < ARRAY_SIZE(d->memory_devices))
			d->memory_devices[d->n_memory_devices++] = st.st_dev;
	}
}

int dump_tmpfs(struct dump *d, struct err *err)
{
	cleanup_fd int root = open_root(d);
	int rc = root < 0 ? -errno : 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(places); i++) {
		rc = dump_one(d, root, places[i]);
		if (rc < 0)
			return err_raise_sys(err, rc, "read what is in %s", places[i]);
	}
	return rc < 0 ? err_raise_sys(err, rc, "open the root of the sandbox") : 0;
}

char *dump_tmpfs_name(const struct dump *d, const struct proc_map *m)
{
	const struct place *all = (const struct place *)(const void *)d->places.p;
	const struct buf *nodes = &d->image.tables[TABLE_NODES],
			 *bytes = &d->image.tables[TABLE_BYTES];
	const struct image_node *node;
	char *name;

	for (size_t i = 0; i < d->places.n / sizeof(*all); i++) {
		if (all[i].inode != m->inode || all[i].device != makedev(m->major, m->minor))
			continue;
		if (buf_failed(nodes) || buf_failed(bytes))
			return NULL; /* image_seal() says so */
		node = (const struct image_node *)(const void *)nodes->p + all[i].node;
		name = strdup(bytes->p + node->path.offset);
		if (name == NULL)
			abort();
		return name;
	}
	return NULL;
}
