/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/sandbox_spec.h"
#include "prog/cay/session.h"

static int run_body(
	struct cli *cli, char *const *command, const struct stream_options *o, json_t **ret)
{
	cleanup_json json_t *spec = NULL, *exec = NULL;
	cleanup_free char *cwd = NULL;
	bool rm = cli_args_has(&cli->args, FLAG_RM);
	int rc = sandbox_spec_make(cli, &spec, &cwd);

	if (rc == 0)
		rc = exec_spec_make(cli, command, spec, cwd, o->input, o->tty, &exec);
	if (rc < 0)
		return rc;
	*ret = json_pack("{s:O, s:O, s:b, s:b}", "sandbox", spec, "exec", exec, "rm", rm, "keep",
		!rm && cli_args_has(&cli->args, FLAG_NAME));
	return 0;
}

int cmd_run(struct cli *cli)
{
	struct stream_options o = { .run = true };
	struct stream_result r = { 0 };
	cleanup_json json_t *body = NULL;
	char *const *command = session_command(cli);
	int rc;

	if (command == NULL)
		return -EINVAL;
	rc = session_streams(cli, &o);
	if (rc == 0)
		rc = run_body(cli, command, &o, &body);
	if (rc < 0)
		return rc;
	cli->doing = "making the sandbox";
	rc = cli_send(cli, "POST", "/v1/run", SESSION_UPGRADE, body);
	if (rc >= 0)
		rc = stream_run(cli, &o, &r);
	rc = session_finish(cli, &o, command, rc, &r);
	stream_result_fini(&r);
	return rc;
}
