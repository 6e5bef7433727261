/* SPDX-License-Identifier: Apache-2.0 */
/* api/sandbox_end.c - the ends of a sandbox: stopped, removed, or its keeper gone unasked. */
#include "api/credentials.h"
#include "api/exec_past.h"
#include "api/identity.h"
#include "api/memories.h"
#include "api/readings.h"
#include "api/sandbox_parts.h"
#include "api/steps.h"
#include "api/telling.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

#define TRASH_PAUSE_NS (100 * NS_PER_MS)
#define TRASH_AGAIN_NS (600 * NS_PER_S) /* at most, when it cannot be done */

/* Ask politely, wait until every exec has ended or the time is over, or nobody is there any more who could say so. */
static void terminate_execs(struct sandbox *sb, uint64_t grace_ms)
{
	uint64_t deadline = clock_now_ns() + grace_ms * NS_PER_MS;
	unsigned char sig[4];
	bool any = false;

	frame_put_u32(sig, 15);
	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);

		if (e->ended)
			continue;
		framelink_send(&sb->keeper->link, FRAME_SIGNAL, e->channel, sig, sizeof(sig));
		any = true;
	}
	while (any && sb->keeper != NULL && !sb->keeper->link.dead &&
		waiters_wait(&sb->changed, deadline) == 0) {
		any = false;
		list_for_each (&sb->execs, node, next)
			any |= !list_entry(node, struct exec, node)->ended;
	}
}

int sandbox_halt(struct sandbox *sb, const char *reason, uint64_t grace_ms, struct err *err)
{
	int rc;

	if (sb->keeper == NULL)
		return err_raise(err, ERR_STATE, "sandbox '%s' is %s", sb->name,
			sandbox_state_name(sb->state));
	reserve_use(sb->srv);
	if (grace_ms > 0 && sb->state == SANDBOX_RUNNING)
		terminate_execs(sb, grace_ms);
	if (sb->keeper == NULL)
		return err_raise(err, ERR_STATE, "sandbox '%s' ended by itself", sb->name);
	(void)fault("sandbox.stop.before");
	if (sb->state != SANDBOX_CREATING)
		sandbox_usage_keep(sb);
	sandbox_drop_keeper(sb, true);
	execs_lost(sb, "killed", "the sandbox was stopped");
	sandbox_set_time(sb, "stopped");
	(void)json_object_set_new(sb->doc, "init_pid", json_null());
	(void)json_object_del(sb->doc, "databases");
	rc = sandbox_move(sb, SANDBOX_STOPPED, EVENT_SANDBOX_STOPPED,
		json_pack(
			"{s:s,s:O}", "reason", reason, "usage", json_object_get(sb->doc, "usage")),
		err);
	(void)fault("sandbox.stop.committed");
	return rc;
}

/* What a job did not delete: it failed, or was killed. */
struct leftover {
	bool any;
	json_t *ids;
	uint64_t due_ns, pause_ns; /* when it is tried again; how long that was put off */
};

static bool trash_waits(const struct server *srv)
{
	return json_array_size(srv->trash) > 0 || srv->trash_left;
}

/* Until there is something to do, and a moment longer: more may come. */
static void trash_await(struct server *srv, const struct leftover *left)
{
	uint64_t due = left->any ? left->due_ns : 0;

	while (!srv->stopping && !trash_waits(srv) && waiters_wait(&srv->trash_changed, due) == 0)
		;
	due = clock_now_ns() + TRASH_PAUSE_NS;
	while (!srv->stopping && waiters_wait(&srv->trash_changed, due) == 0)
		;
}

