/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program could notice of the copies that a capture makes of its processes: children that it does not have, signals of their end, memory that fork() leaves out
 * or wipes, and what is written right after the capture, which belongs to one side only.
 */
#include "object.h"

#include <stdatomic.h>

enum { PAGES = 4096, PAGE = 4096, WRITERS = 2 };

static volatile sig_atomic_t told;
static atomic_int strangers, torn, running = 1;

static void on_child(int sig)
{
	(void)sig;
	told++;
}

static void *wait_for_anybody(void *unused)
{
	(void)unused;
	while (running) {
		/* one child lives, so the answer is 0 */
		if (waitpid(-1, NULL, __WALL | WNOHANG) != 0)
			strangers++;
	}
	return NULL;
}

/* Each page holds the number of its last round: one that is of another instant than its writer does not hold what it wrote. */
static void *write_always(void *at)
{
	volatile unsigned long *p = at;

	for (unsigned long round = 1; running; round++) {
		for (size_t i = 0; i < PAGES; i++) {
			if (p[i * (PAGE / sizeof(*p))] != round - 1)
				torn++;
			p[i * (PAGE / sizeof(*p))] = round;
		}
	}
	return NULL;
}

static unsigned char *map(size_t n, int advice)
{
	unsigned char *p =
		mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(p != MAP_FAILED);
	MUST(madvise(p, n, advice) == 0);
	for (size_t i = 0; i < n; i += PAGE)
		p[i] = (unsigned char)(i / PAGE + 7);
	return p;
}

static bool holds(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i += PAGE) {
		if (p[i] != (unsigned char)(i / PAGE + 7))
			return false;
	}
	return true;
}

static bool is_empty(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] != 0)
			return false;
	}
	return true;
}

int main(void)
{
	size_t n = 100 * PAGE;
	unsigned char *kept_out = map(n, MADV_DONTFORK), *wiped = map(n, MADV_WIPEONFORK);
	unsigned char *none = map(n, MADV_DONTFORK);
	pthread_t threads[WRITERS + 1];
	pid_t child, session = getsid(0);
	int status;

	MUST(madvise(none, n, MADV_DONTNEED) == 0);
	MUST(signal(SIGCHLD, on_child) != SIG_ERR);
	MUST(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	child = fork();
	if (child == 0)
		for (;;)
			pause();
	MUST(pthread_create(&threads[0], NULL, wait_for_anybody, NULL) == 0);
	for (int i = 0; i < WRITERS; i++)
		MUST(pthread_create(&threads[i + 1], NULL, write_always,
			     map(PAGES * PAGE, MADV_NORMAL) + 8) == 0);
	object_ready();
	running = 0;
	for (int i = 0; i <= WRITERS; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
	MUST(told == 0);
	MUST(strangers == 0);
	MUST(torn == 0);
	MUST(getsid(0) == session);
	MUST(holds(kept_out, n));
	/* by that a program knows that it is a fork */
	if (access("/run/cay/generation", F_OK) == 0)
		MUST(is_empty(wiped, n));
	else
		MUST(holds(wiped, n));
	none[0] = 1;
	/* and the child is one, the only one */
	MUST(kill(child, SIGKILL) == 0);
	MUST(waitpid(-1, &status, 0) == child && WIFSIGNALED(status));
	MUST(waitpid(-1, NULL, __WALL) == -1 && errno == ECHILD);
	MUST(prctl(PR_GET_CHILD_SUBREAPER, &status) == 0 && status == 1);
	return object_done();
}
