/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/runs.c - POST /v1/run: a sandbox for one command, owned by the stream that asked for it.
 *
 *	(none) --api_run()--> FOLLOWED --server ends--> ORPHAN (of the next server) --GET /v1/runs/KEY/attach--> FOLLOWED
 *	                         |                         |
 *	                         +--command or client ends-+--nobody came back--> ENDING: kept or removed
 *
 * (1) A sandbox of a run carries `run` in its document, written in the commit that makes it together with its exec, until its client has been told that it is kept; a server that finds it at its start knows that somebody may come back.
 * (2) While FOLLOWED the stream holds the sandbox's lock, and lends it while it only listens to the command: to snapshots, forks, changes of policy and settings, which leave the command
 *     alone. What would not (pause, suspend, rewind, apply) is refused meanwhile; who stops or removes the sandbox ends the command first, and the run with it.
 *     It listens until its client has taken all of the output, however slowly that reads: a server that ends before leaves the run to the next one. Who stops or removes it does not wait for the client.
 * (3) Where its keeper is prepared it gets its orders before that commit, and works on them meanwhile: all but the execve. No command runs whose row is not there: the keeper
 *     holds it until it is told that, and a keeper that loses its server before gives everything up.
 */
#include "api/pump.h"
#include "api/sandbox_parts.h"
#include "api_handlers.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

#define KILL_NS   (10 * NS_PER_S)
#define HURRY_NS  NS_PER_S /* a client that reads has the rest of the output within this time */
#define LEAVE_NS  NS_PER_MS
#define RETURN_NS (30 * NS_PER_S) /* a client whose server went away comes back within this time */

enum run_end {
	RUN_GOES,
	RUN_STAYS,
	RUN_GOES_ON,   /* with the next server */
	RUN_GOES_LATER /* it could not be forgotten */
};

struct run {
	bool rm, keep;         /* what was asked: forget it in any case, keep it in any case */
	bool told;             /* that it was created */
	bool kept;             /* for good: it was stopped, and its client is to be told */
	struct stream *client; /* NULL: nobody came back */
	struct sandbox *sb;
	struct exec *exec;
	struct pump pump;
	const json_t *request; /* ExecCreate; of a new one */
	struct list
		leaving; /* of the server's, while its client has its answer and its rows are there */
	struct waiters left;
	bool forgotten; /* they are not */
};

static struct run *run_alloc(void)
{
	struct run *r = xnew(struct run);

	list_init(&r->leaving);
	waiters_init(&r->left);
	return r;
}

/* In one transaction: neither is there without the other. */
static int run_write(struct run *r, struct err *err)
{
	struct catalogue *c = r->sb->srv->catalogue;
	int rc;

	if (fault("run.ordered") < 0)
		return err_raise(err, ERR_INTERNAL, "the run was not written");
	rc = catalogue_begin(c, false, err);
	if (rc < 0)
		return rc;
	rc = sandbox_write_new(r->sb, err);
	r->told = rc == 0;
	if (rc == 0)
		rc = exec_created(r->exec, err);
	if (rc == 0 && fault("run.commit.before") < 0)
		rc = err_raise(err, ERR_INTERNAL, "the run was not written");
	if (rc == 0)
		return catalogue_commit(c, err);
	catalogue_abort(c);
	return rc;
}

struct run_calls {
	struct framecall start, exec, attach;
};

/* start, exec and attach go out in one piece: the keeper goes from one to the next by itself. @ahead: nothing is written yet, and run_execute() is to follow. */
static void run_call(struct run *r, struct run_calls *calls, bool ahead)
{
	struct framelink *l = &r->sb->keeper->link;
	json_t *exec = exec_request(r->exec, r->request), *start;

	start = json_pack("{s:s,s:o}", "verb", "start", "spec", sandbox_spec(r->sb));
	if (ahead) {
		(void)json_object_set_new(start, "provisional", json_true());
		(void)json_object_set_new(exec, "held", json_true());
	}
	if (!r->keep)
		(void)json_object_set_new(exec, "last", json_true());
	if (!r->rm && !r->keep)
		(void)json_object_set_new(exec, "tell_changed", json_true());
	stream_cork(&l->s, true);
	framelink_call_begin(l, &calls->start, start);
	framelink_call_begin(l, &calls->exec, exec);
	framelink_call_begin(l, &calls->attach, pump_attach_request(&r->pump, 0));
	stream_cork(&l->s, false);
}

