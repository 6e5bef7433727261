/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_memory.c - regions of an address space and which of their pages exist.
 *
 * The kernel lists the pages that belong to the process alone in one call (PAGEMAP_SCAN; before Linux 6.7 they are read one by one); a merge of that list
 * with the regions gives what to copy. Private anonymous regions go to the stash whole, so that they can be moved into place; of private file mappings only changed pages go there, as patches, and so of what is too large.
 */
#include "base/str.h"
#include "checkpoint/dump.h"
#include "checkpoint/pagemap.h"
#include "sys/feature.h"
#include "sys/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#define ADDRESS_END 0x7ffffffff000ULL
#define SCAN_BATCH  4096
#define VAST        (1ULL << 40)
#define FOR_OTHERS  (2ULL << 40)

/* --- what a mapping is --- */

static bool starts(const struct proc_map *m, const char *name)
{
	return m->name_size >= strlen(name) && memcmp(m->name, name, strlen(name)) == 0;
}

static bool named(const struct proc_map *m, const char *name)
{
	return m->name_size == strlen(name) && memcmp(m->name, name, m->name_size) == 0;
}

static uint64_t device_of(const struct proc_map *m)
{
	return makedev(m->major, m->minor);
}

/* The code and data that the kernel maps into every process. */
static bool is_vdso(const struct proc_map *m)
{
	return starts(m, "[vvar") || named(m, "[vdso]");
}

/* What an earlier restore left, our own page, and what is there anyway. */
static bool is_nobodys(const struct dump_process *p, const struct proc_map *m)
{
	return (m->start >= WINDOW_RESIDUE && m->end <= WINDOW_SHARED) ||
	       m->start == p->tracee.scratch ||
	       (p->twin.host != 0 && m->start == p->twin.scratch) || named(m, "[vsyscall]");
}

static bool is_segment(const struct proc_map *m)
{
	return m->shared && starts(m, "/SYSV") && dump_is_gone(m->name, m->name_size) &&
	       !m->literal;
}

/* --- which pages exist --- */

/* A mark that nobody may touch a page counts as one that is swapped out, and cannot be read. */
static int take_guards(struct dump_pages *pages)
{
	size_t n = pages->n;

	pages->n = pages->n_guards = 0;
	for (size_t i = 0; i < n; i++)
		pages->n_guards += (pages->list[i].categories & PAGE_IS_GUARD) != 0;
	if (pages->n_guards > 0)
		pages->guards = calloc(pages->n_guards, sizeof(*pages->guards));
	if (pages->n_guards > 0 && pages->guards == NULL)
		return -ENOMEM;
	pages->n_guards = 0;
	for (size_t i = 0; i < n; i++) {
		if ((pages->list[i].categories & PAGE_IS_GUARD) != 0)
			pages->guards[pages->n_guards++] = pages->list[i];
		else
			pages->list[pages->n++] = pages->list[i];
	}
	return 0;
}

static void pages_fini(struct dump_pages *pages)
{
	free(pages->list);
	free(pages->guards);
	*pages = (struct dump_pages){ 0 };
}

/* An older kernel knows no guards, and refuses to be asked for them. */
static int scan(int fd, struct pm_scan_arg *arg)
{
	static bool no_guards;
	int n;

	if (!no_guards) {
		arg->return_mask |= PAGE_IS_GUARD;
		n = ioctl(fd, PAGEMAP_SCAN, arg);
		if (n >= 0 || errno != EINVAL)
			return n < 0 ? -errno : n;
		no_guards = true;
	}
	arg->return_mask &= ~(uint64_t)PAGE_IS_GUARD;
	n = ioctl(fd, PAGEMAP_SCAN, arg);
	return n < 0 ? -errno : n;
}

static int scan_all(int fd, struct dump_pages *ret)
{
	struct pm_scan_arg arg = { .size = sizeof(arg),
		.end = ADDRESS_END,
		.category_inverted = PAGE_IS_FILE | PAGE_IS_ZERO,
		.category_mask = PAGE_IS_FILE | PAGE_IS_ZERO,
		.category_anyof_mask = PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
		.return_mask = PAGE_IS_PRESENT };

	do {
		struct page_region *more =
			realloc(ret->list, (ret->n + SCAN_BATCH) * sizeof(*more));
		int n;

		if (more == NULL)
			return -ENOMEM;
		ret->list = more;
		arg.vec = (uint64_t)(uintptr_t)(more + ret->n);
		arg.vec_len = SCAN_BATCH;
		n = scan(fd, &arg);
		if (n < 0)
			return n;
		ret->n += (size_t)n;
		arg.start = arg.walk_end;
	} while (arg.walk_end < arg.end);
	return take_guards(ret);
}

