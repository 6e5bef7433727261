/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/image_check.c - every table of a plan and of an image, once: see the header.
 *
 * Rows that stand for themselves are looked at table by table, whoever they belong to. Those that mean something only for a process (where its memory is in the stash) are looked at
 * process by process: then no row may belong to two, so that this takes no longer than there are rows.
 */
#include "checkpoint/image_check.h"
#include "checkpoint/template_wire.h"

#define OWN_STASH   "a place in the stash is not of its process"
#define SHARED_ROWS "rows of memory belong to two processes"
#define SPAN        "a length of bytes ends behind them"
#define RANGE       "rows are named that are not there"

#define PLAN_FLAGS \
	(PLAN_LEADER | PLAN_GROUP | PLAN_ZOMBIE | PLAN_HELPER | PLAN_OLD_SESSION | \
		PLAN_NO_TERMINAL | PLAN_STOPPED | PLAN_ALONE | PLAN_ADOPTS | PLAN_LATE | \
		PLAN_NO_SYSV | 0x7fU << PLAN_SIGNAL)
#define XSAVE_MIN   576U /* what is always there, with its head */
#define XSAVE_END   4U   /* a word behind it */
#define FRAMES_MAX  ((1ULL << 36) / RESIDUE_FRAME_SIZE - 1)
#define UNIX_DOMAIN 1U
#define NAME_OFFSET 2U
#define INET_NAME   4U /* the port, behind the family */
#define ADDRESS_MAX 128U
#define TIMER_SIZE  32U
#define FILTER_SIZE 8U
#define SIGNAL_MAX  64U
#define OWNER_MAX   3U
#define LOCK_MAX    3U
#define PROTECT_MAX 7U

/** struct tables - an image whose tables are where they are said to be. */
struct tables {
	const struct image_header *image;
	const struct plan *plan;
	uint64_t rows[TABLE_COUNT];
	uint64_t regions, patches; /* of processes, so far */
	uint64_t pending,
		clients; /* connections that wait to be accepted; those that listeners name */
};

typedef const char *check_row(struct tables *t, uint32_t i);

static const uint32_t row_sizes[TABLE_COUNT] = {
	[TABLE_PROCESSES] = sizeof(struct image_process),
	[TABLE_THREADS] = sizeof(struct image_thread),
	[TABLE_REGIONS] = sizeof(struct image_region),
	[TABLE_PATCHES] = sizeof(struct image_patch),
	[TABLE_GUARDS] = sizeof(struct image_guard),
	[TABLE_DESCRIPTIONS] = sizeof(struct image_description),
	[TABLE_FDS] = sizeof(struct image_fd),
	[TABLE_WATCHES] = sizeof(struct image_watch),
	[TABLE_SIGINFOS] = sizeof(struct image_siginfo),
	[TABLE_TIMERS] = sizeof(struct image_timer),
	[TABLE_SYSV] = sizeof(struct image_sysv),
	[TABLE_TERMINALS] = sizeof(struct image_terminal),
	[TABLE_LOCKS] = sizeof(struct image_lock),
	[TABLE_NODES] = sizeof(struct image_node),
	[TABLE_PIECES] = sizeof(struct image_piece),
	[TABLE_NOTIFICATIONS] = sizeof(struct image_notification),
	[TABLE_PACKETS] = sizeof(struct image_packet),
	[TABLE_RIGHTS] = sizeof(uint32_t),
	[TABLE_FILTERS] = sizeof(struct image_filter),
	[TABLE_OPTIONS] = sizeof(struct image_option),
	[TABLE_BYTES] = 1,
};

/* --- places --- */

/* Is @at, with @length bytes, in @start..@end? */
static bool lies_in(uint64_t at, uint64_t length, uint64_t start, uint64_t end)
{
	return at >= start && at <= end && length <= end - at;
}

static bool in_stash(uint64_t at, uint64_t length)
{
	return lies_in(at, length, WINDOW_STASH, WINDOW_END);
}

/* Pages of a program: none of the restorer's. */
static bool is_programs(uint64_t start, uint64_t end)
{
	return start < end && (start | end) % IMAGE_PAGE == 0 &&
	       (end <= WINDOW_START || start >= WINDOW_END);
}

static bool has(const struct tables *t, enum image_table table, uint32_t first, uint32_t n)
{
	return n == 0 || (first < t->rows[table] && n <= t->rows[table] - first);
}

