/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/str.h"
#include "prog/cay/cmd.h"

static void line(struct buf *out, const char *what, const char *value)
{
	if (value == NULL || *value == '\0')
		return;
	buf_fmt(out, "%-11s", what);
	text_escape(out, value);
	buf_char(out, '\n');
}

static void put_limits(struct buf *out, const json_t *limits)
{
	struct buf v = BUF_INIT(4096);

	text_size(&v, cli_number(limits, "memory_bytes"));
	buf_fmt(&v, " memory, %llu processes, ", (unsigned long long)cli_number(limits, "pids"));
	if (cli_number(limits, "disk_bytes") > 0)
		text_size(&v, cli_number(limits, "disk_bytes"));
	buf_str(&v, cli_number(limits, "disk_bytes") > 0 ? " disk" : "disk without a limit");
	if (cli_number(limits, "inodes") > 0)
		buf_fmt(&v, ", %llu files", (unsigned long long)cli_number(limits, "inodes"));
	if (cli_number(limits, "cpu_millis") > 0)
		buf_fmt(&v, ", %.2f processors", (double)cli_number(limits, "cpu_millis") / 1000);
	line(out, "limits", buf_cstr(&v));
	buf_free(&v);
}

static void put_mounts(struct buf *out, const json_t *box)
{
	json_t *m;
	size_t i;

	json_array_foreach (json_object_get(box, "mounts"), i, m) {
		cleanup_free char *text = str_dupf("%s from %s (%s)", cli_string(m, "target", "?"),
			cli_string(m, "source", "?"), cli_string(m, "mode", "?"));

		line(out, i == 0 ? "mounts" : "", text);
	}
	json_array_foreach (json_object_get(box, "expose"), i, m)
		line(out, i == 0 ? "exposed" : "", json_string_value(m));
}

static void put_network(struct buf *out, const json_t *box)
{
	const json_t *policy = json_object_get(box, "policy");
	cleanup_free char *rules =
		str_dupf("a policy: cay policy show %s", cli_string(box, "name", "?"));

	line(out, "network", json_is_object(policy) ? rules : "no policy: nothing leaves");
}

static void put_idle(struct buf *out, uint64_t idle_ms)
{
	cleanup_free char *text =
		str_dupf("suspended after %.10g s without activity", (double)idle_ms / 1000);

	if (idle_ms > 0)
		line(out, "idle", text);
}

static void put_box(struct buf *out, const json_t *box)
{
	json_t *label, *error = json_object_get(box, "error");
	const char *key, *what = "labels";

	line(out, "name", cli_string(box, "name", NULL));
	line(out, "id", cli_string(box, "id", NULL));
	line(out, "state", cli_string(box, "state", NULL));
	line(out, "image", cli_string(box, "image", NULL));
	line(out, "base", cli_string(box, "base", NULL));
	line(out, "parent", cli_string(box, "parent", NULL));
	line(out, "profile", cli_string(box, "profile", NULL));
	line(out, "mode", cli_string(box, "mode", NULL));
	if (str_eq(cli_string(box, "uid_map", ""), "single"))
		line(out, "uids",
			"one only: chown and package installation fail (cay doctor says why)");
	line(out, "created", cli_string(box, "created", NULL));
	line(out, "started", cli_string(box, "started", NULL));
	line(out, "stopped", cli_string(box, "stopped", NULL));
	put_limits(out, json_object_get(box, "limits"));
	put_mounts(out, box);
	put_network(out, box);
	if (str_eq(cli_string(box, "checkpoint", "none"), "each-exec"))
		line(out, "checkpoint", "behind each exec: cay steps lists them");
	put_idle(out, cli_number(box, "idle_ms"));
	json_object_foreach (json_object_get(box, "labels"), key, label) {
		cleanup_free char *text = str_dupf("%s=%s", key, json_string_value(label));

		line(out, what, text);
		what = "";
	}
	line(out, "error", cli_string(error, "message", NULL));
}

