/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_timers.c - POSIX timers: which there are and whom they tell is in /proc/PID/timers; when they go off only the process itself can ask. Timers that are descriptors.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "sys/feature.h"
#include "sys/file.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>

/* The processor time of a thread: of @tid (0: of whoever says it), and how /proc tells of a timer on CLOCK_THREAD_CPUTIME_ID. */
#define THREAD_CLOCK(tid) ((int32_t)(~(uint32_t)(tid) << 3 | 6))

/* The thread that a line speaks of: it names it as the host does. */
static int32_t inner_tid(const struct tracee *t, int host)
{
	for (size_t i = 0; i < t->n_threads; i++) {
		if (t->threads[i].host == host)
			return t->threads[i].inner;
	}
	return 0;
}

/* "signal/tid.123": what is sent, and whether to the whole process or to one thread. */
static int parse_notify(const char *text, const struct tracee *t, struct image_timer *out)
{
	char how[8], whom[4];
	int host;

	if (sscanf(text, "%7[a-z]/%3[a-z].%d", how, whom, &host) != 3)
		return -EINVAL;
	out->notify = str_eq(how, "none")     ? SIGEV_NONE
		      : str_eq(how, "thread") ? SIGEV_THREAD
					      : SIGEV_SIGNAL;
	if (str_eq(whom, "tid")) {
		out->notify |= SIGEV_THREAD_ID;
		out->tid = inner_tid(t, host);
	}
	return 0;
}

static int parse(const char *text, const struct tracee *t, struct image_timer *out)
{
	const char *id = proc_value(text, "ID"), *signal = proc_value(text, "signal"),
		   *notify = proc_value(text, "notify"), *clock = proc_value(text, "ClockID");
	unsigned long long value;

	if (id == NULL || signal == NULL || notify == NULL || clock == NULL ||
		sscanf(id, "%d", &out->id) != 1 ||
		sscanf(signal, "%d/%llx", &out->signal, &value) != 2 ||
		sscanf(clock, "%d", &out->clock) != 1)
		return -EINVAL;
	out->value = value;
	return parse_notify(notify, t, out);
}

/* When they go off: of all timers of @p, beginning with @out. */
static int read_values(struct dump_process *p, struct image_timer *out)
{
	struct tracee_question *q = calloc(p->out.n_timers, sizeof(*q));
	struct tracee_asked all = { .t = &p->tracee, .questions = q, .n = p->out.n_timers };
	int rc;

	if (q == NULL)
		abort();
	for (uint32_t i = 0; i < p->out.n_timers; i++)
		q[i] = (struct tracee_question){
			.nr = SYS_timer_gettime, .arguments = { (uint64_t)out[i].id }, .into = 2
		};
	rc = tracee_ask(&all, 1);
	for (uint32_t i = 0; rc == 0 && i < p->out.n_timers; i++) {
		struct itimerspec now;

		memcpy(&now, q[i].answer, sizeof(now));
		out[i].interval_s = (uint64_t)now.it_interval.tv_sec;
		out[i].interval_ns = (uint64_t)now.it_interval.tv_nsec;
		out[i].value_s = (uint64_t)now.it_value.tv_sec;
		out[i].value_ns = (uint64_t)now.it_value.tv_nsec;
		rc = q[i].result < 0 ? (int)q[i].result : 0;
	}
	free(q);
	return rc;
}

/*
 * Nobody tells whose time a timer counts that was made on "the own thread's". Among several threads the one that it tells is taken for it, by the clock that names it: so
 * profilers make theirs.
 */
static int choose_clock(const struct dump_process *p, const struct tracee *stopped,
	struct image_timer *t, struct err *err)
{
	if (t->clock != THREAD_CLOCK(0) || stopped->n_threads == 1)
		return 0;
	if ((t->notify & SIGEV_THREAD_ID) == 0)
		return dump_refuse(p, err,
			"its POSIX timer %d counts the processor time of one of several threads",
			t->id);
	t->clock = THREAD_CLOCK(t->tid);
	return 0;
}

