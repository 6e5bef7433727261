/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/sockets.c - sockets by real calls: bind, listen, connect, accept, and what waited in TCP sent again. In the opener.
 *
 * A connection whose accepting end has a name is made through a listener of that name, which closes again; the program's own listener comes afterwards.
 */
#include "checkpoint/ip_place.h"
#include "prog/cay-template/fork.h"

#include <asm/poll.h>
#include <errno.h>
#include <linux/fcntl.h>

#define AF_UNIX                 1
#define AF_NETLINK              16
#define AF_INET6                10
#define SOL_SOCKET              1
#define REUSEADDR               2
#define REUSEPORT               15
#define SO_LINGER               13
#define DATAGRAMS               2 /* SOCK_DGRAM */
#define IPPROTO_IP              0
#define IPPROTO_TCP             6
#define IPPROTO_IPV6            41
#define TCP_DEFER_ACCEPT        9
#define TCP_CONGESTION          13
#define IP_FREEBIND             15
#define IP_MINTTL               21
#define IP_BIND_ADDRESS_NO_PORT 24
#define DONTWAIT                0x40
#define NOSIGNAL                0x4000
#define NAME_OFFSET             2 /* of a unix socket's path in its address */
#define PORT_OFFSET             2 /* in an address of IP */
#define RCVLOWAT                18
#define FULL_MS                 5000
#define BACKLOG_MOST            0x7fffffff

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

static bool is_unix(description *d)
{
	return domain_of(d) == AF_UNIX;
}

static void set_options(int fd, description *d)
{
	if ((d->position & SOCKET_KEEPALIVE) != 0)
		set(fd, SOL_SOCKET, 9, 1);
	if ((d->position & SOCKET_NODELAY) != 0 && !is_unix(d))
		set(fd, IPPROTO_TCP, 1, 1);
	if (d->send_buffer != 0)
		set(fd, SOL_SOCKET, 7, (int)d->send_buffer);
	if (d->receive_buffer != 0)
		set(fd, SOL_SOCKET, 8, (int)d->receive_buffer);
}

/* --- names --- */

#define AT_CWD    (-100)
#define PATH_SIZE 108
#define ASIDE     ".cay-aside"
#define NOWHERE   "/dev/.cay-nameless" /* memory, in every sandbox */

/** struct found - struct stat. */
struct found {
	uint64_t head[3];
	uint32_t mode, uid, gid, pad;
	uint64_t rest[14];
};

static bool find_socket(const char *path, struct found *ret)
{
	return CALL2(__NR_lstat, path, ret) == 0 && (ret->mode & 0170000) == 0140000;
}

static void give(const char *path, const struct found *owner)
{
	(void)CALL3(__NR_lchown, path, owner->uid, owner->gid);
	(void)CALL2(__NR_chmod, path, owner->mode & 07777);
}

/* A path is there already, in the files of the snapshot: the new socket takes its place, its mode and its owner. */
static long bind_path(int fd, struct image_span address)
{
	const char *path = image_bytes(address) + NAME_OFFSET;
	struct found former;
	bool there = find_socket(path, &former);
	long rc;

	if (there)
		(void)CALL1(__NR_unlink, path);
	rc = CALL3(__NR_bind, fd, image_bytes(address), address.length);
	if (rc == 0 && there)
		give(path, &former);
	return rc;
}

static bool is_nameless(description *d)
{
	return (d->position & SOCKET_NAMELESS) != 0;
}

/* What begins at the root is seen from another root, and what has no file any more, in whichever directory that was, from one that is there until all are. */
static bool is_rooted(description *d)
{
	return is_nameless(d) ||
	       (d->path.length > NAME_OFFSET && image_bytes(d->path)[NAME_OFFSET] == '/');
}

static const char *folder_of(description *d)
{
	return is_nameless(d) ? NOWHERE : d->folder.length > 0 ? image_bytes(d->folder) : NULL;
}

static void make_directory(const char *path)
{
	long rc = CALL2(__NR_mkdir, path, 0755);

	if (rc != -EEXIST)
		(void)fork_must(rc, "make a directory for a unix socket");
}

