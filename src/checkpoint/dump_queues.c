/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_queues.c - what waits to be received from unix sockets (datagrams, records, streams, and the descriptors that travel in them) and from those of UDP.
 *
 * It is read with MSG_PEEK and stays. An offset for it (SO_PEEK_OFF) leads past the first message; it belongs to the socket, so it is put back. Should we die
 * in between the processes die too: their registers have been changed by then (tracee.h).
 * A descriptor that travels is a description like any other, and may itself be a socket in which something waits: the list of sockets grows while it is read.
 */
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "checkpoint/ip_place.h"

#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#define WAITING_MAX  (4U << 20)
#define MESSAGES_MAX 65536U
#define NO_OFFSET    (-1)
#define GUARD        4096U

#ifndef SCM_PIDFD
#define SCM_PIDFD 4
#endif

/** struct piece - what one call received. */
struct piece {
	char *bytes; /* WAITING_MAX of them, and no memory behind */
	size_t n;
	struct sockaddr_un from;
	socklen_t from_n;
	struct image_identity sender;
	int rights[IMAGE_RIGHTS_MAX];
	size_t n_rights;
};

static void drop_rights(struct piece *piece)
{
	for (size_t i = 0; i < piece->n_rights; i++)
		(void)close(piece->rights[i]);
	piece->n_rights = 0;
}

static void take_control(const struct dump *d, const struct cmsghdr *c, struct piece *piece)
{
	size_t n = c->cmsg_len - CMSG_LEN(0);
	struct ucred said;
	int pidfd;

	if (c->cmsg_level != SOL_SOCKET)
		return;
	if (c->cmsg_type == SCM_RIGHTS && n <= sizeof(piece->rights)) {
		memcpy(piece->rights, CMSG_DATA(c), n);
		piece->n_rights = n / sizeof(int);
	} else if (c->cmsg_type == SCM_CREDENTIALS) {
		memcpy(&said, CMSG_DATA(c), sizeof(said));
		piece->sender = dump_identity(d, &said);
		/* nobody: sent before anybody wanted to know */
		if (said.pid == 0)
			piece->sender.known = 0;
	} else if (c->cmsg_type == SCM_PIDFD) {
		memcpy(&pidfd, CMSG_DATA(c), sizeof(pidfd));
		(void)close(pidfd);
	}
}

/* Return: 0, -EAGAIN when nothing more waits, or another -errno. */
static int peek(const struct dump *d, int fd, size_t want, struct piece *piece)
{
	static char control[CMSG_SPACE(IMAGE_RIGHTS_MAX * sizeof(int)) +
			    CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int)) + 256]
		__attribute__((aligned(8)));
	struct iovec iov = { piece->bytes, want };
	struct msghdr m = { .msg_name = &piece->from,
		.msg_namelen = sizeof(piece->from),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	piece->n_rights = 0;
	piece->sender = (struct image_identity){ 0 };
	if (n < 0)
		return -errno;
	piece->n = (size_t)n;
	piece->from_n = m.msg_namelen;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c))
		take_control(d, c, piece);
	if ((m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0)
		return 0;
	drop_rights(piece);
	return -EMSGSIZE;
}

static void *at_scratch(const struct tracee *t, size_t offset)
{
	return (void *)(uintptr_t)(t->scratch + offset);
}

static int set_offset(int fd, int offset)
{
	return setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof(offset)) < 0 ? -errno : 0;
}

/*
 * Who sent it is told to us by a number of our namespace, which says nothing when that process is gone. @s has the socket: it asks, with room for nothing but
 * that, and no descriptor comes to it.
 */
static void ask_sender(const struct dump_socket *s, size_t at, struct piece *piece)
{
	struct tracee *t = &s->p->tracee;
	struct {
		struct msghdr head;
		struct iovec iov;
		uint64_t byte;
		struct cmsghdr about;
		struct ucred said;
	} m = { .said.pid = 0 };

	if (piece->sender.known == 0 || piece->sender.pid != 0 || s->passed || t->n_threads == 0 ||
		tracee_scratch(t) < 0)
		return;
	m.head = (struct msghdr){ .msg_iov = at_scratch(t, offsetof(typeof(m), iov)),
		.msg_iovlen = 1,
		.msg_control = at_scratch(t, offsetof(typeof(m), about)),
		.msg_controllen = CMSG_SPACE(sizeof(m.said)) };
	m.iov = (struct iovec){ at_scratch(t, offsetof(typeof(m), byte)), 1 };
	if (set_offset(s->copy, (int)at) < 0 || tracee_write(t, t->scratch, &m, sizeof(m)) < 0 ||
		TRACEE_CALL(t, 0, SYS_recvmsg, (uint64_t)s->fd, t->scratch,
			MSG_PEEK | MSG_DONTWAIT) < 0 ||
		tracee_read(t, t->scratch, &m, sizeof(m)) < 0 ||
		m.about.cmsg_type != SCM_CREDENTIALS)
		return;
	piece->sender.pid = m.said.pid;
}

