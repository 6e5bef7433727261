/* SPDX-License-Identifier: Apache-2.0 */
#include "api/server.h"
#include "api_handlers.h"
#include "base/str.h"

#define STORAGE_WAIT_MS 2000 /* somebody sits there and waits */

int api_version_get(struct api_call *call, attr_unused struct err *err)
{
	struct server *srv = call->srv;

	return api_reply(call, 200,
		json_pack("{s:s,s:s,s:i,s:s,s:s,s:s,s:s,s:s,s:i,s:I}", "version", CAY_VERSION,
			"build", srv->build, "protocol", 1, "mode",
			srv->rootless ? "rootless" : "root", "uid_map", srv->uid_map, "state",
			srv->state, "run", srv->run, "tag", srv->tag, "pid", (int)getpid(), "pool",
			(json_int_t)keeper_pool_prepared(srv)));
}

/* What keepers see, looked at by a job, and what the server knows of itself. */
int api_doctor_get(struct api_call *call, struct err *err)
{
	struct server *srv = call->srv;
	json_t *report = NULL, *own, *storage;
	int rc = job_run(srv, json_pack("{s:s}", "verb", "doctor"), NULL, NULL, &report, err);

	if (rc < 0)
		return rc;
	storage = json_copy(srv->storage);
	(void)json_object_del(
		storage, "writable"); /* as it was: a check of the report says how it is */
	own = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:o?}", "version", CAY_VERSION, "build",
		srv->build, "uid_map", srv->uid_map, "cgroup", srv->cgroup, "process_events",
		srv->process_error[0] != '\0' ? srv->process_error : "proc connector", "mask",
		srv->mask != NULL ? "made" : "missing", "storage", storage);
	(void)json_object_update_missing(report, own);
	json_decref(own);
	return api_reply(call, 200, report);
}

/* Names of the sandboxes that have a keeper: the pool's mount cannot go while one of them is there. */
static json_t *holders(struct server *srv)
{
	json_t *names = json_array();

	list_for_each (&srv->sandboxes, node, next) {
		const struct sandbox *sb = list_entry(node, struct sandbox, node);

		if (sandbox_runs(sb))
			(void)json_array_append(names, json_object_get(sb->doc, "name"));
	}
	return names;
}

static json_t *storage_object(struct server *srv, const json_t *ok)
{
	json_t *o = ok != NULL ? json_copy((json_t *)(uintptr_t)ok) : json_object();

	(void)json_object_set_new(o, "path", json_sprintf("%s/pool", srv->state));
	return o;
}

int api_storage_get(struct api_call *call, struct err *err)
{
	json_t *ok = NULL, *o;
	int rc = job_run(call->srv, json_pack("{s:s,s:s}", "verb", "storage", "op", "info"), NULL,
		NULL, &ok, err);

	if (rc < 0)
		return rc;
	o = storage_object(call->srv, ok);
	if (json_is_false(json_object_get(o, "writable")))
		(void)json_object_set_new(o, "held_by", holders(call->srv));
	json_decref(ok);
	return api_reply(call, 200, o);
}

int api_storage_init(struct api_call *call, struct err *err)
{
	json_t *request = json_pack("{s:s,s:s,s:i}", "verb", "storage", "op", "init", "wait_ms",
		       STORAGE_WAIT_MS),
	       *o;
	json_t *bytes = json_object_get(call->body, "bytes"),
	       *kind = json_object_get(call->body, "kind");
	int rc;

	if (bytes != NULL)
		(void)json_object_set(request, "size_bytes", bytes);
	if (kind != NULL)
		(void)json_object_set(request, "kind", kind);
	rc = server_storage_init(call->srv, request, err);
	if (rc < 0)
		return rc;
	o = storage_object(call->srv, call->srv->storage);
	return api_reply(call, 200, o);
}

static void stop_one(struct sandbox *sb, attr_unused const void *unused)
{
	while (sb->awaited && !sb->estranged && !sb->gone && !sb->srv->stopping)
		(void)waiters_wait(&sb->changed, 0); /* its recovery has deadlines */
	if (sb->awaited)
		return;
	(void)run_interrupt(sb, 0);
	if (sandbox_lock(sb, NULL) < 0)
		return;
	if (sb->keeper != NULL && sandbox_halt(sb, "the server was shut down", 0, NULL) == 0)
		(void)sandbox_expire(sb, NULL);
	sandbox_unlock(sb);
}

/* No others are kept waiting by those: only so many are seen to at a time. */
static void stop_adopted(struct sandbox *sb, attr_unused const void *unused)
{
	if (!sb->awaited)
		stop_one(sb, NULL);
}

static void stop_rest(struct sandbox *sb, attr_unused const void *unused)
{
	if (sandbox_runs(sb))
		stop_one(sb, NULL);
}

int api_shutdown(struct api_call *call, attr_unused struct err *err)
{
	const char *what = json_string_value(json_object_get(call->body, "sandboxes"));
	int rc;

	if (what != NULL && str_eq(what, "stop")) {
		sandbox_for_all(call->srv, stop_adopted, NULL);
		sandbox_for_all(call->srv, stop_rest, NULL);
	}
	rc = api_reply(call, 204, NULL);
	(void)!ftruncate(call->srv->lock_fd, 0); /* else whoever wants the next one waits a while */
	server_stop(call->srv);
	return rc;
}