static int read_all(const struct tracee *t, struct dump_pages *ret)
{
	ssize_t n;

	free(ret->list);
	n = pagemap_read(t->proc, &ret->list);
	ret->n = n < 0 ? 0 : (size_t)n;
	return n < 0 ? (int)n : 0;
}

static int scan_pages(const struct tracee *t, struct dump_pages *ret)
{
	cleanup_fd int fd = openat(t->proc, "pagemap", O_RDONLY | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return -errno;
	rc = feature_withheld(FEATURE_PAGEMAP_SCAN) ? -ENOTTY : scan_all(fd, ret);
	return rc == -ENOTTY ? read_all(t, ret) : rc;
}

/* The next run of pages within [*at, end); steps behind it. */
static bool next_run(struct dump_pages *pages, uint64_t *at, uint64_t end, struct page_region *ret)
{
	while (pages->at < pages->n) {
		const struct page_region *r = &pages->list[pages->at];

		if (r->end <= *at) {
			pages->at++;
			continue;
		}
		if (r->start >= end || *at >= end)
			return false;
		ret->start = r->start > *at ? r->start : *at;
		ret->end = r->end < end ? r->end : end;
		*at = ret->end;
		return true;
	}
	return false;
}

/* Have the template copy @start..@end of @p to @to: from the source, but for what was kept. */
static void copy_run(
	struct dump *d, struct dump_process *p, uint64_t start, uint64_t end, uint64_t to)
{
	const struct keep *k = &p->kept;

	for (size_t i = 0; i < k->n && start < end; i++) {
		const struct kept *piece = &k->list[i];
		uint64_t stop = piece->end < end ? piece->end : end;

		if (piece->end <= start || piece->start >= end)
			continue;
		if (piece->start > start) {
			image_copy(
				&d->image, dump_source(p)->host, start, to, piece->start - start);
			to += piece->start - start;
			start = piece->start;
		}
		image_copy(&d->image, getpid(),
			(uint64_t)(uintptr_t)piece->copy + (start - piece->start), to,
			stop - start);
		to += stop - start;
		start = stop;
	}
	if (start < end)
		image_copy(&d->image, dump_source(p)->host, start, to, end - start);
}

/* --- the moment --- */

/* Pages that @p has and its twin has not: fork() leaves some out. */
static int keep_missing(struct dump_process *p, struct dump_pages *twins)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < p->pages.n; i++) {
		uint64_t at = p->pages.list[i].start, end = p->pages.list[i].end;
		struct page_region run;

		while (rc == 0 && at < end) {
			uint64_t from = at;

			if (!next_run(twins, &at, end, &run)) {
				rc = keep_pages(&p->kept, p->tracee.host, from, end);
				break;
			}
			if (run.start > from)
				rc = keep_pages(&p->kept, p->tracee.host, from, run.start);
		}
	}
	return rc;
}

/* Kernels from 6.18 on (seen there) sum their counters for status; older ones show about what is there. */
static bool counts_exactly(void)
{
	struct utsname name;
	unsigned int major, minor;

	return uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 18));
}

static int private_kib(const struct tracee *t, uint64_t *ret)
{
	cleanup_buf struct buf text = BUF_INIT(65536);
	int rc = file_read_at(t->proc, "status", &text);

	*ret = proc_number(buf_cstr(&text), "RssAnon", 10, 0) +
	       proc_number(buf_cstr(&text), "VmSwap", 10, 0);
	return rc;
}

/* A twin has no page that its source has not. So as many are all, and nobody needs to look which. */
static int has_all(struct dump_process *p, bool *ret)
{
	uint64_t own = 0, twins = 0;
	int rc = counts_exactly() ? private_kib(&p->tracee, &own) : 0;

	if (rc == 0 && own != 0)
		rc = private_kib(&p->twin, &twins);
	*ret = own != 0 && own == twins;
	return rc;
}

