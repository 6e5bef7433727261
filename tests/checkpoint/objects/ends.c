/* SPDX-License-Identifier: Apache-2.0 */
/* What a parent is told when a child ends: SIGCHLD, another signal, or nothing (clone(2)), and which waits find such a child (__WCLONE). Of those that live, are stopped, have ended. */
#include "object.h"

/* no signal, which clone(2) takes all the same: nothing is told then */
#define UNKNOWN 200

static int go[2];
static sigset_t told;

static pid_t child(int sig, void (*what)(void))
{
	pid_t pid = (pid_t)syscall(SYS_clone, sig, 0, 0, 0, 0);

	MUST(pid >= 0);
	if (pid == 0)
		what();
	return pid;
}

static void live(void)
{
	char c;

	MUST(read(go[0], &c, 1) == 1);
	_exit(3);
}

static void end_7(void)
{
	_exit(7);
}

/* Return: what has been told, 0 = nothing. */
static int hear(void)
{
	int sig = sigtimedwait(&told, NULL, &(struct timespec){ 0 });

	return sig < 0 ? 0 : sig;
}

/* Of a stop, and of the end of one, nothing but SIGCHLD tells; that may come a moment later than it is found. */
static void hear_of_stop(void)
{
	MUST(sigtimedwait(&told, NULL, &(struct timespec){ 10 }) == SIGCHLD);
}

static int wait_for(pid_t pid, int how)
{
	siginfo_t info;

	MUST(waitid(P_PID, (id_t)pid, &info, how | __WALL) == 0);
	return info.si_status;
}

/* Without __WCLONE nobody finds who tells anything but SIGCHLD. */
static void check_found(pid_t pid, bool usual)
{
	errno = 0;
	MUST(waitpid(pid, NULL, WNOHANG) == (usual ? 0 : -1) && errno == (usual ? 0 : ECHILD));
	MUST(waitpid(pid, NULL, WNOHANG | (int)__WCLONE) == (usual ? -1 : 0));
}

static void end(pid_t pid, int sig)
{
	int heard;

	MUST(write(go[1], "x", 1) == 1);
	MUST(wait_for(pid, WEXITED) == 3);
	heard = hear();
	if (heard != sig)
		object_fail("at the end of a child that tells %d came %d", sig, heard);
}

int main(void)
{
	pid_t usual, other, silent, unknown, stopped, ended;
	siginfo_t info = { 0 };

	(void)sigemptyset(&told);
	(void)sigaddset(&told, SIGCHLD);
	(void)sigaddset(&told, SIGUSR1);
	(void)sigaddset(&told, SIGUSR2);
	MUST(sigprocmask(SIG_BLOCK, &told, NULL) == 0 && pipe(go) == 0);
	ended = child(SIGUSR2, end_7);
	MUST(wait_for(ended, WEXITED | WNOWAIT) == 7 && hear() == SIGUSR2);
	stopped = child(SIGUSR2, live);
	MUST(kill(stopped, SIGSTOP) == 0 && wait_for(stopped, WSTOPPED) == SIGSTOP);
	hear_of_stop();
	usual = child(SIGCHLD, live);
	other = child(SIGUSR1, live);
	silent = child(0, live);
	unknown = child(UNKNOWN, live);

	object_ready();

	MUST(hear() == 0);
	check_found(usual, true);
	check_found(other, false);
	check_found(silent, false);
	check_found(unknown, false);
	check_found(stopped, false);
	MUST(waitid(P_PID, (id_t)stopped, &info, WSTOPPED | WNOHANG | __WALL) == 0);
	MUST(info.si_pid == 0);
	errno = 0;
	MUST(waitpid(ended, NULL, 0) == -1 && errno == ECHILD);
	MUST(wait_for(ended, WEXITED) == 7 && hear() == 0);
	/* one at a time reads */
	MUST(kill(other, SIGSTOP) == 0 && wait_for(other, WSTOPPED) == SIGSTOP);
	hear_of_stop();
	MUST(kill(silent, SIGSTOP) == 0 && wait_for(silent, WSTOPPED) == SIGSTOP);
	hear_of_stop();
	MUST(kill(unknown, SIGSTOP) == 0 && wait_for(unknown, WSTOPPED) == SIGSTOP);
	hear_of_stop();
	end(usual, SIGCHLD);
	MUST(kill(other, SIGCONT) == 0 && wait_for(other, WCONTINUED) == SIGCONT);
	hear_of_stop();
	end(other, SIGUSR1);
	MUST(kill(silent, SIGCONT) == 0 && wait_for(silent, WCONTINUED) == SIGCONT);
	hear_of_stop();
	end(silent, 0);
	MUST(kill(unknown, SIGCONT) == 0 && wait_for(unknown, WCONTINUED) == SIGCONT);
	hear_of_stop();
	end(unknown, 0);
	MUST(kill(stopped, SIGCONT) == 0 && wait_for(stopped, WCONTINUED) == SIGCONT);
	hear_of_stop();
	end(stopped, SIGUSR2);
	return object_done();
}
