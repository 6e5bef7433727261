/* SPDX-License-Identifier: Apache-2.0 */
/* api/snapshot_settle.c - from sealed to durable and verified: asked for, or in the background; and layers that nothing needs any more. */
#include "api/memories.h"
#include "api/snapshot_parts.h"
#include "api/telling.h"
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
	int rc = write_memory(srv, s, err);
	json_t *event, *state;

	if (rc == 0)
		rc = job_run(srv,
			json_pack("{s:s,s:o}", "verb", "sync", "layers", snapshot_unsynced(srv, s)),
			NULL, NULL, NULL, err);
	if (rc < 0)
		return rc;
	state = json_incref(json_object_get(s->doc, "state"));
	(void)json_object_set_new(s->doc, "state", json_string("durable"));
	event = json_pack("{s:s}", "snapshot", s->id);
	snapshot_announce(srv, s, EVENT_SNAPSHOT_DURABLE, event);
	rc = fault("snapshot.durable.before");
	if (rc < 0)
		(void)err_raise_sys(err, rc, "write the snapshot");
	else
		rc = snapshot_save(srv, s, true, err);
	(void)telling_done(s->doc);
	(void)fault("snapshot.durable.committed");
	if (rc < 0) /* what is on the disk and in no row is not there after a power cut */
		(void)json_object_set(s->doc, "state", state);
	json_decref(state);
	if (rc == 0)
		(void)server_event(srv, snapshot_source(srv, s), EVENT_SNAPSHOT_DURABLE, NULL,
			json_incref(event));
	json_decref(event);
	return rc;
}

/* One after the other: two would write its memory twice. Context: may wait. */
static void begin(struct server *srv, struct snapshot *s)
{
	snapshot_hold(s);
	while (s->settling)
		(void)waiters_wait(&srv->settled, 0); /* what is done meanwhile has deadlines */
	s->settling = true;
}

static void end(struct server *srv, struct snapshot *s)
{
	s->settling = false;
	waiters_wake(&srv->settled);
	snapshot_release(srv, s);
}

static bool is_sealed(const struct snapshot *s)
{
	return str_eq(json_string_value(json_object_get(s->doc, "state")), "sealed");
}

int snapshot_make_durable(struct server *srv, struct snapshot *s, struct err *err)
{
	int rc;

	begin(srv, s);
	rc = is_sealed(s) ? make_durable(srv, s, err) : 0;
	end(srv, s);
	return rc;
}

int snapshot_keep_promise(struct server *srv, struct snapshot *s, struct err *err)
{
	int rc = snapshot_make_durable(srv, s, err);

	if (rc < 0)
		err_context(err, "snapshot '%s' is sealed, but not durable", snapshot_called(s));
	return rc;
}

/* Who has its layer below one of his own takes that for durable. */
static bool lends_layer(struct server *srv, const struct snapshot *s)
{
	const json_t *layer = json_array_get(json_object_get(s->doc, "layers"), 0);

	return layer != NULL && tally_count(&srv->index.layers, json_string_value(layer)) > 1;
}

/* Taken for forks, and no sandbox continues from it any more. */
static bool is_over(struct server *srv, const struct snapshot *s)
{
	return json_is_true(json_object_get(s->doc, "for_fork")) && snapshot_name(s) == NULL &&
	       !s->settling && !snapshot_is_base(srv, s) && !(is_sealed(s) && lends_layer(srv, s));
}

static struct snapshot *settle_next(struct server *srv)
{
	uint64_t now = clock_now_ns();

	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);
		const char *state = json_string_value(json_object_get(s->doc, "state"));

		if (s->users == 0 && now >= s->settle_due_ns &&
			(str_eq(state, "sealed") || str_eq(state, "durable") || is_over(srv, s)))
			return s;
	}
	return NULL;
}

/* What a check found. Return: 0 or an error. */
static int write_found(struct server *srv, struct snapshot *s, enum event_type type, json_t *event,
	struct err *err)
{
	json_t *state = json_incref(json_object_get(s->doc, "state"));
	bool corrupt = type == EVENT_SNAPSHOT_CORRUPT;
	int rc;

	(void)json_object_set_new(s->doc, "state", json_string(corrupt ? "corrupt" : "verified"));
	snapshot_announce(srv, s, type, event);
	rc = fault("snapshot.verify.before");
	if (rc < 0)
		(void)err_raise_sys(err, rc, "write the snapshot");
	else
		rc = snapshot_save(srv, s, true, err);
	(void)telling_done(s->doc);
	(void)fault("snapshot.verify.committed");
	if (rc < 0 && !corrupt) /* that one is refused, whatever the catalogue says */
		(void)json_object_set(s->doc, "state", state);
	json_decref(state);
	return rc;
}