/* All that lie above @path; or what is left of them is removed. */
static void each_parent(const char *path, bool make)
{
	char parent[PATH_SIZE + 1] = { 0 };
	uint32_t n = 0;

	for (; n < PATH_SIZE && path[n] != '\0'; n++) {
		if (make && n > 0 && path[n] == '/')
			make_directory(parent);
		parent[n] = path[n];
	}
	while (!make && n-- > 0) {
		if (path[n] != '/')
			continue;
		parent[n] = '\0';
		(void)CALL1(__NR_rmdir, parent);
	}
}

static int root = -1;

void sockets_enter(description *d)
{
	const char *folder = folder_of(d);

	if (folder == NULL)
		return;
	if (is_nameless(d))
		make_directory(folder);
	if (is_rooted(d))
		root = (int)fork_must(
			CALL3(__NR_open, "/", O_PATH | O_DIRECTORY | BARE_CLOEXEC, 0), "/");
	(void)fork_must(CALL1(__NR_chdir, folder), folder);
	if (is_rooted(d))
		(void)fork_must(CALL1(__NR_chroot, "."), "change the root directory");
}

void sockets_return(description *d)
{
	if (folder_of(d) == NULL)
		return;
	if (is_rooted(d)) {
		(void)fork_must(CALL1(__NR_fchdir, root), "go back to the root");
		(void)fork_must(CALL1(__NR_chroot, "."), "go back to the root");
		(void)CALL1(__NR_close, root);
	}
	(void)fork_must(CALL1(__NR_chdir, "/"), "go back to the root");
}

/* Its file was given another name. */
static void move_file(description *d)
{
	const char *path = image_bytes(d->path) + NAME_OFFSET, *place = image_bytes(d->place);
	struct found former;

	sockets_enter(d);
	if (find_socket(place, &former))
		give(path, &former);
	(void)fork_must(CALL2(__NR_rename, path, place), "rename a unix socket");
	sockets_return(d);
}

long sockets_bind(int fd, struct image_span address)
{
	if (address.length == 0)
		return 0;
	if (image_bytes(address)[NAME_OFFSET] != '\0')
		return bind_path(fd, address);
	return CALL3(__NR_bind, fd, image_bytes(address), address.length);
}

static bool has_option(description *d, int level, int name)
{
	for (uint32_t i = 0; i < d->n_options; i++) {
		const struct image_option *o =
			IMAGE_ROW(struct image_option, TABLE_OPTIONS, d->first_option + i);

		if (o->level == level && o->name == name)
			return true;
	}
	return false;
}

/* Is @other bound to an address of @d's (@own) beside it, though by what both have now it could not be, nor listen there? Something was taken away since. */
static bool has_lost(description *d, const struct place *own, description *other)
{
	const struct place its = place_of(image_bytes(other->path), other->path.length);
	const bool listen = d->kind == DESCRIPTION_LISTEN && other->kind == DESCRIPTION_LISTEN;
	const uint64_t both = d->position & other->position, any = d->position | other->position;

	if (!place_is_shared(d, own, other, &its) || (both & SOCKET_REUSEPORT) != 0 ||
		((both & SOCKET_REUSEADDR) != 0 && !listen))
		return false;
	/* who listens beside others can have come there by this one alone; who does not, by the other as well */
	return listen || (any & SOCKET_REUSEPORT) != 0;
}

static bool may_share(description *d)
{
	return (d->kind == DESCRIPTION_LISTEN || d->kind == DESCRIPTION_SOCKET) &&
	       d->path.length > 0;
}

static bool some_by_port; /* some have SO_REUSEPORT, and give it to those that they accept */

/* Those that came to one address by it get what is sent there in turn, also when it was taken away since. */
static bool was_bound_by_port(description *d)
{
	struct place own;

	if ((d->position & SOCKET_REUSEPORT) != 0 || !may_share(d))
		return (d->position & SOCKET_REUSEPORT) != 0;
	own = place_of(image_bytes(d->path), d->path.length);
	if (own.port == 0)
		return false;
	for (uint32_t i = 0; i < plan->n_descriptions; i++) {
		description *other = IMAGE_ROW(struct image_description, TABLE_DESCRIPTIONS, i);

		if (other != d && may_share(other) && has_lost(d, &own, other))
			return true;
	}
	return false;
}

