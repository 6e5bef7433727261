/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events/process_source.c - see the header.
 *
 * One table maps pids to what is known of them: a keeper (its children begin groups) or a member of a group. A group is one child of a keeper with all its
 * descendants; it is bound (to an exec or the init) or holds its events back. A group dies with its last process. One that is not bound then may still be named by its keeper; nobody
 * names helpers of the keeper (a dumper for each capture), so of those that have ended the oldest are forgotten.
 *
 * Processes that come from a template have a parent of their own, a child of the template, beside the keeper. It is there before anybody knows for which sandbox:
 * until it is claimed what is below it is of a follow without a sandbox.
 *
 * A sandbox has a budget of the log for its processes (log_budget.h). Above it they are counted, and told as one loss: without that one that executes programs without end would drive out of the
 * log what all have done, itself above all.
 */
#include "events/process_source.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"
#include "events/argv_reader.h"
#include "events/log_budget.h"

#define BUCKETS       8192
#define HELD_MAX      65536
#define BATCH         256
#define ARGV_MAX      1024             /* bytes of JSON text */
#define WAIT_WORTH    (32 * NS_PER_MS) /* less is not begun: a child is lost by it */
#define ARGUMENT_TEXT 3                /* quotes and comma */
#define UTF8_MAX      4
#define ENDED_KEPT    64 /* groups of a follow that have ended unnamed, however long ago */
#define ENDED_NS      (60 * NS_PER_S)
#define EVENT_BYTES   350 /* a line of the log without arguments, about */
#define TELL_NS \
	(10 * NS_PER_S) /* so often losses are told to those that have no event of their own */

/* How long whoever keeps us waiting may do so: at once, and as a part of the time, by which it comes again. */
struct patience {
	uint64_t most_ns, share;
};

static const struct patience of_one = { 250 * NS_PER_MS, 16 }, /* sandbox */
	of_all = { NS_PER_S, 4 };

struct waiting {
	uint64_t ns, at; /* less what has come again until then */
};

struct follow {
	struct list node;
	struct map_node by_sandbox;
	struct list procs; /* all of it that is known */
	struct list ended; /* groups that wait to be named, the one that ended first in front */
	size_t n_ended;
	char sandbox[ID_LEN + 1]; /* "" = a template, or a parent that nobody has claimed */
	bool template;
	bool settled; /* what came and is not bound belongs to no exec */
	uint64_t epoch;
	bool started;         /* a keeper of the pool has no log yet */
	uint64_t lost_before; /* losses of the source that its log tells, or that were before it */
	struct log_budget budget;
	uint64_t over;          /* events above it that are not told yet */
	struct waiting waiting; /* for its arguments */
};

struct held {
	struct proc_event_note note;
	char *argv; /* EXEC: JSON array text, or NULL */
};

struct group {
	struct follow *follow;
	bool bound;
	bool came;  /* with a parent that was claimed */
	pid_t root; /* the first of it */
	pid_t last; /* the one that ended last, while it is in @follow's ended */
	uint64_t ended_ns;
	struct list ended;
	char exec[ID_LEN +
		  1]; /* "" = the sandbox's init, or what came with a fork and is of no exec that runs */
	size_t members;
	struct held *held;
	size_t n_held, cap_held;
	uint64_t dropped;
};

struct proc {
	struct proc *next;
	struct list of_follow;
	pid_t pid;
	struct group *group; /* NULL: a keeper, a template, the parent of what came from one */
	struct follow *follow;
};

struct process_source {
	struct journal *journal;
	struct proc_connector connector;
	struct argv_reader reader;
	struct waiting waiting; /* for all that it reads */
	struct proc *buckets[BUCKETS];
	struct list follows;
	struct map by_sandbox;
	uint64_t lost;        /* of all processes of the machine, since we listen */
	uint64_t tell_due_ns; /* when everybody is told of losses next */
};

struct process_source *process_source_new(
	struct journal *journal, const struct proc_connector *connector)
{
	struct process_source *ps = xnew(struct process_source);

	ps->journal = journal;
	ps->connector = *connector;
	ps->reader = (struct argv_reader)ARGV_READER_NONE;
	if (connector->fd >= 0)
		argv_reader_begin(&ps->reader);
	list_init(&ps->follows);
	return ps;
}

static struct proc **slot_of(struct process_source *ps, pid_t pid)
{
	return &ps->buckets[(unsigned int)pid % BUCKETS];
}

static struct proc *proc_find(struct process_source *ps, pid_t pid)
{
	for (struct proc *p = *slot_of(ps, pid); p != NULL; p = p->next) {
		if (p->pid == pid)
			return p;
	}
	return NULL;
}

