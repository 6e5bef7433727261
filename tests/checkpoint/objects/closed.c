/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that are not dumpable: by their own wish, because they have changed who they are (as servers do with their workers), with threads, with SIGTRAP ignored. Nobody of their user may look at them. */
#include "object.h"

enum { USER = 1000, WORKERS = 3 };

static char secret[3 * 4096];
static int ask[WORKERS][2], told[2];
static volatile sig_atomic_t thread_lives = 1;

static void *count(void *counter)
{
	while (thread_lives)
		__atomic_add_fetch((unsigned long *)counter, 1, __ATOMIC_RELAXED);
	return NULL;
}

static bool may_look_at(pid_t pid)
{
	char path[32];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDONLY);
	if (fd >= 0)
		(void)close(fd);
	return fd >= 0;
}

/* Says 'y' when all is as it was, each time it is asked. */
static void work(int which)
{
	unsigned long counter = 0, then;
	pthread_t thread;
	char c;

	memset(secret + 4096, 'a' + which, 4096);
	if (which == 1)
		MUST(signal(SIGTRAP, SIG_IGN) != SIG_ERR);
	if (which == 2)
		MUST(pthread_create(&thread, NULL, count, &counter) == 0);
	if (setresgid(USER, USER, USER) != 0 || setresuid(USER, USER, USER) != 0)
		MUST(prctl(PR_SET_DUMPABLE, 0) == 0); /* there is one user alone */
	MUST(prctl(PR_GET_DUMPABLE) == 0);
	while (read(ask[which][0], &c, 1) == 1) {
		bool right = prctl(PR_GET_DUMPABLE) == 0 && secret[4096 + 77] == 'a' + which &&
			     secret[0] == 's';

		then = __atomic_load_n(&counter, __ATOMIC_RELAXED);
		while (which == 2 && __atomic_load_n(&counter, __ATOMIC_RELAXED) == then)
			(void)sched_yield();
		MUST(write(told[1], right ? "y" : "n", 1) == 1);
	}
	_exit(0);
}

int main(void)
{
	pid_t workers[WORKERS];
	char c;

	memset(secret, 's', sizeof(secret));
	MUST(pipe(told) == 0);
	for (int i = 0; i < WORKERS; i++) {
		MUST(pipe(ask[i]) == 0);
		workers[i] = fork();
		if (workers[i] == 0)
			work(i);
		MUST(write(ask[i][1], "?", 1) == 1 && read(told[0], &c, 1) == 1 && c == 'y');
	}
	MUST(prctl(PR_SET_DUMPABLE, 0) == 0);

	object_ready();

	MUST(prctl(PR_GET_DUMPABLE) == 0 && secret[4096] == 's');
	for (int i = 0; i < WORKERS; i++)
		MUST(write(ask[i][1], "?", 1) == 1 && read(told[0], &c, 1) == 1 && c == 'y');
	/* who has the user of one, and no privilege, may not */
	if (fork() == 0) {
		bool changed = setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0;

		MUST(prctl(PR_SET_DUMPABLE, 1) == 0);
		_exit(changed && (may_look_at(workers[0]) || may_look_at(workers[2]) ||
					 !may_look_at(getpid())));
	}
	for (int i = 0; i < WORKERS; i++)
		MUST(kill(workers[i], SIGKILL) == 0);
	for (int status, i = 0; i < WORKERS + 1; i++)
		MUST(wait(&status) > 0 && (!WIFEXITED(status) || WEXITSTATUS(status) == 0));
	return object_done();
}
