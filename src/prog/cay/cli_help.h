/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/cli_help.h - help texts, the reference page and completion scripts, made from defs/cli.def. Pure. */
#ifndef CAY_PROG_CLI_HELP_H
#define CAY_PROG_CLI_HELP_H

#include "base/buf.h"
#include "prog/cay/cli_table.h"

/** cli_help_all() - the overview: every verb with its summary. @out: appended to. */
void cli_help_all(struct buf *out);

/** cli_help_verb() - usage, text, options and examples of one verb. @out: appended to. */
void cli_help_verb(struct buf *out, enum cli_verb verb);

/** cli_help_markdown() - docs/reference/cli.md. @out: appended to. */
void cli_help_markdown(struct buf *out);

/** cli_help_man() - the manual page cay(1) as roff. @out: appended to. */
void cli_help_man(struct buf *out);

/**
 * cli_completion() - the completion script of a shell.
 * @out: appended to.
 * @shell: "bash", "zsh" or "fish".
 * Return: 0, or -EINVAL for another shell.
 */
int cli_completion(struct buf *out, const char *shell) attr_must_use;

#endif