static struct group *group_new(struct follow *f, pid_t root)
{
	struct group *g = xnew(struct group);

	g->follow = f;
	g->root = root;
	list_init(&g->ended);
	return g;
}

/* It is named, moved or freed. */
static void leave_ended(struct group *g)
{
	if (list_empty(&g->ended))
		return;
	list_remove(&g->ended);
	g->follow->n_ended--;
}

static void join_ended(struct group *g)
{
	list_append(&g->follow->ended, &g->ended);
	g->follow->n_ended++;
}

static void group_free(struct group *g)
{
	leave_ended(g);
	for (size_t i = 0; i < g->n_held; i++)
		free(g->held[i].argv);
	free(g->held);
	free(g);
}

static void proc_remove(struct process_source *ps, pid_t pid)
{
	for (struct proc **at = slot_of(ps, pid); *at != NULL; at = &(*at)->next) {
		struct proc *p = *at;

		if (p->pid != pid)
			continue;
		*at = p->next;
		list_remove(&p->of_follow);
		if (p->group != NULL && --p->group->members == 0)
			group_free(p->group);
		free(p);
		return;
	}
}

static struct proc *proc_add(
	struct process_source *ps, pid_t pid, struct group *g, struct follow *f)
{
	struct proc *p = xnew(struct proc);

	proc_remove(ps, pid); /* a pid that was used again after its exit was lost */
	p->pid = pid;
	p->group = g;
	p->follow = f;
	if (g != NULL)
		g->members++;
	p->next = *slot_of(ps, pid);
	*slot_of(ps, pid) = p;
	list_append(&f->procs, &p->of_follow);
	return p;
}

static struct follow *follow_new(struct process_source *ps, const char *sandbox)
{
	struct follow *f = xnew(struct follow);

	(void)!str_copy(f->sandbox, sizeof(f->sandbox), sandbox);
	f->epoch = 1;
	f->lost_before = ps->lost;
	log_budget_init(&f->budget, ps->journal);
	list_init(&f->procs);
	list_init(&f->ended);
	list_append(&ps->follows, &f->node);
	if (sandbox[0] != '\0')
		map_add(&ps->by_sandbox, &f->by_sandbox, f->sandbox);
	return f;
}

static void follow_free(struct process_source *ps, struct follow *f)
{
	while (!list_empty(&f->procs))
		proc_remove(ps, list_entry(f->procs.next, struct proc, of_follow)->pid);
	list_remove(&f->node);
	if (f->sandbox[0] != '\0')
		map_remove(&ps->by_sandbox, &f->by_sandbox);
	free(f);
}

int process_source_fd(const struct process_source *ps)
{
	return ps->connector.wake;
}

/* Bytes of @c in a JSON text. */
static size_t text_size(char c)
{
	if (c == '"' || c == '\\' || (c >= '\b' && c <= '\r' && c != '\v'))
		return 2;
	return (unsigned char)c < 0x20 ? 6 : 1;
}

/* End @arg where its JSON text would be longer than @left, between characters. Return: what is left behind it. */
static size_t cut(char *arg, size_t left)
{
	char *p = arg;

	for (; *p != '\0' && text_size(*p) <= left; p++)
		left -= text_size(*p);
	if (*p == '\0')
		return left;
	while (p > arg && ((unsigned char)*p & 0xC0) == 0x80)
		p--;
	*p = '\0';
	return 0;
}

/* Take off what is left of a character whose end was not read. */
static void end_whole(char *arg)
{
	size_t n = strlen(arg);

	for (int i = 0; i < UTF8_MAX - 1 && n > 0 && !str_utf8_valid(arg, n); i++)
		arg[--n] = '\0';
}

static uint64_t wait_left(struct waiting *w, const struct patience *p, uint64_t now)
{
	const uint64_t again = (now - w->at) / p->share;

	w->ns -= again < w->ns ? again : w->ns;
	w->at = now;
	return w->ns < p->most_ns ? p->most_ns - w->ns : 0;
}

/* Whoever keeps us waiting takes time that is everybody's; a machine that is busy does not count. */
static ssize_t read_text(
	struct process_source *ps, struct follow *f, pid_t pid, char text[ARGV_READER_MAX])
{
	const uint64_t before = clock_now_ns(), one = wait_left(&f->waiting, &of_one, before),
		       all = wait_left(&ps->waiting, &of_all, before), left = one < all ? one : all;
	uint64_t took;
	bool waited;
	ssize_t n;

