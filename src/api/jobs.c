/* SPDX-License-Identifier: Apache-2.0 */
#include "api/server.h"
#include "base/log.h"
#include "base/str.h"

#define LOOK_NS (250 * NS_PER_MS) /* how often it is looked whether a client has gone */

struct job {
	struct framelink link;
	struct list node;
	char id[ID_LEN + 1];
	job_frame_fn *fn;
	void *ctx;
	struct framecall call;
	struct err spawn_error; /* why cay-spawn did not start it */
	struct server *srv;
	bool reaped; /* or it never began */
};

static void on_frame(struct framelink *l, const struct frame *f)
{
	struct job *job = container_of(l, struct job, link);

	if (job->fn != NULL)
		job->fn(job->ctx, f);
}

static int start_as(struct server *srv, enum spawn_kind kind, pid_t beside, json_t *request,
	job_frame_fn *fn, void *ctx, struct job **ret, struct err *err)
{
	struct job *job;
	struct id id = id_new();
	int fd, rc;

	rc = spawner_start(
		srv, (struct spawn_request){ .kind = kind, .beside = beside }, id.s, &fd, err);
	if (rc < 0) {
		json_decref(request);
		return rc;
	}
	job = xnew(struct job);
	job->srv = srv;
	(void)!str_copy(job->id, sizeof(job->id), id.s);
	job->fn = fn;
	job->ctx = ctx;
	job->link.on_frame = on_frame;
	job->link.peer = "job";
	job->link.pieces = true;
	list_append(&srv->jobs, &job->node);
	rc = framelink_open(&job->link, srv->loop, fd);
	if (rc < 0)
		abort(); /* only when the loop is out of memory */
	(void)json_object_set_new(request, "state", json_string(srv->state));
	framelink_call_begin(&job->link, &job->call, request);
	*ret = job;
	return 0;
}

int job_start(struct server *srv, const struct keeper *beside, json_t *request, job_frame_fn *fn,
	void *ctx, struct job **ret, struct err *err)
{
	return start_as(
		srv, SPAWN_JOB, beside != NULL ? beside->pid : 0, request, fn, ctx, ret, err);
}

struct framelink *job_link(struct job *job)
{
	return &job->link;
}

bool job_ended(const struct job *job)
{
	return job->call.done || job->link.dead;
}

bool job_await(struct job *job)
{
	return framelink_call_answered(&job->call, clock_now_ns() + JOB_NS);
}

bool job_reaped(const struct job *job)
{
	return job->reaped || job->srv->spawn_fd < 0;
}

void job_kill(struct job *job)
{
	spawner_cleanup(job->srv, job->id);
}

static void closed(struct stream *s)
{
	struct job *job = container_of(container_of(s, struct framelink, s), struct job, link);

	free(job);
}

int job_end(struct job *job, json_t **ret_ok, struct err *err)
{
	int rc = framelink_call_end(&job->link, &job->call, clock_now_ns() + JOB_NS, ret_ok, err);

	if (rc < 0 && job->spawn_error.code != ERR_NONE && err != NULL)
		*err = job->spawn_error;
	job->fn = NULL;
	list_remove(&job->node);
	framelink_close(&job->link, closed);
	return rc;
}

int job_run(struct server *srv, json_t *request, job_frame_fn *fn, void *ctx, json_t **ret_ok,
	struct err *err)
{
	struct job *job;
	int rc = job_start(srv, NULL, request, fn, ctx, &job, err);

	return rc < 0 ? rc : job_end(job, ret_ok, err);
}

int job_end_for(struct job *job, const struct stream *client, json_t **ret_ok, struct err *err)
{
	while (!job_ended(job)) {
		(void)waiters_wait(&job->link.progress, clock_now_ns() + LOOK_NS);
		if (!job_ended(job) && stream_hung_up(client))
			framelink_abort(&job->link);
	}
	return job_end(job, ret_ok, err);
}

int job_run_above(struct server *srv, json_t *request, json_t **ret_ok, struct err *err)
{
	struct job *job;
	int rc = start_as(srv, SPAWN_JOB_ABOVE, 0, request, NULL, NULL, &job, err);

	return rc < 0 ? rc : job_end(job, ret_ok, err);
}

bool job_on_spawn_event(struct server *srv, const struct spawn_event *e)
{
	list_for_each (&srv->jobs, node, next) {
		struct job *job = list_entry(node, struct job, node);

		if (!str_eq(job->id, e->id))
			continue;
		if (e->kind == SPAWN_EVENT_FAILED)
			(void)err_raise_sys(&job->spawn_error, -e->status, "start a job");
		job->reaped = e->kind != SPAWN_EVENT_STARTED;
		waiters_wake(&job->link.progress);
		return true;
	}
	return false;
}

void jobs_unreported(struct server *srv)
{
	list_for_each (&srv->jobs, node, next)
		waiters_wake(&list_entry(node, struct job, node)->link.progress);
}