/* One job for all, and behind a failure for what others left half deleted too. */
static void trash_delete(struct server *srv, struct leftover *left)
{
	bool again = left->any && (srv->stopping || clock_now_ns() >= left->due_ns);
	bool sweep = again || srv->trash_left;
	json_t *ids = srv->trash;
	struct err err;

	srv->trash = json_array();
	srv->trash_left = false;
	if (again) {
		(void)json_array_extend(ids, left->ids);
		(void)json_array_clear(left->ids);
		left->any = false;
	}
	if (job_run(srv,
		    json_pack("{s:s,s:O,s:b,s:b}", "verb", "remove", "sandboxes", ids, "forget", 1,
			    "trash", (int)sweep),
		    NULL, NULL, NULL, &err) < 0) {
		left->any = true;
		(void)json_array_extend(left->ids, ids);
		left->pause_ns = again ? left->pause_ns * 4 : TRASH_PAUSE_NS;
		if (left->pause_ns > TRASH_AGAIN_NS)
			left->pause_ns = TRASH_AGAIN_NS;
		left->due_ns = clock_now_ns() + left->pause_ns;
		log_warn("store", "remove: %s (%s)", err.msg,
			srv->stopping ? "the next start clears up" : "it is tried again");
	}
	json_decref(ids);
}

/*
 * Deletes files of removed sandboxes, many with one job: each costs a process and its control groups, and takes a processor from whoever removes one to begin the next. A job that failed
 * or was killed is followed by another one, at growing distances. A server that stops waits for the last one (server.c); what that left is for the next start.
 */
static void trash_main(void *arg)
{
	struct server *srv = arg;
	struct leftover left = { .ids = json_array() };
	bool last = false;

	while (!last && (trash_waits(srv) || left.any)) {
		trash_await(srv, &left);
		last = srv->stopping && left.any;
		trash_delete(srv, &left);
	}
	json_decref(left.ids);
	srv->trash_busy = false;
	waiters_wake(&srv->trash_changed);
}

void sandbox_trash_finish(struct server *srv, uint64_t deadline_ns)
{
	waiters_wake(&srv->trash_changed);
	while (srv->trash_busy && waiters_wait(&srv->trash_changed, deadline_ns) == 0)
		;
}

static void trash_begin(struct server *srv)
{
	if (srv->trash_busy) {
		waiters_wake(&srv->trash_changed);
		return;
	}
	srv->trash_busy = true;
	fiber_start(trash_main, srv);
}

void sandbox_trash_note(struct server *srv, const char *id)
{
	(void)json_array_append_new(srv->trash, json_string(id));
}

void sandbox_trash_settle(struct server *srv)
{
	if (trash_waits(srv) && !srv->stopping)
		trash_begin(srv);
}

void sandbox_trash_sweep(struct server *srv)
{
	srv->trash_left = true;
	trash_begin(srv);
}

/* Its rows, all at once; its own says so until that is told. What is found without a row after a crash is cleared away. */
static int delete_rows(struct sandbox *sb, const struct telling *removed, struct err *err)
{
	struct catalogue *c = sb->srv->catalogue;
	int rc = catalogue_begin(c, false, err);

	if (rc == 0)
		rc = telling_bury(sb->srv, CATALOGUE_SANDBOXES, sb->id, removed, err);
	if (rc == 0)
		rc = catalogue_delete_owned(c, CATALOGUE_EXECS, sb->id, err);
	if (rc == 0)
		rc = catalogue_delete(c, CATALOGUE_GATEWAYS, sb->id, err);
	if (rc == 0)
		rc = catalogue_delete_owned(c, CATALOGUE_MAILS, sb->id, err);
	if (rc == 0 && fault("sandbox.remove.before_commit") < 0)
		rc = err_raise(err, ERR_INTERNAL, "the removal was not written");
	if (rc == 0)
		return catalogue_commit(c, err);
	catalogue_abort(c);
	return rc;
}

int sandbox_forget(struct sandbox *sb, struct err *err)
{
	const struct telling removed = { .type = EVENT_SANDBOX_REMOVED,
		.sandbox = sb->id,
		.epoch = sandbox_epoch(sb),
		.data = json_pack("{s:s}", "name", sb->name) };
	int rc;

	reserve_use(sb->srv);
	rc = delete_rows(sb, &removed, err);
	if (rc < 0) {
		json_decref(removed.data);
		return rc;
	}
	(void)fault("sandbox.remove.committed");
	exec_saved_remove(sb->srv, sb->id);
	credentials_forget(sb->srv, sb->id);
	/* its keeper may take long to end */
	map_remove(&sb->srv->sandboxes_by_name, &sb->by_name);
	execs_past_forget(sb);
	sandbox_enter(sb, SANDBOX_REMOVING, EVENT_SANDBOX_REMOVED, removed.data);
	telling_buried(sb->srv, CATALOGUE_SANDBOXES, sb->id, NULL);
	return 0;
}

