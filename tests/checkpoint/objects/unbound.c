/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that have no port yet, or a part of an address: nobody has given them one behind their program's back, so they can still be bound. */
#include "object.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

static struct sockaddr_in6 name_of(int fd)
{
	struct sockaddr_in6 a = { 0 };
	socklen_t n = sizeof(a);

	MUST(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
	return a;
}

static int number(int fd, int level, int name)
{
	int value = -1;
	socklen_t n = sizeof(value);

	MUST(getsockopt(fd, level, name, &value, &n) == 0);
	return value;
}

/* What is bound once cannot be bound again. */
static void bind_now(int fd, int domain)
{
	struct sockaddr_in four = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };

	MUST(name_of(fd).sin6_port == 0);
	MUST(domain == AF_INET ? bind(fd, (struct sockaddr *)&four, sizeof(four)) == 0
			       : bind(fd, (struct sockaddr *)&six, sizeof(six)) == 0);
	MUST(name_of(fd).sin6_port != 0);
}

/* An address whose port is to be chosen when it connects. */
static int without_port(struct sockaddr_in *ret)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	socklen_t n = sizeof(*ret);

	*ret = (struct sockaddr_in){ .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1) };
	MUST(setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on)) == 0);
	MUST(bind(fd, (struct sockaddr *)ret, sizeof(*ret)) == 0);
	MUST(getsockname(fd, (struct sockaddr *)ret, &n) == 0 && ret->sin_port == 0);
	return fd;
}

/* An address that the machine does not have. */
static int elsewhere(struct sockaddr_in6 *ret)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(4321) };
	int fd = socket(AF_INET6, SOCK_DGRAM, 0), on = 1;

	MUST(inet_pton(AF_INET6, "2001:db8::7", &a.sin6_addr) == 1);
	MUST(setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof(on)) == 0);
	MUST(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	*ret = name_of(fd);
	return fd;
}

int main(void)
{
	static const int domains[] = { AF_INET, AF_INET6 }, types[] = { SOCK_STREAM, SOCK_DGRAM };
	int fds[2][2], free_one, half, on = 1, listener;
	struct sockaddr_in6 where, now;
	struct sockaddr_in half_name, to = { .sin_family = AF_INET };
	socklen_t n = sizeof(to);

	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < 2; j++)
			MUST((fds[i][j] = socket(domains[i], types[j], 0)) >= 0);
	}
	MUST(setsockopt(fds[1][0], IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) == 0);
	MUST(setsockopt(fds[0][0], SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
	MUST(setsockopt(fds[0][1], SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0);
	half = without_port(&half_name);
	free_one = elsewhere(&where);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	MUST(bind(listener, (struct sockaddr *)&to, sizeof(to)) == 0 && listen(listener, 4) == 0);
	MUST(getsockname(listener, (struct sockaddr *)&to, &n) == 0);

	object_ready();

	MUST(number(fds[1][0], IPPROTO_IPV6, IPV6_V6ONLY) == 1);
	MUST(number(fds[1][1], IPPROTO_IPV6, IPV6_V6ONLY) == 0);
	MUST(number(fds[0][0], SOL_SOCKET, SO_REUSEADDR) == 1);
	MUST(number(fds[0][1], SOL_SOCKET, SO_REUSEPORT) == 1);
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < 2; j++)
			bind_now(fds[i][j], domains[i]);
	}
	now = name_of(half);
	MUST(memcmp(&now, &half_name, sizeof(half_name)) == 0);
	MUST(number(half, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT) == 1);
	MUST(connect(half, (struct sockaddr *)&to, sizeof(to)) == 0);
	now = name_of(free_one);
	MUST(memcmp(&now, &where, sizeof(where)) == 0);
	return object_done();
}
