/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cmd.h"

int cmd_rewind(struct cli *cli)
{
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/rewind", cli->args.positional[0]);
	cleanup_json json_t *body = json_pack("{s:s}", "snapshot", cli->args.positional[1]),
			    *box = NULL;
	int rc;

	if (cli_args_has(&cli->args, FLAG_FILES_ONLY))
		(void)json_object_set_new(body, "files_only", json_true());
	if (cli_args_has(&cli->args, FLAG_KEEP_IDENTITY))
		(void)json_object_set_new(body, "keep_identity", json_true());
	cli->doing = "rewinding";
	rc = cli_call_keyed(cli, "POST", target, body, &box);
	if (rc < 0)
		return rc;
	return cli_print_named(cli, box);
}

/*
 * A snapshot called @from was not forked. The key of a sandbox's forks is another request's to the route of snapshots, which is not asked for the name then; the route of sandboxes has the
 * answer, or says so too.
 */
static bool may_be_sandbox(const struct cli *cli, const char *from)
{
	return (cli->err.code == ERR_NOT_FOUND || cli->err.code == ERR_IDEMPOTENCY) &&
	       strchr(from, '@') == NULL;
}

int cmd_fork(struct cli *cli)
{
	const char *name = cli_args_value(&cli->args, FLAG_NAME),
		   *count = cli_args_value(&cli->args, FLAG_COUNT), *from = cli->args.positional[0];
	cleanup_free char *box = cli_target("/v1/sandboxes/%s/fork", from),
			  *point = cli_target("/v1/snapshots/%s/fork", from);
	cleanup_json json_t *body = json_object(), *answer = NULL;
	json_t *one;
	uint64_t n;
	size_t i;
	int rc;

	if (name != NULL)
		(void)json_object_set_new(body, "name", json_string(name));
	if (count != NULL) {
		if (str_to_u64(count, 1, 1000, &n) < 0)
			return cli_refuse_value(
				cli, FLAG_COUNT, count, "a number from 1 to 1000 is wanted");
		(void)json_object_set_new(body, "count", json_integer((json_int_t)n));
	}
	if (cli_args_has(&cli->args, FLAG_LIVE))
		(void)json_object_set_new(body, "live", json_true());
	else if (cli_args_has(&cli->args, FLAG_FILES_ONLY))
		(void)json_object_set_new(body, "live", json_false());
	if (cli_args_has(&cli->args, FLAG_KEEP_IDENTITY))
		(void)json_object_set_new(body, "keep_identity", json_true());
	cli->doing = "forking";
	rc = cli_call_keyed(cli, "POST", point, body, &answer);
	if (rc < 0 && may_be_sandbox(cli, from))
		rc = cli_call_keyed(cli, "POST", box, body, &answer);
	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(answer);
	/* the same holds for all of them */
	cli_warn_of(json_array_get(json_object_get(answer, "sandboxes"), 0));
	json_array_foreach (json_object_get(answer, "sandboxes"), i, one)
		cli_print_word(cli_string(one, "name", ""));
	return 0;
}