static const void *row_at(const struct tables *t, enum image_table table, uint64_t i)
{
	return (const char *)t->image + t->image->tables[table].offset + i * row_sizes[table];
}

static const struct image_description *description_at(const struct tables *t, uint64_t i)
{
	return row_at(t, TABLE_DESCRIPTIONS, i);
}

static bool is_description(const struct tables *t, uint64_t i)
{
	return i < t->rows[TABLE_DESCRIPTIONS];
}

static bool is_span(const struct tables *t, struct image_span s)
{
	return lies_in(s.offset, s.length, 0, t->rows[TABLE_BYTES]);
}

/* Something, with a NUL behind it. */
static bool is_text(const struct tables *t, struct image_span s)
{
	return s.length > 0 && is_span(t, s) && s.offset + s.length < t->rows[TABLE_BYTES] &&
	       *(const char *)row_at(t, TABLE_BYTES, s.offset + s.length) == '\0';
}

static bool is_text_or_none(const struct tables *t, struct image_span s)
{
	return s.length == 0 ? is_span(t, s) : is_text(t, s);
}

/* --- the plan --- */

/* Are those whose stash @p has too among those that it is cloned from, itself or by others? */
static bool has_base(const struct plan *plan, const struct plan_process *p)
{
	const struct plan_process *all = (const struct plan_process *)(plan + 1);
	uint32_t i = p->parent;

	while (i != IMAGE_NONE && all[i].pid != p->base)
		i = all[i].parent;
	return i != IMAGE_NONE;
}

static const char *check_planned(const struct plan *plan, const struct plan_process *p, uint32_t i)
{
	bool empty = (p->flags & (PLAN_ZOMBIE | PLAN_HELPER)) != 0;

	if (p->pid <= 1 || p->group < 0 || p->foreground < 0 ||
		(p->flags & ~(uint32_t)PLAN_FLAGS) != 0)
		return "a process has no number, or no known one";
	if (p->flags >> PLAN_SIGNAL > (p->parent == IMAGE_NONE ? 0 : 1 + SIGNAL_MAX))
		return "a process ends with a signal that cannot be";
	if (p->parent != IMAGE_NONE && p->parent >= i)
		return "a process comes before its parent";
	if (p->parent == IMAGE_NONE && plan->n_leaves > 0 && p->leaf >= plan->n_leaves)
		return "a process is of a control group that is not there";
	if (p->terminal > plan->n_descriptions ||
		(p->terminal == 0 && ((p->flags & PLAN_NO_TERMINAL) != 0 || p->foreground != 0)))
		return "a process has a terminal that is not there";
	if (empty != (p->image == IMAGE_NONE))
		return "a process that goes on is in no image";
	if (p->stash_end != 0 && (p->stash_end < p->stash_start ||
					 !in_stash(p->stash_start, p->stash_end - p->stash_start)))
		return "a process' memory is not in the stash";
	if (p->base != 0 && !has_base(plan, p))
		return "a process has memory of one that it does not come from";
	return NULL;
}

static const char *check_memory(const struct plan_map *maps, uint32_t n_maps,
	const struct plan_copy *copies, uint32_t n_copies)
{
	uint64_t left =
		WINDOW_END - WINDOW_STASH; /* none is copied twice, and their sum is a number */

	for (uint32_t i = 0; i < n_maps; i++) {
		if (!in_stash(maps[i].address, maps[i].length))
			return "a mapping is not in the stash";
	}
	for (uint32_t i = 0; i < n_copies; i++) {
		if (!in_stash(copies[i].to, copies[i].length) || copies[i].length > left)
			return "what is copied is not in the stash";
		left -= copies[i].length;
	}
	return NULL;
}

