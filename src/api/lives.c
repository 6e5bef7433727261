/* SPDX-License-Identifier: Apache-2.0 */
#include "api/lives.h"
#include "api_handlers.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/image.h"

#define START_NS (10 * NS_PER_S)

/* --- the template --- */

static void on_frame(struct framelink *link, attr_unused const struct frame *f)
{
	struct live *l = container_of(link, struct live, link);

	l->ready = true; /* the only thing that it ever says */
	waiters_wake(&l->changed);
}

static void on_dead(struct framelink *link)
{
	waiters_wake(&container_of(link, struct live, link)->changed);
}

static void closed(struct stream *s)
{
	struct live *l = container_of(container_of(s, struct framelink, s), struct live, link);

	json_decref(l->execs);
	free(l);
}

void live_drop(struct live *l)
{
	if (l == NULL)
		return;
	live_drop(TAKE_PTR(l->former));
	list_remove(&l->node);
	framelink_close(&l->link, closed);
}

bool live_alive(const struct live *l)
{
	return !l->link.dead && !stream_hung_up(&l->link.s);
}

void live_end(struct live *l)
{
	uint64_t deadline = clock_now_ns() + START_NS;

	if (l == NULL)
		return;
	/* whatever it hears is its end */
	framelink_send(&l->link, FRAME_OBJECT, 0, NULL, 0);
	while (!l->ended && waiters_wait(&l->changed, deadline) == 0)
		;
	live_drop(l);
}

int live_ready(struct live *l, struct err *err)
{
	uint64_t deadline = clock_now_ns() + START_NS;

	while (!l->ready && !l->link.dead && l->error.code == ERR_NONE) {
		if (waiters_wait(&l->changed, deadline) < 0)
			return err_raise(err, ERR_TIMEOUT, "the template does not start");
	}
	if (l->error.code != ERR_NONE) {
		*err = l->error;
		return -EIO;
	}
	return l->ready ? 0 : err_raise(err, ERR_INTERNAL, "the template ended at its start");
}

struct live *live_begin(struct server *srv, uint32_t stock_mib, struct err *err)
{
	const struct spawn_request what = { .kind = SPAWN_TEMPLATE, .stock_mib = stock_mib };
	struct id id = id_new();
	struct live *l;
	int fd;

	if (spawner_start(srv, what, id.s, &fd, err) < 0)
		return NULL;
	l = xnew(struct live);
	(void)!str_copy(l->id, sizeof(l->id), id.s);
	l->link.on_frame = on_frame;
	l->link.on_dead = on_dead;
	l->link.peer = "template";
	l->execs = json_array();
	waiters_init(&l->changed);
	list_append(&srv->lives, &l->node);
	if (framelink_open(&l->link, srv->loop, fd) < 0)
		abort(); /* only when the loop is out of memory */
	return l;
}

struct live *live_new(struct server *srv, struct err *err)
{
	struct live *l = live_begin(srv, 0, err);

	if (l == NULL || live_ready(l, err) == 0)
		return l;
	live_drop(l);
	return NULL;
}

int live_fits(const struct sandbox *sb, struct err *err)
{
	json_int_t version = json_integer_value(json_object_get(sb->keeper->hello_doc, "image"));

	if (version == IMAGE_VERSION && fault("moment.version") == 0)
		return 0;
	err_raise(err, ERR_UNSUPPORTED,
		"the processes of sandbox '%s' were started by %s version of cay: this one cannot capture them",
		sb->name, version > IMAGE_VERSION ? "a newer" : "an older");
	return err_hint(err, -EOPNOTSUPP,
		"snapshots and forks with --files-only leave them out; what is started after the next stop and start of the sandbox can be captured");
}

bool live_on_spawn_event(struct server *srv, const struct spawn_event *e)
{
	list_for_each (&srv->lives, node, next) {
		struct live *l = list_entry(node, struct live, node);

		if (!str_eq(l->id, e->id))
			continue;
		if (e->kind == SPAWN_EVENT_FAILED)
			(void)err_raise_sys(&l->error, -e->status, "start a template");
		l->ended = e->kind != SPAWN_EVENT_STARTED;
		process_source_template(srv->processes, e->pid, !l->ended);
		waiters_wake(&l->changed);
		return true;
	}
	return false;
}

