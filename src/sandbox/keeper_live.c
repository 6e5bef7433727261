/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper_live.c - the source's keeper in a live fork or a suspension (docs/design/0006, 0009): `capture` stops the sandbox and puts it into a template, `release` lets
 * it go on, `suspend` ends it as it was captured. What comes out of a template is keeper_restore.c.
 *
 * Between `capture` and `release` every process is stopped; a job captures the files meanwhile, from the moment on when the last one stopped (store/instant.h). `release` lets go
 * when it has. Whoever asked must come back: when its connection closes, or (but for a suspension) after CAPTURE_MAX_NS, the sandbox goes on without being told.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "checkpoint/memory_object.h"
#include "sandbox/carry.h"
#include "sandbox/filters.h"
#include "sandbox/keeper.h"
#include "sandbox/numbers.h"
#include "store/instant.h"
#include "sys/feature.h"
#include "sys/file.h"
#include "sys/urgency.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define CAPTURE_MAX_NS    (60 * NS_PER_S)
#define FREEZE_TIMEOUT_MS 2000
#define TAKE_BACK_NS      (NS_PER_S / 10) /* memory that was lent, where a first try has left some */
#define TAKE_BACK_MAX_NS  (5 * NS_PER_S)

/* --- what is there --- */

/* What goes with an order. */
struct terminals {
	int masters[TEMPLATE_SLOTS_MAX +
		    1]; /* of the terminals of execs, in the order of their slots; behind them @learned */
	size_t n;
	int learned; /* what is known of the filters of programs, ours; -1 = nothing has to be known */
};

static int add_leaf(void *ctx, const char *name, const int32_t *pids, size_t n)
{
	struct dump_order *order = ctx;

	if (n == 0)
		return 0;
	/* init is made anew with each sandbox, and has nothing to carry */
	if (str_eq(name, "init"))
		return 0;
	/* (the template is told of the dumper, too) */
	if (order->n_leaves == TEMPLATE_LEAVES_MAX || n >= TEMPLATE_PIDS_MAX - order->n_pids)
		return -E2BIG;
	if (str_copy(order->leaves[order->n_leaves++], DUMP_LEAF_SIZE, name) < 0)
		return -ENAMETOOLONG;
	memcpy(order->pids + order->n_pids, pids, n * sizeof(*pids));
	order->n_pids += (uint32_t)n;
	order->leaf_ends[order->n_leaves - 1] = order->n_pids;
	return 0;
}

static void mark_confined(const struct keeper *k, struct dump_order *order)
{
	for (uint32_t i = 0; i < order->n_leaves; i++)
		order->confined[i] = keeper_confined(k, order->leaves[i]);
}

/* What there are too many of in @order, as far as it was made. */
static int too_many(const struct dump_order *order, bool slots, struct err *err)
{
	if (slots)
		return err_raise(err, ERR_UNSUPPORTED,
			"it has more than %u pipes and terminals of commands that run",
			TEMPLATE_SLOTS_MAX);
	if (order->n_leaves == TEMPLATE_LEAVES_MAX)
		return err_raise(err, ERR_UNSUPPORTED,
			"it has processes of more than %u commands, those included that have ended",
			TEMPLATE_LEAVES_MAX);
	return err_raise(
		err, ERR_UNSUPPORTED, "it has more than %u processes", TEMPLATE_PIDS_MAX - 1);
}