const char *plan_check(const struct plan *plan, uint64_t size)
{
	const struct plan_process *processes = (const struct plan_process *)(plan + 1);
	const struct plan_map *maps;
	const char *wrong = NULL;

	if (size < sizeof(*plan) || plan->magic != PLAN_MAGIC)
		return "it is none";
	if (plan->version != IMAGE_VERSION)
		return "it is of another version";
	if (plan->n_processes > TEMPLATE_PIDS_MAX * 2 || plan->n_maps > 1U << 20 ||
		plan->n_copies > 1U << 24 || plan->n_leaves > TEMPLATE_LEAVES_MAX ||
		plan->n_slots > TEMPLATE_SLOTS_MAX || plan->n_descriptions > PLAN_FILES_MAX ||
		plan->first_description > PLAN_FILES_MAX)
		return "there is too much of something";
	if (plan->first_description < PLAN_FIRST_DESCRIPTION)
		return "its descriptions begin too low";
	if (size < sizeof(*plan) + (uint64_t)plan->n_processes * sizeof(*processes) +
			   (uint64_t)plan->n_maps * sizeof(*maps) +
			   (uint64_t)plan->n_copies * sizeof(struct plan_copy))
		return "it ends too early";
	for (uint32_t i = 0; i < plan->n_processes && wrong == NULL; i++)
		wrong = check_planned(plan, &processes[i], i);
	if (wrong != NULL)
		return wrong;
	maps = (const struct plan_map *)(processes + plan->n_processes);
	return check_memory(maps, plan->n_maps, (const struct plan_copy *)(maps + plan->n_maps),
		plan->n_copies);
}

/* --- tables --- */

static const char *check_tables(struct tables *t, uint64_t size)
{
	const struct image_header *h = t->image;

	if (size < sizeof(*h) || h->magic != IMAGE_MAGIC)
		return "it is none";
	if (h->version != IMAGE_VERSION)
		return "it is of another version";
	if (h->size > size)
		return "it ends too early";
	for (int i = 0; i < TABLE_COUNT; i++) {
		uint64_t at = h->tables[i].offset, n = h->tables[i].count;

		if (!lies_in(at, n, sizeof(*h), h->size) || at % sizeof(uint64_t) != 0 ||
			n % row_sizes[i] != 0 ||
			(i != TABLE_BYTES && n / row_sizes[i] >= IMAGE_NONE))
			return "a table is not in it";
		t->rows[i] = n / row_sizes[i];
	}
	return t->rows[TABLE_DESCRIPTIONS] == t->plan->n_descriptions
		       ? NULL
		       : "the plan is of another one";
}

/* --- descriptions --- */

/* Of a unix socket its path is read, of others the port. */
static bool is_address(
	const struct tables *t, const struct image_description *d, struct image_span name)
{
	uint64_t least = (d->c & 0xffff) == UNIX_DOMAIN ? NAME_OFFSET : INET_NAME;

	return name.length == 0
		       ? is_span(t, name)
		       : name.length >= least && name.length <= ADDRESS_MAX && is_text(t, name);
}

static const char *check_socket(const struct tables *t, const struct image_description *d)
{
	if (!is_address(t, d, d->path) || !is_address(t, d, d->remote))
		return "a socket's address is none";
	if (!is_text_or_none(t, d->folder) || !is_text_or_none(t, d->place))
		return "a socket's place is none";
	if (d->place.length > 0 && d->path.length <= NAME_OFFSET)
		return "a socket's name was changed that it never had";
	if ((d->position & (SOCKET_NAMELESS | SOCKET_REPLACED)) != 0 &&
		d->path.length <= NAME_OFFSET)
		return "a socket's name was removed that it never had";
	if (!has(t, TABLE_PACKETS, d->first_packet, d->n_packets) ||
		!has(t, TABLE_OPTIONS, d->first_option, d->n_options))
		return RANGE;
	return NULL;
}

/* Each end knows the other; the lower one makes both. */
static const char *check_pair(
	const struct tables *t, const struct image_description *d, uint32_t i, uint32_t kind)
{
	const struct image_description *other;

	if (d->peer == IMAGE_NONE)
		return NULL;
	if (d->peer == i || !is_description(t, d->peer))
		return "an other end is not there";
	other = description_at(t, d->peer);
	return other->kind == kind && other->peer == i ? NULL : "an other end is another's";
}

static const char *check_listener(struct tables *t, const struct image_description *d, uint32_t i)
{
	const uint32_t *clients = row_at(t, TABLE_BYTES, d->data.offset);
	uint64_t n = d->data.length / sizeof(*clients);

	if (d->data.offset % sizeof(*clients) != 0 || d->data.length % sizeof(*clients) != 0)
		return SPAN;
	t->clients += n;
	if (t->clients > t->rows[TABLE_DESCRIPTIONS])
		return "a connection waits at two listeners";
	for (uint64_t k = 0; k < n; k++) {
		if (!is_description(t, clients[k]) ||
			description_at(t, clients[k])->kind != DESCRIPTION_PENDING ||
			description_at(t, clients[k])->peer != i)
			return "a listener has connections that are not there";
	}
	return NULL;
}