static int keep_what_twin_lacks(struct dump_process *p)
{
	struct dump_pages twins = { 0 };
	int rc = scan_pages(&p->twin, &twins);

	if (rc == 0)
		rc = keep_missing(p, &twins);
	pages_fini(&twins);
	return rc;
}

void dump_content(struct dump *d, const struct shared_memory *memory, struct image_description *out)
{
	cleanup_buf struct buf runs = BUF_INIT(1ULL << 32);
	const uint64_t copy = (uint64_t)(uintptr_t)memory->copy;
	uint64_t at = 0;
	struct page_run run;
	struct image_run row = { 0 };

	out->b = image_stash_content(&d->image, memory->size);
	out->c = memory->size;
	while (page_set_next(&memory->there, NULL, &at, memory->size, &run)) {
		row = (struct image_run){ .at = run.start, .length = run.end - run.start };
		image_copy(&d->image, getpid(), copy + row.at, out->b + row.at, row.length);
		buf_add(&runs, &row, sizeof(row));
	}
	if (row.length == memory->size)
		return; /* it needs no list */
	if (runs.n == 0)
		buf_add(&runs, &row, sizeof(row));
	if (buf_failed(&runs))
		abort();
	out->data = image_add_bytes(&d->image, runs.p, runs.n);
}

int dump_moment(struct dump *d, struct dump_process *p, struct err *err)
{
	bool later = false; /* the twin will tell which pages there are */
	int rc;

	rc = p->twin.host != 0 ? has_all(p, &later) : 0;
	if (rc == 0 && !later)
		rc = scan_pages(&p->tracee, &p->pages);
	if (rc == 0 && !later && p->twin.host != 0)
		rc = keep_what_twin_lacks(p);
	if (rc == 0)
		rc = dump_gone_keep(d, p);
	/* fork() leaves out locks, and mappings that say so with what else they say */
	if (rc == 0 && p->twin.host != 0 && (!later || proc_number(p->status, "VmLck", 10, 0) > 0))
		rc = dump_flags_read(p, &p->tracee);
	return rc < 0 ? err_raise_sys(err, rc, "look at the memory of process %d (%s)",
				p->tracee.inner, p->name)
		      : 0;
}

/* --- what is refused --- */

static const struct image_description *description_at(const struct dump *d, uint32_t index)
{
	return (const struct image_description *)(const void *)d->image.tables[TABLE_DESCRIPTIONS]
		       .p +
	       index;
}

static int check_shared_memory(
	struct dump *d, struct dump_process *p, const struct proc_map *m, struct err *err)
{
	uint32_t open = dump_shared_open(d, m);

	shared_memories_confirm(&d->shared, device_of(m), m->inode, p->tracee.host, m->start,
		m->offset, m->end - m->start);
	if (open == IMAGE_NONE && dump_is_gone_file(m) && dump_readable(p, m) < m->end - m->start)
		return dump_refuse(
			p, err, "it maps '%.*s' beyond its end", (int)m->name_size, m->name);
	return 0;
}

/* A process that was restored a moment ago has said its last word before it gives the restorer's memory up: then it is asked once more. */
static int refuse_window(const struct dump_process *p, const struct proc_map *m, struct err *err)
{
	unsigned long long start = m->start, end = m->end;
	int rc;

	if (start < WINDOW_START)
		return dump_refuse(p, err,
			"it has memory at %llx (mapped from %llx to %llx), where the restorer must be",
			WINDOW_START, start, end);
	rc = dump_refuse(p, err, "it has memory at %llx, where the restorer must be", start);
	if (m->start == WINDOW_START || m->start == WINDOW_SHARED)
		err->code = ERR_BUSY;
	return rc;
}

static int check_region(
	struct dump *d, struct dump_process *p, const struct proc_map *m, struct err *err)
{
	if (is_nobodys(p, m))
		return 0;
	if (m->start < WINDOW_END && m->end > WINDOW_START)
		return refuse_window(p, m, err);
	if (is_vdso(m) || (m->inode == 0 && !m->shared))
		return 0;
	if (dump_is_shared_memory(m))
		return check_shared_memory(d, p, m, err);
	if (!m->shared && dump_is_gone_file(m))
		return dump_gone_note(d, p, m, err);
	if (is_segment(m) ? dump_sysv_find(d, m->inode) == IMAGE_NONE
			  : m->name_size == 0 || m->name[0] != '/' ||
				    (dump_is_gone(m->name, m->name_size) && !m->literal))
		return dump_refuse(p, err, "it maps '%.*s'", (int)m->name_size, m->name);
	return 0;
}