/* Who makes a fork has our limit, and in root mode may have as many as anybody. */
static uint32_t files_of_forks(const struct keeper *k)
{
	bool may_raise = !k->config.rootless && prctl(PR_CAPBSET_READ, CAP_SYS_RESOURCE) == 1;
	struct rlimit limit = { 0 };
	uint64_t most;

	(void)getrlimit(RLIMIT_NOFILE, &limit);
	most = limit.rlim_max;
	if (may_raise)
		(void)!file_read_u64_at(AT_FDCWD, "/proc/sys/fs/nr_open", &most);
	return most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

static int list_all(
	struct keeper *k, struct dump_order *order, struct terminals *terminals, struct err *err)
{
	int rc;

	*order = (struct dump_order){
		.kind = DUMP_ORDER,
		.init_pid = k->box.init_pid,
		.filters = k->box.filters,
		.files = files_of_forks(k),
	};
	terminals->n = 0;
	terminals->learned = -1;
	rc = cgroup_each_leaf(&k->box.cgroup, add_leaf, order);
	if (rc == -E2BIG)
		return too_many(order, false, err);
	mark_confined(k, order);
	if (rc == 0)
		rc = carry_slots(&k->execs, order, terminals->masters);
	if (rc == -E2BIG)
		return too_many(order, true, err);
	terminals->n = rc > 0 ? (size_t)rc : 0;
	return rc < 0 ? err_raise_sys(err, rc, "list the processes") : 0;
}

/* Threads are what they are only when they stand still; of those that run it is a guess. */
static int add_learned(const struct keeper *k, struct dump_order *order,
	struct terminals *terminals, struct err *err)
{
	if (!filter_learns(k->config.rootless))
		return 0;
	terminals->learned = keeper_learned(k, order);
	if (terminals->learned < 0)
		return err_raise_sys(
			err, terminals->learned, "look for the filters of the processes");
	terminals->masters[terminals->n++] = terminals->learned;
	order->learned = 1;
	return 0;
}

/* --- capturing --- */

/* What has ended or was closed by now is not carried; nothing does later, because nothing runs. */
static void note_ends(struct keeper *k)
{
	struct pollfd p = { .fd = k->fork_sock, .events = POLLIN };

	if (!capture_died(&k->capture))
		keeper_reap_children(k);
	while (k->fork_sock >= 0 && poll(&p, 1, 0) == 1)
		keeper_read_fork(k);
}

static void drain_outputs(struct keeper *k)
{
	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		if (e->state != EXEC_RUNNING)
			continue;
		(void)keeper_read_output(k, e, RING_STDOUT, keeper_needed_from(k, e));
		(void)keeper_read_output(k, e, RING_STDERR, keeper_needed_from(k, e));
	}
}

void keeper_state_path(const struct keeper *k, const char *template, char path[PATH_MAX])
{
	(void)snprintf(path, PATH_MAX, "%s/keepers/%s.state", k->config.run, template);
}

static int save_holders(
	struct keeper *k, const char *template, const struct dump_order *order, struct err *err)
{
	cleanup_buf struct buf state = BUF_INIT(CARRY_MAX);
	cleanup_fd int numbers = TAKE_FD(k->capture_numbers);
	json_t *listed = numbers_listed(numbers);
	char path[PATH_MAX];
	int rc = fault("keeper.carry.save") < 0
			 ? -EAGAIN
			 : carry_save(&k->execs, order, &k->box.clocks, &k->first, listed, &state);

	k->capture_numbered = listed != NULL;
	json_decref(listed);
	keeper_state_path(k, template, path);
	if (rc == 0)
		rc = file_create_at(AT_FDCWD, path, 0600, state.p, state.n);
	if (rc == -EBUSY)
		return err_raise(err, ERR_BUSY,
			"whoever is attached to a program at a terminal does not take its output");
	if (rc == -EAGAIN)
		return err_raise(err, ERR_BUSY, "a program has ended just now");
	return rc < 0 ? err_raise_sys(err, rc, "keep the state of the programs") : 0;
}

static int add_twins(void *ctx, const char *name, const int32_t *pids, size_t n)
{
	struct keeper *k = ctx;
	int32_t *more;

	if (n == 0 || str_eq(name, "init"))
		return 0;
	more = realloc(k->twins, (k->n_twins + n) * sizeof(*pids));
	if (more == NULL)
		return -ENOMEM;
	k->twins = more;
	for (size_t i = 0; i < n; i++) {
		if (!dump_order_has(&k->capture_order, pids[i]))
			k->twins[k->n_twins++] = pids[i];
	}
	return 0;
}

