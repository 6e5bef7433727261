/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/cli_table.h"
#include "base/str.h"

const struct cli_flag_row cli_flags[FLAG_COUNT_] = {
#define FLAG(id, letter, name, value, complete, help) \
	[FLAG_##id] = { letter, name, value, COMPLETE_##complete, help },
#include "cli.def"
};

const struct cli_verb_row cli_verbs[VERB_COUNT_] = {
#define VERB(id, words, group, usage, min, max, complete, command, summary, text, examples) \
	[VERB_##id] = { #id, words, GROUP_##group, usage, min, max, COMPLETE_##complete, \
		COMMAND_##command, summary, text, examples },
#include "cli.def"
};

const char *const cli_groups[GROUP_COUNT_] = {
	[GROUP_RUN] = "Run commands",
	[GROUP_STATE] = "Keep, fork and bring back state",
	[GROUP_LIFE] = "Sandboxes' lives",
	[GROUP_LOOK] = "Look",
	[GROUP_MACHINE] = "This machine",
};

static const bool takes[VERB_COUNT_][FLAG_COUNT_] = {
#define TAKES(verb, flag) [VERB_##verb][FLAG_##flag] = true,
#include "cli.def"
};

static const struct cli_sets_row sets[] = {
#define SETS(flag, member) { FLAG_##flag, member },
#include "cli.def"
};

static const struct cli_lacks_row lacks[] = {
#define LACKS(word, instead) { word, instead },
#include "cli.def"
};

bool cli_takes(enum cli_verb verb, enum cli_flag flag)
{
	return flag == FLAG_HELP || flag == FLAG_JSON || takes[verb][flag];
}

const struct cli_sets_row *cli_sets_row(size_t i)
{
	return i < ARRAY_SIZE(sets) ? &sets[i] : NULL;
}

const struct cli_lacks_row *cli_lacks_row(size_t i)
{
	return i < ARRAY_SIZE(lacks) ? &lacks[i] : NULL;
}

const char *cli_lacks(const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(lacks); i++) {
		if (str_eq(lacks[i].word, word))
			return lacks[i].instead;
	}
	return NULL;
}

/* Does @argv begin with the words of @verb? How many words, or 0. */
static int match_words(const char *words, int argc, char *const *argv)
{
	const char *space = strchr(words, ' ');
	size_t n;

	if (space == NULL)
		return argc >= 1 && str_eq(argv[0], words) ? 1 : 0;
	n = (size_t)(space - words);
	if (argc < 2 || strncmp(argv[0], words, n) != 0 || argv[0][n] != '\0')
		return 0;
	return str_eq(argv[1], space + 1) ? 2 : 0;
}

enum cli_verb cli_verb_find(int argc, char *const *argv, int *ret_words)
{
	enum cli_verb found = VERB_COUNT_;

	*ret_words = 0;
	for (unsigned int v = 0; v < VERB_COUNT_; v++) {
		int n = match_words(cli_verbs[v].words, argc, argv);

		if (n > *ret_words) {
			*ret_words = n;
			found = (enum cli_verb)v;
		}
	}
	return found;
}

#define WORD_MAX 32

/* Edit distance with swaps of neighbours (optimal string alignment); words over WORD_MAX are far from everything. */
static unsigned int distance(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);
	unsigned int d[WORD_MAX + 1][WORD_MAX + 1];

	if (n > WORD_MAX || m > WORD_MAX)
		return WORD_MAX;
	for (size_t i = 0; i <= n; i++) {
		for (size_t j = 0; j <= m; j++) {
			unsigned int best;

			if (i == 0 || j == 0) {
				d[i][j] = (unsigned int)(i + j);
				continue;
			}
			best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
			if (d[i - 1][j] + 1 < best)
				best = d[i - 1][j] + 1;
			if (d[i][j - 1] + 1 < best)
				best = d[i][j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
				d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	}
	return d[n][m];
}

const char *cli_verb_near(const char *word)
{
	/* What people of other tools type. */
	static const char *const habits[][2] = { { "ls", "ps" }, { "list", "ps" },
		{ "delete", "rm" }, { "remove", "rm" }, { "shell", "exec" }, { "inspect", "info" },
		{ "show", "info" }, { "log", "logs" }, { "commit", "snapshot" }, { "copy", "cp" },
		{ "restore", "rewind" }, { "clone", "fork" }, { "unpause", "resume" },
		{ "images", "image ls" }, { "status", "ps" } };
	const char *near = NULL;
	unsigned int best = strlen(word) > 4 ? 3 : 2;

	for (size_t i = 0; i < ARRAY_SIZE(habits); i++) {
		if (str_eq(word, habits[i][0]))
			return habits[i][1];
	}
	for (unsigned int v = 0; v < VERB_COUNT_; v++) {
		unsigned int d = distance(word, cli_verbs[v].words);

		if (d < best) {
			best = d;
			near = cli_verbs[v].words;
		}
	}
	return near;
}

const char *cli_flag_near(enum cli_verb verb, const char *name, size_t n)
{
	/* What people of other tools type. */
	static const char *const habits[][2] = { { "volume", "mount" }, { "v", "mount" },
		{ "bind", "mount" }, { "workdir", "cwd" }, { "chdir", "cwd" }, { "setenv", "env" },
		{ "network", "policy" }, { "net", "allow" }, { "background", "detach" },
		{ "pids-limit", "pids" }, { "f", "follow" } };
	cleanup_free char *word = str_dupf("%.*s", (int)n, name);
	unsigned int best = n > 4 ? 3 : 2;
	const char *near = NULL;

	for (unsigned int f = 0; f < FLAG_COUNT_; f++) {
		const char *flag = cli_flags[f].name;
		unsigned int d = distance(word, flag);

		if (!cli_takes(verb, (enum cli_flag)f))
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(habits); i++) {
			if (str_eq(word, habits[i][0]) && str_eq(flag, habits[i][1]))
				return flag;
		}
		if (d < best) {
			best = d;
			near = flag;
		}
	}
	return near;
}
