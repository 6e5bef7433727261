/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/command_stream.h - a command's upgraded stream, joined to our standard streams, terminal and signals. */
#ifndef CAY_PROG_COMMAND_STREAM_H
#define CAY_PROG_COMMAND_STREAM_H

#include "prog/cay/cli.h"

struct stream_options {
	bool tty;        /* the command has a terminal: ours goes raw */
	bool input;      /* forward standard input */
	bool detachable; /* SIGHUP leaves, and so does "~." after a new line where standard input is a terminal: it is read for that alone where nothing is to be forwarded */
	bool quiet;      /* the command's standard output goes to standard error */
	bool fresh;      /* we have started it: nobody else has seen its output, or written to it */
	bool run;        /* the stream owns the command: leaving ends it */
	bool leaves;     /* the program ends behind it: where all went well nothing is given back */
	uint64_t from;   /* offset of the output from which on it is wanted */
	/* After the server went away: make @cli's connection an upgraded one that goes on at offset @from. Return: 0, or negative with @cli->err filled. */
	int (*rejoin)(struct cli *cli, const void *ctx, uint64_t from);
	const void *ctx; /* for @rejoin; borrowed */
};

/** struct stream_result - what the server told; members are owned, NULL when it did not. */
struct stream_result {
	json_t *sandbox, *exec, *status, *summary;
	bool detached; /* the user left, the command goes on */
	int signal;    /* the signal that made us leave before all was over and written; else 0 */
	int unwritten; /* -errno: why output could not be written, but for a reader that went away; else 0 */
};

/** stream_result_fini() - free the members. */
void stream_result_fini(struct stream_result *r);

/** stream_wants_input() - is there something to forward on standard input: a pipe, a file, a socket, or the terminal that we are in the foreground of? */
bool stream_wants_input(void);

/**
 * stream_run() - carry frames until the stream ends.
 * @cli: its connection has been answered with 101 and is used up.
 * @r: zeroed by the caller; filled.
 *
 * While it runs SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded; the second of the first four kills the command, the third ends us
 * (once the command is over and only its output is still to be written, the first; SIGHUP where it is detachable ends us alone). SIGTSTP stops the command and us, SIGWINCH is forwarded. The terminal is as before when it returns, or when we exit.
 * A terminal is read only while we are in its foreground. While there is no server signals end and stop us as any program, SIGUSR1 and SIGUSR2 wait.
 * Return: 0, or negative with @cli->err filled.
 */
int stream_run(
	struct cli *cli, const struct stream_options *o, struct stream_result *r) attr_must_use;

/**
 * stream_status() - say on standard error what ended a command when it was not its own exit, and find our exit status.
 * @status: final status object; NULL counts as lost.
 * Return: exit status.
 */
int stream_status(struct cli *cli, const json_t *status);

#endif
