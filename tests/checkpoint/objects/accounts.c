/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of /proc about a process's own threads, and what it alone may read of itself, held open (databases that account for their threads do): by one that is dumpable, by one of another
 * user that is not, with fewer descriptors allowed than it has.
 */
#include "object.h"

#include <sys/resource.h>

enum { USER = 1000, HIGH = 300, FEWER = 100 };

struct held {
	pid_t thread;
	int stat, schedstat, io, own_io, again;
};

static int stop[2], said[2];

static int look(pid_t thread, const char *name)
{
	char path[64];
	int fd;

	if (thread > 0)
		(void)snprintf(path, sizeof(path), "/proc/self/task/%d/%s", thread, name);
	else
		(void)snprintf(path, sizeof(path), "/proc/self/%s", name);
	MUST((fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0);
	return fd;
}

static void *work(void *ret)
{
	char c;

	MUST(prctl(PR_SET_NAME, "worker") == 0);
	*(pid_t *)ret = gettid();
	MUST(write(said[1], "w", 1) == 1 && read(stop[0], &c, 1) == 1);
	return NULL;
}

static struct held hold(pthread_t *worker)
{
	struct held h;
	char c;

	MUST(pipe(stop) == 0 && pipe(said) == 0);
	MUST(pthread_create(worker, NULL, work, &h.thread) == 0 && read(said[0], &c, 1) == 1);
	h.stat = look(h.thread, "stat");
	h.schedstat = look(h.thread, "schedstat");
	h.io = look(h.thread, "io");
	h.own_io = look(0, "io");
	MUST(read(h.stat, &c, 1) == 1 && dup2(h.stat, HIGH) == HIGH);
	h.again = HIGH;
	return h;
}

static void check(const struct held *h, pthread_t worker)
{
	char text[512] = { 0 }, want[64];
	unsigned long a;

	(void)snprintf(want, sizeof(want), "%d (worker) ", h->thread);
	MUST(lseek(h->again, 0, SEEK_CUR) == 1 && lseek(h->again, 0, SEEK_SET) == 0);
	MUST(lseek(h->stat, 0, SEEK_CUR) == 0 && read(h->stat, text, sizeof(text) - 1) > 0);
	MUST(strncmp(text, want, strlen(want)) == 0);
	MUST(pread(h->schedstat, text, sizeof(text) - 1, 0) > 0);
	MUST(sscanf(text, "%lu %lu", &a, &a) == 2);
	MUST(pread(h->io, text, sizeof(text) - 1, 0) > 0 && sscanf(text, "rchar: %lu", &a) == 1);
	MUST(pread(h->own_io, text, sizeof(text) - 1, 0) > 0 &&
		sscanf(text, "rchar: %lu", &a) == 1);
	MUST((fcntl(h->stat, F_GETFD) & FD_CLOEXEC) != 0 && fcntl(h->again, F_GETFD) == 0);
	MUST(write(stop[1], "s", 1) == 1 && pthread_join(worker, NULL) == 0);
	/* whoever has been joined may still be on its way out */
	while (pread(h->stat, text, sizeof(text), 0) >= 0)
		(void)usleep(1000);
	MUST(errno == ESRCH);
}

static void of_another_user(int ask, int told)
{
	const struct rlimit fewer = { FEWER, FEWER };
	struct rlimit now;
	pthread_t worker;
	struct held h = hold(&worker);
	char c;

	MUST(setrlimit(RLIMIT_NOFILE, &fewer) == 0);
	if (setresgid(USER, USER, USER) != 0 || setresuid(USER, USER, USER) != 0)
		MUST(prctl(PR_SET_DUMPABLE, 0) == 0); /* there is one user alone */
	MUST(prctl(PR_GET_DUMPABLE) == 0 && write(told, "h", 1) == 1);
	MUST(read(ask, &c, 1) == 1 && prctl(PR_GET_DUMPABLE) == 0);
	MUST(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == FEWER && now.rlim_max == FEWER);
	check(&h, worker);
	_exit(0);
}

int main(void)
{
	int ask[2], told[2], status;
	pthread_t worker;
	struct held h;
	pid_t child;
	char c;

	MUST(pipe(ask) == 0 && pipe(told) == 0);
	child = fork();
	if (child == 0)
		of_another_user(ask[0], told[1]);
	MUST(read(told[0], &c, 1) == 1);
	h = hold(&worker);

	object_ready();

	check(&h, worker);
	MUST(write(ask[1], "c", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
	return object_done();
}
