/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/copy.h"
#include "prog/cay/temporary.h"
#include "prog/cay/tree_receive.h"

#include <fcntl.h>
#include <sys/stat.h>

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

/* @named: somebody typed @to; else a sandbox may have put a link there. */
static int receive_tree(struct cli *cli, const char *top, const char *to, bool named)
{
	struct tar *tar = tar_new(read_body, cli);
	cleanup_fd int dir = -1;
	bool made = mkdir(to, 0700) == 0;
	size_t skipped = 0;
	int rc;

	if (!made && errno != EEXIST)
		rc = err_raise_sys(&cli->err, -errno, "make '%s'", to);
	else if ((dir = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (named ? 0 : O_NOFOLLOW))) <
		 0)
		rc = err_raise_sys(&cli->err, -errno, "open '%s'", to);
	else
		rc = tree_receive(tar, dir, top, made, &skipped, &cli->err);
	tar_free(tar);
	if (rc < 0 && made)
		(void)rmdir(to); /* not if there is something in it */
	if (skipped > 0)
		(void)dprintf(
			STDERR_FILENO, "cay: pipes and devices were left out: %zu\n", skipped);
	return rc;
}

static int write_piece(int fd, const char *piece, size_t n)
{
	while (n > 0) {
		ssize_t k = write(fd, piece, n);

		if (k < 0)
			return -errno;
		piece += k;
		n -= (size_t)k;
	}
	return 0;
}

/* The body to @fd. What is zero stays a hole of a @fresh file: what takes no room in the sandbox takes none here. */
static int receive_bytes(struct cli *cli, int fd, bool fresh, const char *to)
{
	const char *piece;
	off_t size = 0;
	ssize_t n = 0;
	int rc = 0;

	while (rc == 0 && (n = http_client_body(&cli->http, &piece)) > 0) {
		size += n;
		if (fresh && bytes_zero(piece, (size_t)n))
			rc = lseek(fd, n, SEEK_CUR) < 0 ? -errno : 0;
		else
			rc = write_piece(fd, piece, (size_t)n);
	}
	if (rc == 0 && n < 0)
		return cli_lost(cli, (int)n);
	if (rc == 0 && fresh && ftruncate(fd, size) < 0)
		rc = -errno;
	return rc < 0 ? err_raise_sys(&cli->err, rc, "write '%s'", to) : 0;
}

/* The body into what is there and is no regular file: a device or a pipe is written to, and never replaced. */
static int receive_into(struct cli *cli, const char *to)
{
	cleanup_fd int fd = open(to, O_WRONLY | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return err_raise_sys(&cli->err, -errno, "write '%s'", to);
	return receive_bytes(cli, fd, false, to);
}

/* The body to a new file that takes the place of @to when it is whole. */
static int receive_new(struct cli *cli, const char *to)
{
	cleanup_free char *temporary = str_dupf("%.*s.cay-XXXXXX", (int)(copy_last(to) - to), to);
	size_t n = 0;
	const char *mode = http_response_header(&cli->http.response, "cay-mode", &n);
	cleanup_free char *text = str_dupf("%.*s", (int)n, mode != NULL ? mode : "");
	cleanup_fd int fd = mkostemp(temporary, O_CLOEXEC);
	int rc;

	if (fd < 0)
		return err_raise_sys(&cli->err, -errno, "make '%s'", to);
	temporary_keep(temporary);
	rc = receive_bytes(cli, fd, true, to);
	if (rc == 0 && (fchmod(fd, n > 0 ? strtoul(text, NULL, 8) & 0777 : 0644) < 0 ||
			       rename(temporary, to) < 0))
		rc = err_raise_sys(&cli->err, -errno, "write '%s'", to);
	if (rc < 0)
		(void)unlink(temporary);
	temporary_forget();
	return rc;
}

/* A link stays: what it leads to is written. */
static int receive_named(struct cli *cli, const char *to)
{
	struct stat st;
	bool there = stat(to, &st) == 0;
	cleanup_free char *real = there ? realpath(to, NULL) : NULL;

	if (there && (!S_ISREG(st.st_mode) || real == NULL))
		return receive_into(cli, to);
	return receive_new(cli, real != NULL ? real : to);
}

/* Into a directory that a sandbox may write to: a link that is there is replaced, not followed. */
static int receive_inside(struct cli *cli, const char *to)
{
	struct stat st;

	if (lstat(to, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_EXISTS, "'%s' is there and is no file", to),
			"name it as the destination to write into it");
	return receive_new(cli, to);
}

/* A regular file first; what is none comes as a tree. */
int copy_out(struct cli *cli, const struct copy_side *from, const struct copy_side *where)
{
	cleanup_free char *target =
		cli_target("/v1/sandboxes/%s/files?path=%s", from->box, from->path);
	cleanup_free char *file = str_dupf("%s&format=file", target),
			  *tree = str_dupf("%s&format=tar", target), *name = NULL;
	const char *to = where->path;
	struct stat st;
	bool tar = false, named;
	int rc = cli_send(cli, "GET", file, NULL, NULL), why;

	if (rc < 0 && cli->err.code == ERR_INVALID) {
		tar = true;
		rc = cli_send(cli, "GET", tree, NULL, NULL);
	}
	if (rc < 0)
		return rc;
	if (str_eq(to, "-"))
		return receive_bytes(cli, STDOUT_FILENO, false, "standard output");
	why = stat(to, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
	named = why < 0;
	if (named && where->slash && !tar)
		return err_raise_sys(&cli->err, why, "open '%s'", to);
	name = named ? str_dup(to) : str_dupf("%s/%s", to, copy_last(from->path));
	if (tar)
		return receive_tree(cli, copy_last(from->path), name, named);
	return named ? receive_named(cli, name) : receive_inside(cli, name);
}
