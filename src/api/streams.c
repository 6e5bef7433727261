/* SPDX-License-Identifier: Apache-2.0 */
/* api/streams.c - GET …/attach: a client joins an exec, at any offset, as often as it likes. */
#include "api/idle.h"
#include "api/pump.h"
#include "api_handlers.h"

static void link_closed(struct stream *s)
{
	free(container_of(container_of(s, struct framelink, s), struct pump, link));
}

/* @rc: of pump_run(). Return: 0, or an error for the client. */
static int attach_end(struct pump *p, struct exec *e, int rc, struct err *err)
{
	if (rc == -EPIPE) /* who leaves by himself does not want what is held */
		(void)!framelink_call(&p->link,
			json_pack("{s:s,s:i}", "verb", "detach", "channel", p->channel),
			clock_now_ns() + CALL_NS, NULL, NULL);
	if (rc != -EIO)
		return 0;
	if (!e->ended)
		return err_raise(err, ERR_UNAVAILABLE, "the sandbox ended");
	/* the sandbox was stopped: the status is known all the same */
	pump_send_object(p->client, FRAME_STATUS, json_incref(json_object_get(e->doc, "status")));
	return 0;
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
	if (framelink_open(&p->link, sb->srv->loop, fd) < 0)
		abort();
	rc = framelink_call(
		&p->link, pump_attach_request(p, from), clock_now_ns() + CALL_NS, &ok, err);
	if (rc == 0) {
		pump_send_input(client, ok);
		rc = attach_end(p, e, pump_run(p), err);
	}
	json_decref(ok);
	framelink_close(&p->link, link_closed);
	return rc;
}

int api_exec_attach(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	struct exec *e = sb != NULL ? exec_find(sb, call->segments[1], err) : NULL;
	struct stream *client = http_stream(call->conn);
	uint64_t from = api_number(call, "from");
	bool held;
	int rc;

	if (e == NULL || sandbox_wake(sb, err) < 0) {
		exec_unref(e);
		sandbox_unref(sb);
		return -EIO;
	}
	http_upgrade(call->conn, "cay-frames");
	pump_send_object(client, FRAME_OBJECT, json_pack("{s:O}", "exec", e->doc));
	held = exec_is_held(e);
	rc = held ? attach_live(client, sb, e, from, err) : -ENOENT;
	/* the keeper forgets the oldest of many */
	if (!held || (rc < 0 && err->code == ERR_NOT_FOUND))
		rc = exec_saved_replay(e, from, pump_saved, client);
	if (rc < 0 && err->code != ERR_NONE)
		pump_send_object(client, FRAME_ERROR, err_to_json(err));
	exec_let_rest(sb, e);
	return 0;
}