static const char *check_pending(struct tables *t, const struct image_description *d)
{
	t->pending++;
	return is_description(t, d->peer) && description_at(t, d->peer)->kind == DESCRIPTION_LISTEN
		       ? NULL
		       : "a connection waits at no listener";
}

/* Is what there is of it within it, each byte once? */
static bool has_runs(const struct tables *t, const struct image_description *d)
{
	const struct image_run *runs;
	uint64_t n = d->data.length / sizeof(*runs), end = 0;

	if (d->data.offset % sizeof(uint64_t) != 0 || d->data.length % sizeof(*runs) != 0)
		return false;
	runs = n > 0 ? row_at(t, TABLE_BYTES, d->data.offset) : NULL;
	for (uint64_t i = 0; i < n; i++) {
		if (!lies_in(runs[i].at, runs[i].length, end, d->c))
			return false;
		end = runs[i].at + runs[i].length;
	}
	return true;
}

/* In the stash, or, where there is nothing, in @data, which all have. */
static const char *check_content(const struct tables *t, const struct image_description *d)
{
	return d->c == 0 || (in_stash(d->b, d->c) && has_runs(t, d))
		       ? NULL
		       : "what is in a file is not in the stash";
}

static const char *if_not(bool right, const char *wrong)
{
	return right ? NULL : wrong;
}

/* Which file it was, where that is mapped; of a directory, the names that come next. */
static const char *check_file(const struct tables *t, const struct image_description *d)
{
	if (!is_text_or_none(t, d->place))
		return "a directory has no end of names";
	return if_not(d->data.length == 0 || (d->data.length == sizeof(struct image_file) &&
						     d->data.offset % sizeof(uint64_t) == 0),
		"nobody says which file it was");
}

/* One of several of the same file comes behind the one that has the content. */
static const char *check_unlinked(
	const struct tables *t, const struct image_description *d, uint32_t i)
{
	const struct image_description *first;

	if (d->a == 0)
		return check_content(t, d);
	first = d->a <= i ? description_at(t, d->a - 1) : NULL;
	return first != NULL && (first->kind == DESCRIPTION_UNLINKED ||
					first->kind == DESCRIPTION_MEMORY)
		       ? NULL
		       : "a file without a name is another's";
}

/* One of several of the same pipe comes behind the one that makes it, and is no end of it. */
static const char *check_pipe(
	const struct tables *t, const struct image_description *d, uint32_t i, uint32_t other)
{
	const struct image_description *first;

	if (d->c == 0)
		return check_pair(t, d, i, other);
	first = d->c <= i ? description_at(t, d->c - 1) : NULL;
	return first != NULL && d->peer == IMAGE_NONE &&
			       (first->kind == DESCRIPTION_PIPE_READ ||
				       first->kind == DESCRIPTION_PIPE_WRITE)
		       ? NULL
		       : "an end of a pipe is another's";
}

static bool is_terminal(const struct tables *t, uint64_t i)
{
	return i < t->rows[TABLE_TERMINALS];
}

static const char *check_by_kind(struct tables *t, const struct image_description *d, uint32_t i)
{
	switch ((enum image_description_kind)d->kind) {
	case DESCRIPTION_FILE:
		return check_file(t, d);
	case DESCRIPTION_FIFO:
	case DESCRIPTION_PROC:
		return NULL;
	case DESCRIPTION_SLOT:
		return if_not(d->a < t->plan->n_slots, "the keeper has no such end");
	case DESCRIPTION_PIPE_READ:
		return check_pipe(t, d, i, DESCRIPTION_PIPE_WRITE);
	case DESCRIPTION_PIPE_WRITE:
		return check_pipe(t, d, i, DESCRIPTION_PIPE_READ);
	case DESCRIPTION_CONNECTION:
		return check_pair(t, d, i, DESCRIPTION_CONNECTION);
	case DESCRIPTION_TIMERFD:
		return if_not(d->data.length == TIMER_SIZE, "a timer is not set");
	case DESCRIPTION_MEMORY:
		return check_content(t, d);
	case DESCRIPTION_UNLINKED:
		return check_unlinked(t, d, i);
	case DESCRIPTION_LISTEN:
		return check_listener(t, d, i);
	case DESCRIPTION_PENDING:
		return check_pending(t, d);
	case DESCRIPTION_INOTIFY:
		return if_not(d->a <= t->rows[TABLE_NOTIFICATIONS] &&
				      d->b <= t->rows[TABLE_NOTIFICATIONS] - d->a,
			RANGE);
	case DESCRIPTION_MASTER:
		return if_not(is_terminal(t, d->a), "a terminal is not there");
	case DESCRIPTION_TERMINAL:
		return if_not(
			d->a == IMAGE_NONE || is_terminal(t, d->a), "a terminal is not there");
	case DESCRIPTION_EVENTFD:
	case DESCRIPTION_EPOLL:
	case DESCRIPTION_SIGNALFD:
	case DESCRIPTION_SOCKET:
	case DESCRIPTION_PIDFD:
		return NULL;
	}
	return "a description is of no known kind";
}

