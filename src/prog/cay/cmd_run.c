/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/sandbox_spec.h"
#include "prog/cay/session.h"

static int run_body(struct cli *cli, char *const *command, const struct stream_options *o,
	const char *key, json_t **ret)
{
	cleanup_json json_t *spec = NULL, *exec = NULL;
	cleanup_free char *cwd = NULL;
	bool rm = cli_args_has(&cli->args, FLAG_RM);
	int rc = sandbox_spec_make(cli, &spec, &cwd);

	if (rc == 0)
		rc = exec_spec_make(cli, command, spec, cwd, o->input, o->tty, &exec);
	if (rc < 0)
		return rc;
	*ret = json_pack("{s:O, s:O, s:b, s:b, s:s}", "sandbox", spec, "exec", exec, "rm", rm,
		"keep", !rm && cli_args_has(&cli->args, FLAG_NAME), "key", key);
	return 0;
}

/* @ctx: the run's key. */
static int run_rejoin(struct cli *cli, const void *ctx, uint64_t from)
{
	cleanup_free char *target = str_dupf(
		"/v1/runs/%s/attach?from=%llu", (const char *)ctx, (unsigned long long)from);

	cli->doing = "waiting for the next server";
	return cli_send_again(cli, "GET", target, SESSION_UPGRADE, NULL);
}

int cmd_run(struct cli *cli)
{
	const struct id key = id_new();
	struct stream_options o = {
		.fresh = true, .run = true, .leaves = true, .rejoin = run_rejoin, .ctx = key.s
	};
	struct stream_result r = { 0 };
	cleanup_json json_t *body = NULL;
	char *const *command = session_command(cli);
	int rc;

	if (command == NULL)
		return -EINVAL;
	cli_connect_early(cli);
	rc = session_streams(cli, &o);
	if (rc == 0)
		rc = run_body(cli, command, &o, key.s, &body);
	if (rc < 0)
		return rc;
	cli->doing = "making the sandbox";
	rc = cli_send_again(cli, "POST", "/v1/run", SESSION_UPGRADE, body);
	if (rc >= 0)
		rc = stream_run(cli, &o, &r);
	rc = cli_written(cli, session_finish(cli, &o, command, rc, &r));
	if (rc >= 0)
		cli_leave(rc);
	stream_result_fini(&r);
	return rc;
}