static int verify(struct server *srv, struct snapshot *s, struct err *err)
{
	enum event_type type;
	json_t *event;
	int rc, written;

	/* a verified one is taken for durable */
	rc = is_sealed(s) ? make_durable(srv, s, err) : 0;
	if (rc == 0)
		rc = job_run(srv,
			json_pack("{s:s,s:O}", "verb", "verify", "layers",
				json_object_get(s->doc, "layers")),
			NULL, NULL, NULL, err);
	if (rc == 0 && memory_of(s->doc) != NULL)
		rc = memory_check(srv, memory_of(s->doc), err);
	if (rc < 0 && err->code != ERR_CORRUPT)
		return rc;
	event = rc < 0 ? json_pack("{s:s,s:s}", "snapshot", s->id, "reason", err->msg)
		       : json_pack("{s:s}", "snapshot", s->id);
	type = rc < 0 ? EVENT_SNAPSHOT_CORRUPT : EVENT_SNAPSHOT_VERIFIED;
	written = write_found(srv, s, type, event, rc < 0 ? NULL : err);
	if (rc < 0 || written == 0)
		(void)server_event(srv, snapshot_source(srv, s), type, NULL, event);
	else
		json_decref(event);
	return rc < 0 ? rc : written;
}

int snapshot_verify(struct server *srv, struct snapshot *s, struct err *err)
{
	int rc;

	begin(srv, s);
	rc = verify(srv, s, err);
	end(srv, s);
	return rc;
}

/* Room on the disk comes back, and so does memory for a job. Whoever asks for it by hand does not wait for that. */
#define PUT_OFF_FIRST_NS (10 * NS_PER_S)
#define PUT_OFF_MOST_NS  (3600 * NS_PER_S)

static void put_off(struct snapshot *s, const struct err *err)
{
	uint64_t ns = s->settle_put_off_ns * 2;

	ns = ns < PUT_OFF_FIRST_NS ? PUT_OFF_FIRST_NS : ns;
	ns = ns > PUT_OFF_MOST_NS ? PUT_OFF_MOST_NS : ns;
	s->settle_put_off_ns = ns;
	s->settle_due_ns = clock_now_ns() + ns;
	log_warn("store", "snapshot '%s': %s", s->id, err->msg);
}

static void settle_one(struct server *srv, struct snapshot *s)
{
	bool sealed = is_sealed(s);
	struct err err;

	snapshot_hold(s);
	if ((sealed ? snapshot_make_durable(srv, s, &err) : snapshot_verify(srv, s, &err)) < 0)
		put_off(s, &err);
	else
		s->settle_put_off_ns = 0;
	snapshot_release(srv, s);
}

/* Of what is in memory alone: whoever waits for it does not wait for one that has just failed. @lasting: none that was taken for forks, which nobody asked for. */
static struct snapshot *first_unwritten(struct server *srv, bool lasting)
{
	uint64_t now = clock_now_ns();

	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);

		if (is_sealed(s) && (s->settle_put_off_ns == 0 || now >= s->settle_due_ns) &&
			!s->unwanted && snapshot_memory(s) != NULL &&
			!(lasting && json_is_true(json_object_get(s->doc, "for_fork"))))
			return s;
	}
	return NULL;
}

static void write_one(struct server *srv, struct snapshot *s)
{
	if (s->settling) /* not held: who removes it waits for the same */
		(void)waiters_wait(&srv->settled, 0);
	else
		settle_one(srv, s);
}

void snapshots_make_room(struct server *srv)
{
	struct snapshot *s;

	while (snapshots_are_many(srv) && !srv->stopping &&
		(s = first_unwritten(srv, false)) != NULL)
		write_one(srv, s);
}

void snapshots_finish(struct server *srv, uint64_t deadline)
{
	struct snapshot *s;

	while (clock_now_ns() < deadline && (s = first_unwritten(srv, true)) != NULL)
		write_one(srv, s);
}

static void settle_main(void *arg)
{
	struct server *srv = arg;
	struct snapshot *s;
	struct err err;

	while (!srv->stopping && (s = settle_next(srv)) != NULL) {
		if (!is_over(srv, s))
			settle_one(srv, s);
		else if (snapshot_drop(srv, s, &err) < 0)
			put_off(s, &err);
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
