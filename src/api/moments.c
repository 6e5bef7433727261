/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/moments.c - see the header.
 *
 * Invariants
 *  (1) the epoch's number changes at the instant: what comes before it has the old one, what comes after the new one, in events and mails alike. So what belongs to a snapshot can be
 *      copied later, by that number, while more is coming;
 *  (2) from gateway_hold() to gateway_go() the gateway does nothing, so its state is read before anything is frozen;
 *  (3) every way out lets go of whatever was stopped.
 */
#include "api/moments.h"
#include "api/mailbox.h"
#include "base/fault.h"
#include "base/str.h"
#include "checkpoint/epoch.h"

#define CAPTURE_NS  (120 * NS_PER_S)
#define PAUSE_NS    (20 * NS_PER_MS)
#define PATIENCE_NS (4 * NS_PER_S)

/* --- holders --- */

static int gateway_stop(void *of, struct err *err)
{
	struct moment *m = of;
	int rc = gateway_hold(m->sb, err);

	if (rc < 0)
		return rc;
	json_decref(m->gateway);
	rc = gateway_kept(m->sb->srv, m->sb->id, &m->gateway, err);
	if (rc < 0)
		gateway_go(m->sb);
	(void)fault("live.take.held");
	return rc;
}

static void gateway_let_go(void *of)
{
	gateway_go(((struct moment *)of)->sb);
}

static int gateway_keep(void *of, struct err *err)
{
	const struct moment *m = of;
	int rc = gateway_state_put(m->sb->srv, m->snapshot, m->gateway, err);

	return rc == 0 ? mail_copy(m->sb->srv, m->sb->id, m->snapshot, m->epoch, err) : rc;
}

/* A fork of the present gets what belongs to it. What left the sandbox does not come back by a rewind: mail stays given away, money spent. So there is no load. */
static int gateway_fork(void *of, struct err *err)
{
	const struct moment *m = of;
	json_t *state;
	int rc = gateway_kept(m->sb->srv, m->snapshot, &state, err);

	if (rc == 0)
		rc = gateway_state_put(m->sb->srv, m->sb->id, state, err);
	json_decref(state);
	return rc == 0 ? mail_copy(m->sb->srv, m->snapshot, m->sb->id, UINT64_MAX, err) : rc;
}

/* As they are while nothing runs: a fork's execs begin as copies of these. Their output and input lie with the keeper, which saves them when it has stopped them. */
static void programs_save(void *of)
{
	struct moment *m = of;

	m->execs = json_array();
	list_for_each (&m->sb->execs, node, next) {
		const struct exec *e = list_entry(node, struct exec, node);

		if (!e->ended)
			(void)json_array_append_new(m->execs, json_deep_copy(e->doc));
	}
	if (m->memory != NULL)
		(void)json_array_extend(m->memory->execs, m->execs);
}

static void log_save(void *of)
{
	struct moment *m = of;
	struct process_source *processes = m->sb->srv->processes;

	m->epoch = sandbox_epoch(m->sb);
	(void)json_object_set_new(m->sb->doc, "epoch", json_integer((json_int_t)m->epoch + 1));
	process_source_drain(processes);
	process_source_epoch(processes, m->sb->id, m->epoch + 1);
}

/* Written before anything with the new number can be. */
static void log_go(void *of)
{
	const struct moment *m = of;

	if (m->epoch != 0)
		(void)!sandbox_save(m->sb, false, NULL);
}

/* What happened since belongs to no state any more; what left the sandbox stays as it was: mail that was given away, budgets that were spent. */
static int log_load(void *of, attr_unused struct err *err)
{
	const struct moment *m = of;
	json_int_t before = (json_int_t)sandbox_epoch(m->sb);
	json_t *undone = json_copy(json_object_get(m->sb->doc, "undone"));

	if (undone == NULL)
		undone = json_array();
	(void)json_object_set_new(m->sb->doc, "undone",
		undone); /* a new one: the caller may take back what changed */
	(void)json_array_append_new(undone, json_pack("[I, I]", (json_int_t)m->epoch + 1, before));
	(void)json_object_set_new(m->sb->doc, "epoch", json_integer(before + 1));
	return 0;
}

bool moment_is_undone(const json_t *undone, const json_t *of)
{
	json_int_t epoch = json_integer_value(json_object_get(of, "epoch"));
	const json_t *range;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)undone, i, range)
		if (epoch >= json_integer_value(json_array_get(range, 0)) &&
			epoch <= json_integer_value(json_array_get(range, 1)))
			return true;
	return false;
}

