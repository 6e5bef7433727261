/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cmd.h"

/* "key value key value" of the event's data; nested values as JSON. */
static void put_data(struct buf *out, const json_t *data)
{
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)data, key, value) {
		cleanup_free char *text =
			json_is_string(value) ? str_dup(json_string_value(value))
					      : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

		if (json_is_null(value) || text == NULL)
			continue;
		buf_str(out, "  ");
		text_escape(out, key);
		buf_char(out, ' ');
		text_quote(out, text);
	}
}

static void put_event(const struct cli *cli, struct buf *out, const json_t *e)
{
	const char *time = cli_string(e, "time", ""), *type = cli_string(e, "type", "?"),
		   *box = cli_string(e, "sandbox", NULL), *exec = cli_string(e, "exec", NULL);
	bool one = cli->args.n_positional > 0;

	buf_fmt(out, "%6llu  ", (unsigned long long)cli_number(e, one ? "seq" : "n"));
	cli_paint(cli, out, "2");
	text_escape(out, strlen(time) >= 23 && time[10] == 'T' ? time + 11 : time);
	cli_paint(cli, out, "0");
	if (!one)
		buf_fmt(out, "  %-8.8s", box != NULL ? box : "-");
	buf_fmt(out, "  %-8.8s  ", exec != NULL ? exec : "");
	cli_paint(cli, out,
		strstr(type, "lost") || strstr(type, "denied") || strstr(type, "limit") ||
				strstr(type, "oom")
			? "31"
			: "36");
	text_escape(out, type);
	for (size_t n = strlen(type); n < 18; n++)
		buf_char(out, ' ');
	cli_paint(cli, out, "0");
	put_data(out, json_object_get(e, "data"));
	buf_char(out, '\n');
}

/* One line of the stream. */
static int on_line(struct cli *cli, const char *line, size_t n)
{
	struct buf out = BUF_INIT(16U << 20);
	cleanup_json json_t *e = NULL;

	if (n == 0)
		return 0;
	if (cli->json) {
		buf_add(&out, line, n);
		buf_char(&out, '\n');
		return cli_print(cli, &out);
	}
	e = json_loadb(line, n, 0, NULL);
	if (e == NULL)
		return cli_lost(cli, -EBADMSG);
	if (json_is_object(json_object_get(e, "error")))
		return cli_fail_api(cli, json_object_get(e, "error"));
	put_event(cli, &out, e);
	return cli_print(cli, &out);
}

/* Whole lines out of what came. */
static int on_piece(struct cli *cli, struct buf *rest, const char *p, size_t n)
{
	size_t used = 0;
	int rc = 0;

	buf_add(rest, p, n);
	if (buf_failed(rest))
		return cli_lost(cli, -EMSGSIZE);
	while (rc == 0) {
		const char *from = rest->p + used, *end = memchr(from, '\n', rest->n - used);

		if (end == NULL)
			break;
		rc = on_line(cli, from, (size_t)(end - from));
		used += (size_t)(end - from) + 1;
	}
	buf_consume(rest, used);
	return rc;
}

int cmd_events(struct cli *cli)
{
	const char *from = cli_args_value(&cli->args, FLAG_FROM);
	cleanup_free char *target =
		cli->args.n_positional > 0
			? cli_target("/v1/sandboxes/%s/events", cli->args.positional[0])
			: str_dup("/v1/events");
	cleanup_free char *full = NULL;
	struct buf rest = BUF_INIT(8U << 20);
	const char *piece;
	uint64_t seq = 0;
	ssize_t n;
	int rc;

	if (from != NULL && str_to_u64(from, 0, INT64_MAX, &seq) < 0)
		return err_raise(&cli->err, ERR_USAGE, "--from '%s': a number is wanted", from);
	full = str_dupf("%s?from=%llu%s", target, (unsigned long long)seq,
		cli_args_has(&cli->args, FLAG_FOLLOW) ? "&follow=true" : "");
	rc = cli_send(cli, "GET", full, "Accept: application/x-ndjson\r\n", NULL);
	if (rc < 0)
		return rc;
	rc = 0;
	while (rc == 0 && (n = http_client_body(&cli->http, &piece)) != 0)
		rc = n < 0 ? cli_lost(cli, (int)n) : on_piece(cli, &rest, piece, (size_t)n);
	buf_free(&rest);
	return rc;
}