/* Whoever is in the sandbox now and was not before is a copy that the dumper has made: nobody else runs. From now on the template copies from these alone. */
static int allow_twins(struct keeper *k, struct err *err)
{
	int rc = cgroup_each_leaf(&k->box.cgroup, add_twins, k);

	if (rc == 0)
		rc = capture_twins(&k->capture, k->twins, k->n_twins);
	return rc < 0 ? err_raise_sys(err, rc, "list the copies of the processes") : 0;
}

static int count_twins(void *ctx, attr_unused const char *name, const int32_t *pids, size_t n)
{
	struct keeper *k = ctx;

	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < k->n_twins; j++) {
			if (k->twins[j] == pids[i])
				k->twins_seen++;
		}
	}
	return 0;
}

/* A number that had come free meanwhile could be anybody's: then what was copied is nobody's. */
static int check_twins(struct keeper *k, struct err *err)
{
	int rc;

	k->twins_seen = 0;
	rc = cgroup_each_leaf(&k->box.cgroup, count_twins, k);
	if (rc == 0 && k->twins_seen != k->n_twins)
		return err_raise(err, ERR_STATE,
			"the copy of a process was killed before its memory had been read");
	return rc < 0 ? err_raise_sys(err, rc, "list the copies of the processes") : 0;
}

static int begin_files(struct keeper *k, struct err *err)
{
	int rc = k->instant < 0 ? 0 : instant_begin(k->instant);

	k->capture_stopped_ns = clock_now_ns();
	return rc < 0 ? err_raise_sys(err, rc, "have the files captured") : 0;
}

static int keep_files(const struct keeper *k, struct err *err)
{
	int rc = k->instant < 0 ? 0 : instant_keep(k->instant);

	return rc < 0 ? err_raise_sys(err, rc, "have the captured files kept") : 0;
}

static int look(struct keeper *k, struct dump_report *report, struct err *err)
{
	int rc = capture_look(&k->capture, report, &k->capture_numbers, err);

	if (rc != -ETIMEDOUT)
		return rc;
	/* who is let go by it gets nothing of what was lent: that is for the copies alone which are there */
	if (cgroup_each_leaf(&k->box.cgroup, add_twins, k) < 0)
		k->n_twins = 0;
	box_lend_pids(&k->box, k->n_twins);
	return capture_give_up(&k->capture, err);
}

static int stop_and_look(struct keeper *k, struct dump_order *order,
	const struct terminals *terminals, struct dump_report *report, struct err *err)
{
	int rc = capture_stop(&k->capture, order, terminals->masters, terminals->n, err);

	if (rc == 0)
		rc = begin_files(k, err);
	/* for copies, and for who makes these: nobody runs who could take it, also where it is refused, until capture_end() */
	if (rc == 0)
		box_lend_pids(&k->box, TEMPLATE_PIDS_MAX);
	(void)fault("live.capture.stopped");
	/* all are stopped by now: calls made in them run only when the group is thawed */
	if (cgroup_freeze(&k->box.cgroup, false, FREEZE_TIMEOUT_MS) < 0 && rc == 0)
		rc = err_raise(err, ERR_INTERNAL, "the control group does not thaw");
	if (rc == 0)
		rc = look(k, report, err);
	if (rc == 0 && report->n_twins > 0)
		rc = allow_twins(k, err);
	/* before they go on */
	box_lend_pids(&k->box, k->n_twins);
	return rc;
}

/* Memory for what is written while pages belong to both; processes when they stand still. */
static void begin_loan(struct keeper *k)
{
	box_lend_memory(&k->box);
	box_lend_ready(&k->box);
	k->loan = (struct keeper_loan){ 0 };
}

static void tell_kept(struct keeper *k, uint64_t bytes)
{
	keeper_event(k, "limit.hit", NULL,
		json_pack("{s:s, s:{s:s, s:I}}", "limit", "memory", "detail", "reason",
			"programs have taken memory that was lent for a live snapshot, and the kernel does not take it from them",
			"kept_bytes", (json_int_t)bytes));
	k->loan.told = true;
}