static int peek_at(const struct dump *d, int fd, size_t at, size_t want, struct piece *piece)
{
	int rc = set_offset(fd, (int)at);

	return rc == 0 ? peek(d, fd, want, piece) : rc;
}

static int add_packet(struct dump *d, const struct dump_socket *s, const struct piece *piece,
	size_t from, size_t to, struct err *err)
{
	struct image_packet out = { .sender = piece->sender,
		.first_right = image_count(&d->image, TABLE_RIGHTS, sizeof(uint32_t)),
		.n_rights = (uint32_t)piece->n_rights };
	int rc = 0;

	out.data = image_add_bytes(&d->image, piece->bytes + from, to - from);
	if (piece->from_n > sizeof(sa_family_t))
		out.from = image_add_bytes(&d->image, &piece->from, piece->from_n);
	for (size_t i = 0; rc == 0 && i < piece->n_rights; i++) {
		uint32_t index;

		rc = dump_passed(d, s, piece->rights[i], &index, err);
		if (rc == 0)
			(void)IMAGE_ADD(&d->image, TABLE_RIGHTS, &index);
	}
	(void)IMAGE_ADD(&d->image, TABLE_PACKETS, &out);
	dump_description(d, s->index)->n_packets++;
	return rc;
}

/* --- datagrams and records: one call, one message --- */

static int take_messages(
	struct dump *d, const struct dump_socket *s, struct piece *piece, struct err *err)
{
	const struct image_description *out = dump_description(d, s->index);
	bool records = out->a == SOCK_SEQPACKET, ended = out->b != 0;
	int left = 0, rc = set_offset(s->copy, 0);
	size_t at = 0;

	/* of records the kernel counts all, of datagrams the first */
	if (rc == 0 && records && ioctl(s->copy, FIONREAD, &left) < 0)
		rc = -errno;
	for (unsigned int i = 0; rc == 0 && i < MESSAGES_MAX; i++) {
		/* the end of records looks like one without a byte */
		if (records && ended && left == 0)
			return 0;
		rc = peek(d, s->copy, WAITING_MAX, piece);
		if (rc == -EAGAIN)
			return 0;
		if (rc < 0)
			break;
		left -= (int)piece->n;
		ask_sender(s, at, piece);
		at += piece->n;
		rc = set_offset(s->copy, (int)at);
		if (rc == 0)
			rc = add_packet(d, s, piece, 0, piece->n, err);
	}
	return rc == 0 ? -EFBIG : rc;
}

/* --- streams --- */

/*
 * A call ends behind descriptors. How many of the @n bytes at @at came before those that they were sent with: the kernel copies what was sent at once at once, and
 * where the last of it has no room the call ends before it.
 */
static int find_start(const struct dump *d, int fd, size_t at, size_t n, const struct piece *piece)
{
	struct piece narrow = { .bytes = piece->bytes + WAITING_MAX - (n - 1) };
	int rc = peek_at(d, fd, at, n, &narrow);

	drop_rights(&narrow);
	if (rc == -EFAULT)
		return 0;
	return rc < 0 ? rc : narrow.n < n ? (int)narrow.n : -EIO;
}

static int take_piece(struct dump *d, const struct dump_socket *s, size_t at, struct piece *piece,
	struct err *err)
{
	size_t n = piece->n;
	int start, rc;

	if (piece->n_rights == 0) {
		ask_sender(s, at, piece);
		return add_packet(d, s, piece, 0, n, err);
	}
	drop_rights(piece);
	start = find_start(d, s->copy, at, n, piece);
	rc = start < 0 ? start : peek_at(d, s->copy, at, n, piece);
	if (rc == 0)
		ask_sender(s, at, piece);
	if (rc == 0 && start > 0) {
		struct piece before = { .bytes = piece->bytes, .sender = piece->sender };

		rc = add_packet(d, s, &before, 0, (size_t)start, err);
	}
	return rc == 0 ? add_packet(d, s, piece, (size_t)start, n, err) : rc;
}

static int take_stream(
	struct dump *d, const struct dump_socket *s, struct piece *piece, struct err *err)
{
	int waiting = 0, rc = ioctl(s->copy, FIONREAD, &waiting) < 0 ? -errno : 0;

	if (rc == 0 && (unsigned int)waiting > WAITING_MAX)
		rc = -EFBIG;
	for (size_t at = 0; rc == 0 && at < (size_t)waiting; at += piece->n) {
		rc = peek_at(d, s->copy, at, (size_t)waiting - at, piece);
		if (rc == 0 && piece->n == 0)
			rc = -EIO;
		if (rc == 0)
			rc = take_piece(d, s, at, piece, err);
	}
	return rc;
}

