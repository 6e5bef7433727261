/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/queues.c - what waited in unix sockets, sent again: by the other end where there is one, else by a socket of the sender's name, which is there
 * for the moment. All descriptions are there by now, because they may be what was sent. In the opener.
 */
#include "prog/cay-template/fork.h"

#define AF_UNIX         1
#define DATAGRAMS       2 /* SOCK_DGRAM */
#define SOL_SOCKET      1
#define SCM_RIGHTS      1
#define SCM_CREDENTIALS 2
#define DONTWAIT        0x40
#define NOSIGNAL        0x4000
#define SO_SNDBUF       7
#define SEND_MOST       (4 << 20) /* no more is in an image */
#define NAME_OFFSET     2

typedef const struct image_description description;
typedef const struct image_packet packet;

/** struct header - struct cmsghdr. */
struct header {
	uint64_t length;
	int32_t level, type;
};

/** struct control - struct cmsghdr twice, with what they are about. */
struct control {
	struct header credentials;
	int32_t pid;
	uint32_t uid, gid, pad;
	struct header rights;
	int32_t fds[IMAGE_RIGHTS_MAX + 1];
};

/** struct sending - a packet on its way. */
struct sending {
	int fd;
	packet *p;
	struct image_span to; /* length 0: to whom @fd is connected */
};

static description *description_at(uint32_t i)
{
	return IMAGE_ROW(struct image_description, TABLE_DESCRIPTIONS, i);
}

static bool same_bytes(struct image_span a, struct image_span b)
{
	return a.length == b.length && memcmp(image_bytes(a), image_bytes(b), a.length) == 0;
}

static bool is_datagram(description *d)
{
	return (d->kind == DESCRIPTION_SOCKET || d->kind == DESCRIPTION_CONNECTION) &&
	       (d->c & 0xffff) == AF_UNIX && d->a == DATAGRAMS;
}

static void fill_control(struct control *c, packet *p)
{
	*c = (struct control){ .credentials = { 28, SOL_SOCKET, SCM_CREDENTIALS },
		.pid = (int32_t)CALL0(__NR_getpid),
		.uid = p->sender.uid,
		.gid = p->sender.gid,
		.rights = { sizeof(struct header) + p->n_rights * sizeof(int32_t), SOL_SOCKET,
			SCM_RIGHTS } };
	for (uint32_t i = 0; i < p->n_rights && i < IMAGE_RIGHTS_MAX; i++)
		c->fds[i] = opener_kept(*IMAGE_ROW(uint32_t, TABLE_RIGHTS, p->first_right + i));
}

/* By whoever the receiver is to be told: the kernel lets nobody name another process. */
static long send_packet(void *argument)
{
	const struct sending *s = argument;
	struct control control;
	struct bare_iovec iov = { (uint64_t)image_bytes(s->p->data), s->p->data.length };
	struct bare_message m = { .iov = &iov, .n_iov = 1 };
	uint64_t rights = 0;
	long rc;

	fill_control(&control, s->p);
	if (s->p->n_rights > 0)
		rights = (control.rights.length + 7) & ~7ULL;
	m.control = s->p->sender.known != 0 ? (void *)&control : (void *)&control.rights;
	m.control_length =
		(s->p->sender.known != 0 ? offsetof(struct control, rights) : 0) + rights;
	m.name = s->to.length > 0 ? image_bytes(s->to) : 0;
	m.name_length = s->to.length;
	rc = CALL3(__NR_sendmsg, s->fd, &m, DONTWAIT | NOSIGNAL);
	/* of a stream, the rest without what came with its beginning */
	while (rc >= 0 && (uint64_t)rc < iov.length) {
		iov.base += (uint64_t)rc;
		iov.length -= (uint64_t)rc;
		m.control_length = s->p->sender.known != 0 ? sizeof(struct header) + 16 : 0;
		rc = CALL3(__NR_sendmsg, s->fd, &m, DONTWAIT | NOSIGNAL);
	}
	return rc;
}

/* A datagram socket with the name @from. */
static int find_sender(struct image_span from)
{
	for (uint32_t i = 0; from.length > 0 && i < plan->n_descriptions; i++) {
		if (is_datagram(description_at(i)) && same_bytes(description_at(i)->path, from))
			return (int)CALL3(
				__NR_fcntl, opener_kept(i), 1030 /* F_DUPFD_CLOEXEC */, 0);
	}
	return -1;
}

static bool is_path(struct image_span name)
{
	return name.length > NAME_OFFSET && image_bytes(name)[NAME_OFFSET] != '\0';
}

static bool is_taken(struct image_span name)
{
	for (uint32_t i = 0; i < plan->n_descriptions; i++) {
		description *d = description_at(i);

		if ((d->kind == DESCRIPTION_LISTEN || is_datagram(d)) && same_bytes(d->path, name))
			return true;
	}
	return false;
}

/* One that is gone. Its name may be of a directory that has gone too: then nobody can answer to it, and nobody needs it. */
static int make_sender(struct image_span from)
{
	int fd = (int)fork_must(
		CALL3(__NR_socket, AF_UNIX, DATAGRAMS | BARE_CLOEXEC, 0), "make a socket");
	char stat[256];
	bool there = is_path(from) && CALL2(__NR_lstat, image_bytes(from) + NAME_OFFSET, stat) == 0;

	if (from.length > 0 && !is_taken(from) && sockets_bind(fd, from) == 0 && is_path(from) &&
		!there)
		(void)CALL1(__NR_unlink, image_bytes(from) + NAME_OFFSET);
	return fd;
}

/* More may wait than a new socket may leave unread, or than one may that had said so before. The kernel shows twice as much as it is told. */
static int widen(int fd)
{
	const int most = SEND_MOST;
	int before = 0, n = sizeof(before);

	(void)fork_must(CALL5(__NR_getsockopt, fd, SOL_SOCKET, SO_SNDBUF, &before, &n),
		"ask how much a socket may send");
	(void)CALL5(__NR_setsockopt, fd, SOL_SOCKET, SO_SNDBUF, &most, sizeof(most));
	return before / 2;
}

static void fill_one(description *d, packet *p)
{
	struct sending s = { .p = p };
	int own = -1, before;

	if (d->peer != IMAGE_NONE) {
		s.fd = opener_kept(d->peer);
	} else {
		own = find_sender(p->from);
		if (own < 0)
			own = make_sender(p->from);
		s.fd = own;
		s.to = d->path;
	}
	before = widen(s.fd);
	sockets_enter(d);
	(void)fork_must(opener_as(&p->sender, send_packet, &s), "fill a unix socket");
	sockets_return(d);
	(void)CALL5(__NR_setsockopt, s.fd, SOL_SOCKET, SO_SNDBUF, &before, sizeof(before));
	if (own >= 0)
		(void)CALL1(__NR_close, own);
}

void queues_fill(void)
{
	for (uint32_t i = 0; i < plan->n_descriptions; i++) {
		description *d = description_at(i);

		if (d->kind != DESCRIPTION_CONNECTION && d->kind != DESCRIPTION_SOCKET)
			continue;
		for (uint32_t j = 0; j < d->n_packets; j++) {
			packet *p =
				IMAGE_ROW(struct image_packet, TABLE_PACKETS, d->first_packet + j);

			if ((d->c & 0xffff) == AF_UNIX)
				fill_one(d, p);
			else
				datagrams_fill(i, p);
		}
	}
}