void keeper_take_back(struct keeper *k)
{
	struct keeper_loan *l = &k->loan;
	uint64_t left = box_take_back_memory(&k->box);

	/* at first it may be a copy's that has not ended yet */
	if (left != 0 && l->pause_ns != 0 && !l->told)
		tell_kept(k, left);
	l->pause_ns = l->pause_ns == 0 ? TAKE_BACK_NS : l->pause_ns * 2;
	l->pause_ns = l->pause_ns < TAKE_BACK_MAX_NS ? l->pause_ns : TAKE_BACK_MAX_NS;
	l->due_ns = left != 0 ? clock_now_ns() + l->pause_ns : 0;
}

/* @files: a job waits for the moment. */
static int join_files(struct keeper *k, const char *template, bool files, struct err *err)
{
	int rc = files ? instant_join(k->config.run, template) : 0;

	k->instant = files ? rc : -1;
	k->capture_files_ns = 0;
	return rc < 0 ? err_raise_sys(err, rc, "reach the job that captures the files") : 0;
}

struct place {
	struct capture_place is;
	char path[PATH_MAX];
	int u2;
};

static void find_place(const struct keeper *k, const char *template, struct place *p)
{
	template_path(k->config.run, template, p->path, sizeof(p->path));
	p->u2 = box_payload_userns(&k->box);
	p->is = (struct capture_place){
		.u2 = p->u2, .enter_u1 = !k->config.rootless, .template_path = p->path
	};
}

static bool can_read_filters(const struct keeper *k)
{
	return filter_learns(k->config.rootless) || feature_has(FEATURE_PROGRAM_FILTERS);
}

/* What is done while the processes run. Whether filters of their own, if they have some, can be read is asked only then. */
static int prepare(struct keeper *k, struct capture *c, const struct capture_place *place,
	bool for_good, struct err *err)
{
	struct dump_order *order = &k->capture_order;
	struct terminals terminals;
	int rc;

	keeper_drop_spare(k); /* it has nothing to carry */
	rc = capture_begin(c, place, err);
	if (rc == 0)
		rc = list_all(k, order, &terminals, err);
	order->for_good = for_good;
	if (rc == 0)
		rc = capture_prepare(c, order, err);
	if (rc == 0 && c->closed != 0 && k->config.rootless)
		return err_raise(err, ERR_UNSUPPORTED, "process %d (%s): " DUMP_CLOSED, c->closed,
			c->closed_name);
	k->capture_readable = !c->filtered || can_read_filters(k);
	return rc == 0 && ((c->filtered && k->capture_readable &&
				   !filter_learns(k->config.rootless)) ||
				  c->closed != 0)
		       ? capture_suspend(c, place, err)
		       : rc;
}

void keeper_ahead_end(struct keeper *k)
{
	capture_forget(&k->ahead);
	k->ahead_conn = NULL;
}

static int prepare_ahead(struct keeper *k, struct conn *c, const char *template, struct err *err)
{
	struct place place;
	int rc;

	find_place(k, template, &place);
	rc = prepare(k, &k->ahead, &place.is, false, err);
	fd_close(&place.u2);
	if (rc < 0) {
		keeper_ahead_end(k);
		return rc;
	}
	(void)!str_copy(k->ahead_of, sizeof(k->ahead_of), template);
	k->ahead_conn = c;
	return 0;
}

/* What is in the way of a capture is the capture's to say. */
void keeper_verb_ready(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	struct err err = { 0 };
	const char *template = NULL;
	bool fits = k->state == KEEPER_RUNNING && k->capture.pid == 0 && !k->loading &&
		    k->box.cgroup.box[0] != '\0';

	keeper_ahead_end(k);
	if (json_object_get(request, "template") != NULL)
		template = keeper_template_of(request, &err);
	if (template != NULL && fits)
		(void)!prepare_ahead(k, c, template, &err);
	if (err.code != ERR_NONE)
		keeper_reply_error(c, id, &err);
	else
		keeper_reply(c, id, NULL);
}

