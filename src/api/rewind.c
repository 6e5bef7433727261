/* SPDX-License-Identifier: Apache-2.0 */
/* api/rewind.c - a sandbox becomes again what it, or what it was forked from, was at a snapshot. */
#include "api/identity.h"
#include "api/keys.h"
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
			snapshot_called(s), sb->name);
	if (!json_equal(json_object_get(config, "image"), json_object_get(sb->doc, "image")) ||
		!json_equal(json_object_get(config, "mounts"), json_object_get(sb->doc, "mounts")))
		return err_raise(err, ERR_INVALID,
			"snapshot '%s' is not of the lineage of sandbox '%s': its image or mounts differ",
			snapshot_called(s), sb->name);
	if (str_eq(json_string_value(json_object_get(s->doc, "state")), "corrupt"))
		return err_raise(
			err, ERR_CORRUPT, "snapshot '%s' failed its check", snapshot_called(s));
	return 0;
}

/* What it would end would not be had again. */
static int check_processes(
	const struct sandbox *sb, struct snapshot *s, bool files_only, struct err *err)
{
	if (files_only || !snapshot_has_lost_processes(s))
		return 0;
	return err_hint(err,
		err_raise(err, ERR_STATE,
			"snapshot '%s' has lost its processes: the server, or the template that held them, ended before they were on disk",
			snapshot_called(s)),
		"its files are there: cay rewind --files-only %s %s (in the API: files_only)",
		sb->name, s->id);
}

static json_t *rewound(const struct sandbox *sb, const struct snapshot *s)
{
	return json_pack("{s:s,s:O,s:I}", "snapshot", s->id, "name",
		json_object_get(s->doc, "name"), "epoch_before", (json_int_t)sandbox_epoch(sb));
}

/** struct rewind_how - what a request says of it. */
struct rewind_how {
	bool files_only;       /* the processes that the snapshot has stay in it */
	bool keep;             /* the identity */
	bool runs;             /* it is to run behind it, since it ran before */
	struct api_call *call; /* the request, whose key remembers how far it has come */
};

/* With the key of the request: from here on it is not done again, but finished (finish()). */
static int save_rewound(struct sandbox *sb, const struct rewind_how *how, struct err *err)
{
	struct catalogue *c = sb->srv->catalogue;
	int rc = catalogue_begin(c, true, err);

	if (rc < 0)
		return rc;
	rc = keys_note(how->call,
		json_pack("{s:s,s:b,s:O,s:I,s:O?}", "sandbox", sb->id, "runs", (int)how->runs,
			"snapshot", json_object_get(sb->doc, "base"), "epoch",
			(json_int_t)sandbox_epoch(sb), "started",
			json_object_get(sb->doc, "started")),
		err);
	if (rc == 0)
		rc = sandbox_save(sb, true, err);
	if (rc == 0)
		return catalogue_commit(c, err);
	catalogue_abort(c);
	return rc;
}

static int rewind_commit(struct sandbox *sb, struct snapshot *s, const struct rewind_how *how,
	json_t *event, struct err *err)
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
	return rc == 0 ? save_rewound(sb, how, err) : rc;
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
static int rewind_files(
	struct sandbox *sb, struct snapshot *s, const struct rewind_how *how, struct err *err)
{
	int rc = sync_layers(sb->srv, s, err); /* waits, and others may write the document */
	json_t *was = json_copy(sb->doc), *event = rewound(sb, s);
	cleanup_free char *memory = sb->state == SANDBOX_SUSPENDED ? str_dup(memory_of(was)) : NULL;

	if (rc == 0)
		rc = rewind_commit(sb, s, how, event, err);
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
static int rewind_halt(
	struct sandbox *sb, const struct live *to, const struct rewind_how *how, struct err *err)
{
	int rc;

