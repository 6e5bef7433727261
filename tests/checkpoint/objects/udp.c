/* SPDX-License-Identifier: Apache-2.0 */
/* UDP datagrams that wait: their bounds and order, whom they came from, whether that socket is still there, both versions of IP. */
#include "object.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define LARGE 60000
#define MANY \
	40 /* more than the smallest receive buffer has room for, and a second for each is too much */

/* struct sockaddr_in6, with room for the other */
typedef struct sockaddr_in6 address;

static socklen_t length_of(const address *a)
{
	return a->sin6_family == AF_INET6 ? sizeof(*a) : sizeof(struct sockaddr_in);
}

/* @text of version 6 when it has a colon. */
static int bound(const char *text, address *ret)
{
	int domain = strchr(text, ':') != NULL ? AF_INET6 : AF_INET;
	int fd = socket(domain, SOCK_DGRAM, 0);
	socklen_t n = sizeof(*ret);

	memset(ret, 0, sizeof(*ret));
	ret->sin6_family = (sa_family_t)domain;
	MUST(inet_pton(domain, text,
		     domain == AF_INET6 ? (void *)&ret->sin6_addr
					: (void *)&((struct sockaddr_in *)ret)->sin_addr) == 1);
	MUST(bind(fd, (struct sockaddr *)ret, length_of(ret)) == 0);
	MUST(getsockname(fd, (struct sockaddr *)ret, &n) == 0);
	return fd;
}

/* The port of @a at the address @text. */
static address at(const address *a, const char *text)
{
	address out = { .sin6_family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET,
		.sin6_port = a->sin6_port };

	MUST(inet_pton(out.sin6_family, text,
		     out.sin6_family == AF_INET6
			     ? (void *)&out.sin6_addr
			     : (void *)&((struct sockaddr_in *)&out)->sin_addr) == 1);
	return out;
}

/* All addresses of version 4, and those of version 6 alone, with the same port: two sockets. @six_first: that one is made first. */
static void bound_to_both(bool six_first, int *ret_four, int *ret_six, address *ret)
{
	const char *const any[] = { "0.0.0.0", "::" };
	int fds[2], on = 1;

	for (bool done = false; !done;) {
		address first = { .sin6_family = six_first ? AF_INET6 : AF_INET }, second;
		socklen_t n = sizeof(first);

		for (int i = 0; i < 2; i++) {
			fds[i] = socket((i == 0) == six_first ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
			MUST(fds[i] >= 0);
		}
		MUST(setsockopt(fds[six_first ? 0 : 1], IPPROTO_IPV6, IPV6_V6ONLY, &on,
			     sizeof(on)) == 0);
		MUST(bind(fds[0], (struct sockaddr *)&first, length_of(&first)) == 0);
		MUST(getsockname(fds[0], (struct sockaddr *)&first, &n) == 0);
		second = at(&first, any[six_first ? 0 : 1]);
		/* somebody else may have that one */
		done = bind(fds[1], (struct sockaddr *)&second, length_of(&second)) == 0;
		*ret = first;
		if (!done)
			MUST(errno == EADDRINUSE && close(fds[0]) == 0 && close(fds[1]) == 0);
	}
	*ret_four = fds[six_first ? 1 : 0];
	*ret_six = fds[six_first ? 0 : 1];
}

/* Memory of what waits in @fd. */
static uint32_t waiting(int fd)
{
	uint32_t info[16];
	socklen_t n = sizeof(info);

	MUST(getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &n) == 0);
	return info[0];
}

/* And it is there, in @receiver, which has the address @to. */
static void send_to(int fd, const address *to, int receiver, const char *text)
{
	uint32_t before = waiting(receiver);

	MUST(sendto(fd, text, strlen(text), 0, (const struct sockaddr *)to, length_of(to)) ==
		(ssize_t)strlen(text));
	while (waiting(receiver) == before)
		(void)sched_yield();
}

static void expect(int fd, const address *from, const char *text)
{
	static char got[LARGE + 1];
	address who = { 0 };
	socklen_t n = sizeof(who);
	ssize_t size = recvfrom(fd, got, sizeof(got), 0, (struct sockaddr *)&who, &n);

	if (size != (ssize_t)strlen(text) || memcmp(got, text, strlen(text)) != 0)
		object_fail("%zd bytes '%.20s', not '%.20s'", size, got, text);
	MUST(n == length_of(from) && who.sin6_port == from->sin6_port);
	MUST(from->sin6_family == AF_INET6
			? memcmp(&who.sin6_addr, &from->sin6_addr, sizeof(who.sin6_addr)) == 0
			: memcmp(&who, from, sizeof(struct sockaddr_in)) == 0);
}

