/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/copy.h"
#include "prog/cay/tree_send.h"

#include <fcntl.h>
#include <sys/stat.h>

static struct copy_side parse_side(const char *text)
{
	const char *colon = strchr(text, ':');
	struct copy_side side = { 0 };
	size_t n;

	/* A path of this machine with a colon in it is written ./a:b */
	if (colon != NULL && colon > text && memchr(text, '/', (size_t)(colon - text)) == NULL) {
		side.box = str_dupf("%.*s", (int)(colon - text), text);
		text = colon + 1;
	}
	n = strlen(text);
	side.slash = n > 0 && text[n - 1] == '/';
	while (n > 1 && text[n - 1] == '/')
		n--;
	side.path = str_dupf("%.*s", (int)n, text);
	return side;
}

/* One chunk of a request's body. */
static int send_chunk(void *context, const void *bytes, size_t n)
{
	struct cli *cli = context;
	char head[32];
	int rc, k = snprintf(head, sizeof(head), "%zx\r\n", n);

	rc = n == 0 ? 0 : http_client_send(&cli->http, head, (size_t)k);
	if (rc == 0 && n > 0)
		rc = http_client_send(&cli->http, bytes, n);
	return rc < 0 || n == 0 ? rc : http_client_send(&cli->http, "\r\n", 2);
}

static int send_stream(struct cli *cli, int fd)
{
	static char bytes[1U << 16];
	ssize_t n;
	int rc = 0;

	while (rc == 0 && (n = read(fd, bytes, sizeof(bytes))) > 0)
		rc = send_chunk(cli, bytes, (size_t)n);
	return rc < 0 ? rc : n < 0 ? -errno : 0;
}

/* All was taken: is it what was there? */
static int check_sent(struct cli *cli, const struct tree_sent *sent)
{
	if (sent->skipped > 0)
		(void)dprintf(STDERR_FILENO, "cay: sockets, pipes and devices were left out: %zu\n",
			sent->skipped);
	if (sent->shorter == 0)
		return 0;
	return err_hint(&cli->err,
		err_raise(&cli->err, ERR_CONFLICT,
			"'%s' lost its end while it was read, and ends with zeros in the sandbox (files of which that is so: %zu)",
			sent->first, sent->shorter),
		"copy it again when nobody writes to it; the others were copied");
}

/* Sends the body after the head; a server that refuses early closes its side, and then its answer says why. @sent: of a tree. */
static int put_body(struct cli *cli, const char *target, const char *from, const char *name, int fd,
	struct tree_sent *sent)
{
	static const char chunked[] =
		"Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n";
	int rc = cli_connect(cli);

	if (rc < 0)
		return rc;
	cli_forgive(cli);
	rc = http_client_request(&cli->http, "PUT", target, chunked, NULL, NULL, 0);
	if (rc == 0)
		rc = name == NULL ? send_stream(cli, fd)
				  : tree_send(from, name, send_chunk, cli, sent, &cli->err);
	if (rc < 0 && cli->err.code != ERR_NONE)
		return rc;
	if (rc == 0)
		rc = http_client_send(&cli->http, "0\r\n\r\n", 5);
	if (rc < 0 && rc != -EPIPE && rc != -ECONNRESET)
		return err_raise_sys(&cli->err, rc, "copy '%s'", from);
	rc = cli_answered(cli);
	return rc < 0 ? rc : check_sent(cli, sent);
}

/* A server of before an update, which stays until it is stopped, names no parameter: it has this hint for directories alone. */
static bool is_format_refused(const struct cli *cli)
{
	const char *member = cli_string(cli->error, "member", "");

	return str_eq(member, "format") ||
	       (member[0] == '\0' &&
		       str_eq(cli_string(cli->error, "hint", ""), "ask for it as tar"));
}

