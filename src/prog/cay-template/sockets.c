/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/sockets.c - sockets by real calls: bind, listen, connect, accept, and what waited in them sent again. In the opener.
 *
 * A connection whose accepting end has a name is made through a listener of that name, which closes again; the program's own listener comes afterwards.
 */
#include "prog/cay-template/fork.h"

#define AF_UNIX      1
#define AF_INET6     10
#define SOL_SOCKET   1
#define SO_LINGER    13
#define IPPROTO_TCP  6
#define IPPROTO_IPV6 41
#define DONTWAIT     0x40
#define NOSIGNAL     0x4000
#define NAME_OFFSET  2 /* of a unix socket's path in its address */

typedef const struct image_description description;

static int domain_of(description *d)
{
	return (int)(d->c & 0xffff);
}

static int open_socket(description *d)
{
	return (int)fork_must(
		CALL3(__NR_socket, domain_of(d), d->a | BARE_CLOEXEC, d->c >> 16), "make a socket");
}

static void set(int fd, int level, int option, int value)
{
	(void)fork_must(CALL5(__NR_setsockopt, fd, level, option, &value, sizeof(value)),
		"set an option of a socket");
}

static void set_options(int fd, description *d)
{
	/* a connection keeps what it was bound with: others are still to be bound to its port */
	if (d->kind != DESCRIPTION_CONNECTION)
		set(fd, SOL_SOCKET, 2 /* REUSEADDR */, (d->position & SOCKET_REUSEADDR) != 0);
	if ((d->position & SOCKET_KEEPALIVE) != 0)
		set(fd, SOL_SOCKET, 9, 1);
	if ((d->position & SOCKET_PASSCRED) != 0)
		set(fd, SOL_SOCKET, 16, 1);
	if ((d->position & SOCKET_NODELAY) != 0 && domain_of(d) != AF_UNIX)
		set(fd, IPPROTO_TCP, 1, 1);
}

/* A path is there already, in the files of the snapshot: the new socket takes its place, its mode and its owner. */
static void bind_path(int fd, description *d)
{
	const char *path = image_bytes(d->path) + NAME_OFFSET;
	struct {
		uint64_t head[3];
		uint32_t mode, uid, gid, pad;
		uint64_t rest[14];
	} st; /* struct stat */
	bool there = CALL2(__NR_lstat, path, &st) == 0;

	(void)CALL1(__NR_unlink, path);
	(void)fork_must(
		CALL3(__NR_bind, fd, image_bytes(d->path), d->path.length), "bind a socket");
	if (there) {
		(void)CALL3(__NR_lchown, path, st.uid, st.gid);
		(void)CALL2(__NR_chmod, path, st.mode & 07777);
	}
}

static void bind_socket(int fd, description *d)
{
	if (d->path.length == 0)
		return;
	if (domain_of(d) == AF_UNIX && image_bytes(d->path)[NAME_OFFSET] != '\0') {
		bind_path(fd, d);
		return;
	}
	/* connections of the same port are there: the option goes back to the program's value afterwards */
	if (domain_of(d) != AF_UNIX)
		set(fd, SOL_SOCKET, 2 /* REUSEADDR */, 1);
	if (domain_of(d) != AF_UNIX && (d->position & SOCKET_REUSEPORT) != 0)
		set(fd, SOL_SOCKET, 15, 1);
	if (domain_of(d) == AF_INET6)
		set(fd, IPPROTO_IPV6, 26 /* V6ONLY */, (d->position & SOCKET_V6ONLY) != 0);
	(void)fork_must(
		CALL3(__NR_bind, fd, image_bytes(d->path), d->path.length), "bind a socket");
}

int sockets_make(description *d)
{
	int fd = open_socket(d);

	bind_socket(fd, d);
	if (d->kind == DESCRIPTION_LISTEN)
		(void)fork_must(CALL2(__NR_listen, fd, d->backlog), "listen on a socket");
	else if (d->remote.length > 0)
		(void)fork_must(CALL3(__NR_connect, fd, image_bytes(d->remote), d->remote.length),
			"connect a socket");
	set_options(fd, d);
	return fd;
}

/* --- connections --- */

static void send_waiting(int fd, description *to)
{
	const char *at = image_bytes(to->data);
	uint64_t left = to->data.length;

	while (left > 0) {
		long n = fork_must(CALL6(__NR_sendto, fd, at, left, DONTWAIT | NOSIGNAL, 0, 0),
			"fill a socket");

		at += n;
		left -= (uint64_t)n;
	}
}

static bool is_listened_on(description *d)
{
	for (uint32_t i = 0; i < plan->n_descriptions; i++) {
		description *other = IMAGE_ROW(struct image_description, TABLE_DESCRIPTIONS, i);
		const char *a = image_bytes(other->path), *b = image_bytes(d->path);

		if (other->kind != DESCRIPTION_LISTEN || domain_of(other) != domain_of(d) ||
			d->path.length == 0 || other->path.length != d->path.length)
			continue;
		/* TCP: the port alone; a listener on all addresses accepts on one */
		if (memcmp(a, b, domain_of(d) == AF_UNIX ? d->path.length : 4) == 0)
			return true;
	}
	return false;
}

/* @accepting gets its name from a listener that is there for the moment. */
static void connect_by_name(description *accepting, description *connecting, int ret[2])
{
	int listener = open_socket(accepting);

	bind_socket(listener, accepting);
	(void)fork_must(CALL2(__NR_listen, listener, 1), "listen for a connection");
	ret[1] = open_socket(accepting);
	if (connecting != NULL)
		bind_socket(ret[1], connecting);
	(void)fork_must(
		CALL3(__NR_connect, ret[1], image_bytes(accepting->path), accepting->path.length),
		"connect a socket again");
	ret[0] = (int)fork_must(
		CALL4(__NR_accept4, listener, 0, 0, BARE_CLOEXEC), "accept a connection again");
	(void)CALL1(__NR_close, listener);
}

void sockets_connect(description *d, description *peer, int ret[2])
{
	bool named = d->path.length > 0 || (peer != NULL && peer->path.length > 0);
	bool swapped = peer != NULL && peer->path.length > 0 &&
		       (d->path.length == 0 || is_listened_on(peer));

	if (!named) {
		(void)fork_must(CALL4(__NR_socketpair, AF_UNIX, d->a | BARE_CLOEXEC, 0, ret),
			"make a socket pair");
	} else if (swapped) {
		int reverse[2];

		connect_by_name(peer, d, reverse);
		ret[0] = reverse[1];
		ret[1] = reverse[0];
	} else {
		connect_by_name(d, peer, ret);
	}
	set_options(ret[0], d);
	if (peer != NULL)
		set_options(ret[1], peer);
	send_waiting(ret[1], d);
	if (peer != NULL)
		send_waiting(ret[0], peer);
	if (d->b != 0)
		(void)CALL2(__NR_shutdown, ret[0], d->b - 1);
	if (peer != NULL && peer->b != 0)
		(void)CALL2(__NR_shutdown, ret[1], peer->b - 1);
}

void sockets_leave(int fd, description *d)
{
	const int now[2] = { 1, 0 };

	if (d->kind == DESCRIPTION_CONNECTION && domain_of(d) != AF_UNIX &&
		(d->position & SOCKET_ENDED) == 0)
		(void)CALL5(__NR_setsockopt, fd, SOL_SOCKET, SO_LINGER, now, sizeof(now));
	(void)CALL1(__NR_close, fd);
}
