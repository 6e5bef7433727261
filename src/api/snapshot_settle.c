/* SPDX-License-Identifier: Apache-2.0 */
/* api/snapshot_settle.c - from sealed to durable and verified: asked for, or in the background; and layers that nothing needs any more. */
#include "api/memories.h"
#include "api/snapshot_parts.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

/* The source goes on meanwhile: it is the template that is written. */
static int write_memory(struct server *srv, struct snapshot *s, struct err *err)
{
	struct live *l = snapshot_memory(s);
	struct id id = id_new();
	json_t *memory = NULL;
	int rc;

	if (l == NULL || memory_of(s->doc) != NULL)
		return 0;
	index_making(srv, MAKING_MEMORY, id.s);
	rc = memory_save(
		srv, l, id.s, json_string_value(json_object_get(s->doc, "sandbox")), &memory, err);
	if (rc == 0) {
		(void)json_object_set_new(memory, "id", json_string(id.s));
		(void)json_object_set_new(memory, "execs", json_deep_copy(l->execs));
		(void)json_object_set_new(s->doc, "memory", memory);
		snapshot_index(srv, s);
	}
	index_made(srv, MAKING_MEMORY, id.s);
	return rc;
}

static int make_durable(struct server *srv, struct snapshot *s, struct err *err)
{
	json_t *layers = json_pack("[O]", json_array_get(json_object_get(s->doc, "layers"), 0));
	int rc = write_memory(srv, s, err);

	if (rc == 0)
		rc = job_run(srv, json_pack("{s:s,s:O}", "verb", "sync", "layers", layers), NULL,
			NULL, NULL, err);
	json_decref(layers);
	if (rc < 0)
		return rc;
	(void)fault("snapshot.durable.before");
	(void)json_object_set_new(s->doc, "state", json_string("durable"));
	rc = snapshot_save(srv, s, true, err);
	if (rc == 0)
		(void)server_event(srv, snapshot_source(srv, s), EVENT_SNAPSHOT_DURABLE, NULL,
			json_pack("{s:s}", "snapshot", s->id));
	return rc;
}

int snapshot_make_durable(struct server *srv, struct snapshot *s, struct err *err)
{
	int rc;

	snapshot_hold(s);
	rc = make_durable(srv, s, err);
	snapshot_release(srv, s);
	return rc;
}

#define SETTLE_AFTER_NS \
	(5 * NS_PER_S) /* what is forked, tried and thrown away within seconds is not worth a sync */

static struct snapshot *settle_next(struct server *srv)
{
	uint64_t now = clock_now_ns();

	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);
		const char *state = json_string_value(json_object_get(s->doc, "state"));

		if (s->users == 0 && !s->settle_failed && now - s->made_ns > SETTLE_AFTER_NS &&
			(str_eq(state, "sealed") || str_eq(state, "durable")))
			return s;
	}
	return NULL;
}

static int verify(struct server *srv, struct snapshot *s, struct err *err)
{
	int rc = job_run(srv,
		json_pack(
			"{s:s,s:O}", "verb", "verify", "layers", json_object_get(s->doc, "layers")),
		NULL, NULL, NULL, err);

	if (rc == 0 && memory_of(s->doc) != NULL)
		rc = memory_check(srv, memory_of(s->doc), err);
	if (rc < 0 && err->code != ERR_CORRUPT)
		return rc;
	(void)json_object_set_new(s->doc, "state", json_string(rc < 0 ? "corrupt" : "verified"));
	(void)server_event(srv, snapshot_source(srv, s),
		rc < 0 ? EVENT_SNAPSHOT_CORRUPT : EVENT_SNAPSHOT_VERIFIED, NULL,
		rc < 0 ? json_pack("{s:s,s:s}", "snapshot", s->id, "reason", err->msg)
		       : json_pack("{s:s}", "snapshot", s->id));
	if (snapshot_save(srv, s, true, rc < 0 ? NULL : err) < 0 && rc == 0)
		rc = -EIO;
	return rc;
}

int snapshot_verify(struct server *srv, struct snapshot *s, struct err *err)
{
	int rc;

	snapshot_hold(s);
	rc = verify(srv, s, err);
	snapshot_release(srv, s);
	return rc;
}

static void settle_main(void *arg)
{
	struct server *srv = arg;
	struct snapshot *s;
	struct err err;

	while (!srv->stopping && (s = settle_next(srv)) != NULL) {
		bool sealed = str_eq(json_string_value(json_object_get(s->doc, "state")), "sealed");

		snapshot_hold(s);
		s->settling = true;
		if ((sealed ? snapshot_make_durable(srv, s, &err) : snapshot_verify(srv, s, &err)) <
			0) {
			log_warn("store", "snapshot '%s': %s", s->id, err.msg);
			s->settle_failed = true; /* once; asking for it by hand tries again */
		}
		s->settling = false;
		snapshot_release(srv, s);
		waiters_wake(&srv->settled);
	}
	srv->settling = false;
}

void snapshots_settle(struct server *srv)
{
	if (srv->settling || srv->stopping || !srv->ready || settle_next(srv) == NULL)
		return;
	srv->settling = true;
	fiber_start(settle_main, srv);
}

void layers_forget(struct server *srv, json_t *layers)
{
	json_t *unused = json_array(), *l;
	struct err err;
	size_t i;

	json_array_foreach (layers, i, l) {
		if (!layer_in_use(srv, json_string_value(l)))
			(void)json_array_append(unused, l);
	}
	if (json_array_size(unused) == 0)
		json_decref(unused);
	else if (job_run(srv, json_pack("{s:s,s:o}", "verb", "remove", "layers", unused), NULL,
			 NULL, NULL, &err) < 0)
		log_warn("store", "remove layers: %s (the next start clears up)", err.msg);
}
