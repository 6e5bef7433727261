/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cli_help.h"

/* Who presses a key wants no server started. */
#define ASK "env CAY_START=0 cay "

/* The shell command that lists what an argument may be; NULL when the shell itself knows (files) or nobody does. */
static const char *candidates(enum cli_complete complete)
{
	switch (complete) {
	case COMPLETE_SANDBOX:
		return ASK "ps -aq 2>/dev/null";
	case COMPLETE_SNAPSHOT:
		return ASK "snapshots -q 2>/dev/null";
	case COMPLETE_SANDBOX_OR_SNAPSHOT:
		return ASK "ps -aq 2>/dev/null; " ASK "snapshots -q 2>/dev/null";
	case COMPLETE_IMAGE:
		return ASK "image ls -q 2>/dev/null";
	case COMPLETE_PROFILE:
		return "printf '%s\\n' default strict debug";
	case COMPLETE_SHELL:
		return "printf '%s\\n' bash zsh fish";
	case COMPLETE_VERB:
		return "cay help 2>/dev/null | sed -n 's/^  \\([a-z]*\\).*/\\1/p'";
	case COMPLETE_NONE:
	case COMPLETE_NOTHING:
	case COMPLETE_FILE:
	case COMPLETE_DIRECTORY:
		return NULL;
	}
	return NULL;
}

static void flag_words(struct buf *out, enum cli_verb verb)
{
	for (unsigned int f = 0; f < FLAG_COUNT_; f++) {
		if (cli_takes(verb, (enum cli_flag)f))
			buf_fmt(out, " --%s", cli_flags[f].name);
	}
}

/* Length of the first word of @verb. */
static size_t first_word(unsigned int verb)
{
	return strcspn(cli_verbs[verb].words, " ");
}

static bool same_first_word(unsigned int a, unsigned int b)
{
	size_t n = first_word(a);

	return first_word(b) == n && memcmp(cli_verbs[a].words, cli_verbs[b].words, n) == 0;
}

/* Is no verb before @verb in the table of the same first word? */
static bool begins_word(unsigned int verb)
{
	for (unsigned int v = 0; v < verb; v++) {
		if (same_first_word(v, verb))
			return false;
	}
	return true;
}

/* First words of all verbs, each once. */
static void verb_words(struct buf *out)
{
	for (unsigned int v = 0; v < VERB_COUNT_; v++) {
		if (begins_word(v))
			buf_fmt(out, " %.*s", (int)first_word(v), cli_verbs[v].words);
	}
}

/* What may follow the first word of each verb that has two: "    events) list=' verify retention' ;;". */
static void second_words(struct buf *out)
{
	for (unsigned int first = 0; first < VERB_COUNT_; first++) {
		struct buf words = BUF_INIT(4096);

		for (unsigned int v = first; v < VERB_COUNT_ && begins_word(first); v++) {
			if (same_first_word(first, v) && strchr(cli_verbs[v].words, ' ') != NULL)
				buf_str(&words, strchr(cli_verbs[v].words, ' '));
		}
		if (words.n > 0)
			buf_fmt(out, "    %.*s) list='%s' ;;\n", (int)first_word(first),
				cli_verbs[first].words, buf_cstr(&words));
		buf_free(&words);
	}
}

/* The verbs of two words, as alternatives of a shell pattern. */
static void two_word_pattern(struct buf *out)
{
	const char *between = "";

	for (unsigned int v = 0; v < VERB_COUNT_; v++) {
		if (strchr(cli_verbs[v].words, ' ') == NULL)
			continue;
		buf_fmt(out, "%s'%s'", between, cli_verbs[v].words);
		between = "|";
	}
}

/* What the value of each option may be, told by the option before it; of most nobody knows, and no argument of the verb is one. */
static void value_cases(struct buf *out)
{
	for (unsigned int f = 0; f < FLAG_COUNT_; f++) {
		const struct cli_flag_row *flag = &cli_flags[f];
		const char *how = candidates(flag->complete);

		if (flag->value == NULL)
			continue;
		buf_fmt(out, "    --%s", flag->name);
		if (flag->letter != 0)
			buf_fmt(out, "|-%c", flag->letter);
		buf_str(out, ") ");
		if (flag->complete == COMPLETE_DIRECTORY)
			buf_str(out, "COMPREPLY=($(compgen -d -- \"$cur\")); ");
		else if (flag->complete == COMPLETE_FILE)
			buf_str(out, "COMPREPLY=($(compgen -f -- \"$cur\")); ");
		else if (how != NULL)
			buf_fmt(out, "COMPREPLY=($(compgen -W \"$(%s)\" -- \"$cur\")); ", how);
		else
			buf_str(out, "COMPREPLY=(); ");
		buf_str(out, "return ;;\n");
	}
}