static int run_answers(struct run *r, struct run_calls *calls, bool warm, struct err *err)
{
	struct framelink *l = &r->sb->keeper->link;
	uint64_t deadline = clock_now_ns() + CALL_NS;
	struct err exec_err = { 0 };
	json_t *ok = NULL;
	int rc = framelink_call_end(l, &calls->start, deadline, &ok, err), exec_rc;

	if (rc == 0)
		sandbox_started(r->sb, ok, warm);
	json_decref(ok);
	ok = NULL;
	exec_rc = framelink_call_end(l, &calls->exec, deadline, &ok, &exec_err);
	(void)!framelink_call_end(l, &calls->attach, deadline, NULL, NULL);
	exec_answered(r->exec, exec_rc, ok, &exec_err);
	json_decref(ok);
	if (rc == 0 && exec_rc < 0) {
		*err = exec_err;
		rc = exec_rc;
	}
	return rc;
}

/* The rows are there. The answer is that of the exec. */
static void run_execute(struct run *r)
{
	struct framelink *l = &r->sb->keeper->link;
	char text[96];

	if (l->dead)
		return;
	(void)snprintf(text, sizeof(text), "{\"id\":0,\"verb\":\"execute\",\"channel\":%u}",
		(unsigned int)r->exec->channel);
	framelink_send(l, FRAME_REQUEST, 0, text, strlen(text));
}

/* The rows are not there: nobody waits for the answers, and what the keeper says of its end is no end of a command. */
static void run_take_back(struct run *r, struct run_calls *calls)
{
	struct framelink *l = &r->sb->keeper->link;
	uint64_t now = clock_now_ns();

	r->exec->sink = NULL;
	(void)!framelink_call_end(l, &calls->start, now, NULL, NULL);
	(void)!framelink_call_end(l, &calls->exec, now, NULL, NULL);
	(void)!framelink_call_end(l, &calls->attach, now, NULL, NULL);
}

static void run_follows(struct run *r)
{
	r->exec->fleeting = !r->keep;
	r->exec->unchanged = r->rm;
	pump_init(&r->pump, r->exec, r->client, &r->sb->keeper->link);
	r->pump.cork_status = true;
	r->pump.waits = true;
	r->exec->sink = &r->pump.sink;
}

/* What its client follows. */
static void run_show(struct run *r)
{
	pump_send_object(
		r->client, FRAME_OBJECT, json_pack("{s:o}", "sandbox", sandbox_object(r->sb)));
	pump_send_object(r->client, FRAME_OBJECT, json_pack("{s:o}", "exec", exec_object(r->exec)));
}

/* Its keeper is not prepared, or its disk is to be made: the orders come behind that. Its client, who may interrupt it meanwhile, is shown it now, and again when it has started. */
static int run_call_later(struct run *r, struct run_calls *calls, struct err *err)
{
	int rc;

	run_show(r);
	stream_cork(r->client, false);
	rc = keeper_ready(r->sb->keeper, err);
	if (rc == 0)
		rc = sandbox_make_disk(r->sb, err);
	if (rc == 0)
		run_call(r, calls, false);
	return rc;
}

/*
 * The command is being executed. Its client wakes when it has been: before, where no other processor is free, it would stand before the process that becomes the command.
 */
static int run_await(struct run *r, struct run_calls *calls, struct err *err)
{
	int rc;

	run_execute(r);
	(void)fault("run.executing");
	rc = run_answers(r, calls, true, err);
	run_show(r);
	pump_let_go(&r->pump);
	if (!r->pump.status_sent)
		stream_cork(r->client, false);
	return rc;
}