/* Return: whether all was done ahead, and is still there. */
static bool take_ahead(struct keeper *k, const char *template, bool for_good)
{
	if (k->ahead.pid == 0 || for_good || !str_eq(k->ahead_of, template) ||
		capture_died(&k->ahead)) {
		keeper_ahead_end(k);
		return false;
	}
	/* a program that was started since has left another one */
	keeper_drop_spare(k);
	k->capture = k->ahead;
	k->ahead = (struct capture)CAPTURE_INIT;
	k->ahead_conn = NULL;
	return true;
}

static int get_ready(struct keeper *k, const char *template, bool for_good, struct err *err)
{
	struct place place;
	int rc;

	if (take_ahead(k, template, for_good))
		return 0;
	find_place(k, template, &place);
	rc = prepare(k, &k->capture, &place.is, for_good, err);
	fd_close(&place.u2);
	return rc;
}

int keeper_cannot_freeze(int rc, struct err *err)
{
	return rc == -ETIMEDOUT ? err_raise(err, ERR_BUSY, INSTANT_RESTLESS)
				: err_raise_sys(err, rc, "freeze the processes");
}

static int freeze_all(const struct keeper *k, struct err *err)
{
	int rc = fault("live.capture.freeze") < 0
			 ? -ETIMEDOUT
			 : cgroup_freeze(&k->box.cgroup, true, FREEZE_TIMEOUT_MS);

	return rc < 0 ? keeper_cannot_freeze(rc, err) : 0;
}

static int capture(struct keeper *k, const char *template, bool for_good,
	struct dump_report *report, struct err *err)
{
	struct dump_order *order = &k->capture_order;
	struct terminals terminals = { .learned = -1 };
	int rc = get_ready(k, template, for_good, err);

	if (rc < 0)
		return rc;
	drain_outputs(k);
	begin_loan(k);
	(void)fault("live.capture.begun");
	if (keeper_await_askers(k) < 0)
		return err_raise(err, ERR_BUSY,
			"a process that installs a system call filter is being asked about itself, and does not get on");
	k->capture_begun_ns = clock_now_ns();
	urgency_set(true);
	rc = freeze_all(k, err);
	k->capture_frozen_ns = clock_now_ns();
	(void)fault("live.capture.frozen");
	note_ends(k);
	drain_outputs(k);
	if (rc == 0)
		rc = list_all(k, order, &terminals, err);
	order->for_good = for_good;
	order->readable = k->capture_readable;
	if (rc == 0 && !k->capture.suspended)
		rc = add_learned(k, order, &terminals, err);
	if (rc == 0)
		rc = stop_and_look(k, order, &terminals, report, err);
	else
		(void)!cgroup_freeze(&k->box.cgroup, false, FREEZE_TIMEOUT_MS);
	fd_close(&terminals.learned);
	if (rc == 0)
		drain_outputs(k);
	if (rc == 0)
		rc = save_holders(k, template, order, err);
	fd_close(&k->capture_numbers);
	return rc == 0 ? keep_files(k, err) : rc;
}

static json_t *describe(const struct keeper *k)
{
	static const char *const names[DUMP_PHASES] = { "stop_us", "look_us", "twin_us",
		"release_us", "read_us", "copy_us" };
	const struct dump_report *r = &k->captured;
	json_t *o = json_pack("{s:I,s:i,s:i,s:i,s:I}", "bytes", (json_int_t)r->copied_bytes,
		"processes", (int)r->n_processes, "threads", (int)r->n_threads, "twins",
		(int)r->n_twins, "paused_us", (json_int_t)(k->capture_paused_ns / 1000));
	const uint64_t files_ns =
		k->capture_files_ns != 0 ? k->capture_files_ns - k->capture_stopped_ns : 0;

	for (size_t i = 0; i < DUMP_PHASES; i++)
		(void)json_object_set_new(
			o, names[i], json_integer((json_int_t)(r->phase_ns[i] / 1000)));
	(void)json_object_set_new(o, "freeze_us",
		json_integer((json_int_t)((k->capture_frozen_ns - k->capture_begun_ns) / 1000)));
	(void)json_object_set_new(o, "files_us", json_integer((json_int_t)(files_ns / 1000)));
	return o;
}

