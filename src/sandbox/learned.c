/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/learned.h"
#include "checkpoint/seizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILTERS_MAX 4096U
#define RECORDS_MAX 4096U
#define BYTES_MAX   (16U << 20) /* of instructions */

/** struct learned_filter - one filter above another; @below: LEARNED_UNKNOWN = it is the lowest. */
struct learned_filter {
	uint32_t below, depth; /* depth: from 1 */
	uint32_t log, n;
	uint32_t quiet; /* of each time that it was installed */
	struct sock_filter *code;
};

/** struct learned_record - what a thread has installed, up to its last; that one perhaps in vain. */
struct learned_record {
	int32_t tid, process;
	uint64_t started;
	uint32_t last;
	uint32_t inherited; /* what it had before the first of them */
	uint32_t
		for_all; /* depth of the uppermost of them that came into all threads; 0 = none did */
	uint32_t
		tried; /* depth of the last, if it was to; whether it did shows by how many the thread has */
	uint32_t lost; /* from this depth on it may have what is not here; 0 = it has not */
};

/* --- filters --- */

static uint32_t depth_of(const struct learned *l, uint32_t filter)
{
	return filter == LEARNED_UNKNOWN ? 0 : l->filters[filter].depth;
}

/* The lower part of what ends with @filter, @depth filters of it. */
static uint32_t cut(const struct learned *l, uint32_t filter, uint32_t depth)
{
	while (depth_of(l, filter) > depth)
		filter = l->filters[filter].below;
	return filter;
}

static bool is_like(
	const struct learned_filter *f, uint32_t below, const struct learned_install *install)
{
	return f->below == below && f->log == install->log && f->n == install->n &&
	       memcmp(f->code, install->code, install->n * sizeof(*f->code)) == 0;
}

static void *grow(void *list, size_t n, size_t size)
{
	/* by halves, counted from the powers of two */
	void *more = (n & (n - 1)) != 0 ? list : realloc(list, (n == 0 ? 1 : 2 * n) * size);

	if (more == NULL)
		abort();
	return more;
}