static int run_begin(struct run *r, struct err *err)
{
	bool warm = r->sb->keeper->prepared, ahead = warm && !sandbox_has_disk(r->sb);
	struct run_calls calls;
	int rc;

	r->exec = exec_new(r->sb, r->request, err);
	if (r->exec == NULL)
		return -EINVAL;
	run_follows(r);
	if (ahead)
		run_call(r, &calls, true);
	rc = run_write(r, err);
	if (rc < 0) {
		if (ahead)
			run_take_back(r, &calls);
		return rc;
	}
	(void)fault("run.written");
	if (ahead)
		return run_await(r, &calls, err);
	rc = run_call_later(r, &calls, err);
	if (rc == 0)
		rc = run_answers(r, &calls, warm, err);
	if (rc < 0)
		return rc;
	run_show(r);
	pump_let_go(&r->pump);
	return 0;
}

/* Nobody waits for this command any more. */
static void run_kill(struct run *r)
{
	uint64_t deadline = clock_now_ns() + KILL_NS;

	if (r->exec->ended || r->sb->keeper == NULL || r->sb->keeper->link.dead)
		return;
	(void)!framelink_call(&r->sb->keeper->link,
		json_pack("{s:s,s:i}", "verb", "kill", "channel", r->exec->channel), deadline, NULL,
		NULL);
	while (!r->exec->ended && waiters_wait(&r->exec->changed, deadline) == 0)
		;
}

/* Its command: the first that there was. */
static struct exec *command_of(struct sandbox *sb)
{
	return list_entry(sb->execs.next, struct exec, node);
}

bool run_goes_on(struct sandbox *sb)
{
	return sb->lent && !command_of(sb)->ended;
}

/* It may end by itself. */
static void run_terminate(struct run *r, uint64_t grace_ms)
{
	uint64_t deadline = clock_now_ns() + grace_ms * NS_PER_MS;
	unsigned char sig[4];

	if (r->exec->ended || r->sb->keeper == NULL || r->sb->keeper->link.dead)
		return;
	frame_put_u32(sig, SIGTERM);
	framelink_send(&r->sb->keeper->link, FRAME_SIGNAL, r->exec->channel, sig, sizeof(sig));
	while (!r->exec->ended && waiters_wait(&r->exec->changed, deadline) == 0)
		;
}

/* Its client is waited for no longer, until its stream has let go of the sandbox. */
static void run_hurry(struct sandbox *sb)
{
	if (sb->run != RUN_FOLLOWED || sb->hurry_ns > 0)
		return;
	sb->hurry_ns = clock_now_ns() + HURRY_NS;
	if (sb->reader != NULL) {
		waiters_wake(&sb->reader->writable);
		waiters_wake(&sb->reader->readable);
	}
}

bool run_interrupt(struct sandbox *sb, uint64_t grace_ms)
{
	struct run r = { .sb = sb };

	if (!sandbox_is_lent(sb))
		return false;
	r.exec = exec_ref(command_of(sb));
	if (grace_ms > 0)
		run_terminate(&r, grace_ms);
	run_kill(&r);
	run_hurry(sb);
	exec_unref(r.exec);
	return true;
}

/* Of a client whose run is lent. */
static enum stream_patience run_patience(const void *ctx)
{
	const struct sandbox *sb = ctx;

	return sb->hurry_ns == 0 ? pump_patience(sb->srv) : STREAM_WAITS_NOT;
}

/* Return: -ESHUTDOWN where the server ends before its client has taken what it was sent: the next one has it, too. Else 0, also when nobody waits for the client. */
static int run_taken(struct run *r)
{
	int rc = stream_drain_slowly(r->client, 0, run_patience, r->sb);

	return rc == -ETIMEDOUT && r->sb->hurry_ns == 0 ? -ESHUTDOWN : 0;
}

/* The same, of the few words behind the output. */
static int run_told(struct run *r)
{
	int rc;

	if (r->client == NULL)
		return 0;
	stream_cork(r->client, false);
	if (r->client->queued == 0 || r->sb->hurry_ns > 0)
		return 0;
	sandbox_lend(r->sb);
	rc = run_taken(r);
	sandbox_lend_no_more(r->sb);
	return rc;
}

