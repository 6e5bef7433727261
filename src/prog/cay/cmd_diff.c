/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/change_list.h"
#include "prog/cay/cmd.h"

/* Unified text, coloured line by line. */
static void print_text(const struct cli *cli, struct buf *out, const char *text)
{
	for (const char *p = text; *p != '\0';) {
		size_t n = strcspn(p, "\n");
		cleanup_free char *line = str_dupf("%.*s", (int)n, p);
		const char *colour = str_starts(line, "+++") || str_starts(line, "---") ? "1"
				     : *line == '+'                                     ? "32"
				     : *line == '-'                                     ? "31"
				     : *line == '@'                                     ? "36"
											: NULL;

		if (colour != NULL)
			cli_paint(cli, out, colour);
		text_escape_lines(out, line);
		if (colour != NULL)
			cli_paint(cli, out, "0");
		buf_char(out, '\n');
		p += n;
		p += *p == '\n';
	}
}

static void print_paths(struct buf *out, const json_t *changes)
{
	json_t *c;
	size_t i;

	json_array_foreach (changes, i, c) {
		text_escape(out, cli_string(c, "path", "?"));
		buf_char(out, '\n');
	}
}

/* A reviewer must not take a part for the whole. */
static void tell_truncated(const struct cli *cli, struct buf *out)
{
	cli_paint(cli, out, "1;31");
	buf_str(out, "These are not all changes: there are more than fit");
	cli_paint(cli, out, "0");
	buf_char(out, '\n');
}

int cmd_diff(struct cli *cli)
{
	bool text = cli_args_has(&cli->args, FLAG_TEXT), two = cli->args.n_positional == 2;
	bool quiet = cli_args_has(&cli->args, FLAG_QUIET), truncated;
	cleanup_free char *name = NULL, *target = NULL, *full = NULL;
	cleanup_json json_t *answer = NULL;
	struct buf out = BUF_INIT(ANSWER_MAX);
	int rc = cli_name(cli, &name);

	if (rc < 0)
		return rc;
	/* The API says "from b to a". */
	target = two ? cli_target("/v1/diff?a=%s&b=%s", cli->args.positional[1], name)
		     : cli_target("/v1/diff?a=%s", name);
	full = str_dupf("%s%s", target, text ? "&text=true" : "");
	cli->doing = "comparing";
	rc = cli_get(cli, full, &answer);
	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(answer);
	truncated = json_is_true(json_object_get(answer, "truncated"));
	if (quiet)
		print_paths(&out, json_object_get(answer, "changes"));
	else if (text)
		print_text(cli, &out, cli_string(answer, "text", ""));
	else
		change_list_print(cli, &out, json_object_get(answer, "changes"));
	if (truncated && quiet)
		(void)dprintf(
			STDERR_FILENO, "cay: these are not all changes: there are more than fit\n");
	else if (truncated)
		tell_truncated(cli, &out);
	return cli_print(cli, &out);
}
