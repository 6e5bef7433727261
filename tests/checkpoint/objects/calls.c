/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that wait: they go on waiting, nobody is told of a stop, and each ends as it would have. */
#include "asleep.h"
#include "object.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

enum { CALLS = 10, ENDING = 7 /* the others sleep on */ };

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

static struct timespec rest[2];

/* Not by libc, which makes another call of it, nor by its general function, as above. */
static void by_sleep_with_rest(int fd)
{
	struct timespec hour = { 3600, 0 };
	long rc;

	(void)fd;
	__asm__ volatile("mov %1, %%eax\n\tsyscall"
			 : "=&a"(rc)
			 : "i"(SYS_nanosleep), "D"(&hour), "S"(&rest[0])
			 : "rcx", "r11", "memory");
	MUST(rc == 0);
}

static void by_clock_with_rest(int fd)
{
	struct timespec hour = { 3600, 0 };

	(void)fd;
	MUST(clock_nanosleep(CLOCK_MONOTONIC, 0, &hour, &rest[1]) == 0);
}

static void (*const ways[CALLS])(int) = { by_epoll, by_poll, by_endless_poll, by_select, by_futex,
	by_read, by_sigwait, by_sleep, by_sleep_with_rest, by_clock_with_rest };

static void *thread(void *argument)
{
	int i = (int)(intptr_t)argument;

	tids[i] = (pid_t)syscall(SYS_gettid);
	ways[i](pipes[i][0]);
	answered[i] = true;
	return NULL;
}

/* In a fork the call has been made again: with the time that remained when it was stopped, which the kernel wrote to @of. The source's goes on by itself. */
static void expect_rest(int i, long nr, unsigned int argument, const struct timespec *of)
{
	unsigned long long arguments[6];
	char path[64], text[256];
	long now;
	FILE *f;

	asleep_await(&tids[i]);
	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tids[i]);
	f = fopen(path, "r");
	MUST(f != NULL && fgets(text, sizeof(text), f) != NULL && fclose(f) == 0);
	MUST(sscanf(text, "%ld %llx %llx %llx %llx", &now, &arguments[0], &arguments[1],
		     &arguments[2], &arguments[3]) == 5);
	MUST(of->tv_sec > 0 && of->tv_sec < 3600);
	MUST(now == SYS_restart_syscall || (now == nr && arguments[argument] == (uintptr_t)of));
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
		asleep_await(&tids[i]);

	object_ready();

	(void)nanosleep(&moment, NULL);
	for (int i = 0; i < CALLS; i++)
		MUST(!answered[i]);
	MUST(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1);
	MUST(pthread_kill(threads[6], SIGUSR1) == 0);
	for (int i = 0; i < ENDING; i++)
		MUST(write(pipes[i][1], "x", 1) == 1 && pthread_join(threads[i], NULL) == 0);
	for (int i = ENDING; i < CALLS; i++)
		MUST(!answered[i]);
	expect_rest(8, SYS_nanosleep, 0, &rest[0]);
	expect_rest(9, SYS_clock_nanosleep, 2, &rest[1]);
	return object_done();
}