const char *keeper_template_of(const json_t *request, struct err *err)
{
	const char *id = json_string_value(json_object_get(request, "template"));

	if (id != NULL && id_valid(id))
		return id;
	(void)err_raise(err, ERR_INVALID, "'template' is malformed");
	return NULL;
}

void keeper_capture_waiting(struct keeper *k)
{
	struct conn *c = TAKE_PTR(k->waiting_conn);
	json_t *request = TAKE_PTR(k->waiting);

	if (c != NULL)
		keeper_verb_capture(k, c, k->waiting_id, request);
	json_decref(request);
}

/* Pages that are missing can be copied from nobody. */
static bool wait_loaded(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	if (!k->loading || k->waiting_conn != NULL)
		return false;
	k->waiting_conn = c;
	k->waiting_id = id;
	k->waiting = json_deep_copy(request);
	return true;
}

int keeper_no_group(struct err *err)
{
	return err_hint(err,
		err_raise(err, ERR_UNSUPPORTED, "without a control group nothing can be frozen"),
		"cay doctor says what is missing for one: cgroup_v2, cgroup_delegation");
}

void keeper_verb_capture(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	struct err err = { 0 };
	const char *template = keeper_template_of(request, &err);

	if (template != NULL && wait_loaded(k, c, id, request))
		return;
	if (template != NULL && k->loading)
		(void)err_raise(&err, ERR_BUSY, "a capture of sandbox '%s' waits already", k->id);
	/* what clients have sent by now is part of it */
	keeper_conns_read(k, c);
	if (err.code == ERR_NONE && (k->state != KEEPER_RUNNING || k->capture.pid != 0))
		(void)err_raise(&err, ERR_STATE, "sandbox '%s' is %s: it cannot be captured live",
			k->id, keeper_state_name(k->state));
	else if (err.code == ERR_NONE && k->box.cgroup.box[0] == '\0')
		(void)keeper_no_group(&err);
	else if (err.code == ERR_NONE && keeper_launching(k))
		(void)err_raise(&err, ERR_BUSY, "a program is being started just now");
	if (err.code == ERR_NONE)
		(void)!join_files(
			k, template, json_is_true(json_object_get(request, "files")), &err);
	if (err.code == ERR_NONE &&
		capture(k, template, json_is_true(json_object_get(request, "for_good")),
			&k->captured, &err) < 0)
		keeper_capture_end(k);
	if (err.code != ERR_NONE) {
		keeper_reply_error(c, id, &err);
		return;
	}
	(void)fault("live.capture.looked");
	k->capture_conn = c;
	/* one for good takes as long as its memory takes to the disk: whoever asked sees that it goes on */
	k->capture_deadline_ns =
		k->capture_order.for_good != 0 ? 0 : clock_now_ns() + CAPTURE_MAX_NS;
	keeper_reply(c, id, NULL);
}

bool keeper_suspending(const struct keeper *k)
{
	return k->capture.pid != 0 && k->capture_order.for_good != 0;
}

void keeper_disturbed(struct keeper *k)
{
	k->capture_disturbed = k->capture.pid != 0;
}

void keeper_capture_end(struct keeper *k)
{
	struct err err;

	capture_end_twins(&k->capture);
	/* the places that they leave are nobody's */
	box_lend_pids(&k->box, 0);
	if (capture_end(&k->capture) < 0)
		keeper_lose(k, ERR_STATE,
			"the process that took a live snapshot of the sandbox was killed while it did");
	fd_close(&k->instant);
	keeper_take_back(k);
	urgency_set(false);
	if (k->release_id != 0) {
		(void)err_raise(&err, ERR_UNAVAILABLE, "the memory was not copied to its end");
		keeper_reply_error(k->capture_conn, k->release_id, &err);
	}
	free(k->twins);
	k->twins = NULL;
	k->n_twins = 0;
	k->capture_conn = NULL;
	k->release_id = 0;
	k->capture_deadline_ns = 0;
	k->capture_disturbed = false;
}