static int each_region(struct dump *d, struct dump_process *p,
	int (*check)(
		struct dump *d, struct dump_process *p, const struct proc_map *m, struct err *err),
	struct err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < p->maps.n; i++) {
		rc = check(d, p, &p->maps.list[i], err);
		if (rc < 0 && dump_note(d, err))
			rc = 0;
	}
	return rc;
}

/* What template and restorer have beside the memory of processes, and what comes and goes while it is put in place. */
#define MAPPINGS_OWN 128

uint64_t dump_mappings_room(void)
{
	static uint64_t most;

	if (most == 0 && file_read_u64_at(AT_FDCWD, "/proc/sys/vm/max_map_count", &most) < 0)
		most = UINT64_MAX;
	return most > MAPPINGS_OWN ? most - MAPPINGS_OWN : 0;
}

static int check_mappings(const struct dump_process *p, struct err *err)
{
	const uint64_t room = dump_mappings_room();

	return p->maps.n > room
		       ? dump_refuse(p, err,
				 "it has %zu mappings, and a restored process can have %llu (sysctl vm.max_map_count)",
				 p->maps.n, (unsigned long long)room)
		       : 0;
}

/* Only of what may be executed (by somebody) the kernel lets a restored process say that it is its program. */
static int check_program(const struct dump_process *p, struct err *err)
{
	struct stat st;

	return fstatat(p->tracee.proc, "exe", &st, 0) == 0 && (st.st_mode & 0111) == 0
		       ? dump_refuse(p, err,
				 "the file of its program may not be executed any more (mode %04o)",
				 st.st_mode & 07777)
		       : 0;
}

int dump_read_maps(struct dump_process *p, struct err *err)
{
	int rc = mappings_read(p->tracee.proc, "maps", &p->maps);

	return rc < 0 ? err_raise_sys(err, rc, "read the mappings of process %d", p->tracee.inner)
		      : 0;
}

int dump_maps(struct dump *d, struct dump_process *p, struct err *err)
{
	int rc = p->maps.n > 0 ? 0 : dump_read_maps(p, err);

	if (rc < 0)
		return rc;
	rc = check_mappings(p, err);
	if (rc == 0)
		rc = check_program(p, err);
	if (rc < 0)
		return rc;
	rc = dump_names(d, p, err);
	if (rc < 0)
		return rc;
	rc = each_region(d, p, check_region, err);
	return rc == 0 ? dump_gone_program(d, p, err) : rc;
}

/* --- what is carried over: nothing is refused any more, the processes may run already --- */

/* What is as large as this and does not fit any more, with room for others, lies in the stash without its holes: AddressSanitizer maps 14 TiB. */
static bool lies_together(const struct dump *d, const struct image_region *r)
{
	uint64_t length = r->end - r->start;

	return length >= VAST && d->image.stash + length > WINDOW_END - FOR_OTHERS;
}

/* Where in the stash the parts of @r are that an ancestor has not. */
static uint64_t place_of_changed(struct dump *d, const struct image_region *r, bool together)
{
	const struct buf *all = &d->relatives->parts;
	const struct dump_part *parts = (const struct dump_part *)(const void *)all->p;
	uint64_t length = 0;

	for (size_t i = 0; i < all->n / sizeof(*parts); i++) {
		if (parts[i].is == DUMP_OWN)
			length += parts[i].end - parts[i].start;
	}
	return length == 0 ? 0
			   : image_stash(&d->image, r->start, together ? length : r->end - r->start,
				     false);
}

/* A part of @r that is not as the ancestor has it. @stash: where it is, 0 = there is nothing. */
static void add_changed(struct dump *d, struct dump_process *p, struct image_region *r,
	const struct dump_part *part, uint64_t stash)
{
	struct image_patch patch = {
		.target = part->start, .length = part->end - part->start, .stash = stash
	};

	if (stash != 0)
		copy_run(d, p, part->start, part->end, stash);
	(void)IMAGE_ADD(&d->image, TABLE_PATCHES, &patch);
	r->n_patches++;
}

/*
 * What a process has as it was when it was forked is not there once more: a fork moves the ancestor's pages into place, of which it has a copy of the tables, and writes the changed
 * ones over them. All in one piece: what consists of several the kernel neither moves nor lets grow. So it is worth while where little has changed.
 */