static const struct holder holders[] = {
	{ .name = "gateway",
		.stop = gateway_stop,
		.go = gateway_let_go,
		.keep = gateway_keep,
		.fork = gateway_fork },
	{ .name = "programs", .save = programs_save },
	{ .name = "log", .save = log_save, .go = log_go, .load = log_load },
};

/* --- processes --- */

static json_t *template_request(const struct moment *m, const char *verb)
{
	return json_pack("{s:s,s:s}", "verb", verb, "template", m->memory->id);
}

/* Its keeper does what can be done while they run, beside the first pass over the files. */
static void ready_begin(struct moment *m)
{
	framelink_call_begin(&m->sb->keeper->link, &m->ready, template_request(m, "ready"));
	m->readying = true;
}

/* @rc: how the files fared, which comes first. What would be refused the capture refuses itself; a keeper of an older version does everything then. */
static int ready_end(struct moment *m, int rc, struct err *err)
{
	struct err why = { 0 };
	int late;

	if (!m->readying)
		return rc;
	late = framelink_call_end(
		&m->sb->keeper->link, &m->ready, clock_now_ns() + CAPTURE_NS, NULL, &why);
	m->readying = false;
	if (rc < 0 || late == 0 || why.code == ERR_UNSUPPORTED || why.code == ERR_BUSY)
		return rc;
	*err = why;
	return late;
}

/* There will be no capture: a template serves one connection at a time, and ends with its last one. */
static void ready_forget(const struct moment *m)
{
	(void)!framelink_call(&m->sb->keeper->link, json_pack("{s:s}", "verb", "ready"),
		clock_now_ns() + CALL_NS, NULL, NULL);
}

static int stop_processes(void *of, struct err *err)
{
	struct moment *m = of;
	json_t *request = template_request(m, "capture");
	int rc;

	(void)json_object_set_new(request, "for_good", json_boolean(m->for_good));
	(void)json_object_set_new(request, "files", json_boolean(m->job != NULL));
	rc = framelink_call(&m->sb->keeper->link, request, clock_now_ns() + CAPTURE_NS, NULL, err);
	(void)fault("live.take.captured");
	return rc;
}

/* Only said here: the memory is copied while they run. released() has the answer. */
static void release_processes(void *of)
{
	struct moment *m = of;

	framelink_call_begin(&m->sb->keeper->link, &m->release, template_request(m, "release"));
	m->releasing = true;
}

static int released(struct moment *m, struct err *err)
{
	int rc = !m->releasing ? 0
			       : framelink_call_end(&m->sb->keeper->link, &m->release,
					 clock_now_ns() + CAPTURE_NS, &m->figures, err);

	m->releasing = false;
	(void)fault("live.take.released");
	return rc;
}

/* --- files --- */

/* Path of the file that freezes the sandbox, or NULL when it stands still anyway or cannot be frozen. */
static json_t *freeze_path(struct sandbox *sb, struct err *err, int *rc)
{
	json_t *where = NULL, *path = NULL;
	const char *box;

	*rc = 0;
	if (sb->state != SANDBOX_RUNNING)
		return NULL;
	*rc = framelink_call(&sb->keeper->link, json_pack("{s:s}", "verb", "where"),
		clock_now_ns() + CALL_NS, &where, err);
	box = json_string_value(json_object_get(where, "box"));
	if (*rc == 0 && box != NULL && box[0] != '\0')
		path = json_sprintf("%s/cgroup.freeze", box);
	json_decref(where);
	return path;
}

static json_t *trees_of(const struct sandbox *sb)
{
	json_t *trees = json_pack("[{s:i,s:s}]", "n", 0, "target", "/"), *mount;
	size_t i;
	int n = 0;

	json_array_foreach (json_object_get(sb->doc, "mounts"), i, mount) {
		if (str_eq(json_string_value(json_object_get(mount, "mode")), "cow"))
			(void)json_array_append_new(
				trees, json_pack("{s:i,s:O,s:O}", "n", ++n, "target",
					       json_object_get(mount, "target"), "source",
					       json_object_get(mount, "source")));
	}
	return trees;
}

