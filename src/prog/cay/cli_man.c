/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay/cli_man.c - the manual page cay(1), from defs/cli.def. Source of the macros: groff_man(7). */
#include "base/str.h"
#include "prog/cay/cli_help.h"
#include "prog/cay/cli_table.h"

/* One character of valid UTF-8 beyond ASCII, by its number: every roff knows that form. Return: its size. */
static size_t roff_wide(struct buf *out, const char *p)
{
	const unsigned char *b = (const unsigned char *)p;
	size_t n = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : 2;
	unsigned int code = b[0] & (0xFFU >> (n + 1));

	for (size_t i = 1; i < n; i++)
		code = code << 6 | (b[i] & 0x3F);
	buf_fmt(out, "\\[u%04X]", code);
	return n;
}

/* Text of ours as roff: no line of it may begin with a control character. */
static void roff(struct buf *out, const char *text)
{
	bool line_start = true;

	for (const char *p = text; *p != '\0'; p++) {
		if (line_start && (*p == '.' || *p == '\''))
			buf_str(out, "\\&");
		line_start = *p == '\n';
		if ((unsigned char)*p >= 0x80)
			p += roff_wide(out, p) - 1;
		else if (*p == '\\')
			buf_str(out, "\\e");
		else if (*p == '-')
			buf_str(out, "\\-");
		else
			buf_char(out, *p);
	}
}

static void man_flag(struct buf *out, const struct cli_flag_row *flag)
{
	buf_str(out, ".TP\n");
	if (flag->letter != 0)
		buf_fmt(out, "\\fB\\-%c\\fR, ", flag->letter);
	buf_str(out, "\\fB\\-\\-");
	roff(out, flag->name);
	buf_str(out, "\\fR");
	if (flag->value != NULL) {
		buf_str(out, " \\fI");
		roff(out, flag->value);
		buf_str(out, "\\fR");
	}
	buf_char(out, '\n');
	roff(out, flag->help);
	buf_char(out, '\n');
}

static void man_verb(struct buf *out, enum cli_verb verb)
{
	const struct cli_verb_row *row = &cli_verbs[verb];

	buf_fmt(out, ".SS \"cay %s\"\n.B cay %s\n[\\fIOPTION\\fR]... ", row->words, row->words);
	roff(out, row->usage);
	buf_str(out, "\n.PP\n");
	roff(out, row->summary);
	buf_str(out, ".\n");
	roff(out, row->text);
	buf_char(out, '\n');
	for (unsigned int f = 0; f < FLAG_COUNT_; f++) {
		if (cli_takes(verb, (enum cli_flag)f) && f != FLAG_HELP && f != FLAG_JSON)
			man_flag(out, &cli_flags[f]);
	}
	buf_str(out, ".PP\n.EX\n");
	roff(out, row->examples);
	buf_str(out, "\n.EE\n");
}

void cli_help_man(struct buf *out)
{
	buf_fmt(out,
		".TH CAY 1 \"\" \"cay %s\" \"User Commands\"\n"
		".SH NAME\ncay \\- sandboxes that may be broken: run, snapshot, fork, rewind, diff, apply\n"
		".SH SYNOPSIS\n.B cay\n\\fIVERB\\fR [\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...\n"
		".SH DESCRIPTION\n"
		"A sandbox is an isolated Linux environment over this machine's own root or an imported image. The server, \\fBcayd\\fR, is started when none runs.\n"
		".PP\n"
		"Every verb takes \\fB\\-\\-help\\fR, and \\fB\\-\\-json\\fR, which prints the API object.\n"
		"NAME is a sandbox's name, its id, or a unique beginning of the id, of 4 characters or more, that is no snapshot's name; SNAPSHOT likewise.\n"
		".SH COMMANDS\n",
		CAY_VERSION);
	for (unsigned int v = 0; v < VERB_COUNT_; v++)
		man_verb(out, (enum cli_verb)v);
	buf_str(out,
		".SH \"EXIT STATUS\"\n"
		"The command's own for run, exec and attach; otherwise 0, or 64 for a wrong command line, 124 for a timeout, 126 and 127 for a command that cannot be\n"
		"executed or is not there, 125 for the rest.\n"
		".SH ENVIRONMENT\n"
		".TP\n.B CAY_STATE, CAY_RUN, CAY_SOCKET\nselect the instance: state directory, runtime directory, API socket.\n"
		".TP\n.B CAY_START\n0: no server is started where none runs.\n"
		".TP\n.B NO_COLOR\nset to anything: no colours, on terminals either.\n"
		".TP\n.B CAY_TRUST\na file of certificates (PEM) that the gateways of a server started with it accept from the world, beside this machine's.\n"
		".TP\n.B CAY_THROUGH\nHOST:PORT of an HTTP proxy: the gateways of a server started with it send all HTTP and HTTPS through it (CONNECT).\n");
}
