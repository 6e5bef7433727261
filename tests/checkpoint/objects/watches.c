/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epoll sets whose watches are of what has another number now, or none, or belongs to another process; once, at the edge, of one waiter alone. A timer that has gone off more
 * often than it was read, one of a time of day. A set of so many watches that what each is of is found otherwise, and one of so many that their list is long.
 */
#include "object.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
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

#define PIPES 100

/** struct crowd - a large set, and what makes each of its watches tell. */
struct crowd {
	int set;
	int pipes[PIPES][2]; /* told by their numbers */
	int turned; /* to write into: the end to read was watched by the number that this end has now. 1001 */
	int event; /* whose number another has. 1002 */
	int socket,
		other; /* the same of a socket: the other end of what is watched, and of what has its number. 1003 */
	int closed; /* the other end of a socket whose number nobody has. 1004 */
	int twice,
		twice_now; /* of the same number: what had it before, and what has it. 1005, 1006 */
};

static void be_called(int fd, int number)
{
	MUST(dup2(fd, number) == number && close(fd) == 0);
}

static void pair(int ends[2])
{
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
}

/* Somebody has what had the number, else it would not be watched any more. */
static void make_crowd(struct crowd *c)
{
	int ends[2], others[2];

	MUST((c->set = epoll_create1(0)) >= 0);
	for (int i = 0; i < PIPES; i++) {
		MUST(pipe(c->pipes[i]) == 0);
		watch(c->set, c->pipes[i][0], EPOLLIN, (uint64_t)i + 1);
	}
	MUST(pipe(ends) == 0);
	watch(c->set, ends[0], EPOLLIN, 1001);
	MUST(dup(ends[0]) >= 0);
	be_called(ends[1], c->turned = ends[0]);
	c->event = event();
	watch(c->set, c->event, EPOLLIN, 1002);
	MUST((ends[0] = dup(c->event)) >= 0);
	be_called(event(), c->event);
	c->event = ends[0];
	pair(ends);
	pair(others);
	watch(c->set, ends[0], EPOLLIN, 1003);
	MUST(dup(ends[0]) >= 0);
	be_called(others[0], ends[0]);
	c->socket = ends[1];
	c->other = others[1];
	pair(ends);
	watch(c->set, ends[0], EPOLLIN, 1004);
	MUST(dup(ends[0]) >= 0 && close(ends[0]) == 0);
	c->closed = ends[1];
	c->twice_now = event();
	watch(c->set, c->twice_now, EPOLLIN, 1005);
	MUST((c->twice = dup(c->twice_now)) >= 0);
	be_called(event(), c->twice_now);
	watch(c->set, c->twice_now, EPOLLIN, 1006);
}

/* One after the other, each the only one that tells something; none more than before. */
static void check_crowd(const struct crowd *c)
{
	const int events[] = { c->event, c->twice, c->twice_now };
	const uint64_t data[] = { 1002, 1005, 1006 };
	struct epoll_event e[4];
	char byte;

	expect(c->set, 0);
	MUST(write(c->other, "o", 1) == 1);
	expect(c->set, 0);
	for (int i = 0; i < 3; i++) {
		signal_it(events[i]);
		expect(c->set, data[i]);
		take(events[i]);
	}
	for (int i = 0; i < PIPES; i++) {
		MUST(write(c->pipes[i][1], "p", 1) == 1);
		expect(c->set, (uint64_t)i + 1);
		MUST(read(c->pipes[i][0], &byte, 1) == 1);
	}
	MUST(write(c->socket, "s", 1) == 1);
	expect(c->set, 1003);
	MUST(close(c->socket) == 0 && write(c->closed, "c", 1) == 1);
	MUST(epoll_wait(c->set, e, 4, 10000) == 2);
	MUST(e[0].data.u64 + e[1].data.u64 == 1003 + 1004);
	MUST(write(c->turned, "t", 1) == 1);
	MUST(epoll_wait(c->set, e, 4, 10000) == 3);
}

/* So many that their list takes more than a megabyte: of one event, by many numbers. */
static int watch_often(int fd, int *ret_n)
{
	struct rlimit limit;
	int set = epoll_create1(0), n = 0;

	MUST(set >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (int as = 1000; as < 15000 && (rlim_t)as < limit.rlim_max; as++, n++) {
		MUST(dup2(fd, as) == as);
		watch(set, as, EPOLLIN, (uint64_t)as);
	}
	*ret_n = n;
	return set;
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
	struct crowd crowd;
	struct epoll_event *all;
	int often_watched = event(), n, large;
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
	make_crowd(&crowd);
	large = watch_often(often_watched, &n);

	object_ready();

	check_crowd(&crowd);
	all = calloc((size_t)n + 1, sizeof(*all));
	MUST(all != NULL && epoll_wait(large, all, n, 0) == 0);
	signal_it(often_watched);
	MUST(epoll_wait(large, all, n + 1, 10000) == n);
	free(all);
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
