/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose children orphans become: of PID 1, as they were when nobody else took them in, and of a process that has said later that it does (PR_SET_CHILD_SUBREAPER), in sessions whose
 * leader is gone, is there, has ended without anybody having waited for it, or has orphans of both.
 */
#include "object.h"

#define FAMILIES 16
#define LIVING   (2 * FAMILIES + 6)

struct place {
	pid_t pid, parent, session;
};

static int report[2], go[2], late[2];
static pid_t reaper;

static struct place place(void)
{
	return (struct place){ getpid(), getppid(), getsid(0) };
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

	MUST(pid >= 0);
	if (pid == 0)
		what();
	return pid;
}

static void ends(void (*what)(void))
{
	pid_t pid = child(what);

	MUST(waitpid(pid, NULL, 0) == pid);
}

static void leave_unreaped(pid_t pid)
{
	siginfo_t info;

	MUST(pid > 0 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
}

static void live_when_orphan(void)
{
	pid_t parent = getpid();

	if (fork() != 0)
		_exit(0);
	while (getppid() == parent)
		(void)sched_yield();
	live();
}

/* Whose orphan is in its session. */
static void leader(void)
{
	MUST(setsid() > 0);
	ends(live_when_orphan);
	live();
}

/* The daemon's way. */
static void daemon_way(void)
{
	MUST(setsid() > 0);
	if (child(live_when_orphan) > 0)
		(void)wait(NULL);
	_exit(0);
}

static void exit_7(void)
{
	_exit(7);
}

/* A daemon that has ended. */
static void ended_daemon(void)
{
	siginfo_t info;

	MUST(setsid() > 0);
	MUST(child(exit_7) > 0 && waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) == 0);
	_exit(0);
}

/* One orphan from before it is told, and one from then. */
static void leader_of_both(void)
{
	char c;

	MUST(setsid() > 0);
	ends(live_when_orphan);
	MUST(read(late[0], &c, 1) == 1);
	ends(live_when_orphan);
	_exit(0);
}

static void compare(const struct place before[LIVING])
{
	struct place after;
	int i = 0;

	MUST(read(report[0], &after, sizeof(after)) == sizeof(after));
	while (i < LIVING && before[i].pid != after.pid)
		i++;
	if (i == LIVING)
		object_fail("process %d was not there before", after.pid);
	if (before[i].parent != after.parent)
		object_fail("process %d was a child of %d, and is of %d", after.pid,
			before[i].parent, after.parent);
	MUST(before[i].session == after.session);
}

static void wait_for_all(int children, int ended)
{
	int status, n = 0, sevens = 0;

	while (wait(&status) > 0) {
		n++;
		sevens += WIFEXITED(status) && WEXITSTATUS(status) == 7;
	}
	if (n != children || sevens != ended)
		object_fail("%d children have ended, %d of them with 7", n, sevens);
}

int main(void)
{
	struct place before[LIVING];
	int children = FAMILIES + 9, of_reaper = 0;
	sigset_t chld;
	pid_t both;

	reaper = getpid();
	(void)sigemptyset(&chld);
	(void)sigaddset(&chld, SIGCHLD);
	MUST(sigprocmask(SIG_BLOCK, &chld, NULL) == 0);
	MUST(pipe(report) == 0 && pipe(go) == 0 && pipe(late) == 0);
	for (int i = 0; i < FAMILIES; i++)
		MUST(child(leader) > 0);
	both = child(leader_of_both);
	for (int i = 0; i < 2 * FAMILIES + 1; i++)
		MUST(read(report[0], &before[i], sizeof(before[i])) == sizeof(before[i]));
	MUST(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
	MUST(write(late[1], "x", 1) == 1 && waitpid(both, NULL, 0) == both);
	ends(daemon_way);
	ends(ended_daemon);
	leave_unreaped(child(daemon_way));
	leave_unreaped(child(ended_daemon));
	MUST(child(leader) > 0);
	for (int i = 2 * FAMILIES + 1; i < LIVING; i++)
		MUST(read(report[0], &before[i], sizeof(before[i])) == sizeof(before[i]));
	for (int i = 0; i < LIVING; i++)
		of_reaper += before[i].parent == reaper;
	MUST(of_reaper == children - 4);
	(void)sigtimedwait(&chld, NULL, &(struct timespec){ 0 });

	object_ready();

	if (sigtimedwait(&chld, NULL, &(struct timespec){ 0 }) > 0)
		object_fail("somebody has ended");
	for (int i = 0; i < LIVING; i++) {
		MUST(write(go[1], "x", 1) == 1);
		compare(before);
	}
	wait_for_all(children, 2);
	return object_done();
}