static bool may_hand_on(const struct learned_install *install)
{
	for (uint32_t i = 0; i < install->n; i++) {
		const struct sock_filter *c = &install->code[i];

		if (BPF_CLASS(c->code) == BPF_RET &&
			(BPF_RVAL(c->code) == BPF_A ||
				(c->k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_TRACE))
			return true;
	}
	return false;
}

/* Return: %LEARNED_UNKNOWN when there is no room. */
static uint32_t find_or_add(
	struct learned *l, uint32_t below, const struct learned_install *install)
{
	size_t size = install->n * sizeof(*install->code);
	struct learned_filter *f;

	for (size_t i = 0; i < l->n_filters; i++) {
		if (!is_like(&l->filters[i], below, install))
			continue;
		/* who has it is not told apart */
		l->filters[i].quiet &= install->quiet;
		return (uint32_t)i;
	}
	if (l->n_filters == FILTERS_MAX || l->bytes + size > BYTES_MAX)
		return LEARNED_UNKNOWN;
	l->filters = grow(l->filters, l->n_filters, sizeof(*l->filters));
	f = &l->filters[l->n_filters];
	*f = (struct learned_filter){ .below = below,
		.depth = depth_of(l, below) + 1,
		.log = install->log,
		.n = install->n,
		.quiet = install->quiet,
		.code = malloc(size) };
	if (f->code == NULL)
		abort();
	memcpy(f->code, install->code, size);
	l->bytes += size;
	l->hands_on |= may_hand_on(install);
	return (uint32_t)l->n_filters++;
}

/* What anybody inherits was installed by somebody: if only one such is known, it is that. */
static uint32_t only_one(const struct learned *l, uint32_t depth)
{
	uint32_t found = LEARNED_UNKNOWN;

	for (size_t i = 0; i < l->n_filters; i++) {
		if (l->filters[i].depth != depth)
			continue;
		if (found != LEARNED_UNKNOWN)
			return LEARNED_UNKNOWN;
		found = (uint32_t)i;
	}
	return l->forgot ? LEARNED_UNKNOWN : found;
}

/* --- who has installed what --- */

static struct learned_record *find_record(const struct learned *l, int32_t tid, uint64_t started)
{
	for (size_t i = 0; i < l->n_records; i++) {
		if (l->records[i].tid == tid && l->records[i].started == started)
			return &l->records[i];
	}
	return NULL;
}

/* Of who has ended, too: by a thread of its process that goes on, it may be known what that cannot have. */
static void forget_dead(struct learned *l, bool (*lives)(int32_t process))
{
	size_t n = 0;

	for (size_t i = 0; i < l->n_records; i++) {
		if (lives(l->records[i].process))
			l->records[n++] = l->records[i];
	}
	l->n_records = n;
}

static struct learned_record *add_record(struct learned *l, const struct learned_thread *who)
{
	struct learned_record *r;

	if (l->n_records == RECORDS_MAX)
		return NULL;
	l->records = grow(l->records, l->n_records, sizeof(*l->records));
	r = &l->records[l->n_records++];
	*r = (struct learned_record){ .tid = who->tid,
		.process = who->process,
		.started = who->started,
		.last = LEARNED_UNKNOWN,
		.inherited = who->n };
	return r;
}

static const struct learned_thread *find_thread(
	const struct learned_tree *tree, int32_t tid, uint64_t started)
{
	for (size_t i = 0; i < tree->n; i++) {
		if (tree->all[i].tid == tid && tree->all[i].started == started)
			return &tree->all[i];
	}
	return NULL;
}

static const struct learned_thread *find_leader(const struct learned_tree *tree, int32_t process)
{
	for (size_t i = 0; i < tree->n; i++) {
		if (tree->all[i].tid == process)
			return &tree->all[i];
	}
	return NULL;
}

/* --- what is inherited --- */

#define NOBODY    (LEARNED_UNKNOWN - 1) /* there is nobody to have it from */
#define ANCESTORS 64                    /* so far up it is looked for */

/* What is one of @a and @b: NOBODY is neither. */
static uint32_t unite(uint32_t a, uint32_t b)
{
	return a == NOBODY || a == b ? b : b == NOBODY ? a : LEARNED_UNKNOWN;
}

/*
 * What all threads that @process has ever had, and that had @depth filters, had of them: it came with them, from a thread of the parent's, or one of them has installed it.
 * Return: that, NOBODY, or %LEARNED_UNKNOWN when there were several or it cannot be known.
 */
static uint32_t of_process(const struct learned *l, const struct learned_tree *tree,
	int32_t process, uint32_t depth, int ancestors)
{
	const struct learned_thread *leader = find_leader(tree, process);
	const struct learned_record *first =
		leader != NULL ? find_record(l, process, leader->started) : NULL;
	uint32_t found = NOBODY;

	/* whoever is outside the sandbox starts programs without any */
	if (leader == NULL)
		return process == tree->init ? LEARNED_UNKNOWN : NOBODY;
	for (size_t i = 0; i < l->n_records; i++) {
		const struct learned_record *r = &l->records[i];

		if (r->process == process && depth_of(l, r->last) >= depth)
			found = unite(found, cut(l, r->last, depth));
	}
	/* who has installed some itself says what it came with */
	if (first != NULL ? first->inherited < depth : leader->n < depth)
		return found;
	return ancestors == 0
		       ? LEARNED_UNKNOWN
		       : unite(found, of_process(l, tree, leader->parent, depth, ancestors - 1));
}

static uint32_t inherited(const struct learned *l, const struct learned_tree *tree,
	const struct learned_thread *who, uint32_t depth)
{
	uint32_t found = only_one(l, depth);

	if (found == LEARNED_UNKNOWN && !l->forgot && !l->adopted)
		found = of_process(l, tree, who->process, depth, ANCESTORS);
	return found == NOBODY ? LEARNED_UNKNOWN : found;
}

/* --- whose they are --- */

static bool is_lost(const struct learned_record *r, uint32_t depth)
{
	return r->lost != 0 && r->lost <= depth;
}

/*
 * What a filter for all threads has made the same in all of @t's process, as far as it has some. @ret: that, or %LEARNED_UNKNOWN when there was none.
 * Return: false when it cannot be told, because who has installed it is gone, and so is whether the kernel took it.
 */
static bool of_all_threads(const struct learned *l, const struct learned_tree *tree,
	const struct learned_thread *t, uint32_t *ret)
{
	*ret = LEARNED_UNKNOWN;
	for (size_t i = 0; i < l->n_records; i++) {
		const struct learned_record *r = &l->records[i];
		uint32_t filter;

		if (r->process != t->process || (r->for_all < t->n && r->tried < t->n))
			continue;
		if (r->for_all < t->n) {
			const struct learned_thread *by = find_thread(tree, r->tid, r->started);

			if (by == NULL)
				return false;
			if (by->n < r->tried)
				continue;
		}
		filter = cut(l, r->last, t->n);
		/* of two one was in vain, and the other has made it look as if it was not */
		if (depth_of(l, filter) != t->n || is_lost(r, t->n) ||
			(*ret != LEARNED_UNKNOWN && *ret != filter))
			return false;
		*ret = filter;
	}
	return true;
}

/* Whoever executes a program has the number of its process's first thread afterwards, and its own filters. */
static bool may_be_another(const struct learned *l, const struct learned_tree *tree,
	const struct learned_thread *t, uint32_t filter)
{
	for (size_t i = 0; i < l->n_records; i++) {
		const struct learned_record *r = &l->records[i];

		if (r->process == t->process &&
			(is_lost(r, t->n) || (depth_of(l, r->last) >= t->n &&
						     cut(l, r->last, t->n) != filter)) &&
			find_thread(tree, r->tid, r->started) == NULL)
			return true;
	}
	return false;
}

/* One more than it has: the last was in vain. */
static uint32_t of_record(
	const struct learned *l, const struct learned_record *r, const struct learned_thread *t)
{
	uint32_t depth = depth_of(l, r->last);

	return depth >= t->n && depth <= t->n + 1 && !is_lost(r, t->n) ? cut(l, r->last, t->n)
								       : LEARNED_UNKNOWN;
}

uint32_t learned_chain(
	const struct learned *l, const struct learned_tree *tree, const struct learned_thread *t)
{
	const struct learned_record *r = find_record(l, t->tid, t->started);
	uint32_t shared, filter;

	if (t->n == 0 || !of_all_threads(l, tree, t, &shared))
		return LEARNED_UNKNOWN;
	if (shared != LEARNED_UNKNOWN)
		return shared;
	filter = r != NULL ? of_record(l, r, t) : inherited(l, tree, t, t->n);
	return may_be_another(l, tree, t, filter) ? LEARNED_UNKNOWN : filter;
}

static bool hands_on(const struct learned_filter *f, const struct seccomp_data *call)
{
	const struct filter_program program = { f->code, f->n };

	return (filter_run(&program, call) & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_TRACE;
}

bool learned_refuses(const struct learned *l, const struct learned_tree *tree,
	const struct learned_thread *t, const struct seccomp_data *call)
{
	uint32_t filter = learned_chain(l, tree, t);

	if (t->n == 0 || t->traced || !l->hands_on)
		return false;
	for (size_t i = 0; filter == LEARNED_UNKNOWN && i < l->n_filters; i++) {
		if (hands_on(&l->filters[i], call))
			return true;
	}
	for (; filter != LEARNED_UNKNOWN; filter = l->filters[filter].below) {
		if (hands_on(&l->filters[filter], call))
			return true;
	}
	return false;
}

/* --- adding --- */

/* What was tried for all threads is in all, or was in vain. */
static void settle(struct learned_record *r, uint32_t n)
{
	if (r->tried != 0 && n >= r->tried)
		r->for_all = r->tried;
	r->tried = 0;
}

void learned_lost(struct learned *l, const struct learned_thread *who, bool all)
{
	const bool anybody = who->process == 0;
	struct learned_record *own = find_record(l, who->tid, who->started);

	l->forgot = true;
	if (own == NULL && !anybody)
		own = add_record(l, who);
	for (size_t i = 0; i < l->n_records; i++) {
		struct learned_record *r = &l->records[i];

		/* where it has no record of its own, those of its process say so for it */
		if (!anybody && r != own && (r->process != who->process || (own != NULL && !all)))
			continue;
		if (r == own)
			settle(r, who->n);
		if (!is_lost(r, who->n + 1))
			r->lost = who->n + 1;
	}
}

void learned_adoption(struct learned *l)
{
	l->adopted = true;
}

/* Does its own record say what it has? One for all threads of its process may have come in between. */
static bool is_on_record(
	const struct learned *l, const struct learned_record *r, const struct learned_thread *who)
{
	for (size_t i = 0; i < l->n_records; i++) {
		const struct learned_record *other = &l->records[i];

		if (other != r && other->process == who->process &&
			(other->for_all >= who->n || other->tried >= who->n))
			return false;
	}
	return r != NULL && depth_of(l, r->last) >= who->n && !is_lost(r, who->n);
}

bool learned_needs_tree(const struct learned *l, const struct learned_thread *who)
{
	return who->n > 0 && !is_on_record(l, find_record(l, who->tid, who->started), who);
}

/* Of processes that had the number of one that is new. */
static void forget_former(struct learned *l, const struct learned_thread *who)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n_records; i++) {
		if (l->records[i].process != who->process)
			l->records[n++] = l->records[i];
	}
	l->n_records = n;
}

