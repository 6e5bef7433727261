/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/event_stream.h"

/* What was tried: "api.example:443". */
static void put_place(struct buf *out, const json_t *data)
{
	uint64_t port = cli_number(data, "port");

	text_escape(out, cli_string(data, "host", "?"));
	if (port != 0)
		buf_fmt(out, ":%llu", (unsigned long long)port);
}

static void put_denied(struct buf *out, const json_t *data)
{
	uint64_t count = cli_number(data, "count");

	buf_fmt(out, "%s ", cli_string(data, "protocol", ""));
	put_place(out, data);
	if (count > 1)
		buf_fmt(out, " \303\227%llu", (unsigned long long)count);
	buf_str(out, "  ");
	text_escape(out, cli_string(data, "reason", ""));
}

static void put_connection(struct buf *out, const json_t *data)
{
	buf_fmt(out, "%s ", cli_string(data, "transport", ""));
	put_place(out, data);
	buf_fmt(out, "  %llu B out, %llu B in, %llu ms, rule ",
		(unsigned long long)cli_number(data, "sent"),
		(unsigned long long)cli_number(data, "received"),
		(unsigned long long)(cli_number(data, "duration_us") / 1000));
	text_escape(out, cli_string(data, "rule", "-"));
	if (!str_eq(cli_string(data, "end", "closed"), "closed")) {
		buf_fmt(out, ", %s", cli_string(data, "end", ""));
		text_escape(out, cli_string(data, "error", ""));
	}
}

static void put_exchange(struct buf *out, const json_t *data)
{
	const json_t *request = json_object_get(data, "request");
	const json_t *response = json_object_get(data, "response");

	text_escape(out, cli_string(request, "method", "?"));
	buf_char(out, ' ');
	text_escape(out, cli_string(request, "url", cli_string(data, "host", "?")));
	if (json_is_object(response))
		buf_fmt(out, "  %llu", (unsigned long long)cli_number(response, "status"));
	buf_str(out, "  rule ");
	text_escape(out, cli_string(data, "rule", "-"));
}

static void put_net(const struct cli *cli, struct buf *out, const json_t *e)
{
	const char *time = cli_string(e, "time", ""), *type = cli_string(e, "type", ""),
		   *exec = cli_string(e, "exec", NULL);
	const json_t *data = json_object_get(e, "data");
	bool denied = str_eq(type, "net.denied") || str_eq(type, "net.lost");

	cli_paint(cli, out, "2");
	text_escape(out, strlen(time) >= 23 && time[10] == 'T' ? time + 11 : time);
	cli_paint(cli, out, "0");
	buf_fmt(out, "  %-8.8s  ", exec != NULL ? exec : "");
	cli_paint(cli, out, denied ? "31" : "36");
	buf_fmt(out, "%-10s  ", type + strlen("net."));
	cli_paint(cli, out, "0");
	if (str_eq(type, "net.denied"))
		put_denied(out, data);
	else if (str_eq(type, "net.connection"))
		put_connection(out, data);
	else if (str_eq(type, "net.exchange"))
		put_exchange(out, data);
	else if (str_eq(type, "net.lost"))
		buf_fmt(out, "%llu refusals could not be told one by one",
			(unsigned long long)cli_number(data, "n"));
	buf_char(out, '\n');
}

static bool is_net(const char *type)
{
	return str_starts(type, "net.");
}

int cmd_net(struct cli *cli)
{
	return event_stream(cli, put_net, is_net);
}
