/* SPDX-License-Identifier: Apache-2.0 */
/* api/sandbox_recover.c - after a start of cayd: sandboxes whose keeper lives are adopted, the others buried. */
#include "api/exec_past.h"
#include "api/lives.h"
#include "api/sandbox_parts.h"
#include "api/steps.h"
#include "api/suspend.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

#define AT_ONCE_MAX 16 /* sandboxes that are seen to at a time */
/* How long the start waits for one of them; and, when it has taken long and as many were left, for one more. */
#define PATIENCE_NS (5 * NS_PER_S)
#define LONG_NS     (10 * NS_PER_S)
#define HASTE_NS    (NS_PER_S / 4)

static void adopt(struct sandbox *sb, struct keeper *k)
{
	const char *state = json_string_value(json_object_get(k->hello_doc, "state"));
	json_int_t keeper_pid = 0,
		   init_pid = json_integer_value(json_object_get(k->hello_doc, "init_pid"));
	bool dead = json_is_true(json_object_get(k->hello_doc, "init_gone"));
	uint64_t deadline;
	json_t *where = NULL;
	struct err err;

	k->sandbox = sb;
	sb->keeper = k;
	k->slot = (uint32_t)json_integer_value(json_object_get(sb->doc, "slot"));
	if (framelink_call(&k->link, json_pack("{s:s}", "verb", "where"), clock_now_ns() + CALL_NS,
		    &where, NULL) == 0)
		keeper_pid = json_integer_value(json_object_get(where, "keeper_pid"));
	json_decref(where);
	k->pid = (pid_t)keeper_pid;
	if (keeper_pid > 0)
		process_source_follow(sb->srv->processes, sb->id, (pid_t)keeper_pid);
	process_source_epoch(sb->srv->processes, sb->id, sandbox_epoch(sb));
	/* the number of one that has been reaped may be another's, of the host */
	if (!dead)
		process_source_bind(sb->srv->processes, sb->id, (pid_t)init_pid, NULL);
	process_source_claim(sb->srv->processes, sb->id,
		(pid_t)json_integer_value(json_object_get(k->hello_doc, "fork_pid")));
	execs_adopt(sb, json_object_get(k->hello_doc, "execs"));
	sb->state = state != NULL && str_eq(state, "paused") ? SANDBOX_PAUSED : SANDBOX_RUNNING;
	(void)json_object_set_new(sb->doc, "init_pid", json_integer(init_pid));
	(void)json_object_del(sb->doc, "suspending"); /* it goes on instead */
	(void)json_object_del(sb->doc, "suspended_by");
	(void)sandbox_move(sb, sb->state, EVENT_SANDBOX_ADOPTED,
		json_pack("{s:I}", "execs",
			(json_int_t)json_array_size(json_object_get(k->hello_doc, "execs"))),
		NULL);
	/* only now: events that waited are of execs that are known by now */
	deadline = clock_now_ns() + CALL_NS;
	(void)!framelink_call(&k->link, json_pack("{s:s}", "verb", "adopt"), deadline, NULL, NULL);
	execs_heard(sb, deadline);
	/* all that it remembers is told by now, and its output can be kept: an end as if we had been there */
	if (dead) {
		keeper_died(k, json_object_get(k->hello_doc, "lost"));
		return;
	}
	/* the last server died between the catalogue and `go` */
	if (json_is_true(json_object_get(k->hello_doc, "held")) && live_go(sb, &err) < 0)
		log_error("sandbox", "resume '%s': %s", sb->name, err.msg);
	if (json_is_true(json_object_get(k->hello_doc, "gateway")))
		gateway_appeared(sb);
}

/* The last server ended while processes of a snapshot were to come into it. */
static bool is_restoring(const struct sandbox *sb, const char *what)
{
	const char *doing = json_string_value(json_object_get(sb->doc, "restoring"));

	return doing != NULL && str_eq(doing, what);
}

/* Was it never answered for? Then nobody knows of it, and asking again must not find its name taken. Nobody ever hears of that for a check. */
static bool unborn(const struct sandbox *sb)
{
	bool no_command = json_object_get(sb->doc, "run") != NULL && list_empty(&sb->execs);

	return no_command || is_restoring(sb, "fork") ||
	       json_is_true(json_object_get(sb->doc, "together")) ||
	       json_is_true(json_object_get(sb->doc, "for_check")) ||
	       (sb->state == SANDBOX_CREATING && json_is_true(json_object_get(sb->doc, "unborn")));
}