/*
 * Did a cow mount change? The keeper has said so when nothing was written; else the trees are compared. What changed elsewhere alone keeps nothing, so it is counted for those that are
 * kept in any case. Return: 0, or an error: nobody knows.
 */
static int run_changes(struct run *r, struct change_counts *changes)
{
	struct err err;
	int rc;

	*changes = (struct change_counts){ 0 };
	if (r->exec->unchanged)
		return 0;
	rc = fault("run.compare") < 0 ? err_raise(&err, ERR_INTERNAL, "told to fail here")
				      : sandbox_changes(r->sb, r->keep, changes, &err);
	if (rc < 0)
		log_warn("run", "sandbox '%s': %s", r->sb->name, err.msg);
	return rc;
}

/* @changes: NULL when nobody knows. */
static void send_summary(struct run *r, bool kept, const struct change_counts *changes)
{
	json_t *summary = json_pack("{s:b,s:n,s:n,s:s,s:s,s:o,s:o}", "kept", (int)kept, "changes",
		"elsewhere", "name", r->sb->name, "id", r->sb->id, "denied",
		mishaps_told(r->sb->mishaps.denied), "failed", mishaps_told(r->sb->mishaps.failed));

	if (changes != NULL) {
		(void)json_object_set_new(summary, "changes", json_integer(changes->applicable));
		(void)json_object_set_new(
			summary, "left_out", json_integer(changes->mounted - changes->applicable));
		(void)json_object_set_new(summary, "elsewhere", json_integer(changes->elsewhere));
	}
	pump_send_object(r->client, FRAME_OBJECT, json_pack("{s:o}", "summary", summary));
}

/* Return: was it? */
static bool run_forget(struct run *r)
{
	struct err err;

	if (sandbox_forget(r->sb, &err) == 0)
		return true;
	log_warn("run", "remove sandbox '%s': %s", r->sb->name, err.msg);
	return false;
}

/* Its rows go, unless they have gone. */
static void run_settle(struct run *r)
{
	if (list_empty(&r->leaving))
		return;
	list_remove(&r->leaving);
	r->forgotten = fault("run.told") == 0 && run_forget(r);
	waiters_wake(&r->left);
}

void runs_settle(struct server *srv)
{
	while (!list_empty(&srv->leaving))
		run_settle(list_entry(srv->leaving.next, struct run, leaving));
}

/*
 * Its client has its answer and ends: for a moment we leave it the processor, which is often the one that woke it, and do not hear of its end, which would wake us in the midst of that. Whoever
 * asks for something meanwhile finds no rows all the same: runs_settle().
 */
static enum run_end run_leaves(struct run *r)
{
	struct server *srv = r->sb->srv;

	stream_hold(r->client, true);
	if (run_told(r) < 0)
		return RUN_GOES_ON;
	list_append(&srv->leaving, &r->leaving);
	(void)waiters_wait(&r->left, clock_now_ns() + LEAVE_NS);
	run_settle(r);
	stream_hold(r->client, false);
	return r->forgotten ? RUN_GOES : RUN_GOES_LATER;
}

/*
 * Its client is told before the rows are deleted, which takes as long as all else that is done here. Nobody can see them meanwhile. Whoever finds
 * them after a crash, or because they could not be deleted, waits for a client that does not come back, and forgets it then.
 */
static enum run_end run_goes(struct run *r, const struct change_counts *changes)
{
	send_summary(r, false, changes);
	if (r->client == NULL)
		return run_forget(r) ? RUN_GOES : RUN_STAYS;
	return run_leaves(r);
}

/* From here on the sandbox is no run's any more, whoever starts it: all that is left to do is to tell the client. */
static void run_keep(struct run *r)
{
	struct err err;

	if (r->kept)
		return;
	r->kept = true;
	(void)json_object_set_new(json_object_get(r->sb->doc, "run"), "kept", json_true());
	if (r->sb->keeper == NULL)
		(void)!sandbox_save(r->sb, false, NULL);
	else if (sandbox_halt(r->sb, "the command ended", 0, &err) < 0)
		log_warn("run", "stop sandbox '%s': %s", r->sb->name, err.msg);
}

