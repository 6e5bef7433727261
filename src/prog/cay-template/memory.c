/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/memory.c - the address space of one process: its own regions move from the stash into place, the others' go.
 *
 * Nothing lies outside the window but what is put there here (main.c (2)), so no target can be taken; what would be replaced is an error.
 */
#include "prog/cay-template/lazy.h"

#include <linux/prctl.h>

#define READ       1
#define READ_WRITE 3
#define EXECUTE    4
#define PRIVATE    2
#define DROPPABLE  8
#define SHARED     1
#define FIXED      0x100000 /* MAP_FIXED_NOREPLACE */
#define GROWS_DOWN 0x100
#define NORESERVE  0x4000
#define MOVE       3 /* MREMAP_MAYMOVE | MREMAP_FIXED */
#define ON_FAULT   1 /* MLOCK_ONFAULT */
#define FORGET     4 /* MADV_DONTNEED */
#define MEMLOCK    8 /* RLIMIT_MEMLOCK */

#define MOVED_MIN (64U << 10) /* less is copied sooner than a mapping is split */

typedef const struct image_region region;

static void protect(region *r, uint32_t now)
{
	if (r->prot != now)
		(void)fork_must(CALL3(__NR_mprotect, r->start, r->end - r->start, r->prot),
			"protect a mapping");
}

static void move(region *r, uint64_t from)
{
	uint64_t length = r->end - r->start;

	(void)fork_must(
		CALL5(__NR_mremap, from, length, length, MOVE, r->start), "move memory into place");
}

static void place_patches(region *r)
{
	for (uint32_t i = 0; i < r->n_patches; i++) {
		const struct image_patch *p =
			IMAGE_ROW(struct image_patch, TABLE_PATCHES, r->first_patch + i);

		if (p->stash != 0)
			memcpy((void *)p->target, (const void *)p->stash, p->length);
		else
			(void)fork_must(CALL3(__NR_madvise, p->target, p->length, FORGET),
				"forget a relative's memory");
	}
	protect(r, READ_WRITE);
}

/* Beyond what the base has it grows, as fresh memory. */
static void place_inherited(region *r)
{
	(void)fork_must(CALL5(__NR_mremap, r->stash, r->offset, r->end - r->start, MOVE, r->start),
		"move a relative's memory into place");
	place_patches(r);
}

/* What is too large to lie in the stash has patches for what is there. */
static void place_fresh(region *r, int flags, bool empty)
{
	bool filled = !empty && r->n_patches > 0;

	(void)fork_must(bare_map(r->start, r->end - r->start, filled ? READ_WRITE : (int)r->prot,
				filled ? flags | NORESERVE : flags),
		"map fresh memory");
	if (filled)
		place_patches(r);
}

static void place_anonymous(region *r)
{
	int flags = ((r->flags & REGION_DROPPABLE) != 0 ? DROPPABLE : PRIVATE) |
		    ((r->flags & REGION_GROWS_DOWN) != 0 ? GROWS_DOWN : 0) |
		    ((r->flags & REGION_NORESERVE) != 0 ? NORESERVE : 0);
	/* by its being empty a program knows that there are two of it */
	bool empty = (r->flags & REGION_WIPEONFORK) != 0 && fork.order.wipe != 0;

	if ((r->flags & REGION_INHERITED) != 0) {
		place_inherited(r);
		return;
	}
	if (r->stash == 0 || empty) {
		place_fresh(r, flags, empty);
		return;
	}
	move(r, r->stash);
	/* a child that is forked meanwhile must find zeros, or nothing: there, nobody may be told to place something */
	if ((r->flags & (REGION_WIPEONFORK | REGION_DONTFORK)) != 0)
		lazy_fill(r->start, r->end, r->stash);
	protect(r, READ_WRITE);
}