static json_t *files_request(const struct moment *m, const char *verb)
{
	json_t *request = json_pack("{s:s,s:s,s:s,s:o,s:O,s:I}", "verb", verb, "sandbox", m->sb->id,
		"layer", m->layer, "trees", trees_of(m->sb), "parents",
		json_object_get(m->sb->doc, "layers"), "epoch", (json_int_t)sandbox_epoch(m->sb));

	if (sandbox_live(m->sb) == NULL)
		(void)json_object_set_new(request, "bare", json_true());
	return request;
}

static void on_said(void *ctx, attr_unused const struct frame *f)
{
	((struct moment *)ctx)->job_said++;
}

static int files_wait(struct moment *m, unsigned int said, struct err *err)
{
	uint64_t deadline = clock_now_ns() + CAPTURE_NS;

	while (m->job_said < said && !job_ended(m->job)) {
		if (waiters_wait(&job_link(m->job)->progress, deadline) < 0)
			return err_raise(err, ERR_TIMEOUT, "the files are not captured in time");
	}
	/* why it has not is in its reply */
	return m->job_said < said ? -EIO : 0;
}

/* What can be done while everything runs. files_wait() says when it is done. */
static int files_begin(struct moment *m, struct err *err)
{
	int rc;
	json_t *freeze = freeze_path(m->sb, err, &rc), *request;

	if (rc < 0)
		return rc;
	request = files_request(m, "capture");
	(void)json_object_set_new(request, "held", json_true());
	if (m->live) {
		(void)json_object_set_new(request, "template", json_string(m->memory->id));
		(void)json_object_set_new(request, "run", json_string(m->sb->srv->run));
	}
	if (freeze != NULL)
		(void)json_object_set_new(request, "freeze", freeze);
	return job_start(m->sb->srv, NULL, request, on_said, m, &m->job, err);
}

static int capture_files(void *of, struct err *err)
{
	struct moment *m = of;

	framelink_send(job_link(m->job), FRAME_STDIN, 0, "", 0);
	return files_wait(m, 2, err);
}

/* @rc, @err: how the moment went; the job's own reason comes before a mere -EIO. */
static int files_end(struct moment *m, int rc, struct err *err)
{
	struct err why = { 0 };
	int late;

	if (m->job == NULL)
		return rc;
	/* given up: it ends when we hang up */
	if (rc < 0 && !job_ended(m->job))
		framelink_abort(job_link(m->job));
	late = job_end(TAKE_PTR(m->job), &m->files, &why);
	rc = rc < 0 ? rc : late;
	if (rc < 0 && err->code == ERR_NONE && late < 0)
		*err = why;
	else if (rc < 0 && err->code == ERR_NONE)
		(void)err_raise(err, ERR_INTERNAL, "the files were not captured");
	return rc;
}

static int seal(void *of, struct err *err)
{
	struct moment *m = of;

	return job_run(m->sb->srv, files_request(m, "seal"), NULL, NULL, &m->files, err);
}

/* A job that was killed in the middle leaves the sandbox frozen; thawing one that is not frozen is harmless. */
static void thaw(const struct moment *m)
{
	if (m->sb->state == SANDBOX_RUNNING && m->sb->keeper != NULL)
		(void)!framelink_call(&m->sb->keeper->link, json_pack("{s:s}", "verb", "thaw"),
			clock_now_ns() + CALL_NS, NULL, NULL);
}

/* --- moments --- */

static bool is_starting_a_program(const struct sandbox *sb)
{
	list_for_each (&sb->execs, node, next) {
		const struct exec *e = list_entry(node, struct exec, node);

		if (!e->started && !e->ended)
			return true;
	}
	return false;
}

/* A start takes as long as the machine is busy, and nothing is stopped meanwhile: to try again before it is over would use the tries up. */
static void pause_a_little(void *of)
{
	const struct moment *m = of;
	uint64_t deadline = clock_now_ns() + PATIENCE_NS;
	struct waiters nobody;

	waiters_init(&nobody);
	do {
		(void)waiters_wait(&nobody, clock_now_ns() + PAUSE_NS);
		(void)fault("moment.pause");
	} while (is_starting_a_program(m->sb) && clock_now_ns() < deadline);
}

static const struct epoch_steps sealing = { .capture = seal, .wait = pause_a_little };
static const struct epoch_steps files_alone = { .capture = capture_files, .wait = pause_a_little };
/* with or without a job for the files, which hears from the keeper when they are stopped, and is heard by it before they go on */
static const struct epoch_steps with_processes = {
	.freeze = stop_processes, .release = release_processes, .wait = pause_a_little
};

