/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_names.c - what mapped files are called. The text of /proc/PID/maps does not tell it for certain: a newline in a name is written as \012 and a backslash as it
 * is, " (deleted)" may be the end of a name, and what an overlay has from another is never called deleted.
 *
 * The exact name is what the link in /proc/PID/map_files says, which whoever may read maps may read as well (to follow it wants the host's root). Whether it is still the file's, a
 * look at that name tells: by the file's number.
 */
#include "base/str.h"
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "sys/raw.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define NEWLINE "\\012" /* as maps has it */

bool dump_is_gone(const char *name, size_t n)
{
	const size_t suffix = sizeof(DUMP_GONE) - 1;

	return n > suffix && memcmp(name + n - suffix, DUMP_GONE, suffix) == 0;
}

/* Pages of no file: of huge pages there are only so many, and the others have a state in the kernel. */
bool dump_is_gone_file(const struct proc_map *m)
{
	static const char *const others[] = { "/anon_hugepage", "/[aio]", "/SYSV", "/dev/zero" };

	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		size_t n = strlen(others[i]);

		if (m->name_size >= n && memcmp(m->name, others[i], n) == 0)
			return false;
	}
	return m->name_size > 0 && m->name[0] == '/' && !m->literal &&
	       dump_is_gone(m->name, m->name_size);
}

/* --- which file is there --- */