static bool is_socket(const struct image_description *d)
{
	return d->kind == DESCRIPTION_CONNECTION || d->kind == DESCRIPTION_LISTEN ||
	       d->kind == DESCRIPTION_SOCKET || d->kind == DESCRIPTION_PENDING;
}

static bool is_pair(const struct image_description *d)
{
	return d->kind == DESCRIPTION_PIPE_READ || d->kind == DESCRIPTION_PIPE_WRITE ||
	       d->kind == DESCRIPTION_CONNECTION || d->kind == DESCRIPTION_PENDING;
}

/* Of a file without a name the first description says where it was; a memory file may have been called nothing at all. */
static bool is_named(const struct image_description *d)
{
	return d->kind == DESCRIPTION_FILE || d->kind == DESCRIPTION_FIFO ||
	       d->kind == DESCRIPTION_PROC || (d->kind == DESCRIPTION_UNLINKED && d->a == 0);
}

static const char *check_description(struct tables *t, uint32_t i)
{
	const struct image_description *d = description_at(t, i);
	const char *wrong = is_socket(d) ? check_socket(t, d) : NULL;

	if (!is_span(t, d->data))
		return SPAN;
	if (!has(t, TABLE_LOCKS, d->first_lock, d->n_locks))
		return RANGE;
	if (!is_pair(d) && d->peer != IMAGE_NONE)
		return "something has an other end that has none";
	if (is_named(d) ? !is_text(t, d->path) : !is_text_or_none(t, d->path))
		return "a description has no name";
	if (d->owner.type > OWNER_MAX || d->owner.signal > SIGNAL_MAX)
		return "a description tells nobody of it";
	return wrong != NULL ? wrong : check_by_kind(t, d, i);
}

/* --- rows that stand for themselves --- */

static const char *check_thread(struct tables *t, uint32_t i)
{
	const struct image_thread *p = row_at(t, TABLE_THREADS, i);

	if (p->tid <= 1 || p->name[sizeof(p->name) - 1] != '\0')
		return "a thread has no number or name";
	if (!is_span(t, p->xsave) || !is_span(t, p->processors))
		return SPAN;
	if (p->xsave.length < XSAVE_MIN ||
		p->xsave.length > RESIDUE_FRAME_SIZE - RESIDUE_XSAVE - XSAVE_END)
		return "a thread's registers do not fit into their frame";
	return if_not(has(t, TABLE_SIGINFOS, p->first_siginfo, p->n_siginfos) &&
			      has(t, TABLE_FILTERS, p->first_filter, p->n_filters),
		RANGE);
}

static const char *check_guard(struct tables *t, uint32_t i)
{
	const struct image_guard *g = row_at(t, TABLE_GUARDS, i);

	return if_not(is_programs(g->start, g->end), "guards are where no program's memory is");
}

static const char *check_fd(struct tables *t, uint32_t i)
{
	const struct image_fd *f = row_at(t, TABLE_FDS, i);

	return if_not(f->fd >= 0 && (uint32_t)f->fd < t->plan->first_description &&
			      is_description(t, f->description),
		"a descriptor is of nothing");
}

static const char *check_watch(struct tables *t, uint32_t i)
{
	const struct image_watch *w = row_at(t, TABLE_WATCHES, i);

	return if_not(w->epoll >= 0 && w->target >= 0 &&
			      (w->description == IMAGE_NONE || is_description(t, w->description)),
		"an epoll set waits for nothing");
}