/* What may be bound, and to which part of an address. Of no port: the socket has none, which only this option leaves so; netlink's addresses have none. */
static void bind_inet(int fd, description *d)
{
	uint16_t port = 1;

	if (domain_of(d) != AF_NETLINK)
		memcpy(&port, image_bytes(d->path) + PORT_OFFSET, sizeof(port));
	/* others of the same address are there or come: who has what finish_inet() sees to, when all are bound */
	set(fd, SOL_SOCKET, REUSEADDR, 1);
	if (has_option(d, IPPROTO_IP, IP_FREEBIND))
		set(fd, IPPROTO_IP, IP_FREEBIND, 1);
	if (port == 0)
		set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
	(void)fork_must(
		CALL3(__NR_bind, fd, image_bytes(d->path), d->path.length), "bind a socket");
	if (port == 0)
		set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0);
}

/* Another has the name, whose file stands aside for the moment, whether it is there already or comes behind this. */
static long bind_replaced(int fd, description *d)
{
	const char *path = image_bytes(d->path) + NAME_OFFSET;
	char aside[PATH_SIZE + sizeof(ASIDE)];
	size_t n = 0;
	long rc;

	while (n < PATH_SIZE && path[n] != '\0') {
		aside[n] = path[n];
		n++;
	}
	memcpy(aside + n, ASIDE, sizeof(ASIDE));
	rc = CALL5(__NR_renameat2, AT_CWD, path, AT_CWD, aside, 1 /* NOREPLACE */);
	if (rc < 0)
		return rc;
	rc = CALL3(__NR_bind, fd, image_bytes(d->path), d->path.length);
	(void)fork_must(CALL2(__NR_rename, aside, path), "put a file back");
	return rc;
}

static void bind_socket(int fd, description *d)
{
	if (is_unix(d)) {
		sockets_enter(d);
		if (is_nameless(d))
			each_parent(image_bytes(d->path) + NAME_OFFSET, true);
		(void)fork_must((d->position & SOCKET_REPLACED) != 0 ? bind_replaced(fd, d)
								     : sockets_bind(fd, d->path),
			"bind a unix socket");
		sockets_return(d);
		return;
	}
	if (was_bound_by_port(d)) {
		some_by_port = true;
		set(fd, SOL_SOCKET, REUSEPORT, 1);
	}
	if (domain_of(d) == AF_INET6)
		set(fd, IPPROTO_IPV6, 26 /* V6ONLY */, (d->position & SOCKET_V6ONLY) != 0);
	if (d->path.length > 0)
		bind_inet(fd, d);
}

/* --- calls that note who made them --- */

/** struct call - a call with up to three arguments. */
struct call {
	long nr, a, b, c, d;
};

static long make_call(void *argument)
{
	const struct call *c = argument;

	return CALL4(c->nr, c->a, c->b, c->c, c->d);
}

static void listen_as(const struct image_identity *who, int fd, uint32_t backlog)
{
	struct call c = { __NR_listen, fd, backlog, 0, 0 };

	(void)fork_must(opener_as(who, make_call, &c), "listen on a socket");
}

static void connect_as(const struct image_identity *who, int fd, struct image_span to)
{
	struct call c = { __NR_connect, fd, (long)image_bytes(to), (long)to.length, 0 };

	(void)fork_must(opener_as(who, make_call, &c), "connect a socket again");
}

/* --- options --- */

#define SET_OPTION "set a socket's option "

/* How a connection shares a network that this machine does not know, or gives to nobody any more. */
static bool may_be_left(const struct image_option *o)
{
	return o->level == IPPROTO_TCP && o->name == TCP_CONGESTION;
}

/* What sends nothing, or comes from too far, would not get as far as to wait to be accepted: who waits came before that was set. */
static bool is_last(const struct image_option *o)
{
	return (o->level == IPPROTO_TCP && o->name == TCP_DEFER_ACCEPT) ||
	       (o->level == IPPROTO_IP && o->name == IP_MINTTL);
}