void keeper_read_capture(struct keeper *k)
{
	struct err err = { 0 };
	struct conn *c = k->capture_conn;
	json_int_t id = k->release_id;
	int rc = capture_filled(&k->capture, &k->captured, &err);

	if (rc == 0)
		rc = check_twins(k, &err);
	k->release_id = 0;
	/* the copies of the processes, and who made them, end behind the answer */
	if (rc == 0)
		keeper_reply(c, id, describe(k));
	else
		keeper_reply_error(c, id, &err);
	keeper_conn_write(c);
	keeper_capture_end(k);
}

/* keeper_read_capture() answers, unless it fails here. */
static void let_go(struct keeper *k)
{
	struct conn *c = k->capture_conn;
	json_int_t id = k->release_id;
	struct err err = { 0 };
	int rc = capture_release(&k->capture, &k->captured, &err);

	k->capture_paused_ns = clock_now_ns() - k->capture_begun_ns;
	urgency_set(false);
	(void)fault("live.capture.released");
	if (rc == 0)
		return;
	k->release_id = 0;
	keeper_capture_end(k);
	if (k->lost != NULL)
		(void)err_raise(&err, ERR_STATE, "sandbox '%s' is lost: %s", k->id, k->lost);
	keeper_reply_error(c, id, &err);
}

void keeper_verb_release(
	struct keeper *k, struct conn *c, json_int_t id, attr_unused const json_t *request)
{
	struct err err = { 0 };

	if (k->lost != NULL) {
		(void)err_raise(&err, ERR_STATE, "sandbox '%s' is lost: %s", k->id, k->lost);
	} else if (k->capture.pid == 0 || k->release_id != 0 || k->capture_conn != c) {
		(void)err_raise(&err, ERR_STATE, "no capture of sandbox '%s' is under way", k->id);
	} else {
		k->release_id = id;
		if (k->instant < 0)
			let_go(k);
	}
	if (err.code != ERR_NONE)
		keeper_reply_error(c, id, &err);
}

/* When they are not captured, whoever asked hears it from the job: the processes go on in either case. */
void keeper_read_instant(struct keeper *k)
{
	uint64_t now_ns = clock_now_ns(), at_ns = now_ns;

	/* it was said while we waited for the dumper, perhaps */
	(void)instant_captured(k->instant, &at_ns);
	fd_close(&k->instant);
	k->capture_files_ns = at_ns >= k->capture_stopped_ns && at_ns <= now_ns ? at_ns : now_ns;
	if (k->release_id != 0)
		let_go(k);
}

/* --- examining --- */

static json_t *describe_findings(const struct dump_examination *x)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < x->n; i++) {
		const struct dump_finding *f = &x->findings[i];
		json_t *o = json_pack("{s:o,s:s,s:o,s:s}", "process",
			f->pid > 0 ? json_integer(f->pid) : json_null(), "name", f->name,
			"descriptor", f->fd >= 0 ? json_integer(f->fd) : json_null(), "reason",
			f->reason);

		if (o == NULL)
			abort();
		(void)json_array_append_new(list, o);
	}
	return json_pack("{s:o,s:I}", "findings", list, "more", (json_int_t)x->more);
}

/* What is refused before any process is looked at is all that is found. */
static void note_refusal(struct dump_examination *found, struct err *err)
{
	if (err->code != ERR_UNSUPPORTED)
		return;
	memset(found, 0, sizeof(*found));
	found->n = 1;
	found->findings[0].fd = -1;
	(void)!str_copy(found->findings[0].reason, sizeof(found->findings[0].reason), err->msg);
	*err = (struct err){ 0 };
}

static void examine(struct keeper *k, const struct capture_place *place,
	struct dump_examination *found, struct err *err)
{
	static struct dump_order order;
	struct terminals terminals;

	keeper_drop_spare(k); /* as a capture does */
	(void)!keeper_await_askers(k);
	if (list_all(k, &order, &terminals, err) < 0) {
		note_refusal(found, err);
		return;
	}
	order.readable = can_read_filters(k);
	order.may_open = !k->config.rootless;
	if (add_learned(k, &order, &terminals, err) == 0)
		(void)!capture_examine(place, &order, terminals.masters, terminals.n, found, err);
	fd_close(&terminals.learned);
}

