/* SPDX-License-Identifier: Apache-2.0 */
/* Who is told by a signal that something can be read: a process, a thread, a group, a child whose parent said so (as servers do with their workers), another user. */
#include "object.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef F_GETOWNER_UIDS
#define F_GETOWNER_UIDS 17
#endif

enum { USER = 1000 };

static int own[2], traced[2], group[2], of_child[2], of_user[2], shared[2], nobody[2];
static volatile sig_atomic_t told, told_fd;
static int thread_tid, both[2];

static void on_signal(int signal, siginfo_t *info, void *context)
{
	(void)context;
	told = signal;
	told_fd = info->si_fd;
}

static void make(int pair[2])
{
	MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
}

static void ask(int fd, enum __pid_type type, int pid, int signal)
{
	struct f_owner_ex owner = { type, pid };

	MUST(fcntl(fd, F_SETOWN_EX, &owner) == 0 && fcntl(fd, F_SETSIG, signal) == 0);
	MUST(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC) == 0);
}

static void catch (int signal)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };

	MUST(sigaction(signal, &action, NULL) == 0);
}

/* What is written to @to is told by @signal, with descriptor @fd. Nothing else unblocks it. */
static void expect(int to, int fd, int signal)
{
	sigset_t none;

	(void)sigemptyset(&none);
	told = told_fd = 0;
	MUST(write(to, "x", 1) == 1);
	while (told == 0)
		(void)sigsuspend(&none);
	if (told != signal || (fd >= 0 && told_fd != fd))
		object_fail("signal %d of descriptor %d", (int)told, (int)told_fd);
}

/* Its thread alone gets the signal. */
static void *thread_main(void *unused)
{
	(void)unused;
	thread_tid = gettid();
	MUST(write(both[1], "t", 1) == 1);
	for (;;)
		(void)pause();
	return NULL;
}

/* @as: its user; ends with the signal's number when it was told. */
static pid_t child(int signal, int fd, uid_t as)
{
	pid_t pid = fork();
	sigset_t all, none;

	if (pid != 0)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)sigfillset(&all);
	(void)sigemptyset(&none);
	(void)sigdelset(&all, SIGKILL);
	MUST(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
	catch (signal);
	if (as != 0) {
		MUST(setresuid(as, as, as) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
		ask(fd, F_OWNER_PID, getpid(), signal);
	}
	MUST(write(both[1], "c", 1) == 1);
	while (told == 0)
		(void)sigsuspend(&none);
	_exit(told_fd == fd || signal == SIGIO ? told : 1);
}

static void wait_built(void)
{
	char c;

	MUST(read(both[0], &c, 1) == 1);
}

static void ends_with(pid_t pid, int to, int signal)
{
	int status;

	MUST(write(to, "x", 1) == 1 && waitpid(pid, &status, 0) == pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != signal)
		object_fail("status %x", (unsigned int)status);
}

static void must_own(int fd, enum __pid_type type, int pid, int signal)
{
	struct f_owner_ex owner;

	MUST(fcntl(fd, F_GETOWN_EX, &owner) == 0);
	if (owner.type != type || owner.pid != pid || fcntl(fd, F_GETSIG) != signal)
		object_fail("%d: type %d, %d, signal %d", fd, (int)owner.type, owner.pid,
			fcntl(fd, F_GETSIG));
}

static bool waits_for_thread(int signal)
{
	char path[64], line[256];
	unsigned long long waits = 0;
	FILE *status;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread_tid);
	MUST((status = fopen(path, "r")) != NULL);
	while (fgets(line, sizeof(line), status) != NULL &&
		sscanf(line, "SigPnd: %llx", &waits) != 1)
		;
	(void)fclose(status);
	return (waits >> (signal - 1) & 1) != 0;
}

int main(void)
{
	int *const pairs[] = { own, traced, group, of_child, of_user, shared, nobody }, on = 1,
		   moved;
	uid_t ids[2], mine = getuid(), theirs;
	pid_t worker, user;
	pthread_t thread;
	sigset_t all;

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		make(pairs[i]);
	MUST(pipe(both) == 0);
	(void)sigfillset(&all);
	MUST(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
	catch (SIGIO);
	catch (SIGRTMIN + 3);
	MUST(pthread_create(&thread, NULL, thread_main, NULL) == 0);
	wait_built();
	/* alone with one user id there is no other */
	theirs = setresuid(mine, USER, mine) == 0 && setresuid(mine, mine, mine) == 0 ? USER : mine;
	MUST(prctl(PR_SET_DUMPABLE, 1) == 0);
	worker = child(SIGIO, of_child[0], 0);
	user = child(SIGRTMIN + 1, of_user[0], theirs == mine ? 0 : theirs);
	wait_built();
	wait_built();
	if (theirs == mine)
		ask(of_user[0], F_OWNER_PID, user, SIGRTMIN + 1);

	ask(own[0], F_OWNER_PID, getpid(), SIGRTMIN + 3);
	ask(traced[0], F_OWNER_TID, thread_tid, SIGRTMIN + 4);
	ask(group[0], F_OWNER_PGRP, getpgrp(), 0);
	MUST(ioctl(of_child[0], FIOASYNC, &on) == 0 && fcntl(of_child[0], F_SETOWN, worker) == 0);
	moved = fcntl(shared[0], F_DUPFD, 40);
	ask(moved, F_OWNER_PID, getpid(), SIGRTMIN + 3);
	MUST(fcntl(nobody[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
	MUST(close(shared[0]) == 0);

	object_ready();

	must_own(own[0], F_OWNER_PID, getpid(), SIGRTMIN + 3);
	must_own(traced[0], F_OWNER_TID, thread_tid, SIGRTMIN + 4);
	must_own(group[0], F_OWNER_PGRP, getpgrp(), 0);
	must_own(of_child[0], F_OWNER_PID, worker, 0);
	must_own(of_user[0], F_OWNER_PID, user, SIGRTMIN + 1);
	MUST(fcntl(nobody[0], F_GETOWN) == 0);
	MUST((fcntl(nobody[0], F_GETFL) & (O_ASYNC | O_NONBLOCK)) == (O_ASYNC | O_NONBLOCK));
	MUST(fcntl(of_user[0], F_GETOWNER_UIDS, ids) == 0 && ids[0] == theirs && ids[1] == theirs);
	MUST(fcntl(own[0], F_GETOWNER_UIDS, ids) == 0 && ids[0] == mine);
	expect(own[1], own[0], SIGRTMIN + 3);
	expect(shared[1], moved, SIGRTMIN + 3);
	ends_with(worker, of_child[1], SIGIO);
	ends_with(user, of_user[1], SIGRTMIN + 1);
	expect(group[1], -1, SIGIO);
	/* the thread blocks it, and nobody else may take it */
	MUST(write(traced[1], "x", 1) == 1);
	MUST(sigpending(&all) == 0 && sigismember(&all, SIGRTMIN + 4) == 0);
	MUST(waits_for_thread(SIGRTMIN + 4));
	return object_done();
}