static bool is_new(const struct learned *l, const struct learned_thread *who)
{
	for (size_t i = 0; who->tid == who->process && i < l->n_records; i++) {
		if (l->records[i].tid == who->tid && l->records[i].started != who->started)
			return true;
	}
	return false;
}

/* What a thread has that is about to install another. */
static uint32_t chain_of(
	const struct learned *l, const struct learned_tree *tree, const struct learned_thread *who)
{
	if (who->n == 0)
		return LEARNED_UNKNOWN;
	return learned_needs_tree(l, who)
		       ? learned_chain(l, tree, who)
		       : cut(l, find_record(l, who->tid, who->started)->last, who->n);
}

int learned_programs(const struct learned *l, const struct learned_tree *tree,
	const struct learned_thread *who, struct filter_program ret[LEARNED_CHAIN_MAX])
{
	uint32_t filter = is_new(l, who) ? LEARNED_UNKNOWN : chain_of(l, tree, who);

	if (depth_of(l, filter) != who->n || who->n > LEARNED_CHAIN_MAX)
		return -ENODATA;
	for (uint32_t i = who->n; i > 0; i--, filter = l->filters[filter].below)
		ret[i - 1] =
			(struct filter_program){ l->filters[filter].code, l->filters[filter].n };
	return (int)who->n;
}

