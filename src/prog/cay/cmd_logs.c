/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay/cmd_logs.c - the kept output of a command, each stream to ours; what is missing is told. */
#include "base/str.h"
#include "codec/frame.h"
#include "codec/termquery.h"
#include "prog/cay/cmd.h"

struct logs {
	struct cli *cli;
	const char *name, *exec;
	uint64_t offset; /* of the next byte */
	struct termquery asked[2];
};

static int put(struct cli *cli, int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t done = write(fd, p, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return err_raise_sys(&cli->err, -errno, "write the output");
		p += done;
		n -= (size_t)done;
	}
	return 0;
}

/* A terminal would answer what a program has asked, and its answers go to whoever reads there next: the shell. */
static int show(struct logs *l, bool err, const char *p, size_t n)
{
	int fd = err ? STDERR_FILENO : STDOUT_FILENO;
	cleanup_buf struct buf out = BUF_INIT(4U << 20);

	if (isatty(fd) != 1)
		return put(l->cli, fd, p, n);
	termquery_strip(&l->asked[err], p, n, &out);
	return put(l->cli, fd, out.p, out.n);
}

/* Who sits at a terminal is told why nothing comes. */
static void on_object(struct cli *cli, const struct frame *f)
{
	cleanup_json json_t *object = json_loadb(f->payload, f->size, 0, NULL);

	if (cli->talk &&
		str_eq(cli_string(json_object_get(object, "exec"), "state", ""), "suspended"))
		(void)dprintf(STDERR_FILENO,
			"cay: the sandbox is suspended; cay resume %s lets the command go on\n",
			cli->args.positional[0]);
}

static int on_frame(struct logs *l, const struct frame *f)
{
	if ((f->type == FRAME_STDOUT || f->type == FRAME_STDERR) && f->size >= 8) {
		l->offset = frame_get_u64(f->payload) + f->size - 8;
		return show(l, f->type == FRAME_STDERR, f->payload + 8, f->size - 8);
	}
	if (f->type == FRAME_OBJECT)
		on_object(l->cli, f);
	if (f->type == FRAME_GAP && f->size == 16) {
		l->offset = frame_get_u64(f->payload + 8);
		(void)dprintf(STDERR_FILENO, "cay: %llu bytes of output are no longer kept\n",
			(unsigned long long)(frame_get_u64(f->payload + 8) -
					     frame_get_u64(f->payload)));
	}
	return 0;
}

/* The whole frames of what was received. */
static int on_piece(struct logs *l, struct buf *in, const char *piece, size_t n)
{
	size_t used = 0;
	struct frame f;
	ssize_t one;
	int rc = 0;

	buf_add(in, piece, n);
	while (rc == 0 && (one = frame_decode(buf_cstr(in) + used, in->n - used, &f)) != 0) {
		if (one < 0 || buf_failed(in))
			return err_raise(&l->cli->err, ERR_CORRUPT,
				"the server sent a frame that makes no sense");
		rc = on_frame(l, &f);
		used += (size_t)one;
	}
	buf_consume(in, used);
	return rc;
}

/* The server ends, or something between us and it: the command goes on. Or the sandbox was removed. */
static int cut_short(struct logs *l, int why)
{
	int rc = cli_lost(l->cli, why);

	if (!cli_args_has(&l->cli->args, FLAG_FOLLOW) || why == -EBADMSG)
		return rc;
	return err_hint(&l->cli->err, rc,
		"where the sandbox is still there, cay logs %s %s --follow --from %llu goes on",
		l->name, l->exec, (unsigned long long)l->offset);
}

static int copy_output(struct logs *l)
{
	struct cli *cli = l->cli;
	const char *from = cli_args_value(&cli->args, FLAG_FROM);
	cleanup_free char *target =
		cli_target("/v1/sandboxes/%s/execs/%s/output", l->name, l->exec);
	cleanup_buf struct buf in = BUF_INIT(4U << 20);
	cleanup_free char *full = NULL;
	const char *piece;
	ssize_t n;
	int rc;

	if (from != NULL && str_to_u64(from, 0, INT64_MAX, &l->offset) < 0)
		return err_raise(&cli->err, ERR_USAGE, "--from '%s': an offset is wanted", from);
	full = str_dupf("%s?from=%llu%s", target, (unsigned long long)l->offset,
		cli_args_has(&cli->args, FLAG_FOLLOW) ? "&follow=true" : "");
	rc = cli_send(cli, "GET", full, "Accept: application/vnd.cay.frames\r\n", NULL);
	if (rc < 0)
		return rc;
	while ((n = http_client_body(&cli->http, &piece)) > 0) {
		rc = on_piece(l, &in, piece, (size_t)n);
		if (rc < 0)
			return rc;
	}
	return n < 0 ? cut_short(l, (int)n) : 0;
}

/* The exec that was named, else the last one. @ret: owned by the caller. */
static int find_exec(struct cli *cli, const char *name, json_t **ret)
{
	cleanup_free char *all = cli_target("/v1/sandboxes/%s/execs?limit=1", name), *one = NULL;
	cleanup_json json_t *answer = NULL;
	const json_t *list;
	int rc;

	if (cli->args.n_positional == 2) {
		one = cli_target("/v1/sandboxes/%s/execs/%s", name, cli->args.positional[1]);
		return cli_get(cli, one, ret);
	}
	rc = cli_get(cli, all, &answer);
	if (rc < 0)
		return rc;
	list = json_object_get(answer, "execs");
	*ret = json_incref(json_array_get(list, json_array_size(list) - 1));
	if (*ret != NULL)
		return 0;
	return err_hint(&cli->err,
		err_raise(&cli->err, ERR_NOT_FOUND, "nothing was run in '%s' yet", name),
		"cay exec %s -- COMMAND", name);
}

/* With --json it is what the exec is, not its output. */
static int refuse_json(struct cli *cli)
{
	bool follow = cli_args_has(&cli->args, FLAG_FOLLOW);

	if (!cli->json || (!follow && !cli_args_has(&cli->args, FLAG_FROM)))
		return 0;
	return err_hint(&cli->err,
		err_raise(&cli->err, ERR_USAGE,
			"--json and --%s do not go together: output is never JSON",
			follow ? "follow" : "from"),
		"cay logs --json shows the exec itself");
}

int cmd_logs(struct cli *cli)
{
	const char *name = cli->args.positional[0];
	cleanup_json json_t *exec = NULL;
	struct logs l = { .cli = cli, .name = name };
	int rc = refuse_json(cli);

	if (rc == 0)
		rc = find_exec(cli, name, &exec);
	if (rc < 0)
		return rc;
	l.exec = cli_string(exec, "id", "");
	return cli->json ? cli_print_json(exec) : copy_output(&l);
}
