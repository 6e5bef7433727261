/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/event_stream.h"
#include "prog/cay/har.h"

#include <string.h>

/* What was tried: "api.example:443". */
static void put_place(struct buf *out, const json_t *data)
{
	uint64_t port = cli_number(data, "port");
	const char *host = cli_string(data, "host", "?");

	text_host(out, host[0] != '\0' ? host : "socket");
	if (port != 0)
		buf_fmt(out, ":%llu", (unsigned long long)port);
}

static void put_denied(struct buf *out, const json_t *data)
{
	uint64_t count = cli_number(data, "count");

	buf_fmt(out, "%s ", cli_string(data, "protocol", ""));
	if (cli_string(data, "type", NULL) != NULL)
		buf_fmt(out, "%s of ", cli_string(data, "type", ""));
	put_place(out, data);
	if (count > 1)
		buf_fmt(out, " \303\227%llu", (unsigned long long)count);
	buf_str(out, "  ");
	text_escape(out, cli_string(data, "reason", ""));
}

static void put_connection(struct buf *out, const json_t *data)
{
	const char *error = cli_string(data, "error", NULL);

	buf_fmt(out, "%s ", cli_string(data, "transport", ""));
	put_place(out, data);
	buf_fmt(out, "  %llu B out, %llu B in, %llu ms, rule ",
		(unsigned long long)cli_number(data, "sent"),
		(unsigned long long)cli_number(data, "received"),
		(unsigned long long)(cli_number(data, "duration_us") / 1000));
	text_escape(out, cli_string(data, "rule", "-"));
	if (!str_eq(cli_string(data, "end", "closed"), "closed")) {
		buf_fmt(out, ", %s", cli_string(data, "end", ""));
		buf_str(out, error != NULL ? ": " : "");
		text_escape(out, error != NULL ? error : "");
	}
}

static void put_exchange(struct buf *out, const json_t *data)
{
	const char *query = cli_string(data, "query", NULL),
		   *reason = cli_string(data, "reason", NULL),
		   *scheme = cli_string(data, "scheme", "?");
	uint64_t port = cli_number(data, "port");

	text_escape(out, cli_string(data, "method", "?"));
	buf_fmt(out, " %s://", scheme);
	text_host(out, cli_string(data, "host", "?"));
	if (port != 0 && port != (str_eq(scheme, "https") ? 443 : 80))
		buf_fmt(out, ":%llu", (unsigned long long)port);
	text_escape(out, cli_string(data, "path", ""));
	if (query != NULL) {
		buf_char(out, '?');
		text_escape(out, query);
	}
	buf_fmt(out, "  %s", cli_string(data, "outcome", ""));
	if (json_is_integer(json_object_get(data, "status")))
		buf_fmt(out, " %llu", (unsigned long long)cli_number(data, "status"));
	buf_str(out, ", rule ");
	text_escape(out, cli_string(data, "rule", "-"));
	if (reason != NULL) {
		buf_str(out, ": ");
		text_escape(out, reason);
	}
}

static void put_mail(struct buf *out, const json_t *data)
{
	uint64_t recipients = cli_number(data, "recipients");
	const json_t *first = json_array_get(json_object_get(data, "to"), 0);

	text_escape(out, cli_string(data, "from", "?"));
	buf_str(out, " to ");
	text_escape(out, json_is_string(first) ? json_string_value(first) : "?");
	if (recipients > 1)
		buf_fmt(out, " and %llu more", (unsigned long long)recipients - 1);
	buf_str(out, json_is_true(json_object_get(data, "kept")) ? "  kept: " : "  refused: ");
	text_escape(out, cli_string(data, "subject", "-"));
}

static void put_lookup(struct buf *out, const json_t *data)
{
	const json_t *record;
	size_t i;

	buf_fmt(out, "%s of ", cli_string(data, "type", "?"));
	text_escape(out, cli_string(data, "name", "?"));
	buf_fmt(out, "  %s", cli_string(data, "code", "?"));
	json_array_foreach (json_object_get(data, "records"), i, record) {
		buf_str(out, i == 0 ? ": " : ", ");
		text_escape(out, json_is_string(record) ? json_string_value(record) : "?");
	}
}

