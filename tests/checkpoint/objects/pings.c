/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of echo requests: their identifiers, peers, options, and how they were shut down, both versions of IP; and the kernel answers them. */
#include "object.h"

#include <arpa/inet.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/socket.h>

#define IDENTIFIER 4711
#define PORT       1025 /* of a peer: has no meaning, and some say one */
#define TTL        7
#define WAIT_MS    20000

/** struct echo - a request or an answer; struct icmphdr and struct icmp6_hdr begin alike. */
struct echo {
	uint8_t type, code;
	uint16_t sum, identifier, number;
	char text[8];
};

static struct sockaddr_in v4(const char *text, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	MUST(inet_pton(AF_INET, text, &a.sin_addr) == 1);
	return a;
}

static struct sockaddr_in6 v6(const char *text, uint16_t port)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	MUST(inet_pton(AF_INET6, text, &a.sin6_addr) == 1);
	return a;
}

static int ping_socket(int domain)
{
	int fd = socket(domain, SOCK_DGRAM, domain == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6);

	MUST(fd >= 0);
	return fd;
}

static uint16_t identifier_of(int fd)
{
	struct sockaddr_in6 a = { 0 }; /* the port of both versions is at the same place */
	socklen_t n = sizeof(a);

	MUST(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
	return ntohs(a.sin6_port);
}

/* @to: NULL for whom it is connected to. The answer has its identifier. */
static void ping(int fd, int domain, const void *to, uint16_t number)
{
	struct echo e = { .type = domain == AF_INET ? ICMP_ECHO : ICMP6_ECHO_REQUEST,
		.number = htons(number),
		.text = "letters" };
	socklen_t n = domain == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	struct pollfd p = { .fd = fd, .events = POLLIN };

	MUST(sendto(fd, &e, sizeof(e), 0, to, to == NULL ? 0 : n) == sizeof(e));
	MUST(poll(&p, 1, WAIT_MS) == 1);
	MUST(recv(fd, &e, sizeof(e), 0) == sizeof(e));
	MUST(e.type == (domain == AF_INET ? ICMP_ECHOREPLY : ICMP6_ECHO_REPLY));
	MUST(ntohs(e.number) == number && strcmp(e.text, "letters") == 0);
	MUST(ntohs(e.identifier) == identifier_of(fd) && e.identifier != 0);
}

static void expect_protocol(int fd, int protocol)
{
	int value = 0;
	socklen_t n = sizeof(value);

	MUST(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, &n) == 0 && value == protocol);
}

/* A peer with a port is shown; one without is sent to all the same. */
static void expect_peer(int fd, const void *want, socklen_t size)
{
	struct sockaddr_in6 got = { 0 };
	socklen_t n = sizeof(got);

	MUST(getpeername(fd, (struct sockaddr *)&got, &n) == 0);
	MUST(n == size && memcmp(&got, want, size) == 0);
}

/* That one may not receive any more shows in poll(2), and in what is received: nothing, at once. */
static void expect_shut(int fd, short want)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLRDHUP };
	char byte;

	MUST(poll(&p, 1, 0) == 1 && p.revents == want);
	MUST(recv(fd, &byte, 1, 0) == 0);
}

int main(void)
{
	const struct sockaddr_in own4 = v4("127.0.0.1", IDENTIFIER), to4 = v4("127.0.0.1", 0),
				 port4 = v4("127.0.0.5", PORT), world4 = v4("8.8.8.8", 0);
	const struct sockaddr_in6 own6 = v6("::1", IDENTIFIER), to6 = v6("::1", 0),
				  port6 = v6("::1", PORT);
	int bound4 = ping_socket(AF_INET), bound6 = ping_socket(AF_INET6);
	int peer4 = ping_socket(AF_INET), peer6 = ping_socket(AF_INET6);
	int named4 = ping_socket(AF_INET), named6 = ping_socket(AF_INET6);
	int fresh4 = ping_socket(AF_INET), fresh6 = ping_socket(AF_INET6);
	int shut4 = ping_socket(AF_INET), shut6 = ping_socket(AF_INET6),
	    over = ping_socket(AF_INET);
	int world = ping_socket(AF_INET), ttl = TTL, udp = socket(AF_INET, SOCK_DGRAM, 0);
	uint16_t taken4, taken6;
	socklen_t n = sizeof(ttl);

	MUST(bind(bound4, (const struct sockaddr *)&own4, sizeof(own4)) == 0);
	MUST(bind(bound6, (const struct sockaddr *)&own6, sizeof(own6)) == 0);
	MUST(bind(udp, (const struct sockaddr *)&own4, sizeof(own4)) == 0);
	MUST(connect(peer4, (const struct sockaddr *)&to4, sizeof(to4)) == 0);
	MUST(connect(peer6, (const struct sockaddr *)&to6, sizeof(to6)) == 0);
	MUST(connect(named4, (const struct sockaddr *)&port4, sizeof(port4)) == 0);
	MUST(connect(named6, (const struct sockaddr *)&port6, sizeof(port6)) == 0);
	MUST(connect(world, (const struct sockaddr *)&world4, sizeof(world4)) == 0);
	MUST(setsockopt(bound4, IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl)) == 0);
	ping(peer4, AF_INET, NULL, 1);
	ping(peer6, AF_INET6, NULL, 1);
	MUST(connect(shut4, (const struct sockaddr *)&to4, sizeof(to4)) == 0);
	MUST(shutdown(shut4, SHUT_RD) == 0);
	MUST(shutdown(shut6, SHUT_RDWR) < 0 && errno == ENOTCONN);
	MUST(connect(over, (const struct sockaddr *)&to4, sizeof(to4)) == 0);
	MUST(shutdown(over, SHUT_RDWR) == 0);
	expect_shut(shut4, POLLIN | POLLRDHUP);
	taken4 = identifier_of(peer4);
	taken6 = identifier_of(peer6);
	MUST(identifier_of(fresh4) == 0 && identifier_of(fresh6) == 0);

	object_ready();

	expect_protocol(bound4, IPPROTO_ICMP);
	expect_protocol(bound6, IPPROTO_ICMPV6);
	expect_protocol(udp, IPPROTO_UDP);
	MUST(identifier_of(bound4) == IDENTIFIER && identifier_of(bound6) == IDENTIFIER);
	MUST(identifier_of(peer4) == taken4 && identifier_of(peer6) == taken6);
	MUST(identifier_of(fresh4) == 0 && identifier_of(fresh6) == 0);
	MUST(getsockopt(bound4, IPPROTO_IP, IP_TTL, &ttl, &n) == 0 && ttl == TTL);
	expect_peer(named4, &port4, sizeof(port4));
	expect_peer(named6, &port6, sizeof(port6));
	expect_shut(shut4, POLLIN | POLLRDHUP);
	expect_shut(shut6, POLLIN | POLLRDHUP | POLLHUP);
	expect_shut(over, POLLIN | POLLRDHUP | POLLHUP);
	ping(bound4, AF_INET, &to4, 2);
	ping(bound6, AF_INET6, &to6, 2);
	ping(peer4, AF_INET, NULL, 3);
	ping(peer6, AF_INET6, NULL, 3);
	ping(named4, AF_INET, NULL, 4);
	ping(named6, AF_INET6, NULL, 4);
	ping(fresh4, AF_INET, &to4, 5);
	ping(fresh6, AF_INET6, &to6, 5);
	/* the packet filter refuses it, as it did in the source */
	MUST(send(world, &(struct echo){ .type = ICMP_ECHO }, sizeof(struct echo), 0) < 0);
	MUST(errno == EPERM);
	return object_done();
}
