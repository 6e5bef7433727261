/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets that share their address, of which some have had taken away since what let them do so (SO_REUSEADDR, SO_REUSEPORT): those that still share what comes do, and nobody else may
 * have the address. Who has let all of his own do so may add one.
 */
#include "loopback.h"

#include <poll.h>

#define OTHER   33
#define MANY    64 /* of which one end gets none once in 2^63 */
#define TOLD_MS 10000

static void set(int fd, int name, int value)
{
	MUST(setsockopt(fd, SOL_SOCKET, name, &value, sizeof(value)) == 0);
}

static int get(int fd, int name)
{
	int value = -1;

	MUST(getsockopt(fd, SOL_SOCKET, name, &value, &(socklen_t){ sizeof(value) }) == 0);
	return value;
}

/* By SO_REUSEADDR of UDP all who have it must let that be; of the rest the kernel asks its notes about the port, or one of them. */
static bool may_be_shared(const struct sockaddr_in *a)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), rc;

	set(fd, SO_REUSEADDR, 1);
	rc = bind(fd, (const struct sockaddr *)a, sizeof(*a));
	MUST(rc == 0 || errno == EADDRINUSE);
	MUST(close(fd) == 0);
	return rc == 0;
}

/** struct shared - two sockets with one address by @option, which the first @n_taken have not got any more. */
struct shared {
	int type, option, n_taken, fds[2];
	struct sockaddr_in at;
};

static struct shared share(int type, int option, int n_taken)
{
	struct shared s = { .type = type, .option = option, .n_taken = n_taken };
	socklen_t n = sizeof(s.at);

	s.at = (struct sockaddr_in){ .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	for (int i = 0; i < 2; i++) {
		MUST((s.fds[i] = socket(AF_INET, type, 0)) >= 0);
		set(s.fds[i], option, 1);
		MUST(bind(s.fds[i], (struct sockaddr *)&s.at, sizeof(s.at)) == 0);
		MUST(getsockname(s.fds[i], (struct sockaddr *)&s.at, &n) == 0);
	}
	return s;
}

static struct shared listen_to(struct shared s)
{
	for (int i = 0; i < 2; i++)
		MUST(listen(s.fds[i], MANY) == 0);
	return s;
}

static struct shared take_away(struct shared s)
{
	for (int i = 0; i < s.n_taken; i++)
		set(s.fds[i], s.option, 0);
	return s;
}

static bool is_told(int fd, int timeout_ms)
{
	return poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, timeout_ms) == 1;
}

/* What comes from many goes to both, or all of it to the second. */
static void check(const struct shared *s, bool divided)
{
	int from[MANY];

	for (int i = 0; i < 2; i++) {
		struct sockaddr_in now;
		socklen_t n = sizeof(now);

		MUST(getsockname(s->fds[i], (struct sockaddr *)&now, &n) == 0);
		MUST(memcmp(&now, &s->at, sizeof(now)) == 0);
		MUST(get(s->fds[i], s->option) == (i >= s->n_taken));
		MUST(get(s->fds[i], s->option == SO_REUSEADDR ? SO_REUSEPORT : SO_REUSEADDR) == 0);
	}
	MUST(s->option != SO_REUSEADDR || !may_be_shared(&s->at));
	for (int i = 0; i < MANY; i++) {
		MUST((from[i] = socket(AF_INET, s->type, 0)) >= 0);
		MUST(connect(from[i], (const struct sockaddr *)&s->at, sizeof(s->at)) == 0);
		MUST(s->type == SOCK_STREAM || send(from[i], "x", 1, 0) == 1);
	}
	/* on a busy machine the kernel hands over behind the call */
	MUST(is_told(s->fds[1], TOLD_MS));
	MUST(is_told(s->fds[0], divided ? TOLD_MS : 0) == divided);
	for (int i = 0; i < MANY; i++)
		MUST(close(from[i]) == 0);
}

/* Of a user who may let others of his own share it. */
static int listen_as_other(struct sockaddr_in *a)
{
	int fd;

	MUST(seteuid(OTHER) == 0 && (fd = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	MUST(seteuid(0) == 0);
	set(fd, SO_REUSEPORT, 1);
	MUST(bind(fd, (struct sockaddr *)a, sizeof(*a)) == 0 && listen(fd, MANY) == 0);
	return fd;
}

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int theirs = listen_as_other(&at);
	const struct shared by_address = take_away(share(SOCK_DGRAM, SO_REUSEADDR, 1)),
			    by_nobody = take_away(share(SOCK_DGRAM, SO_REUSEADDR, 2)),
			    by_port = take_away(share(SOCK_DGRAM, SO_REUSEPORT, 1)),
			    listeners = take_away(listen_to(share(SOCK_STREAM, SO_REUSEPORT, 1))),
			    no_more = take_away(listen_to(share(SOCK_STREAM, SO_REUSEPORT, 2)));
	struct shared beside = share(SOCK_STREAM, SO_REUSEADDR, 2);

	/* one that listens, one that does not */
	MUST(listen(beside.fds[1], MANY) == 0);
	beside = take_away(beside);

	MUST(getsockname(theirs, (struct sockaddr *)&at, &(socklen_t){ sizeof(at) }) == 0);

	object_ready();

	check(&by_address, false);
	check(&by_nobody, false);
	check(&by_port, true);
	check(&listeners, true);
	check(&no_more, false);
	MUST(get(beside.fds[0], SO_REUSEADDR) == 0 && get(beside.fds[1], SO_REUSEADDR) == 0);
	MUST(listen_as_other(&at) >= 0);
	return object_done();
}
