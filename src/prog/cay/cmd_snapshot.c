/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/listing.h"

static int print_snapshot(struct cli *cli, const json_t *s)
{
	struct buf out = BUF_INIT(65536);

	if (cli->json)
		return cli_print_json(s);
	text_escape(&out, cli_string(s, "name", cli_string(s, "id", "?")));
	buf_char(&out, '\n');
	return cli_print(cli, &out);
}

int cmd_snapshot(struct cli *cli)
{
	const char *name = cli_args_value(&cli->args, FLAG_NAME);
	cleanup_free char *target =
		cli_target("/v1/sandboxes/%s/snapshots", cli->args.positional[0]);
	cleanup_json json_t *body = json_object(), *snapshot = NULL;
	int rc;

	if (name != NULL)
		(void)json_object_set_new(body, "name", json_string(name));
	if (cli_args_has(&cli->args, FLAG_LIVE))
		(void)json_object_set_new(body, "files_only", json_false());
	else if (cli_args_has(&cli->args, FLAG_FILES_ONLY))
		(void)json_object_set_new(body, "files_only", json_true());
	cli->doing = "taking the snapshot";
	rc = cli_call_keyed(cli, "POST", target, body, &snapshot);
	return rc < 0 ? rc : print_snapshot(cli, snapshot);
}

int cmd_verify(struct cli *cli)
{
	cleanup_free char *target = cli_target("/v1/snapshots/%s/verify", cli->args.positional[0]),
			  *line = NULL;
	cleanup_json json_t *snapshot = NULL;
	int rc;

	cli->doing = "checking";
	rc = cli_call(cli, "POST", target, NULL, &snapshot);
	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(snapshot);
	line = str_dupf("%s: %s", cli->args.positional[0], cli_string(snapshot, "state", "?"));
	cli_print_word(line);
	return 0;
}

static void put_row(struct table *t, const json_t *s, int64_t now_s)
{
	struct buf cell = BUF_INIT(65536);

	table_cell(t, cli_string(s, "name", NULL));
	buf_fmt(&cell, "%.8s", cli_string(s, "id", "?"));
	table_buf(t, &cell);
	table_cell(t, cli_string(s, "state", "?"));
	buf_fmt(&cell, "%.8s", cli_string(s, "sandbox", "?"));
	table_buf(t, &cell);
	buf_fmt(&cell, "%llu", (unsigned long long)cli_number(s, "files"));
	table_buf(t, &cell);
	text_size(&cell, cli_number(s, "bytes"));
	table_buf(t, &cell);
	buf_fmt(&cell, "%.1f ms", (double)cli_number(s, "frozen_us") / 1000);
	table_buf(t, &cell);
	text_age(&cell, cli_string(s, "created", ""), now_s);
	table_buf(t, &cell);
	buf_free(&cell);
}

int cmd_snapshots(struct cli *cli)
{
	static const struct listing snapshots = { "snapshots",
		"NAME|ID|STATE|SANDBOX|>FILES|>SIZE|>FROZEN|>AGE", put_row };
	cleanup_free char *target =
		cli->args.n_positional > 0
			? cli_target("/v1/snapshots?sandbox=%s", cli->args.positional[0])
			: str_dup("/v1/snapshots");

	return listing_show(cli, target, &snapshots);
}
