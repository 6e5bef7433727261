/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/str.h"
#include "prog/cay/cli_help.h"
#include "prog/cay/cmd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static void line(struct buf *out, const char *what, const char *value)
{
	if (value == NULL)
		return;
	buf_fmt(out, "%-14s", what);
	text_escape(out, value);
	buf_char(out, '\n');
}

/* A pool that can no longer be written: what holds it, and how it comes back. */
static void put_broken(struct buf *out, const json_t *answer)
{
	bool there = !str_eq(cli_string(answer, "kind", ""), "none");
	struct buf names = BUF_INIT(1U << 20);
	json_t *name;
	size_t i;

	if (!json_is_false(json_object_get(answer, "writable")))
		return;
	json_array_foreach (json_object_get(answer, "held_by"), i, name)
		buf_fmt(&names, "%s%s", i > 0 ? " " : "", json_string_value(name));
	line(out, "state",
		there ? "read-only, since the disk below it was full or failed" : "not mounted");
	line(out, "held by", names.n > 0 ? buf_cstr(&names) : NULL);
	line(out, "fix",
		names.n > 0 ? "cay stop those that hold it, make room on its disk, cay storage init"
			    : "make room on its disk, cay storage init");
	buf_free(&names);
}

int cmd_storage(struct cli *cli)
{
	const char *size = cli_args_value(&cli->args, FLAG_SIZE);
	cleanup_json json_t *body = json_object(), *answer = NULL;
	struct buf out = BUF_INIT(65536), v = BUF_INIT(256);
	uint64_t bytes;
	int rc;

	if (size != NULL) {
		if (str_to_size(size, &bytes) < 0 || bytes > INT64_MAX)
			return err_raise(&cli->err, ERR_USAGE,
				"--size '%s': a size is wanted, for example 20G", size);
		(void)json_object_set_new(body, "bytes", json_integer((json_int_t)bytes));
	}
	cli->doing = "making the pool";
	rc = cli->args.verb == VERB_STORAGE_INIT
		     ? cli_call(cli, "POST", "/v1/storage", body, &answer)
		     : cli_get(cli, "/v1/storage", &answer);
	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(answer);
	line(&out, "pool", cli_string(answer, "path", NULL));
	line(&out, "kind", cli_string(answer, "kind", NULL));
	line(&out, "capture", cli_string(answer, "capture", NULL));
	line(&out, "disk limits", cli_string(answer, "disk_limit", NULL));
	line(&out, "inode limits", cli_string(answer, "inode_limit", NULL));
	text_size(&v, cli_number(answer, "bytes_free"));
	buf_str(&v, " free of ");
	text_size(&v, cli_number(answer, "bytes_total"));
	line(&out, "room", buf_cstr(&v));
	buf_free(&v);
	put_broken(&out, answer);
	return cli_print(cli, &out);
}

/* Return: 1 when the person says yes, 0 when not, negative when nobody is there to be asked. */
static int confirm(struct cli *cli, const char *question)
{
	char answer[16];
	ssize_t n;

	if (cli_args_has(&cli->args, FLAG_YES))
		return 1;
	if (!isatty(STDIN_FILENO) || !cli->talk)
		return err_hint(&cli->err,
			err_raise(
				&cli->err, ERR_USAGE, "nobody is there to be asked: %s", question),
			"--yes answers it");
	(void)dprintf(STDERR_FILENO, "%s [y/N] ", question);
	n = read(STDIN_FILENO, answer, sizeof(answer));
	return n > 0 && (answer[0] == 'y' || answer[0] == 'Y');
}

int cmd_prune(struct cli *cli)
{
	bool all = cli_args_has(&cli->args, FLAG_ALL);
	cleanup_json json_t *body = json_pack("{s:b, s:b}", "stopped", all, "snapshots", all),
			    *answer = NULL;
	struct buf out = BUF_INIT(65536);
	int rc = all ? confirm(cli, "Remove every stopped sandbox and every unnamed snapshot?") : 1;

	if (rc <= 0)
		return rc < 0 ? rc : 1;
	cli->doing = "pruning";
	rc = cli_call(cli, "POST", "/v1/prune", body, &answer);
	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(answer);
	buf_fmt(&out, "removed %zu sandboxes, %zu snapshots, %llu trees that nothing needed: ",
		json_array_size(json_object_get(answer, "sandboxes")),
		json_array_size(json_object_get(answer, "snapshots")),
		(unsigned long long)(cli_number(answer, "layers_removed") +
				     cli_number(answer, "sandboxes_removed")));
	text_size(&out, cli_number(answer, "bytes"));
	buf_str(&out, json_is_true(json_object_get(answer, "more"))
			      ? " freed, the rest follows within a minute\n"
			      : " freed\n");
	return cli_print(cli, &out);
}