/* The bytes of each message follow its head. */
static bool has_messages(const struct tables *t, const struct image_sysv *s)
{
	struct image_message head;
	uint64_t at = 0;

	/* so it takes no longer than there are bytes */
	if (s->n_messages > s->data.length / sizeof(head))
		return false;
	for (uint32_t i = 0; i < s->n_messages; i++) {
		const char *from = row_at(t, TABLE_BYTES, s->data.offset + at);

		if (s->data.length - at < sizeof(head))
			return false;
		for (size_t k = 0; k < sizeof(head); k++)
			((char *)&head)[k] = from[k];
		at += sizeof(head);
		if (head.length > s->data.length - at)
			return false;
		at += head.length;
	}
	return true;
}

/* And each message, which is a part of it here, lies in it. */
static bool has_parts(const struct tables *t, const struct image_sysv *s)
{
	struct image_message head;
	uint64_t at = 0;

	if (!has_messages(t, s))
		return false;
	for (uint32_t i = 0; i < s->n_messages; i++) {
		const char *from = row_at(t, TABLE_BYTES, s->data.offset + at);

		for (size_t k = 0; k < sizeof(head); k++)
			((char *)&head)[k] = from[k];
		if (head.type < 0 || !lies_in((uint64_t)head.type, head.length, 0, s->size))
			return false;
		at += sizeof(head) + head.length;
	}
	return true;
}

static const char *check_sysv(struct tables *t, uint32_t i)
{
	const struct image_sysv *s = row_at(t, TABLE_SYSV, i);
	const char *wrong = "a System V object has not what is in it";

	if (!is_span(t, s->data))
		return SPAN;
	if (s->id < 0)
		return "a System V object has no number";
	switch ((enum image_sysv_kind)s->kind) {
	case SYSV_SHM:
		/* attached to be taken apart */
		return if_not(s->data.length <= s->size &&
				      s->size <= WINDOW_VDSO - WINDOW_COPY - IMAGE_PAGE,
			wrong);
	case SYSV_SEM:
		return if_not(s->size <= s->data.length / sizeof(uint16_t), wrong);
	case SYSV_MSG:
		return if_not(has_messages(t, s), wrong);
	case SYSV_SPARSE:
		return if_not(has_parts(t, s) && s->size <= WINDOW_VDSO - WINDOW_COPY - IMAGE_PAGE,
			wrong);
	}
	return "a System V object is of no known kind";
}

static const char *check_terminal(struct tables *t, uint32_t i)
{
	const struct image_terminal *x = row_at(t, TABLE_TERMINALS, i);

	if (!is_span(t, x->input) || !is_span(t, x->output))
		return SPAN;
	return if_not(
		x->slot == IMAGE_NONE || x->slot < t->plan->n_slots, "a terminal has no master");
}

static const char *check_lock(struct tables *t, uint32_t i)
{
	const struct image_lock *l = row_at(t, TABLE_LOCKS, i);

	return if_not(l->kind >= 1 && l->kind <= LOCK_MAX && l->fd >= 0, "a lock is of no kind");
}

static const char *check_node(struct tables *t, uint32_t i)
{
	const struct image_node *n = row_at(t, TABLE_NODES, i);

	if (!is_text(t, n->path) || !is_text_or_none(t, n->target))
		return "an entry in memory has no name";
	if (!has(t, TABLE_PIECES, n->first_piece, n->n_pieces))
		return RANGE;
	return if_not(n->link == IMAGE_NONE || n->link < i,
		"an entry in memory is another's before that is there");
}

static const char *check_piece(struct tables *t, uint32_t i)
{
	const struct image_piece *p = row_at(t, TABLE_PIECES, i);

	return if_not(is_span(t, p->data) && lies_in(p->at, p->data.length, 0, INT64_MAX), SPAN);
}

static const char *check_notification(struct tables *t, uint32_t i)
{
	const struct image_notification *n = row_at(t, TABLE_NOTIFICATIONS, i);

	return if_not(n->wd > 0 && is_text(t, n->path), "an inotify queue watches nothing");
}

static const char *check_packet(struct tables *t, uint32_t i)
{
	const struct image_packet *p = row_at(t, TABLE_PACKETS, i);

	if (!is_span(t, p->data) || p->from.length > ADDRESS_MAX || p->from.length == 1 ||
		!is_text_or_none(t, p->from))
		return SPAN;
	return if_not(p->n_rights <= IMAGE_RIGHTS_MAX &&
			      has(t, TABLE_RIGHTS, p->first_right, p->n_rights),
		RANGE);
}

static const char *check_right(struct tables *t, uint32_t i)
{
	return if_not(is_description(t, *(const uint32_t *)row_at(t, TABLE_RIGHTS, i)),
		"a descriptor waits that is of nothing");
}

