/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay/cmd_log.c - the event log as a whole: is it unbroken, and how much of it is kept. */
#include "base/str.h"
#include "prog/cay/cmd.h"

static void put_bad(struct buf *out, const char *name, const json_t *bad)
{
	text_escape(out, name);
	buf_fmt(out,
		": the chain breaks at event %llu: ", (unsigned long long)cli_number(bad, "seq"));
	text_escape(out, cli_string(bad, "reason", "?"));
	buf_char(out, '\n');
}

/* Nobody can tell the one from the other. */
static void put_cut(struct buf *out, const char *name, const json_t *cut)
{
	if (!json_is_object(cut))
		return;
	text_escape(out, name);
	buf_fmt(out,
		": %llu events are missing before event %llu: they were not on the disk when the machine ended, or were cut off while the server did not run\n",
		(unsigned long long)cli_number(cut, "events"),
		(unsigned long long)cli_number(cut, "seq"));
}

static void put_good(struct buf *out, const char *name, const json_t *answer)
{
	const json_t *anchor = json_object_get(answer, "anchor");

	text_escape(out, name);
	buf_fmt(out, ": %llu events, the chain holds, head %.16s\n",
		(unsigned long long)cli_number(answer, "events"), cli_string(answer, "head", "-"));
	if (json_is_object(anchor))
		buf_fmt(out,
			"the first %llu events were retired at %s; checked from the anchor %.16s on\n",
			(unsigned long long)cli_number(anchor, "seq"),
			cli_string(anchor, "retired", "?"), cli_string(anchor, "hash", "-"));
	put_cut(out, name, json_object_get(answer, "cut"));
}

static int verify_one(struct cli *cli, const char *name)
{
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/events/verify", name);
	cleanup_json json_t *answer = NULL;
	struct buf out = BUF_INIT(65536);
	bool ok;
	int rc = cli_get(cli, target, &answer);

	if (rc < 0)
		return rc;
	ok = json_is_true(json_object_get(answer, "ok"));
	if (cli->json)
		return cli_print_json(answer) < 0 ? 125 : !ok;
	if (ok)
		put_good(&out, name, answer);
	else
		put_bad(&out, name, json_object_get(answer, "bad"));
	rc = cli_print(cli, &out);
	return rc < 0 ? rc : !ok;
}

static int verify_all(struct cli *cli)
{
	cleanup_json json_t *answer = NULL;
	struct buf out = BUF_INIT(16U << 20);
	const json_t *bad, *cut;
	size_t i;
	bool ok;
	int rc = cli_get(cli, "/v1/events/verify", &answer);

	if (rc < 0)
		return rc;
	ok = json_is_true(json_object_get(answer, "ok"));
	if (cli->json)
		return cli_print_json(answer) < 0 ? 125 : !ok;
	json_array_foreach (json_object_get(answer, "bad"), i, bad)
		put_bad(&out, cli_string(bad, "sandbox", "the server's own"), bad);
	json_array_foreach (json_object_get(answer, "cut"), i, cut)
		put_cut(&out, cli_string(cut, "sandbox", "the server's own"), cut);
	buf_fmt(&out, "%llu events in %llu chains%s\n",
		(unsigned long long)cli_number(answer, "events"),
		(unsigned long long)cli_number(answer, "chains"), ok ? ", all of them hold" : "");
	if (cli_number(answer, "first_n") > 1)
		buf_fmt(&out,
			"the first %llu events were retired; %llu chains were checked from their anchors on\n",
			(unsigned long long)cli_number(answer, "first_n") - 1,
			(unsigned long long)cli_number(answer, "anchored"));
	rc = cli_print(cli, &out);
	return rc < 0 ? rc : !ok;
}

int cmd_events_verify(struct cli *cli)
{
	cli->doing = "checking the log";
	return cli->args.n_positional > 0 ? verify_one(cli, cli->args.positional[0])
					  : verify_all(cli);
}

/* --- retention --- */

static int add_rule(
	struct cli *cli, json_t *body, enum cli_flag flag, const char *member, bool is_size)
{
	const char *text = cli_args_value(&cli->args, flag);
	uint64_t v = 0;
	int rc;

	if (text == NULL)
		return 0;
	rc = is_size ? str_to_size(text, &v) : str_to_duration(text, &v);
	if ((rc < 0 && !str_eq(text, "0")) || (!is_size && v > 0 && v < 1000))
		return cli_refuse_value(cli, flag, text,
			is_size ? "a size is wanted, for example 4G, or 0"
				: "a duration of a second or more is wanted, for example 30d, or 0");
	return json_object_set_new(
		body, member, json_integer((json_int_t)(is_size ? v : v / 1000)));
}

static void put_rule(struct buf *out, const char *what, const json_t *keep, const char *member)
{
	uint64_t v = cli_number(keep, member);

	buf_fmt(out, "%-22s", what);
	if (v == 0)
		buf_str(out, "no limit");
	else if (str_ends(member, "_bytes"))
		text_size(out, v);
	else if (v % 86400 == 0)
		buf_fmt(out, "%llu d", (unsigned long long)v / 86400);
	else
		buf_fmt(out, "%llu s", (unsigned long long)v);
	buf_char(out, '\n');
}

int cmd_events_retention(struct cli *cli)
{
	cleanup_json json_t *body = json_object(), *keep = NULL;
	struct buf out = BUF_INIT(65536);
	int rc;

	if (add_rule(cli, body, FLAG_MAX_SIZE, "max_bytes", true) < 0 ||
		add_rule(cli, body, FLAG_MAX_AGE, "max_age_s", false) < 0 ||
		add_rule(cli, body, FLAG_REMOVED_AGE, "removed_age_s", false) < 0 ||
		add_rule(cli, body, FLAG_SEGMENT_SIZE, "segment_bytes", true) < 0)
		return -EINVAL;
	rc = json_object_size(body) > 0 ? cli_call(cli, "PUT", "/v1/events/retention", body, &keep)
					: cli_get(cli, "/v1/events/retention", &keep);
	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(keep);
	put_rule(&out, "size of the log", keep, "max_bytes");
	put_rule(&out, "age", keep, "max_age_s");
	put_rule(&out, "of removed sandboxes", keep, "removed_age_s");
	put_rule(&out, "goes at once", keep, "segment_bytes");
	buf_fmt(&out, "%-22s%llu to %llu\n", "events kept",
		(unsigned long long)cli_number(keep, "first_n"),
		(unsigned long long)cli_number(keep, "last_n"));
	return cli_print(cli, &out);
}