/* What was running without a keeper is over; what was being made for the first time or removed is removed. */
static void bury(struct sandbox *sb)
{
	const char *reason =
		is_restoring(sb, "rewind")
			? "the server ended before the processes of the snapshot were back"
			: "its processes were gone when the server started";
	struct server *srv = sb->srv;

	while (sb->awaited && !srv->ready) /* the job `recover` is told that it runs */
		(void)waiters_wait(&srv->became_ready, 0);
	spawner_cleanup(srv, sb->id);
	if (unborn(sb) || sb->state == SANDBOX_REMOVING ||
		json_is_true(json_object_get(sb->doc, "ephemeral"))) {
		if (sb->state == SANDBOX_STOPPED)
			sb->state = SANDBOX_FAILED;
		(void)sandbox_remove(sb, NULL);
		return;
	}
	if (sb->state != SANDBOX_CREATING)
		sandbox_usage_keep(sb);
	execs_lost(sb, "lost", "the machine or the keeper went down");
	(void)json_object_set_new(sb->doc, "init_pid", json_null());
	(void)json_object_del(sb->doc, "restoring");
	(void)json_object_del(
		sb->doc, "suspending"); /* what is written of its memory is of no use */
	(void)json_object_del(sb->doc, "suspended_by");
	sandbox_set_time(sb, "stopped");
	(void)sandbox_move(sb, SANDBOX_STOPPED, EVENT_SANDBOX_STOPPED,
		json_pack("{s:s}", "reason", reason), NULL);
}

static int settle_suspend(struct sandbox *sb)
{
	struct err err;
	int rc = sandbox_settle_suspend(sb, &err);

	if (rc < 0)
		log_error("sandbox", "%s", err.msg);
	return rc;
}

/*
 * Ending its sandbox would lose what runs in it, and leaving it alone is not enough: its files are written, and this server would let it be started a second time. So nothing
 * here goes on, as with a catalogue that a newer version has written; the processes do. Where the start has gone on without it others are served, and it alone stays awaited.
 */
static void refuse_keeper(const struct sandbox *sb, const struct err *err)
{
	log_error("keeper", "%s", err->msg);
	log_error("keeper",
		"its sandbox goes on: start the version of cay that it was last run by, and stop it there");
	if (!sb->awaited)
		_exit(EXIT_FAILURE);
}

/* Return: 0, or -EPROTO: it stays as it is. */
static int recover_one(struct sandbox *sb)
{
	struct keeper *k;
	struct err err;
	int settled;

	if (sb->state == SANDBOX_CREATING) /* that it was created comes before what is in it */
		sandbox_tell_again(sb);
	execs_tell_again(sb);
	if (sandbox_settle_rewind(sb, &err) < 0)
		log_error("sandbox", "finish the rewind of '%s': %s", sb->name, err.msg);
	if ((sb->state == SANDBOX_STOPPED || sb->state == SANDBOX_FAILED) && !unborn(sb)) {
		/* the last server died behind the commit that said so */
		execs_lost(sb, "killed", "the sandbox was stopped");
		sandbox_tell_again(sb);
		return 0;
	}
	sandbox_tell_again(sb);
	/* before anything is adopted: what its object holds is not in a keeper too, whatever the catalogue could not take */
	settled = settle_suspend(sb);
	k = keeper_adopt(sb->srv, sb->id, &err);
	if (k == NULL && err.code == ERR_UNSUPPORTED) {
		refuse_keeper(sb, &err);
		return -EPROTO;
	}
	if (k != NULL && sb->state != SANDBOX_SUSPENDED && sb->state != SANDBOX_REMOVING &&
		!unborn(sb) && !is_restoring(sb, "rewind")) {
		const char *state = json_string_value(json_object_get(k->hello_doc, "state"));

		if (state != NULL && (str_eq(state, "running") || str_eq(state, "paused"))) {
			adopt(sb, k);
			return 0;
		}
	}
	if (k != NULL) {
		keeper_end(k, false);
		keeper_unref(k);
	}
	/* one that was in the middle of a suspension may have come to its end since */
	if (settled == 0 && sb->state != SANDBOX_SUSPENDED)
		settled = settle_suspend(sb);
	/* a keeper of a suspended one had not begun, or has not finished ending */
	if ((sb->state == SANDBOX_SUSPENDED && !unborn(sb)) ||
		(settled < 0 && sandbox_await_object(sb)))
		spawner_cleanup(sb->srv, sb->id);
	else
		bury(sb);
	return 0;
}

