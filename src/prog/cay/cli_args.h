/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/cli_args.h - a command line, read against the tables of defs/cli.def. Pure. */
#ifndef CAY_PROG_CLI_ARGS_H
#define CAY_PROG_CLI_ARGS_H

#include "base/err.h"
#include "prog/cay/cli_table.h"

#define CLI_POSITIONALS_MAX 4096
#define CLI_OPTIONS_MAX     512

struct cli_option {
	enum cli_flag flag;
	const char *value; /* NULL for a switch */
};

/** struct cli_args - what was asked for; all text is borrowed from argv. */
struct cli_args {
	enum cli_verb verb;
	struct cli_option options[CLI_OPTIONS_MAX]; /* in the order given */
	size_t n_options;
	const char *positional[CLI_POSITIONALS_MAX];
	size_t n_positional;
	char **command; /* the command to run, NULL-terminated; NULL when there is none */
};

/**
 * cli_args_parse() - read what follows the verb.
 * @args: filled; @args->verb is set by the caller.
 * @argc, @argv: the words after the verb; argv[argc] is NULL.
 * @err:  %ERR_USAGE for an unknown flag, a missing or superfluous value or argument, %ERR_UNSUPPORTED for a flag that this version lacks.
 *
 * Asking for --help is not refused whatever else is wrong after it.
 * Return: 0 or a negative errno.
 */
int cli_args_parse(struct cli_args *args, int argc, char **argv, struct err *err) attr_must_use;

/** cli_args_has() - was @flag given? */
bool cli_args_has(const struct cli_args *args, enum cli_flag flag);

/** cli_args_value() - the last value of @flag, NULL when it was not given. */
const char *cli_args_value(const struct cli_args *args, enum cli_flag flag);

/** cli_args_next() - value of the next @flag from *@pos on (begin with 0); NULL when there is no more. */
const char *cli_args_next(const struct cli_args *args, enum cli_flag flag, size_t *pos);

#endif