/* Its client was told, or nobody waits for it. A server that dies before leaves that to the next one. */
static void run_done(struct run *r)
{
	(void)json_object_del(r->sb->doc, "run");
	sandbox_index(r->sb);
	(void)!sandbox_save(r->sb, false, NULL);
}

static enum run_end run_stays(struct run *r, const struct change_counts *changes)
{
	run_keep(r);
	send_summary(r, true, changes);
	if (run_told(r) < 0)
		return RUN_GOES_ON;
	run_done(r);
	return RUN_STAYS;
}

/* The command is over: keep the sandbox when its changes are worth something, and say so. */
static enum run_end run_finish(struct run *r)
{
	struct change_counts changes;
	bool known = run_changes(r, &changes) == 0, none = known && changes.mounted == 0;
	enum run_end end;

	gateway_drain(r->sb);
	/* what cannot be compared is kept */
	if (!r->kept && !r->keep && (r->rm || none) && (end = run_goes(r, &changes)) != RUN_STAYS)
		return end;
	return run_stays(r, known ? &changes : NULL);
}

/* Behind the client's back: it has its answer. */
static void clear_main(void *arg)
{
	struct sandbox *sb = arg;
	struct server *srv = sb->srv;

	sandbox_clear(sb);
	sandbox_unlock(sb);
	sandbox_unref(sb);
	server_idle(srv);
}

/* The keeper has died under the command. */
static void run_lost(struct run *r)
{
	execs_lost(r->sb, "lost", "the sandbox ended unasked");
	pump_send_object(
		r->client, FRAME_STATUS, json_incref(json_object_get(r->exec->doc, "status")));
}

/* It never ran. Its client has the reason. It stays only when it could not even be forgotten. */
static enum run_end run_failed(struct run *r, const struct err *why)
{
	pump_send_object(r->client, FRAME_ERROR, err_to_json(why));
	if (!r->told) {
		sandbox_discard(r->sb);
		return RUN_STAYS;
	}
	if (r->sb->state == SANDBOX_CREATING)
		sandbox_enter(r->sb, SANDBOX_FAILED, EVENT_SANDBOX_FAILED,
			json_pack("{s:o}", "error", err_to_json(why)));
	if (run_forget(r))
		return RUN_GOES;
	sandbox_drop_keeper(r->sb, false);
	return RUN_STAYS;
}

/* Let go of the sandbox, whose lock and reference we have. */
static void run_let_go(struct run *r, enum run_end end)
{
	if (r->client != NULL)
		stream_cork(r->client, false);
	if (r->exec != NULL)
		r->exec->sink = NULL;
	buf_free(&r->pump.early);
	exec_unref(r->exec);
	r->sb->reader = NULL;
	r->sb->hurry_ns = 0;
	r->sb->run = end == RUN_GOES_ON ? RUN_ORPHAN : RUN_NONE;
	if (end == RUN_GOES_LATER)
		run_orphaned(r->sb);
	if (end == RUN_GOES) {
		server_busy(r->sb->srv);
		fiber_start(clear_main, r->sb);
		return;
	}
	sandbox_unlock(r->sb);
	sandbox_unref(r->sb);
}

/* --- following --- */

/* From here on output flows. */
static enum run_end run_follow(struct run *r)
{
	int rc;

	r->sb->reader = r->client;
	sandbox_lend(r->sb);
	rc = pump_run(&r->pump);
	if (rc == 0 && r->client->queued > 0) {
		stream_cork(r->client, false); /* who is behind is not woken by the status */
		rc = run_taken(r);
	}
	sandbox_lend_no_more(r->sb);
	if (rc == -ESHUTDOWN)
		return RUN_GOES_ON;
	if (rc == -EPIPE)
		run_kill(r);
	else if (rc == -EIO)
		run_lost(r);
	return run_finish(r);
}

static enum run_end run_new(struct run *r)
{
	struct err err = { 0 };

	return run_begin(r, &err) == 0 ? run_follow(r) : run_failed(r, &err);
}

