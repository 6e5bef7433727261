/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/event_stream.h"
#include "base/str.h"

struct reader {
	struct cli *cli;
	event_put_fn *put;
	event_shown_fn *shown;
	struct buf rest; /* the beginning of a line */
	uint64_t until;  /* the last event */
	uint64_t next;   /* the one that comes next */
};

enum { ENOUGH = 1 };

/* One line of the stream. */
static int on_line(struct reader *r, const char *line, size_t n)
{
	cleanup_json json_t *e = n > 0 ? json_loadb(line, n, 0, NULL) : NULL;
	struct buf out = BUF_INIT(16U << 20);
	uint64_t number;
	int rc = 0;

	if (n == 0)
		return 0;
	if (e == NULL)
		return cli_lost(r->cli, -EBADMSG);
	if (!r->cli->json && json_is_object(json_object_get(e, "error")))
		return cli_fail_api(r->cli, json_object_get(e, "error"));
	number = cli_number(e, r->cli->args.n_positional > 0 ? "seq" : "n");
	if (number > r->until)
		return ENOUGH;
	r->next = number + 1;
	if (r->shown == NULL || r->shown(cli_string(e, "type", ""))) {
		if (r->cli->json) {
			cleanup_free char *text = str_dupf("%.*s", (int)n, line);

			cli_put_json(&out, text, r->cli->watched);
			buf_char(&out, '\n');
		} else {
			r->put(r->cli, &out, e);
		}
		rc = out.n > 0 ? cli_print(r->cli, &out) : 0;
	}
	/* nobody waits for one behind it */
	return rc == 0 && number == r->until ? ENOUGH : rc;
}

/* Whole lines out of what came. */
static int on_piece(struct reader *r, const char *p, size_t n)
{
	size_t used = 0;
	int rc = 0;

	buf_add(&r->rest, p, n);
	if (buf_failed(&r->rest))
		return cli_lost(r->cli, -EMSGSIZE);
	while (rc == 0) {
		const char *from = r->rest.p + used, *end = memchr(from, '\n', r->rest.n - used);

		if (end == NULL)
			break;
		rc = on_line(r, from, (size_t)(end - from));
		used += (size_t)(end - from) + 1;
	}
	buf_consume(&r->rest, used);
	return rc;
}

/* The number behind @flag; *@ret stays as it is without one. */
static int number(struct cli *cli, enum cli_flag flag, uint64_t *ret)
{
	const char *text = cli_args_value(&cli->args, flag);

	if (text == NULL || str_to_u64(text, 0, INT64_MAX, ret) == 0)
		return 0;
	return cli_refuse_value(cli, flag, text, "a number is wanted");
}

/* The stream ended though it was to go on: an end of the server is none of the events. */
static int cut_short(struct reader *r)
{
	return err_hint(&r->cli->err,
		err_raise(&r->cli->err, ERR_UNAVAILABLE,
			"the server ended, and with it what it tells"),
		"--follow --from %llu goes on", (unsigned long long)r->next);
}

int event_stream(struct cli *cli, event_put_fn *put, event_shown_fn *shown)
{
	struct reader r = { cli, put, shown, BUF_INIT(8U << 20), INT64_MAX, 0 };
	cleanup_free char *target =
		cli->args.n_positional > 0
			? cli_target("/v1/sandboxes/%s/events", cli->args.positional[0])
			: str_dup("/v1/events");
	cleanup_free char *full = NULL;
	bool follow = cli_args_has(&cli->args, FLAG_FOLLOW);
	const char *piece;
	ssize_t n;
	int rc = number(cli, FLAG_FROM, &r.next);

	if (rc == 0)
		rc = number(cli, FLAG_UNTIL, &r.until);
	if (rc < 0)
		return rc;
	full = str_dupf(
		"%s?from=%llu%s", target, (unsigned long long)r.next, follow ? "&follow=true" : "");
	rc = cli_send(cli, "GET", full, "Accept: application/x-ndjson\r\n", NULL);
	if (rc < 0)
		return rc;
	rc = 0;
	while (rc == 0 && (n = http_client_body(&cli->http, &piece)) != 0)
		rc = n < 0 ? cli_lost(cli, (int)n) : on_piece(&r, piece, (size_t)n);
	if (rc == 0 && follow)
		rc = cut_short(&r);
	buf_free(&r.rest);
	return rc == ENOUGH ? 0 : rc;
}
