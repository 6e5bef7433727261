/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/command_stream.h"
#include "prog/cay/sandbox_spec.h"

static const char upgrade[] = "Connection: Upgrade\r\nUpgrade: cay-frames\r\n";

/* What the command's standard streams are. */
static int choose_streams(struct cli *cli, struct stream_options *o)
{
	o->tty = cli_args_has(&cli->args, FLAG_TTY);
	o->input = o->tty || cli_args_has(&cli->args, FLAG_INTERACTIVE) || stream_wants_input();
	o->quiet = cli->json;
	if (o->tty && !isatty(STDIN_FILENO))
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_USAGE, "-t: standard input is no terminal"),
			"leave -t out; input from a pipe or a file is forwarded anyway");
	return 0;
}

/* The last line of a run: what stayed, and what one can do with it. */
static void tell_summary(struct cli *cli, const struct stream_result *r)
{
	uint64_t changes = cli_number(r->summary, "changes");
	const char *name = cli_string(r->summary, "name", "");
	struct buf line = BUF_INIT(4096);
	json_t *denied;
	size_t i;

	json_array_foreach (json_object_get(r->summary, "denied"), i, denied) {
		cleanup_free char *text = json_is_string(denied)
						  ? str_dup(json_string_value(denied))
						  : json_dumps(denied, JSON_COMPACT);

		buf_str(&line, "cay: denied: ");
		text_escape(&line, text != NULL ? text : "?");
		buf_char(&line, '\n');
	}
	if (json_is_true(json_object_get(r->summary, "kept"))) {
		buf_str(&line, cli->talk ? "\033[2m" : "");
		if (changes > 0)
			buf_fmt(&line, "%llu %s changed: cay diff %s · cay apply %s · cay rm %s",
				(unsigned long long)changes, changes == 1 ? "file" : "files", name,
				name, name);
		else
			buf_fmt(&line, "nothing changed, kept: cay start %s · cay rm %s", name,
				name);
		buf_str(&line, cli->talk ? "\033[0m\n" : "\n");
	}
	if (line.n > 0)
		(void)!write(STDERR_FILENO, line.p, line.n);
	buf_free(&line);
}

static int print_result(const struct stream_result *r)
{
	cleanup_json json_t *all = json_pack("{s:O?, s:O?, s:O?, s:O?}", "sandbox", r->sandbox,
		"exec", r->exec, "status", r->status, "summary", r->summary);

	/* `id` is always an object's identity. */
	if (r->sandbox != NULL)
		(void)json_object_set_new(all, "id", json_string(cli_string(r->sandbox, "id", "")));
	return cli_print_json(all);
}

static int finish(struct cli *cli, const struct stream_options *o, char *const *command, int rc,
	struct stream_result *r)
{
	int status;

	if (rc < 0 && cli->err.code == ERR_CMD_NOT_FOUND && command != NULL)
		hidden_command_explain(cli, command[0], o->run);
	if (rc < 0)
		return rc;
	if (r->signal != 0)
		return 128 + r->signal;
	if (r->detached)
		return 0;
	status = stream_status(cli, r->status);
	if (cli->json)
		(void)print_result(r);
	else
		tell_summary(cli, r);
	return status;
}

/* What to run: what was said, or with -t a shell. */
static char *const *choose_command(struct cli *cli)
{
	static char bash[] = "bash", sh[] = "sh";
	static char *host[] = { bash, NULL }, *other[] = { sh, NULL };

	if (cli->args.command != NULL)
		return cli->args.command;
	if (cli_args_has(&cli->args, FLAG_TTY))
		return cli->args.n_positional == 0 ? host : other;
	(void)err_raise(&cli->err, ERR_USAGE, "no command was given");
	if (cli->args.verb == VERB_RUN && cli->args.n_positional == 1)
		(void)err_hint(
			&cli->err, 0, "put -- before it: cay run -- %s", cli->args.positional[0]);
	else if (cli->args.verb == VERB_RUN)
		(void)err_hint(&cli->err, 0, "cay run -- COMMAND; for a shell: cay run -it");
	else
		(void)err_hint(&cli->err, 0,
			"cay exec %s -- COMMAND; for a shell: cay exec -it %s -- sh",
			cli->args.positional[0], cli->args.positional[0]);
	return NULL;
}

static int run_body(
	struct cli *cli, char *const *command, const struct stream_options *o, json_t **ret)
{
	cleanup_json json_t *spec = NULL, *exec = NULL;
	cleanup_free char *cwd = NULL;
	bool rm = cli_args_has(&cli->args, FLAG_RM);
	int rc = sandbox_spec_make(cli, &spec, &cwd);

	if (rc == 0)
		rc = exec_spec_make(cli, command, spec, cwd, o->input, o->tty, &exec);
	if (rc < 0)
		return rc;
	*ret = json_pack("{s:O, s:O, s:b, s:b}", "sandbox", spec, "exec", exec, "rm", rm, "keep",
		!rm && cli_args_has(&cli->args, FLAG_NAME));
	return 0;
}