static const char *check_filter(struct tables *t, uint32_t i)
{
	const struct image_filter *f = row_at(t, TABLE_FILTERS, i);

	if (f->install > INSTALL_NOT)
		return "a system call filter is installed in no way that there is";
	return if_not(is_span(t, f->code) && f->code.length % FILTER_SIZE == 0, SPAN);
}

static const char *check_option(struct tables *t, uint32_t i)
{
	const struct image_option *o = row_at(t, TABLE_OPTIONS, i);

	return if_not(is_span(t, o->value), SPAN);
}

/* Of the others every bit is the kernel's, or they are looked at with their process. */
static const char *check_rows(struct tables *t)
{
	static check_row *const check[TABLE_COUNT] = {
		[TABLE_THREADS] = check_thread,
		[TABLE_GUARDS] = check_guard,
		[TABLE_DESCRIPTIONS] = check_description,
		[TABLE_FDS] = check_fd,
		[TABLE_WATCHES] = check_watch,
		[TABLE_SYSV] = check_sysv,
		[TABLE_TERMINALS] = check_terminal,
		[TABLE_LOCKS] = check_lock,
		[TABLE_NODES] = check_node,
		[TABLE_PIECES] = check_piece,
		[TABLE_NOTIFICATIONS] = check_notification,
		[TABLE_PACKETS] = check_packet,
		[TABLE_RIGHTS] = check_right,
		[TABLE_FILTERS] = check_filter,
		[TABLE_OPTIONS] = check_option,
	};
	const char *wrong = NULL;

	for (int table = 0; table < TABLE_COUNT; table++) {
		for (uint32_t i = 0; check[table] != NULL && i < t->rows[table] && wrong == NULL;
			i++)
			wrong = check[table](t, i);
	}
	if (wrong == NULL && t->pending != t->clients)
		wrong = "a connection waits at no listener";
	return wrong;
}

/* --- processes --- */

/* Of its part of the stash. */
static bool is_own(const struct plan_process *p, uint64_t at, uint64_t length)
{
	return p->stash_end != 0 && lies_in(at, length, p->stash_start, p->stash_end);
}

/* Of that of one that @p has some memory of. */
static bool is_an_ancestors(
	const struct tables *t, const struct plan_process *p, uint64_t at, uint64_t length)
{
	const struct plan_process *all = (const struct plan_process *)(t->plan + 1), *one = p;

	if (p->base == 0)
		return false;
	do {
		one = &all[one->parent];
		if (is_own(one, at, length))
			return true;
	} while (one->pid != p->base);
	return false;
}

/* Changed pages of a file may be as an ancestor has them; of other memory there may be none. */
static bool is_there(const struct tables *t, const struct plan_process *p,
	const struct image_region *r, const struct image_patch *x)
{
	if (is_own(p, x->stash, x->length))
		return true;
	return r->kind == REGION_ANON ? x->stash == 0 : is_an_ancestors(t, p, x->stash, x->length);
}

static const char *check_patches(
	const struct tables *t, const struct plan_process *p, const struct image_region *r)
{
	for (uint32_t i = 0; i < r->n_patches; i++) {
		const struct image_patch *x =
			row_at(t, TABLE_PATCHES, (uint64_t)r->first_patch + i);

		if (!lies_in(x->target, x->length, r->start, r->end))
			return "changed pages are not in their mapping";
		if (!is_there(t, p, r, x))
			return OWN_STASH;
	}
	return NULL;
}

/* The beginning of it, at least. */
static bool is_inherited(
	const struct tables *t, const struct plan_process *p, const struct image_region *r)
{
	return r->offset > 0 && r->offset % IMAGE_PAGE == 0 && r->offset <= r->end - r->start &&
	       is_an_ancestors(t, p, r->stash, r->offset);
}

static bool is_segment(const struct tables *t, const struct image_region *r)
{
	const struct image_sysv *s;

	if (r->description >= t->rows[TABLE_SYSV])
		return false;
	s = row_at(t, TABLE_SYSV, r->description);
	return image_is_segment(s) &&
	       lies_in(r->offset, r->end - r->start, 0,
		       (s->size + IMAGE_PAGE - 1) & ~(uint64_t)(IMAGE_PAGE - 1));
}