void lives_unreported(struct server *srv)
{
	list_for_each (&srv->lives, node, next) {
		struct live *l = list_entry(node, struct live, node);

		l->ended = true;
		waiters_wake(&l->changed);
	}
}

/* --- examination --- */

int api_sandbox_doctor(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	json_t *found = NULL;
	int rc;

	if (sb == NULL)
		return -ENOENT;
	if (sb->keeper == NULL || (sb->state != SANDBOX_RUNNING && sb->state != SANDBOX_PAUSED))
		rc = err_raise(err, ERR_STATE, "sandbox '%s' is %s: it has no processes", sb->name,
			sandbox_state_name(sb->state));
	else
		rc = live_fits(sb, err);
	if (rc == 0)
		rc = framelink_call(&sb->keeper->link, json_pack("{s:s}", "verb", "examine"),
			clock_now_ns() + CALL_NS, &found, err);
	if (rc == 0) {
		(void)json_object_set_new(found, "sandbox", json_string(sb->id));
		(void)json_object_set_new(found, "ok",
			json_boolean(json_array_size(json_object_get(found, "findings")) == 0));
		rc = api_reply(call, 200, found);
	}
	sandbox_unref(sb);
	return rc;
}

/* --- restore --- */

static const json_t *document_of(const struct live *l, const char *id)
{
	size_t i;
	json_t *doc;

	json_array_foreach (l->execs, i, doc) {
		if (str_eq(json_string_value(json_object_get(doc, "id")), id))
			return doc;
	}
	return NULL;
}

static int take_execs(struct sandbox *sb, const struct live *l, const json_t *list, struct err *err)
{
	size_t i;
	json_t *row;

	json_array_foreach ((json_t *)(uintptr_t)list, i, row) {
		const char *id = json_string_value(json_object_get(row, "exec"));
		const json_t *doc = id != NULL ? document_of(l, id) : NULL;
		int rc;

		if (doc == NULL)
			return err_raise(err, ERR_INTERNAL, "the keeper carried an unknown exec");
		rc = exec_carried(sb, doc, row, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

void live_restoring(struct sandbox *sb, const char *what)
{
	if (what != NULL)
		(void)json_object_set_new(sb->doc, "restoring", json_string(what));
	else
		(void)json_object_del(sb->doc, "restoring");
}

int live_came(struct sandbox *sb, const struct live *l, const json_t *ok, struct err *err)
{
	struct process_source *processes = sb->srv->processes;
	int rc;

	process_source_drain(processes);
	process_source_claim(
		processes, sb->id, (pid_t)json_integer_value(json_object_get(ok, "fork_pid")));
	rc = take_execs(sb, l, json_object_get(ok, "execs"), err);
	process_source_settle(processes, sb->id);
	live_restoring(sb, NULL);
	if (rc < 0)
		err_context(err, "take over the programs of sandbox '%s'", sb->name);
	return rc;
}

int live_hold(struct sandbox *sb, const struct live *l, struct err *err)
{
	json_t *ok = NULL;
	int rc;

	(void)fault("live.restore.before");
	rc = framelink_call(&sb->keeper->link,
		json_pack("{s:s,s:s,s:o}", "verb", "restore", "template", l->id, "attended",
			execs_attended(sb)),
		clock_now_ns() + LIVE_RESTORE_NS, &ok, err);
	(void)fault("live.restore.after");
	if (rc == 0)
		rc = live_came(sb, l, ok, err);
	json_decref(ok);
	if (rc == 0)
		rc = sandbox_save(sb, false, err);
	if (rc < 0)
		err_context(err, "bring the processes of the snapshot into sandbox '%s'", sb->name);
	return rc;
}

int live_go(struct sandbox *sb, struct err *err)
{
	return framelink_call(&sb->keeper->link, json_pack("{s:s}", "verb", "go"),
		clock_now_ns() + LIVE_RESTORE_NS, NULL, err);
}
