/* SPDX-License-Identifier: Apache-2.0 */
/* Event descriptors: eventfd, timerfd, signalfd, and an epoll set that waits for them, level and edge; and many that have one inode, each by two descriptors. */
#include "object.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

#define MANY 20
#define FAST 32

static void watch(int set, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event e = { .events = events, .data.u64 = data };

	MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
}

static uint64_t next_event(int set)
{
	struct epoll_event e;

	MUST(epoll_wait(set, &e, 1, 10000) == 1);
	return e.data.u64;
}

/* Timers that have gone off and go off again before anybody can have looked at them. */
static void set_fast(int fast[FAST])
{
	struct itimerspec every = { { 0, 2000 }, { 0, 2000 } };

	for (int i = 0; i < FAST; i++)
		MUST((fast[i] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)) >= 0 &&
			timerfd_settime(fast[i], 0, &every, NULL) == 0);
}

/* Behind what had been counted there is more to come. */
static void check_fast(const int fast[FAST])
{
	for (int i = 0; i < FAST; i++) {
		struct pollfd again = { .fd = fast[i], .events = POLLIN };
		uint64_t n;

		MUST(read(fast[i], &n, sizeof(n)) == sizeof(n) && n >= 1);
		MUST(poll(&again, 1, 10000) == 1);
	}
}

static bool has_gone_off(int timer)
{
	struct pollfd off = { .fd = timer, .events = POLLIN };

	return poll(&off, 1, 10000) == 1;
}

int main(void)
{
	int counter = eventfd(7, EFD_NONBLOCK),
	    semaphore = eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK);
	int soon = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK),
	    late = timerfd_create(CLOCK_MONOTONIC, 0), once = timerfd_create(CLOCK_REALTIME, 0),
	    never = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	int set = epoll_create1(EPOLL_CLOEXEC), signals, pipe_fd[2];
	struct itimerspec every = { { 0, 30000000 }, { 0, 30000000 } },
			  hour = { { 0, 0 }, { 3600, 0 } }, at_once = { { 0, 0 }, { 0, 1 } }, now;
	int many[MANY], again[MANY], fast[FAST];
	struct signalfd_siginfo info;
	uint64_t n;
	sigset_t mask;

	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGUSR1);
	MUST(sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
	MUST((signals = signalfd(-1, &mask, SFD_NONBLOCK)) >= 0 && pipe(pipe_fd) == 0);
	MUST(timerfd_settime(soon, 0, &every, NULL) == 0 &&
		timerfd_settime(late, 0, &hour, NULL) == 0);
	MUST(timerfd_settime(once, 0, &at_once, NULL) == 0 && has_gone_off(once));
	watch(set, pipe_fd[0], EPOLLIN | EPOLLET, 0x1234567890abcdef);
	watch(set, signals, EPOLLIN, 2);
	for (int i = 0; i < MANY; i++)
		MUST((many[i] = eventfd(0, EFD_NONBLOCK)) >= 0);
	for (int i = 0; i < MANY; i++)
		MUST((again[i] = dup(many[i * 7 % MANY])) >= 0);
	set_fast(fast);

	object_ready();

	check_fast(fast);

	MUST(read(counter, &n, sizeof(n)) == sizeof(n) && n == 7);
	MUST(read(counter, &n, sizeof(n)) < 0 && errno == EAGAIN);
	for (int i = 0; i < 3; i++)
		MUST(read(semaphore, &n, sizeof(n)) == sizeof(n) && n == 1);
	MUST(read(semaphore, &n, sizeof(n)) < 0 && errno == EAGAIN);
	MUST(timerfd_gettime(late, &now) == 0 && now.it_value.tv_sec > 3000);
	MUST(fcntl(soon, F_SETFL, 0) == 0 && read(soon, &n, sizeof(n)) == sizeof(n) && n >= 1);
	MUST(read(soon, &n, sizeof(n)) == sizeof(n) && timerfd_gettime(soon, &now) == 0);
	MUST(now.it_interval.tv_nsec == 30000000);
	MUST(has_gone_off(once) && read(once, &n, sizeof(n)) == sizeof(n) && n == 1);
	MUST(read(never, &n, sizeof(n)) < 0 && errno == EAGAIN);
	MUST(write(pipe_fd[1], "x", 1) == 1 && next_event(set) == 0x1234567890abcdef);
	MUST(kill(getpid(), SIGUSR1) == 0 && next_event(set) == 2);
	MUST(read(signals, &info, sizeof(info)) == sizeof(info) && info.ssi_signo == SIGUSR1);
	for (uint64_t i = 0; i < MANY; i++) {
		n = i + 1;
		MUST(write(again[i], &n, sizeof(n)) == sizeof(n));
		MUST(read(many[i * 7 % MANY], &n, sizeof(n)) == sizeof(n) && n == i + 1);
	}
	return object_done();
}
