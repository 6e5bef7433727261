/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/str.h"
#include "prog/cay/cmd.h"

static bool is_live(const json_t *box)
{
	const char *state = cli_string(box, "state", "");

	return str_eq(state, "running") || str_eq(state, "paused") || str_eq(state, "suspended") ||
	       str_eq(state, "creating");
}

static void ps_row(struct table *t, const json_t *box, int64_t now)
{
	json_t *mounts = json_object_get(box, "mounts"), *label;
	struct buf cell = BUF_INIT(1U << 20);
	const char *key, *sep = "";

	table_cell(t, cli_string(box, "name", "?"));
	buf_fmt(&cell, "%.8s", cli_string(box, "id", "?"));
	table_buf(t, &cell);
	table_cell(t, cli_string(box, "state", "?"));
	table_cell(t, cli_string(box, "image", "?"));
	text_age(&cell, cli_string(box, "created", ""), now);
	table_buf(t, &cell);
	if (json_array_size(mounts) > 0)
		buf_str(&cell, cli_string(json_array_get(mounts, 0), "source", ""));
	if (json_array_size(mounts) > 1)
		buf_fmt(&cell, " +%zu", json_array_size(mounts) - 1);
	table_buf(t, &cell);
	json_object_foreach (json_object_get(box, "labels"), key, label) {
		if (str_starts(key, "cay."))
			continue;
		buf_fmt(&cell, "%s%s=%s", sep, key, json_string_value(label));
		sep = " ";
	}
	table_buf(t, &cell);
	buf_free(&cell);
}

/* KEY or KEY=VALUE, of several each. The server is asked for the first one alone: older ones look for no more. */
static bool has_labels(const struct cli *cli, const json_t *box)
{
	const json_t *labels = json_object_get(box, "labels");
	const char *label;
	size_t pos = 0;

	while ((label = cli_args_next(&cli->args, FLAG_LABEL, &pos)) != NULL) {
		cleanup_free char *key = str_dup(label);
		char *value = strchr(key, '=');
		const char *has;

		if (value != NULL)
			*value++ = '\0';
		has = json_string_value(json_object_get(labels, key));
		if (has == NULL || (value != NULL && !str_eq(has, value)))
			return false;
	}
	return true;
}

static void drop_others(const struct cli *cli, json_t *list)
{
	for (size_t i = json_array_size(list); i-- > 0;) {
		if (!has_labels(cli, json_array_get(list, i)))
			(void)json_array_remove(list, i);
	}
}

int cmd_ps(struct cli *cli)
{
	const char *label = cli_args_value(&cli->args, FLAG_LABEL);
	cleanup_free char *target = label != NULL ? cli_target("/v1/sandboxes?label=%s", label)
						  : str_dup("/v1/sandboxes");
	cleanup_json json_t *answer = NULL;
	struct buf out = BUF_INIT(64U << 20);
	bool quiet = cli_args_has(&cli->args, FLAG_QUIET), all = cli_args_has(&cli->args, FLAG_ALL);
	json_t *list;
	size_t hidden = 0;
	struct table t;
	int rc = cli_get(cli, target, &answer);

	if (rc < 0)
		return rc;
	list = json_object_get(answer, "sandboxes");
	if (label != NULL)
		drop_others(cli, list);
	if (cli->json)
		return cli_print_json(answer);
	table_init(&t, "NAME|ID|STATE|IMAGE|>AGE|MOUNTS|LABELS");
	for (size_t i = json_array_size(list); i-- > 0;) {
		const json_t *box = json_array_get(list, i);

		if (!all && !is_live(box)) {
			hidden++;
		} else if (quiet) {
			text_escape(&out, cli_string(box, "name", ""));
			buf_char(&out, '\n');
		} else {
			ps_row(&t, box, (int64_t)(clock_wall_ns() / NS_PER_S));
		}
	}
	if (!quiet)
		table_print(&t, &out);
	if (hidden > 0 && cli->watched && !quiet) {
		cli_paint(cli, &out, "2");
		buf_fmt(&out, "%zu stopped: cay ps -a", hidden);
		cli_paint(cli, &out, "0");
		buf_char(&out, '\n');
	}
	return cli_print(cli, &out);
}

static void line(struct buf *out, const char *what, const char *value)
{
	if (value == NULL || *value == '\0')
		return;
	buf_fmt(out, "%-14s", what);
	text_escape(out, value);
	buf_char(out, '\n');
}

#define UNCOUNTED "not counted: no control group"

static void put_memory(struct buf *out, const json_t *u)
{
	struct buf v = BUF_INIT(4096);

	if (!json_is_integer(json_object_get(u, "memory_peak_bytes"))) {
		line(out, "memory", UNCOUNTED);
		return;
	}
	if (json_is_integer(json_object_get(u, "memory_bytes"))) {
		text_size(&v, cli_number(u, "memory_bytes"));
		buf_str(&v, " now, ");
	}
	text_size(&v, cli_number(u, "memory_peak_bytes"));
	buf_str(&v, " at most");
	if (json_is_number(json_object_get(u, "memory_gb_seconds")))
		buf_fmt(&v, ", %.4f GB-seconds (%llu readings, at most %.1f s apart)",
			json_number_value(json_object_get(u, "memory_gb_seconds")),
			(unsigned long long)cli_number(u, "memory_samples"),
			(double)cli_number(u, "memory_gap_ms") / 1000);
	line(out, "memory", buf_cstr(&v));
	buf_free(&v);
}

static void put_processor(struct buf *out, const json_t *u)
{
	if (!json_is_integer(json_object_get(u, "cpu_us")))
		line(out, "processor", UNCOUNTED);
	else
		buf_fmt(out, "%-14s%.3f s\n", "processor", (double)cli_number(u, "cpu_us") / 1e6);
}

static void put_disk(struct buf *out, const json_t *u)
{
	struct buf v = BUF_INIT(4096);

	if (!json_is_integer(json_object_get(u, "disk_bytes")))
		return;
	text_size(&v, cli_number(u, "disk_bytes"));
	buf_fmt(&v, " in %llu files", (unsigned long long)cli_number(u, "inodes"));
	line(out, "disk", buf_cstr(&v));
	buf_free(&v);
}

int cmd_usage(struct cli *cli)
{
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/usage", cli->args.positional[0]);
	cleanup_json json_t *u = NULL;
	struct buf out = BUF_INIT(65536);
	int rc = cli_get(cli, target, &u);

	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(u);
	put_processor(&out, u);
	put_memory(&out, u);
	if (json_is_integer(json_object_get(u, "processes")))
		buf_fmt(&out, "%-14s%llu\n", "processes",
			(unsigned long long)cli_number(u, "processes"));
	put_disk(&out, u);
	buf_fmt(&out, "%-14s", "output");
	text_size(&out, cli_number(u, "output_bytes"));
	buf_fmt(&out, "\n%-14s%.1f s%s\n", "running", (double)cli_number(u, "running_ms") / 1000,
		json_is_false(json_object_get(u, "live")) ? ", stopped" : "");
	if (json_is_true(json_object_get(u, "incomplete")))
		line(&out, "incomplete", "a run ended without a report; it is not counted");
	return cli_print(cli, &out);
}
