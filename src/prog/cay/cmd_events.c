/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/event_stream.h"

#define VALUE_MAX 200 /* bytes of a value that are shown */

/* Of a longer one the beginning: a whole script may stand in a command. */
static void put_value(struct buf *out, char *text)
{
	size_t n = VALUE_MAX;
	bool cut = strlen(text) > n;

	while (cut && n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
		n--;
	if (cut)
		text[n] = '\0';
	text_quote(out, text);
	buf_str(out, cut ? "\xe2\x80\xa6" : "");
}

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
		put_value(out, text);
	}
}

/* Who asked for it, where that is told. */
static void put_asker(struct buf *out, const json_t *cause)
{
	if (json_object_get(cause, "uid") == NULL)
		return;
	buf_str(out, "  by ");
	text_quote(out, cli_string(cause, "command", "?"));
	buf_fmt(out, "[%llu] uid %llu", (unsigned long long)cli_number(cause, "pid"),
		(unsigned long long)cli_number(cause, "uid"));
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
	put_asker(out, json_object_get(e, "cause"));
	buf_char(out, '\n');
}

int cmd_events(struct cli *cli)
{
	return event_stream(cli, put_event, NULL);
}