void learned_add(struct learned *l, const struct learned_install *install,
	const struct learned_tree *tree, bool (*lives)(int32_t process))
{
	const struct learned_thread *who = &install->who;
	struct learned_record *r;
	uint32_t below, filter;

	if (is_new(l, who))
		forget_former(l, who);
	r = find_record(l, who->tid, who->started);
	below = chain_of(l, tree, who);
	filter = depth_of(l, below) == who->n ? find_or_add(l, below, install) : LEARNED_UNKNOWN;
	if (r == NULL && filter != LEARNED_UNKNOWN && l->n_records == RECORDS_MAX)
		forget_dead(l, lives);
	if (r == NULL && filter != LEARNED_UNKNOWN)
		r = add_record(l, who);
	if (r == NULL || filter == LEARNED_UNKNOWN) {
		learned_lost(l, who, install->all);
		return;
	}
	settle(r, who->n);
	r->last = filter;
	r->tried = install->all ? who->n + 1 : 0;
	r->lost = 0;
}

/* --- for a capture --- */

static void write_filter(const struct learned *l, uint32_t filter, struct buf *out)
{
	const struct learned_filter *f = &l->filters[filter];
	const struct seized_filter head = { .log = f->log, .n = f->n, .quiet = f->quiet };

	if (f->below != LEARNED_UNKNOWN)
		write_filter(l, f->below, out);
	buf_add(out, &head, sizeof(head));
	buf_add(out, f->code, f->n * sizeof(*f->code));
}

/* Of who have installed none themselves, all of a process that have as many have the same: only one of them is looked for. */
static bool is_as_before(const struct learned *l, const struct learned_tree *tree, size_t i)
{
	const struct learned_thread *t = &tree->all[i];

	return i > 0 && t[-1].process == t->process && t[-1].n == t->n &&
	       find_record(l, t[-1].tid, t[-1].started) == NULL &&
	       find_record(l, t->tid, t->started) == NULL;
}

void learned_write(const struct learned *l, const struct learned_tree *tree, struct buf *out)
{
	uint32_t last = LEARNED_UNKNOWN, filter = LEARNED_UNKNOWN;

	for (size_t i = 0; i < tree->n; i++) {
		struct seized_thread t = { .host = tree->all[i].tid, .n = tree->all[i].n };

		if (t.n == 0)
			continue;
		if (!is_as_before(l, tree, i))
			filter = learned_chain(l, tree, &tree->all[i]);
		if (filter == LEARNED_UNKNOWN)
			t.n = SEIZED_UNKNOWN;
		else if (filter == last)
			t.n = SEIZED_SAME;
		buf_add(out, &t, sizeof(t));
		if (filter != LEARNED_UNKNOWN && filter != last)
			write_filter(l, filter, out);
		last = filter;
	}
}

void learned_fini(struct learned *l)
{
	for (size_t i = 0; i < l->n_filters; i++)
		free(l->filters[i].code);
	free(l->filters);
	free(l->records);
	*l = (struct learned){ 0 };
}
