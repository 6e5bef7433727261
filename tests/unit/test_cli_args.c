/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/cli_args.h"
#include "t.h"

#define WORDS(...) \
	((const char *[]){ __VA_ARGS__, NULL }), \
		(int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *))

static struct cli_args args;
static struct err err;

static int parse(enum cli_verb verb, const char **words, int n)
{
	/* What is parsed is looked at when the caller's array is gone. */
	static char **kept;

	free(kept);
	kept = xalloc(((size_t)n + 1) * sizeof(*kept));
	memcpy(kept, words, ((size_t)n + 1) * sizeof(*kept));
	args = (struct cli_args){ .verb = verb };
	err = (struct err){ 0 };
	return cli_args_parse(&args, n, kept, &err);
}

TEST(options_come_anywhere_before_the_command)
{
	size_t pos = 0;

	check_int(parse(VERB_RUN, WORDS("-it", "host", "--env", "A=1", "-eB=2", "--env=C", "--rm",
					  "--", "ls", "--rm", "-x")),
		0);
	check(cli_args_has(&args, FLAG_TTY) && cli_args_has(&args, FLAG_INTERACTIVE));
	check(cli_args_has(&args, FLAG_RM));
	check_int(args.n_positional, 1);
	check_str(args.positional[0], "host");
	check_str(args.command[0], "ls");
	check_str(args.command[2], "-x");
	check_str(cli_args_next(&args, FLAG_ENV, &pos), "A=1");
	check_str(cli_args_next(&args, FLAG_ENV, &pos), "B=2");
	check_str(cli_args_next(&args, FLAG_ENV, &pos), "C");
	check(cli_args_next(&args, FLAG_ENV, &pos) == NULL);
	check_str(cli_args_value(&args, FLAG_ENV), "C");
}

TEST(exec_takes_the_command_with_and_without_dashes)
{
	check_int(parse(VERB_EXEC, WORDS("box", "ls", "-l")), 0);
	check_str(args.command[0], "ls");
	check_str(args.command[1], "-l");
	check_int(parse(VERB_EXEC, WORDS("-w", "/shop", "box", "--", "ls", "-l")), 0);
	check_str(cli_args_value(&args, FLAG_CWD), "/shop");
	check_str(args.command[0], "ls");
	check_int(parse(VERB_EXEC, WORDS("box", "--")), 0);
	check(args.command == NULL);
}

TEST(a_wrong_line_says_what_is_wrong)
{
	check(parse(VERB_IMAGE_IMPORT, WORDS("f.tar", "--name", "x")) < 0 && err.code == ERR_USAGE);
	check_str(err.hint, "NAME is an argument: cay image import FILE|DIR [NAME]");
	check(parse(VERB_RUN, WORDS("--no-such")) < 0 && err.code == ERR_USAGE);
	check(strstr(err.msg, "--no-such") != NULL && strstr(err.hint, "cay run --help") != NULL);
	check(parse(VERB_RUN, WORDS("--polcy=x")) < 0 && err.code == ERR_USAGE);
	check(strstr(err.msg, "--polcy=x") != NULL && strstr(err.hint, "--policy?") != NULL);
	check(parse(VERB_RUN, WORDS("--volume", ".")) < 0 && strstr(err.hint, "--mount?") != NULL);
	check(parse(VERB_RUN, WORDS("-v", ".")) < 0 && strstr(err.hint, "--mount?") != NULL);
	check(parse(VERB_PS, WORDS("--volume")) < 0 && strstr(err.hint, "mean") == NULL);
	check(parse(VERB_RUN, WORDS("-z")) < 0 && err.code == ERR_USAGE);
	check(parse(VERB_RUN, WORDS("--rm=yes")) < 0 && err.code == ERR_USAGE);
	check(parse(VERB_RUN, WORDS("--name")) < 0 && err.code == ERR_USAGE);
	check(parse(VERB_RUN, WORDS("-m")) < 0 && err.code == ERR_USAGE);
	check(parse(VERB_RUN, WORDS("python3", "x.py")) < 0 && err.code == ERR_USAGE);
	check(strstr(err.msg, "--") != NULL);
	check(parse(VERB_EXEC, WORDS("-d")) < 0 && err.code == ERR_USAGE);
	check(parse(VERB_REWIND, WORDS("a", "b", "c")) < 0 && err.code == ERR_USAGE);
	check(parse(VERB_REWIND, WORDS("a")) < 0 && err.code == ERR_USAGE);
	check(parse(VERB_PS, WORDS("--rm")) < 0 && err.code == ERR_USAGE);
}

TEST(what_the_version_lacks_is_known)
{
	check(cli_lacks("stub") != NULL && cli_lacks("run") == NULL);
}

TEST(help_is_given_whatever_else_is_wrong)
{
	check_int(parse(VERB_REWIND, WORDS("--help")), 0);
	check_int(parse(VERB_REWIND, WORDS("-h", "--no-such")), 0);
	check(cli_args_has(&args, FLAG_HELP));
}

TEST(dashes_make_options_arguments)
{
	check_int(parse(VERB_RM, WORDS("--", "-f")), 0);
	check_str(args.positional[0], "-f");
	check(!cli_args_has(&args, FLAG_FORCE));
	check_int(parse(VERB_CP, WORDS("box:/x", "-")), 0);
	check_str(args.positional[1], "-");
}

TEST(no_line_is_too_long_to_refuse)
{
	static const char *words[5001];

	for (size_t i = 0; i < 5000; i++)
		words[i] = "--rm";
	check(parse(VERB_RUN, words, 5000) < 0 && err.code == ERR_USAGE);
	for (size_t i = 0; i < 5000; i++)
		words[i] = "x";
	check(parse(VERB_RM, words, 5000) < 0 && err.code == ERR_USAGE);
}

static enum cli_verb find(const char **words, int n)
{
	int used;
	enum cli_verb verb = cli_verb_find(n, (char **)(uintptr_t)words, &used);

	check(verb == VERB_COUNT_ || (used >= 1 && used <= 2));
	return verb;
}

TEST(verbs_are_found_and_guessed)
{
	check_int(find(WORDS("image", "ls")), VERB_IMAGE_LS);
	check_int(find(WORDS("events", "box")), VERB_EVENTS);
	check_int(find(WORDS("events", "verify")), VERB_EVENTS_VERIFY);
	check_int(find(WORDS("image")), VERB_COUNT_);
	check_str(cli_verb_near("snapshto"), "snapshot");
	check_str(cli_verb_near("rnu"), "run");
	check_str(cli_verb_near("list"), "ps");
	check(cli_verb_near("flabbergasted") == NULL);
}
