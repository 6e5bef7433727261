/* SPDX-License-Identifier: Apache-2.0 */
/* Process trees: parents, sessions, groups, orphans, zombies. Every process writes what it is before and what it is afterwards. */
#include "object.h"

struct place {
	pid_t pid, parent, session, group;
};

static int report[2], go[2];

static struct place place(void)
{
	return (struct place){ getpid(), getppid(), getsid(0), getpgid(0) };
}

/* Say where we are, wait, say it again. */
static void live(void)
{
	struct place now = place();
	char c;

	MUST(write(report[1], &now, sizeof(now)) == sizeof(now));
	MUST(read(go[0], &c, 1) == 1);
	now = place();
	MUST(write(report[1], &now, sizeof(now)) == sizeof(now));
	_exit(0);
}

static pid_t child(void (*what)(void))
{
	pid_t pid = fork();

	if (pid == 0)
		what();
	return pid;
}

static void in_session(void)
{
	MUST(setsid() > 0);
	MUST(child(live) > 0);
	live();
}

static void in_group(void)
{
	MUST(setpgid(0, 0) == 0);
	live();
}

/* Its child is in the old session, it is in a new one. */
static void late_session(void)
{
	MUST(child(live) > 0);
	MUST(setsid() > 0);
	live();
}

static void orphan(void)
{
	MUST(child(live) > 0);
	_exit(0);
}

/* The daemon's way: in a session whose leader is gone. */
static void daemon_way(void)
{
	MUST(setsid() > 0);
	MUST(child(live) > 0);
	_exit(0);
}

/* In a group whose leader is gone. */
static void leaderless(void)
{
	pid_t leader = fork();

	if (leader == 0) {
		MUST(setpgid(0, 0) == 0);
		(void)pause();
	}
	while (setpgid(0, leader) < 0)
		MUST(errno == EPERM || errno == ESRCH);
	MUST(kill(leader, SIGKILL) == 0 && waitpid(leader, NULL, 0) == leader);
	live();
}

static void exit_7(void)
{
	_exit(7);
}

static void killed(void)
{
	(void)signal(SIGUSR1, SIG_DFL);
	(void)raise(SIGUSR1);
}

/* Signals that servers of any kind ignore. */
static void broken(void)
{
	(void)signal(SIGPIPE, SIG_DFL);
	(void)raise(SIGPIPE);
}

static void interrupted(void)
{
	(void)signal(SIGINT, SIG_DFL);
	(void)raise(SIGINT);
}

int main(void)
{
	enum { LIVING = 10 };
	struct place before[LIVING], after;
	pid_t seven, usr, pipe_less, stopped, ended, reaped[2];
	int status;

	MUST(pipe(report) == 0 && pipe(go) == 0);
	MUST(child(in_session) > 0 && child(in_group) > 0 && child(late_session) > 0);
	reaped[0] = child(orphan);
	reaped[1] = child(daemon_way);
	MUST(child(leaderless) > 0 && child(live) > 0);
	seven = child(exit_7);
	usr = child(killed);
	pipe_less = child(broken);
	stopped = child(interrupted);
	ended = child(daemon_way); /* it leads its session still, in which its orphan is */
	for (int i = 0; i < 2; i++)
		MUST(waitpid(reaped[i], NULL, 0) == reaped[i]);
	for (int i = 0; i < LIVING; i++)
		MUST(read(report[0], &before[i], sizeof(before[i])) == sizeof(before[i]));
	/* all are zombies, and stay */
	MUST(waitid(P_PID, (id_t)seven, &(siginfo_t){ 0 }, WEXITED | WNOWAIT) == 0);
	for (int i = 0; i < 4; i++)
		MUST(waitid(P_PID, (id_t)((pid_t[]){ usr, pipe_less, stopped, ended }[i]),
			     &(siginfo_t){ 0 }, WEXITED | WNOWAIT) == 0);

	object_ready();

	MUST(write(go[1], "1234567890", LIVING) == LIVING);
	for (int i = 0; i < LIVING; i++) {
		bool found = false;

		MUST(read(report[0], &after, sizeof(after)) == sizeof(after));
		for (int j = 0; j < LIVING; j++) {
			if (before[j].pid != after.pid)
				continue;
			found = true;
			/* a parent that was told first may have ended */
			MUST(before[j].parent == after.parent || after.parent == 1);
			MUST(before[j].session == after.session && before[j].group == after.group);
		}
		if (!found)
			object_fail("process %d was not there before", after.pid);
	}
	MUST(waitpid(seven, &status, 0) == seven && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	MUST(waitpid(usr, &status, 0) == usr && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
	MUST(waitpid(pipe_less, &status, 0) == pipe_less && WIFSIGNALED(status) &&
		WTERMSIG(status) == SIGPIPE);
	MUST(waitpid(stopped, &status, 0) == stopped && WIFSIGNALED(status) &&
		WTERMSIG(status) == SIGINT);
	MUST(waitpid(ended, &status, 0) == ended && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return object_done();
}