static long set_other(int fd, const struct image_option *o)
{
	const struct {
		uint64_t n;
		uint64_t rules;
	} program = { o->value.length / 8, (uint64_t)image_bytes(o->value) };

	if (o->level == SOL_SOCKET && o->name == IMAGE_ATTACH_FILTER)
		return CALL5(__NR_setsockopt, fd, o->level, o->name, &program, sizeof(program));
	return CALL5(
		__NR_setsockopt, fd, o->level, o->name, image_bytes(o->value), o->value.length);
}

enum when { FIRST, LAST, BOTH };

static void set_others(int fd, description *d, enum when when)
{
	for (uint32_t i = 0; i < d->n_options; i++) {
		const struct image_option *o =
			IMAGE_ROW(struct image_option, TABLE_OPTIONS, d->first_option + i);
		char step[sizeof(SET_OPTION) + 24] = SET_OPTION;
		char *at = step + sizeof(SET_OPTION) - 1;
		long rc;

		if (when != BOTH && is_last(o) != (when == LAST))
			continue;
		at += number_text(at, (uint32_t)o->level);
		*at++ = '/';
		(void)number_text(at, (uint32_t)o->name);
		rc = set_other(fd, o);
		if (rc < 0 && !may_be_left(o))
			(void)fork_must(rc, step);
	}
}

/* --- one socket --- */

/* More may wait, from before, than the program has let in last. */
static void listen_to_all(int fd, description *d)
{
	listen_as(&d->other, fd, d->data.length > 0 ? BACKLOG_MOST : d->backlog);
}

int sockets_make(description *d)
{
	int fd = open_socket(d);

	bind_socket(fd, d);
	if (d->kind == DESCRIPTION_LISTEN)
		listen_to_all(fd, d);
	else if (d->remote.length > 0 && !is_unix(d))
		connect_as(&d->other, fd, d->remote);
	set_options(fd, d);
	/* who is to wait for it has them from there */
	if (d->kind == DESCRIPTION_LISTEN)
		set_others(fd, d, FIRST);
	return fd;
}

int sockets_pend(description *d, description *listener)
{
	int fd = open_socket(d);

	bind_socket(fd, d);
	set_options(fd, d);
	sockets_enter(listener);
	connect_as(&d->other, fd, is_unix(d) ? listener->path : d->remote);
	sockets_return(listener);
	return fd;
}

/* --- connections --- */

/* The kernel hands it on by itself, behind the call where the machine is busy. */
static long send_some(int fd, const char *at, uint64_t n)
{
	struct pollfd room = { .fd = fd, .events = POLLOUT };
	long sent = CALL6(__NR_sendto, fd, at, n, DONTWAIT | NOSIGNAL, 0, 0);

	if (sent == -EAGAIN && CALL3(__NR_poll, &room, 1, FULL_MS) == 1)
		sent = CALL6(__NR_sendto, fd, at, n, DONTWAIT | NOSIGNAL, 0, 0);
	return sent;
}

