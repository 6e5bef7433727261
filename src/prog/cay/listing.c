/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/listing.h"
#include "base/clock.h"
#include "base/str.h"

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

/* The answer has the last part: those before it, too. */
static int get_older(struct cli *cli, const char *target, const struct listing *l, json_t *answer)
{
	int rc = 0;

	while (rc == 0 && l->by != NULL && json_is_true(json_object_get(answer, "more"))) {
		json_t *list = json_object_get(answer, l->member);
		cleanup_free char *before = str_dupf("%s?limit=10000&before=%llu", target,
			(unsigned long long)cli_number(json_array_get(list, 0), l->by));
		cleanup_json json_t *part = NULL;

		rc = cli_get(cli, before, &part);
		if (rc < 0)
			return rc;
		(void)json_array_extend(json_object_get(part, l->member), list);
		(void)json_object_set(answer, l->member, json_object_get(part, l->member));
		(void)json_object_set(answer, "more", json_object_get(part, "more"));
	}
	return rc;
}

int listing_show(struct cli *cli, const char *target, const struct listing *l)
{
	cleanup_json json_t *answer = NULL;
	struct buf out = BUF_INIT(64U << 20);
	int rc = cli_get(cli, target, &answer);

	if (rc == 0)
		rc = get_older(cli, target, l, answer);
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
