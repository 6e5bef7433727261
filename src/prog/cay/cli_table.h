/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/cli_table.h - the verbs and flags of defs/cli.def as C tables. */
#ifndef CAY_PROG_CLI_TABLE_H
#define CAY_PROG_CLI_TABLE_H

#include "base/attr.h"

enum cli_flag {
#define FLAG(id, letter, name, value, complete, help) FLAG_##id,
#include "cli.def"
	FLAG_COUNT_
};

enum cli_verb {
#define VERB(id, words, group, usage, min, max, complete, command, summary, text, examples) \
	VERB_##id,
#include "cli.def"
	VERB_COUNT_
};

enum cli_group { GROUP_RUN, GROUP_STATE, GROUP_LIFE, GROUP_LOOK, GROUP_MACHINE, GROUP_COUNT_ };

/* What a shell offers for a value or a positional argument. */
enum cli_complete {
	COMPLETE_NONE,
	COMPLETE_NOTHING,
	COMPLETE_FILE,
	COMPLETE_DIRECTORY,
	COMPLETE_SANDBOX,
	COMPLETE_SNAPSHOT,
	COMPLETE_SANDBOX_OR_SNAPSHOT,
	COMPLETE_IMAGE,
	COMPLETE_PROFILE,
	COMPLETE_SHELL,
	COMPLETE_VERB,
};

/* Where a command to run begins: nowhere; after "--"; after "--" or the last positional argument. PATHS: nowhere, paths come after "--". */
enum cli_command { COMMAND_NONE, COMMAND_DASHES, COMMAND_REST, COMMAND_PATHS };

struct cli_flag_row {
	char letter; /* 0 when there is none */
	const char *name;
	const char *value; /* placeholder; NULL for a switch */
	enum cli_complete complete;
	const char *help;
};

struct cli_verb_row {
	const char *id;
	const char *words; /* "events verify" */
	enum cli_group group;
	const char *usage;
	unsigned int min, max; /* positional arguments */
	enum cli_complete complete;
	enum cli_command command;
	const char *summary, *text, *examples;
};

struct cli_sets_row {
	enum cli_flag flag;
	const char *member;
};

struct cli_lacks_row {
	const char *word;
	const char *instead;
};

extern const struct cli_flag_row cli_flags[FLAG_COUNT_];
extern const struct cli_verb_row cli_verbs[VERB_COUNT_];
extern const char *const cli_groups[GROUP_COUNT_];

/** cli_takes() - does @verb take @flag? */
bool cli_takes(enum cli_verb verb, enum cli_flag flag);

/** cli_sets_row() - row @i of the members that flags set; NULL past the end. */
const struct cli_sets_row *cli_sets_row(size_t i);

/** cli_lacks() - what to use instead of a verb that this version lacks; NULL for any other word. Static. */
const char *cli_lacks(const char *word);

/** cli_lacks_row() - row @i of the words that are lacking; NULL past the end. */
const struct cli_lacks_row *cli_lacks_row(size_t i);

/**
 * cli_verb_find() - the verb that @argv begins with; two words ("image ls") win over one.
 * @ret_words: set to how many words it has.
 * Return: the verb, or %VERB_COUNT_ when there is none.
 */
enum cli_verb cli_verb_find(int argc, char *const *argv, int *ret_words);

/** cli_verb_near() - the verb whose spelling is nearest to @word; NULL when none is near. Static. */
const char *cli_verb_near(const char *word);

/** cli_flag_near() - the flag of @verb whose spelling is nearest to the @n characters @name ("polcy", without dashes); NULL when none is near. Static. */
const char *cli_flag_near(enum cli_verb verb, const char *name, size_t n);

#endif
