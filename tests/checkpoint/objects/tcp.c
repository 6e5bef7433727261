/* SPDX-License-Identifier: Apache-2.0 */
/* TCP and UDP over loopback: listeners, connections with both ends here and data in both queues, half-closed ones, options. */
#include "object.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define BULK 40000

static int server(struct sockaddr_in *a)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t n = sizeof(*a);

	*a = (struct sockaddr_in){ .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	MUST(bind(fd, (struct sockaddr *)a, sizeof(*a)) == 0 && listen(fd, 7) == 0);
	MUST(getsockname(fd, (struct sockaddr *)a, &n) == 0);
	return fd;
}

static int client(const struct sockaddr_in *a)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	MUST(connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0);
	return fd;
}

/* Whoever dials the address that it is bound to has nobody else at the other end. */
static int own_peer(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t n = sizeof(a);

	MUST(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	MUST(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
	MUST(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	return fd;
}

static in_port_t port(int fd, bool remote)
{
	struct sockaddr_in a;
	socklen_t n = sizeof(a);

	MUST((remote ? getpeername : getsockname)(fd, (struct sockaddr *)&a, &n) == 0);
	return a.sin_port;
}

static void read_bulk(int fd, const char *bulk, char *got)
{
	for (size_t at = 0; at < BULK;) {
		ssize_t more = read(fd, got + at, BULK - at);

		MUST(more > 0);
		at += (size_t)more;
	}
	MUST(memcmp(bulk, got, BULK) == 0);
}

int main(void)
{
	static char bulk[BULK], got[BULK];
	struct sockaddr_in a,
		datagrams = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = server(&a), one = 1, value = 0, ends[2], half[2], lonely[2], udp[2];
	socklen_t n = sizeof(value), length = sizeof(datagrams);
	in_port_t own, own_port;
	int own_end = own_peer(), deaf_end = own_peer();

	for (size_t i = 0; i < sizeof(bulk); i++)
		bulk[i] = (char)(i * 13);
	ends[0] = client(&a);
	MUST((ends[1] = accept(listener, NULL, NULL)) >= 0);
	half[0] = client(&a);
	MUST((half[1] = accept(listener, NULL, NULL)) >= 0);
	lonely[0] = client(&a);
	MUST((lonely[1] = accept(listener, NULL, NULL)) >= 0);
	MUST(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0);
	MUST(write(ends[0], bulk, sizeof(bulk)) == sizeof(bulk) && write(ends[1], "small", 5) == 5);
	MUST(write(half[0], "last", 4) == 4 && shutdown(half[0], SHUT_WR) == 0);
	MUST(write(lonely[1], "bye", 3) == 3 && close(lonely[1]) == 0);
	udp[0] = socket(AF_INET, SOCK_DGRAM, 0);
	MUST(bind(udp[0], (struct sockaddr *)&datagrams, sizeof(datagrams)) == 0);
	MUST(getsockname(udp[0], (struct sockaddr *)&datagrams, &length) == 0);
	udp[1] = socket(AF_INET, SOCK_DGRAM, 0);
	MUST(connect(udp[1], (struct sockaddr *)&datagrams, sizeof(datagrams)) == 0);
	own = port(ends[0], false);
	own_port = port(own_end, false);
	MUST(write(own_end, bulk, sizeof(bulk)) == sizeof(bulk));
	MUST(write(deaf_end, "last", 4) == 4 && shutdown(deaf_end, SHUT_RD) == 0);
	MUST(setsockopt(ends[1], SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0);

	int fresh;

	object_ready();

	read_bulk(ends[1], bulk, got);
	MUST(read(ends[0], got, 64) == 5 && memcmp(got, "small", 5) == 0);
	object_talk(ends[0], ends[1]);
	object_talk(ends[1], ends[0]);
	MUST(port(ends[0], false) == own && port(ends[1], true) == own &&
		port(ends[1], false) == a.sin_port);
	MUST(getsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &value, &n) == 0 && value == 1);
	MUST(getsockopt(ends[1], IPPROTO_TCP, TCP_NODELAY, &value, &n) == 0 && value == 0);
	MUST(getsockopt(ends[1], SOL_SOCKET, SO_REUSEADDR, &value, &n) == 0 && value == 1);
	MUST(getsockopt(ends[0], SOL_SOCKET, SO_REUSEADDR, &value, &n) == 0 && value == 0);
	MUST(getsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &value, &n) == 0 && value == 0);
	MUST(read(half[1], got, 64) == 4 && read(half[1], got, 64) == 0);
	object_talk(half[1], half[0]);
	MUST(read(lonely[0], got, 64) == 3 && read(lonely[0], got, 64) == 0);
	fresh = client(&a);
	object_talk(fresh, accept(listener, NULL, NULL));
	object_talk(udp[1], udp[0]);
	MUST(port(own_end, false) == own_port && port(own_end, true) == own_port);
	read_bulk(own_end, bulk, got);
	object_talk(own_end, own_end);
	MUST(recv(deaf_end, got, 64, MSG_DONTWAIT) == 4 && memcmp(got, "last", 4) == 0);
	MUST(recv(deaf_end, got, 64, MSG_DONTWAIT) == 0);
	return object_done();
}