static void recover_locked(struct sandbox *sb)
{
	struct err err;

	if (sandbox_lock(sb, NULL) < 0)
		return;
	if (recover_one(sb) < 0) {
		/* locked and awaited until this server ends: nobody stops it, starts it again, takes its files */
		sb->estranged = true;
		waiters_wake(&sb->changed);
		return;
	}
	if (sandbox_expire(sb, &err) < 0)
		log_error("sandbox", "remove '%s': %s", sb->name, err.msg);
	run_orphaned(sb);
	steps_recover(sb);
	execs_tidy(sb);
	sb->awaited = false;
	sandbox_unlock(sb);
}

/* --- the walk --- */

/* On the stack of the server's start. */
struct recovery {
	struct sandbox **all; /* references */
	size_t n, next;
	uint64_t begun_ns;
	struct list busy; /* struct recovering: those that are waited for */
	unsigned int n_busy, n_left;
	struct waiters changed;
};

/* One sandbox, in a fiber of its own. */
struct recovering {
	struct list node;
	struct recovery *r; /* NULL: the start has gone on without it */
	struct sandbox *sb;
	uint64_t begun_ns;
	bool may_be_left;
};

/*
 * Is it only to be asked what became of it? Then who asks for it can wait (sandbox_await()), and nobody else has to. What an operation was under way with is another thing when that
 * is settled: gone, suspended, its name free.
 */
static bool may_be_left(const struct sandbox *sb)
{
	static const char *const under_way[] = { "restoring", "suspending", "rewinding" };

	for (size_t i = 0; i < sizeof(under_way) / sizeof(*under_way); i++) {
		if (json_object_get(sb->doc, under_way[i]) != NULL)
			return false;
	}
	return !unborn(sb) && (sb->state == SANDBOX_CREATING || sb->state == SANDBOX_RUNNING ||
				      sb->state == SANDBOX_PAUSED);
}

static void no_longer_busy(struct recovering *one)
{
	list_remove(&one->node);
	one->r->n_busy--;
}

static void recover_main(void *arg)
{
	struct recovering *one = arg;

	if (!one->sb->gone)
		recover_locked(one->sb);
	if (one->r != NULL) {
		no_longer_busy(one);
		waiters_wake(&one->r->changed);
	}
	sandbox_unref(one->sb);
	free(one);
}

static void begin_next(struct recovery *r)
{
	struct recovering *one = xnew(struct recovering);

	one->r = r;
	one->sb = r->all[r->next++];
	one->begun_ns = clock_now_ns();
	one->may_be_left = may_be_left(one->sb);
	list_append(&r->busy, &one->node);
	r->n_busy++;
	fiber_start(recover_main, one);
}

static uint64_t left_at(const struct recovering *one)
{
	bool is_late = one->begun_ns - one->r->begun_ns > LONG_NS,
	     hastes = (is_late && one->r->n_left >= AT_ONCE_MAX) || fault_at("sandbox.awaited");

	return one->begun_ns + (hastes ? HASTE_NS : PATIENCE_NS);
}

static void leave(struct recovering *one)
{
	log_warn("sandbox", "'%s' takes long to be adopted: the start goes on without it",
		one->sb->name);
	one->sb->awaited = true;
	no_longer_busy(one);
	one->r->n_left++;
	one->r = NULL;
}

/* Return: when the next one is due, 0: none is. */
static uint64_t leave_slow(struct recovery *r, uint64_t now)
{
	uint64_t first = 0;

	list_for_each (&r->busy, node, next) {
		struct recovering *one = list_entry(node, struct recovering, node);

		if (one->may_be_left && left_at(one) <= now)
			leave(one);
		else if (one->may_be_left && (first == 0 || left_at(one) < first))
			first = left_at(one);
	}
	return first;
}

void sandboxes_recover(struct server *srv)
{
	struct recovery r = { .begun_ns = clock_now_ns() };
	cleanup_free struct sandbox **all = NULL;
	size_t i = 0;

	list_init(&r.busy);
	waiters_init(&r.changed);
	list_for_each (&srv->sandboxes, node, next)
		r.n++;
	r.all = all = xalloc(r.n * sizeof(struct sandbox *) + 1);
	list_for_each (&srv->sandboxes, node, next)
		all[i++] = sandbox_ref(list_entry(node, struct sandbox, node));
	while (r.next < r.n || r.n_busy > 0) {
		uint64_t due;

		while (r.next < r.n && r.n_busy < AT_ONCE_MAX)
			begin_next(&r);
		due = leave_slow(&r, clock_now_ns());
		if (r.n_busy == AT_ONCE_MAX || (r.next == r.n && r.n_busy > 0))
			(void)waiters_wait(&r.changed, due);
	}
}
