/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay/cmd_steps.c - the steps of a sandbox. */
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/listing.h"

#define COMMAND_MAX 60

static void put_command(struct table *t, const json_t *argv)
{
	struct buf cell = BUF_INIT(65536);
	json_t *arg;
	size_t i;

	json_array_foreach (argv, i, arg) {
		if (cell.n < COMMAND_MAX)
			buf_fmt(&cell, "%s%.60s", i > 0 ? " " : "", json_string_value(arg));
	}
	table_buf(t, &cell);
	buf_free(&cell);
}

static void put_step(struct table *t, const json_t *step, attr_unused int64_t now_s)
{
	struct buf cell = BUF_INIT(4096);
	const char *snapshot = cli_string(step, "snapshot", NULL);

	buf_fmt(&cell, "%llu", (unsigned long long)cli_number(step, "step"));
	table_buf(t, &cell);
	buf_fmt(&cell, "%.8s", cli_string(step, "exec", "?"));
	table_buf(t, &cell);
	put_exec_status(&cell, json_object_get(step, "status"), "running");
	table_buf(t, &cell);
	if (snapshot != NULL)
		buf_fmt(&cell, "%.8s", snapshot);
	else
		buf_char(&cell, '-');
	table_buf(t, &cell);
	buf_free(&cell);
	put_command(t, json_object_get(step, "argv"));
}

int cmd_steps(struct cli *cli)
{
	static const struct listing steps = { "steps", ">STEP|EXEC|STATUS|SNAPSHOT|COMMAND",
		put_step, "step" };
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/steps", cli->args.positional[0]);

	return listing_show(cli, target, &steps);
}
