/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_gone.c - files that are mapped and have no name any more: libraries and programs that were replaced while they are in use.
 *
 * Nobody but the host's root may open a file through a mapping of it (/proc/PID/map_files), so its bytes are read from the memory of those that map it: pages that a
 * process has changed for itself are its own, all others are the file's. What nobody maps, nobody can see. The program itself is open to be read (/proc/PID/exe) and
 * carried whole. Each becomes a file without a name, as one that is open does. Device and inode are what /proc/PID/maps says: on an overlay that is not what fstat() says.
 */
#include "base/str.h"
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#define GONE     " (deleted)"
#define GONE_MAX (1U << 30) /* bytes of all such files together */

bool dump_is_gone(const char *name, size_t n)
{
	const size_t suffix = sizeof(GONE) - 1;

	return n > suffix && memcmp(name + n - suffix, GONE, suffix) == 0;
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
	return m->name_size > 0 && m->name[0] == '/' && dump_is_gone(m->name, m->name_size);
}

/* --- what the kernel does not call deleted --- */

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
	struct mappings own = { 0 };
	cleanup_fd int fd = -1;
	bool same = false;
	char path[32];
	void *at;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", there);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	at = fd < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
	if (at == MAP_FAILED)
		return false;
	if (mappings_read(AT_FDCWD, "/proc/self/maps", &own) == 0) {
		for (size_t i = 0; i < own.n; i++)
			same = same || (own.list[i].start == (uint64_t)(uintptr_t)at &&
					       own.list[i].inode == m->inode &&
					       own.list[i].major == m->major &&
					       own.list[i].minor == m->minor);
	}
	mappings_fini(&own);
	(void)munmap(at, 1);
	return same;
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

