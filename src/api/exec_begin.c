/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/exec_begin.c - a command is written down, and its keeper asked to start it.
 *
 * One that is gone before it has answered may have started the command: its execs are lost (execs_lost()), and who asked is told of this one with the status that it gets then (exec_routes.c).
 * A keeper that does not answer in time (it is stopped, or the machine swaps) starts the command when it goes on. The exec stays, with its key, so that who asks again for the same finds it, and is told of
 * when the keeper has answered.
 */
#include "api/server.h"
#include "base/fault.h"

/* What the keeper was asked for, for as long as it has not answered. */
struct asked {
	struct framecall call;
	struct framelink *l;
	struct sandbox *sb;
	struct exec *e;
};

static void asked_free(struct asked *a)
{
	exec_unref(a->e);
	sandbox_unref(a->sb);
	free(a);
}

/* Its own fiber. A keeper that is gone takes the sandbox with it, and the exec is lost: nobody can say that it has not run. */
static void await_answer(void *arg)
{
	struct asked *a = arg;
	struct err err = { 0 };
	json_t *ok = NULL;
	int rc = framelink_call_end(a->l, &a->call, 0, &ok, &err);

	if (!a->e->ended && (rc == 0 || err.code != ERR_UNAVAILABLE))
		exec_answered(a->e, rc, ok, &err);
	json_decref(ok);
	asked_free(a);
}

static int ask_keeper(struct exec *e, const json_t *request, struct err *err)
{
	uint64_t wait_ns = fault("exec.ask.sent") < 0 ? NS_PER_MS : CALL_NS;
	struct asked *a = xnew(struct asked);
	struct sandbox *sb = e->sandbox;
	json_t *ok = NULL;
	int rc;

	a->l = &sb->keeper->link;
	a->sb = sandbox_ref(sb);
	a->e = exec_ref(e);
	framelink_call_begin(a->l, &a->call, exec_request(e, request));
	if (!framelink_call_answered(&a->call, clock_now_ns() + wait_ns)) {
		fiber_start(await_answer, a);
		return err_hint(err,
			err_raise(err, ERR_TIMEOUT,
				"the keeper of sandbox '%s' did not answer in time: exec '%s' may start still",
				sb->name, e->id),
			"look at the exec; a request with the same idempotency key finds it");
	}
	rc = framelink_call_end(a->l, &a->call, 0, &ok, err);
	if (rc == 0 || err->code != ERR_UNAVAILABLE)
		exec_answered(e, rc, ok, err);
	json_decref(ok);
	asked_free(a);
	return rc;
}

/*
 * Its keeper would refuse it, and does not even read it while it ends the processes: then nobody would ever answer. What was sent before `suspending` was written is read before anything is stopped.
 */
static int refuse_suspending(struct exec *e, struct err *err)
{
	const struct sandbox *sb = e->sandbox;

	exec_drop(e);
	return err_raise(err, ERR_BUSY, "sandbox '%s' is just being suspended", sb->name);
}

/* Nothing can have begun. Whoever ends the sandbox, or rewinds it, waits for the end of the keeper's process, and only then has it another state. */
static int refuse_ending(struct exec *e, struct err *err)
{
	const struct sandbox *sb = e->sandbox;

	exec_drop(e);
	return err_raise(
		err, ERR_BUSY, "the processes of sandbox '%s' are just being ended", sb->name);
}

int exec_begin(struct exec *e, const json_t *request, struct err *err)
{
	int rc;

	if (json_object_get(e->sandbox->doc, "suspending") != NULL)
		return refuse_suspending(e, err);
	if (e->sandbox->keeper->link.dead)
		return refuse_ending(e, err);
	rc = exec_created(e, err);
	if (rc == 0)
		return ask_keeper(e, request, err);
	exec_answered(e, rc, NULL, err);
	return rc;
}
