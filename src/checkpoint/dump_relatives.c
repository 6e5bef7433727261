/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_relatives.c - what a process has of its memory as those have it that it was forked from.
 *
 * What lies in one frame of memory is the same: the template says of which pages that is so, in root mode, because the kernel shows the numbers of frames to the host's root alone. The
 * bytes of all others are compared, since what is the same may be shared however it came about: whoever writes to it gets a copy. Both is done when nothing is refused any more, of
 * what does not change: twins, or processes that do not go on.
 */
#include "checkpoint/alive.h"
#include "checkpoint/dump.h"
#include "checkpoint/pagemap.h"
#include "sys/fdpass.h"

#include <fcntl.h>
#include <string.h>

#define PIECE      65536U /* bytes that are compared at once */
#define SAME_BYTES (TEMPLATE_SAME_PAGES * 4096ULL)
#define PARTS_MAX  (64U << 20) /* bytes */
#define LEAST      16U         /* pages that are the same; fewer are copied sooner */
#define PART \
	8U /* at most this part of all may differ, and so many parts there may be: each fork makes them anew */

/* Those that were forked come behind in the lists that the kernel gives; who does not has no relatives. */
static struct dump_process *find_parent(const struct dump *d, const struct dump_process *p)
{
	for (struct dump_process *one = d->processes; one < p; one++) {
		if (one->tracee.inner == p->place.parent && !one->tracee.zombie)
			return one;
	}
	return NULL;
}

/* Whoever stands still would wait for us. */
static bool may_be_compared(const struct dump *d, const struct dump_process *p)
{
	return p->twin.host != 0 || d->order->for_good != 0;
}

/* What a twin lacks is not to be read from it. */
static bool twin_lacks(const struct dump_process *p, const struct image_region *r)
{
	return keep_has(&p->kept, r->start, r->end);
}

void dump_relatives_begin(struct dump *d, struct dump_process *p, struct dump_relatives *ret)
{
	struct dump_process *one = may_be_compared(d, p) ? find_parent(d, p) : NULL;

	ret->process = p;
	ret->frames_hidden = &d->frames_hidden;
	ret->memory = -1;
	ret->n = 0;
	ret->parts = (struct buf)BUF_INIT(PARTS_MAX);
	for (; one != NULL && ret->n < DUMP_ANCESTORS_MAX; one = find_parent(d, one))
		ret->list[ret->n++] = (struct dump_ancestor){ one, -1 };
	if (ret->n > 0)
		ret->memory = openat(dump_source(p)->proc, "mem", O_RDONLY | O_CLOEXEC);
}

void dump_relatives_end(struct dump_relatives *r)
{
	for (size_t i = 0; i < r->n; i++) {
		if (r->list[i].memory >= 0)
			(void)close(r->list[i].memory);
	}
	if (r->memory >= 0)
		(void)close(r->memory);
	buf_free(&r->parts);
}

/* They rise, and none lies in another. */
static const struct image_region *find_region(
	const struct dump *d, const struct dump_process *p, const struct image_region *mine)
{
	const struct image_region *all =
		(const struct image_region *)(const void *)d->image.tables[TABLE_REGIONS].p;
	uint32_t low = p->out.first_region, high = low + p->out.n_regions;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (all[middle].end <= mine->start)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == p->out.first_region + p->out.n_regions || all[low].start > mine->start ||
		all[low].kind != mine->kind || all[low].stash == 0 ||
		(all[low].flags & REGION_INHERITED) != 0 || twin_lacks(p, &all[low]))
		return NULL;
	return &all[low];
}

static bool can_be_read(const struct dump *d, struct dump_relatives *r, struct dump_ancestor *a)
{
	if (a->memory < 0 && may_be_compared(d, a->process))
		a->memory = openat(dump_source(a->process)->proc, "mem", O_RDONLY | O_CLOEXEC);
	return r->memory >= 0 && a->memory >= 0;
}

struct dump_ancestor *dump_relatives_find(const struct dump *d, struct dump_relatives *r,
	const struct image_region *mine, const struct image_region **ret_theirs)
{
	size_t i = 0;

	if (twin_lacks(r->process, mine))
		return NULL;
	while (i < r->n && (*ret_theirs = find_region(d, r->list[i].process, mine)) == NULL)
		i++;
	return i < r->n && can_be_read(d, r, &r->list[i]) ? &r->list[i] : NULL;
}

