/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/cli_help.h"
#include "base/str.h"

#define COLUMN 26

/* Columns that UTF-8 text takes, where no character is wide: our own texts. */
static size_t columns(const char *s)
{
	size_t n = 0;

	for (; *s != '\0'; s++)
		n += ((unsigned char)*s & 0xC0) != 0x80;
	return n;
}

static void pad(struct buf *out, size_t from, size_t to)
{
	for (; from < to; from++)
		buf_char(out, ' ');
}

void cli_help_all(struct buf *out)
{
	buf_str(out,
		"cay: a world that a program may break: isolated, snapshotted, forked, diffed, applied\n\n"
		"usage: cay VERB [OPTION]… [ARGUMENT]…\n");
	for (unsigned int g = 0; g < GROUP_COUNT_; g++) {
		buf_fmt(out, "\n%s\n", cli_groups[g]);
		for (unsigned int v = 0; v < VERB_COUNT_; v++) {
			const struct cli_verb_row *row = &cli_verbs[v];

			if (row->group != (enum cli_group)g)
				continue;
			buf_fmt(out, "  %s", row->words);
			pad(out, columns(row->words) + 2, 20);
			buf_fmt(out, "%s\n", row->summary);
		}
	}
	buf_str(out,
		"\ncay VERB --help explains one with examples. Begin with: cay run -- COMMAND\n");
}

static void flag_text(struct buf *out, const struct cli_flag_row *row)
{
	if (row->letter != 0)
		buf_fmt(out, "-%c, ", row->letter);
	else
		buf_str(out, "    ");
	buf_fmt(out, "--%s", row->name);
	if (row->value != NULL)
		buf_fmt(out, " %s", row->value);
}

/* Words of @text, wrapped at 100 columns, every line but the first indented. */
static void wrap(struct buf *out, const char *text, size_t indent)
{
	size_t at = indent;

	for (const char *p = text; *p != '\0';) {
		size_t n = strcspn(p, " ");

		if (at > indent && at + n + 1 > 100) {
			buf_char(out, '\n');
			pad(out, 0, indent);
			at = indent;
		}
		if (at > indent) {
			buf_char(out, ' ');
			at++;
		}
		buf_add(out, p, n);
		at += n;
		p += n;
		p += *p == ' ';
	}
}

static void indented(struct buf *out, const char *text, const char *prefix)
{
	for (const char *p = text; *p != '\0';) {
		size_t n = strcspn(p, "\n");

		buf_fmt(out, "%s%.*s\n", prefix, (int)n, p);
		p += n;
		p += *p == '\n';
	}
}

void cli_help_verb(struct buf *out, enum cli_verb verb)
{
	const struct cli_verb_row *row = &cli_verbs[verb];

	buf_fmt(out, "usage: cay %s [OPTION]…%s%s\n\n%s.\n", row->words, *row->usage ? " " : "",
		row->usage, row->summary);
	if (*row->text != '\0')
		buf_fmt(out, "%s\n", row->text);
	buf_str(out, "\noptions:\n");
	for (unsigned int f = 0; f < FLAG_COUNT_; f++) {
		struct buf line = BUF_INIT(4096);
		size_t n;

		if (!cli_takes(verb, (enum cli_flag)f))
			continue;
		flag_text(&line, &cli_flags[f]);
		n = columns(buf_cstr(&line));
		buf_fmt(out, "  %s", buf_cstr(&line));
		if (n + 2 > COLUMN - 2) {
			buf_char(out, '\n');
			n = 0;
			pad(out, 0, COLUMN);
		} else {
			pad(out, n + 2, COLUMN);
		}
		wrap(out, cli_flags[f].help, COLUMN);
		buf_char(out, '\n');
		buf_free(&line);
	}
	buf_str(out, "\nexamples:\n");
	indented(out, row->examples, "  ");
}

static void markdown_verb(struct buf *out, enum cli_verb verb)
{
	const struct cli_verb_row *row = &cli_verbs[verb];

	buf_fmt(out, "\n## cay %s\n\n`cay %s [OPTION]…%s%s`\n\n%s.\n", row->words, row->words,
		*row->usage ? " " : "", row->usage, row->summary);
	if (*row->text != '\0')
		buf_fmt(out, "%s\n", row->text);
	buf_str(out, "\n| option | |\n|---|---|\n");
	for (unsigned int f = 0; f < FLAG_COUNT_; f++) {
		const struct cli_flag_row *flag = &cli_flags[f];

		if (!cli_takes(verb, (enum cli_flag)f) || f == FLAG_HELP || f == FLAG_JSON)
			continue;
		buf_char(out, '|');
		if (flag->letter != 0)
			buf_fmt(out, " `-%c`", flag->letter);
		buf_fmt(out, " `--%s", flag->name);
		for (const char *p = flag->value != NULL ? flag->value : ""; *p != '\0'; p++) {
			buf_str(out, p == flag->value ? " " : "");
			buf_str(out, *p == '|' ? "\\" : "");
			buf_char(out, *p);
		}
		buf_fmt(out, "` | %s |\n", flag->help);
	}
	buf_str(out, "| `-h` `--help`, `--json` | |\n\n```\n");
	buf_fmt(out, "%s\n```\n", row->examples);
}

void cli_help_markdown(struct buf *out)
{
	buf_str(out,
		"# The command line\n\n"
		"Made from `defs/cli.def` by `cay help --markdown`; a test compares the two.\n\n"
		"Every verb takes `--help`, and `--json`, which prints the API object unchanged (an error as one line of JSON on standard error).\n"
		"NAME is a sandbox's name, its id, or a unique beginning of the id, of 4 characters or more, that is no snapshot's name; SNAPSHOT likewise.\n"
		"`CAY_STATE`, `CAY_RUN` and `CAY_SOCKET` select the instance; the server is started when none runs, unless `CAY_START=0` is set.\n\n"
		"Exit status: the command's own for `run`, `exec` and `attach`; otherwise 0, or by the error's code (`defs/errors.def`):\n"
		"64 for a wrong command line, 124 for a timeout, 126 and 127 for a command that cannot be executed or is not there, 125 for the rest.\n"
		"`apply --dry-run` ends with 1 when the changes could not be applied as they are.\n");
	for (unsigned int v = 0; v < VERB_COUNT_; v++)
		markdown_verb(out, (enum cli_verb)v);
	buf_str(out, "\n## Not in this version\n\n| word | instead |\n|---|---|\n");
	for (size_t i = 0; cli_lacks_row(i) != NULL; i++)
		buf_fmt(out, "| `%s` | %s |\n", cli_lacks_row(i)->word, cli_lacks_row(i)->instead);
}