int cmd_run(struct cli *cli)
{
	struct stream_options o = { .run = true };
	struct stream_result r = { 0 };
	cleanup_json json_t *body = NULL;
	char *const *command = choose_command(cli);
	int rc;

	if (command == NULL)
		return -EINVAL;
	rc = choose_streams(cli, &o);
	if (rc == 0)
		rc = run_body(cli, command, &o, &body);
	if (rc < 0)
		return rc;
	cli->doing = "making the sandbox";
	rc = cli_send(cli, "POST", "/v1/run", upgrade, body);
	if (rc >= 0)
		rc = stream_run(cli, &o, &r);
	rc = finish(cli, &o, command, rc, &r);
	stream_result_fini(&r);
	return rc;
}

static int attach(struct cli *cli, const char *name, const char *exec, const char *from,
	const struct stream_options *o, struct stream_result *r)
{
	cleanup_free char *target =
		from != NULL
			? cli_target("/v1/sandboxes/%s/execs/%s/attach?from=%s", name, exec, from)
			: cli_target("/v1/sandboxes/%s/execs/%s/attach", name, exec);
	int rc = cli_send(cli, "GET", target, upgrade, NULL);

	return rc < 0 ? rc : stream_run(cli, o, r);
}

/* Starts the command. @ret: the exec object. */
static int start_exec(
	struct cli *cli, char *const *command, const struct stream_options *o, json_t **ret)
{
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/execs", cli->args.positional[0]);
	const char *key = cli_args_value(&cli->args, FLAG_IDEMPOTENCY_KEY);
	cleanup_free char *header = key != NULL ? str_dupf("Idempotency-Key: %s\r\n", key) : NULL;
	cleanup_json json_t *body = NULL;
	struct buf text = BUF_INIT(ANSWER_MAX);
	int rc;

	if (key != NULL && (*key == '\0' || key[strcspn(key, "\r\n")] != '\0'))
		return err_raise(
			&cli->err, ERR_USAGE, "--idempotency-key: a line of text is wanted");
	rc = exec_spec_make(cli, command, NULL, NULL, o->input, o->tty, &body);
	if (rc == 0)
		rc = cli_send(cli, "POST", target, header, body);
	if (rc < 0)
		return rc;
	rc = http_client_body_all(&cli->http, &text);
	*ret = rc == 0 ? json_loadb(text.p, text.n, 0, NULL) : NULL;
	buf_free(&text);
	return rc < 0 || *ret == NULL ? cli_lost(cli, rc < 0 ? rc : -EBADMSG) : 0;
}

int cmd_exec(struct cli *cli)
{
	struct stream_options o = { 0 };
	struct stream_result r = { 0 };
	cleanup_json json_t *exec = NULL;
	char *const *command = choose_command(cli);
	bool detach = cli_args_has(&cli->args, FLAG_DETACH);
	int rc = command == NULL ? -EINVAL : detach ? 0 : choose_streams(cli, &o);

	if (rc < 0)
		return rc;
	rc = start_exec(cli, command, &o, &exec);
	if (rc < 0)
		return finish(cli, &o, command, rc, &r);
	if (detach && cli->json)
		return cli_print_json(exec);
	if (detach)
		return printf("%s\n", cli_string(exec, "id", "")) < 0 ? 125 : 0;
	rc = attach(cli, cli->args.positional[0], cli_string(exec, "id", ""), "0", &o, &r);
	rc = finish(cli, &o, command, rc, &r);
	stream_result_fini(&r);
	return rc;
}

int cmd_attach(struct cli *cli)
{
	const char *name = cli->args.positional[0], *id = cli->args.positional[1],
		   *from = cli_args_value(&cli->args, FLAG_FROM);
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/execs/%s", name, id);
	cleanup_json json_t *exec = NULL;
	struct stream_options o = { .detachable = true, .quiet = cli->json };
	struct stream_result r = { 0 };
	uint64_t offset;
	int rc;

	if (from != NULL && str_to_u64(from, 0, INT64_MAX, &offset) < 0)
		return err_raise(&cli->err, ERR_USAGE, "--from '%s': an offset is wanted", from);
	rc = cli_get(cli, target, &exec);
	if (rc < 0)
		return rc;
	o.tty = json_is_true(json_object_get(exec, "tty")) && isatty(STDIN_FILENO) &&
		!str_eq(cli_string(exec, "state", ""), "ended");
	o.input = json_is_true(json_object_get(exec, "stdin")) && (o.tty || stream_wants_input());
	rc = attach(cli, name, id, from, &o, &r);
	if (r.detached)
		(void)dprintf(STDERR_FILENO, "\r\ncay: it goes on: cay attach %s %s\n", name, id);
	rc = finish(cli, &o, cli->args.command, rc, &r);
	stream_result_fini(&r);
	return rc;
}
