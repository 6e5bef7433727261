/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/change_list.h"
#include "prog/cay/cmd.h"
#include "prog/cay/inside_paths.h"
#include "prog/cay/mount_spec.h"

#include <limits.h>
#include <signal.h>

/* @paths: what is named, or NULL. */
static int make_body(struct cli *cli, bool dry_run, json_t *paths, json_t **ret)
{
	const char *to = cli_args_value(&cli->args, FLAG_TO),
		   *check = cli_args_value(&cli->args, FLAG_IF),
		   *mount = cli_args_value(&cli->args, FLAG_MOUNTED);
	cleanup_free char *cwd = getcwd(NULL, 0);
	cleanup_json json_t *body = json_pack("{s:b, s:b}", "dry_run", dry_run, "allow_exec",
		cli_args_has(&cli->args, FLAG_ALLOW_EXEC));
	char path[PATH_MAX], real[PATH_MAX];

	if (to != NULL) {
		if (path_absolute(cwd, to, path) < 0)
			return err_raise(&cli->err, ERR_USAGE, "--to '%s': no usable path", to);
		/* the server follows no link on the way; where it is not there it says so */
		(void)json_object_set_new(
			body, "to", json_string(realpath(path, real) != NULL ? real : path));
	}
	if (check != NULL && check[strspn(check, " \t\n")] == '\0')
		return cli_refuse_value(cli, FLAG_IF, check, "a command is wanted");
	if (paths != NULL)
		(void)json_object_set(body, "paths", paths);
	if (mount != NULL)
		(void)json_object_set_new(body, "mount", json_string(mount));
	if (check != NULL && !dry_run)
		(void)json_object_set_new(
			body, "if_argv", json_pack("[s, s, s]", "/bin/sh", "-c", check));
	*ret = json_incref(body);
	return 0;
}

/* A loud list of paths, each with its reason. */
static void print_reasons(
	const struct cli *cli, struct buf *out, const json_t *list, const char *title)
{
	json_t *v;
	size_t i;

	if (json_array_size(list) == 0)
		return;
	cli_paint(cli, out, "1;31");
	buf_fmt(out, "%s\n", title);
	cli_paint(cli, out, "0");
	json_array_foreach (list, i, v) {
		const char *path =
			json_is_string(v) ? json_string_value(v) : cli_string(v, "path", "?");

		buf_str(out, "  ! ");
		text_escape(out, path);
		if (cli_string(v, "reason", NULL) != NULL) {
			buf_str(out, ": ");
			text_escape(out, cli_string(v, "reason", ""));
		}
		buf_char(out, '\n');
	}
}

static void print_renamed(const struct cli *cli, struct buf *out, const json_t *answer)
{
	print_reasons(cli, out, json_object_get(answer, "renamed"),
		"Go on in a new sandbox: this one lacks what was in directories that it renamed");
}

static void print_skipped(const struct cli *cli, struct buf *out, const json_t *answer)
{
	print_reasons(cli, out, json_object_get(answer, "skipped"),
		"These are not brought to this machine");
}

/* Less loud: nobody is kept from applying them. */
static void print_programs(struct buf *out, const json_t *answer)
{
	const json_t *list = json_object_get(answer, "programs"), *v;
	size_t i;

	if (json_array_size(list) == 0)
		return;
	buf_str(out, "Programs that change: who runs them outside runs what is in them then\n");
	json_array_foreach (list, i, v) {
		buf_str(out, "  * ");
		text_escape(out, cli_string(v, "path", "?"));
		buf_char(out, '\n');
	}
}

static void print_plan(const struct cli *cli, struct buf *out, const json_t *answer)
{
	change_list_print(cli, out, json_object_get(answer, "changes"));
	print_reasons(
		cli, out, json_object_get(answer, "conflicts"), "Conflicts: nothing is applied");
	print_reasons(cli, out, json_object_get(answer, "executables"),
		"A program outside would execute these; they need --allow-exec");
	print_programs(out, answer);
	print_skipped(cli, out, answer);
	print_renamed(cli, out, answer);
}

static bool would_refuse(struct cli *cli, const json_t *answer)
{
	return json_array_size(json_object_get(answer, "conflicts")) > 0 ||
	       (json_array_size(json_object_get(answer, "executables")) > 0 &&
		       !cli_args_has(&cli->args, FLAG_ALLOW_EXEC));
}

/* After a refusal: which paths, on standard error before the message. */
static void explain_refusal(struct cli *cli, const char *target, json_t *paths)
{
	struct err err = cli->err;
	json_t *error = TAKE_PTR(cli->error);
	cleanup_json json_t *body = NULL, *answer = NULL;
	struct buf out = BUF_INIT(ANSWER_MAX);
	bool colour = cli->colour;

	if (make_body(cli, true, paths, &body) == 0 &&
		cli_call(cli, "POST", target, body, &answer) == 0) {
		cli->colour = cli->talk_colour;
		print_reasons(cli, &out, json_object_get(answer, "conflicts"), "Conflicts");
		if (!cli_args_has(&cli->args, FLAG_ALLOW_EXEC))
			print_reasons(cli, &out, json_object_get(answer, "executables"),
				"A program outside would execute these");
		(void)!write(STDERR_FILENO, buf_cstr(&out), out.n);
	}
	buf_free(&out);
	cli->colour = colour;
	json_decref(cli->error);
	cli->error = error;
	cli->err = err;
}

