/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cay: the command line. An API client and nothing more.
 *
 * To add a verb: a row in defs/cli.def with an example; a cmd_<verb>() in cmd_*.c, declared in cmd.h; a row in the table below;
 * `build/cay help --markdown > docs/reference/cli.md`. Help, completion and the reference follow from the table.
 */
#include "base/str.h"
#include "build_id.h"
#include "prog/cay/cli_help.h"
#include "prog/cay/cmd.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>

static int (*const commands[VERB_COUNT_])(struct cli *cli) = {
	[VERB_RUN] = cmd_run,
	[VERB_CREATE] = cmd_create,
	[VERB_EXEC] = cmd_exec,
	[VERB_ATTACH] = cmd_attach,
	[VERB_SNAPSHOT] = cmd_snapshot,
	[VERB_FORK] = cmd_fork,
	[VERB_REWIND] = cmd_rewind,
	[VERB_STEPS] = cmd_steps,
	[VERB_DIFF] = cmd_diff,
	[VERB_SNAPSHOTS] = cmd_snapshots,
	[VERB_VERIFY] = cmd_verify,
	[VERB_APPLY] = cmd_apply,
	[VERB_CP] = cmd_cp,
	[VERB_PAUSE] = cmd_move,
	[VERB_SUSPEND] = cmd_move,
	[VERB_RESUME] = cmd_move,
	[VERB_STOP] = cmd_move,
	[VERB_SET] = cmd_set,
	[VERB_START] = cmd_move,
	[VERB_RM] = cmd_rm,
	[VERB_KILL] = cmd_kill,
	[VERB_PS] = cmd_ps,
	[VERB_INFO] = cmd_info,
	[VERB_LOGS] = cmd_logs,
	[VERB_EVENTS] = cmd_events,
	[VERB_NET] = cmd_net,
	[VERB_EVENTS_VERIFY] = cmd_events_verify,
	[VERB_EVENTS_RETENTION] = cmd_events_retention,
	[VERB_USAGE] = cmd_usage,
	[VERB_IMAGE_LS] = cmd_image_ls,
	[VERB_IMAGE_IMPORT] = cmd_image_import,
	[VERB_IMAGE_RM] = cmd_image_rm,
	[VERB_MAIL_LS] = cmd_mail_ls,
	[VERB_MAIL_SHOW] = cmd_mail_show,
	[VERB_POLICY_CHECK] = cmd_policy_check,
	[VERB_POLICY_SHOW] = cmd_policy_show,
	[VERB_POLICY_SET] = cmd_policy_set,
	[VERB_POLICY_EXPLAIN] = cmd_policy_explain,
	[VERB_POLICY_PRESETS] = cmd_policy_presets,
	[VERB_SECRET_SET] = cmd_secret_set,
	[VERB_SECRET_LS] = cmd_secret_ls,
	[VERB_SECRET_RM] = cmd_secret_rm,
	[VERB_STORAGE_INIT] = cmd_storage,
	[VERB_STORAGE_INFO] = cmd_storage,
	[VERB_DOCTOR] = cmd_doctor,
	[VERB_PRUNE] = cmd_prune,
	[VERB_COMPLETION] = cmd_completion,
	[VERB_SHUTDOWN] = cmd_shutdown,
	[VERB_VERSION] = cmd_version,
	[VERB_HELP] = cmd_help,
};

static int unknown_verb(struct cli *cli, const char *word)
{
	const char *near = cli_verb_near(word), *instead = cli_lacks(word);

	if (instead != NULL)
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_UNSUPPORTED, "%s: not in this version", word),
			"%s", instead);
	if (word[0] == '-')
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_USAGE, "the verb comes first, then '%s'", word),
			"cay VERB [OPTION]…; cay help lists the verbs");
	(void)err_raise(&cli->err, ERR_USAGE, "'%s' is no verb of cay", word);
	return near != NULL ? err_hint(&cli->err, -EINVAL, "did you mean: cay %s", near)
			    : err_hint(&cli->err, -EINVAL, "cay help lists them all");
}