static bool add_inherited(struct dump *d, struct dump_process *p, struct image_region *r)
{
	struct dump_relatives *all = d->relatives;
	const struct image_region *theirs;
	const struct dump_part *parts;
	struct dump_ancestor *from;
	uint64_t stash;
	bool together;

	if ((r->flags & (REGION_GROWS_DOWN | REGION_DONTFORK | REGION_WIPEONFORK)) != 0)
		return false;
	from = dump_relatives_find(d, all, r, &theirs);
	if (from == NULL || (theirs->flags & REGION_GROWS_DOWN) != 0 ||
		!dump_relatives_compare(all, from, r, theirs))
		return false;
	dump_relatives_share(p, all, from);
	r->flags |= REGION_INHERITED;
	r->stash = theirs->stash + (r->start - theirs->start);
	r->offset = (theirs->end < r->end ? theirs->end : r->end) - r->start;
	r->first_patch = image_count(&d->image, TABLE_PATCHES, sizeof(struct image_patch));
	parts = (const struct dump_part *)(const void *)all->parts.p;
	together = lies_together(d, r);
	stash = place_of_changed(d, r, together);
	for (size_t i = 0; i < all->parts.n / sizeof(*parts); i++) {
		bool own = parts[i].is == DUMP_OWN;

		if (parts[i].is == DUMP_SAME)
			continue;
		add_changed(d, p, r, &parts[i],
			!own       ? 0
			: together ? stash
				   : stash + (parts[i].start - r->start));
		stash += own && together ? parts[i].end - parts[i].start : 0;
	}
	return true;
}

/* Fresh memory, and patches of what is there. */
static void add_together(
	struct dump *d, struct dump_process *p, struct image_region *r, struct dump_pages *pages)
{
	struct dump_pages ahead = *pages;
	struct dump_part part = { .is = DUMP_OWN };
	struct page_region run;
	uint64_t at = r->start, length = 0, stash;

	while (next_run(&ahead, &at, r->end, &run))
		length += run.end - run.start;
	if (length == 0)
		return;
	stash = image_stash(&d->image, r->start, length, false);
	r->first_patch = image_count(&d->image, TABLE_PATCHES, sizeof(struct image_patch));
	at = r->start;
	while (next_run(pages, &at, r->end, &run)) {
		part.start = run.start;
		part.end = run.end;
		add_changed(d, p, r, &part, stash);
		stash += run.end - run.start;
	}
}

static void add_anonymous(
	struct dump *d, struct dump_process *p, struct image_region *r, struct dump_pages *pages)
{
	struct page_region run;
	uint64_t at = r->start;

	r->kind = REGION_ANON;
	/* the kernel may take it at any time; and there may be what random numbers are drawn from (vDSO), which no two may have */
	if ((r->flags & REGION_DROPPABLE) != 0 || add_inherited(d, p, r))
		return;
	if (lies_together(d, r)) {
		add_together(d, p, r, pages);
		return;
	}
	while (next_run(pages, &at, r->end, &run)) {
		if (r->stash == 0)
			r->stash = image_stash(&d->image, r->start, r->end - r->start,
				(r->flags & REGION_GROWS_DOWN) != 0);
		copy_run(d, p, run.start, run.end, r->stash + (run.start - r->start));
	}
}

/* A run of changed pages, by itself or as an ancestor has it. */
static void add_patch(struct dump *d, struct dump_process *p, struct image_region *r,
	const struct page_region *run)
{
	struct image_patch patch = { .target = run->start, .length = run->end - run->start };
	struct dump_ancestor *from = dump_relatives_patch(d, d->relatives, r, &patch);

	if (from != NULL) {
		dump_relatives_share(p, d->relatives, from);
	} else {
		if (r->stash == 0)
			r->stash = image_stash(&d->image, r->start, r->end - r->start, false);
		patch.stash = r->stash + (run->start - r->start);
		copy_run(d, p, run->start, run->end, patch.stash);
	}
	(void)IMAGE_ADD(&d->image, TABLE_PATCHES, &patch);
	r->n_patches++;
}

static void add_patches(
	struct dump *d, struct dump_process *p, struct image_region *r, struct dump_pages *pages)
{
	struct page_region run;
	uint64_t at = r->start;