/* Its keeper has gone, or has forgotten it. */
static enum run_end run_follow_saved(struct run *r, uint64_t from)
{
	struct saved_reader reader = { r->client, run_patience, r->sb, from };
	bool waits_no_more, goes_on, unread;
	int rc;

	r->sb->reader = r->client;
	sandbox_lend(r->sb);
	rc = exec_saved_replay(r->exec, from, pump_saved, &reader);
	waits_no_more = rc == -ETIMEDOUT;
	unread = rc < 0 && !waits_no_more && r->client->error == 0;
	if (unread)
		log_warn("run", "read the output of exec '%s': %s", r->exec->id,
			strerrordesc_np(-rc));
	if (unread || (waits_no_more && r->sb->hurry_ns > 0))
		pump_send_end(r->client, r->exec, reader.reached);
	goes_on = (waits_no_more && r->sb->hurry_ns == 0) || run_taken(r) < 0;
	sandbox_lend_no_more(r->sb);
	return goes_on ? RUN_GOES_ON : run_finish(r);
}

/* Somebody came back, with everything until @from. */
static enum run_end run_again(struct run *r, uint64_t from)
{
	struct err err = { 0 };
	json_t *ok = NULL;
	int rc;

	pump_send_object(
		r->client, FRAME_OBJECT, json_pack("{s:o}", "sandbox", sandbox_object(r->sb)));
	pump_send_object(r->client, FRAME_OBJECT, json_pack("{s:o}", "exec", exec_object(r->exec)));
	if (!exec_is_held(r->exec))
		return run_follow_saved(r, from);
	pump_init(&r->pump, r->exec, r->client, &r->sb->keeper->link);
	r->pump.cork_status = true;
	r->pump.reached = from;
	r->exec->sink = &r->pump.sink;
	rc = framelink_call(&r->sb->keeper->link, pump_attach_request(&r->pump, from),
		clock_now_ns() + (fault("run.again.attach") < 0 ? 0 : CALL_NS), &ok, &err);
	if (rc == 0)
		pump_send_input(r->client, ok);
	json_decref(ok);
	if (rc == 0)
		return run_follow(r);
	/* it stands still, and its command may go on: who comes back asks again */
	if (err.code == ERR_TIMEOUT)
		return RUN_GOES_LATER;
	run_lost(r);
	return run_finish(r);
}

static char *own_key(const struct api_call *call, const char *key)
{
	/* keys of different users do not meet */
	return str_dupf("%u:%s", http_peer_uid(call->conn), key);
}

/* What its document says of a run that an earlier server began. */
static void run_remember(struct run *r)
{
	const json_t *run = json_object_get(r->sb->doc, "run");

	r->keep = json_is_true(json_object_get(run, "keep"));
	r->rm = json_is_true(json_object_get(run, "rm"));
	r->exec = exec_ref(command_of(r->sb));
	/* or it was about to be */
	r->kept = json_is_true(json_object_get(run, "kept")) && !exec_is_held(r->exec);
	r->exec->unchanged |= r->rm;
}

/* @point: a test's, which finds it taken, and waits in vain. */
static int lock_at(struct sandbox *sb, const char *point, struct err *err)
{
	if (fault(point) == 0)
		return sandbox_lock(sb, err);
	(void)waiters_wait(&sb->changed, clock_now_ns() + NS_PER_MS);
	return err_raise(err, ERR_BUSY, "told to fail here");
}

static int run_join(struct api_call *call, struct sandbox *found, uint64_t from, struct err *err)
{
	struct run *r;
	int rc = sandbox_await(found, err);

	if (rc < 0)
		return rc;
	if (found->run != RUN_ORPHAN)
		return err_raise(err, ERR_BUSY, "another client follows this run");
	r = run_alloc();
	r->sb = sandbox_ref(found);
	r->sb->run = RUN_FOLLOWED;
	waiters_wake(&r->sb->changed);
	rc = lock_at(r->sb, "run.join.lock", err);
	if (rc < 0) {
		run_orphaned(r->sb); /* who waited for somebody has gone */
		sandbox_unref(r->sb);
		free(r);
		return rc;
	}
	r->client = http_stream(call->conn);
	run_remember(r);
	http_upgrade(call->conn, "cay-frames");
	run_let_go(r, run_again(r, from));
	free(r);
	return 0;
}

