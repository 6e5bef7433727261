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
#include "checkpoint/pagemap.h"
#include "sys/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#define GONE_MAX (1U << 30) /* bytes of all such files together */

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

/* Room for all of it: what nobody keeps takes no memory. */
static int begin_kept(struct dump_gone *g)
{
	void *room;

	if (g->kept != NULL)
		return 0;
	room = mmap(NULL, g->size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return -ENOMEM;
	g->kept = room;
	g->kept_size = g->size;
	return page_set_room(&g->kept_pages, g->size);
}

/* Take from @pages those of the first @n bytes of @m that are the process's own. */
static void without_own(
	const struct dump_process *p, const struct proc_map *m, uint64_t n, struct page_set *pages)
{
	for (size_t i = 0; i < p->pages.n; i++) {
		uint64_t start = p->pages.list[i].start, end = p->pages.list[i].end;

		start = start > m->start ? start : m->start;
		end = end < m->start + n ? end : m->start + n;
		if (start < end)
			page_set_remove(pages, m->offset + (start - m->start),
				m->offset + (end - m->start));
	}
}

/* Each page once, whoever else maps it: a file of holes takes nothing, and many may map it. */
static int keep_file(struct dump_gone *g, const struct dump_process *p, const struct proc_map *m)
{
	uint64_t n = dump_readable(p, m), at = m->offset;
	struct page_set wanted = { 0 };
	struct page_run run;
	int rc;

	if (n == 0)
		return 0;
	rc = begin_kept(g);
	if (rc == 0)
		rc = page_set_room(&wanted, m->offset + n);
	if (rc == 0) {
		page_set_add(&wanted, m->offset, m->offset + n);
		without_own(p, m, n, &wanted);
	}
	while (rc == 0 && page_set_next(&wanted, &g->kept_pages, &at, m->offset + n, &run)) {
		rc = keep_copy(p->tracee.host, m->start + (run.start - m->offset),
			g->kept + run.start, run.end - run.start);
		page_set_add(&g->kept_pages, run.start, run.end);
	}
	page_set_fini(&wanted);
	return rc;
}

/* MADV_DONTFORK: the file's pages are there, too, and are read from the twin when its process goes on. */
int dump_gone_keep(struct dump *d, const struct dump_process *p)
{
	cleanup_fd int twin = -1;
	int rc = 0;

	if (d->n_gone == 0 || p->twin.host == 0)
		return 0;
	twin = openat(p->twin.proc, "mem", O_RDONLY | O_CLOEXEC);
	if (twin < 0)
		return -errno;
	for (size_t i = 0; rc == 0 && i < p->maps.n; i++) {
		const struct proc_map *m = &p->maps.list[i];
		struct dump_gone *g = m->shared || !dump_is_gone_file(m) ? NULL : find(d, m);

		if (g != NULL && !can_read(twin, m->start))
			rc = keep_file(g, p, m);
	}
	return rc;
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

/* Return: 0 or -errno. */
static int read_program(struct dump_process *p)
{
	char path[PATH_MAX];
	ssize_t n = readlinkat(p->tracee.proc, "exe", path, sizeof(path) - 1);
	struct stat st;

	if (n < 0 || fstatat(p->tracee.proc, "exe", &st, 0) < 0)
		return -errno;
	path[n] = '\0';
	free(p->program);
	p->program = strdup(path);
	if (p->program == NULL)
		abort();
	p->program_is_gone = dump_is_gone(path, (size_t)n) && !dump_is_called(p, path, &st);
	return 0;
}

/* What a mapping of ours shows is nobody's to choose. */
void dump_mapped_identity(int fd, uint64_t *ret_device, uint64_t *ret_inode)
{
	struct mappings maps = { 0 };
	cleanup_fd int own = -1;
	char path[32];
	void *ours;

	*ret_device = *ret_inode = 0;
	/* who has it open may be allowed to write alone */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ours = own < 0 ? MAP_FAILED : mmap(NULL, IMAGE_PAGE, PROT_READ, MAP_PRIVATE, own, 0);
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

	dump_mapped_identity(fd, &device, &inode);
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
	int rc;

	rc = read_program(p);
	if (rc < 0)
		return err_raise_sys(err, rc, "look at the program of process %d (%s)",
			p->tracee.inner, p->name);
	if (!p->program_is_gone)
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

	out.path = image_add_bytes(&d->image, m->name, m->name_size - (sizeof(DUMP_GONE) - 1));
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

/* What @p, or its twin, shows at @at of @length bytes at @offset of @g. */
static void copy(struct dump *d, struct dump_process *p, const struct dump_gone *g, uint64_t at,
	uint64_t offset, uint64_t length)
{
	uint64_t end = offset + length, from = offset, next = offset;
	struct page_run run = { end, end };

	while (from < end) {
		if (g->kept == NULL || !page_set_next(&g->kept_pages, NULL, &next, end, &run))
			run = (struct page_run){ end, end };
		if (run.start > from)
			image_copy(&d->image, dump_source(p)->host, at + (from - offset),
				g->content + from, run.start - from);
		if (run.end > run.start)
			image_copy(&d->image, getpid(), (uint64_t)(uintptr_t)(g->kept + run.start),
				g->content + run.start, run.end - run.start);
		from = run.end;
	}
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
			copy(d, p, g, from, m->offset + (from - m->start), at - from);
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
		if (d->gone[i].kept != NULL)
			(void)munmap(d->gone[i].kept, d->gone[i].kept_size);
		page_set_fini(&d->gone[i].kept_pages);
		fd_close(&d->gone[i].program);
	}
	free(d->gone);
}