static const char *interrupted; /* what is said then */

static void on_interrupt(attr_unused int sig)
{
	int saved = errno;

	(void)!write(STDERR_FILENO, interrupted, strlen(interrupted));
	errno = saved;
}

/* The server does all of it or nothing, whoever waits: the first Ctrl-C says so, the next one leaves. */
static void tell_interrupts(const struct cli *cli)
{
	const struct sigaction action = { .sa_handler = on_interrupt,
		.sa_flags = (int)(SA_RESTART | SA_RESETHAND) };

	interrupted =
		cli_args_has(&cli->args, FLAG_IF)
			? "\ncay: not stopped; Ctrl-C again leaves it: once the check is over, the changes are applied whole, or not at all\n"
			: "\ncay: not stopped: the changes are applied whole, or not at all; Ctrl-C again leaves it to go on without you\n";
	(void)sigaction(SIGINT, &action, NULL);
}

/* What is named behind --; NULL: nothing is, and all is meant. An empty list, as of a variable that is empty, must not mean all. */
static int find_paths(struct cli *cli, const char *name, json_t **ret)
{
	if (cli->args.command == NULL)
		return 0;
	if (cli->args.command[0] == NULL)
		return err_hint(&cli->err, err_raise(&cli->err, ERR_USAGE, "no path behind --"),
			"without -- all changes are applied");
	if (cli_args_has(&cli->args, FLAG_IF))
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_USAGE,
				"--if checks all changes, and paths apply a part of them"),
			"take one or the other");
	return inside_paths(
		cli, name, cli->args.command, cli_args_value(&cli->args, FLAG_MOUNTED), ret);
}

/* What is to be done now. @left: so many changes were not named. */
static void put_next(struct buf *out, const char *name, uint64_t left)
{
	if (left > 0)
		buf_fmt(out, "applied: %llu change%s stay%s in the sandbox: cay diff %s\n",
			(unsigned long long)left, left == 1 ? "" : "s", left == 1 ? "s" : "", name);
	else
		buf_fmt(out, "applied: cay rm %s removes the sandbox\n", name);
}

int cmd_apply(struct cli *cli)
{
	bool dry_run = cli_args_has(&cli->args, FLAG_DRY_RUN);
	cleanup_free char *name = NULL, *target = NULL;
	cleanup_json json_t *body = NULL, *answer = NULL, *paths = NULL;
	struct buf out = BUF_INIT(ANSWER_MAX);
	int rc = cli_name(cli, &name);

	if (rc == 0 && dry_run && cli_args_has(&cli->args, FLAG_IF))
		rc = err_raise(
			&cli->err, ERR_USAGE, "--dry-run runs no command: --if goes with an apply");
	if (rc == 0)
		rc = find_paths(cli, name, &paths);
	if (rc == 0)
		rc = make_body(cli, dry_run, paths, &body);
	if (rc < 0)
		return rc;
	target = cli_target("/v1/sandboxes/%s/apply", name);
	cli->doing = cli_args_has(&cli->args, FLAG_IF) ? "checking, then applying" : "applying";
	if (!dry_run)
		tell_interrupts(cli);
	rc = cli_call(cli, "POST", target, body, &answer);
	if (rc < 0) {
		if (!cli->json &&
			(cli->err.code == ERR_CONFLICT || cli->err.code == ERR_NEEDS_ALLOW_EXEC))
			explain_refusal(cli, target, paths);
		if (cli->err.code == ERR_NEEDS_ALLOW_EXEC && cli->err.hint[0] == '\0')
			(void)err_hint(&cli->err, 0,
				"look at them: cay diff %s --text; --allow-exec applies them too",
				name);
		if (cli->err.code == ERR_CONFLICT && cli->err.hint[0] == '\0')
			(void)err_hint(&cli->err, 0,
				"cay apply %s -- PATH… applies the rest; cay cp %s:PATH FILE fetches one as it is inside",
				name, name);
		return rc;
	}
	if (cli->json)
		(void)cli_print_json(answer);
	if (!cli->json && dry_run)
		print_plan(cli, &out, answer);
	if (!cli->json && !dry_run) {
		change_list_print(cli, &out, json_object_get(answer, "changes"));
		print_programs(&out, answer);
		print_skipped(cli, &out, answer);
		print_renamed(cli, &out, answer);
		if (json_array_size(json_object_get(answer, "changes")) > 0)
			put_next(&out, name, cli_number(answer, "left"));
	}
	rc = cli_print(cli, &out);
	return rc < 0 ? rc : dry_run && would_refuse(cli, answer);
}