/* Is another file at its name, or none? @name: which it is. */
static bool is_replaced(int root, const struct proc_map *m, struct dump_name *name)
{
	cleanup_fd int there = -1;
	char path[PATH_MAX];
	struct statx st;

	if (m->name_size >= sizeof(path) || memchr(m->name, '\\', m->name_size) != NULL)
		return false;
	memcpy(path, m->name, m->name_size);
	path[m->name_size] = '\0';
	there = raw_openat2(
		root, path, O_PATH | O_NOFOLLOW, 0, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
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

static bool may_be_replaced(const struct proc_map *m, dev_t plain)
{
	return m->inode != 0 && m->name_size > 0 && m->name[0] == '/' &&
	       !dump_is_gone(m->name, m->name_size) && makedev(m->major, m->minor) != plain;
}

/* Relatives map the same files one after the other, so the next one is most often the one behind the last. */
static const struct dump_name *find_name(struct dump *d, const struct proc_map *m)
{
	for (size_t i = 0; i < d->n_names; i++) {
		size_t at = (d->next_name + i) % d->n_names;
		const struct dump_name *name = &d->names[at];

		if (name->inode != m->inode || name->size != m->name_size ||
			memcmp(name->text, m->name, m->name_size) != 0)
			continue;
		d->next_name = at + 1;
		return name;
	}
	return NULL;
}

/* Everything stands still, so what was found for one holds for all that map it. */
static bool has_been_replaced(struct dump *d, int root, const struct proc_map *m)
{
	const struct dump_name *known = find_name(d, m);
	struct dump_name *more;

	if (known != NULL)
		return known->replaced;
	more = realloc(d->names, (d->n_names + 1) * sizeof(*more));
	if (more == NULL)
		abort();
	d->names = more;
	more += d->n_names;
	*more = (struct dump_name){
		.inode = m->inode, .size = m->name_size, .text = malloc(m->name_size)
	};
	if (more->text == NULL)
		abort();
	memcpy(more->text, m->name, m->name_size);
	more->replaced = is_replaced(root, m, more);
	d->next_name = ++d->n_names;
	return more->replaced;
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

static char *name_gone(const struct proc_map *m)
{
	char *name = malloc(m->name_size + sizeof(GONE));

	if (name == NULL)
		abort();
	memcpy(name, m->name, m->name_size);
	memcpy(name + m->name_size, GONE, sizeof(GONE));
	return name;
}

/* What @m is called from now on; NULL = as ever. */
static const char *name_anew(
	struct dump *d, struct mappings *maps, int root, dev_t plain, const struct proc_map *m)
{
	char *name = NULL;

	if (may_be_replaced(m, plain) && has_been_replaced(d, root, m))
		name = name_gone(m);
	else if (m->shared && dump_is_gone_file(m))
		name = dump_tmpfs_name(d, m);
	return name != NULL ? mappings_name(maps, name) : NULL;
}

/* The parts of a file are neighbours. */
static bool is_another(const struct proc_map *m, const struct proc_map *before)
{
	return before->name == NULL || before->name_size != m->name_size ||
	       before->inode != m->inode || before->shared != m->shared ||
	       memcmp(before->name, m->name, m->name_size) != 0;
}

void dump_gone_mark(struct dump *d, struct mappings *maps)
{
	cleanup_fd int root = open_root(d);
	struct proc_map before = { 0 };
	const char *name = NULL;
	struct stat st;

	if (root < 0 || fstat(root, &st) < 0)
		return;
	for (size_t i = 0; i < maps->n; i++) {
		struct proc_map *m = &maps->list[i];

		if (is_another(m, &before))
			name = name_anew(d, maps, root, st.st_dev, m);
		before = *m;
		if (name == NULL)
			continue;
		m->name = name;
		m->name_size = strlen(name);
	}
}

static struct dump_gone *find(struct dump *d, const struct proc_map *m)
{
	for (size_t i = 0; i < d->n_gone; i++) {
		if (d->gone[i].inode == m->inode &&
			d->gone[i].device == makedev(m->major, m->minor))
			return &d->gone[i];
	}
	return NULL;
}

static struct dump_gone *find_or_add(struct dump *d, const struct proc_map *m)
{
	struct dump_gone *g = find(d, m);

	if (g != NULL)
		return g;
	g = realloc(d->gone, (d->n_gone + 1) * sizeof(*g));
	if (g == NULL)
		abort();
	d->gone = g;
	g[d->n_gone] = (struct dump_gone){ .device = makedev(m->major, m->minor),
		.inode = m->inode,
		.program = -1,
		.index = IMAGE_NONE };
	return &g[d->n_gone++];
}

/* --- how much there is --- */

static bool can_read(int memory, uint64_t at)
{
	char byte;

	return pread(memory, &byte, 1, (off_t)at) == 1;
}

uint64_t dump_readable(const struct dump_process *p, const struct proc_map *m)
{
	cleanup_fd int memory = openat(p->tracee.proc, "mem", O_RDONLY | O_CLOEXEC);
	uint64_t none = 0, all = (m->end - m->start) / IMAGE_PAGE + 1;

	if (memory < 0 || can_read(memory, m->end - IMAGE_PAGE))
		return m->end - m->start;
	/* nothing behind the file's end can be read, and all before */
	while (all - none > 1) {
		uint64_t middle = (none + all) / 2;

		if (can_read(memory, m->start + (middle - 1) * IMAGE_PAGE))
			none = middle;
		else
			all = middle;
	}
	return none * IMAGE_PAGE;
}

/* A file may be all holes: what is to be copied of it is not bounded by anything that it takes. */
static bool grow(struct dump *d, struct dump_gone *g, uint64_t size)
{
	uint64_t more = size > g->size ? size - g->size : 0;

	if (more > GONE_MAX - d->gone_bytes)
		return false;
	d->gone_bytes += more;
	g->size += more;
	return true;
}

int dump_gone_note(
	struct dump *d, struct dump_process *p, const struct proc_map *m, struct err *err)
{
	uint64_t length = dump_readable(p, m);

	return length <= GONE_MAX && m->offset <= GONE_MAX &&
			       grow(d, find_or_add(d, m), m->offset + length)
		       ? 0
		       : dump_refuse(p, err,
				 "it maps '%.*s', and files that were removed are more than %u MiB large",
				 (int)m->name_size, m->name, GONE_MAX >> 20);
}

/* --- the program itself --- */

/* The mapping that holds its first instructions. */
static bool find_code(const struct dump_process *p, struct proc_map *ret)
{
	for (size_t i = 0; i < p->maps.n; i++) {
		*ret = p->maps.list[i];
		if (ret->start <= p->stat.start_code && p->stat.start_code < ret->end)
			return dump_is_gone_file(ret);
	}
	return false;
}

static bool program_is_gone(const struct dump_process *p)
{
	char path[PATH_MAX];
	ssize_t n = readlinkat(p->tracee.proc, "exe", path, sizeof(path));

	return n > 0 && dump_is_gone(path, (size_t)n);
}

/* What a mapping of ours shows is nobody's to choose. */
void dump_gone_identity(int fd, uint64_t *ret_device, uint64_t *ret_inode)
{
	struct mappings maps = { 0 };
	cleanup_fd int own = -1;
	char path[32];
	void *ours;

	*ret_device = *ret_inode = 0;
	/* who has it open may be allowed to write alone */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, O_RDONLY | O_CLOEXEC);
	ours = own < 0 ? MAP_FAILED : mmap(NULL, IMAGE_PAGE, PROT_READ, MAP_SHARED, own, 0);
	if (ours == MAP_FAILED)
		return;
	if (mappings_read(AT_FDCWD, "/proc/self/maps", &maps) < 0)
		maps.n = 0;
	for (size_t i = 0; i < maps.n; i++) {
		const struct proc_map *m = &maps.list[i];

		if (m->start != (uint64_t)(uintptr_t)ours)
			continue;
		*ret_device = makedev(m->major, m->minor);
		*ret_inode = m->inode;
	}
	mappings_fini(&maps);
	(void)munmap(ours, IMAGE_PAGE);
}

/* A process may have moved a mapping of any file to where its code was, a file that others map too. */
static bool is_file_of(const struct dump_gone *g, int fd)
{
	uint64_t device, inode;

	dump_gone_identity(fd, &device, &inode);
	return inode != 0 && inode == g->inode && device == g->device;
}

/* Return: descriptor; -1 when what is mapped of it has to do. */
static int open_program(struct dump *d, const struct dump_process *p, struct dump_gone *g)
{
	cleanup_fd int fd = openat(p->tracee.proc, "exe", O_RDONLY | O_CLOEXEC);
	struct stat st;

	return fd >= 0 && is_file_of(g, fd) && fstat(fd, &st) == 0 &&
			       (uint64_t)st.st_size <= GONE_MAX && grow(d, g, (uint64_t)st.st_size)
		       ? TAKE_FD(fd)
		       : -1;
}

int dump_gone_program(struct dump *d, struct dump_process *p, struct err *err)
{
	struct dump_gone *g;
	struct proc_map code;

	if (!program_is_gone(p))
		return 0;
	g = find_code(p, &code) ? find(d, &code) : NULL;
	if (g == NULL)
		return dump_refuse(p, err, "its program was removed, and it does not map it");
	if (g->program < 0)
		g->program = open_program(d, p, g);
	return 0;
}

/* --- what is carried over --- */

/* Of the program every byte, from a mapping of ours. */
static void take_program(struct dump *d, struct dump_gone *g, struct image_description *out)
{
	struct stat st;
	void *map = MAP_FAILED;

	if (g->program >= 0 && fstat(g->program, &st) == 0 && st.st_size > 0)
		map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, g->program, 0);
	if (map == MAP_FAILED)
		return;
	g->whole = true;
	g->size = (uint64_t)st.st_size;
	out->mode = st.st_mode;
	out->b = image_stash_content(&d->image, g->size);
	image_copy(&d->image, getpid(), (uint64_t)(uintptr_t)map, out->b, g->size);
}

static void add_description(struct dump *d, struct dump_gone *g, const struct proc_map *m)
{
	struct image_description out = { .kind = DESCRIPTION_UNLINKED,
		.flags = O_RDONLY,
		.mode = S_IFREG | 0755,
		.peer = IMAGE_NONE };

	out.path = image_add_bytes(&d->image, m->name, m->name_size - (sizeof(GONE) - 1));
	take_program(d, g, &out);
	if (!g->whole && g->size > 0)
		out.b = image_stash_content(&d->image, g->size);
	out.c = g->size;
	g->content = out.b;
	g->have = calloc(g->size / IMAGE_PAGE + 1, 1);
	if (g->have == NULL)
		abort();
	g->index = IMAGE_ADD(&d->image, TABLE_DESCRIPTIONS, &out);
}

/* The file's own pages of @start..@end, as far as nobody has brought them. */
static void take_pages(struct dump *d, struct dump_process *p, struct dump_gone *g,
	const struct proc_map *m, uint64_t start, uint64_t end)
{
	uint64_t from = start;

	for (uint64_t at = start; at <= end; at += IMAGE_PAGE) {
		uint64_t page = (m->offset + (at - m->start)) / IMAGE_PAGE;
		bool take = at < end && page * IMAGE_PAGE < g->size && g->have[page] == 0;

		if (take) {
			g->have[page] = 1;
			continue;
		}
		if (at > from)
			image_copy(&d->image, dump_source(p)->host, from,
				g->content + m->offset + (from - m->start), at - from);
		from = at + IMAGE_PAGE;
	}
}

uint32_t dump_gone_description(struct dump *d, const struct proc_map *m)
{
	struct dump_gone *g = find(d, m);

	BUG_ON(g == NULL); /* dump_gone_note() */
	if (g->index == IMAGE_NONE)
		add_description(d, g, m);
	return g->index;
}

uint32_t dump_gone_exe(struct dump *d, const struct dump_process *p)
{
	struct proc_map code;

	return find_code(p, &code) ? dump_gone_description(d, &code) : IMAGE_NONE;
}

void dump_gone_pages(struct dump *d, struct dump_process *p, const struct proc_map *m,
	uint64_t start, uint64_t end)
{
	struct dump_gone *g = find(d, m);

	if (!g->whole)
		take_pages(d, p, g, m, start, end);
}

uint32_t dump_gone_open(const struct dump *d, const struct proc_map *m)
{
	for (size_t i = 0; i < d->n_known && dump_is_gone_file(m); i++) {
		const struct dump_known *k = &d->known[i];

		/* the first of the same file, which has the content */
		if (k->mapped_inode != 0 && k->mapped_inode == m->inode &&
			k->mapped_device == makedev(m->major, m->minor))
			return k->index;
	}
	return IMAGE_NONE;
}

void dump_gone_fini(struct dump *d)
{
	for (size_t i = 0; i < d->n_gone; i++) {
		free(d->gone[i].have);
		fd_close(&d->gone[i].program);
	}
	free(d->gone);
	for (size_t i = 0; i < d->n_names; i++)
		free(d->names[i].text);
	free(d->names);
}