void keeper_verb_examine(
	struct keeper *k, struct conn *c, json_int_t id, attr_unused const json_t *request)
{
	static struct dump_examination found;
	cleanup_fd int u2 = box_payload_userns(&k->box);
	const struct capture_place place = { .u2 = u2, .enter_u1 = !k->config.rootless };
	struct err err = { 0 };

	if (k->state != KEEPER_RUNNING && k->state != KEEPER_PAUSED)
		(void)err_raise(&err, ERR_STATE, "sandbox '%s' is %s: it has no processes", k->id,
			keeper_state_name(k->state));
	else
		examine(k, &place, &found, &err);
	if (err.code != ERR_NONE)
		keeper_reply_error(c, id, &err);
	else
		keeper_reply(c, id, describe_findings(&found));
}

/* --- pausing --- */

int keeper_freeze(struct keeper *k)
{
	static struct dump_order order;
	cleanup_fd int u2 = box_payload_userns(&k->box);
	const struct capture_place place = { .u2 = u2, .enter_u1 = !k->config.rootless };
	struct terminals terminals;
	struct err err = { 0 };
	int rc = cgroup_freeze(&k->box.cgroup, true, FREEZE_TIMEOUT_MS);

	if (rc < 0)
		return rc;
	/* it is paused in any case: who is not reached is told of it as SIGSTOP would have it */
	if (list_all(k, &order, &terminals, &err) == 0)
		(void)!capture_settle(&place, &order, &err);
	return cgroup_freeze(&k->box.cgroup, true, FREEZE_TIMEOUT_MS);
}

/* --- suspending --- */

/* From here on the object on disk is what this sandbox is. Their cgroup is frozen: whoever dies, they do not run again. */
static int mark_exact(const struct keeper *k, const char *memory, struct err *err)
{
	cleanup_free char *path =
		str_dupf("%s/pool/" MEMORY_DIR "/%s/" MEMORY_EXACT, k->config.state, memory);
	cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	int rc = 0;

	if (fd < 0 || fsync(fd) < 0) {
		rc = err_raise_sys(err, -errno, "mark memory object '%s'", memory);
		(void)unlink(path); /* they go on */
	}
	return rc;
}

static int end_as_captured(struct keeper *k, const char *memory, struct err *err)
{
	int rc = cgroup_freeze(&k->box.cgroup, true, FREEZE_TIMEOUT_MS);

	if (rc < 0)
		rc = keeper_cannot_freeze(rc, err);
	if (rc == 0 && (k->capture.pid == 0 || k->capture.released || capture_died(&k->capture)))
		rc = err_raise(err, ERR_STATE,
			"the processes of sandbox '%s' have gone on since they were captured",
			k->id);
	/* it waits for them, or has killed them, and nothing of it is on disk */
	if (rc == 0 && k->capture_disturbed)
		rc = err_raise(err, ERR_BUSY,
			"a program of sandbox '%s' was sent a signal, input or the size of its terminal meanwhile",
			k->id);
	(void)fault("keeper.suspend.frozen");
	if (rc == 0)
		rc = mark_exact(k, memory, err);
	if (rc < 0) {
		(void)!cgroup_freeze(&k->box.cgroup, false, FREEZE_TIMEOUT_MS);
		return rc;
	}
	(void)fault("keeper.suspend.marked");
	keeper_told_close(k, NULL, UINT64_MAX);
	k->suspended = true;
	/* what cannot be killed within the time is cleared away behind us */
	(void)!keeper_kill_all(k);
	return 0;
}

void keeper_verb_suspend(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	const char *memory = json_string_value(json_object_get(request, "memory"));
	struct err err = { 0 };

	if (memory == NULL || !id_valid(memory))
		(void)err_raise(&err, ERR_INVALID, "'memory' is malformed");
	if (err.code != ERR_NONE || end_as_captured(k, memory, &err) < 0) {
		keeper_reply_error(c, id, &err);
		return;
	}
	keeper_save_output(k);
	keeper_stop(k);
	keeper_reply(c, id, NULL);
}