/* Is @path in the sandbox a directory? The API says so when it is asked for the bytes: of all that is invalid then, this is the format. */
static bool is_directory(struct cli *cli, const char *box, const char *path)
{
	cleanup_free char *target =
		cli_target("/v1/sandboxes/%s/files?path=%s&format=file", box, path);
	int rc = cli_send(cli, "GET", target, NULL, NULL);
	bool is = rc < 0 && cli->err.code == ERR_INVALID && is_format_refused(cli);

	if (rc >= 0)
		http_client_close(&cli->http); /* the bytes are not wanted */
	cli_forgive(cli);
	return is;
}

static int put_tree(struct cli *cli, const char *from, const struct copy_side *to, bool into)
{
	const char *last = copy_last(to->path);
	cleanup_free char *above = into || last - to->path <= 1
					   ? str_dup(into ? to->path : "/")
					   : str_dupf("%.*s", (int)(last - to->path - 1), to->path);
	cleanup_free char *target =
		cli_target("/v1/sandboxes/%s/files?path=%s&format=tar", to->box, above);
	struct tree_sent sent = { 0 };
	int rc = put_body(cli, target, from, into ? copy_last(from) : last, -1, &sent);

	free(sent.first);
	return rc;
}

static int put_file(struct cli *cli, const char *from, const struct copy_side *to, bool into,
	int fd, unsigned int mode)
{
	const char *between = str_eq(to->path, "/") ? "" : "/";
	cleanup_free char *place =
		into ? str_dupf("%s%s%s", to->path, between, copy_last(from)) : str_dup(to->path);
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/files?path=%s", to->box, place);
	cleanup_free char *full = str_dupf("%s&format=file&mode=%04o", target, mode & 0777);
	struct tree_sent none = { 0 };

	return put_body(cli, full, from, NULL, fd, &none);
}

static int copy_in(struct cli *cli, const struct copy_side *source, const struct copy_side *to)
{
	const char *from = source->path;
	bool input = str_eq(from, "-"), into = to->slash;
	struct stat st = { .st_mode = S_IFREG | 0644 };
	cleanup_fd int fd = -1;

	if (!input) {
		fd = open(from, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) < 0)
			return err_raise_sys(&cli->err, -errno, "open '%s'", from);
	}
	into = into || is_directory(cli, to->box, to->path);
	if (input && into)
		return err_raise(&cli->err, ERR_USAGE,
			"'%s' is a directory; standard input needs a file name", to->path);
	return S_ISDIR(st.st_mode)
		       ? put_tree(cli, from, to, into)
		       : put_file(cli, from, to, into, input ? STDIN_FILENO : fd, st.st_mode);
}

int cmd_cp(struct cli *cli)
{
	struct copy_side from = parse_side(cli->args.positional[0]),
			 to = parse_side(cli->args.positional[1]);
	int rc;

	cli->doing = "copying";
	if ((from.box == NULL) == (to.box == NULL))
		rc = err_hint(&cli->err,
			err_raise(&cli->err, ERR_USAGE,
				"one side is in a sandbox, the other on this machine"),
			"cay cp notes.txt box:/root/, cay cp box:/var/log ./log");
	else if (from.box != NULL && *from.path != '/')
		rc = err_raise(
			&cli->err, ERR_USAGE, "'%s': the path inside must be absolute", from.path);
	else if (to.box != NULL && *to.path != '/')
		rc = err_raise(
			&cli->err, ERR_USAGE, "'%s': the path inside must be absolute", to.path);
	else
		rc = from.box != NULL ? copy_out(cli, &from, &to) : copy_in(cli, &from, &to);
	if (rc == 0 && cli->json) {
		cleanup_json json_t *done = json_pack("{s:s, s:s}", "from", cli->args.positional[0],
			"to", cli->args.positional[1]);

		if (!str_eq(to.path, "-"))
			(void)cli_print_json(done);
	}
	free(from.box);
	free(from.path);
	free(to.box);
	free(to.path);
	return rc;
}