/* The sandbox's own root: a process may have another. */
static int open_root(const struct dump *d)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < d->n; i++) {
		int proc = d->processes[i].tracee.proc;

		if (readlinkat(proc, "root", path, sizeof(path)) == 1)
			return openat(proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	return -1;
}

/* Older kernels (seen on 6.1) say of a mapping which file is below the overlay. Where that was copied up stat() says another number: what a mapping of @there is called tells. */
static bool is_mapped_as(int there, const struct proc_map *m)
{
	uint64_t device, inode;

	dump_mapped_identity(there, &device, &inode);
	return inode != 0 && inode == m->inode && device == makedev(m->major, m->minor);
}

static void note_file(struct dump_name *name, const struct statx *st)
{
	name->regular = S_ISREG(st->stx_mode);
	name->file = (struct image_file){ .size = st->stx_size,
		.inode = st->stx_ino,
		.changed_s = st->stx_mtime.tv_sec,
		.changed_ns = st->stx_mtime.tv_nsec,
		.born_s = st->stx_btime.tv_sec,
		.born_ns = st->stx_btime.tv_nsec,
		.has_birth = (st->stx_mask & STATX_BTIME) != 0 };
}

/* What is at its name, O_PATH, without following links; or -errno. */
static int open_name(int root, const struct proc_map *m)
{
	char path[PATH_MAX];

	if (m->name_size >= sizeof(path))
		return -ENAMETOOLONG;
	memcpy(path, m->name, m->name_size);
	path[m->name_size] = '\0';
	return raw_openat2(
		root, path, O_PATH | O_NOFOLLOW, 0, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
}

/* Is another file at its name, or none? @name: which it is. */
static bool is_replaced(int root, const struct proc_map *m, struct dump_name *name)
{
	cleanup_fd int there = open_name(root, m);
	struct statx st;

	if (there < 0)
		return there == -ENOENT || there == -ENOTDIR || there == -ELOOP;
	if (statx(there, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &st) < 0)
		return false;
	note_file(name, &st);
	/* what an overlay has found once it goes on to show, also when it was removed below it */
	if (st.stx_nlink == 0)
		return true;
	return st.stx_ino != m->inode && !(name->regular && is_mapped_as(there, m));
}

/* Is it there, called as @m is? Among what the kernel calls deleted are files of other devices, whose numbers come again. */
static bool is_there(int root, const struct proc_map *m, struct dump_name *name)
{
	cleanup_fd int there = open_name(root, m);
	struct statx st;

	if (there < 0 ||
		statx(there, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &st) < 0 ||
		st.stx_nlink == 0)
		return false;
	note_file(name, &st);
	return (st.stx_ino == m->inode && st.stx_dev_major == m->major &&
		       st.stx_dev_minor == m->minor) ||
	       (name->regular && is_mapped_as(there, m));
}

static bool may_be_replaced(const struct proc_map *m, dev_t plain)
{
	return m->inode != 0 && m->name_size > 0 && m->name[0] == '/' &&
	       !dump_is_gone(m->name, m->name_size) && makedev(m->major, m->minor) != plain;
}

/* Relatives map the same files one after the other, so the next one is most often the one behind the last. */
static struct dump_name *find_name(struct dump *d, const struct proc_map *m)
{
	for (size_t i = 0; i < d->n_names; i++) {
		size_t at = (d->next_name + i) % d->n_names;
		struct dump_name *name = &d->names[at];

		if (name->inode != m->inode || name->device != makedev(m->major, m->minor) ||
			name->size != m->name_size ||
			memcmp(name->text, m->name, m->name_size) != 0)
			continue;
		d->next_name = at + 1;
		return name;
	}
	return NULL;
}

/* Everything stands still, so what was found for one holds for all that map it. @m: what it is called ends in "(deleted)", or it may be replaced. */
static bool has_its_name(struct dump *d, int root, dev_t plain, const struct proc_map *m)
{
	const struct dump_name *known = find_name(d, m);
	struct dump_name *more;

	if (known != NULL)
		return !known->replaced;
	more = realloc(d->names, (d->n_names + 1) * sizeof(*more));
	if (more == NULL)
		abort();
	d->names = more;
	more += d->n_names;
	*more = (struct dump_name){ .device = makedev(m->major, m->minor),
		.inode = m->inode,
		.size = m->name_size,
		.text = malloc(m->name_size) };
	if (more->text == NULL)
		abort();
	memcpy(more->text, m->name, m->name_size);
	more->replaced = dump_is_gone(m->name, m->name_size) ? !is_there(root, m, more)
							     : is_replaced(root, m, more);
	/* what belongs to the sandbox's root alone comes with its layers: dump_file_stays() */
	more->regular = more->regular && makedev(m->major, m->minor) != plain;
	d->next_name = ++d->n_names;
	return !more->replaced;
}

/* The file that is there, which at least one maps. */
static const struct dump_name *find_there(const struct dump *d, struct image_span name)
{
	const void *text = d->image.tables[TABLE_BYTES].p + name.offset;

	for (size_t i = 0; i < d->n_names; i++) {
		const struct dump_name *one = &d->names[i];

		if (one->regular && !one->replaced && one->size == name.length &&
			memcmp(one->text, text, name.length) == 0)
			return one;
	}
	return NULL;
}

void dump_file_stays(struct dump *d, uint32_t index, bool may_change)
{
	const struct dump_name *name;
	struct image_description *out = dump_description(d, index);

	if (out->data.length == 0 && (name = find_there(d, out->path)) != NULL)
		out->data = image_add_bytes(&d->image, &name->file, sizeof(name->file));
	if (!may_change)
		out->a = 1;
}

/* --- what it is called --- */

static void call(struct mappings *maps, struct proc_map *m, char *name)
{
	m->name = mappings_name(maps, name);
	m->name_size = strlen(name);
}

static void call_gone(struct mappings *maps, struct proc_map *m)
{
	char *name = malloc(m->name_size + sizeof(DUMP_GONE));

	if (name == NULL)
		abort();
	memcpy(name, m->name, m->name_size);
	memcpy(name + m->name_size, DUMP_GONE, sizeof(DUMP_GONE));
	call(maps, m, name);
}

static int call_exactly(struct dump_process *p, struct proc_map *m)
{
	char link[64], path[PATH_MAX], *name;
	ssize_t n;

	(void)snprintf(link, sizeof(link), "map_files/%llx-%llx", (unsigned long long)m->start,
		(unsigned long long)m->end);
	n = readlinkat(p->tracee.proc, link, path, sizeof(path));
	if (n < 0 || n == sizeof(path))
		return n < 0 ? -errno : -ENAMETOOLONG;
	name = strndup(path, (size_t)n);
	if (name == NULL)
		abort();
	call(&p->maps, m, name);
	return 0;
}

/* What is memory alone is in no file system, whatever it is called. */
static bool may_be_literal(const struct dump *d, const struct proc_map *m)
{
	return m->name_size > 0 && m->name[0] == '/' && dump_is_gone(m->name, m->name_size) &&
	       (d->n_memory_devices == 0 || makedev(m->major, m->minor) != d->memory_devices[0]);
}

/* In the directory @folder of @root. Return: to be freed, NULL when there is none. */
static char *find_linked(int root, const char *folder, const struct proc_map *m)
{
	int fd = raw_openat2(
		root, folder, O_RDONLY | O_DIRECTORY, 0, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	char *name = NULL;

	if (dir == NULL && fd >= 0)
		(void)close(fd);
	while (dir != NULL && name == NULL && (e = readdir(dir)) != NULL) {
		cleanup_fd int there =
			e->d_ino == m->inode && (e->d_type == DT_REG || e->d_type == DT_UNKNOWN)
				? openat(fd, e->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC)
				: -1;

		if (there >= 0 && is_mapped_as(there, m))
			name = str_dupf("%s%s", folder, e->d_name);
	}
	if (dir != NULL)
		(void)closedir(dir);
	return name;
}

/* What a program has linked to another name in the same directory before it removed the one by which it is mapped. Return: to be freed, or NULL. */
static char *linked_name(struct dump *d, int root, const struct proc_map *m)
{
	const char *slash = memrchr(m->name, '/', m->name_size);
	struct dump_name *known;
	char folder[PATH_MAX];

	if (slash == NULL || m->name_size >= sizeof(folder) || !may_be_literal(d, m) ||
		dump_is_in_memory(d, makedev(m->major, m->minor)) ||
		dump_shared_open(d, m) != IMAGE_NONE)
		return NULL;
	/* has_its_name() has found it just now, or added it */
	known = &d->names[d->next_name - 1];
	/* one that goes through all of a directory is enough, however many map it */
	if (!known->sought) {
		(void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - m->name) + 1, m->name);
		known->linked = find_linked(root, folder, m);
		known->sought = true;
	}
	return known->linked == NULL ? NULL : str_dup(known->linked);
}

/* The name by which @m is found in @root, whose own files are on @plain; or one that ends in "(deleted)" when it has none. */
static int call_anew(
	struct dump *d, struct dump_process *p, int root, dev_t plain, struct proc_map *m)
{
	char *other = NULL;
	int rc = memmem(m->name, m->name_size, NEWLINE, sizeof(NEWLINE) - 1) != NULL
			 ? call_exactly(p, m)
			 : 0;

	if (rc < 0)
		return rc;
	if (may_be_replaced(m, plain) && !has_its_name(d, root, plain, m)) {
		call_gone(&p->maps, m);
		return 0;
	}
	if (may_be_literal(d, m))
		m->literal = has_its_name(d, root, plain, m);
	if (m->shared && dump_is_gone_file(m))
		other = dump_tmpfs_name(d, m);
	if (other == NULL && m->shared && dump_is_gone_file(m))
		other = linked_name(d, root, m);
	if (other != NULL) {
		call(&p->maps, m, other);
		m->literal = true;
	}
	return 0;
}

/* The parts of a file are neighbours. */
static bool is_another(const struct proc_map *m, const struct proc_map *before)
{
	return before->name == NULL || before->name_size != m->name_size ||
	       before->inode != m->inode || before->shared != m->shared ||
	       memcmp(before->name, m->name, m->name_size) != 0;
}

int dump_names(struct dump *d, struct dump_process *p, struct err *err)
{
	cleanup_fd int root = open_root(d);
	struct proc_map before = { 0 }, called = { 0 };
	struct stat st;
	int rc = 0;

	if (root < 0 || fstat(root, &st) < 0)
		return 0;
	for (size_t i = 0; rc == 0 && i < p->maps.n; i++) {
		struct proc_map *m = &p->maps.list[i], now = *m;

		if (is_another(&now, &before)) {
			rc = call_anew(d, p, root, st.st_dev, m);
			called = *m;
		}
		m->name = called.name;
		m->name_size = called.name_size;
		m->literal = called.literal;
		before = now;
	}
	return rc < 0 ? err_raise_sys(err, rc,
				"read the names of the files that process %d (%s) maps",
				p->tracee.inner, p->name)
		      : 0;
}

void dump_names_fini(struct dump *d)
{
	for (size_t i = 0; i < d->n_names; i++) {
		free(d->names[i].text);
		free(d->names[i].linked);
	}
	free(d->names);
}
