/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/listing.h"
#include "prog/cay/mount_spec.h"
#include "prog/cay/temporary.h"

#include <fcntl.h>
#include <limits.h>

static void put_image(struct table *t, const json_t *image, int64_t now_s)
{
	const char *id = cli_string(image, "id", "?"),
		   *created = cli_string(image, "created", NULL);
	bool own = !str_eq(id, "host");
	struct buf cell = BUF_INIT(65536);

	table_cell(t, cli_string(image, "name", NULL));
	buf_fmt(&cell, "%.12s", id);
	table_buf(t, &cell);
	if (own && json_is_integer(json_object_get(image, "bytes")))
		text_size(&cell, cli_number(image, "bytes"));
	table_buf(t, &cell);
	if (own && json_is_integer(json_object_get(image, "files")))
		buf_fmt(&cell, "%llu", (unsigned long long)cli_number(image, "files"));
	table_buf(t, &cell);
	if (created != NULL)
		text_age(&cell, created, now_s);
	table_buf(t, &cell);
	buf_free(&cell);
}

int cmd_image_ls(struct cli *cli)
{
	static const struct listing images = { "images", "NAME|ID|>SIZE|>FILES|>AGE", put_image };

	return listing_show(cli, "/v1/images", &images);
}

static const char *spool_dir(void)
{
	const char *given = getenv("TMPDIR");

	return given != NULL ? given : "/var/tmp";
}

/* Standard input as a file without a name. Return: descriptor or -errno. */
static int spool(struct cli *cli)
{
	const char *dir = spool_dir();
	cleanup_fd int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	static char bytes[1U << 16];
	ssize_t n;
	int rc;

	if (fd < 0)
		return err_raise_sys(&cli->err, -errno, "make a temporary file in '%s'", dir);
	while ((n = read(STDIN_FILENO, bytes, sizeof(bytes))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_raise_sys(&cli->err, -errno, "read standard input");
		rc = cli_write_all(fd, bytes, (size_t)n);
		if (rc < 0)
			return err_raise_sys(&cli->err, rc, "write a temporary file in '%s'", dir);
	}
	return TAKE_FD(fd);
}

/*
 * Give the spool @fd a name, in @path, until temporary_remove(), also where a signal ends us before: a rootless server reads it in a user namespace below ours,
 * and so may not look into our descriptors (ptrace(2), "Ptrace access mode checking").
 */
static int name_spool(struct cli *cli, int fd, const char *cwd, char path[PATH_MAX])
{
	struct id id = id_new();
	char file[64], name[PATH_MAX];

	(void)snprintf(file, sizeof(file), "/proc/self/fd/%d", fd);
	if ((size_t)snprintf(name, sizeof(name), "%s/cay-import-%s", spool_dir(), id.s) >=
			sizeof(name) ||
		path_absolute(cwd, name, path) < 0)
		return err_raise(&cli->err, ERR_USAGE, "'%s': no usable path", spool_dir());
	temporary_keep(path);
	if (linkat(AT_FDCWD, file, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	temporary_forget();
	return err_raise_sys(&cli->err, -errno, "name a temporary file '%s'", path);
}

/* Standard input as a file at @path, which the server can read. Return: its descriptor or -errno. */
static int spool_for_server(struct cli *cli, const char *cwd, char path[PATH_MAX])
{
	cleanup_json json_t *server = NULL;
	cleanup_fd int fd = spool(cli);
	int rc;

	if (fd < 0)
		return TAKE_FD(fd);
	rc = cli_get(cli, "/v1/version", &server);
	if (rc < 0)
		return rc;
	(void)snprintf(path, PATH_MAX, "/proc/%d/fd/%d", getpid(), fd);
	if (str_eq(cli_string(server, "mode", ""), "rootless"))
		rc = name_spool(cli, fd, cwd, path);
	return rc < 0 ? rc : TAKE_FD(fd);
}

static int add_limits(struct cli *cli, json_t *body)
{
	static const struct {
		enum cli_flag flag;
		const char *member, *why;
	} rows[] = { { FLAG_LIMIT_BYTES, "limit_bytes", "a size is wanted, for example 100G" },
		{ FLAG_LIMIT_ENTRIES, "limit_entries", "a number is wanted" },
		{ FLAG_LIMIT_TIME, "timeout_ms", "a duration is wanted, for example 3h" } };

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *text = cli_args_value(&cli->args, rows[i].flag);
		uint64_t v = 0;
		int rc;

		if (text == NULL)
			continue;
		if (rows[i].flag == FLAG_LIMIT_BYTES)
			rc = str_to_size(text, &v);
		else if (rows[i].flag == FLAG_LIMIT_TIME)
			rc = str_to_duration(text, &v);
		else
			rc = str_to_u64(text, 1, INT32_MAX, &v);
		if (rc < 0 || v == 0 || v > INT64_MAX)
			return cli_refuse_value(cli, rows[i].flag, text, rows[i].why);
		(void)json_object_set_new(body, rows[i].member, json_integer((json_int_t)v));
	}
	return 0;
}

static int ask_for_import(
	struct cli *cli, const char *path, const char *name, json_t *body, json_t **image)
{
	int rc;

	if (json_object_set_new(body, "path", json_string(path)) < 0 ||
		(name != NULL && json_object_set_new(body, "name", json_string(name)) < 0))
		return err_raise(
			&cli->err, ERR_USAGE, "the image's path and name: not valid UTF-8");
	cli->doing = "importing";
	rc = cli_call(cli, "POST", "/v1/images", body, image);
	/* a server that was started before cay was replaced by this one */
	if (rc < 0 && str_eq(cli_string(cli->error, "member", ""), "source")) {
		(void)json_object_del(body, "source");
		cli_forgive(cli);
		rc = cli_call(cli, "POST", "/v1/images", body, image);
	}
	return rc;
}

int cmd_image_import(struct cli *cli)
{
	const char *from = cli->args.positional[0],
		   *name = cli->args.n_positional > 1 ? cli->args.positional[1] : NULL;
	cleanup_free char *cwd = getcwd(NULL, 0);
	cleanup_json json_t *body = json_object(), *image = NULL;
	struct buf out = BUF_INIT(65536);
	cleanup_fd int fd = -1;
	char path[PATH_MAX];
	int rc = add_limits(cli, body);

	if (rc < 0)
		return rc;
	if (str_eq(from, "-")) {
		fd = spool_for_server(cli, cwd, path);
		if (fd < 0)
			return fd;
		(void)json_object_set_new(body, "source", json_string("standard input"));
	} else if (path_absolute(cwd, from, path) < 0) {
		return err_raise(&cli->err, ERR_USAGE, "'%s': no usable path", from);
	} else if (access(path, R_OK) < 0) {
		return err_raise_sys(&cli->err, -errno, "read '%s'", path);
	}
	rc = ask_for_import(cli, path, name, body, &image);
	temporary_remove();
	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(image);
	text_escape(&out, cli_string(image, "name", cli_string(image, "id", "?")));
	buf_char(&out, '\n');
	return cli_print(cli, &out);
}

int cmd_image_rm(struct cli *cli)
{
	return cli_remove_each(cli, "images");
}