static void put_misplaced(struct buf *out, const json_t *data)
{
	buf_str(out, "the placeholder of ");
	text_escape(out, cli_string(data, "name", "?"));
	buf_fmt(out, " in the %s of a request to ", cli_string(data, "where", "?"));
	text_escape(out, cli_string(data, "host", "?"));
	if (json_is_true(json_object_get(data, "passed")))
		buf_str(out, ", passed as it is");
}

/* The program that did it, and its pid as events of processes have it. */
static void put_process(struct buf *out, const json_t *data)
{
	uint64_t pid = cli_number(data, "pid");

	if (pid == 0)
		return;
	buf_str(out, "  ");
	text_escape(out, cli_string(data, "comm", "?"));
	buf_fmt(out, "[%llu]", (unsigned long long)pid);
}

static void put_net(const struct cli *cli, struct buf *out, const json_t *e)
{
	const char *time = cli_string(e, "time", ""), *type = cli_string(e, "type", ""),
		   *exec = cli_string(e, "exec", NULL);
	const json_t *data = json_object_get(e, "data");
	bool denied = str_eq(type, "net.denied") || str_eq(type, "net.lost") ||
		      str_eq(type, "secret.misplaced");

	cli_paint(cli, out, "2");
	text_escape(out, strlen(time) >= 23 && time[10] == 'T' ? time + 11 : time);
	cli_paint(cli, out, "0");
	buf_fmt(out, "  %-8.8s  ", exec != NULL ? exec : "");
	cli_paint(cli, out, denied ? "31" : "36");
	buf_fmt(out, "%-10s  ", strchr(type, '.') + 1);
	cli_paint(cli, out, "0");
	if (str_eq(type, "net.denied"))
		put_denied(out, data);
	else if (str_eq(type, "net.connection"))
		put_connection(out, data);
	else if (str_eq(type, "net.exchange"))
		put_exchange(out, data);
	else if (str_eq(type, "net.mail"))
		put_mail(out, data);
	else if (str_eq(type, "net.lookup"))
		put_lookup(out, data);
	else if (str_eq(type, "secret.misplaced"))
		put_misplaced(out, data);
	else if (str_eq(type, "net.lost"))
		buf_fmt(out, "%llu refusals could not be told one by one",
			(unsigned long long)cli_number(data, "n"));
	put_process(out, data);
	buf_char(out, '\n');
}

static bool is_net(const char *type)
{
	return str_starts(type, "net.") || str_eq(type, "secret.misplaced");
}

static bool is_exchange(const char *type)
{
	return str_eq(type, "net.exchange");
}

static void put_har(const struct cli *cli, struct buf *out, const json_t *e)
{
	static bool more;
	json_t *entry = har_entry(e);
	cleanup_free char *text = json_dumps(entry, JSON_COMPACT | JSON_REAL_PRECISION(15));

	json_decref(entry);
	if (text == NULL)
		return;
	buf_str(out, more ? ",\n" : "\n");
	cli_put_json(out, text, cli->watched);
	more = true;
}

static int print_har(struct cli *cli)
{
	struct buf begin = BUF_INIT(1000), end = BUF_INIT(1000);
	int rc;

	buf_fmt(&begin,
		"{\"log\":{\"version\":\"1.2\",\"creator\":{\"name\":\"cay\",\"version\":\"%s\"},\"entries\":[",
		CAY_VERSION);
	buf_str(&end, "\n]}}\n");
	rc = cli_print(cli, &begin);
	if (rc == 0)
		rc = event_stream(cli, put_har, is_exchange);
	return rc == 0 ? cli_print(cli, &end) : rc;
}

int cmd_net(struct cli *cli)
{
	if (!cli_args_has(&cli->args, FLAG_HAR))
		return event_stream(cli, put_net, is_net);
	if (cli->json || cli_args_has(&cli->args, FLAG_FOLLOW))
		return err_raise(
			&cli->err, ERR_USAGE, "--har goes with neither --json nor --follow");
	return print_har(cli);
}
