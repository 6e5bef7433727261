/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/suspend.c - suspending to disk and resuming (docs/design/0009).
 *
 *   suspend: catalogue (`suspending`) -> every process is stopped, template filled -> object renamed into place, synced -> keeper: frozen, EXACT, killed
 *            -> catalogue (suspended), synced -> the template goes
 *   resume:  template filled from the object, keeper beside it -> processes made, held -> catalogue (running), synced -> go -> template and object go
 *
 * Invariants
 *  (1) while the catalogue says suspended nothing of the sandbox has run since the object was made, and nobody has put files into it;
 *  (2) an object is EXACT only when the processes can never run again: a crash between that and the catalogue is finished at the next start, and what the catalogue
 *      cannot take (full disk) with the next change of the sandbox;
 *  (3) before `go` nothing has happened: every failure leaves the sandbox suspended;
 *  (4) processes are forgotten behind the commit that says so;
 *  (5) where nobody can say whether an object is EXACT (no storage, a job that fails, a keeper that does not answer in time) the sandbox counts as suspended, with `suspending` in its document, until somebody can.
 */
#include "api/suspend.h"
#include "api/credentials.h"
#include "api/memories.h"
#include "api/moments.h"
#include "api/sandbox_parts.h"
#include "api/writings.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

#define SUSPEND_NS (60 * NS_PER_S)

/* --- suspending --- */

/* Nothing came of it: the sandbox goes on. */
static void give_up(struct sandbox *sb, const char *memory)
{
	(void)json_object_del(sb->doc, "suspending");
	(void)json_object_del(sb->doc, "suspended_by");
	(void)!sandbox_save(sb, false, NULL);
	memory_forget(sb->srv, memory);
}

/* @err: why. */
static int cannot_say(const struct sandbox *sb, int rc, struct err *err)
{
	err_context(err, "nobody can say yet whether the processes of sandbox '%s' are on disk",
		sb->name);
	return err_hint(err, rc,
		"it counts as suspended, and each resume looks again; 'cay stop' gives its processes up");
}

static void count_as_suspended(struct sandbox *sb)
{
	(void)json_object_set_new(sb->doc, "memory",
		json_pack("{s:O}", "id", json_object_get(sb->doc, "suspending")));
	(void)json_object_set_new(sb->doc, "init_pid", json_null());
	sandbox_index(sb);
	sandbox_enter(sb, SANDBOX_SUSPENDED, EVENT_TYPE_COUNT, NULL);
}

/* Return: 0; or an error: they go on or are lost, unless it counts as suspended now (5). */
static int end_processes(struct sandbox *sb, const char *memory, struct err *err)
{
	uint64_t patience_ns = fault("sandbox.suspend.impatient") < 0 ? 0 : SUSPEND_NS;
	int exact, rc;
	struct err doubt;

	hold_take(sb);
	rc = framelink_call(&sb->keeper->link,
		json_pack("{s:s,s:s}", "verb", "suspend", "memory", memory),
		clock_now_ns() + patience_ns, NULL, err);

	if (rc == 0 || (!sb->keeper->link.dead && err->code != ERR_TIMEOUT))
		return rc;
	doubt = *err;
	/* it was killed, and may have come as far as that; or the disk keeps it waiting, and it comes as far behind us */
	exact = sb->keeper->link.dead ? memory_is_exact(sb->srv, memory, &doubt) : rc;
	if (exact >= 0)
		return exact == 1 ? 0 : rc;
	*err = doubt;
	count_as_suspended(sb);
	return cannot_say(sb, exact, err);
}

/* It is, whatever the catalogue says to it: its object is EXACT (2). @figures: of the object, stolen. */
static void become_suspended(
	struct sandbox *sb, const char *memory, json_t *figures, const char *reason)
{
	json_t *what = figures != NULL ? figures : json_object();
	struct err err;
	int rc;