/* --- one socket --- */

static int refuse(const struct dump_socket *s, struct err *err, int rc)
{
	return dump_refuse_at(s->p, s->fd, err, "descriptor %d is a socket %s", s->fd,
		rc == -EFBIG || rc == -EMSGSIZE
			? "in which too much waits to be received"
			: "in which something waits that cannot be read without taking it out");
}

static int take(struct dump *d, const struct dump_socket *s, struct piece *piece, struct err *err)
{
	int own = NO_OFFSET, rc, back;
	socklen_t n = sizeof(own);

	if (getsockopt(s->copy, SOL_SOCKET, SO_PEEK_OFF, &own, &n) < 0)
		return refuse(s, err, -errno);
	rc = dump_description(d, s->index)->a == SOCK_STREAM ? take_stream(d, s, piece, err)
							     : take_messages(d, s, piece, err);
	back = set_offset(s->copy, own);
	if (rc == 0)
		rc = back;
	return rc < 0 && err->code == ERR_NONE ? refuse(s, err, rc) : rc;
}

static struct place place_at(const struct dump *d, const struct image_description *row)
{
	return place_of(
		(const char *)d->image.tables[TABLE_BYTES].p + row->path.offset, row->path.length);
}

/* Is there another socket to which the kernel may give what is sent to this one? What let them share their address may have been taken away since. */
static bool is_shared(struct dump *d, uint32_t index)
{
	const struct image_description *own = dump_description(d, index);
	const struct place place = place_at(d, own);
	uint32_t n = image_count(&d->image, TABLE_DESCRIPTIONS, sizeof(*own));

	for (uint32_t i = 0; i < n; i++) {
		const struct image_description *other = dump_description(d, i);
		struct place its;

		if (i == index || other->kind != DESCRIPTION_SOCKET)
			continue;
		its = place_at(d, other);
		if (place_is_shared(own, &place, other, &its))
			return true;
	}
	return false;
}

static int refuse_shared(const struct dump_socket *s, struct err *err)
{
	int rc = dump_refuse_at(s->p, s->fd, err,
		"descriptor %d is a UDP socket that shares its address, with datagrams in it",
		s->fd);

	err->code = ERR_BUSY;
	return rc;
}

/* An error that waits is told once, to whoever looks first: nothing may be received while there is one. */
static int take_if_any(
	struct dump *d, const struct dump_socket *s, struct piece *piece, struct err *err)
{
	struct image_description *out = dump_description(d, s->index);
	struct pollfd state = { .fd = s->copy, .events = POLLIN };
	int waiting = 0;

	if (out->kind == DESCRIPTION_LISTEN || out->c >> 16 == IPPROTO_TCP)
		return 0;
	out->first_packet = image_count(&d->image, TABLE_PACKETS, sizeof(struct image_packet));
	if (poll(&state, 1, 0) < 0 || ioctl(s->copy, FIONREAD, &waiting) < 0)
		return refuse(s, err, -errno);
	if ((state.revents & POLLERR) != 0) {
		if (out->kind != DESCRIPTION_CONNECTION || out->a == SOCK_DGRAM ||
			(waiting > 0 && out->a != SOCK_STREAM))
			return dump_refuse_at(s->p, s->fd, err,
				"descriptor %d is a socket with an error that nobody has been told yet",
				s->fd);
		out->position |= SOCKET_RESET;
	}
	if ((state.revents & POLLIN) == 0 || (out->a == SOCK_STREAM && waiting == 0) ||
		(out->a == SOCK_SEQPACKET && out->b != 0 && waiting == 0))
		return 0;
	if (out->c >> 16 == IPPROTO_UDP && is_shared(d, s->index))
		return refuse_shared(s, err);
	return take(d, s, piece, err);
}

int dump_queues(struct dump *d, struct err *err)
{
	struct piece *piece = calloc(1, sizeof(*piece));
	int rc = 0;

	if (piece == NULL)
		abort();
	/* behind it nothing: find_start() */
	piece->bytes = mmap(NULL, WAITING_MAX + GUARD, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (piece->bytes == MAP_FAILED ||
		mprotect(piece->bytes + WAITING_MAX, GUARD, PROT_NONE) < 0)
		rc = err_raise_sys(err, -errno, "map memory for what waits in sockets");
	for (size_t i = 0; rc == 0 && i < d->n_sockets; i++) {
		const struct dump_socket s = d->sockets[i]; /* the list may move */

		rc = take_if_any(d, &s, piece, err);
	}
	if (piece->bytes != MAP_FAILED)
		(void)munmap(piece->bytes, WAITING_MAX + GUARD);
	free(piece);
	return rc;
}
