/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that wait: they go on waiting, nobody is told of a stop, and each ends as it would have. */
#include "object.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

enum { CALLS = 8 };

static int pipes[CALLS][2];
static uint32_t word;
static volatile bool answered[CALLS];
static volatile pid_t tids[CALLS];

static void by_epoll(int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 77 };
	int set = epoll_create1(0);

	MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
	MUST(epoll_wait(set, &e, 1, -1) == 1 && e.data.u64 == 77);
}

static void by_poll(int fd)
{
	MUST(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 3600000) == 1);
}

static void by_endless_poll(int fd)
{
	MUST(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, -1) == 1);
}

static void by_select(int fd)
{
	struct timeval hour = { 3600, 0 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	MUST(select(fd + 1, &set, NULL, NULL, &hour) == 1);
}

static void by_futex(int fd)
{
	struct timespec hour = { 3600, 0 };
	char c;

	/* by libc's general function, which does not tell the number of the call: EINTR is allowed here */
	while (syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &hour, NULL, 0) != 0)
		MUST(errno == EINTR);
	MUST(read(fd, &c, 1) == 1);
}

static void by_read(int fd)
{
	char c;

	MUST(read(fd, &c, 1) == 1);
}

static void by_sigwait(int fd)
{
	sigset_t usr1;
	char c;

	(void)sigemptyset(&usr1);
	(void)sigaddset(&usr1, SIGUSR1);
	MUST(sigwaitinfo(&usr1, NULL) == SIGUSR1 && read(fd, &c, 1) == 1);
}

/* Never ends by itself: only that it has not ended is looked at. */
static void by_sleep(int fd)
{
	struct timespec hour = { 3600, 0 };

	(void)fd;
	MUST(nanosleep(&hour, NULL) == 0);
}

static void (*const ways[CALLS])(int) = { by_epoll, by_poll, by_endless_poll, by_select, by_futex,
	by_read, by_sigwait, by_sleep };

static void *thread(void *argument)
{
	int i = (int)(intptr_t)argument;

	tids[i] = (pid_t)syscall(SYS_gettid);
	ways[i](pipes[i][0]);
	answered[i] = true;
	return NULL;
}

/* In its call: the kernel says which. */
static void wait_until_asleep(int i)
{
	char path[64], text[256];
	pid_t tid;

	while ((tid = tids[i]) == 0)
		(void)sched_yield();
	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	for (;;) {
		int fd = open(path, O_RDONLY);
		ssize_t n = read(fd, text, sizeof(text) - 1);

		MUST(n > 0 && close(fd) == 0);
		text[n] = '\0';
		if (strstr(text, ") S ") != NULL)
			return;
		(void)sched_yield();
	}
}

int main(void)
{
	struct timespec moment = { 0, 50000000 };
	pthread_t threads[CALLS];
	sigset_t usr1;

	(void)sigemptyset(&usr1);
	(void)sigaddset(&usr1, SIGUSR1);
	MUST(sigprocmask(SIG_BLOCK, &usr1, NULL) == 0);
	for (int i = 0; i < CALLS; i++) {
		MUST(pipe(pipes[i]) == 0);
		MUST(pthread_create(&threads[i], NULL, thread, (void *)(intptr_t)i) == 0);
	}
	for (int i = 0; i < CALLS; i++)
		wait_until_asleep(i);

	object_ready();

	(void)nanosleep(&moment, NULL);
	for (int i = 0; i < CALLS; i++)
		MUST(!answered[i]);
	MUST(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1);
	MUST(pthread_kill(threads[6], SIGUSR1) == 0);
	for (int i = 0; i < CALLS - 1; i++)
		MUST(write(pipes[i][1], "x", 1) == 1 && pthread_join(threads[i], NULL) == 0);
	MUST(!answered[CALLS - 1]);
	return object_done();
}