static void put_snapshot(struct buf *out, const json_t *s)
{
	cleanup_free char *frozen = str_dupf("%.2f ms", (double)cli_number(s, "frozen_us") / 1000);
	struct buf v = BUF_INIT(4096);

	line(out, "snapshot", cli_string(s, "name", "(no name)"));
	line(out, "id", cli_string(s, "id", NULL));
	line(out, "state", cli_string(s, "state", NULL));
	line(out, "sandbox", cli_string(s, "sandbox", NULL));
	line(out, "parent", cli_string(s, "parent", NULL));
	line(out, "image", cli_string(s, "image", NULL));
	line(out, "capture", cli_string(s, "capture", NULL));
	line(out, "frozen", frozen);
	text_size(&v, cli_number(s, "bytes"));
	buf_fmt(&v, " in %llu files", (unsigned long long)cli_number(s, "files"));
	line(out, "layer", buf_cstr(&v));
	line(out, "created", cli_string(s, "created", NULL));
	buf_free(&v);
}

void put_exec_status(struct buf *cell, const json_t *status, const char *otherwise)
{
	const char *word = cli_string(status, "status", otherwise);

	buf_str(cell, word);
	if (str_eq(word, "exited"))
		buf_fmt(cell, " %llu", (unsigned long long)cli_number(status, "code"));
	else if (str_eq(word, "signaled"))
		buf_fmt(cell, " %llu", (unsigned long long)cli_number(status, "signal"));
}

/* The last execs, newest first. */
static int put_execs(struct cli *cli, struct buf *out, const char *name)
{
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/execs?limit=10", name);
	cleanup_json json_t *answer = NULL;
	struct buf cell = BUF_INIT(1U << 20);
	json_t *list, *arg;
	struct table t;
	size_t n, j;
	int rc = cli_get(cli, target, &answer);

	if (rc < 0)
		return rc;
	list = json_object_get(answer, "execs");
	n = json_array_size(list);
	if (n == 0)
		return 0;
	table_init(&t, "EXEC|STATUS|>AGE|COMMAND");
	for (size_t i = n; i-- > 0;) {
		const json_t *exec = json_array_get(list, i);

		buf_fmt(&cell, "%.8s", cli_string(exec, "id", "?"));
		table_buf(&t, &cell);
		put_exec_status(
			&cell, json_object_get(exec, "status"), cli_string(exec, "state", "?"));
		table_buf(&t, &cell);
		text_age(&cell, cli_string(exec, "created", ""),
			(int64_t)(clock_wall_ns() / NS_PER_S));
		table_buf(&t, &cell);
		json_array_foreach (json_object_get(exec, "argv"), j, arg) {
			if (cell.n > 60)
				continue;
			buf_fmt(&cell, "%s%.60s", j > 0 ? " " : "", json_string_value(arg));
		}
		table_buf(&t, &cell);
	}
	buf_char(out, '\n');
	table_print(&t, out);
	if (json_is_true(json_object_get(answer, "more")))
		buf_fmt(out, "and older ones: cay steps %s\n", name);
	buf_free(&cell);
	return 0;
}

int cmd_info(struct cli *cli)
{
	const char *name = cli->args.positional[0];
	cleanup_free char *box = cli_target("/v1/sandboxes/%s", name),
			  *point = cli_target("/v1/snapshots/%s", name);
	cleanup_json json_t *answer = NULL;
	struct buf out = BUF_INIT(16U << 20);
	bool snapshot = false;
	int rc = cli_get(cli, box, &answer);

	if (rc < 0 && cli->err.code == ERR_NOT_FOUND) {
		cleanup_json json_t *said = TAKE_PTR(cli->error);
		struct err first = cli->err;

		snapshot = true;
		rc = cli_get(cli, point, &answer);
		if (rc < 0 && cli->err.code == ERR_NOT_FOUND && !cli_names_step(name)) {
			json_decref(cli->error);
			cli->error = TAKE_PTR(said);
			cli->err = first;
		}
	}
	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(answer);
	if (snapshot) {
		put_snapshot(&out, answer);
	} else {
		put_box(&out, answer);
		rc = put_execs(cli, &out, name);
	}
	return rc < 0 ? rc : cli_print(cli, &out);
}