/* What lay in both ends of the source goes to the one, @to. That it wants so much at once makes room in a buffer whose size no program has set. */
static void send_waiting(int fd, int receiver, description *to)
{
	const char *at = image_bytes(to->data);
	uint64_t left = to->data.length;

	if (left == 0)
		return;
	set(receiver, SOL_SOCKET, RCVLOWAT, (int)left);
	while (left > 0) {
		long n = fork_must(send_some(fd, at, left), "fill a socket");

		at += n;
		left -= (uint64_t)n;
	}
	set(receiver, SOL_SOCKET, RCVLOWAT, 1);
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

/*
 * The port of who has gone, which no other connection to that address has. Where it cannot be had, because somebody listens on it, some port, which may be that of another who comes
 * behind it.
 */
static void bind_stand_in(int fd, description *d)
{
	set(fd, SOL_SOCKET, REUSEADDR, 1);
	if (d->remote.length > 0)
		(void)CALL3(__NR_bind, fd, image_bytes(d->remote), d->remote.length);
}

/* @accepting gets its name from a listener that is there for the moment; the connecting end may be of another version of IP. */
static void connect_by_name(description *accepting, description *connecting, int ret[2])
{
	static const struct image_identity nobody;
	int listener = open_socket(accepting);
	struct image_span to =
		connecting == NULL || is_unix(accepting) ? accepting->path : connecting->remote;

	bind_socket(listener, accepting);
	listen_as(connecting != NULL ? &connecting->other : &nobody, listener, 1);
	ret[1] = open_socket(connecting != NULL ? connecting : accepting);
	if (connecting != NULL)
		bind_socket(ret[1], connecting);
	else if (!is_unix(accepting))
		bind_stand_in(ret[1], accepting);
	sockets_enter(accepting);
	connect_as(&accepting->other, ret[1], to);
	sockets_return(accepting);
	ret[0] = (int)fork_must(
		CALL4(__NR_accept4, listener, 0, 0, BARE_CLOEXEC), "accept a connection again");
	(void)CALL1(__NR_close, listener);
}

static void connect_pair(description *d, description *peer, int ret[2])
{
	struct call c = { __NR_socketpair, AF_UNIX, (long)d->a | BARE_CLOEXEC, 0, (long)ret };

	(void)fork_must(opener_as(&d->other, make_call, &c), "make a socket pair");
	bind_socket(ret[0], d);
	if (peer != NULL)
		bind_socket(ret[1], peer);
}

static void connect_ends(description *d, description *peer, int ret[2])
{
	bool named = d->path.length > 0 || (peer != NULL && peer->path.length > 0);
	bool swapped = peer != NULL && peer->path.length > 0 &&
		       (d->path.length == 0 || is_listened_on(peer));
	int reverse[2];

	if (!named || (is_unix(d) && d->a == DATAGRAMS)) {
		connect_pair(d, peer, ret);
	} else if (swapped) {
		connect_by_name(peer, d, reverse);
		ret[0] = reverse[1];
		ret[1] = reverse[0];
	} else {
		connect_by_name(d, peer, ret);
	}
}

/* Who has dialled the address that it is bound to: there is no other end. */
static bool is_own_peer(description *d)
{
	return !is_unix(d) && d->path.length > 0 && d->path.length == d->remote.length &&
	       memcmp(image_bytes(d->path), image_bytes(d->remote), d->path.length) == 0;
}

static int connect_to_itself(description *d)
{
	int fd = open_socket(d);

	bind_socket(fd, d);
	connect_as(&d->other, fd, d->remote);
	return fd;
}

void sockets_connect(description *d, description *peer, int ret[2])
{
	bool own = is_own_peer(d);

	if (own)
		ret[0] = connect_to_itself(d);
	else
		connect_ends(d, peer, ret);
	/* before a program's own limits, which hold for less than what both ends have */
	if (!is_unix(d))
		send_waiting(ret[own ? 0 : 1], ret[0], d);
	if (!is_unix(d) && peer != NULL)
		send_waiting(ret[0], ret[1], peer);
	set_options(ret[0], d);
	if (peer != NULL)
		set_options(ret[1], peer);
	if (is_unix(d))
		return; /* the rest in sockets_finish() */
	if (d->b != 0)
		(void)CALL2(__NR_shutdown, ret[0], d->b - 1);
	if (peer != NULL && peer->b != 0)
		(void)CALL2(__NR_shutdown, ret[1], peer->b - 1);
}

void sockets_leave(int fd, description *d)
{
	const int now[2] = { 1, 0 };

	if (d->kind == DESCRIPTION_CONNECTION && !is_unix(d) && (d->position & SOCKET_ENDED) == 0)
		(void)CALL5(__NR_setsockopt, fd, SOL_SOCKET, SO_LINGER, now, sizeof(now));
	(void)CALL1(__NR_close, fd);
}

/* --- when all are there --- */

static bool is_socket(description *d)
{
	return d->kind == DESCRIPTION_CONNECTION || d->kind == DESCRIPTION_PENDING ||
	       d->kind == DESCRIPTION_LISTEN || d->kind == DESCRIPTION_SOCKET;
}

static void connect_by_address(int fd, struct image_span to)
{
	static const struct image_identity nobody;
	description *target = NULL;

	for (uint32_t i = 0; target == NULL && i < plan->n_descriptions; i++) {
		description *d = IMAGE_ROW(struct image_description, TABLE_DESCRIPTIONS, i);

		if (d->kind == DESCRIPTION_SOCKET && is_unix(d) && d->path.length == to.length &&
			memcmp(image_bytes(d->path), image_bytes(to), to.length) == 0)
			target = d;
	}
	if (target != NULL)
		sockets_enter(target);
	connect_as(&nobody, fd, to);
	if (target != NULL)
		sockets_return(target);
}

/* A socket that asks for credentials gets a name when it sends, and nothing can be sent to one that is shut down: hence last. */
static void finish_unix(int fd, description *d)
{
	set(fd, SOL_SOCKET, REUSEADDR, (d->position & SOCKET_REUSEADDR) != 0);
	if (d->kind == DESCRIPTION_SOCKET && d->remote.length > 0)
		connect_by_address(fd, d->remote);
	if ((d->position & SOCKET_RESET) != 0)
		(void)CALL6(__NR_sendto, fd, "", 1, DONTWAIT | NOSIGNAL, 0, 0);
	if (d->b != 0)
		(void)CALL2(__NR_shutdown, fd, d->b - 1);
	if ((d->position & SOCKET_PASSCRED) != 0)
		set(fd, SOL_SOCKET, 16, 1);
}

/* Of whom the kernel takes it to be, who lets his own sockets share an address (SO_REUSEPORT). An id that the sandbox has not got stays the opener's, who is root. */
static void give_socket(int fd, description *d)
{
	if (is_unix(d) || d->uid != 0 || d->gid != 0) /* who made a pair is another */
		(void)CALL3(__NR_fchown, fd, d->uid, d->gid);
}

/* Nobody else is there to be bound meanwhile. What is shut down: the kernel does it to one that is not connected too, and says no. */
static void finish_inet(int fd, description *d)
{
	set(fd, SOL_SOCKET, REUSEADDR, (d->position & SOCKET_REUSEADDR) != 0);
	if (domain_of(d) != AF_NETLINK && (some_by_port || (d->position & SOCKET_REUSEPORT) != 0))
		set(fd, SOL_SOCKET, REUSEPORT, (d->position & SOCKET_REUSEPORT) != 0);
	if ((d->position & SOCKET_PASSCRED) != 0) /* netlink: no others have it */
		set(fd, SOL_SOCKET, 16, 1);
	if (d->kind == DESCRIPTION_SOCKET && d->b != 0)
		(void)CALL2(__NR_shutdown, fd, d->b - 1);
}

static void remove_file(description *d)
{
	const char *path = image_bytes(d->path) + NAME_OFFSET;

	sockets_enter(d);
	(void)CALL1(__NR_unlink, path);
	each_parent(path, false);
	sockets_return(d);
	(void)CALL1(__NR_rmdir, NOWHERE);
}

void sockets_finish(void)
{
	queues_fill();
	for (uint32_t i = 0; i < plan->n_descriptions; i++) {
		description *d = IMAGE_ROW(struct image_description, TABLE_DESCRIPTIONS, i);

		if (d->kind == DESCRIPTION_LISTEN && d->data.length > 0)
			listen_as(&d->other, opener_kept(i), d->backlog);
		if (is_socket(d) && is_unix(d))
			finish_unix(opener_kept(i), d);
		else if (is_socket(d))
			finish_inet(opener_kept(i), d);
		if (!is_socket(d))
			continue;
		set_others(opener_kept(i), d, d->kind == DESCRIPTION_LISTEN ? LAST : BOTH);
		give_socket(opener_kept(i), d);
	}
	for (uint32_t i = 0; i < plan->n_descriptions; i++) {
		description *d = IMAGE_ROW(struct image_description, TABLE_DESCRIPTIONS, i);

		if (is_socket(d) && d->place.length > 0)
			move_file(d);
	}
	/* behind that: connections of the same name were made by it */
	for (uint32_t i = 0; i < plan->n_descriptions; i++) {
		description *d = IMAGE_ROW(struct image_description, TABLE_DESCRIPTIONS, i);

		if (is_socket(d) && is_nameless(d))
			remove_file(d);
	}
}