static int cannot_read(const struct dump_process *p, int rc, struct err *err)
{
	return err_raise_sys(
		err, rc, "read the POSIX timers of process %d (%s)", p->tracee.inner, p->name);
}

/* Where the kernel cannot be told a number, it is reached by making and deleting all before it. */
static bool is_out_of_reach(int32_t id)
{
	return id > IMAGE_TIMERS_COUNTED && !feature_has(FEATURE_TIMER_IDS);
}

static int add_timer(struct dump *d, struct dump_process *p, const struct tracee *t,
	const char *text, struct err *err)
{
	struct image_timer out = { 0 };
	int rc = parse(text, t, &out);

	if (rc == 0 && is_out_of_reach(out.id))
		return dump_refuse(p, err,
			"its POSIX timer %d has too high a number (above %d, before Linux 6.15)",
			out.id, IMAGE_TIMERS_COUNTED);
	if (rc == 0 && (out.notify & SIGEV_THREAD_ID) != 0 && out.tid == 0)
		return dump_refuse(p, err, "its POSIX timer %d is for a thread that ended", out.id);
	if (rc < 0)
		return cannot_read(p, rc, err);
	rc = choose_clock(p, t, &out, err);
	if (rc < 0)
		return rc;
	(void)IMAGE_ADD(&d->image, TABLE_TIMERS, &out);
	p->out.n_timers++;
	return 0;
}