	if (left < WAIT_WORTH)
		return -EAGAIN;
	n = argv_reader_read(&ps->reader, pid, (int)(left / NS_PER_MS), text, &waited);
	took = waited ? clock_now_ns() - before : 0;
	f->waiting.ns += took;
	ps->waiting.ns += took;
	return n;
}

/* Arguments of a process as far as they can be read now, %ARGV_MAX bytes of JSON text; it may have gone on or ended. NULL when nothing is left. */
static json_t *read_argv(struct process_source *ps, struct follow *f, pid_t pid)
{
	char text[ARGV_READER_MAX + 1];
	size_t left = ARGV_MAX - strlen("[]");
	json_t *list;
	ssize_t n = read_text(ps, f, pid, text);

	if (n <= 0)
		return NULL;
	text[n] = '\0';
	list = json_array();
	for (char *p = text, *next; p < text + n && left >= ARGUMENT_TEXT; p = next) {
		next = p + strlen(p) + 1;
		if (next > text + n)
			end_whole(p);
		if (!str_utf8_valid(p, strlen(p))) {
			for (char *q = p; *q != '\0'; q++)
				*q = (unsigned char)*q < 0x80 ? *q : '?';
		}
		left = cut(p, left - ARGUMENT_TEXT);
		(void)json_array_append_new(list, json_string(p));
	}
	return list;
}

static json_t *data_of(const struct held *h)
{
	const struct proc_event_note *n = &h->note;

	switch (n->kind) {
	case PROC_EVENT_KIND_FORK:
		return json_pack("{s:i,s:i}", "pid", n->pid, "parent", n->parent);
	case PROC_EVENT_KIND_EXEC:
		return json_pack("{s:i,s:o}", "pid", n->pid, "argv",
			h->argv != NULL ? json_loads(h->argv, 0, NULL) : json_null());
	case PROC_EVENT_KIND_EXIT:
		if ((n->status & 0x7F) != 0)
			return json_pack("{s:i,s:i}", "pid", n->pid, "signal", n->status & 0x7F);
		return json_pack("{s:i,s:i}", "pid", n->pid, "code", n->status >> 8 & 0xFF);
	}
	return NULL;
}

static void put_lost(
	struct process_source *ps, const struct follow *f, uint64_t n, const char *source)
{
	struct event e = {
		.type = EVENT_EVENTS_LOST,
		.sandbox = f->sandbox,
		.epoch = f->epoch,
		.data = json_pack("{s:I,s:s}", "n", (json_int_t)n, "source", source),
	};

	(void)journal_add(ps->journal, &e);
}

/* Whose events they were cannot be known: every log tells of them, before the next event of its own. */
static void tell_lost(struct process_source *ps, struct follow *f)
{
	if (f->started && f->lost_before != ps->lost)
		put_lost(ps, f, ps->lost - f->lost_before, "proc connector");
	f->lost_before = ps->lost;
	if (f->over > 0)
		put_lost(ps, f, f->over, "process budget");
	f->over = 0;
}

static void emit(struct process_source *ps, const struct group *g, const struct held *h)
{
	static const enum event_type types[] = { EVENT_PROCESS_STARTED, EVENT_PROCESS_EXEC,
		EVENT_PROCESS_ENDED };
	pid_t cause = h->note.kind == PROC_EVENT_KIND_FORK ? h->note.parent : h->note.pid;
	struct event e;

	if (!log_budget_spend(&g->follow->budget, ps->journal,
		    EVENT_BYTES + (h->argv != NULL ? strlen(h->argv) : 0))) {
		g->follow->over++;
		return;
	}
	e = (struct event){
		.type = types[h->note.kind],
		.sandbox = g->follow->sandbox,
		.epoch = g->follow->epoch,
		.time_ns = clock_wall_ns() - (clock_now_ns() - h->note.monotonic_ns),
		.exec = g->exec[0] != '\0' ? g->exec : NULL,
		.cause = json_pack("{s:i}", "pid", cause),
		.data = data_of(h),
	};

	tell_lost(ps, g->follow);
	(void)journal_add(ps->journal, &e);
}

static void handle(struct process_source *ps, struct group *g, const struct proc_event_note *note)
{
	struct held h = { .note = *note };

	if (!g->bound && g->n_held == HELD_MAX) {
		g->dropped++;
		return;
	}
	if (note->kind == PROC_EVENT_KIND_EXEC) {
		json_t *argv = read_argv(ps, g->follow, note->pid);

		h.argv = argv != NULL ? json_dumps(argv, JSON_COMPACT) : NULL;
		json_decref(argv);
	}
	if (g->bound) {
		emit(ps, g, &h);
		free(h.argv);
		return;
	}
	if (g->n_held == g->cap_held) {
		g->cap_held = g->cap_held != 0 ? g->cap_held * 2 : 8;
		g->held = reallocarray(g->held, g->cap_held, sizeof(*g->held));
		if (g->held == NULL)
			abort();
	}
	g->held[g->n_held++] = h;
}

