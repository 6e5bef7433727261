/* SPDX-License-Identifier: Apache-2.0 */
/* System V semaphores that processes with threads have used so that the kernel gives back at their end what they have taken (SEM_UNDO), and have given back themselves. */
#include "object.h"

#include <sys/ipc.h>
#include <sys/sem.h>

enum { MANY = 100, FULL = 32767 };

static int set, go[2];

static int by(unsigned short which, short n)
{
	struct sembuf op = { which, n, SEM_UNDO | IPC_NOWAIT };

	return semop(set, &op, 1);
}

static void *idle(void *arg)
{
	char c;

	MUST(read(go[0], &c, 1) == 1);
	return arg;
}

static unsigned short value_of(unsigned short which)
{
	return (unsigned short)(which == 0 ? 0 : which == 1 ? FULL : which);
}

int main(void)
{
	unsigned short values[MANY], now[MANY];
	pthread_t thread;
	int status;
	pid_t child;

	for (unsigned short i = 0; i < MANY; i++)
		values[i] = value_of(i);
	MUST(pipe(go) == 0 && (set = semget(IPC_PRIVATE, MANY, 0600)) >= 0);
	MUST(semctl(set, 0, SETALL, values) == 0);
	MUST(pthread_create(&thread, NULL, idle, NULL) == 0);
	MUST(by(0, 5) == 0 && by(0, -5) == 0 && by(1, -FULL) == 0 && by(1, FULL) == 0);
	MUST(by(MANY - 1, -3) == 0 && by(MANY - 1, 3) == 0);
	child = fork();
	if (child == 0) {
		MUST(pthread_create(&thread, NULL, idle, NULL) == 0);
		MUST(pthread_join(thread, NULL) == 0);
		MUST(by(0, 2) == 0 && by(1, -7) == 0); /* and ends */
		_exit(0);
	}

	object_ready();

	MUST(semctl(set, 0, GETALL, now) == 0 && memcmp(now, values, sizeof(now)) == 0);
	MUST(write(go[1], "gg", 2) == 2 && waitpid(child, &status, 0) == child && status == 0);
	MUST(semctl(set, 0, GETALL, now) == 0 && memcmp(now, values, sizeof(now)) == 0);
	MUST(pthread_join(thread, NULL) == 0);
	MUST(by(0, -1) < 0 && errno == EAGAIN && by(1, 1) < 0 && errno == ERANGE);
	MUST(by(2, -2) == 0 && semctl(set, 2, GETVAL) == 0 && by(2, 2) == 0);
	MUST(semctl(set, 0, IPC_RMID) == 0);
	return object_done();
}
