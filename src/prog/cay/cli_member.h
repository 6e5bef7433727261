/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/cli_member.h - from the member of a request that the server refused to the option that it came from. Pure. */
#ifndef CAY_PROG_CLI_MEMBER_H
#define CAY_PROG_CLI_MEMBER_H

#include "base/buf.h"
#include "prog/cay/cli_args.h"

/**
 * cli_member_explain() - @message of the server, said of the option instead of the member.
 * @member: "sandbox.limits.memory_bytes", "mounts[1].source".
 * @ret:    gets "--memory '1': must be from …, not 1 (bytes)"; untouched when @member came from no option.
 *
 * Return: did it come from one?
 */
bool cli_member_explain(
	const struct cli_args *args, const char *member, const char *message, struct buf *ret);

#endif