static void on_fork(struct process_source *ps, const struct proc_event_note *note)
{
	struct proc *parent = proc_find(ps, note->parent);
	struct group *g;

	if (parent == NULL)
		return;
	if (parent->follow->template) {
		(void)proc_add(ps, note->pid, NULL, follow_new(ps, ""));
		return;
	}
	g = parent->group;
	if (g == NULL)
		g = group_new(parent->follow, note->pid);
	(void)proc_add(ps, note->pid, g, g->follow);
	handle(ps, g, note);
}

/* An unbound group's last process has ended, and may still be named by its keeper: the entry is kept for a while. */
static void group_has_ended(
	struct process_source *ps, struct group *g, const struct proc_event_note *note)
{
	struct follow *f = g->follow;

	g->last = note->pid;
	g->ended_ns = note->monotonic_ns;
	leave_ended(g);
	join_ended(g);
	while (f->n_ended > ENDED_KEPT) {
		g = list_entry(f->ended.next, struct group, ended);
		if (g->ended_ns + ENDED_NS > note->monotonic_ns)
			break;
		leave_ended(g); /* a child of it may have been told of since */
		proc_remove(ps, g->last);
	}
}

/* What came with a fork, and is of no exec, goes on without the one that made it. */
static bool is_left(const struct group *g, pid_t ended)
{
	return g->came && !g->bound && g->root == ended && g->members > 1;
}

static void settle(struct process_source *ps, struct follow *f);

static void on_note(struct process_source *ps, const struct proc_event_note *note)
{
	struct follow *f;
	struct proc *p;
	bool leaves;

	if (note->kind == PROC_EVENT_KIND_FORK) {
		on_fork(ps, note);
		return;
	}
	p = proc_find(ps, note->pid);
	if (p == NULL)
		return;
	if (p->group == NULL) {
		/* one that was never claimed; a template is ended by who asked for it */
		if (note->kind == PROC_EVENT_KIND_EXIT && p->follow->sandbox[0] == '\0' &&
			!p->follow->template)
			follow_free(ps, p->follow);
		return;
	}
	handle(ps, p->group, note);
	if (note->kind != PROC_EVENT_KIND_EXIT)
		return;
	f = p->follow;
	leaves = f->settled && is_left(p->group, note->pid);
	if (p->group->bound || p->group->members > 1)
		proc_remove(ps, note->pid);
	else
		group_has_ended(ps, p->group, note);
	if (leaves)
		settle(ps, f);
}

void process_source_drain(struct process_source *ps)
{
	struct proc_event_note notes[BATCH];
	int n;

	if (ps->connector.fd < 0)
		return;
	do {
		n = proc_connector_read(&ps->connector, notes, BATCH);
		ps->lost += ps->connector.lost;
		ps->connector.lost = 0;
		for (int i = 0; i < n; i++)
			on_note(ps, &notes[i]);
	} while (n == BATCH);
	if (clock_now_ns() < ps->tell_due_ns)
		return;
	ps->tell_due_ns = clock_now_ns() + TELL_NS;
	list_for_each (&ps->follows, node, next)
		tell_lost(ps, list_entry(node, struct follow, node));
}

static struct follow *follow_find(const struct process_source *ps, const char *sandbox)
{
	struct map_node *node = map_find(&ps->by_sandbox, sandbox);

	return node != NULL ? map_entry(node, struct follow, by_sandbox) : NULL;
}

void process_source_follow(struct process_source *ps, const char *sandbox, pid_t keeper)
{
	struct follow *f;

	if (ps->connector.fd < 0 || follow_find(ps, sandbox) != NULL)
		return;
	f = follow_new(ps, sandbox);
	(void)proc_add(ps, keeper, NULL, f);
}

void process_source_template(struct process_source *ps, pid_t template, bool runs)
{
	struct proc *p = proc_find(ps, template);

	if (p != NULL && p->follow->template)
		follow_free(ps, p->follow);
	if (ps->connector.fd < 0 || !runs)
		return;
	p = proc_add(ps, template, NULL, follow_new(ps, ""));
	p->follow->template = true;
}

