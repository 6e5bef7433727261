/* SPDX-License-Identifier: Apache-2.0 */
/* api/sandbox_start.c - letting a sandbox run: claiming a keeper, giving it the specification. */
#include "api/credentials.h"
#include "api/exec_past.h"
#include "api/lives.h"
#include "api/sandbox_parts.h"
#include "api/writings.h"
#include "base/fault.h"
#include "base/str.h"

void sandbox_drop_keeper(struct sandbox *sb, bool save)
{
	struct keeper *k = sb->keeper;

	if (k == NULL)
		return;
	writings_stop(sb);
	gateway_close(sb);
	list_for_each (&sb->execs, node, next)
		list_entry(node, struct exec, node)->archived = true;
	keeper_end(k, save);
	if (sb->keeper == k)
		sb->keeper = NULL;
	keeper_unref(k);
	writings_allow(sb);
	execs_tidy(sb);
}

/* End what runs of it because of @why: `failed`, its execs `lost`. Locked. */
static void sandbox_fail(struct sandbox *sb, const struct err *why)
{
	json_t *error = err_to_json(why);

	sandbox_drop_keeper(sb, false);
	execs_come_back(sb, NULL);
	execs_lost(sb, "lost", why->msg);
	(void)json_object_set(sb->doc, "error", error);
	(void)json_object_set_new(sb->doc, "init_pid", json_null());
	(void)json_object_del(sb->doc, "restoring");
	sandbox_set_time(sb, "stopped");
	(void)sandbox_move(
		sb, SANDBOX_FAILED, EVENT_SANDBOX_FAILED, json_pack("{s:o}", "error", error), NULL);
}

void sandbox_bind(struct sandbox *sb, json_int_t init_pid)
{
	process_source_drain(sb->srv->processes);
	process_source_bind(sb->srv->processes, sb->id, (pid_t)init_pid, NULL);
	process_source_epoch(sb->srv->processes, sb->id, sandbox_epoch(sb));
}

void sandbox_tell_changes(struct sandbox *sb, json_t *event, const json_t *ok)
{
	json_t *databases = json_object_get(ok, "databases");
	json_int_t ms = (json_int_t)NS_PER_MS;
	json_int_t back_ns = json_integer_value(json_object_get(ok, "clocks_back_ns"));

	if (back_ns > 0)
		(void)json_object_set_new(
			event, "clocks_back_ms", json_integer((back_ns + ms - 1) / ms));
	if (json_is_true(json_object_get(ok, "devices_changed")))
		(void)json_object_set_new(event, "devices_changed", json_true());
	(void)json_object_del(sb->doc, "databases");
	if (json_is_array(databases)) {
		(void)json_object_set(event, "databases", databases);
		(void)json_object_set(sb->doc, "databases", databases);
	}
}

void sandbox_started(struct sandbox *sb, const json_t *ok, bool warm)
{
	json_int_t pid = json_integer_value(json_object_get(ok, "init_pid"));
	json_t *event = json_pack("{s:I,s:b}", "init_pid", pid, "warm", (int)warm);

	sandbox_bind(sb, pid);
	(void)json_object_set_new(sb->doc, "init_pid", json_integer(pid));
	credentials_started(sb);
	(void)json_object_del(sb->doc, "error");
	sandbox_set_time(sb, "started");
	sandbox_tell_changes(sb, event, ok);
	sandbox_enter(sb, SANDBOX_RUNNING, EVENT_SANDBOX_STARTED, event);
}

int sandbox_want_keeper(struct sandbox *sb, struct err *err)
{
	if (sb->keeper != NULL)
		return 0;
	sb->keeper = keeper_new(
		sb->srv, sb->id, (int)json_integer_value(json_object_get(sb->doc, "slot")), err);
	if (sb->keeper == NULL)
		return -EIO;
	keeper_claim(sb->keeper);
	sb->keeper->sandbox = sb;
	return 0;
}

/* Behind a resume and a rewind no time has passed for its processes; a fork begins another life beside its source. */
static bool stood_still(const struct sandbox *sb)
{
	const char *what = json_string_value(json_object_get(sb->doc, "restoring"));

	return what == NULL || !str_eq(what, "fork");
}

