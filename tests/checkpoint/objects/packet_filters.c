/* SPDX-License-Identifier: Apache-2.0 */
/* Filters that programs have put before their sockets: what they drop is dropped, what had come before them is there, and who is locked stays so. */
#include "loopback.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <poll.h>

#define UDP_HEADER  8
#define LOCK_FILTER 44 /* SO_LOCK_FILTER */

enum { ROOM = 16 };

/* Only what begins with 'y'. */
static struct sock_filter yes[] = {
	BPF_STMT(BPF_LD | BPF_B | BPF_ABS, UDP_HEADER),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'y', 0, 1),
	BPF_STMT(BPF_RET | BPF_K, 0xffffffffU),
	BPF_STMT(BPF_RET | BPF_K, 0),
};

/* The first three bytes. */
static struct sock_filter shorten[] = { BPF_STMT(BPF_RET | BPF_K, 3) };

/* Everything, in a way that is told from nothing. */
static struct sock_filter all[] = {
	BPF_STMT(BPF_LD | BPF_IMM, 7),
	BPF_STMT(BPF_RET | BPF_K, 0xffffffffU),
};

static int attach(int fd, struct sock_filter *filter, size_t n)
{
	struct sock_fprog program = { (unsigned short)n, filter };

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

static void expect(int fd, const struct sock_filter *filter, size_t n)
{
	struct sock_filter now[ROOM];
	socklen_t size = ROOM; /* of instructions */

	MUST(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, now, &size) == 0);
	if (size != n || memcmp(now, filter, n * sizeof(*filter)) != 0)
		object_fail("a filter of %u instructions, not %zu", size, n);
}

static void expect_locked(int fd, int locked)
{
	int now = -1;
	socklen_t n = sizeof(now);

	MUST(getsockopt(fd, SOL_SOCKET, LOCK_FILTER, &now, &n) == 0 && now == locked);
	errno = 0;
	MUST(!locked || (attach(fd, all, 2) < 0 && errno == EPERM));
}

static int connected(int type, const struct sockaddr_in *a)
{
	int fd = socket(AF_INET, type, 0);

	MUST(connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0);
	return fd;
}

static void receive(int fd, const char *want)
{
	char got[ROOM] = { 0 };

	/* what was sent may be on its way still, where processors are slow */
	MUST(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 5000) == 1);
	MUST(recv(fd, got, sizeof(got) - 1, MSG_DONTWAIT) >= 0);
	if (strcmp(got, want) != 0)
		object_fail("'%s', not '%s'", got, want);
}

int main(void)
{
	struct sockaddr_in a, b;
	int udp = bound(SOCK_DGRAM, &a), from = connected(SOCK_DGRAM, &a), pair[2], on = 1,
	    listener = bound(SOCK_STREAM, &b), client, accepted, of_tcp;

	MUST(send(from, "no, early", 9, 0) == 9);
	MUST(attach(udp, yes, 4) == 0);
	MUST(setsockopt(udp, SOL_SOCKET, LOCK_FILTER, &on, sizeof(on)) == 0);
	MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	MUST(send(pair[0], "as long as it is", 16, 0) == 16);
	MUST(attach(pair[1], shorten, 1) == 0);
	MUST(listen(listener, 4) == 0);
	/* newer kernels want a privilege for it */
	of_tcp = attach(listener, all, 2) == 0;
	MUST(of_tcp || errno == EPERM);
	MUST(setsockopt(listener, SOL_SOCKET, LOCK_FILTER, &of_tcp, sizeof(of_tcp)) == 0);
	client = connected(SOCK_STREAM, &b);

	object_ready();

	MUST(send(from, "no", 2, 0) == 2 && send(from, "yes", 3, 0) == 3);
	receive(udp, "no, early");
	receive(udp, "yes");
	expect(udp, yes, 4);
	expect_locked(udp, 1);
	MUST(send(pair[0], "longer", 6, 0) == 6);
	receive(pair[1], "as long as it i");
	receive(pair[1], "lon");
	expect_locked(pair[1], 0);
	expect(listener, all, of_tcp ? 2 : 0);
	expect_locked(listener, of_tcp);
	MUST((accepted = accept(listener, NULL, NULL)) >= 0);
	expect(accepted, all, of_tcp ? 2 : 0);
	expect_locked(accepted, of_tcp);
	object_talk(client, accepted);
	return object_done();
}
