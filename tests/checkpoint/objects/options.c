/* SPDX-License-Identifier: Apache-2.0 */
/* Options of sockets: times, marks, keepalive, what is told with a packet; of TCP on both ends, of UDP, of unix sockets. */
#include "object.h"

#include <arpa/inet.h>
#include <linux/in6.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { FDS = 7, MAX = 160 };

static struct option {
	int fd, level, name, n;
	unsigned char value[20];
} all[MAX];
static int n_all;

static void set(int fd, int level, int name, const void *value, size_t n)
{
	struct option *o = &all[n_all++];

	MUST(n_all < MAX);
	if (setsockopt(fd, level, name, value, (socklen_t)n) < 0)
		object_fail("option %d of level %d", name, level);
	*o = (struct option){ .fd = fd, .level = level, .name = name };
}

/* One may have changed another. */
static void read_all(void)
{
	for (int i = 0; i < n_all; i++) {
		socklen_t size = sizeof(all[i].value);

		MUST(getsockopt(all[i].fd, all[i].level, all[i].name, all[i].value, &size) == 0);
		all[i].n = (int)size;
	}
}

static void number(int fd, int level, int name, int value)
{
	set(fd, level, name, &value, sizeof(value));
}

static void of_any(int fd)
{
	struct timeval in = { 3, 250000 }, out = { 7, 0 };

	set(fd, SOL_SOCKET, SO_RCVTIMEO, &in, sizeof(in));
	set(fd, SOL_SOCKET, SO_SNDTIMEO, &out, sizeof(out));
	number(fd, SOL_SOCKET, SO_PRIORITY, 4);
	number(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1);
}

static void of_tcp(int fd)
{
	struct linger linger = { 1, 17 };

	set(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	number(fd, SOL_SOCKET, SO_OOBINLINE, 1);
	number(fd, SOL_SOCKET, SO_RCVLOWAT, 2);
	number(fd, IPPROTO_TCP, TCP_KEEPIDLE, 111);
	number(fd, IPPROTO_TCP, TCP_KEEPINTVL, 22);
	number(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
	number(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 44444);
	number(fd, IPPROTO_TCP, TCP_LINGER2, 33);
	number(fd, IPPROTO_IP, IP_TOS, 0x10);
	number(fd, IPPROTO_IP, IP_TTL, 55);
}

static int tcp(struct sockaddr_in *a)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t n = sizeof(*a);

	*a = (struct sockaddr_in){ .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	MUST(bind(fd, (struct sockaddr *)a, sizeof(*a)) == 0 && listen(fd, 4) == 0);
	MUST(getsockname(fd, (struct sockaddr *)a, &n) == 0);
	return fd;
}

int main(void)
{
	struct sockaddr_in a;
	struct timeval shortly = { 0, 20000 };
	int listener = tcp(&a), ends[2], udp = socket(AF_INET, SOCK_DGRAM, 0),
	    six = socket(AF_INET6, SOCK_DGRAM, 0), pair[2], waits[2];
	unsigned char now[20];
	char c;

	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	MUST(connect(ends[0], (struct sockaddr *)&a, sizeof(a)) == 0);
	MUST((ends[1] = accept(listener, NULL, NULL)) >= 0);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, waits) == 0);
	number(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, 3);
	for (int i = 0; i < 2; i++) {
		of_any(ends[i]);
		of_tcp(ends[i]);
		of_any(pair[i]);
	}
	number(ends[0], IPPROTO_TCP, TCP_CORK, 1);
	of_any(udp);
	number(udp, SOL_SOCKET, SO_BROADCAST, 1);
	number(udp, IPPROTO_IP, IP_PKTINFO, 1);
	number(udp, IPPROTO_IP, IP_RECVERR, 1);
	number(udp, IPPROTO_IP, IP_MULTICAST_TTL, 9);
	number(udp, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	of_any(six);
	number(six, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 12);
	number(six, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
	set(waits[0], SOL_SOCKET, SO_RCVTIMEO, &shortly, sizeof(shortly));
	read_all();

	object_ready();

	for (int i = 0; i < n_all; i++) {
		struct option *o = &all[i];
		socklen_t n = sizeof(now);

		MUST(getsockopt(o->fd, o->level, o->name, now, &n) == 0);
		if ((int)n != o->n || memcmp(now, o->value, n) != 0)
			object_fail("option %d of level %d of %d is %d, not %d", o->name, o->level,
				o->fd, *(int *)(void *)now, *(int *)(void *)o->value);
	}
	/* for ever, without the limit */
	MUST(read(waits[0], &c, 1) < 0 && errno == EAGAIN);
	return object_done();
}
