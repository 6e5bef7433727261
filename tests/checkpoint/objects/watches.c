/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epoll sets whose watches are of what has another number now, or none, or belongs to another process; once, at the edge, of one waiter alone. A timer that has gone off more
 * often than it was read, one of a time of day.
 */
#include "object.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

static void watch(int set, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event e = { .events = events, .data.u64 = data };

	MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
}

static void signal_it(int fd)
{
	uint64_t one = 1;

	MUST(write(fd, &one, sizeof(one)) == sizeof(one));
}

static void take(int fd)
{
	uint64_t n;

	MUST(read(fd, &n, sizeof(n)) == sizeof(n));
}

/* The only thing that there is to tell is @data; 0 = nothing. */
static void expect(int set, uint64_t data)
{
	struct epoll_event e[4];
	int n = epoll_wait(set, e, 4, data == 0 ? 0 : 10000);

	if (n != (data != 0) || (n == 1 && e[0].data.u64 != data))
		object_fail("%d events, the first of %llu, not %llu", n,
			n > 0 ? (unsigned long long)e[0].data.u64 : 0, (unsigned long long)data);
}

static int event(void)
{
	int fd = eventfd(0, EFD_NONBLOCK);

	MUST(fd >= 0);
	return fd;
}

/* What the set, which is its parent's too, waits for, it alone has. */
static void child(int set, int said, int asked)
{
	int own = event();
	char c;

	watch(set, own, EPOLLIN, 77);
	MUST(write(said, "r", 1) == 1 && read(asked, &c, 1) == 1);
	signal_it(own);
	MUST(write(said, "s", 1) == 1 && read(asked, &c, 1) == 1);
	take(own);
	_exit(0);
}

static void read_line(int fd, const char *key, char *ret)
{
	char path[32], line[128];
	FILE *f;

	ret[0] = '\0';
	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	MUST(f != NULL);
	while (fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, key, strlen(key)) == 0)
			memcpy(ret, line, strlen(line) + 1);
	}
	MUST(fclose(f) == 0);
}

int main(void)
{
	int set = epoll_create1(EPOLL_CLOEXEC), shared = epoll_create1(0);
	int closed = event(), kept = dup(closed), reused = event(), kept_reused = dup(reused),
	    other;
	int once = event(), alone = event(), said[2], asked[2], status;
	int often = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK),
	    day = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
	struct itimerspec every = { { 3600, 0 }, { 0, 1 } }, at = { { 0, 0 }, { 0, 0 } }, now;
	char before[128], line[128], c;
	struct timespec today;
	uint64_t ticks;
	pid_t pid;

	MUST(pipe(said) == 0 && pipe(asked) == 0);
	watch(set, closed, EPOLLIN, 1);
	MUST(close(closed) == 0);
	watch(set, reused, EPOLLIN, 2);
	MUST((other = event()) == closed && dup2(other, reused) == reused);
	/* twice by the same number */
	watch(set, reused, EPOLLIN, 3);
	watch(set, once, EPOLLIN | EPOLLONESHOT, 4);
	watch(set, alone, EPOLLIN | EPOLLEXCLUSIVE, 5);
	MUST(fcntl(other, F_SETFD, 0) == 0 && fcntl(reused, F_SETFD, FD_CLOEXEC) == 0);
	pid = fork();
	if (pid == 0)
		child(shared, said[1], asked[0]);
	MUST(read(said[0], &c, 1) == 1);
	/* gone off, unread, and goes on */
	MUST(timerfd_settime(often, 0, &every, NULL) == 0);
	do
		read_line(often, "ticks:", before);
	while (strcmp(before, "ticks: 1\n") != 0);
	MUST(clock_gettime(CLOCK_REALTIME, &today) == 0);
	at.it_value.tv_sec = today.tv_sec + 100000;
	MUST(timerfd_settime(day, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &at, NULL) == 0);

	object_ready();

	expect(set, 0);
	signal_it(kept);
	expect(set, 1);
	take(kept);
	signal_it(kept_reused);
	expect(set, 2);
	take(kept_reused);
	signal_it(reused);
	expect(set, 3);
	take(other);
	signal_it(once);
	expect(set, 4);
	expect(set, 0);
	take(once);
	signal_it(alone);
	expect(set, 5);
	take(alone);
	MUST(fcntl(other, F_GETFD) == 0 && fcntl(reused, F_GETFD) == FD_CLOEXEC);
	/* what was closed is closed */
	MUST(write(asked[1], "a", 1) == 1 && read(said[0], &c, 1) == 1);
	expect(shared, 77);
	MUST(write(asked[1], "b", 1) == 1 && waitpid(pid, &status, 0) == pid && status == 0);
	expect(shared, 0);
	read_line(often, "ticks:", line);
	MUST(strcmp(line, before) == 0);
	MUST(read(often, &ticks, sizeof(ticks)) == sizeof(ticks) && ticks == 1);
	MUST(timerfd_gettime(often, &now) == 0 && now.it_interval.tv_sec == 3600 &&
		now.it_value.tv_sec > 3000);
	read_line(day, "settime flags:", line);
	MUST(strcmp(line, "settime flags: 03\n") == 0);
	MUST(timerfd_gettime(day, &now) == 0 && now.it_value.tv_sec > 90000 &&
		now.it_value.tv_sec <= 100000);
	return object_done();
}
