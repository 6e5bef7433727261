/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: tests/unit/tracees.h - processes to be stopped: each does what it is told by a byte, and answers by one. */
#ifndef CAY_TESTS_UNIT_TRACEES_H
#define CAY_TESTS_UNIT_TRACEES_H

#include "checkpoint/tracee.h"
#include "t.h"

#include <sys/prctl.h>
#include <sys/socket.h>

/** struct somebody - a child of ours. */
struct somebody {
	pid_t pid;
	int talk;
	struct tracee t;
};

/** somebody_start() - run @live(socket) in a child; it must say a byte when it is ready. */
static inline struct somebody somebody_start(void (*live)(int talk))
{
	struct somebody s = { .t = { .proc = -1 } };
	int pair[2];
	char c;

	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	(void)fflush(stdout);
	s.pid = fork();
	if (s.pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(pair[0]);
		live(pair[1]);
		_exit(9);
	}
	(void)close(pair[1]);
	s.talk = pair[0];
	check(read(s.talk, &c, 1) == 1);
	return s;
}

/** somebody_stop() - stop it as a dumper does. */
static inline void somebody_stop(struct somebody *s)
{
	check_int(tracee_stop(&s->t, s->pid), 0);
}

/** somebody_says() - have it look at itself. Return: its byte. */
static inline int somebody_says(const struct somebody *s)
{
	char c = '?';

	check(write(s->talk, "?", 1) == 1);
	return read(s->talk, &c, 1) == 1 ? c : -1;
}

/** somebody_end() - let go, and end it. */
static inline void somebody_end(struct somebody *s)
{
	int status;

	tracee_release(&s->t);
	(void)kill(s->pid, SIGKILL);
	do
		check_int(waitpid(s->pid, &status, __WALL), s->pid);
	while (WIFSTOPPED(status));
	(void)close(s->talk);
}

/** live_ready() - in the child: say so, and wait until it is asked. */
static inline void live_ready(int talk)
{
	char c = 'r';

	if (write(talk, &c, 1) != 1 || read(talk, &c, 1) != 1)
		_exit(8);
}

/** live_answer() - in the child: say @fine, for ever. */
static inline void live_answer(int talk, bool fine)
{
	char c = fine ? 'y' : 'n';

	while (write(talk, &c, 1) == 1 && read(talk, &c, 1) == 1)
		c = fine ? 'y' : 'n';
}

#endif
