/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/sandbox_spec.h"

#include <signal.h>

int cmd_create(struct cli *cli)
{
	cleanup_json json_t *spec = NULL, *box = NULL;
	int rc = sandbox_spec_make(cli, &spec, NULL);

	cli->doing = "making the sandbox";
	if (rc == 0)
		rc = cli_call_keyed(cli, "POST", "/v1/sandboxes", spec, &box);
	if (rc < 0) {
		image_missing_explain(cli);
		return rc;
	}
	sandbox_warn(box);
	return cli_print_named(cli, box);
}

int cmd_set(struct cli *cli)
{
	cleanup_free char *target =
		cli_target("/v1/sandboxes/%s/settings", cli->args.positional[0]);
	cleanup_json json_t *body = json_object(), *box = NULL;
	int rc = settings_spec_add(cli, body);

	if (rc == 0 && json_object_size(body) == 0)
		rc = err_raise(&cli->err, ERR_USAGE, "nothing is named that is to be set");
	cli->doing = "setting it";
	if (rc == 0)
		rc = cli_call(cli, "PUT", target, body, &box);
	if (rc < 0)
		return rc;
	sandbox_warn(box);
	return cli_print_named(cli, box);
}

struct move {
	const char *verb;
	const json_t *body;
	json_t *all; /* the sandboxes as they are behind it */
};

static int move_one(struct cli *cli, const char *name, void *ctx)
{
	const struct move *move = ctx;
	cleanup_free char *target = cli_target("/v1/sandboxes/%s", name);
	cleanup_free char *full = str_dupf("%s/%s", target, move->verb);
	json_t *box = NULL;
	int rc = cli_call(cli, "POST", full, move->body, &box);

	if (rc < 0)
		return rc;
	if (!cli->json)
		cli_print_word(cli_string(box, "name", name));
	/* none: it has gone with its run */
	return box != NULL ? json_array_append_new(move->all, box) : 0;
}

int cmd_move(struct cli *cli)
{
	const char *grace = cli_args_value(&cli->args, FLAG_GRACE),
		   *verb = cli_verbs[cli->args.verb].words;
	cleanup_json json_t *body = NULL, *all = json_array();
	uint64_t ms;
	int status;

	if (grace != NULL) {
		if (str_to_duration(grace, &ms) < 0 || ms > 600000)
			return err_raise(&cli->err, ERR_USAGE,
				"--grace '%s': a duration of at most 10m is wanted", grace);
		body = json_pack("{s:I}", "grace_ms", (json_int_t)ms);
	}
	if (cli_args_has(&cli->args, FLAG_FILES_ONLY))
		body = json_pack("{s:b}", "files_only", 1);
	cli->doing = verb;
	status = cli_each(cli, move_one, &(struct move){ verb, body, all });
	if (cli->json && json_array_size(all) > 0)
		(void)cli_print_json(cli->args.n_positional == 1 ? json_array_get(all, 0) : all);
	return status;
}

static int tell_removed(const struct cli *cli, const char *name, json_t *removed)
{
	if (!cli->json)
		cli_print_word(name);
	return json_array_append_new(removed, json_string(name));
}

/* A sandbox of that name, else a snapshot. */
static int remove_one(struct cli *cli, const char *name, void *ctx)
{
	json_t *removed = ctx;
	bool force = cli_args_has(&cli->args, FLAG_FORCE);
	cleanup_free char *box = cli_target("/v1/sandboxes/%s", name),
			  *point = cli_target("/v1/snapshots/%s", name),
			  *full = str_dupf("%s%s", box, force ? "?force=true" : "");
	struct err first;
	json_t *error;
	int rc = cli_call(cli, "DELETE", full, NULL, NULL);

	if (rc < 0 && cli->err.code != ERR_NOT_FOUND)
		return rc;
	if (rc == 0)
		return tell_removed(cli, name, removed);
	first = cli->err;
	error = TAKE_PTR(cli->error);
	rc = cli_call(cli, "DELETE", point, NULL, NULL);
	if (rc < 0 && cli->err.code == ERR_NOT_FOUND && !cli_names_step(name)) {
		cli->err = first;
		json_decref(cli->error);
		cli->error = TAKE_PTR(error);
	}
	json_decref(error);
	return rc < 0 ? rc : tell_removed(cli, name, removed);
}

int cmd_rm(struct cli *cli)
{
	cleanup_free char *last = NULL;
	cleanup_json json_t *removed = json_array();
	int rc = 0;

	cli->doing = "removing";
	if (cli->args.n_positional == 0) {
		rc = cli_last_run(cli, &last);
		if (rc < 0)
			return rc;
		cli->args.positional[cli->args.n_positional++] = last;
	}
	rc = cli_each(cli, remove_one, removed);
	if (cli->json && json_array_size(removed) > 0) {
		cleanup_json json_t *answer = json_pack("{s:O}", "removed", removed);

		(void)cli_print_json(answer);
	}
	return rc;
}

/* "TERM", "SIGTERM" or "15". */
static int parse_signal(const char *s)
{
	uint64_t n;

	if (str_to_u64(s, 1, 64, &n) == 0)
		return (int)n;
	if (str_starts(s, "SIG"))
		s += 3;
	for (int sig = 1; sig < 32; sig++) {
		const char *name = sigabbrev_np(sig);

		if (name != NULL && str_eq(name, s))
			return sig;
	}
	return -EINVAL;
}

int cmd_kill(struct cli *cli)
{
	const char *name = cli_args_value(&cli->args, FLAG_SIGNAL);
	int sig = name != NULL ? parse_signal(name) : SIGKILL;
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/execs/%s/signal",
		cli->args.positional[0], cli->args.positional[1]);
	cleanup_json json_t *body = json_pack("{s:i, s:b}", "signal", sig, "tree", name == NULL);
	int rc;

	if (sig < 0)
		return err_raise(&cli->err, ERR_USAGE, "--signal '%s': no such signal", name);
	rc = cli_call(cli, "POST", target, body, NULL);
	if (rc == 0 && cli->json)
		return cli_print_json(body);
	return rc;
}
