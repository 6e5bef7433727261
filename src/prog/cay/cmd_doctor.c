/* SPDX-License-Identifier: Apache-2.0 */
#include "base/directories.h"
#include "base/str.h"
#include "prog/cay/cmd.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

/* Return: 0 and what @argv printed as JSON (NULL: it printed none), or -errno. */
static int run_for_json(const char *const argv[], json_t **ret)
{
	posix_spawn_file_actions_t actions;
	struct buf text = BUF_INIT(1U << 20);
	int ends[2], status = 0, rc;
	char *room;
	ssize_t n;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	rc = -posix_spawn(&pid, argv[0], &actions, NULL, (char **)(uintptr_t)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	(void)close(ends[1]);
	while (rc == 0 && (room = buf_room(&text, 65536)) != NULL &&
		(n = read(ends[0], room, 65536)) > 0)
		buf_grown(&text, (size_t)n);
	(void)close(ends[0]);
	if (rc == 0) {
		(void)waitpid(pid, &status, 0);
		*ret = json_loadb(buf_cstr(&text), text.n, 0, NULL);
	}
	buf_free(&text);
	return rc;
}

/* Runs the program that makes sandboxes, to look with its own eyes, and in such a control group as a server would have, if there is one to be had. */
static int ask_program(struct cli *cli, json_t **ret)
{
	cleanup_free char *path = NULL, *state = directories_state(NULL);
	const char *argv[CLI_SCOPE_MAX + 4] = { 0 };
	size_t n;
	int rc;

	if (state == NULL)
		return err_raise(&cli->err, ERR_HOST,
			"there is no home directory for the state of a server");
	if (cli_program("cay-keeper", &path) < 0)
		return err_raise(&cli->err, ERR_HOST, "there is no cay-keeper beside this program");
	n = cli_server_scope(argv);
	argv[n] = path;
	argv[n + 1] = "doctor";
	argv[n + 2] = state;
	*ret = NULL;
	rc = run_for_json(argv, ret);
	if (n > 0 && *ret == NULL)
		rc = run_for_json(&argv[n], ret);
	if (rc < 0)
		return err_raise_sys(&cli->err, rc, "run '%s'", path);
	return *ret != NULL
		       ? 0
		       : err_raise(&cli->err, ERR_INTERNAL, "'%s doctor' gave no report", path);
}

static void put_check(const struct cli *cli, struct buf *out, const json_t *check)
{
	bool ok = json_is_true(json_object_get(check, "ok")),
	     needed = str_eq(cli_string(check, "level", ""), "required");
	const char *lost = cli_string(check, "lost", NULL), *fix = cli_string(check, "fix", NULL);

	cli_paint(cli, out, ok ? "32" : needed ? "31" : "33");
	buf_str(out, ok ? "✓ " : needed ? "✗ " : "– ");
	cli_paint(cli, out, "0");
	text_escape(out, cli_string(check, "what", cli_string(check, "id", "?")));
	if (cli_string(check, "found", NULL) != NULL && *cli_string(check, "found", "") != '\0') {
		cli_paint(cli, out, "2");
		buf_str(out, ": ");
		text_escape(out, cli_string(check, "found", ""));
		cli_paint(cli, out, "0");
	}
	buf_char(out, '\n');
	if (!ok && lost != NULL && *lost != '\0') {
		buf_str(out, "    lost: ");
		text_escape(out, lost);
		buf_char(out, '\n');
	}
	if (!ok && fix != NULL && *fix != '\0') {
		buf_str(out, "    fix:  ");
		text_escape(out, fix);
		buf_char(out, '\n');
	}
}

/* What this mode does where the two must differ. */
static void put_mode(struct buf *out, const json_t *report)
{
	bool root = str_eq(cli_string(report, "mode", ""), "root");
	json_t *row;
	size_t i;

	buf_fmt(out, "\nin %s mode:\n", root ? "root" : "rootless");
	json_array_foreach (json_object_get(report, "modes"), i, row)
		buf_fmt(out, "  %-29s %s\n", cli_string(row, "what", "?"),
			cli_string(row, root ? "root" : "rootless", "?"));
}

static void put_report(const struct cli *cli, struct buf *out, const json_t *report)
{
	json_t *checks = json_object_get(report, "checks"), *check;
	size_t missing = 0, needed = 0, i;

	json_array_foreach (checks, i, check) {
		put_check(cli, out, check);
		if (json_is_true(json_object_get(check, "ok")))
			continue;
		missing++;
		needed += str_eq(cli_string(check, "level", ""), "required");
	}
	buf_fmt(out, "\n%s mode, kernel ", cli_string(report, "mode", "?"));
	text_escape(out, cli_string(report, "kernel", "?"));
	if (missing == 0)
		buf_str(out, ": everything is there\n");
	else
		buf_fmt(out, ": %zu of %zu missing, %zu of them required\n", missing,
			json_array_size(checks), needed);
}

/* One running sandbox: what a live snapshot would refuse. */
static int examine(struct cli *cli, const char *name)
{
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/doctor", name);
	cleanup_json json_t *report = NULL;
	struct buf out = BUF_INIT(1U << 20);
	json_t *f;
	size_t i;
	int rc = cli_get(cli, target, &report);

	if (rc < 0)
		return rc;
	json_array_foreach (json_object_get(report, "findings"), i, f) {
		if (json_is_integer(json_object_get(f, "process")))
			buf_fmt(&out, "process %lld (%s): ",
				json_integer_value(json_object_get(f, "process")),
				cli_string(f, "name", "?"));
		text_escape(&out, cli_string(f, "reason", "?"));
		buf_char(&out, '\n');
	}
	if (json_is_true(json_object_get(report, "ok")))
		buf_str(&out, "nothing here that a live snapshot would refuse\n");
	rc = cli->json ? cli_print_json(report) : cli_print(cli, &out);
	return rc < 0 ? rc : json_is_false(json_object_get(report, "ok"));
}

/* A server that was started before cay was replaced does what its own build does. */
static void add_build(const struct cli *cli, const json_t *server, json_t *report)
{
	json_t *found;

	if (!cli_other_build(cli, server))
		return;
	found = json_sprintf("cay is %s, the server is %s", cli->build,
		cli_string(server, "build", "of an earlier build"));
	(void)json_array_append_new(json_object_get(report, "checks"),
		json_pack("{s:s, s:b, s:s, s:s, s:o, s:s, s:s}", "id", "build", "ok", 0, "level",
			"recommended", "what", "the server is of the same build as cay", "found",
			found, "lost", "what the other build mended or has besides", "fix",
			"cay shutdown (under systemd: systemctl restart cayd): sandboxes go on, and the next command starts the server anew"));
}

int cmd_doctor(struct cli *cli)
{
	cleanup_json json_t *report = NULL, *server = NULL;
	struct buf out = BUF_INIT(1U << 20);
	int rc;

	if (cli->args.n_positional > 0)
		return examine(cli, cli->args.positional[0]);
	rc = cli_connect_only(cli);
	/* A doctor that needs a running server would be of no use where none can run. */
	if (rc == 0)
		rc = cli_get(cli, "/v1/doctor", &server);
	if (rc == 0 && json_is_array(json_object_get(server, "checks")))
		report = json_incref(server);
	rc = report != NULL ? 0 : ask_program(cli, &report);
	if (rc < 0)
		return rc;
	if (server != NULL && server != report)
		(void)json_object_set(report, "server", server);
	if (server != NULL)
		add_build(cli, server, report);
	if (cli->json) {
		(void)cli_print_json(report);
	} else {
		put_report(cli, &out, report);
		if (cli_args_has(&cli->args, FLAG_ALL))
			put_mode(&out, report);
		rc = cli_print(cli, &out);
	}
	return rc < 0 ? rc : json_is_false(json_object_get(report, "ok"));
}