static void expect_nothing(int fd)
{
	char byte;

	MUST(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

int main(void)
{
	static char large[LARGE + 1];
	address a, b, c, everywhere, six, both, gone[2], everywhere_seen, mapped, reached;
	address apart[2], apart_seen[2], narrow_at;
	int narrow = bound("127.0.0.1", &narrow_at), smallest = 1;
	char text[16];
	int four, other_version;
	int receiver = bound("127.0.0.1", &a), sender = bound("127.0.0.1", &b);
	int other = bound("127.0.0.7", &c), wide = bound("0.0.0.0", &everywhere);
	int sixth = bound("::1", &six), double_stack = bound("::", &both), closed;

	memset(large, 'L', LARGE);

	/* of three senders, one of which has closed, in their order */
	send_to(sender, &a, receiver, "one");
	send_to(other, &a, receiver, "two");
	closed = bound("127.0.0.3", &gone[0]);
	send_to(closed, &a, receiver, "three");
	MUST(close(closed) == 0);
	send_to(sender, &a, receiver, large);
	send_to(receiver, &a, receiver, "to myself");
	send_to(sender, &a, receiver, "");
	send_to(wide, &a, receiver, "from everywhere");
	everywhere_seen = at(&everywhere, "127.0.0.1");

	/* to all addresses */
	reached = at(&everywhere, "127.0.0.1");
	send_to(sender, &reached, wide, "at any");

	/* version 6, and version 4 to a socket of both */
	send_to(double_stack, &six, sixth, "six");
	closed = bound("::1", &gone[1]);
	send_to(closed, &six, sixth, "gone");
	MUST(close(closed) == 0);
	reached = at(&both, "127.0.0.1");
	send_to(sender, &reached, double_stack, "mapped");
	mapped = at(&b, "::ffff:127.0.0.1");

	/* each version by a socket of its own */
	for (int i = 0; i < 2; i++) {
		bound_to_both(i == 1, &four, &other_version, &apart[i]);
		send_to(four, &a, receiver, "four");
		send_to(other_version, &six, sixth, "six alone");
	}

	/* into a buffer that is smaller now than what waits in it */
	for (int i = 0; i < MANY; i++) {
		(void)snprintf(text, sizeof(text), "number %d", i);
		send_to(sender, &narrow_at, narrow, text);
	}
	MUST(setsockopt(narrow, SOL_SOCKET, SO_RCVBUF, &smallest, sizeof(smallest)) == 0);

	/* connected to each other */
	MUST(connect(sender, (struct sockaddr *)&c, length_of(&c)) == 0);
	MUST(connect(other, (struct sockaddr *)&b, length_of(&b)) == 0);
	send_to(sender, &c, other, "to my peer");
	send_to(other, &b, sender, "and back");

	object_ready();

	for (int i = 0; i < MANY; i++) {
		(void)snprintf(text, sizeof(text), "number %d", i);
		expect(narrow, &b, text);
	}
	smallest = 0;
	MUST(getsockopt(narrow, SOL_SOCKET, SO_RCVBUF, &smallest, &(socklen_t){ sizeof(int) }) ==
			0 &&
		smallest < 8192);
	expect(receiver, &b, "one");
	expect(receiver, &c, "two");
	expect(receiver, &gone[0], "three");
	expect(receiver, &b, large);
	expect(receiver, &a, "to myself");
	expect(receiver, &b, "");
	expect(receiver, &everywhere_seen, "from everywhere");
	for (int i = 0; i < 2; i++) {
		apart_seen[i] = at(&apart[i], "127.0.0.1");
		expect(receiver, &apart_seen[i], "four");
	}
	expect(wide, &b, "at any");
	both = at(&both, "::1");
	expect(sixth, &both, "six");
	expect(sixth, &gone[1], "gone");
	for (int i = 0; i < 2; i++) {
		apart_seen[i] = at(&apart[i], "::1");
		expect(sixth, &apart_seen[i], "six alone");
	}
	expect(double_stack, &mapped, "mapped");
	expect(other, &b, "to my peer");
	expect(sender, &c, "and back");
	expect_nothing(receiver);
	expect_nothing(sixth);
	object_talk(sender, other);
	object_talk(other, sender);
	return object_done();
}