static void group_move(struct group *g, struct follow *f)
{
	bool ended = !list_empty(&g->ended);

	leave_ended(g);
	g->follow = f;
	g->came = true;
	if (ended)
		join_ended(g);
}

void process_source_claim(struct process_source *ps, const char *sandbox, pid_t parent)
{
	struct follow *f = follow_find(ps, sandbox), *from;
	struct proc *p = proc_find(ps, parent);

	if (f == NULL || parent <= 0)
		return;
	from = p != NULL ? p->follow : NULL;
	if (from == NULL || from->sandbox[0] != '\0' || from->template) {
		/* its fork was lost, or it was there before us: follow what comes */
		if (from != f)
			(void)proc_add(ps, parent, NULL, f);
		return;
	}
	while (!list_empty(&from->procs)) {
		p = list_entry(from->procs.next, struct proc, of_follow);
		p->follow = f;
		if (p->group != NULL)
			group_move(p->group, f);
		list_remove(&p->of_follow);
		list_append(&f->procs, &p->of_follow);
	}
	follow_free(ps, from);
}

void process_source_epoch(struct process_source *ps, const char *sandbox, uint64_t epoch)
{
	struct follow *f = follow_find(ps, sandbox);

	if (f != NULL)
		f->epoch = epoch;
}

/* Its events belong to @exec from now on, or to the init. @p: one of the group, of its processes the last if only one is left. */
static void group_bind(struct process_source *ps, struct proc *p, const char *exec)
{
	struct group *g = p->group;
	bool over;

	over = g->members == 1 && !list_empty(&g->ended) && g->last == p->pid;
	leave_ended(g);
	g->bound = true;
	(void)!str_copy(g->exec, sizeof(g->exec), exec != NULL ? exec : "");
	for (size_t i = 0; i < g->n_held; i++) {
		emit(ps, g, &g->held[i]);
		free(g->held[i].argv);
	}
	g->n_held = 0;
	if (g->dropped > 0)
		put_lost(ps, g->follow, g->dropped, "held back");
	if (over)
		proc_remove(ps, p->pid);
}

/* One that is left of the group that @root began, which has ended. */
static struct proc *find_left(const struct follow *f, pid_t root)
{
	list_for_each (&f->procs, node, next) {
		struct proc *p = list_entry(node, struct proc, of_follow);

		if (p->group != NULL && !p->group->bound && p->group->root == root)
			return p;
	}
	return NULL;
}

void process_source_bind(
	struct process_source *ps, const char *sandbox, pid_t pid, const char *exec)
{
	struct follow *f = follow_find(ps, sandbox);
	struct proc *p = proc_find(ps, pid);
	struct group *g;

	if (f == NULL || pid <= 0)
		return;
	f->started = true;
	if (p == NULL)
		p = find_left(f, pid);
	if (p == NULL || p->group == NULL || p->group->follow != f) {
		/* its fork was lost, or it was there before us: follow what comes */
		g = group_new(f, pid);
		p = proc_add(ps, pid, g, f);
	}
	if (!p->group->bound)
		group_bind(ps, p, exec);
}

/* What was brought back without its parent, which had ended: it was cloned by one that has ended now, and goes on below the init. */
static struct proc *find_orphan(struct process_source *ps, const struct follow *f)
{
	list_for_each (&f->procs, node, next) {
		struct proc *p = list_entry(node, struct proc, of_follow);

		if (p->group != NULL && p->group->came && !p->group->bound &&
			p->pid != p->group->root && proc_find(ps, p->group->root) == NULL)
			return p;
	}
	return NULL;
}

static void settle(struct process_source *ps, struct follow *f)
{
	struct proc *p;

	while ((p = find_orphan(ps, f)) != NULL)
		group_bind(ps, p, NULL);
}

void process_source_settle(struct process_source *ps, const char *sandbox)
{
	struct follow *f = follow_find(ps, sandbox);

	if (f == NULL)
		return;
	f->settled = true; /* the kernel may tell of the ends of some only now */
	settle(ps, f);
}

void process_source_forget(struct process_source *ps, const char *sandbox)
{
	struct follow *f = follow_find(ps, sandbox);

	if (f == NULL)
		return;
	tell_lost(ps, f);
	follow_free(ps, f);
}

void process_source_free(struct process_source *ps)
{
	if (ps == NULL)
		return;
	while (!list_empty(&ps->follows)) {
		struct follow *f = list_entry(ps->follows.next, struct follow, node);

		tell_lost(ps, f);
		follow_free(ps, f);
	}
	map_free(&ps->by_sandbox);
	argv_reader_end(&ps->reader);
	proc_connector_close(&ps->connector);
	free(ps);
}
