/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight bytes: the size of the plan; the plan; the image. What both checks let pass is read as the restorer reads it (prog/cay-template): each row that another names, each byte that a row
 * names, with nothing looked at again. A sanitizer sees what is not there.
 */
#include "checkpoint/image_check.h"
#include "fuzz/fuzz.h"

#include <stdlib.h>

static const struct image_header *image;
static const struct plan *plan;
static volatile unsigned int sum; /* so that what is read counts */

static const void *row(enum image_table table, uint64_t i, size_t size)
{
	return (const char *)image + image->tables[table].offset + i * size;
}

#define ROW(type, table, i) ((const struct type *)row(table, i, sizeof(struct type)))
#define for_each_row(type, table, first, n, variable) \
	for (const struct type *variable = ROW(type, table, first), \
			       *variable##_end = variable + (n); \
		variable < variable##_end; variable++)
#define for_all_rows(type, table, variable) \
	for_each_row (type, table, 0, image->tables[table].count / sizeof(struct type), variable)

static void touch(const void *at, uint64_t n)
{
	const unsigned char *p = at;

	/* the ends of it, and some between */
	for (uint64_t i = 0; i < n; i += n / 64 + 1)
		sum += p[i];
	if (n > 0)
		sum += p[n - 1];
}

static const char *bytes(struct image_span s)
{
	return row(TABLE_BYTES, s.offset, 1);
}

static void touch_span(struct image_span s)
{
	touch(bytes(s), s.length);
}

static void touch_text(struct image_span s)
{
	if (s.length > 0)
		sum += (unsigned int)strlen(bytes(s));
}

static const struct image_description *description(uint64_t i)
{
	MUST(i < plan->n_descriptions);
	return ROW(image_description, TABLE_DESCRIPTIONS, i);
}

static void in_stash(uint64_t at, uint64_t n)
{
	MUST(at >= WINDOW_STASH && at + n >= at && at + n <= WINDOW_END);
}

/* --- what the opener reads --- */

static void read_packets(const struct image_description *d)
{
	for_each_row (image_packet, TABLE_PACKETS, d->first_packet, d->n_packets, p) {
		touch_span(p->data);
		touch_span(p->from);
		for (uint32_t i = 0; i < p->n_rights; i++)
			sum += description(*(const uint32_t *)row(TABLE_RIGHTS,
						   (uint64_t)p->first_right + i, sizeof(uint32_t)))
				       ->kind;
	}
}

static bool is_socket(const struct image_description *d)
{
	return d->kind == DESCRIPTION_CONNECTION || d->kind == DESCRIPTION_LISTEN ||
	       d->kind == DESCRIPTION_SOCKET || d->kind == DESCRIPTION_PENDING;
}

static void read_socket(const struct image_description *d)
{
	touch_text(d->path);
	if (d->path.length > 0)
		touch(bytes(d->path), (d->c & 0xffff) == 1 ? 3 : 4);
	touch_span(d->remote);
	read_packets(d);
	for_each_row (image_option, TABLE_OPTIONS, d->first_option, d->n_options, o)
		touch_span(o->value);
}

/* Return: by how many descriptions that were handed over there are more. */
static uint32_t read_listener(const struct image_description *d, uint32_t i)
{
	const uint32_t *clients = (const uint32_t *)(const void *)bytes(d->data);
	uint32_t n = (uint32_t)(d->data.length / sizeof(*clients));

	for (uint32_t k = 0; k < n; k++)
		MUST(description(clients[k])->peer == i);
	return n;
}

static void read_content(const struct image_description *d)
{
	const struct image_run *run = (const struct image_run *)(const void *)bytes(d->data);

	if (d->c == 0)
		return;
	in_stash(d->b, d->c);
	for (uint64_t i = 0; i < d->data.length / sizeof(*run); i++)
		in_stash(d->b + run[i].at, run[i].length);
}

static uint32_t read_description(uint32_t i)
{
	const struct image_description *d = description(i),
				       *peer = d->peer == IMAGE_NONE ? NULL : description(d->peer);
	int64_t timer[4];

	touch_span(d->data);
	touch(ROW(image_lock, TABLE_LOCKS, d->first_lock), d->n_locks * sizeof(struct image_lock));
	if (is_socket(d))
		read_socket(d);
	else
		touch_text(d->path);
	switch ((enum image_description_kind)d->kind) {
	case DESCRIPTION_SLOT:
		MUST(d->a < plan->n_slots);
		return 1;
	case DESCRIPTION_TIMERFD:
		memcpy(timer, bytes(d->data), sizeof(timer));
		return 1;
	case DESCRIPTION_MEMORY:
		read_content(d);
		return 1;
	case DESCRIPTION_UNLINKED:
		MUST(d->a == 0 || d->a - 1 < i);
		if (d->a == 0)
			read_content(d);
		return 1;
	case DESCRIPTION_INOTIFY:
		for_each_row (image_notification, TABLE_NOTIFICATIONS, d->a, d->b, n)
			touch_text(n->path);
		return 1;
	case DESCRIPTION_LISTEN:
		return 1 + read_listener(d, i);
	case DESCRIPTION_PENDING:
		return 0;
	case DESCRIPTION_MASTER:
	case DESCRIPTION_TERMINAL:
		if (d->a != IMAGE_NONE)
			sum += ROW(image_terminal, TABLE_TERMINALS, d->a)->flags;
		return 1;
	case DESCRIPTION_PIPE_READ:
	case DESCRIPTION_PIPE_WRITE:
	case DESCRIPTION_CONNECTION:
		/* the lower end makes both */
		return peer == NULL ? 1 : d->peer < i ? 0 : 2;
	case DESCRIPTION_FILE:
	case DESCRIPTION_EVENTFD:
	case DESCRIPTION_EPOLL:
	case DESCRIPTION_SIGNALFD:
	case DESCRIPTION_SOCKET:
	case DESCRIPTION_PIDFD:
	case DESCRIPTION_FIFO:
	case DESCRIPTION_PROC:
		return 1;
	}
	MUST(false);
	return 0;
}

static void read_messages(const struct image_sysv *s)
{
	const char *at = bytes(s->data);

	for (uint32_t i = 0; i < s->n_messages; i++) {
		struct image_message head;

		memcpy(&head, at, sizeof(head));
		touch(at + sizeof(head), head.length);
		if (s->kind == SYSV_SPARSE)
			MUST(head.type >= 0 && (uint64_t)head.type <= s->size &&
				head.length <= s->size - (uint64_t)head.type);
		at += sizeof(head) + head.length;
	}
}

static void read_opener(void)
{
	uint32_t made = 0;

	for_all_rows (image_sysv, TABLE_SYSV, s) {
		MUST(s->kind <= SYSV_SPARSE);
		touch_span(s->data);
		MUST(s->kind != SYSV_SHM || s->data.length <= s->size);
		if (s->kind == SYSV_SEM)
			touch(bytes(s->data), s->size * sizeof(uint16_t));
		if (s->kind == SYSV_MSG || s->kind == SYSV_SPARSE)
			read_messages(s);
	}
	for_all_rows (image_node, TABLE_NODES, n) {
		touch_text(n->path);
		touch_text(n->target);
		if (n->link != IMAGE_NONE)
			touch_text(ROW(image_node, TABLE_NODES, n->link)->path);
		for_each_row (image_piece, TABLE_PIECES, n->first_piece, n->n_pieces, p)
			touch_span(p->data);
	}
	for_all_rows (image_terminal, TABLE_TERMINALS, t) {
		MUST(t->slot == IMAGE_NONE || t->slot < plan->n_slots);
		touch_span(t->input);
		touch_span(t->output);
	}
	for (uint32_t i = 0; i < plan->n_descriptions; i++)
		made += read_description(i);
	MUST(made == plan->n_descriptions);
}

/* --- what a process reads --- */

static void read_thread(const struct image_thread *t)
{
	touch_span(t->xsave);
	MUST(RESIDUE_XSAVE + t->xsave.length + 4 <= RESIDUE_FRAME_SIZE);
	touch(bytes(t->xsave), 512);
	touch_span(t->processors);
	sum += (unsigned int)strlen(t->name);
	touch(ROW(image_siginfo, TABLE_SIGINFOS, t->first_siginfo),
		t->n_siginfos * sizeof(struct image_siginfo));
	for_each_row (image_filter, TABLE_FILTERS, t->first_filter, t->n_filters, f)
		touch_span(f->code);
}

static void outside_window(uint64_t start, uint64_t end)
{
	MUST(start < end && (end <= WINDOW_START || start >= WINDOW_END));
}

static bool is_in(const struct plan_process *p, uint64_t at, uint64_t n)
{
	return at >= p->stash_start && at + n <= p->stash_end;
}

/* In the stash of one that T' leaves to @p. */
static bool is_an_ancestors(const struct plan_process *p, uint64_t at, uint64_t n)
{
	const struct plan_process *all = (const struct plan_process *)(plan + 1), *one = p;

	while (p->base != 0 && one->pid != p->base) {
		one = &all[one->parent];
		if (is_in(one, at, n))
			return true;
	}
	return false;
}

static void read_region(const struct plan_process *p, const struct image_region *r)
{
	bool inherited = r->kind == REGION_ANON && (r->flags & REGION_INHERITED) != 0;

	outside_window(r->start, r->end);
	if (inherited)
		MUST(r->offset > 0 && r->offset <= r->end - r->start &&
			is_an_ancestors(p, r->stash, r->offset));
	else if (r->kind == REGION_ANON && r->stash != 0)
		MUST(r->stash >= p->stash_start && r->stash + (r->end - r->start) <= p->stash_end);
	if (r->kind == REGION_FILE)
		sum += description(r->description)->kind;
	if (r->kind == REGION_SYSV)
		MUST(image_is_segment(ROW(image_sysv, TABLE_SYSV, r->description)));
	for_each_row (image_patch, TABLE_PATCHES, r->first_patch, r->n_patches, x) {
		MUST(x->target >= r->start && x->target + x->length <= r->end);
		MUST((r->kind == REGION_ANON && x->stash == 0) || is_in(p, x->stash, x->length) ||
			(r->kind == REGION_FILE && is_an_ancestors(p, x->stash, x->length)));
	}
}

static void read_process(const struct plan_process *p)
{
	const struct image_process *o = ROW(image_process, TABLE_PROCESSES, p->image);

	MUST(o->pid == p->pid && o->n_threads > 0);
	sum += description(o->exe)->kind + description(o->cwd)->kind;
	if (o->root != IMAGE_NONE)
		sum += description(o->root)->kind;
	touch_span(o->groups);
	touch_span(o->auxv);
	for_each_row (image_thread, TABLE_THREADS, o->first_thread, o->n_threads, t)
		read_thread(t);
	for_each_row (image_region, TABLE_REGIONS, o->first_region, o->n_regions, r)
		read_region(p, r);
	for_each_row (image_guard, TABLE_GUARDS, o->first_guard, o->n_guards, g)
		outside_window(g->start, g->end);
	for_each_row (image_fd, TABLE_FDS, o->first_fd, o->n_fds, f) {
		MUST(f->fd >= 0 && (uint32_t)f->fd < plan->first_description);
		sum += description(f->description)->kind;
	}
	for_each_row (image_watch, TABLE_WATCHES, o->first_watch, o->n_watches, w)
		sum += w->description == IMAGE_NONE ? 0 : description(w->description)->kind;
	touch(ROW(image_siginfo, TABLE_SIGINFOS, o->first_siginfo),
		o->n_siginfos * sizeof(struct image_siginfo));
	touch(ROW(image_timer, TABLE_TIMERS, o->first_timer),
		o->n_timers * sizeof(struct image_timer));
	touch(ROW(image_lock, TABLE_LOCKS, o->first_lock), o->n_locks * sizeof(struct image_lock));
}

/* --- what the template and T' read --- */

static void read_plan(void)
{
	const struct plan_process *p = (const struct plan_process *)(plan + 1);
	const struct plan_map *maps = (const struct plan_map *)(p + plan->n_processes);
	const struct plan_copy *copies = (const struct plan_copy *)(maps + plan->n_maps);
	uint64_t all = 0;

	for (uint32_t i = 0; i < plan->n_processes; i++) {
		MUST(p[i].parent == IMAGE_NONE || p[i].parent < i);
		MUST(p[i].terminal <= plan->n_descriptions);
		if (p[i].stash_end != 0)
			in_stash(p[i].stash_start, p[i].stash_end - p[i].stash_start);
	}
	for (uint32_t i = 0; i < plan->n_maps; i++)
		in_stash(maps[i].address, maps[i].length);
	for (uint32_t i = 0; i < plan->n_copies; i++) {
		in_stash(copies[i].to, copies[i].length);
		all += copies[i].length;
	}
	MUST(all <= WINDOW_END - WINDOW_STASH);
}

static void read_image(void)
{
	const struct plan_process *p = (const struct plan_process *)(plan + 1);

	read_opener();
	for (uint32_t i = 0; i < plan->n_processes; i++) {
		if (p[i].image != IMAGE_NONE)
			read_process(&p[i]);
	}
}

static void *copy(const uint8_t *from, size_t n)
{
	void *to = xalloc(n + (n == 0));

	memcpy(to, from, n);
	return to;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t plan_size;
	void *both[2];

	if (size < sizeof(plan_size))
		return 0;
	memcpy(&plan_size, data, sizeof(plan_size));
	data += sizeof(plan_size);
	size -= sizeof(plan_size);
	plan_size = plan_size < size ? plan_size : size;
	both[0] = copy(data, plan_size);
	both[1] = copy(data + plan_size, size - plan_size);
	/* what is committed outlives its version */
	if (plan_size >= sizeof(*plan))
		((struct plan *)both[0])->version = IMAGE_VERSION;
	if (size - plan_size >= sizeof(*image))
		((struct image_header *)both[1])->version = IMAGE_VERSION;
	plan = both[0];
	image = both[1];
	if (plan_check(plan, plan_size) == NULL) {
		read_plan();
		if (image_check(image, size - plan_size, plan) == NULL)
			read_image();
	}
	free(both[0]);
	free(both[1]);
	return 0;
}
