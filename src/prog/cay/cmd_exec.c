/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/sandbox_spec.h"
#include "prog/cay/session.h"

/* What to come back to. */
struct place {
	const char *name, *exec;
};

static int attach_from(struct cli *cli, const void *ctx, uint64_t from)
{
	const struct place *at = ctx;
	cleanup_free char *path =
		cli_target("/v1/sandboxes/%s/execs/%s/attach", at->name, at->exec);
	cleanup_free char *target = str_dupf("%s?from=%llu", path, (unsigned long long)from);

	return cli_send(cli, "GET", target, SESSION_UPGRADE, NULL);
}

static int attach(struct cli *cli, const char *name, const char *exec, struct stream_options *o,
	struct stream_result *r)
{
	const struct place at = { name, exec };
	int rc = attach_from(cli, &at, o->from);

	o->rejoin = attach_from;
	o->ctx = &at;
	rc = rc < 0 ? rc : stream_run(cli, o, r);
	o->ctx = NULL;
	return rc;
}

/* Starts the command. @ret: the exec object. */
static int start_exec(
	struct cli *cli, char *const *command, const struct stream_options *o, json_t **ret)
{
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/execs", cli->args.positional[0]);
	const char *asked = cli_args_value(&cli->args, FLAG_IDEMPOTENCY_KEY);
	const struct id made = id_new();
	const char *key = asked != NULL ? asked : made.s; /* so that it may be sent twice */
	cleanup_free char *header = cli_key_header(cli, key);
	cleanup_json json_t *body = NULL;
	struct buf text = BUF_INIT(ANSWER_MAX);
	int rc;

	if (header == NULL)
		return -EINVAL;
	rc = exec_spec_make(cli, command, NULL, NULL, o->input, o->tty, &body);
	if (rc == 0 && !cli_args_has(&cli->args, FLAG_DETACH)) /* for us, who attach */
		(void)json_object_set_new(body, "hold", json_true());
	if (rc == 0)
		rc = cli_send_again(cli, "POST", target, header, body);
	/* a server that was started before cay was replaced by this one */
	if (rc < 0 && str_eq(cli_string(cli->error, "member", ""), "hold")) {
		(void)json_object_del(body, "hold");
		cli_forgive(cli);
		rc = cli_send_again(cli, "POST", target, header, body);
	}
	if (rc < 0)
		return rc;
	rc = http_client_body_all(&cli->http, &text);
	*ret = rc == 0 ? json_loadb(text.p, text.n, 0, NULL) : NULL;
	buf_free(&text);
	return rc < 0 || *ret == NULL ? cli_lost(cli, rc < 0 ? rc : -EBADMSG) : 0;
}

/* What was ended before we were answered, and went with its sandbox since: its status is all that there is of it. One that had ended by itself may have said something. */
static bool went_with_its_sandbox(struct cli *cli, json_t *exec, struct stream_result *r)
{
	const char *how = cli_string(json_object_get(exec, "status"), "status", "");

	if (cli->err.code != ERR_NOT_FOUND || !(str_eq(how, "killed") || str_eq(how, "lost")))
		return false;
	cli_forgive(cli);
	r->exec = json_incref(exec);
	r->status = json_incref(json_object_get(exec, "status"));
	return true;
}

static void tell_detached(const char *name, const char *id)
{
	(void)dprintf(STDERR_FILENO, "\r\ncay: it goes on: cay attach %s %s\n", name, id);
}

int cmd_exec(struct cli *cli)
{
	struct stream_options o = { 0 };
	struct stream_result r = { 0 };
	cleanup_json json_t *exec = NULL;
	char *const *command = session_command(cli);
	bool detach = cli_args_has(&cli->args, FLAG_DETACH);
	int rc = command == NULL ? -EINVAL : detach ? 0 : session_streams(cli, &o);

	if (rc < 0)
		return rc;
	if (detach) { /* for who attaches later */
		o.tty = cli_args_has(&cli->args, FLAG_TTY);
		o.input = o.tty || cli_args_has(&cli->args, FLAG_INTERACTIVE);
	}
	/* who asks for it by a key may not be the first */
	o.fresh = cli_args_value(&cli->args, FLAG_IDEMPOTENCY_KEY) == NULL;
	rc = start_exec(cli, command, &o, &exec);
	if (rc < 0)
		return session_finish(cli, &o, command, rc, &r);
	if (detach && cli->json)
		return cli_print_json(exec);
	if (detach) {
		cli_print_word(cli_string(exec, "id", ""));
		return 0;
	}
	rc = attach(cli, cli->args.positional[0], cli_string(exec, "id", ""), &o, &r);
	if (rc < 0 && went_with_its_sandbox(cli, exec, &r))
		rc = 0;
	if (r.detached) /* its sandbox is suspended */
		tell_detached(cli->args.positional[0], cli_string(exec, "id", ""));
	rc = session_finish(cli, &o, command, rc, &r);
	stream_result_fini(&r);
	return rc;
}

int cmd_attach(struct cli *cli)
{
	const char *name = cli->args.positional[0], *id = cli->args.positional[1],
		   *from = cli_args_value(&cli->args, FLAG_FROM);
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/execs/%s", name, id);
	cleanup_json json_t *exec = NULL;
	struct stream_options o = { .quiet = cli->json };
	struct stream_result r = { 0 };
	bool ended;
	int rc;

	if (from != NULL && str_to_u64(from, 0, INT64_MAX, &o.from) < 0)
		return err_raise(&cli->err, ERR_USAGE, "--from '%s': an offset is wanted", from);
	rc = cli_get(cli, target, &exec);
	if (rc < 0)
		return rc;
	ended = str_eq(cli_string(exec, "state", ""), "ended"); /* what is typed is for nobody */
	o.detachable = !ended;
	o.tty = !ended && json_is_true(json_object_get(exec, "tty")) && isatty(STDIN_FILENO);
	o.input = !ended && json_is_true(json_object_get(exec, "stdin")) &&
		  (o.tty || stream_wants_input());
	rc = attach(cli, name, id, &o, &r);
	if (r.detached)
		tell_detached(name, id);
	rc = session_finish(cli, &o, cli->args.command, rc, &r);
	stream_result_fini(&r);
	return rc;
}