	(void)json_object_set_new(what, "id", json_string(memory));
	(void)json_object_set_new(sb->doc, "memory", what);
	(void)json_object_del(sb->doc, "suspending");
	(void)json_object_set_new(sb->doc, "init_pid", json_null());
	sandbox_set_time(sb, "suspended");
	rc = fault("sandbox.suspend.before_commit");
	if (rc < 0)
		(void)err_raise_sys(&err, rc, "write sandbox '%s'", sb->name);
	sandbox_enter(sb, SANDBOX_SUSPENDED, EVENT_SANDBOX_SUSPENDED,
		json_pack("{s:s,s:O}", "reason", reason, "memory", what));
	if (rc == 0)
		rc = sandbox_save(sb, true, &err);
	(void)fault("sandbox.suspend.committed");
	if (rc < 0)
		log_error("sandbox", "it is suspended, which its next change writes: %s", err.msg);
}

static int write_and_end(
	struct sandbox *sb, struct live *l, const char *memory, const char *reason, struct err *err)
{
	json_t *figures = NULL, *run = NULL;
	int rc = memory_save(sb->srv, l, memory, sb->id, &figures, err);

	(void)fault("sandbox.suspend.saved");
	if (rc == 0) {
		run = sandbox_usage_read(sb);
		rc = end_processes(sb, memory, err);
	}
	(void)fault("sandbox.suspend.ended");
	if (rc == 0 || sb->state == SANDBOX_SUSPENDED) {
		sandbox_usage_add(sb, run);
	} else {
		json_decref(run);
		hold_drop(sb);
	}
	if (rc < 0) {
		json_decref(figures);
		return rc;
	}
	become_suspended(sb, memory, figures, reason);
	return 0;
}

int sandbox_suspend(struct sandbox *sb, const char *reason, struct err *err)
{
	struct moment m = { .sb = sb, .live = true };
	struct id memory = id_new();
	int rc;

	if (sb->state != SANDBOX_RUNNING)
		return err_raise(err, ERR_STATE, "sandbox '%s' is %s: it cannot be suspended",
			sb->name, sandbox_state_name(sb->state));
	(void)json_object_set_new(sb->doc, "suspending", json_string(memory.s));
	(void)json_object_set_new(
		sb->doc, "suspended_by", json_string(str_eq(reason, "idle") ? "idle" : "request"));
	rc = sandbox_save(sb, false, err);
	writings_stop(sb);
	if (rc == 0)
		rc = moment_suspend(&m, err);
	(void)fault("sandbox.suspend.stopped");
	if (rc == 0) {
		rc = write_and_end(sb, m.memory, memory.s, reason, err);
		if (sb->state != SANDBOX_SUSPENDED)
			moment_go(&m);
	}
	if (sb->state == SANDBOX_SUSPENDED) {
		sandbox_drop_keeper(sb, false);
		live_end(TAKE_PTR(m.memory));
	}
	writings_allow(sb);
	moment_fini(&m);
	if (rc < 0) {
		if (sb->state != SANDBOX_SUSPENDED)
			give_up(sb, memory.s);
		err_context(err, "suspend sandbox '%s'", sb->name);
	}
	return rc;
}

/* --- resuming --- */

static json_t *exec_documents(const struct sandbox *sb)
{
	json_t *list = json_array();

	list_for_each (&sb->execs, node, next) {
		const struct exec *e = list_entry(node, struct exec, node);

		if (!e->ended)
			(void)json_array_append(list, e->doc);
	}
	return list;
}

/*
 * What is loaded while it runs counts against its own limit. Before, pages that it had from the template of a fork did not: where all of them could come near it, all are there first, and do not
 * either.
 */
static bool may_be_lazy(const struct sandbox *sb)
{
	json_int_t limit = json_integer_value(
			   json_object_get(json_object_get(sb->doc, "limits"), "memory_bytes")),
		   bytes = json_integer_value(
			   json_object_get(json_object_get(sb->doc, "memory"), "bytes"));

	/* where programs may trace, they may also make threads that nobody can hold */
	if (str_eq(json_string_value(json_object_get(sb->doc, "profile")), "debug"))
		return false;
	return (uint64_t)bytes >= sb->srv->lazy_least && !sb->lazy_failed &&
	       (limit == 0 || bytes <= limit / 2);
}