static const char *check_region(
	const struct tables *t, const struct plan_process *p, const struct image_region *r)
{
	uint64_t length = r->end - r->start;

	switch ((enum image_region_kind)r->kind) {
	case REGION_ANON:
		if ((r->flags & REGION_INHERITED) != 0)
			return if_not(is_inherited(t, p, r), OWN_STASH);
		return if_not(r->stash == 0 || is_own(p, r->stash, length), OWN_STASH);
	case REGION_FILE:
		return if_not(
			is_description(t, r->description), "a file that is mapped is not there");
	case REGION_VDSO:
		return if_not(lies_in(r->offset, length, 0, WINDOW_STASH - WINDOW_VDSO),
			"the vDSO is too large");
	case REGION_SYSV:
		return if_not(is_segment(t, r), "a segment that is mapped is not there");
	}
	return "a mapping is of no known kind";
}

/* They come in the order of their addresses, and none in another's place. */
static const char *check_regions(
	struct tables *t, const struct plan_process *p, const struct image_process *o)
{
	const char *wrong = NULL;
	uint64_t end = 0;

	t->regions += o->n_regions;
	if (t->regions > t->rows[TABLE_REGIONS])
		return SHARED_ROWS;
	for (uint32_t i = 0; i < o->n_regions && wrong == NULL; i++) {
		const struct image_region *r =
			row_at(t, TABLE_REGIONS, (uint64_t)o->first_region + i);

		if (!is_programs(r->start, r->end) || r->start < end || r->prot > PROTECT_MAX)
			return "a mapping is where none can be";
		if (!has(t, TABLE_PATCHES, r->first_patch, r->n_patches))
			return RANGE;
		t->patches += r->n_patches;
		if (t->patches > t->rows[TABLE_PATCHES])
			return SHARED_ROWS;
		end = r->end;
		wrong = check_region(t, p, r);
		if (wrong == NULL)
			wrong = check_patches(t, p, r);
	}
	return wrong;
}

static bool has_ranges(const struct tables *t, const struct image_process *o)
{
	return has(t, TABLE_THREADS, o->first_thread, o->n_threads) &&
	       has(t, TABLE_REGIONS, o->first_region, o->n_regions) &&
	       has(t, TABLE_GUARDS, o->first_guard, o->n_guards) &&
	       has(t, TABLE_FDS, o->first_fd, o->n_fds) &&
	       has(t, TABLE_WATCHES, o->first_watch, o->n_watches) &&
	       has(t, TABLE_SIGINFOS, o->first_siginfo, o->n_siginfos) &&
	       has(t, TABLE_TIMERS, o->first_timer, o->n_timers) &&
	       has(t, TABLE_LOCKS, o->first_lock, o->n_locks);
}

/* All that a process which goes on has; rows of those that have ended say nothing. */
static const char *check_process(struct tables *t, const struct plan_process *p)
{
	const struct image_process *o;
	const struct image_thread *first;

	if (p->image >= t->rows[TABLE_PROCESSES])
		return "a process is not in it";
	o = row_at(t, TABLE_PROCESSES, p->image);
	if (o->pid != p->pid)
		return "a process is another one in the plan";
	if (!has_ranges(t, o))
		return RANGE;
	if (o->n_threads == 0 || o->n_threads > FRAMES_MAX)
		return "a process has no threads, or too many";
	if (!is_description(t, o->exe) || !is_description(t, o->cwd) ||
		(o->root != IMAGE_NONE && !is_description(t, o->root)))
		return "a process' program or directory is not there";
	if (!is_span(t, o->groups) || o->groups.length % sizeof(uint32_t) != 0 ||
		!is_span(t, o->auxv))
		return SPAN;
	first = row_at(t, TABLE_THREADS, o->first_thread);
	if ((o->own_filters != 0 && o->shared_filters > first->n_filters) ||
		o->stopped > IMAGE_STOPPED_HEARD)
		return "a process has filters that are not there, or is in no known state";
	return check_regions(t, p, o);
}

const char *image_check(const struct image_header *image, uint64_t size, const struct plan *plan)
{
	const struct plan_process *p = (const struct plan_process *)(plan + 1);
	struct tables t = { .image = image, .plan = plan };
	const char *wrong = check_tables(&t, size);

	if (wrong == NULL)
		wrong = check_rows(&t);
	for (uint32_t i = 0; i < plan->n_processes && wrong == NULL; i++) {
		if (p[i].image != IMAGE_NONE)
			wrong = check_process(&t, &p[i]);
	}
	return wrong;
}
