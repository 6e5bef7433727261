/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of TCP and UDP from which nothing is to be received any more, or in no direction: who receives gets what had come, and then the end, as does who waits for it. */
#include "loopback.h"

#include <arpa/inet.h>
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

int main(void)
{
	struct sockaddr_in a;
	int reading[2], both[2], open_one[2], udp = bound(SOCK_DGRAM, &a),
					      from = socket(AF_INET, SOCK_DGRAM, 0),
					      alone = socket(AF_INET, SOCK_DGRAM, 0), on = 1;

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
	return object_done();
}
