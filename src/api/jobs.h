/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/jobs.h - one operation on trees each, in a process of its own (docs/design/0001, *cayd and job*). */
#ifndef CAY_API_JOBS_H
#define CAY_API_JOBS_H

#include "base/err.h"
#include "io/framelink.h"
#include "sys/spawn_request.h"

struct keeper;
struct server;

struct job;

/** job_frame_fn - gets every frame but the reply, on the loop. */
typedef void job_frame_fn(void *ctx, const struct frame *f);

/**
 * job_start() - start a job and send @request (stolen; gets "state").
 * @beside: keeper of the running sandbox into which the job looks; NULL = it needs the store alone.
 * @fn: may be NULL.
 */
int job_start(struct server *srv, const struct keeper *beside, json_t *request, job_frame_fn *fn,
	void *ctx, struct job **ret, struct err *err);

/** job_link() - for sending STDIN frames and for stream_hold(). */
struct framelink *job_link(struct job *job);

/** job_ended() - has it replied, or died? */
bool job_ended(const struct job *job);

/** job_await() - wait until it has. Return: has it? Context: waits, for an hour at most. */
bool job_await(struct job *job);

/** job_reaped() - is its process no more? Also true where nobody can say so any more: cay-spawn has ended. Until then its progress is woken. */
bool job_reaped(const struct job *job);

/** job_kill() - its process is killed, soon. */
void job_kill(struct job *job);

/** job_end() - wait for the reply and let go of the job. Context: waits. */
int job_end(struct job *job, json_t **ret_ok, struct err *err);

/** job_run() - both. Context: waits. */
int job_run(struct server *srv, json_t *request, job_frame_fn *fn, void *ctx, json_t **ret_ok,
	struct err *err);

/** job_end_for() - job_end() for a client that reads its result and nothing else: when it has gone the job ends. @client: its stream. Context: waits. */
int job_end_for(struct job *job, const struct stream *client, json_t **ret_ok, struct err *err);

/** job_run_above() - job_run() of one that, rootless too, may enter the namespaces of every sandbox; it has none of its own. Context: waits. */
int job_run_above(struct server *srv, json_t *request, json_t **ret_ok, struct err *err);

/** job_on_spawn_event() - as for keepers. */
bool job_on_spawn_event(struct server *srv, const struct spawn_event *e);

/** jobs_unreported() - as for keepers. */
void jobs_unreported(struct server *srv);

#endif
