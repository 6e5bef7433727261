/* SPDX-License-Identifier: Apache-2.0 */
/* api/streams.c - GET …/attach: a client joins an exec, at any offset, as often as it likes. */
#include "api/idle.h"
#include "api/pump.h"
#include "api_handlers.h"

#define END_NS (10 * NS_PER_S)

static void link_closed(struct stream *s)
{
	free(container_of(container_of(s, struct framelink, s), struct pump, link));
}

static void wait_while_away(struct stream *client, struct sandbox *sb, const struct exec *e)
{
	while (exec_is_away(e) && !sb->gone && !sb->srv->stopping && !client->eof &&
		client->error == 0)
		(void)waiters_wait(&sb->changed, clock_now_ns() + NS_PER_S);
}

/* Who ends a sandbox says what became of its commands a moment after their connections are gone. */
static void wait_for_status(struct stream *client, struct sandbox *sb, struct exec *e)
{
	uint64_t deadline = clock_now_ns() + END_NS;

	while (!e->ended && !exec_is_away(e) && !sb->gone && !sb->srv->stopping && !client->eof &&
		client->error == 0 && clock_now_ns() < deadline)
		(void)waiters_wait(&e->changed, clock_now_ns() + NS_PER_S);
}

/* What was saved of its output, from where @r is. Return: 0; -ETIMEDOUT: nobody waits any longer for the client, which comes back; or negative with @err set. */
static int replay(struct saved_reader *r, struct exec *e, struct err *err)
{
	int rc = exec_saved_replay(e, r->reached, pump_saved, r);

	if (rc < 0 && rc != -ETIMEDOUT)
		(void)err_raise_sys(err, rc, "read the output of exec '%s'", e->id);
	return rc;
}

/* @rc: of pump_run(). Return: 0, or an error for the client. */
static int attach_end(struct pump *p, struct sandbox *sb, struct exec *e, int rc, struct err *err)
{
	struct saved_reader r = { p->client, pump_patience, sb->srv, 0 };

	if (rc == -EPIPE) /* who leaves by himself does not want what is held */
		(void)!framelink_call(&p->link,
			json_pack("{s:s,s:i}", "verb", "detach", "channel", p->channel),
			clock_now_ns() + CALL_NS, NULL, NULL);
	if (rc != -EIO)
		return 0;
	if (e->comes_back)
		wait_while_away(p->client, sb, e);
	if (!e->ended && pump_was_rewound(p)) {
		pump_send_offset(p->client, e, p->reached);
		return 0;
	}
	wait_for_status(p->client, sb, e);
	e->expected = exec_is_away(e);
	if (e->expected || (!e->ended && sb->srv->stopping)) /* the next server says it */
		return 0;
	/* the sandbox was stopped: the status is known all the same, and what its keeper still had of the output is on disk; of one that was removed it may not be */
	if (!json_is_object(json_object_get(e->doc, "status")))
		return err_raise(err, ERR_UNAVAILABLE, "the sandbox ended");
	/* a client that had not taken it when the server ends comes back for the rest */
	r.reached = p->reached;
	rc = replay(&r, e, err);
	return rc == -ETIMEDOUT ? 0 : rc;
}

static int attach_live(
	struct stream *client, struct sandbox *sb, struct exec *e, uint64_t from, struct err *err)
{
	int fd = keeper_connect(sb->srv, sb->id), rc;
	json_t *ok = NULL;
	struct pump *p;

	if (fd < 0)
		return err_raise_sys(err, fd, "connect to the keeper of sandbox '%s'", sb->name);
	p = xnew(struct pump);
	pump_init(p, e, client, NULL);
	p->reached = from;
	p->waits = true; /* what of its output is old is said before that */
	if (framelink_open(&p->link, sb->srv->loop, fd) < 0)
		abort();
	rc = framelink_call(
		&p->link, pump_attach_request(p, from), clock_now_ns() + CALL_NS, &ok, err);
	if (rc == 0)
		pump_send_input(client, ok);
	pump_let_go(p);
	if (rc == 0) {
		rc = attach_end(p, sb, e, pump_run(p), err);
	} else if (pump_was_rewound(p)) {
		rc = attach_end(p, sb, e, -EIO, err);
	}
	json_decref(ok);
	framelink_close(&p->link, link_closed);
	return rc;
}

/*
 * While the sandbox is suspended there is what its exec has written until then. When it is not any more the stream ends without a status, as when the server ends: the client comes
 * back with the offset that it has, and learns how much of its input has arrived.
 */
static int attach_away(
	struct stream *client, struct sandbox *sb, struct exec *e, uint64_t from, struct err *err)
{
	struct saved_reader r = { client, pump_patience, sb->srv, from };
	unsigned int rewinds = e->rewinds;
	int rc = sb->state == SANDBOX_SUSPENDED ? replay(&r, e, err) : 0;

	if (rc < 0 && rc != -ETIMEDOUT)
		return rc;
	wait_while_away(client, sb, e);
	e->expected = client->error == 0 && !client->eof;
	if (e->rewinds != rewinds)
		pump_send_offset(client, e, r.reached);
	return rc;
}

static int attach_here(
	struct stream *client, struct sandbox *sb, struct exec *e, uint64_t from, struct err *err)
{
	struct saved_reader r = { client, pump_patience, sb->srv, from };
	bool held = exec_is_held(e);
	int rc = held ? attach_live(client, sb, e, from, err) : -ENOENT;

	/* the keeper forgets the oldest of many */
	if (!held || (rc < 0 && err->code == ERR_NOT_FOUND)) {
		*err = (struct err){ 0 };
		rc = replay(&r, e, err);
	}
	return rc;
}

int api_exec_attach(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	struct exec *e = sb != NULL ? exec_find(sb, call->segments[1], err) : NULL;
	struct stream *client = http_stream(call->conn);
	uint64_t from = api_number(call, "from");
	int rc;

	if (e != NULL) {
		e->clients++;
		e->expected = false;
	}
	if (e == NULL || sandbox_wake(sb, err) < 0) {
		if (e != NULL)
			e->clients--;
		exec_unref(e);
		sandbox_unref(sb);
		return -EIO;
	}
	http_upgrade(call->conn, "cay-frames");
	pump_send_object(client, FRAME_OBJECT, json_pack("{s:o}", "exec", exec_object(e)));
	rc = exec_is_away(e) ? attach_away(client, sb, e, from, err)
			     : attach_here(client, sb, e, from, err);
	if (rc < 0 && err->code != ERR_NONE)
		pump_send_object(client, FRAME_ERROR, err_to_json(err));
	e->clients--;
	exec_let_rest(sb, e);
	return 0;
}