static int by_id(const void *a, const void *b)
{
	const struct image_timer *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

int dump_timers(
	struct dump *d, struct dump_process *p, const struct tracee *stopped, struct err *err)
{
	cleanup_buf struct buf text = BUF_INIT(16 << 20);
	int rc = file_read_at(p->tracee.proc, "timers", &text);
	struct image_timer *first;
	char *at, *next;

	p->out.first_timer = image_count(&d->image, TABLE_TIMERS, sizeof(struct image_timer));
	if (rc < 0)
		return err_raise_sys(err, rc, "list the POSIX timers of process %d (%s)",
			p->tracee.inner, p->name);
	(void)buf_cstr(&text);
	/* each begins with a line ID; one at a time for the parser */
	for (at = text.n > 0 ? text.p : NULL; rc == 0 && at != NULL; at = next) {
		next = strstr(at + 1, "\nID:");
		if (next != NULL)
			*next++ = '\0';
		rc = add_timer(d, p, stopped, at, err);
	}
	if (rc < 0 || p->out.n_timers == 0 || d->examination != NULL)
		return rc;
	first = image_row(&d->image, TABLE_TIMERS, p->out.first_timer, sizeof(struct image_timer));
	rc = read_values(p, first);
	if (rc < 0)
		return cannot_read(p, rc, err);
	qsort(first, p->out.n_timers, sizeof(struct image_timer), by_id);
	return 0;
}

/* --- descriptors --- */

/** struct timer - a timerfd: as timerfd_settime(2) takes it. */
struct timer {
	int64_t interval_s, interval_ns, value_s, value_ns;
};

static int read_timer(const char *text, struct timer *ret)
{
	const char *value = proc_value(text, "it_value"),
		   *interval = proc_value(text, "it_interval");

	return value != NULL && interval != NULL &&
			       sscanf(value, "(%ld, %ld)", &ret->value_s, &ret->value_ns) == 2 &&
			       sscanf(interval, "(%ld, %ld)", &ret->interval_s,
				       &ret->interval_ns) == 2
		       ? 0
		       : -EINVAL;
}

/* Who has gone off, again and again, stands still until somebody asks for the time that remains: then the kernel counts how often it was, and sets it for the next. */
static int set_going(struct subject *s, struct timer *t)
{
	struct itimerspec now;
	char path[40];
	int rc;

	if (t->value_s != 0 || t->value_ns != 0 || (t->interval_s == 0 && t->interval_ns == 0) ||
		proc_number(buf_cstr(&s->info), "ticks", 10, 0) == 0 ||
		timerfd_gettime(s->copy, &now) < 0)
		return 0;
	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", s->copy);
	buf_reset(&s->info);
	rc = file_read_at(AT_FDCWD, path, &s->info) < 0 ? -EIO : read_timer(buf_cstr(&s->info), t);
	/* it has gone off since, which is counted, and stands still again: with nothing left it would never go off in a fork */
	if (rc == 0 && t->value_s == 0 && t->value_ns == 0)
		t->value_s = t->interval_s, t->value_ns = t->interval_ns;
	return rc;
}

/* a: clock, b: flags of the setting, c: how often it has gone off unread. By s->info and s->copy. */
static int look_at_timer(struct dump *d, struct subject *s)
{
	struct timespec now;
	struct timer set;
	uint64_t flags;

	if (read_timer(buf_cstr(&s->info), &set) < 0 || set_going(s, &set) < 0)
		return -EINVAL;
	s->out.a = proc_number(buf_cstr(&s->info), "clockid", 10, 1);
	s->out.c = proc_number(buf_cstr(&s->info), "ticks", 10, 0);
	s->rests = set.value_s == 0 && set.value_ns == 0 && s->out.c == 0;
	/* what is shown is the time that remains; who has set a time of day is woken at that, however long it was suspended */
	flags = proc_number(buf_cstr(&s->info), "settime flags", 8, 0);
	if (s->out.a == CLOCK_REALTIME && (set.value_s != 0 || set.value_ns != 0) &&
		(flags & TFD_TIMER_ABSTIME) != 0) {
		s->out.b = flags & (TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET);
		(void)clock_gettime(CLOCK_REALTIME, &now);
		set.value_ns += now.tv_nsec;
		set.value_s += now.tv_sec + set.value_ns / (int64_t)NS_PER_S;
		set.value_ns %= (int64_t)NS_PER_S;
	}
	s->out.data = image_add_bytes(&d->image, &set, sizeof(set));
	return 0;
}

/* As if one that has gone off were seen in the instant in which it does, when the kernel says of it what it says of one that is not set. */
static void forget_ticks(struct dump *d, struct subject *s)
{
	const struct timer nothing = { 0 };

	if (s->out.c == 0 || fault("live.dump.timerfd") == 0)
		return;
	s->out.c = 0;
	s->out.data = image_add_bytes(&d->image, &nothing, sizeof(nothing));
	s->rests = true;
}

int dump_timerfd(struct dump *d, struct subject *s)
{
	int rc = look_at_timer(d, s);

	s->out.kind = DESCRIPTION_TIMERFD;
	if (rc == 0)
		forget_ticks(d, s);
	return rc;
}

int dump_timerfd_rests(struct dump *d, const struct subject *s, uint32_t index)
{
	struct dump_resting *all =
		realloc(d->resting, (d->n_resting + 1) * sizeof(struct dump_resting));

	if (all == NULL)
		abort();
	d->resting = all;
	all[d->n_resting] = (struct dump_resting){ .copy = dump_copy(d, s->copy), .index = index };
	return all[d->n_resting++].copy < 0 ? -EMFILE : 0;
}

/* It was going off just then. */
static int look_once_more(struct dump *d, const struct dump_resting *r)
{
	struct subject s = { .copy = r->copy, .info = BUF_INIT(1 << 16) };
	struct image_description *out;
	char path[40];
	int rc;

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", s.copy);
	rc = file_read_at(AT_FDCWD, path, &s.info);
	if (rc == 0)
		rc = look_at_timer(d, &s);
	buf_free(&s.info);
	if (rc < 0)
		return rc;
	out = dump_description(d, r->index);
	out->b = s.out.b;
	out->c = s.out.c;
	out->data = s.out.data;
	return 0;
}

int dump_timerfds_end(struct dump *d, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < d->n_resting; i++) {
		struct pollfd off = { .fd = d->resting[i].copy, .events = POLLIN };

		if (poll(&off, 1, 0) == 1)
			rc = look_once_more(d, &d->resting[i]);
	}
	return rc < 0 ? err_raise_sys(err, rc, "look at a timer once more") : 0;
}