	reserve_use(sb->srv);
	rc = fault("rewind.halt.before");
	if (rc < 0)
		return err_raise_sys(err, rc, "write sandbox '%s'", sb->name);
	rc = sandbox_save(sb, false, err);
	if (rc == 0) /* who asks again behind a server that dies with it stopped wants it to run */
		rc = keys_note(how->call,
			json_pack("{s:s,s:b}", "sandbox", sb->id, "runs", (int)how->runs), err);
	if (rc < 0)
		return rc;
	if (to != NULL) {
		execs_come_back(sb, to->execs);
		hold_take(sb);
	}
	return sandbox_halt(sb, "rewind", 0, err);
}

/* The processes that it comes back with: *@ret, or NULL: none. Return: 0 or an error. */
static int recall(
	struct snapshot *s, const struct rewind_how *how, struct live **ret, struct err *err)
{
	*ret = NULL;
	if (!snapshot_has_processes(s) || how->files_only)
		return 0;
	*ret = snapshot_recall(how->call->srv, s, err);
	return *ret != NULL ? 0 : -EIO;
}

/* Behind the commit: the old files go, and it runs again. */
static int come_back(struct sandbox *sb, const struct snapshot *s, struct live *live,
	const struct rewind_how *how, struct err *err)
{
	int rc = sandbox_settle_rewind(sb, err);

	if (rc == 0 && live != NULL) {
		live_restoring(sb, "rewind");
		identity_choose(sb, json_object_get(s->doc, "config"), how->keep);
	}
	if (rc == 0 && (how->runs || live != NULL))
		rc = sandbox_start(sb, live, false, err);
	if (rc == 0 && live != NULL && !how->keep)
		identity_tell(sb);
	return rc;
}

static int rewind_locked(
	struct sandbox *sb, struct snapshot *s, const struct rewind_how *how, struct err *err)
{
	struct live *live = NULL;
	bool halted;
	/* before anything happens to the sandbox */
	int rc = sandbox_settle_files(sb, err);

	if (rc == 0)
		rc = recall(s, how, &live, err);
	if (rc < 0)
		return rc;
	halted = sb->keeper != NULL;
	rc = halted ? rewind_halt(sb, live, how, err) : 0;
	if (rc < 0)
		return rc;
	if (live != NULL)
		execs_come_back(sb, live->execs);
	rc = rewind_files(sb, s, how, err);
	if (rc < 0 && halted)
		hold_drop(sb);
	if (rc < 0 && !halted)
		execs_come_back(sb, NULL); /* it is suspended, as before */
	if (rc < 0 && halted)
		return err_hint(err, rc,
			"it was not rewound and is stopped: its processes had ended for it, its files are as they were; 'cay start' lets it run again");
	return rc == 0 ? come_back(sb, s, live, how, err) : rc;
}

/* --- asked for again --- */

/* Has nobody let it run, or changed what it is, since that commit? */
static bool is_left_so(const struct sandbox *sb, const json_t *begun)
{
	return (sb->state == SANDBOX_STOPPED || sb->state == SANDBOX_FAILED) &&
	       (uint64_t)json_integer_value(json_object_get(begun, "epoch")) == sandbox_epoch(sb) &&
	       json_equal(json_object_get(begun, "started"), json_object_get(sb->doc, "started"));
}

/* It is the snapshot since the commit that the key remembers. What the server died before, or what failed, is done now; whatever became of it since stays. */
static int finish(
	struct sandbox *sb, struct snapshot *s, const struct rewind_how *how, struct err *err)
{
	struct live *live = NULL;
	int rc = recall(s, how, &live, err);

	if (rc < 0)
		return rc;
	if (live != NULL)
		execs_come_back(sb, live->execs);
	return come_back(sb, s, live, how, err);
}

static int rewind_to(struct sandbox *sb, const char *point, struct rewind_how *how, struct err *err)
{
	const json_t *begun = keys_begun(how->call, sb);
	const char *committed = json_string_value(json_object_get(begun, "snapshot"));
	struct snapshot *s;
	int rc;

	if (committed != NULL && !is_left_so(sb, begun))
		return 0;
	s = snapshot_find(sb->srv, committed != NULL ? committed : point, err);
	rc = s == NULL ? -ENOENT : committed != NULL ? 0 : rewind_check(sb, s, err);
	if (rc == 0 && committed == NULL)
		rc = check_processes(sb, s, how->files_only, err);
	if (rc < 0)
		return rc;
	how->runs = json_is_true(json_object_get(begun, "runs")) || sb->state == SANDBOX_RUNNING ||
		    sb->state == SANDBOX_PAUSED || sb->state == SANDBOX_SUSPENDED;
	snapshot_hold(s);
	rc = committed != NULL ? finish(sb, s, how, err) : rewind_locked(sb, s, how, err);
	execs_came_back(sb);
	snapshot_release(sb->srv, s);
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
		.call = call,
	};
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
		rc = rewind_to(sb, point, &how, err);
		sandbox_unlock(sb);
	}
	if (rc == 0)
		rc = api_reply(call, 200, sandbox_object(sb));
	sandbox_unref(sb);
	return rc;
}
