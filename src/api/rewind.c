/* SPDX-License-Identifier: Apache-2.0 */
/* api/rewind.c - a sandbox becomes again what it, or what it was forked from, was at a snapshot. */
#include "api/identity.h"
#include "api/memories.h"
#include "api/moments.h"
#include "api/readings.h"
#include "api/snapshot_parts.h"
#include "api/steps.h"
#include "api/suspend.h"
#include "api_handlers.h"
#include "base/fault.h"
#include "base/str.h"

static int rewind_check(const struct sandbox *sb, const struct snapshot *s, struct err *err)
{
	json_t *config = json_object_get(s->doc, "config");

	/* since_ns is inherited by forks: equal in a lineage, and nowhere else */
	if (!json_equal(json_object_get(s->doc, "since_ns"), json_object_get(sb->doc, "since_ns")))
		return err_raise(err, ERR_INVALID,
			"snapshot '%s' is not of the lineage of sandbox '%s': neither it nor what it was forked from was ever in that state",
			s->id, sb->name);
	if (!json_equal(json_object_get(config, "image"), json_object_get(sb->doc, "image")) ||
		!json_equal(json_object_get(config, "mounts"), json_object_get(sb->doc, "mounts")))
		return err_raise(err, ERR_INVALID,
			"snapshot '%s' is not of the lineage of sandbox '%s': its image or mounts differ",
			s->id, sb->name);
	if (str_eq(json_string_value(json_object_get(s->doc, "state")), "corrupt"))
		return err_raise(err, ERR_CORRUPT, "snapshot '%s' failed its check", s->id);
	return 0;
}

static json_t *rewound(const struct sandbox *sb, const struct snapshot *s)
{
	return json_pack("{s:s,s:O,s:I}", "snapshot", s->id, "name",
		json_object_get(s->doc, "name"), "epoch_before", (json_int_t)sandbox_epoch(sb));
}

static int rewind_commit(struct sandbox *sb, struct snapshot *s, json_t *event, struct err *err)
{
	int rc;

	(void)json_object_set_new(sb->doc, "layers", json_copy(json_object_get(s->doc, "layers")));
	(void)json_object_set_new(
		sb->doc, "base_layers", json_copy(json_object_get(s->doc, "layers")));
	(void)json_object_set_new(sb->doc, "base", json_string(s->id));
	(void)json_object_set_new(sb->doc, "rewinding", json_true());
	(void)json_object_set_new(sb->doc, "bare", json_true());
	if (sb->state == SANDBOX_SUSPENDED)
		sandbox_disown_processes(sb, "rewind");
	steps_give_up(sb);
	rc = moment_load(sb, s, err);
	sandbox_will_tell(sb, EVENT_SANDBOX_REWOUND, event);
	if (rc == 0 && (rc = fault("rewind.commit.before")) < 0)
		(void)err_raise_sys(err, rc, "write what is rewound to");
	return rc == 0 ? sandbox_save(sb, true, err) : rc;
}

/* A power cut behind the commit, which is synced, must find on the disk what it names. */
static int sync_layers(struct server *srv, const struct snapshot *s, struct err *err)
{
	if (!str_eq(json_string_value(json_object_get(s->doc, "state")), "sealed"))
		return 0;
	return job_run(srv,
		json_pack("{s:s,s:o}", "verb", "sync", "layers", snapshot_unsynced(srv, s)), NULL,
		NULL, NULL, err);
}

/*
 * Before the commit it is what it was, from there on it is the snapshot: the live directory goes, and as long as it has not (`rewinding` in the document), nobody looks at it; whoever
 * starts the sandbox next, this server or another one, removes it first.
 */
static int rewind_files(struct sandbox *sb, struct snapshot *s, struct err *err)
{
	int rc = sync_layers(sb->srv, s, err); /* waits, and others may write the document */
	json_t *was = json_copy(sb->doc), *event = rewound(sb, s);
	cleanup_free char *memory = sb->state == SANDBOX_SUSPENDED ? str_dup(memory_of(was)) : NULL;

	if (rc == 0)
		rc = rewind_commit(sb, s, event, err);
	if (rc < 0)
		sandbox_take_back(sb, was);
	json_decref(was);
	if (rc < 0) {
		json_decref(event);
		return rc;
	}
	(void)fault("rewind.commit.after");
	steps_undone(sb); /* those that the halt has ended: their state is gone */
	if (memory != NULL)
		sandbox_disowned_processes(sb, memory, "rewind");
	(void)server_event(sb->srv, sb, EVENT_SANDBOX_REWOUND, NULL, event);
	return 0;
}

