/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/tree_receive.h"
#include "prog/cay/tree_send.h"

#include <fcntl.h>
#include <sys/stat.h>

/* A side of the copy: a path here, or NAME:/path in a sandbox. */
struct side {
	char *box;  /* NULL here */
	char *path; /* without slashes at the end */
	bool slash; /* it had one */
};

static struct side parse_side(const char *text)
{
	const char *colon = strchr(text, ':');
	struct side side = { 0 };
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

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
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

/* Sends the body after the head; a server that refuses early closes its side, and then its answer says why. */
static int put_body(struct cli *cli, const char *target, const char *from, const char *name, int fd)
{
	static const char chunked[] =
		"Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n";
	size_t skipped = 0;
	int rc = cli_connect(cli);

	if (rc < 0)
		return rc;
	cli->err = (struct err){ 0 };
	rc = http_client_request(&cli->http, "PUT", target, chunked, NULL, NULL, 0);
	if (rc == 0)
		rc = name == NULL ? send_stream(cli, fd)
				  : tree_send(from, name, send_chunk, cli, &skipped, &cli->err);
	if (rc < 0 && cli->err.code != ERR_NONE)
		return rc;
	if (rc == 0)
		rc = http_client_send(&cli->http, "0\r\n\r\n", 5);
	if (rc < 0 && rc != -EPIPE && rc != -ECONNRESET)
		return err_raise_sys(&cli->err, rc, "copy '%s'", from);
	if (skipped > 0)
		(void)dprintf(STDERR_FILENO, "cay: %zu sockets, pipes and devices were left out\n",
			skipped);
	rc = cli_answered(cli);
	return rc < 0 ? rc : 0;
}

/* Is @path in the sandbox a directory? The API says so when it is asked for the bytes. */
static bool is_directory(struct cli *cli, const char *box, const char *path)
{
	cleanup_free char *target =
		cli_target("/v1/sandboxes/%s/files?path=%s&format=file", box, path);
	int rc = cli_send(cli, "GET", target, NULL, NULL);

	if (rc >= 0)
		http_client_close(&cli->http); /* the bytes are not wanted */
	return rc < 0 && cli->err.code == ERR_INVALID;
}

static int put_tree(struct cli *cli, const char *from, const struct side *to, bool into)
{
	const char *last = base_name(to->path);
	cleanup_free char *above = into || last - to->path <= 1
					   ? str_dup(into ? to->path : "/")
					   : str_dupf("%.*s", (int)(last - to->path - 1), to->path);
	cleanup_free char *target =
		cli_target("/v1/sandboxes/%s/files?path=%s&format=tar", to->box, above);

	return put_body(cli, target, from, into ? base_name(from) : last, -1);
}

static int put_file(struct cli *cli, const char *from, const struct side *to, bool into, int fd,
	unsigned int mode)
{
	const char *between = str_eq(to->path, "/") ? "" : "/";
	cleanup_free char *place =
		into ? str_dupf("%s%s%s", to->path, between, base_name(from)) : str_dup(to->path);
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/files?path=%s", to->box, place);
	cleanup_free char *full = str_dupf("%s&format=file&mode=%04o", target, mode & 0777);

	return put_body(cli, full, from, NULL, fd);
}

static int copy_in(struct cli *cli, const struct side *source, const struct side *to)
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

static ssize_t read_body(void *context, void *bytes, size_t n, struct err *err)
{
	struct cli *cli = context;
	static const char *piece;
	static size_t left;
	size_t done = 0;

	while (done < n) {
		ssize_t k;

		if (left == 0) {
			k = http_client_body(&cli->http, &piece);
			if (k < 0)
				return err_raise(err, ERR_UNAVAILABLE, "the copy was broken off");
			if (k == 0)
				break;
			left = (size_t)k;
		}
		k = (ssize_t)(left < n - done ? left : n - done);
		memcpy((char *)bytes + done, piece, (size_t)k);
		piece += k;
		left -= (size_t)k;
		done += (size_t)k;
	}
	return (ssize_t)done;
}

static int receive_tree(struct cli *cli, const char *top, const char *to)
{
	struct tar *tar = tar_new(read_body, cli);
	cleanup_fd int dir = -1;
	size_t skipped = 0;
	int rc;

	if (mkdir(to, 0755) < 0 && errno != EEXIST)
		rc = err_raise_sys(&cli->err, -errno, "make '%s'", to);
	else if ((dir = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		rc = err_raise_sys(&cli->err, -errno, "open '%s'", to);
	else
		rc = tree_receive(tar, dir, top, &skipped, &cli->err);
	tar_free(tar);
	if (skipped > 0)
		(void)dprintf(STDERR_FILENO, "cay: %zu pipes and devices were left out\n", skipped);
	return rc;
}

/* The body to @fd. */
static int receive_bytes(struct cli *cli, int fd, const char *to)
{
	const char *piece;
	ssize_t n;

	while ((n = http_client_body(&cli->http, &piece)) > 0) {
		for (ssize_t done = 0; done < n;) {
			ssize_t k = write(fd, piece + done, (size_t)(n - done));

			if (k < 0)
				return err_raise_sys(&cli->err, -errno, "write '%s'", to);
			done += k;
		}
	}
	return n < 0 ? cli_lost(cli, (int)n) : 0;
}

/* The body to a new file that takes the place of @to when it is whole. */
static int receive_file(struct cli *cli, const char *to)
{
	cleanup_free char *temporary = str_dupf("%s.cay-XXXXXX", to);
	size_t n = 0;
	const char *mode = http_response_header(&cli->http.response, "cay-mode", &n);
	cleanup_free char *text = str_dupf("%.*s", (int)n, mode != NULL ? mode : "");
	cleanup_fd int fd = mkostemp(temporary, O_CLOEXEC);
	int rc;

	if (fd < 0)
		return err_raise_sys(&cli->err, -errno, "make '%s'", to);
	rc = receive_bytes(cli, fd, to);
	if (rc == 0 && (fchmod(fd, n > 0 ? strtoul(text, NULL, 8) & 0777 : 0644) < 0 ||
			       rename(temporary, to) < 0))
		rc = err_raise_sys(&cli->err, -errno, "write '%s'", to);
	if (rc < 0)
		(void)unlink(temporary);
	return rc;
}

/* A regular file first; what is none comes as a tree. */
static int copy_out(struct cli *cli, const struct side *from, const char *to)
{
	cleanup_free char *target =
		cli_target("/v1/sandboxes/%s/files?path=%s", from->box, from->path);
	cleanup_free char *file = str_dupf("%s&format=file", target),
			  *tree = str_dupf("%s&format=tar", target), *name = NULL;
	struct stat st;
	bool tar = false;
	int rc = cli_send(cli, "GET", file, NULL, NULL);

	if (rc < 0 && cli->err.code == ERR_INVALID) {
		tar = true;
		rc = cli_send(cli, "GET", tree, NULL, NULL);
	}
	if (rc < 0)
		return rc;
	if (str_eq(to, "-"))
		return receive_bytes(cli, STDOUT_FILENO, "standard output");
	if (stat(to, &st) == 0 && S_ISDIR(st.st_mode))
		name = str_dupf("%s/%s", to, base_name(from->path));
	else
		name = str_dup(to);
	return tar ? receive_tree(cli, base_name(from->path), name) : receive_file(cli, name);
}

int cmd_cp(struct cli *cli)
{
	struct side from = parse_side(cli->args.positional[0]),
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
		rc = from.box != NULL ? copy_out(cli, &from, to.path) : copy_in(cli, &from, &to);
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