static struct epoch epoch_of(struct moment *m, const struct epoch_steps *steps)
{
	return (struct epoch){ holders, ARRAY_SIZE(holders), steps, m, NULL, PATIENCE_NS };
}

bool moment_is_sealed(const struct sandbox *sb)
{
	return (sb->state == SANDBOX_STOPPED || sb->state == SANDBOX_FAILED ||
		       sb->state == SANDBOX_SUSPENDED) &&
	       !sandbox_has_disk(sb);
}

static int take_files(struct moment *m, struct err *err)
{
	const struct epoch e = epoch_of(m, &files_alone);
	int rc = files_begin(m, err);

	if (rc == 0)
		rc = files_wait(m, 1, err);
	if (rc == 0)
		rc = epoch_take(&e, err);
	rc = files_end(m, rc, err);
	if (rc < 0)
		thaw(m);
	return rc;
}

static int take_all(struct moment *m, struct err *err)
{
	struct epoch e = epoch_of(m, &with_processes);
	struct err late = { 0 };
	int rc;

	e.instead =
		"take its files alone: --files-only (in the API: files_only or \"live\": false)";
	if (m->sb->state != SANDBOX_RUNNING)
		return err_raise(err, ERR_STATE,
			"sandbox '%s' is not running: it has no processes to keep", m->sb->name);
	rc = live_fits(m->sb, err);
	if (rc < 0)
		return rc;
	m->memory = spare_take(m->sb->srv, err);
	if (m->memory == NULL)
		return -EIO;
	/* it starts beside the first pass over the files */
	rc = files_begin(m, err);
	if (rc == 0)
		rc = live_ready(m->memory, err);
	(void)fault("live.take.template");
	if (rc == 0) {
		ready_begin(m);
		rc = ready_end(m, files_wait(m, 1, err), err);
		if (rc == 0)
			rc = epoch_take(&e, err);
		if (rc < 0)
			ready_forget(m);
	}
	if (released(m, &late) < 0 && rc == 0) {
		*err = late;
		rc = -EIO;
		m->spoiled = late.code == ERR_BUSY;
	}
	m->spoiled |= rc < 0 && !live_alive(m->memory);
	if (rc == 0)
		spare_want(m->sb->srv,
			(uint64_t)json_integer_value(json_object_get(m->figures, "bytes")));
	return files_end(m, rc, err);
}

int moment_take(struct moment *m, struct err *err)
{
	const struct epoch e = epoch_of(m, &sealing);

	*err = (struct err){ 0 };
	if (moment_is_sealed(m->sb))
		return epoch_take(&e, err);
	return m->live ? take_all(m, err) : take_files(m, err);
}

int moment_suspend(struct moment *m, struct err *err)
{
	const struct epoch e = epoch_of(m, &with_processes);
	int rc = live_fits(m->sb, err);

	if (rc < 0)
		return rc;
	m->for_good = true;
	m->memory = live_new(m->sb->srv, err);
	if (m->memory == NULL)
		return -EIO;
	(void)fault("live.take.template");
	return epoch_stop(&e, err);
}

void moment_go(struct moment *m)
{
	const struct epoch e = epoch_of(m, &with_processes);

	epoch_go(&e);
	(void)!released(m, NULL);
}

int moment_keep(struct moment *m, struct err *err)
{
	const struct epoch e = epoch_of(m, NULL);

	return epoch_keep(&e, err);
}

int moment_fork(struct sandbox *sb, const char *snapshot, struct err *err)
{
	struct moment m = { .sb = sb, .snapshot = snapshot };
	const struct epoch e = epoch_of(&m, NULL);

	return epoch_fork(&e, err);
}

int moment_load(struct sandbox *sb, const struct snapshot *s, struct err *err)
{
	/* of another sandbox everything that happened in this one is later */
	bool own = json_equal(json_object_get(s->doc, "sandbox"), json_object_get(sb->doc, "id"));
	struct moment m = { .sb = sb,
		.snapshot = s->id,
		.epoch = own ? (uint64_t)json_integer_value(json_object_get(s->doc, "epoch")) : 0 };
	const struct epoch e = epoch_of(&m, NULL);

	return epoch_load(&e, err);
}

void moment_fini(struct moment *m)
{
	live_drop(TAKE_PTR(m->memory));
	json_decref(m->execs);
	json_decref(m->gateway);
	json_decref(m->files);
	json_decref(m->figures);
	m->execs = m->gateway = m->files = m->figures = NULL;
}