int sandbox_settle_rewind(struct sandbox *sb, struct err *err)
{
	json_t *ok = NULL;
	int rc;

	if (!json_is_true(json_object_get(sb->doc, "rewinding")))
		return 0;
	rc = fault("rewind.discard.before");
	if (rc < 0)
		return err_raise_sys(err, rc, "remove what came after the snapshot");
	readings_cut(sb);
	/* on the disk before `rewinding` can be gone from it: else a power cut brings it back, and the next start shows it on the snapshot's layers */
	rc = job_run(sb->srv,
		json_pack("{s:s,s:[s],s:b,s:b}", "verb", "remove", "sandboxes", sb->id, "defer", 1,
			"sync", 1),
		NULL, NULL, &ok, err);
	if (rc < 0)
		return rc;
	if (json_integer_value(json_object_get(ok, "deferred")) > 0)
		sandbox_trash_sweep(sb->srv);
	json_decref(ok);
	(void)json_object_del(sb->doc, "rewinding");
	return sandbox_save(sb, false, err);
}

/* Its processes cannot be had back, and the catalogue may refuse (full disk): it is asked before they end. */
static int rewind_halt(struct sandbox *sb, const struct live *to, struct err *err)
{
	int rc;

	reserve_use(sb->srv);
	rc = fault("rewind.halt.before");
	if (rc < 0)
		return err_raise_sys(err, rc, "write sandbox '%s'", sb->name);
	rc = sandbox_save(sb, false, err);
	if (rc < 0)
		return rc;
	if (to != NULL) {
		execs_come_back(sb, to->execs);
		hold_take(sb);
	}
	return sandbox_halt(sb, "rewind", 0, err);
}

/** struct rewind_how - what a request says of it. */
struct rewind_how {
	bool files_only; /* the processes that the snapshot has stay in it */
	bool keep;       /* the identity */
};

static int rewind_locked(
	struct sandbox *sb, struct snapshot *s, const struct rewind_how *how, struct err *err)
{
	bool was_running = sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_PAUSED ||
			   sb->state == SANDBOX_SUSPENDED;
	struct live *live = NULL;
	bool halted;
	/* before anything happens to the sandbox */
	int rc = sandbox_settle_files(sb, err);

	if (rc < 0)
		return rc;
	if (snapshot_has_processes(s) && !how->files_only) {
		live = snapshot_recall(sb->srv, s, err);
		if (live == NULL)
			return -EIO;
	}
	halted = sb->keeper != NULL;
	rc = halted ? rewind_halt(sb, live, err) : 0;
	if (rc < 0)
		return rc;
	if (live != NULL)
		execs_come_back(sb, live->execs);
	rc = rewind_files(sb, s, err);
	if (rc < 0 && halted)
		hold_drop(sb);
	if (rc < 0 && !halted)
		execs_come_back(sb, NULL); /* it is suspended, as before */
	if (rc < 0 && halted)
		return err_hint(err, rc,
			"it was not rewound and is stopped: its processes had ended for it, its files are as they were; 'cay start' lets it run again");
	if (rc == 0)
		rc = sandbox_settle_rewind(sb, err);
	if (rc == 0 && live != NULL) {
		live_restoring(sb, "rewind");
		identity_choose(sb, json_object_get(s->doc, "config"), how->keep);
	}
	if (rc == 0 && (was_running || live != NULL))
		rc = sandbox_start(sb, live, false, err);
	if (rc == 0 && live != NULL && !how->keep)
		identity_tell(sb);
	return rc;
}

int api_sandbox_rewind(struct api_call *call, struct err *err)
{
	const char *to = json_string_value(json_object_get(call->body, "snapshot"));
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	cleanup_free char *point = NULL;
	struct rewind_how how = {
		.files_only = json_is_true(json_object_get(call->body, "files_only")),
		.keep = json_is_true(json_object_get(call->body, "keep_identity")),
	};
	struct snapshot *s;
	int rc;

	if (sb == NULL)
		return -ENOENT;
	point = str_dupf("%s%s", to[0] == '@' ? sb->id : "", to);
	step_await(call->srv, point);
	steps_wait(sb);
	rc = sandbox_not_lent(sb, err);
	if (rc == 0)
		rc = sandbox_lock(sb, err);
	if (rc == 0) {
		s = snapshot_find(call->srv, point, err);
		rc = s != NULL ? rewind_check(sb, s, err) : -ENOENT;
		if (rc == 0) {
			snapshot_hold(s);
			rc = rewind_locked(sb, s, &how, err);
			execs_came_back(sb);
			snapshot_release(call->srv, s);
		}
		sandbox_unlock(sb);
	}
	if (rc == 0)
		rc = api_reply(call, 200, sandbox_object(sb));
	sandbox_unref(sb);
	return rc;
}
