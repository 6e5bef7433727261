/* SPDX-License-Identifier: Apache-2.0 */
#include "api/memories.h"
#include "base/log.h"
#include "base/str.h"

#define STALL_NS (60 * NS_PER_S)

static json_int_t epoch_of(const struct snapshot *s)
{
	return json_integer_value(json_object_get(s->doc, "epoch"));
}

static bool is_of(const struct snapshot *s, const char *sandbox)
{
	return str_eq(json_string_value(json_object_get(s->doc, "sandbox")), sandbox);
}

/* The last object of the sandbox's own snapshots, else that of the snapshot it continues from: most bytes are still the same. NULL: there is none. */
static const char *find_base(struct server *srv, const char *sandbox)
{
	const struct sandbox *sb = sandbox_by_id(srv, sandbox);
	const char *origin =
		sb != NULL ? json_string_value(json_object_get(sb->doc, "base")) : NULL;
	const struct snapshot *found = NULL;

	list_for_each (&srv->snapshots, node, next) {
		const struct snapshot *s = list_entry(node, struct snapshot, node);
		bool own = is_of(s, sandbox);

		if (memory_of(s->doc) == NULL ||
			(!own && (origin == NULL || !str_eq(s->id, origin))))
			continue;
		if (found == NULL ||
			(own && (!is_of(found, sandbox) || epoch_of(s) > epoch_of(found))))
			found = s;
	}
	return found != NULL ? memory_of(found->doc) : NULL;
}

static void on_said(void *ctx, attr_unused const struct frame *f)
{
	(*(unsigned int *)ctx)++;
}

/* However long it takes, while something gets to the disk. @said: how often the job said so. */
static int wait_written(struct job *job, const unsigned int *said, struct err *err)
{
	while (!job_ended(job)) {
		const unsigned int before = *said;
		const uint64_t deadline = clock_now_ns() + STALL_NS;

		while (!job_ended(job) && *said == before) {
			if (waiters_wait(&job_link(job)->progress, deadline) < 0)
				return err_raise(err, ERR_TIMEOUT,
					"the disk takes nothing: no memory was written for a minute");
		}
	}
	return 0;
}

int memory_save(struct server *srv, const struct live *l, const char *id, const char *sandbox,
	json_t **ret, struct err *err)
{
	json_t *request = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s*}", "verb", "memory_save", "run",
		srv->run, "template", l->id, "memory", id, "sandbox", sandbox, "base",
		find_base(srv, sandbox));
	unsigned int said = 0;
	struct job *job;
	int rc = job_start(srv, NULL, request, on_said, &said, &job, err), late;

	if (rc < 0)
		return rc;
	rc = wait_written(job, &said, err);
	/* given up: it ends when we hang up */
	if (rc < 0)
		framelink_abort(job_link(job));
	late = job_end(job, ret, rc < 0 ? NULL : err);
	return rc < 0 ? rc : late;
}

int memory_load_begin(struct server *srv, const char *id, json_t *execs, bool lazy,
	struct memory_loading *m, struct err *err)
{
	int rc;

	*m = (struct memory_loading){ .live = live_new(srv, err) };
	if (m->live == NULL)
		return -EIO;
	(void)json_array_extend(m->live->execs, execs);
	rc = job_start(srv, NULL,
		json_pack("{s:s,s:s,s:s,s:s,s:b}", "verb", "memory_load", "run", srv->run,
			"template", m->live->id, "memory", id, "lazy", (int)lazy),
		on_said, &m->said, &m->job, err);
	if (rc < 0) {
		live_drop(TAKE_PTR(m->live));
		return rc;
	}
	/* it says so once; when it ends before, memory_load_end() says why */
	while (m->said == 0 && !job_ended(m->job))
		(void)waiters_wait(&job_link(m->job)->progress, 0);
	if (m->said > 0)
		return 0;
	(void)memory_load_end(m, true, err);
	return -EIO;
}

struct live *memory_load_end(struct memory_loading *m, bool wanted, struct err *err)
{
	int rc;

	if (!wanted)
		framelink_abort(job_link(m->job));
	rc = job_end(TAKE_PTR(m->job), NULL, wanted ? err : NULL);
	if (rc == 0 && wanted)
		return TAKE_PTR(m->live);
	live_drop(TAKE_PTR(m->live));
	return NULL;
}

struct live *memory_load(struct server *srv, const char *id, json_t *execs, struct err *err)
{
	struct memory_loading m;

	return memory_load_begin(srv, id, execs, false, &m, err) == 0
		       ? memory_load_end(&m, true, err)
		       : NULL;
}

int memory_check(struct server *srv, const char *id, struct err *err)
{
	return job_run(srv, json_pack("{s:s,s:[s]}", "verb", "memory_check", "memories", id), NULL,
		NULL, NULL, err);
}

int memory_is_exact(struct server *srv, const char *id, struct err *err)
{
	json_t *ok = NULL;
	int rc = job_run(srv, json_pack("{s:s,s:s}", "verb", "memory_exact", "memory", id), NULL,
		NULL, &ok, err);

	if (rc == 0)
		rc = json_is_true(json_object_get(ok, "exact")) ? 1 : 0;
	json_decref(ok);
	return rc;
}

const char *memory_of(const json_t *doc)
{
	return json_string_value(json_object_get(json_object_get(doc, "memory"), "id"));
}

void memory_forget(struct server *srv, const char *id)
{
	struct err err;

	if (id == NULL || memory_in_use(srv, id))
		return;
	if (job_run(srv, json_pack("{s:s,s:[s]}", "verb", "remove", "memories", id), NULL, NULL,
		    NULL, &err) < 0)
		log_warn("store", "remove memory: %s (the next start clears up)", err.msg);
}

struct forgetting {
	struct server *srv;
	char *id;
};

static void forget_main(void *arg)
{
	struct forgetting *f = arg;

	memory_forget(f->srv, f->id);
	free(f->id);
	free(f);
}

void memory_forget_later(struct server *srv, const char *id)
{
	struct forgetting *f = xnew(struct forgetting);

	*f = (struct forgetting){ .srv = srv, .id = str_dup(id) };
	fiber_start(forget_main, f);
}
