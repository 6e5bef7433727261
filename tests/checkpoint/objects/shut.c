/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets of TCP and UDP from which nothing is to be received any more, or in no direction, or whose connection has ended: who receives gets what had come, and then the end, as does who
 * waits for it. Many whose other end is gone: enough for what stands in for those to come across their ports.
 */
#include "loopback.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>

static void connected(int ret[2])
{
	struct sockaddr_in a;
	int listener = bound(SOCK_STREAM, &a);

	MUST(listen(listener, 1) == 0 && (ret[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	MUST(connect(ret[0], (struct sockaddr *)&a, sizeof(a)) == 0);
	MUST((ret[1] = accept(listener, NULL, NULL)) >= 0 && close(listener) == 0);
}

static short events(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLRDHUP };

	MUST(poll(&p, 1, 0) >= 0);
	return p.revents;
}

/* It waits for nobody. */
static void expect_end(int fd, const char *before)
{
	char got[16];
	size_t n = strlen(before);

	MUST(n == 0 ||
		(recv(fd, got, sizeof(got), 0) == (ssize_t)n && memcmp(got, before, n) == 0));
	MUST((events(fd) & POLLRDHUP) != 0);
	MUST(recv(fd, got, sizeof(got), 0) == 0);
}

/** struct over - connections that have ended in both directions: of who has connected, of who was connected to, and of nobody, since it was refused; one that goes on. */
struct over {
	struct sockaddr_in at;
	int listener, client, server, empty, refused, reset, live[2];
	struct sockaddr_in names[3];
};

static struct sockaddr_in name_of(int fd)
{
	struct sockaddr_in a;
	socklen_t n = sizeof(a);

	MUST(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
	return a;
}

static void connect_to(const struct over *o, int ret[2])
{
	MUST((ret[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	MUST(connect(ret[0], (const struct sockaddr *)&o->at, sizeof(o->at)) == 0);
	MUST((ret[1] = accept(o->listener, NULL, NULL)) >= 0);
}

/* @fd is done first, and its @other end has last words. */
static void finish(int fd, int other, const char *words)
{
	struct tcp_info info = { 0 };
	socklen_t n = sizeof(info);

	MUST(shutdown(fd, SHUT_WR) == 0);
	MUST(write(other, words, strlen(words)) == (ssize_t)strlen(words) && close(other) == 0);
	while (info.tcpi_state != TCP_CLOSE)
		MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0);
}

/* It was told so. */
static int refused(void)
{
	struct sockaddr_in a;
	int fd = bound(SOCK_STREAM, &a), error = 0;
	socklen_t n = sizeof(error);

	MUST(close(fd) == 0 && (fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
	MUST(connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 && errno == EINPROGRESS);
	while (error != ECONNREFUSED)
		MUST(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0);
	MUST(fcntl(fd, F_SETFL, 0) == 0);
	return fd;
}

static struct over make_over(void)
{
	struct over o = { 0 };
	int ends[2];

	o.listener = bound(SOCK_STREAM, &o.at);
	MUST(listen(o.listener, 5) == 0);
	connect_to(&o, o.live);
	connect_to(&o, ends);
	finish(o.client = ends[0], ends[1], "last words");
	connect_to(&o, ends);
	finish(o.server = ends[1], ends[0], "bye");
	connect_to(&o, ends);
	finish(o.empty = ends[0], ends[1], "");
	connect_to(&o, ends);
	MUST(setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 },
		     sizeof(struct linger)) == 0);
	/* nobody has been told yet */
	MUST(close(ends[0]) == 0 && poll(&(struct pollfd){ .fd = ends[1] }, 1, -1) == 1);
	o.reset = ends[1];
	for (int i = 0; i < 3; i++)
		o.names[i] = name_of((int[]){ o.client, o.server, o.empty }[i]);
	return o;
}

static void check_over(const struct over *o)
{
	const int ends[] = { o->client, o->server, o->empty };
	static const char *const words[] = { "last words", "bye", "" };
	int fresh[2];

	for (int i = 0; i < 3; i++) {
		struct sockaddr_in now = name_of(ends[i]);
		socklen_t n = sizeof(now);

		MUST(now.sin_port == o->names[i].sin_port);
		MUST(getpeername(ends[i], (struct sockaddr *)&now, &n) < 0 && errno == ENOTCONN);
		MUST((events(ends[i]) & (POLLHUP | POLLERR)) == POLLHUP);
		expect_end(ends[i], words[i]);
		MUST(send(ends[i], "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
	}
	MUST(send(o->reset, "x", 1, MSG_NOSIGNAL) < 0);
	object_talk(o->live[0], o->live[1]);
	connect_to(o, fresh);
	object_talk(fresh[1], fresh[0]);
	/* who tries again is told once that the first attempt was given up */
	MUST(connect(o->refused, (const struct sockaddr *)&o->at, sizeof(o->at)) == 0 ||
		(errno == ECONNABORTED &&
			connect(o->refused, (const struct sockaddr *)&o->at, sizeof(o->at)) == 0));
}

#define LEFT 600

static struct left {
	int fd;
	struct sockaddr_in name;
} left[LEFT];

/* One that was accepted: whoever connects to the same address is not to be taken for who has gone. */
static struct left served;

static struct sockaddr_in peer_of(int fd)
{
	struct sockaddr_in a;
	socklen_t n = sizeof(a);

	MUST(getpeername(fd, (struct sockaddr *)&a, &n) == 0);
	return a;
}

static void make_served(const struct over *o)
{
	int ends[2];

	connect_to(o, ends);
	served = (struct left){ ends[1], name_of(ends[0]) };
	MUST(close(ends[0]) == 0);
	MUST(poll(&(struct pollfd){ .fd = served.fd, .events = POLLIN }, 1, -1) == 1);
}

static void check_served(void)
{
	struct sockaddr_in now = peer_of(served.fd);

	MUST(memcmp(&now, &served.name, sizeof(now)) == 0);
	expect_end(served.fd, "");
}

static void make_left(const struct over *o)
{
	for (size_t i = 0; i < LEFT; i++) {
		int ends[2];

		connect_to(o, ends);
		MUST(close(ends[1]) == 0);
		left[i] = (struct left){ ends[0], name_of(ends[0]) };
	}
	for (size_t i = 0; i < LEFT; i++)
		MUST(poll(&(struct pollfd){ .fd = left[i].fd, .events = POLLIN }, 1, -1) == 1);
}

/* Has one of those the port that @fd tells? */
static bool is_left(int fd)
{
	const in_port_t port = name_of(fd).sin_port;

	for (size_t i = 0; i < LEFT; i++) {
		if (left[i].name.sin_port == port)
			return true;
	}
	return false;
}

static void check_left(void)
{
	for (size_t i = 0; i < LEFT; i++) {
		struct sockaddr_in now = name_of(left[i].fd);

		MUST(memcmp(&now, &left[i].name, sizeof(now)) == 0);
		expect_end(left[i].fd, "");
	}
}

int main(void)
{
	struct sockaddr_in a;
	int reading[2], both[2], open_one[2], udp = bound(SOCK_DGRAM, &a),
					      from = socket(AF_INET, SOCK_DGRAM, 0),
					      alone = socket(AF_INET, SOCK_DGRAM, 0), on = 1;

	struct over over = make_over();

	make_left(&over);
	make_served(&over);
	over.refused = refused();
	/* in a fork it has the port that it was refused on */
	while (is_left(over.refused)) {
		MUST(close(over.refused) == 0);
		over.refused = refused();
	}
	connected(reading);
	connected(both);
	connected(open_one);
	MUST(write(reading[1], "early", 5) == 5 && shutdown(reading[0], SHUT_RD) == 0);
	MUST(shutdown(both[0], SHUT_RDWR) == 0);
	MUST(connect(from, (struct sockaddr *)&a, sizeof(a)) == 0);
	MUST(send(from, "early", 5, 0) == 5);
	/* done all the same */
	MUST(shutdown(udp, SHUT_RD) < 0 && errno == ENOTCONN);
	MUST(setsockopt(alone, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
	MUST(shutdown(alone, SHUT_RDWR) < 0 && errno == ENOTCONN);

	object_ready();

	MUST((events(reading[0]) & POLLHUP) == 0 && (events(both[0]) & POLLHUP) != 0);
	expect_end(reading[0], "early");
	object_talk(reading[0], reading[1]);
	/* all the same: the kernel takes what is sent */
	object_talk(reading[1], reading[0]);
	expect_end(both[0], "");
	expect_end(both[1], "");
	MUST((events(udp) & POLLHUP) == 0 && (events(alone) & POLLHUP) != 0);
	expect_end(udp, "early");
	expect_end(alone, "");
	MUST(events(open_one[0]) == 0 && events(open_one[1]) == 0);
	object_talk(open_one[0], open_one[1]);
	check_over(&over);
	check_left();
	check_served();
	return object_done();
}