	r->first_patch = image_count(&d->image, TABLE_PATCHES, sizeof(struct image_patch));
	while (next_run(pages, &at, r->end, &run))
		add_patch(d, p, r, &run);
}

/* Of what the description @first has the content of: one that gives a mapping which may write, or, so that it never may, one which may not. */
static uint32_t fitting(struct dump *d, uint32_t first, bool may_write)
{
	uint32_t n = image_count(&d->image, TABLE_DESCRIPTIONS, sizeof(struct image_description)),
		 access = may_write ? O_RDWR : O_RDONLY;
	struct image_description out;

	for (uint32_t i = first; i < n; i++) {
		const struct image_description *o = description_at(d, i);

		if ((o->flags & O_ACCMODE) == access &&
			(i == first || (o->kind == DESCRIPTION_UNLINKED && o->a == first + 1)))
			return i;
	}
	out = *description_at(d, first);
	out.kind = DESCRIPTION_UNLINKED;
	out.a = first + 1;
	out.b = out.c = 0;
	out.flags = access;
	out.position = 0;
	out.n_locks = 0;
	out.owner = (struct image_owner){ 0 };
	out.data = (struct image_span){ 0 };
	return IMAGE_ADD(&d->image, TABLE_DESCRIPTIONS, &out);
}

/* Shared memory without a name in any file system: one object of bytes for all that map it. */
static void add_shared(
	struct dump *d, const struct proc_map *m, bool may_write, struct image_region *r)
{
	const struct shared_memory *memory =
		shared_memories_find(&d->shared, device_of(m), m->inode);
	uint32_t other = dump_shared_open(d, m);
	struct image_description out = {
		.kind = DESCRIPTION_MEMORY, .flags = O_RDWR, .peer = IMAGE_NONE
	};

	r->kind = REGION_FILE;
	if (other != IMAGE_NONE) {
		r->description = fitting(d, other, may_write);
		return;
	}
	out.path = image_add_bytes(&d->image, "shared", 6);
	dump_content(d, memory, &out);
	other = IMAGE_ADD(&d->image, TABLE_DESCRIPTIONS, &out);
	(void)dump_remember(d, device_of(m), m->inode, 0, -1, other);
	r->description = fitting(d, other, may_write);
}

/* The kernel gives a segment's id where a file has its inode. */
static void add_segment(
	const struct dump *d, const struct proc_map *m, bool may_write, struct image_region *r)
{
	r->kind = REGION_SYSV;
	r->description = dump_sysv_find(d, m->inode);
	if (!may_write)
		r->flags |= REGION_READ_ONLY;
}

/* What is between the pages that are the process's own is the file's. */
static void add_gone(struct dump *d, struct dump_process *p, const struct proc_map *m,
	struct image_region *r, struct dump_pages *pages)
{
	struct dump_pages ahead = *pages;
	struct page_region run;
	uint64_t at = r->start, from = r->start;

	r->kind = REGION_FILE;
	r->description = dump_gone_description(d, m);
	while (next_run(&ahead, &at, r->end, &run)) {
		dump_gone_pages(d, p, m, from, run.start);
		from = run.end;
	}
	dump_gone_pages(d, p, m, from, r->end);
	add_patches(d, p, r, pages);
}

static void add_file(struct dump *d, struct dump_process *p, const struct proc_map *m,
	bool may_write, struct image_region *r, struct dump_pages *pages)
{
	r->kind = REGION_FILE;
	r->description = dump_file_by_path(d, m->name, m->name_size, m->shared && may_write, false);
	dump_file_stays(d, r->description, m->shared);
	if (!m->shared)
		add_patches(d, p, r, pages);
}

static void add_region(struct dump *d, struct dump_process *p, const struct proc_map *m,
	struct dump_pages *pages, uint64_t *first_vvar)
{
	struct image_region r = { .start = m->start,
		.end = m->end,
		.offset = m->offset,
		.prot = (m->readable ? PROT_READ : 0U) | (m->writable ? PROT_WRITE : 0U) |
			(m->executable ? PROT_EXEC : 0U),
		.flags = (m->shared ? REGION_SHARED : 0U) |
			 (named(m, "[stack]") ? REGION_GROWS_DOWN : 0U) };
	bool may_write = m->writable;