void sandbox_clear(struct sandbox *sb)
{
	struct server *srv = sb->srv;
	cleanup_free char *memory = NULL;

	(void)fault("sandbox.remove.marked");
	readings_cut(sb);
	sandbox_drop_keeper(sb, false);
	hold_drop(sb);
	slot_free(srv, (uint32_t)json_integer_value(json_object_get(sb->doc, "slot")));
	execs_lost(sb, "killed", "the sandbox was removed");
	sandbox_trash_note(srv, sb->id);
	trash_begin(srv);
	memory = memory_of(sb->doc) != NULL ? str_dup(memory_of(sb->doc)) : NULL;
	sandbox_unlist(sb);
	memory_forget(srv, memory);
	steps_sweep(srv);
}

int sandbox_remove(struct sandbox *sb, struct err *err)
{
	int rc = sandbox_forget(sb, err);

	if (rc == 0)
		sandbox_clear(sb);
	return rc;
}

/* One that was not started yet has not stopped. */
static bool is_over(const struct sandbox *sb)
{
	return (sb->state == SANDBOX_STOPPED || sb->state == SANDBOX_FAILED) && !sb->gone &&
	       json_is_string(json_object_get(sb->doc, "stopped"));
}

int sandbox_expire(struct sandbox *sb, struct err *err)
{
	return is_over(sb) && json_is_true(json_object_get(sb->doc, "ephemeral"))
		       ? sandbox_remove(sb, err)
		       : 0;
}

/* --- a keeper that ended unasked --- */

static const char *lost_reason(const struct keeper *k)
{
	return k->lost[0] != '\0' ? k->lost : "its first process ended, and with it all others";
}

static enum err_code lost_code(const struct keeper *k)
{
	return k->lost_code != ERR_NONE ? k->lost_code : ERR_STATE;
}

void sandbox_lost(struct sandbox *sb, const struct err *why)
{
	json_t *error = err_to_json(why);
	struct err err;

	sandbox_usage_keep(sb);
	sandbox_drop_keeper(sb, true);
	execs_lost(sb, "lost", why->msg);
	(void)json_object_set(sb->doc, "error", error);
	(void)json_object_set_new(sb->doc, "init_pid", json_null());
	(void)json_object_del(sb->doc, "databases");
	sandbox_set_time(sb, "stopped");
	(void)sandbox_move(
		sb, SANDBOX_FAILED, EVENT_SANDBOX_FAILED, json_pack("{s:o}", "error", error), NULL);
	if (sandbox_expire(sb, &err) < 0)
		log_warn("sandbox", "remove '%s': %s", sb->name, err.msg);
}

static void lost_main(void *arg)
{
	struct sandbox *sb = arg;
	struct err why = { 0 };
	int rc;

	do /* somebody may work on it for minutes */
		rc = sandbox_lock(sb, NULL);
	while (rc < 0 && !sb->gone);
	if (rc == 0) {
		if (sb->keeper != NULL && sb->keeper->failed && sb->state != SANDBOX_CREATING &&
			!sb->srv->stopping) {
			(void)err_raise(&why, lost_code(sb->keeper), "sandbox '%s' is lost: %s",
				sb->name, lost_reason(sb->keeper));
			sandbox_lost(sb, &why);
		}
		sandbox_unlock(sb);
	}
	sandbox_unref(sb);
}

void sandbox_keeper_lost(struct sandbox *sb)
{
	/* whoever holds the lock ends it on purpose, or will see the failure itself */
	(void)sandbox_ref(sb);
	waiters_wake(&sb->changed);
	fiber_start(lost_main, sb);
}