/* The sandbox is built while the memory is unpacked. @ret_ok: what its keeper answered. NULL with @err set. */
static struct live *load_and_launch(struct sandbox *sb, json_t **ret_ok, struct err *err)
{
	json_t *execs = exec_documents(sb);
	struct memory_loading loading;
	struct live *l;
	int rc = memory_load_begin(
		sb->srv, memory_of(sb->doc), execs, may_be_lazy(sb), &loading, err);

	json_decref(execs);
	if (rc < 0)
		return NULL;
	rc = sandbox_launch(sb, loading.live, false, ret_ok, err);
	(void)fault("sandbox.resume.launched");
	l = memory_load_end(&loading, rc == 0, err);
	(void)fault("sandbox.resume.loaded");
	return l;
}

/* The point of no return: from here on the object is the past. */
static int become_running(struct sandbox *sb, json_int_t init_pid, struct err *err)
{
	json_t *memory = json_incref(json_object_get(sb->doc, "memory"));
	int rc;

	(void)json_object_del(sb->doc, "memory");
	(void)json_object_set_new(sb->doc, "state", json_string("running"));
	(void)json_object_set_new(sb->doc, "init_pid", json_integer(init_pid));
	(void)fault("sandbox.resume.before_commit");
	rc = sandbox_save(sb, true, err);
	if (rc < 0) {
		(void)json_object_set(sb->doc, "memory", memory);
		sandbox_index(sb);
		(void)json_object_set_new(sb->doc, "state", json_string("suspended"));
		(void)json_object_set_new(sb->doc, "init_pid", json_null());
	}
	json_decref(memory);
	(void)fault("sandbox.resume.committed");
	return rc;
}

/* @ok: what its keeper answered; @event: what there is to say of it. */
static int restore_held(
	struct sandbox *sb, struct live *l, const json_t *ok, json_t *event, struct err *err)
{
	json_int_t pid = json_integer_value(json_object_get(ok, "init_pid"));
	int rc;

	sandbox_tell_changes(sb, event, ok);
	sandbox_bind(sb, pid);
	credentials_started(sb);
	rc = live_hold(sb, l, err);
	(void)fault("sandbox.resume.held");
	return rc == 0 ? become_running(sb, pid, err) : rc;
}

/* @event: stolen. */
static int let_go(struct sandbox *sb, json_t *event, struct err *err)
{
	int rc = live_go(sb, err);

	(void)json_object_del(sb->doc, "suspended_by");
	sandbox_set_time(sb, "resumed");
	sandbox_enter(sb, SANDBOX_RUNNING, EVENT_SANDBOX_RESUMED, event);
	(void)fault("sandbox.resume.gone");
	/* they may have run: what is left of them is not what was suspended */
	if (rc < 0)
		sandbox_lost(sb, err);
	return rc;
}

/* @err: why nothing came of it. What can be done about that goes first. */
static int cannot_resume(const struct sandbox *sb, int rc, struct err *err)
{
	err_context(err, "resume sandbox '%s'", sb->name);
	if (sb->state != SANDBOX_SUSPENDED || err->hint[0] != '\0')
		return rc;
	return err_hint(err, rc,
		"it stays suspended, and each resume tries again; its files are fine: cay resume --files-only %s goes on without its programs",
		sb->name);
}

int sandbox_resume(struct sandbox *sb, struct err *err)
{
	cleanup_free char *memory = str_dup(memory_of(sb->doc));
	json_t *event, *ok = NULL;
	struct live *l;
	int rc;

	if (server_storage_check(sb->srv, err) < 0 || sandbox_settle_suspend(sb, err) < 0)
		return -EIO;
	if (sb->state != SANDBOX_SUSPENDED || memory == NULL)
		return err_raise(err, ERR_STATE, "sandbox '%s' is %s: it cannot be resumed",
			sb->name, sandbox_state_name(sb->state));
	/* it is being prepared while the memory is loaded */
	if (sandbox_want_keeper(sb, err) < 0)
		return -EIO;
	l = load_and_launch(sb, &ok, err);
	event = json_object();
	rc = l == NULL ? -EIO : restore_held(sb, l, ok, event, err);
	json_decref(ok);
	/* whatever it was, the next try does not depend on it */
	sb->lazy_failed = rc < 0;
	if (rc < 0) {
		sandbox_drop_keeper(sb, false);
		json_decref(event);
	} else {
		rc = let_go(sb, event, err);
		memory_forget_later(sb->srv, memory);
	}
	live_drop(l);
	return rc < 0 ? cannot_resume(sb, rc, err) : 0;
}