static void complete_bash(struct buf *out)
{
	buf_str(out,
		"# bash completion of cay; source it\n_cay() {\n"
		"  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} flags= list=\n"
		"  local i; for ((i = 1; i < COMP_CWORD; i++)); do\n"
		"    [[ ${COMP_WORDS[i]} == -- ]] && { COMPREPLY=($(compgen -c -f -- \"$cur\")); return; }\n  done\n"
		"  if ((COMP_CWORD == 1)); then COMPREPLY=($(compgen -W '");
	verb_words(out);
	buf_str(out, "' -- \"$cur\")); return; fi\n  case $prev in\n");
	value_cases(out);
	buf_str(out, "  esac\n"
		     "  ((COMP_CWORD > 2)) && case \"$verb ${COMP_WORDS[2]}\" in ");
	two_word_pattern(out);
	buf_str(out, ") verb=\"$verb ${COMP_WORDS[2]}\" ;; esac\n"
		     "  [[ $cur != -* ]] && ((COMP_CWORD == 2)) && case $verb in\n");
	second_words(out);
	buf_str(out, "  esac\n  case $verb in\n");
	for (unsigned int v = 0; v < VERB_COUNT_; v++) {
		const char *how = candidates(cli_verbs[v].complete);

		buf_fmt(out, "    '%s') flags='", cli_verbs[v].words);
		flag_words(out, (enum cli_verb)v);
		buf_str(out, "'");
		if (how != NULL)
			buf_fmt(out, "; [[ $cur == -* ]] || list+=\" $(%s)\"", how);
		else if (cli_verbs[v].complete == COMPLETE_FILE)
			buf_str(out,
				"; [[ $cur == -* ]] || { COMPREPLY=($(compgen -f -- \"$cur\")); return; }");
		buf_str(out, " ;;\n");
	}
	buf_str(out,
		"  esac\n  if [[ $cur == -* ]]; then list=$flags; fi\n"
		"  COMPREPLY=($(compgen -W \"$list\" -- \"$cur\"))\n}\ncomplete -o default -F _cay cay\n");
}

static void complete_zsh(struct buf *out)
{
	/* zsh runs bash completions faithfully; one script to keep right. */
	buf_str(out, "#compdef cay\nautoload -U +X bashcompinit && bashcompinit\n");
	complete_bash(out);
	/* From a directory of functions it is run only when the first key is pressed, which wants to be answered. */
	buf_str(out, "[[ ${funcstack[1]-} != _cay ]] || _bash_complete -o default -F _cay\n");
}

/* Text between single quotes of fish. */
static void fish_quote(struct buf *out, const char *s)
{
	buf_char(out, '\'');
	for (; *s != '\0'; s++) {
		if (*s == '\'' || *s == '\\')
			buf_char(out, '\\');
		buf_char(out, *s);
	}
	buf_char(out, '\'');
}

/* The condition under which a line of @verb holds. */
static void fish_condition(struct buf *out, const struct cli_verb_row *row)
{
	const char *space = strchr(row->words, ' ');

	buf_str(out, " -n '__fish_seen_subcommand_from ");
	if (space == NULL)
		buf_fmt(out, "%s'", row->words);
	else
		buf_fmt(out, "%.*s; and __fish_seen_subcommand_from %s'", (int)(space - row->words),
			row->words, space + 1);
}

static void fish_verb(struct buf *out, enum cli_verb verb)
{
	const struct cli_verb_row *row = &cli_verbs[verb];
	const char *space = strchr(row->words, ' '), *how = candidates(row->complete);

	if (space == NULL)
		buf_fmt(out, "complete -c cay -n __fish_use_subcommand -a %s -d ", row->words);
	else
		buf_fmt(out, "complete -c cay -n '__fish_seen_subcommand_from %.*s' -a %s -d ",
			(int)(space - row->words), row->words, space + 1);
	fish_quote(out, row->summary);
	buf_char(out, '\n');
	for (unsigned int f = 0; f < FLAG_COUNT_; f++) {
		const struct cli_flag_row *flag = &cli_flags[f];

		if (!cli_takes(verb, (enum cli_flag)f))
			continue;
		buf_str(out, "complete -c cay");
		fish_condition(out, row);
		buf_fmt(out, " -l %s", flag->name);
		if (flag->letter != 0)
			buf_fmt(out, " -s %c", flag->letter);
		if (flag->value != NULL)
			buf_str(out, flag->complete == COMPLETE_DIRECTORY ? " -rF" : " -x");
		buf_str(out, " -d ");
		fish_quote(out, flag->help);
		buf_char(out, '\n');
	}
	if (how != NULL) {
		cleanup_free char *call = str_dupf("(%s)", how);

		buf_str(out, "complete -c cay");
		fish_condition(out, row);
		buf_str(out, " -a ");
		fish_quote(out, call);
		buf_char(out, '\n');
	} else if (row->complete == COMPLETE_FILE) {
		buf_str(out, "complete -c cay");
		fish_condition(out, row);
		buf_str(out, " -F\n");
	}
}

static void complete_fish(struct buf *out)
{
	buf_str(out, "# fish completion of cay\ncomplete -c cay -f\n");
	for (unsigned int v = 0; v < VERB_COUNT_; v++)
		fish_verb(out, (enum cli_verb)v);
	buf_str(out, "complete -c cay -n __fish_use_subcommand -a image -d images\n"
		     "complete -c cay -n __fish_use_subcommand -a storage -d 'the storage pool'\n");
}

int cli_completion(struct buf *out, const char *shell)
{
	if (str_eq(shell, "bash"))
		complete_bash(out);
	else if (str_eq(shell, "zsh"))
		complete_zsh(out);
	else if (str_eq(shell, "fish"))
		complete_fish(out);
	else
		return -EINVAL;
	return 0;
}
