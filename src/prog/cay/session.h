/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/session.h - what run, exec and attach share: the choice of streams and command, and the end. */
#ifndef CAY_PROG_SESSION_H
#define CAY_PROG_SESSION_H

#include "prog/cay/command_stream.h"

/* Header lines that ask for a stream of frames. */
#define SESSION_UPGRADE "Connection: Upgrade\r\nUpgrade: cay-frames\r\n"

/** session_streams() - decide from flags and standard streams what the command gets. @o: filled. Return: 0 or negative with @cli->err filled. */
int session_streams(struct cli *cli, struct stream_options *o) attr_must_use;

/** session_command() - what to run: what was said, or with -t a shell. Return: borrowed, NULL with @cli->err filled when nothing was said. */
char *const *session_command(struct cli *cli);

/**
 * session_finish() - after the stream: say how it ended, what was kept, and find the exit status.
 * @command: what was run, for the explanation of a hidden command; NULL allowed.
 * @rc: result of the stream or of what came before it. @r: what the stream told.
 *
 * Return: exit status, or @rc when it is negative.
 */
int session_finish(struct cli *cli, const struct stream_options *o, char *const *command, int rc,
	struct stream_result *r);

#endif
