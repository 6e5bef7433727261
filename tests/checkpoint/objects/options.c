/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of sockets: times, marks, keepalive, what is told with a packet; of TCP on both ends, of listeners and what has not been connected, of UDP, of unix sockets. Each is read
 * back, and what the default profile lets nobody set is left out.
 */
#include "object.h"

#include <arpa/inet.h>
#include <linux/in6.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/time.h>

/* Of newer kernels. */
#define IP_LOCAL_PORTS     51
#define TCP_TX_DELAY       37
#define TCP_RTO_MAX        44
#define TCP_RTO_MIN        45
#define TCP_DELACK_MAX     46
#define SO_RCV_MARK        75
#define SO_RCV_PRIORITY    82
#define SO_PASS_RIGHTS     83
#define IPV6_MULTICAST_AND 29 /* IPV6_MULTICAST_ALL */

enum { MAX = 400 };

static struct option {
	int fd, level, name, n;
	unsigned char value[40];
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

/* What not every kernel has, or the profile allows. */
static void perhaps(int fd, int level, int name, int value)
{
	if (setsockopt(fd, level, name, &value, sizeof(value)) == 0)
		number(fd, level, name, value);
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

static void of_inet(int fd)
{
	unsigned long rate = 123456789;
	struct {
		int clock, flags;
	} times = { CLOCK_MONOTONIC, 0 };

	set(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
	set(fd, SOL_SOCKET, SO_TXTIME, &times, sizeof(times));
	number(fd, IPPROTO_IP, IP_MINTTL, 3);
	number(fd, IPPROTO_IP, IP_UNICAST_IF, (int)htonl(1));
	perhaps(fd, IPPROTO_IP, IP_LOCAL_PORTS, 40000 | 50000 << 16);
	number(fd, SOL_SOCKET, SO_BINDTOIFINDEX, 1);
}

/* A fresh socket has none of them, or another. */
static void of_more_tcp(int fd)
{
	const char algorithm[16] = "reno";

	set(fd, IPPROTO_TCP, TCP_CONGESTION, algorithm, sizeof(algorithm));
	number(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
	perhaps(fd, IPPROTO_TCP, TCP_TX_DELAY, 7);
	perhaps(fd, IPPROTO_TCP, TCP_RTO_MAX, 5000);
	perhaps(fd, IPPROTO_TCP, TCP_RTO_MIN, 5000);
	perhaps(fd, IPPROTO_TCP, TCP_DELACK_MAX, 5000);
}

/* Before anything is connected. */
static void of_idle_tcp(int fd)
{
	number(fd, IPPROTO_TCP, TCP_MAXSEG, 1111);
	number(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, 22222);
	number(fd, IPPROTO_TCP, TCP_FASTOPEN, 7);
	number(fd, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 1);
	number(fd, IPPROTO_TCP, TCP_SAVE_SYN, 1);
	number(fd, SOL_SOCKET, SO_INCOMING_CPU, 0);
}

static void of_packets(int fd)
{
	static const int told[] = { IP_RECVOPTS, IP_RETOPTS, IP_PASSSEC, IP_RECVORIGDSTADDR,
		IP_CHECKSUM, IP_RECVFRAGSIZE, 26 /* IP_RECVERR_RFC4884 */ };
	const unsigned char nothing[4] = { 1, 1, 1, 0 };
	struct in_addr lo = { htonl(INADDR_LOOPBACK) };

	for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++)
		number(fd, IPPROTO_IP, told[i], 1);
	set(fd, IPPROTO_IP, IP_OPTIONS, nothing, sizeof(nothing));
	set(fd, IPPROTO_IP, IP_MULTICAST_IF, &lo, sizeof(lo));
	number(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
	number(fd, SOL_SOCKET, SO_SELECT_ERR_QUEUE, 1);
	perhaps(fd, SOL_SOCKET, SO_RCV_MARK, 1);
	perhaps(fd, SOL_SOCKET, SO_RCV_PRIORITY, 1);
}

static void of_packets6(int fd)
{
	static const int told[] = { IPV6_FLOWINFO, IPV6_RECVHOPOPTS, IPV6_RECVRTHDR,
		IPV6_RECVDSTOPTS, IPV6_RECVPATHMTU, IPV6_FLOWINFO_SEND, IPV6_DONTFRAG,
		31 /* IPV6_RECVERR_RFC4884 */ };

	for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++)
		number(fd, IPPROTO_IPV6, told[i], 1);
	number(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, 1);
	number(fd, IPPROTO_IPV6, IPV6_MULTICAST_AND, 0);
	number(fd, IPPROTO_IPV6, IPV6_TCLASS, 0x28);
	number(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
}

static void of_udp(int fd)
{
	number(fd, IPPROTO_UDP, UDP_SEGMENT, 1200);
	number(fd, IPPROTO_UDP, UDP_GRO, 1);
	number(fd, IPPROTO_UDP, UDP_CORK, 1);
	number(fd, IPPROTO_UDP, UDP_NO_CHECK6_TX, 1);
	number(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
	number(fd, SOL_SOCKET, SO_NO_CHECK, 1);
}

/* Each of them ends what another has begun. */
static void of_times(int fds[4])
{
	const int named[] = { SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW, SO_TIMESTAMPING_OLD,
		SO_TIMESTAMPING_NEW };

	for (int i = 0; i < 4; i++) {
		fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
		number(fds[i], SOL_SOCKET, named[i],
			i < 2 ? 1 : SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_RX_SOFTWARE);
	}
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
	    six = socket(AF_INET6, SOCK_DGRAM, 0), pair[2], waits[2], timed[4],
	    idle = socket(AF_INET, SOCK_STREAM, 0);
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
		of_more_tcp(ends[i]);
		of_inet(ends[i]);
		of_any(pair[i]);
	}
	of_idle_tcp(listener);
	of_more_tcp(listener);
	of_idle_tcp(idle);
	of_inet(idle);
	of_times(timed);
	perhaps(pair[1], SOL_SOCKET, SO_PASS_RIGHTS, 0);
	number(ends[0], IPPROTO_TCP, TCP_CORK, 1);
	of_any(udp);
	number(udp, SOL_SOCKET, SO_BROADCAST, 1);
	number(udp, IPPROTO_IP, IP_PKTINFO, 1);
	number(udp, IPPROTO_IP, IP_RECVERR, 1);
	number(udp, IPPROTO_IP, IP_MULTICAST_TTL, 9);
	number(udp, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	of_inet(udp);
	of_packets(udp);
	of_udp(udp);
	of_any(six);
	of_packets(six);
	of_packets6(six);
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