int sandbox_launch(struct sandbox *sb, const struct live *processes, bool restore, json_t **ret_ok,
	struct err *err)
{
	const char *image = json_string_value(json_object_get(sb->doc, "image"));
	json_t *request;
	bool numbered;
	int rc = sandbox_check_storage(sb->srv, image, err);

	if (rc == 0)
		rc = sandbox_settle_files(sb, err);
	if (rc == 0)
		rc = chain_shorten(sb, err);
	if (rc == 0)
		rc = sandbox_want_keeper(sb, err);
	if (rc == 0)
		rc = keeper_ready(sb->keeper, err);
	if (rc == 0)
		rc = sandbox_make_disk(sb, err);
	if (rc < 0)
		return rc;
	request = json_pack("{s:s,s:o}", "verb", "start", "spec", sandbox_spec(sb));
	if (processes != NULL) {
		(void)json_object_set_new(request, "template", json_string(processes->id));
		(void)json_object_set_new(request, "wipe", json_boolean(sb->another));
		(void)json_object_set_new(request, "stood", json_boolean(stood_still(sb)));
	}
	(void)json_object_set_new(request, "restore", json_boolean(restore));
	if (restore)
		(void)json_object_set_new(request, "attended", execs_attended(sb));
	/* whoever makes mounts meanwhile could get the numbers that are to be had */
	numbered = processes != NULL && sb->held.n > 0;
	if (numbered) {
		keeper_pool_pause(sb->srv);
		hold_give(sb, processes);
	}
	hold_drop(sb);
	rc = framelink_call(&sb->keeper->link, request,
		clock_now_ns() + (restore ? LIVE_RESTORE_NS : CALL_NS), ret_ok, err);
	if (numbered)
		keeper_pool_resume(sb->srv);
	return rc;
}

int sandbox_leave(struct sandbox *sb, struct err *err)
{
	int rc = fault("sandbox.leave.before");

	(void)json_object_set_new(sb->doc, "bare", json_true());
	rc = rc < 0 ? err_raise_sys(err, rc, "write sandbox '%s'", sb->name)
		    : sandbox_move(sb, SANDBOX_STOPPED, EVENT_SANDBOX_STOPPED,
			      json_pack("{s:s}", "reason", "not started"), err);
	if (rc < 0)
		(void)sandbox_remove(sb, NULL);
	return rc;
}

/* It runs, and what came with it: of both the catalogue hears at once. */
static int begun(struct sandbox *sb, const struct live *processes, const json_t *ok, bool warm,
	struct err *err)
{
	struct catalogue *c = sb->srv->catalogue;
	int rc;

	sandbox_started(sb, ok, warm);
	rc = catalogue_begin(c, false, err);
	if (rc < 0)
		return rc;
	if (processes != NULL)
		rc = live_came(sb, processes, ok, err);
	if (rc == 0)
		rc = sandbox_save(sb, false, err);
	if (rc == 0)
		return catalogue_commit(c, err);
	catalogue_abort(c);
	return rc;
}

int sandbox_start(
	struct sandbox *sb, const struct live *processes, bool remove_on_failure, struct err *err)
{
	bool warm = sb->keeper != NULL && sb->keeper->prepared;
	json_t *ok = NULL;
	int rc = 0;

	if (sb->state != SANDBOX_CREATING)
		rc = sandbox_move(sb, SANDBOX_CREATING, EVENT_TYPE_COUNT, NULL, err);
	if (rc == 0 && processes != NULL)
		(void)fault("live.restore.before");
	if (rc == 0)
		rc = sandbox_launch(sb, processes, processes != NULL, &ok, err);
	if (rc == 0 && processes != NULL)
		(void)fault("live.restore.after");
	if (rc == 0)
		rc = begun(sb, processes, ok, warm, err);
	json_decref(ok);
	if (rc < 0) {
		struct err why = *err;

		err_context(err, "start sandbox '%s'", sb->name);
		sandbox_fail(sb, &why);
		if (remove_on_failure)
			(void)sandbox_remove(sb, NULL);
	}
	return rc;
}