int api_run_attach(struct api_call *call, struct err *err)
{
	cleanup_free char *key = own_key(call, call->segments[0]);
	struct sandbox *sb = sandbox_by_run(call->srv, key);

	if (sb == NULL)
		return err_raise(err, ERR_NOT_FOUND, "no run '%s'", call->segments[0]);
	return run_join(call, sb, api_number(call, "from"), err);
}

int api_run(struct api_call *call, struct err *err)
{
	const char *name = json_string_value(json_object_get(call->body, "key"));
	cleanup_free char *key = name != NULL ? own_key(call, name) : NULL;
	struct sandbox *before = key != NULL ? sandbox_by_run(call->srv, key) : NULL;
	const json_t *sandbox = json_object_get(call->body, "sandbox");
	bool ephemeral = json_is_true(json_object_get(sandbox, "ephemeral"));
	bool keep = json_is_true(json_object_get(call->body, "keep"));
	struct sandbox_origin origin = { 0 };
	struct run *r;

	/* asked again because the answer was lost with a server */
	if (before != NULL)
		return run_join(call, before, 0, err);
	if (json_is_false(json_object_get(sandbox, "start")))
		return err_member(err,
			err_raise(err, ERR_INVALID,
				"'sandbox.start' is false, and a run starts its sandbox"),
			"sandbox.start");
	if (keep && ephemeral)
		return err_member(err,
			err_raise(err, ERR_INVALID,
				"'keep' and 'sandbox.ephemeral' contradict each other"),
			"keep");
	r = run_alloc();
	r->keep = keep;
	r->rm = (ephemeral || json_is_true(json_object_get(call->body, "rm"))) && !keep;
	r->request = json_object_get(call->body, "exec");
	r->client = http_stream(call->conn);
	origin.run =
		json_pack("{s:b,s:b,s:s?}", "rm", (int)r->rm, "keep", (int)r->keep, "key", key);
	r->sb = sandbox_new(call->srv, sandbox, &origin, true, err);
	json_decref(origin.run);
	if (r->sb == NULL) {
		free(r);
		return -EINVAL;
	}
	r->sb->run = RUN_FOLLOWED;
	stream_cork(r->client, true);
	http_upgrade(call->conn, "cay-frames");
	run_let_go(r, run_new(r));
	free(r);
	return 0;
}

/* --- nobody came back --- */

static bool is_orphan(const struct sandbox *sb)
{
	return sb->run == RUN_ORPHAN && !sb->gone && !sb->srv->stopping;
}

/* Somebody may work on it for minutes, and its client come back meanwhile. Return: is it ours now? */
static bool orphan_lock(struct sandbox *sb)
{
	int rc = -EBUSY;

	while (rc < 0 && is_orphan(sb))
		rc = lock_at(sb, "run.orphan.lock", NULL);
	if (rc == 0 && !is_orphan(sb)) {
		sandbox_unlock(sb);
		rc = -EBUSY;
	}
	return rc == 0;
}

static void orphan_main(void *arg)
{
	struct run r = { .sb = arg };
	uint64_t deadline = clock_now_ns() + RETURN_NS;

	while (r.sb->run == RUN_ORPHAN && !r.sb->gone &&
		waiters_wait(&r.sb->changed, deadline) == 0)
		;
	if (!orphan_lock(r.sb)) {
		sandbox_unref(r.sb);
		return;
	}
	r.sb->run = RUN_FOLLOWED;
	log_info("run", "sandbox '%s': nobody came back for its command", r.sb->name);
	run_remember(&r);
	run_kill(&r);
	run_let_go(&r, run_finish(&r));
}

void run_orphaned(struct sandbox *sb)
{
	if (json_object_get(sb->doc, "run") == NULL || sb->gone || list_empty(&sb->execs))
		return;
	sb->run = RUN_ORPHAN;
	fiber_start(orphan_main, sandbox_ref(sb));
}
