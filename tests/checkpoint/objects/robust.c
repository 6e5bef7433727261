/* SPDX-License-Identifier: Apache-2.0 */
/* Robust locks in a file that is mapped shared: held by the first thread, by another, by a child, and by one that has ended. Each owner goes on and gives its own back. */
#include "object.h"

enum { FIRST, OTHER, CHILD, ENDED, LOCKS };

static pthread_mutex_t *locks; /* in the file */
static int held[2], go[2];

static void *end_with(void *arg)
{
	MUST(pthread_mutex_lock(arg) == 0);
	return NULL;
}

static void *hold_other(void *arg)
{
	char c;

	(void)arg;
	MUST(pthread_mutex_lock(&locks[OTHER]) == 0 && write(held[1], "h", 1) == 1);
	MUST(read(go[0], &c, 1) == 1);
	MUST(pthread_mutex_unlock(&locks[OTHER]) == 0);
	return NULL;
}

/* What a dead owner leaves is told to the next one. */
static void end_and_see(int which)
{
	pthread_t thread;

	MUST(pthread_create(&thread, NULL, end_with, &locks[which]) == 0);
	MUST(pthread_join(thread, NULL) == 0);
	MUST(pthread_mutex_lock(&locks[which]) == EOWNERDEAD);
	MUST(pthread_mutex_consistent(&locks[which]) == 0);
	MUST(pthread_mutex_unlock(&locks[which]) == 0);
}

static void make_locks(void)
{
	char name[] = "/var/tmp/robust-XXXXXX";
	pthread_mutexattr_t attr;
	int fd = mkstemp(name);

	MUST(fd >= 0 && ftruncate(fd, 4096) == 0);
	locks = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(locks != MAP_FAILED && close(fd) == 0);
	MUST(pthread_mutexattr_init(&attr) == 0);
	MUST(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) == 0);
	MUST(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) == 0);
	for (int i = 0; i < LOCKS; i++)
		MUST(pthread_mutex_init(&locks[i], &attr) == 0);
}

int main(void)
{
	pthread_t other, ended;
	int wait_for_child[2], status;
	pid_t child;
	char c;

	make_locks();
	MUST(pipe(held) == 0 && pipe(go) == 0 && pipe(wait_for_child) == 0);
	child = fork();
	if (child == 0) {
		MUST(pthread_mutex_lock(&locks[CHILD]) == 0 && write(held[1], "c", 1) == 1);
		MUST(read(wait_for_child[0], &c, 1) == 1);
		MUST(pthread_mutex_unlock(&locks[CHILD]) == 0);
		MUST(pthread_mutex_lock(&locks[CHILD]) == 0); /* and ends with it */
		_exit(0);
	}
	MUST(read(held[0], &c, 1) == 1 && pthread_mutex_trylock(&locks[CHILD]) == EBUSY);
	MUST(pthread_create(&other, NULL, hold_other, NULL) == 0 && read(held[0], &c, 1) == 1);
	MUST(pthread_create(&ended, NULL, end_with, &locks[ENDED]) == 0);
	MUST(pthread_join(ended, NULL) == 0);
	MUST(pthread_mutex_lock(&locks[FIRST]) == 0);

	object_ready();

	MUST(pthread_mutex_trylock(&locks[CHILD]) == EBUSY);
	MUST(pthread_mutex_trylock(&locks[OTHER]) == EBUSY);
	MUST(pthread_mutex_unlock(&locks[FIRST]) == 0);
	MUST(pthread_mutex_lock(&locks[FIRST]) == 0 && pthread_mutex_unlock(&locks[FIRST]) == 0);
	MUST(write(go[1], "g", 1) == 1 && pthread_mutex_lock(&locks[OTHER]) == 0);
	MUST(pthread_mutex_unlock(&locks[OTHER]) == 0 && pthread_join(other, NULL) == 0);
	MUST(pthread_mutex_lock(&locks[ENDED]) == EOWNERDEAD);
	MUST(pthread_mutex_consistent(&locks[ENDED]) == 0);
	MUST(pthread_mutex_unlock(&locks[ENDED]) == 0);
	end_and_see(FIRST);
	MUST(write(wait_for_child[1], "e", 1) == 1 && waitpid(child, &status, 0) == child);
	MUST(status == 0 && pthread_mutex_lock(&locks[CHILD]) == EOWNERDEAD);
	return object_done();
}