/* Is it data of a program or library, of which the process executes another part? What the linker has relocated and closed (RELRO) is, too. */
static bool is_data(const struct image_process *p, region *r)
{
	if ((r->flags & REGION_SHARED) != 0 || (r->prot != READ_WRITE && r->prot != READ))
		return false;
	for (uint32_t i = 0; i < p->n_regions; i++) {
		region *other = IMAGE_ROW(struct image_region, TABLE_REGIONS, p->first_region + i);

		if (other->kind == REGION_FILE && other->description == r->description &&
			(other->prot & EXECUTE) != 0)
			return true;
	}
	return false;
}

/*
 * What has changed of a file, in runs of pages. Long ones of a program's data are moved into its place and stay shared with the template until they are written: nobody throws
 * such changes away (MADV_DONTNEED) to see the file again, which a mapping that is not of the file cannot show.
 */
static void write_patches(const struct image_process *process, region *r)
{
	/* what is not there yet is loaded where it was said to be */
	bool data = r->n_patches > 0 && !pull.on && is_data(process, r);

	for (uint32_t i = 0; i < r->n_patches; i++) {
		const struct image_patch *p =
			IMAGE_ROW(struct image_patch, TABLE_PATCHES, r->first_patch + i);

		if (data && p->length >= MOVED_MIN)
			(void)fork_must(
				CALL5(__NR_mremap, p->stash, p->length, p->length, MOVE, p->target),
				"move changed pages into place");
		else
			memcpy((void *)p->target, (const void *)p->stash, p->length);
	}
}

static void place_file(const struct image_process *p, region *r)
{
	uint32_t prot = r->n_patches > 0 ? r->prot | READ_WRITE : r->prot;
	int flags = (r->flags & REGION_SHARED) != 0 ? SHARED : PRIVATE;

	if ((r->flags & REGION_NORESERVE) != 0)
		flags |= NORESERVE;
	(void)fork_must(CALL6(__NR_mmap, r->start, r->end - r->start, prot, flags | FIXED,
				plan->first_description + r->description, r->offset),
		"map a file");
	write_patches(p, r);
	protect(r, prot);
}

static void drop(uint64_t from, uint64_t to)
{
	if (to > from)
		(void)fork_must(CALL2(__NR_munmap, from, to - from), "drop the others' memory");
}

static bool same_attachment(region *a, region *b)
{
	return a->kind == b->kind && a->description == b->description &&
	       a->start - a->offset == b->start - b->offset;
}

/*
 * All pieces of an attachment at once, when the first is met: shmdt() takes for one what is at the right distance from the start and of one opening.
 */
static void place_segment(const struct image_process *p, uint32_t first)
{
	region *all = IMAGE_ROW(struct image_region, TABLE_REGIONS, p->first_region),
	       *r = &all[first];
	const struct image_sysv *s = IMAGE_ROW(struct image_sysv, TABLE_SYSV, r->description);
	uint32_t access = (r->flags & REGION_READ_ONLY) != 0 ? 1 : READ_WRITE;

	for (uint32_t i = 0; i < p->n_regions; i++) {
		if (i < first && same_attachment(&all[i], r))
			return;
		if (same_attachment(&all[i], r))
			access |= all[i].prot & EXECUTE;
	}
	sysv_attach(s, WINDOW_COPY, access);
	for (uint32_t i = first; i < p->n_regions; i++) {
		if (same_attachment(&all[i], r)) {
			move(&all[i], WINDOW_COPY + all[i].offset);
			protect(&all[i], access);
		}
	}
	drop(WINDOW_COPY, WINDOW_COPY + ((s->size + BARE_PAGE - 1) & ~(BARE_PAGE - 1)));
}

/* A hint that this kernel does not know helps nobody; what fork() does with a mapping is no hint. */
static void advise(region *r)
{
	static const struct {
		uint32_t flag;
		int advice;
		bool must;
	} table[] = { { REGION_DONTFORK, 10, true }, { REGION_WIPEONFORK, 18, true },
		{ REGION_DONTDUMP, 16, true }, { REGION_HUGEPAGE, 14, false },
		{ REGION_NOHUGEPAGE, 15, false }, { REGION_SEQUENTIAL, 2, false },
		{ REGION_RANDOM, 1, false } };

	for (unsigned int i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		long rc =
			(r->flags & table[i].flag) == 0
				? 0
				: CALL3(__NR_madvise, r->start, r->end - r->start, table[i].advice);

		if (table[i].must)
			(void)fork_must(rc, "advise on a mapping");
	}
}