	if (is_nobodys(p, m))
		return;
	if (!is_vdso(m))
		r.flags |= dump_flags(p, m, &may_write);
	p->locks |= (r.flags & REGION_LOCKED) != 0;
	if (is_vdso(m)) {
		if (*first_vvar == 0)
			*first_vvar = m->start;
		r.kind = REGION_VDSO;
		r.offset = m->start - *first_vvar;
	} else if (m->inode == 0 && !m->shared) {
		add_anonymous(d, p, &r, pages);
	} else if (dump_is_shared_memory(m)) {
		add_shared(d, m, may_write, &r);
	} else if (is_segment(m)) {
		add_segment(d, m, may_write, &r);
	} else if (dump_is_gone_file(m)) {
		add_gone(d, p, m, &r, pages);
	} else {
		add_file(d, p, m, may_write, &r, pages);
	}
	(void)IMAGE_ADD(&d->image, TABLE_REGIONS, &r);
}

static void add_guards(struct dump *d, struct dump_process *p)
{
	p->out.first_guard = image_count(&d->image, TABLE_GUARDS, sizeof(struct image_guard));
	p->out.n_guards = (uint32_t)p->pages.n_guards;
	for (size_t i = 0; i < p->pages.n_guards; i++) {
		struct image_guard guard = { p->pages.guards[i].start, p->pages.guards[i].end };

		(void)IMAGE_ADD(&d->image, TABLE_GUARDS, &guard);
	}
}

static void add_regions(struct dump *d, struct dump_process *p)
{
	uint64_t first_vvar = 0;
	struct dump_relatives relatives;

	dump_relatives_begin(d, p, &relatives);
	d->relatives = &relatives;
	p->place.stash_start = d->image.stash;
	p->out.first_region = image_count(&d->image, TABLE_REGIONS, sizeof(struct image_region));
	for (size_t i = 0; i < p->maps.n; i++)
		add_region(d, p, &p->maps.list[i], &p->pages, &first_vvar);
	p->out.n_regions = image_count(&d->image, TABLE_REGIONS, sizeof(struct image_region)) -
			   p->out.first_region;
	d->image.stash = (d->image.stash + IMAGE_PAGE - 1) & ~(uint64_t)(IMAGE_PAGE - 1);
	p->place.stash_end = d->image.stash;
	d->relatives = NULL;
	dump_relatives_end(&relatives);
	add_guards(d, p);
}

static int describe(struct dump *d, struct dump_process *p)
{
	cleanup_buf struct buf auxv = BUF_INIT(65536);
	const struct tracee *t = dump_source(p);
	long brk = dump_inherited(p, INHERITED_BRK)->result;
	int rc = file_read_at(t->proc, "auxv", &auxv);

	if (rc < 0 || brk < 0)
		return rc < 0 ? rc : (int)brk;
	p->out.mm.start_code = p->stat.start_code;
	p->out.mm.end_code = p->stat.end_code;
	p->out.mm.start_data = p->stat.start_data;
	p->out.mm.end_data = p->stat.end_data;
	p->out.mm.start_brk = p->stat.start_brk;
	p->out.mm.brk = (uint64_t)brk;
	p->out.mm.start_stack = p->stat.start_stack;
	p->out.mm.arg_start = p->stat.arg_start;
	p->out.mm.arg_end = p->stat.arg_end;
	p->out.mm.env_start = p->stat.env_start;
	p->out.mm.env_end = p->stat.env_end;
	p->out.auxv = image_add_bytes(&d->image, auxv.p, auxv.n);
	if (p->program_is_gone) {
		p->out.exe = dump_gone_exe(d, p);
		return 0;
	}
	p->out.exe = dump_file_by_path(d, p->program, strlen(p->program), false, false);
	dump_file_stays(d, p->out.exe, false);
	return 0;
}

int dump_memory(struct dump *d, struct dump_process *p, struct err *err)
{
	int rc = describe(d, p);

	if (rc == 0 && p->pages.n == 0)
		rc = scan_pages(dump_source(p), &p->pages);
	if (rc == 0)
		rc = dump_flags_read(p, dump_source(p));
	if (rc < 0)
		return err_raise_sys(
			err, rc, "look at the memory of process %d (%s)", p->tracee.inner, p->name);
	add_regions(d, p);
	return d->image.stash <= WINDOW_END
		       ? 0
		       : dump_refuse(p, err,
				 "its mappings, with those of the others, take more addresses than the restorer has");
}
