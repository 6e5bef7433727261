/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/listing.h"
#include "base/clock.h"

static void put_names(struct buf *out, const json_t *list)
{
	const json_t *item;
	size_t i;

	json_array_foreach (list, i, item) {
		text_escape(out, cli_string(item, "name", cli_string(item, "id", "")));
		buf_char(out, '\n');
	}
}

static void put_table(struct buf *out, const json_t *list, const struct listing *l)
{
	int64_t now_s = (int64_t)(clock_wall_ns() / NS_PER_S);
	const json_t *item;
	struct table t;
	size_t i;

	table_init(&t, l->header);
	json_array_foreach (list, i, item)
		l->row(&t, item, now_s);
	table_print(&t, out);
}

int listing_show(struct cli *cli, const char *target, const struct listing *l)
{
	cleanup_json json_t *answer = NULL;
	struct buf out = BUF_INIT(64U << 20);
	int rc = cli_get(cli, target, &answer);

	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(answer);
	if (cli_args_has(&cli->args, FLAG_QUIET))
		put_names(&out, json_object_get(answer, l->member));
	else
		put_table(&out, json_object_get(answer, l->member), l);
	return cli_print(cli, &out);
}