/* What is readable when the server at the other end has ended: its process or, where that cannot be seen (another pid namespace), the connection, which it keeps until then. -1: neither. */
static int server_end(const struct cli *cli)
{
	struct ucred peer = { 0 };
	socklen_t n = sizeof(peer);
	int fd = -1;

	if (getsockopt(cli->http.fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.pid > 0)
		fd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	return fd >= 0 ? fd : fcntl(cli->http.fd, F_DUPFD_CLOEXEC, 0);
}

int cmd_shutdown(struct cli *cli)
{
	const char *what = cli_args_has(&cli->args, FLAG_STOP) ? "stop" : "keep";
	cleanup_json json_t *body = json_pack("{s:s}", "sandboxes", what), *answer = NULL;
	struct pollfd server = { .fd = -1, .events = POLLIN };
	int rc = cli_connect_only(cli);
	bool none = rc == -ENOENT || rc == -ECONNREFUSED;

	if (rc == 0) {
		server.fd = server_end(cli);
		cli->doing = "ending the server";
		rc = cli_call(cli, "POST", "/v1/shutdown", body, NULL);
	}
	while (rc == 0 && server.fd >= 0 && poll(&server, 1, -1) < 0 && errno == EINTR)
		;
	fd_close(&server.fd);
	if (rc < 0 && !none)
		return rc;
	if (none && !cli->json)
		(void)dprintf(STDERR_FILENO, "no server runs\n");
	answer = json_pack("{s:b}", "ended", !none);
	return cli->json ? cli_print_json(answer) : 0;
}

bool cli_other_build(const struct cli *cli, const json_t *answer)
{
	return !str_eq(cli_string(answer, "build", ""), cli->build);
}

/* "cayd 0.1.0 (4f60b2e91a3c)", without an end of line. */
static void put_program(
	struct buf *out, const char *program, const char *version, const char *build)
{
	buf_fmt(out, "%s ", program);
	text_escape(out, version);
	buf_str(out, " (");
	text_escape(out, build);
	buf_char(out, ')');
}

static void put_server(const struct cli *cli, struct buf *out, const json_t *answer)
{
	put_program(out, "cayd", cli_string(answer, "version", "?"),
		cli_string(answer, "build", "an earlier build"));
	buf_fmt(out, ", pid %llu, ", (unsigned long long)cli_number(answer, "pid"));
	text_escape(out, cli_string(answer, "mode", "?"));
	buf_str(out, ", state in ");
	text_escape(out, cli_string(answer, "state", "?"));
	buf_char(out, '\n');
	if (cli_other_build(cli, answer))
		buf_str(out, "they are of different builds: the server stays what it is until "
			     "cay shutdown (sandboxes go on)\n");
}

int cmd_version(struct cli *cli)
{
	cleanup_json json_t *answer = NULL;
	struct buf out = BUF_INIT(65536);
	int rc = cli_connect_only(cli);

	/* Asking for a version starts no server. */
	if (rc == 0)
		rc = cli_get(cli, "/v1/version", &answer);
	if (cli->json && rc < 0)
		answer = json_pack("{s:s}", "version", CAY_VERSION);
	if (cli->json) {
		(void)json_object_set_new(answer, "client", json_string(CAY_VERSION));
		(void)json_object_set_new(answer, "client_build", json_string(cli->build));
		return cli_print_json(answer);
	}
	put_program(&out, "cay", CAY_VERSION, cli->build);
	buf_char(&out, '\n');
	if (rc < 0)
		buf_str(&out, "no server runs\n");
	else
		put_server(cli, &out, answer);
	return cli_print(cli, &out);
}

int cmd_help(struct cli *cli)
{
	struct buf out = BUF_INIT(1U << 20);
	char *words[3] = { (char *)(uintptr_t)cli->args.positional[0],
		(char *)(uintptr_t)cli->args.positional[1], NULL };
	enum cli_verb verb;
	const char *near;
	int n;

	if (cli_args_has(&cli->args, FLAG_MAN)) {
		cli_help_man(&out);
		return cli_print(cli, &out);
	}
	if (cli_args_has(&cli->args, FLAG_MARKDOWN)) {
		cli_help_markdown(&out);
		return cli_print(cli, &out);
	}
	if (cli->args.n_positional == 0) {
		cli_help_all(&out);
		return cli_print(cli, &out);
	}
	verb = cli_verb_find((int)cli->args.n_positional, words, &n);
	if (verb == VERB_COUNT_) {
		near = cli_verb_near(words[0]);
		(void)err_raise(&cli->err, ERR_USAGE, "'%s' is no verb of cay", words[0]);
		return near != NULL
			       ? err_hint(&cli->err, -EINVAL, "did you mean: cay help %s", near)
			       : err_hint(&cli->err, -EINVAL, "cay help lists them all");
	}
	cli_help_verb(&out, verb);
	return cli_print(cli, &out);
}

int cmd_completion(struct cli *cli)
{
	struct buf out = BUF_INIT(1U << 20);

	if (cli_completion(&out, cli->args.positional[0]) < 0)
		return err_raise(&cli->err, ERR_USAGE,
			"'%s' is no shell that cay completes for: bash, zsh, fish",
			cli->args.positional[0]);
	return cli_print(cli, &out);
}
