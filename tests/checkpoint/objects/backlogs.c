/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that wait to be accepted, of unix sockets in their order, of TCP, where nobody tells it, all; whom the kernel says that they are from. */
#include "object.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { CLIENTS = 3, KEEP_IDLE = 77 };

static const struct sockaddr_un path = { .sun_family = AF_UNIX, .sun_path = "/tmp/backlog" };

static int open_tcp(int domain, struct sockaddr_in6 *a, socklen_t *n)
{
	int fd = socket(domain, SOCK_STREAM, 0);

	*n = domain == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	memset(a, 0, sizeof(*a));
	a->sin6_family = (sa_family_t)domain;
	MUST(fd >= 0 && bind(fd, (struct sockaddr *)a, *n) == 0 && listen(fd, 8) == 0);
	MUST(getsockname(fd, (struct sockaddr *)a, n) == 0);
	return fd;
}

static in_port_t port(int fd, bool remote)
{
	struct sockaddr_in6 a;
	socklen_t n = sizeof(a);

	MUST((remote ? getpeername : getsockname)(fd, (struct sockaddr *)&a, &n) == 0);
	return a.sin6_port; /* where sockaddr_in has it */
}

/* By version 4, whatever the listener's is. */
static int connect_tcp(in_port_t to)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_port = to, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	MUST(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	return fd;
}

static int connect_unix(int type)
{
	int fd = socket(AF_UNIX, type, 0);

	MUST(connect(fd, (const struct sockaddr *)&path, sizeof(path)) == 0);
	return fd;
}

static void expect_other(int fd, pid_t pid)
{
	struct ucred said;
	socklen_t n = sizeof(said);

	MUST(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &said, &n) == 0);
	if (said.pid != pid || said.uid != getuid() || said.gid != getgid())
		object_fail("from process %d of %u, not %d", said.pid, said.uid, pid);
}

/* Who waits has from its listener what was set for that. */
static void expect_inherited(int fd)
{
	int idle = 0;
	socklen_t n = sizeof(idle);

	MUST(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &n) == 0 && idle == KEEP_IDLE);
}

static void expect_backlog(int fd, unsigned int most)
{
	struct tcp_info info;
	socklen_t n = sizeof(info);

	MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 && info.tcpi_sacked == most);
}

static void expect_none(int fd)
{
	errno = 0;
	MUST(accept4(fd, NULL, NULL, 0) < 0 && errno == EAGAIN);
}

int main(void)
{
	struct sockaddr_in6 a4, a6;
	socklen_t n;
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
	int tcp4 = open_tcp(AF_INET, &a4, &n), tcp6 = open_tcp(AF_INET6, &a6, &n);
	int clients[CLIENTS], clients4[CLIENTS], client6, half, established[2], fd, at,
		idle = KEEP_IDLE, most = 255;

	MUST(bind(listener, (const struct sockaddr *)&path, sizeof(path)) == 0 &&
		listen(listener, 8) == 0);
	MUST(setsockopt(tcp4, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) == 0);
	established[0] = connect_tcp(a6.sin6_port);
	MUST((established[1] = accept(tcp6, NULL, NULL)) >= 0);
	for (int i = 0; i < CLIENTS; i++) {
		clients[i] = connect_unix(SOCK_SEQPACKET);
		clients4[i] = connect_tcp(a4.sin6_port);
	}
	half = connect_unix(SOCK_SEQPACKET);
	MUST(shutdown(half, SHUT_WR) == 0);
	client6 = connect_tcp(a6.sin6_port);
	/* none of these would be let in now, and no more than these */
	MUST(listen(tcp4, 1) == 0 && listen(listener, 1) == 0);
	MUST(setsockopt(tcp4, IPPROTO_IP, IP_MINTTL, &most, sizeof(most)) == 0);
	MUST(fcntl(tcp4, F_SETFL, O_NONBLOCK) == 0 && fcntl(tcp6, F_SETFL, O_NONBLOCK) == 0);

	object_ready();

	expect_other(listener, getpid());
	expect_backlog(tcp4, 1);
	for (int i = 0; i < CLIENTS; i++) {
		MUST((fd = accept(listener, NULL, NULL)) >= 0);
		expect_other(fd, getpid());
		expect_other(clients[i], getpid());
		object_talk(clients[i], fd);
		object_talk(fd, clients[i]);
		MUST((fd = accept(tcp4, NULL, NULL)) >= 0);
		MUST(port(fd, false) == a4.sin6_port);
		expect_inherited(fd);
		for (at = 0; at < CLIENTS && port(fd, true) != port(clients4[at], false);)
			at++;
		MUST(at < CLIENTS);
		object_talk(clients4[at], fd);
		object_talk(fd, clients4[at]);
	}
	MUST((fd = accept(listener, NULL, NULL)) >= 0);
	object_talk(fd, half);
	MUST(recv(fd, &n, 1, MSG_DONTWAIT) == 0);
	MUST((fd = accept(tcp6, NULL, NULL)) >= 0 && port(fd, true) == port(client6, false));
	object_talk(client6, fd);
	object_talk(established[0], established[1]);
	object_talk(established[1], established[0]);
	expect_none(listener);
	expect_none(tcp4);
	expect_none(tcp6);
	fd = connect_unix(SOCK_SEQPACKET);
	object_talk(fd, accept(listener, NULL, NULL));
	n = sizeof(most);
	MUST(getsockopt(tcp4, IPPROTO_IP, IP_MINTTL, &most, &n) == 0 && most == 255);
	most = 0;
	MUST(setsockopt(tcp4, IPPROTO_IP, IP_MINTTL, &most, sizeof(most)) == 0);
	fd = connect_tcp(a4.sin6_port);
	object_talk(fd, accept(tcp4, NULL, NULL));
	return object_done();
}
