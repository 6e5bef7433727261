/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/cli_args.h"
#include "base/str.h"

static int refuse(const struct cli_args *args, struct err *err, const char *word, const char *what)
{
	return err_hint(err, err_raise(err, ERR_USAGE, "%s %s", what, word), "see cay %s --help",
		cli_verbs[args->verb].words);
}

static int refuse_unknown(
	const struct cli_args *args, struct err *err, const char *word, const char *name, size_t n)
{
	const char *near = cli_flag_near(args->verb, name, n);
	int rc = refuse(args, err, word, "unknown option");

	/* of other verbs it is one */
	if (n == 4 && memcmp(name, "name", n) == 0 &&
		strstr(cli_verbs[args->verb].usage, "NAME") != NULL)
		return err_hint(err, rc, "NAME is an argument: cay %s %s",
			cli_verbs[args->verb].words, cli_verbs[args->verb].usage);
	return near == NULL ? rc
			    : err_hint(err, rc, "did you mean --%s? See cay %s --help", near,
				      cli_verbs[args->verb].words);
}

static int add_option(struct cli_args *args, enum cli_flag flag, const char *value, struct err *err)
{
	if (args->n_options == CLI_OPTIONS_MAX)
		return err_raise(err, ERR_USAGE, "more than %d options", CLI_OPTIONS_MAX);
	/* JSON would leave it out; a policy may be a file, whatever its name */
	if (value != NULL && flag != FLAG_POLICY && !str_utf8_valid(value, strlen(value)))
		return err_raise(
			err, ERR_USAGE, "--%s '%s': not valid UTF-8", cli_flags[flag].name, value);
	args->options[args->n_options++] = (struct cli_option){ flag, value };
	return 0;
}

static enum cli_flag find_long(enum cli_verb verb, const char *name, size_t n)
{
	for (unsigned int f = 0; f < FLAG_COUNT_; f++) {
		if (strlen(cli_flags[f].name) == n && memcmp(cli_flags[f].name, name, n) == 0 &&
			cli_takes(verb, (enum cli_flag)f))
			return (enum cli_flag)f;
	}
	return FLAG_COUNT_;
}

static enum cli_flag find_letter(enum cli_verb verb, char letter)
{
	for (unsigned int f = 0; f < FLAG_COUNT_; f++) {
		if (cli_flags[f].letter == letter && cli_takes(verb, (enum cli_flag)f))
			return (enum cli_flag)f;
	}
	return FLAG_COUNT_;
}

/* "--name", "--name=VALUE", "--name VALUE". Return: words used beyond the first, or negative. */
static int parse_long(struct cli_args *args, const char *word, const char *next, struct err *err)
{
	const char *name = word + 2, *equals = strchr(name, '=');
	size_t n = equals != NULL ? (size_t)(equals - name) : strlen(name);
	enum cli_flag flag = find_long(args->verb, name, n);
	int rc;

	if (flag == FLAG_COUNT_)
		return refuse_unknown(args, err, word, name, n);
	if (cli_flags[flag].value == NULL)
		return equals != NULL ? refuse(args, err, word, "no value is taken by")
				      : add_option(args, flag, NULL, err);
	if (equals != NULL)
		return add_option(args, flag, equals + 1, err);
	if (next == NULL)
		return refuse(args, err, word, "a value is missing after");
	rc = add_option(args, flag, next, err);
	return rc < 0 ? rc : 1;
}

/* "-it", "-n3", "-n 3". Return as parse_long(). */
static int parse_letters(struct cli_args *args, const char *word, const char *next, struct err *err)
{
	for (const char *p = word + 1; *p != '\0'; p++) {
		enum cli_flag flag = find_letter(args->verb, *p);
		int rc;

		if (flag == FLAG_COUNT_)
			return refuse_unknown(args, err, word, p, 1);
		if (cli_flags[flag].value == NULL) {
			rc = add_option(args, flag, NULL, err);
			if (rc < 0)
				return rc;
			continue;
		}
		if (p[1] != '\0')
			return add_option(args, flag, p + 1, err);
		if (next == NULL)
			return refuse(args, err, word, "a value is missing after");
		rc = add_option(args, flag, next, err);
		return rc < 0 ? rc : 1;
	}
	return 0;
}

static int check_counts(const struct cli_args *args, struct err *err)
{
	const struct cli_verb_row *verb = &cli_verbs[args->verb];

	if (args->n_positional < verb->min)
		return err_hint(err, err_raise(err, ERR_USAGE, "an argument is missing"),
			"usage: cay %s [OPTION]… %s", verb->words, verb->usage);
	if (verb->command == COMMAND_DASHES && args->command == NULL && args->n_positional > 1)
		return err_hint(err,
			err_raise(err, ERR_USAGE, "where does the command begin? Put -- before it"),
			"cay %s -- %s …", verb->words, args->positional[0]);
	if (args->n_positional > verb->max && verb->command == COMMAND_PATHS)
		return err_hint(err,
			err_raise(err, ERR_USAGE, "one argument too many: %s",
				args->positional[verb->max]),
			"paths come behind --: cay %s %s -- %s", verb->words, args->positional[0],
			args->positional[verb->max]);
	if (args->n_positional > verb->max)
		return refuse(args, err, args->positional[verb->max], "one argument too many:");
	return 0;
}

int cli_args_parse(struct cli_args *args, int argc, char **argv, struct err *err)
{
	const struct cli_verb_row *verb = &cli_verbs[args->verb];
	bool plain = false; /* after "--" nothing is an option */

	for (int i = 0; i < argc; i++) {
		const char *word = argv[i];
		int rc;

		if (str_eq(word, "--") && verb->command != COMMAND_NONE) {
			args->command = i + 1 < argc || verb->command == COMMAND_PATHS
						? argv + i + 1
						: NULL;
			break;
		}
		if (str_eq(word, "--") && !plain) {
			plain = true;
			continue;
		}
		if (!plain && word[0] == '-' && word[1] != '\0') {
			rc = word[1] == '-' ? parse_long(args, word, argv[i + 1], err)
					    : parse_letters(args, word, argv[i + 1], err);
			if (rc < 0)
				return rc;
			i += rc;
			if (cli_args_has(args, FLAG_HELP))
				return 0;
			continue;
		}
		if (verb->command == COMMAND_REST && args->n_positional == verb->max) {
			args->command = argv + i;
			break;
		}
		if (*word == '\0')
			return err_hint(err, err_raise(err, ERR_USAGE, "an argument is empty"),
				"usage: cay %s [OPTION]… %s", verb->words, verb->usage);
		if (args->n_positional == CLI_POSITIONALS_MAX)
			return err_raise(
				err, ERR_USAGE, "more than %d arguments", CLI_POSITIONALS_MAX);
		args->positional[args->n_positional++] = word;
	}
	return check_counts(args, err);
}

bool cli_args_has(const struct cli_args *args, enum cli_flag flag)
{
	for (size_t i = 0; i < args->n_options; i++) {
		if (args->options[i].flag == flag)
			return true;
	}
	return false;
}

const char *cli_args_value(const struct cli_args *args, enum cli_flag flag)
{
	const char *value = NULL;

	for (size_t i = 0; i < args->n_options; i++) {
		if (args->options[i].flag == flag)
			value = args->options[i].value;
	}
	return value;
}

const char *cli_args_next(const struct cli_args *args, enum cli_flag flag, size_t *pos)
{
	while (*pos < args->n_options) {
		const struct cli_option *option = &args->options[(*pos)++];

		if (option->flag == flag)
			return option->value;
	}
	return NULL;
}