static void install_guards(const struct image_process *p)
{
	for (uint32_t i = 0; i < p->n_guards; i++) {
		const struct image_guard *g =
			IMAGE_ROW(struct image_guard, TABLE_GUARDS, p->first_guard + i);

		(void)fork_must(CALL3(__NR_madvise, g->start, g->end - g->start,
					102 /* MADV_GUARD_INSTALL */),
			"guard pages");
	}
}

/*
 * What is there, and what comes; nothing is brought for it, so that what is shared with the template stays so until it is written. The limit is the program's own again
 * when set_limits() has been there.
 */
static void lock(region *r)
{
	uint64_t limit[2];

	if (CALL4(__NR_prlimit64, 0, MEMLOCK, 0, limit) == 0 && limit[0] < limit[1]) {
		limit[0] = limit[1];
		(void)CALL4(__NR_prlimit64, 0, MEMLOCK, limit, 0);
	}
	(void)fork_must(CALL3(__NR_mlock2, r->start, r->end - r->start, ON_FAULT), "lock memory");
}

/* Who has memory of ancestors drops theirs in the end. */
static void drop_others(const struct plan_process *planned)
{
	uint64_t own = planned->stash_end != 0 ? planned->stash_start : WINDOW_END;

	if (planned->base != 0)
		return;
	drop(WINDOW_STASH, own);
	if (planned->stash_end != 0)
		drop(planned->stash_end, WINDOW_END);
}

void memory_become(const struct image_process *p, const struct plan_process *planned)
{
	drop_others(planned);
	for (uint32_t i = 0; i < p->n_regions; i++) {
		region *r = IMAGE_ROW(struct image_region, TABLE_REGIONS, p->first_region + i);

		if (r->kind == REGION_ANON)
			place_anonymous(r);
		else if (r->kind == REGION_FILE)
			place_file(p, r);
		else if (r->kind == REGION_SYSV)
			place_segment(p, i);
		else
			move(r, WINDOW_VDSO + r->offset);
		advise(r);
	}
	/* not in what is locked */
	install_guards(p);
	for (uint32_t i = 0; i < p->n_regions; i++) {
		region *r = IMAGE_ROW(struct image_region, TABLE_REGIONS, p->first_region + i);

		if ((r->flags & REGION_LOCKED) != 0)
			lock(r);
	}
	(void)CALL2(__NR_munmap, WINDOW_STASH, WINDOW_END - WINDOW_STASH);
}

void memory_describe(const struct image_process *p)
{
	struct {
		uint64_t start_code, end_code, start_data, end_data, start_brk, brk, start_stack,
			arg_start, arg_end, env_start, env_end;
		uint64_t auxv;
		uint32_t auxv_size, exe;
	} map = {
		.start_code = p->mm.start_code,
		.end_code = p->mm.end_code,
		.start_data = p->mm.start_data,
		.end_data = p->mm.end_data,
		.start_brk = p->mm.start_brk,
		.brk = p->mm.brk,
		.start_stack = p->mm.start_stack,
		.arg_start = p->mm.arg_start,
		.arg_end = p->mm.arg_end,
		.env_start = p->mm.env_start,
		.env_end = p->mm.env_end,
		.auxv = (uint64_t)image_bytes(p->auxv),
		.auxv_size = (uint32_t)p->auxv.length,
		.exe = plan->first_description + p->exe,
	};

	(void)fork_must(CALL5(__NR_prctl, PR_SET_MM, PR_SET_MM_MAP, &map, sizeof(map), 0),
		"describe the address space");
}