void dump_relatives_share(struct dump_process *p, struct dump_relatives *r, struct dump_ancestor *a)
{
	size_t before = 0;

	while (before < r->n && r->list[before].process != p->base)
		before++;
	/* the later in the list, the earlier it was forked */
	if (p->base == NULL || before < (size_t)(a - r->list))
		p->base = a->process;
	a->process->inherited_from = true;
}

/* --- the parts --- */

/* The first run that ends behind @at. */
static size_t first_behind(const struct dump_pages *pages, uint64_t at)
{
	size_t low = 0, high = pages->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (pages->list[middle].end <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Are there pages at @at? @ret_end: how far that is so, at most @end. */
static bool has_pages(const struct dump_pages *pages, uint64_t at, uint64_t end, uint64_t *ret_end)
{
	size_t i = first_behind(pages, at);
	bool there = i < pages->n && pages->list[i].start <= at;
	uint64_t stop = i == pages->n ? end : there ? pages->list[i].end : pages->list[i].start;

	*ret_end = stop < end ? stop : end;
	return there;
}

static void add_part(struct dump_relatives *r, uint64_t start, uint64_t end, enum dump_likeness is)
{
	struct dump_part part = { start, end, is }, *last = NULL;

	if (r->parts.n > 0)
		last = (struct dump_part *)(void *)(r->parts.p + r->parts.n - sizeof(part));
	if (last != NULL && last->end == start && last->is == is)
		last->end = end;
	else
		buf_add(&r->parts, &part, sizeof(part));
	if (is == DUMP_SAME)
		r->same += (end - start) / IMAGE_PAGE;
	else if (is == DUMP_OWN)
		r->changed += (end - start) / IMAGE_PAGE;
}

static bool read_both(
	struct dump_relatives *r, const struct dump_ancestor *a, uint64_t at, size_t n)
{
	return pread(r->memory, r->bytes[0], n, (off_t)at) == (ssize_t)n &&
	       pread(a->memory, r->bytes[1], n, (off_t)at) == (ssize_t)n;
}

/* As compare(), by reading them. */
static bool compare_bytes(struct dump_relatives *r, const struct dump_ancestor *a, uint64_t at,
	uint64_t end, uint64_t most)
{
	while (at < end) {
		size_t n = end - at < PIECE ? end - at : PIECE;

		if (!read_both(r, a, at, n))
			return false;
		for (size_t i = 0; i < n; i += IMAGE_PAGE) {
			bool same = memcmp(r->bytes[0] + i, r->bytes[1] + i, IMAGE_PAGE) == 0;

			add_part(r, at + i, at + i + IMAGE_PAGE, same ? DUMP_SAME : DUMP_OWN);
		}
		if (r->changed > most)
			return false;
		at += n;
		alive();
	}
	return true;
}

/* Of none, where nobody says so. */
static void ask_for_frames(
	struct dump_relatives *r, const struct dump_ancestor *a, uint64_t at, uint64_t end)
{
	const struct template_same order = { .kind = TEMPLATE_SAME,
		.pids = { dump_source(r->process)->host, dump_source(a->process)->host },
		.pages = (uint32_t)((end - at) / IMAGE_PAGE),
		.start = at };
	struct template_likeness said = { .status = -EPERM };
	size_t none;

	memset(r->in_one_frame, 0, sizeof(r->in_one_frame));
	if (*r->frames_hidden)
		return;
	if (fdpass_send(DUMP_TEMPLATE_FD, &order, sizeof(order), NULL, 0) < 0 ||
		fdpass_recv(DUMP_TEMPLATE_FD, &said, sizeof(said), NULL, 0, &none) !=
			sizeof(said) ||
		said.kind != TEMPLATE_SAME || said.status == -EPERM)
		*r->frames_hidden = true;
	else if (said.status == 0)
		memcpy(r->in_one_frame, said.same, sizeof(said.same));
}

static bool in_one_frame(const struct dump_relatives *r, size_t page)
{
	return (r->in_one_frame[page / 64] >> page % 64 & 1) != 0;
}

/* As compare(), of no more than can be asked for at once. */
static bool compare_piece(struct dump_relatives *r, const struct dump_ancestor *a, uint64_t start,
	uint64_t end, uint64_t most)
{
	ask_for_frames(r, a, start, end);
	for (uint64_t at = start, next; at < end; at = next) {
		const bool one = in_one_frame(r, (at - start) / IMAGE_PAGE);

		for (next = at + IMAGE_PAGE;
			next < end && in_one_frame(r, (next - start) / IMAGE_PAGE) == one;)
			next += IMAGE_PAGE;
		if (one)
			add_part(r, at, next, DUMP_SAME);
		else if (!compare_bytes(r, a, at, next, most))
			return false;
	}
	return true;
}

/* Both have all pages of @at..@end. @most: pages that may differ. Return: false: more do, or they cannot be read. */
static bool compare(struct dump_relatives *r, const struct dump_ancestor *a, uint64_t at,
	uint64_t end, uint64_t most)
{
	while (at < end) {
		uint64_t stop = end - at < SAME_BYTES ? end : at + SAME_BYTES;

		if (!compare_piece(r, a, at, stop, most))
			return false;
		at = stop;
		alive();
	}
	return true;
}

/* Have both all pages of @start..@end, and the same? */
static bool is_same(
	struct dump_relatives *r, const struct dump_ancestor *a, uint64_t start, uint64_t end)
{
	uint64_t stop;

	r->parts.n = 0;
	r->same = r->changed = 0;
	return has_pages(&r->process->pages, start, end, &stop) && stop == end &&
	       has_pages(&a->process->pages, start, end, &stop) && stop == end &&
	       compare(r, a, start, end, 0);
}

/* What it has itself, not out of another's stash. They rise. */
static const struct image_patch *find_patch(const struct dump *d, const struct dump_process *p,
	const struct image_region *r, uint64_t start, uint64_t end)
{
	const struct image_patch *all =
		(const struct image_patch *)(const void *)d->image.tables[TABLE_PATCHES].p;
	uint32_t low = r->first_patch, high = low + r->n_patches;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (all[middle].target + all[middle].length <= start)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == r->first_patch + r->n_patches || all[low].target > start ||
		end > all[low].target + all[low].length || all[low].stash < p->place.stash_start ||
		all[low].stash >= p->place.stash_end)
		return NULL;
	return &all[low];
}

struct dump_ancestor *dump_relatives_patch(const struct dump *d, struct dump_relatives *r,
	const struct image_region *mine, struct image_patch *patch)
{
	uint64_t end = patch->target + patch->length;

	if (twin_lacks(r->process, mine))
		return NULL;
	for (size_t i = 0; i < r->n; i++) {
		struct dump_ancestor *a = &r->list[i];
		const struct image_region *theirs = find_region(d, a->process, mine);
		const struct image_patch *x =
			theirs == NULL ? NULL
				       : find_patch(d, a->process, theirs, patch->target, end);

		if (x == NULL)
			continue;
		if (!can_be_read(d, r, a) || !is_same(r, a, patch->target, end))
			return NULL;
		patch->stash = x->stash + (patch->target - x->target);
		return a;
	}
	return NULL;
}

static uint64_t count_pages(const struct dump_pages *pages, uint64_t start, uint64_t end)
{
	uint64_t n = 0;

	for (size_t i = first_behind(pages, start); i < pages->n && pages->list[i].start < end;
		i++) {
		const struct page_region *run = &pages->list[i];

		n += (run->end < end ? run->end : end) - (run->start > start ? run->start : start);
	}
	return n / IMAGE_PAGE;
}

bool dump_relatives_compare(struct dump_relatives *r, struct dump_ancestor *a,
	const struct image_region *mine, const struct image_region *theirs)
{
	const struct dump_pages *pages = &r->process->pages;
	uint64_t most = count_pages(pages, mine->start, mine->end) / PART;

	r->parts.n = 0;
	r->same = r->changed = 0;
	for (uint64_t at = mine->start, end; at < mine->end; at = end) {
		bool have = has_pages(pages, at, mine->end, &end), they = false;

		if (at < theirs->end)
			they = has_pages(&a->process->pages, at,
				end < theirs->end ? end : theirs->end, &end);
		if (have && they && !compare(r, a, at, end, most))
			return false;
		if (have != they)
			add_part(r, at, end, have ? DUMP_OWN : DUMP_NONE);
	}
	return r->same >= LEAST && r->changed <= most && !buf_failed(&r->parts) &&
	       r->parts.n / sizeof(struct dump_part) <= most + 1;
}
