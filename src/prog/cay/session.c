/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/session.h"
#include "base/str.h"
#include "prog/cay/hidden_command.h"

/* What the command's standard streams are. */
int session_streams(struct cli *cli, struct stream_options *o)
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

/* What to run: what was said, or with -t a shell. */
char *const *session_command(struct cli *cli)
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

/* @flag: as --allow takes it, where the ports of the web need not be named. */
static void put_host(struct buf *line, const json_t *denied, bool flag)
{
	uint64_t port = cli_number(denied, "port");

	const char *host = cli_string(denied, "host", "?");

	text_host(line, host[0] != '\0' ? host : "socket");
	if (port != 0 && !(flag && (port == 80 || port == 443)))
		buf_fmt(line, ":%llu", (unsigned long long)port);
}

/* "denied 3: pypi.org:443 ×3": what was tried most first. Return: was there anything to say? */
static bool put_counts(struct buf *line, const char *what, const json_t *counts)
{
	uint64_t all = 0;
	json_t *one;
	size_t i;

	json_array_foreach (counts, i, one)
		all += cli_number(one, "count");
	if (all == 0)
		return false;
	buf_fmt(line, "%s %llu:", what, (unsigned long long)all);
	json_array_foreach (counts, i, one) {
		uint64_t count = cli_number(one, "count");

		buf_str(line, i > 0 ? ", " : " ");
		if (cli_string(one, "protocol", NULL) != NULL)
			buf_fmt(line, "%s ", cli_string(one, "protocol", ""));
		if (cli_string(one, "type", NULL) != NULL)
			buf_fmt(line, "%s of ", cli_string(one, "type", ""));
		put_host(line, one, false);
		if (count > 1)
			buf_fmt(line, " \303\227%llu", (unsigned long long)count);
	}
	return true;
}

/* What a rule could let through, of what was denied: datagrams, packets and sockets for them, whose protocol is said, leave by none; records, whose type is said, only by a rule of their own. */
static void put_advice(struct buf *line, const json_t *denied)
{
	bool records = false, private = false;
	json_t *one;
	size_t i;

	json_array_foreach (denied, i, one) {
		bool record = cli_string(one, "type", NULL) != NULL;

		records |= record;
		private |= json_is_true(json_object_get(one, "private"));
		if (record || json_is_true(json_object_get(one, "private")) ||
			cli_string(one, "protocol", NULL) != NULL)
			continue;
		buf_str(line, "; allow with --allow ");
		put_host(line, one, true);
		if (cli_string(one, "preset", NULL) != NULL)
			buf_fmt(line, " or --policy %s", cli_string(one, "preset", ""));
		return;
	}
	if (private)
		buf_str(line, "; a private address takes a rule with private: true in a policy");
	else if (records)
		buf_str(line, "; records take a rule of transport dns in a policy");
	else
		buf_str(line, "; no rule lets that out");
}

/* A line each for what no rule allowed and for what a rule allowed and could not be reached. */
static void put_mishaps(struct buf *line, const json_t *denied, const json_t *failed)
{
	if (put_counts(line, "denied", denied)) {
		put_advice(line, denied);
		buf_char(line, '\n');
	}
	if (put_counts(line, "failed", failed)) {
		buf_str(line, "; ");
		text_escape(line, cli_string(json_array_get(failed, 0), "reason", "?"));
		buf_char(line, '\n');
	}
}

static void put_files(struct buf *line, uint64_t n)
{
	buf_fmt(line, "%llu %s changed", (unsigned long long)n, n == 1 ? "file" : "files");
}

/* Of a sandbox that is kept: what changed in it, and what one can do with it. */
static void put_kept(struct buf *line, const json_t *summary)
{
	uint64_t changes = cli_number(summary, "changes"),
		 elsewhere = cli_number(summary, "elsewhere"),
		 left_out = cli_number(summary, "left_out");
	bool known = json_is_integer(json_object_get(summary, "changes"));
	const char *name = cli_string(summary, "name", "");

	if (!known) {
		buf_str(line, "kept, and what changed could not be found out");
	} else if (changes + left_out > 0) {
		if (changes > 0)
			put_files(line, changes);
		else
			buf_str(line, "nothing to apply");
		if (elsewhere > 0)
			buf_fmt(line, ", %llu elsewhere", (unsigned long long)elsewhere);
	} else if (elsewhere > 0) {
		put_files(line, elsewhere);
		buf_str(line, ", none in a mounted directory");
	} else {
		buf_str(line, "nothing changed, kept");
	}
	buf_str(line, ": ");
	if (!known || changes + left_out + elsewhere > 0)
		buf_fmt(line, "cay diff %s · ", name);
	buf_fmt(line, "cay %s %s · cay rm %s", changes > 0 ? "apply" : "start", name, name);
}

/* The last line of a run: what stayed. */
static void tell_summary(struct cli *cli, const struct stream_result *r)
{
	struct buf line = BUF_INIT(16384);

	if (cli->talk)
		put_mishaps(&line, json_object_get(r->summary, "denied"),
			json_object_get(r->summary, "failed"));
	if (json_is_true(json_object_get(r->summary, "kept"))) {
		buf_str(&line, cli->talk_colour ? "\033[2m" : "");
		put_kept(&line, r->summary);
		buf_str(&line, cli->talk_colour ? "\033[0m\n" : "\n");
	}
	if (line.n > 0)
		(void)!write(STDERR_FILENO, line.p, line.n);
	buf_free(&line);
}

/* They came as they were when the command was started: now it has ended, and the sandbox of a run is stopped or goes away. */
static void bring_up_to_date(struct cli *cli, struct stream_result *r)
{
	bool kept = json_is_true(json_object_get(r->summary, "kept"));
	cleanup_free char *target = NULL;
	json_t *now;

	if (r->exec != NULL) {
		(void)json_object_set_new(r->exec, "state", json_string("ended"));
		(void)json_object_set(r->exec, "status", r->status);
	}
	if (r->sandbox == NULL)
		return;
	(void)json_object_set_new(r->sandbox, "state", json_string(kept ? "stopped" : "removing"));
	(void)json_object_set_new(r->sandbox, "init_pid", json_null());
	(void)json_object_set_new(r->sandbox, "execs_running", json_integer(0));
	if (!kept)
		return;
	target = cli_target("/v1/sandboxes/%s", cli_string(r->sandbox, "id", ""));
	if (cli_get(cli, target, &now) < 0) {
		cli_forgive(cli); /* somebody has removed it meanwhile, or the server ends */
		return;
	}
	json_decref(r->sandbox);
	r->sandbox = now;
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

int session_finish(struct cli *cli, const struct stream_options *o, char *const *command, int rc,
	struct stream_result *r)
{
	int status;

	if (rc < 0 && cli->err.code == ERR_CMD_NOT_FOUND && command != NULL)
		hidden_command_explain(cli, command[0], r->sandbox, o->run);
	if (rc < 0)
		return rc;
	if (r->signal != 0 && r->status == NULL)
		return 128 + r->signal;
	if (r->detached)
		return 0;
	status = stream_status(cli, r->status);
	if (cli->json) {
		bring_up_to_date(cli, r);
		(void)print_result(r);
	} else {
		tell_summary(cli, r);
	}
	if (r->unwritten < 0)
		return err_raise_sys(&cli->err, r->unwritten, "write the command's output");
	return r->signal != 0 ? 128 + r->signal : status;
}
