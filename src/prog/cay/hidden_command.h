/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/hidden_command.h - why a command was not found inside that this machine has. */
#ifndef CAY_PROG_HIDDEN_COMMAND_H
#define CAY_PROG_HIDDEN_COMMAND_H

#include "prog/cay/cli.h"

/**
 * hidden_command_explain() - a command was not found inside: when the caller has it, and it, or what it is executed by, is in a place that the sandbox hides, say so.
 * @name: the command. @can_expose: the verb takes --expose. @made: then the sandbox that it made, NULL when it is not known; else that of the arguments is asked for.
 * Changes @cli->err to %ERR_CMD_HIDDEN with the place and the fix; leaves it when nothing is hidden that is needed, or the command is only where each image has programs of its own.
 */
void hidden_command_explain(struct cli *cli, const char *name, const json_t *made, bool can_expose);

#endif