/* "image" alone: the verbs that begin so. */
static int half_verb(struct cli *cli, const char *word)
{
	struct buf list = BUF_INIT(400);
	size_t n = strlen(word);

	for (unsigned int v = 0; v < VERB_COUNT_; v++) {
		const char *words = cli_verbs[v].words;

		if (strncmp(words, word, n) == 0 && words[n] == ' ')
			buf_fmt(&list, "%scay %s", list.n > 0 ? ", " : "", words);
	}
	if (list.n == 0)
		return unknown_verb(cli, word);
	(void)err_raise(&cli->err, ERR_USAGE, "'%s' is the beginning of a verb", word);
	(void)err_hint(&cli->err, 0, "%s", buf_cstr(&list));
	buf_free(&list);
	return -EINVAL;
}

/* As far as it can be told before all is understood. */
static bool asks_json(int argc, char **argv)
{
	for (int i = 0; i < argc && !str_eq(argv[i], "--"); i++) {
		if (str_eq(argv[i], "--json"))
			return true;
	}
	return false;
}

static int print_help(struct cli *cli)
{
	struct buf out = BUF_INIT(1U << 16);

	cli_help_verb(&out, cli->args.verb);
	return cli_print(cli, &out);
}

static int run_verb(struct cli *cli, int argc, char **argv)
{
	int words, rc;

	cli->args.verb = cli_verb_find(argc, argv, &words);
	if (cli->args.verb == VERB_COUNT_)
		return half_verb(cli, argv[0]);
	rc = cli_args_parse(&cli->args, argc - words, argv + words, &cli->err);
	if (rc < 0)
		return rc;
	cli->json =
		cli_args_has(&cli->args, FLAG_JSON); /* one behind a command's name is its own */
	if (cli_args_has(&cli->args, FLAG_HELP))
		return print_help(cli);
	return commands[cli->args.verb](cli);
}

static int overview(struct cli *cli)
{
	struct buf out = BUF_INIT(1U << 16);

	cli_help_all(&out);
	return cli_print(cli, &out);
}

/* The seed of jansson's hash tables from what the kernel gave every process; else it opens /dev/urandom. */
static void seed_tables(void)
{
	const char *random = (const char *)getauxval(AT_RANDOM);
	size_t seed = 0;

	if (random != NULL)
		memcpy(&seed, random, sizeof(seed));
	json_object_seed(seed);
}

/* A standard stream that is closed is nothing: else the connection to the server would take its place. */
static void fill_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", O_RDWR | O_CLOEXEC); /* the lowest that is free */
	}
}

/* NO_COLOR: no-color.org. */
static void find_terminals(struct cli *cli)
{
	const char *none = getenv("NO_COLOR");
	bool wanted = none == NULL || none[0] == '\0';

	cli->watched = isatty(STDOUT_FILENO);
	cli->talk = isatty(STDERR_FILENO);
	cli->colour = cli->watched && wanted;
	cli->talk_colour = cli->talk && wanted;
}

int main(int argc, char **argv)
{
	static struct cli cli = { .build = CAY_BUILD };
	int rc;

	fill_streams();
	(void)signal(SIGCHLD, SIG_DFL); /* whoever ignores it has its programs ignore it, too */
	seed_tables();
	find_terminals(&cli);
	if (argc < 2 || str_eq(argv[1], "--help") || str_eq(argv[1], "-h")) {
		rc = overview(&cli);
		return argc < 2 ? err_code_exit(ERR_USAGE) : rc < 0 ? cli_print_error(&cli) : 0;
	}
	cli.json = asks_json(argc - 1, argv + 1);
	if (str_eq(argv[1], "--version"))
		rc = cmd_version(&cli);
	else
		rc = run_verb(&cli, argc - 1, argv + 1);
	rc = cli_written(&cli, rc);
	if (rc < 0)
		rc = cli_print_error(&cli);
	cli_fini(&cli);
	return rc;
}
