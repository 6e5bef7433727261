/* SPDX-License-Identifier: Apache-2.0 */
/* TCP connections whose reader does not read: full on both sides, also where both are one socket, more in one queue than a new one has room for, small buffers, an end behind all of it, many small pieces. */
#include "object.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#define ROOMY (1U << 20)
#define SMALL 4096

/** struct line - a connection, and how much its ends[0] has written that ends[1] has not read. */
struct line {
	int ends[2];
	size_t n;
};

static unsigned char at(size_t i)
{
	return (unsigned char)(i * 7 + i / 251);
}

static void set(int fd, int level, int option, int value)
{
	MUST(setsockopt(fd, level, option, &value, sizeof(value)) == 0);
}

static int get(int fd, int option)
{
	int value = 0;
	socklen_t n = sizeof(value);

	MUST(getsockopt(fd, SOL_SOCKET, option, &value, &n) == 0);
	return value;
}

static struct line join(bool small)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	struct line out = { { socket(AF_INET, SOCK_STREAM, 0), -1 }, 0 };

	if (small)
		set(listener, SOL_SOCKET, SO_RCVBUF, SMALL);
	if (small)
		set(out.ends[0], SOL_SOCKET, SO_SNDBUF, SMALL);
	MUST(bind(listener, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(listener, 1) == 0);
	MUST(getsockname(listener, (struct sockaddr *)&a, &n) == 0);
	MUST(connect(out.ends[0], (struct sockaddr *)&a, sizeof(a)) == 0);
	MUST((out.ends[1] = accept(listener, NULL, NULL)) >= 0);
	MUST(close(listener) == 0);
	return out;
}

/* Connected to the address that it is bound to. */
static struct line join_itself(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	MUST(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	MUST(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
	MUST(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	return (struct line){ { fd, fd }, 0 };
}

/* Until @most bytes were written, or no more can be. */
static void fill(struct line *l, size_t most, size_t piece)
{
	unsigned char bytes[65536];

	while (l->n < most) {
		struct pollfd room = { .fd = l->ends[0], .events = POLLOUT };
		size_t n = most - l->n < piece ? most - l->n : piece;
		ssize_t sent;

		for (size_t i = 0; i < n; i++)
			bytes[i] = at(l->n + i);
		sent = send(l->ends[0], bytes, n, MSG_DONTWAIT);
		if (sent > 0)
			l->n += (size_t)sent;
		else if (poll(&room, 1, 300) == 0)
			return;
	}
}

static void drain(struct line *l)
{
	unsigned char bytes[65536];

	for (size_t done = 0; done < l->n;) {
		ssize_t n = recv(l->ends[1], bytes,
			l->n - done < sizeof(bytes) ? l->n - done : sizeof(bytes), 0);

		MUST(n > 0);
		for (size_t i = 0; i < (size_t)n; i++)
			MUST(bytes[i] == at(done + i));
		done += (size_t)n;
	}
	l->n = 0;
}

/* What is written afterwards comes behind it. */
static void check(struct line *l)
{
	drain(l);
	object_talk(l->ends[0], l->ends[1]);
	object_talk(l->ends[1], l->ends[0]);
	fill(l, 3 * SMALL, 1000);
	drain(l);
}

int main(void)
{
	struct line full = join(false), back, roomy = join(false), small = join(true),
		    ended = join(false), pieces = join(false), own = join_itself();
	char byte;

	fill(&own, SIZE_MAX, 65536);
	fill(&full, SIZE_MAX, 65536);
	back = (struct line){ { full.ends[1], full.ends[0] }, 0 };
	fill(&back, 300000, 65536);
	set(roomy.ends[1], SOL_SOCKET, SO_RCVLOWAT, ROOMY);
	fill(&roomy, ROOMY, 65536);
	set(roomy.ends[1], SOL_SOCKET, SO_RCVLOWAT, 1);
	set(roomy.ends[0], SOL_SOCKET, SO_REUSEADDR, 1);
	fill(&small, SIZE_MAX, 100);
	set(small.ends[1], SOL_SOCKET, SO_REUSEADDR, 1);
	fill(&ended, SIZE_MAX, 65536);
	MUST(shutdown(ended.ends[0], SHUT_WR) == 0);
	set(pieces.ends[0], IPPROTO_TCP, TCP_NODELAY, 1);
	fill(&pieces, 3000, 1);
	MUST(full.n > ROOMY && roomy.n == ROOMY);

	object_ready();

	MUST(get(full.ends[0], SO_REUSEADDR) == 0 && get(roomy.ends[0], SO_REUSEADDR) == 1 &&
		get(small.ends[1], SO_REUSEADDR) == 1);
	MUST(get(roomy.ends[1], SO_RCVLOWAT) == 1);
	MUST(get(small.ends[0], SO_SNDBUF) == 2 * SMALL &&
		get(small.ends[1], SO_RCVBUF) == 2 * SMALL);
	drain(&back);
	check(&full);
	check(&roomy);
	check(&small);
	check(&pieces);
	check(&own);
	drain(&ended);
	MUST(read(ended.ends[1], &byte, 1) == 0);
	object_talk(ended.ends[1], ended.ends[0]);
	return object_done();
}