static json_t *stopped_because(const struct sandbox *sb, const char *reason)
{
	return json_pack("{s:s,s:O}", "reason", reason, "usage", json_object_get(sb->doc, "usage"));
}

void sandbox_disown_processes(struct sandbox *sb, const char *reason)
{
	json_t *data = stopped_because(sb, reason);

	(void)json_object_del(sb->doc, "memory");
	(void)json_object_del(sb->doc, "suspended_by");
	(void)json_object_del(
		sb->doc, "suspending"); /* where nobody could look at its object yet */
	(void)json_object_set_new(sb->doc, "state", json_string("stopped"));
	sandbox_set_time(sb, "stopped");
	sandbox_will_tell(sb, EVENT_SANDBOX_STOPPED, data);
	json_decref(data);
}

void sandbox_disowned_processes(struct sandbox *sb, const char *memory, const char *reason)
{
	(void)fault("sandbox.forget.committed");
	execs_lost(sb, "killed", reason);
	sandbox_enter(sb, SANDBOX_STOPPED, EVENT_SANDBOX_STOPPED, stopped_because(sb, reason));
	memory_forget(sb->srv, memory);
}

int sandbox_forget_processes(struct sandbox *sb, const char *reason, struct err *err)
{
	cleanup_free char *memory = str_dup(memory_of(sb->doc));
	json_t *was = json_copy(sb->doc);
	int rc;

	sandbox_disown_processes(sb, reason);
	rc = fault("sandbox.forget.before_commit");
	if (rc < 0)
		(void)err_raise_sys(err, rc, "write sandbox '%s'", sb->name);
	if (rc == 0)
		rc = sandbox_save(sb, false, err);
	if (rc == 0) {
		hold_drop(sb);
		sandbox_disowned_processes(sb, memory, reason);
	} else {
		sandbox_take_back(sb, was);
	}
	json_decref(was);
	return rc;
}

/* --- after a start of cayd --- */

int sandbox_settle_suspend(struct sandbox *sb, struct err *err)
{
	static const char gone[] = "its processes were gone when the server started";
	const char *under_way = json_string_value(json_object_get(sb->doc, "suspending"));
	cleanup_free char *memory = under_way != NULL ? str_dup(under_way) : NULL;
	int rc;

	if (memory == NULL)
		return 0;
	rc = sb->srv->storage != NULL ? memory_is_exact(sb->srv, memory, err)
				      : server_storage_check(sb->srv, err);
	if (rc < 0)
		return cannot_say(sb, rc, err);
	if (rc == 1) {
		/* what it had counted went with the server that had asked */
		if (sb->state != SANDBOX_SUSPENDED)
			sandbox_usage_add(sb, NULL);
		become_suspended(sb, memory, NULL, "the server ended while it was suspended");
		return 0;
	}
	if (sb->state != SANDBOX_SUSPENDED)
		return 0;
	(void)json_object_del(sb->doc, "suspending");
	execs_lost(sb, "lost", gone);
	return sandbox_forget_processes(sb, gone, err);
}

bool sandbox_await_object(struct sandbox *sb)
{
	if (json_object_get(sb->doc, "suspending") == NULL)
		return false;
	sandbox_usage_add(sb, NULL);
	count_as_suspended(sb);
	return true;
}

static void settle_one(struct sandbox *sb, attr_unused const void *unused)
{
	struct err err;

	if (sb->awaited || sandbox_lock(sb, NULL) < 0)
		return;
	if (sb->state == SANDBOX_SUSPENDED &&
		(sandbox_settle_suspend(sb, &err) < 0 || sandbox_expire(sb, &err) < 0))
		log_error("sandbox", "%s", err.msg);
	sandbox_unlock(sb);
}

void sandboxes_settle_suspend(struct server *srv)
{
	sandbox_for_all(srv, settle_one, NULL);
}
