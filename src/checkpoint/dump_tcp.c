/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_tcp.c - what is on its way in TCP connections within the sandbox: what waits to be received, and what was sent and has found no room in the other end yet.
 *
 * Sequence numbers tell it to the byte. What lies between the receiver's next one, when its queue was read, and the sender's next one is in the sender's queue, which
 * TCP_REPAIR shows to who administers the network. Reading changes nothing but SO_REUSEADDR, which is put back. A fork sends all of it again, and it lies with the
 * receiver as far as there is room.
 */
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* What both ends have room for a new connection has, too, where the limits are the same (tcp_rmem, tcp_wmem; without changes that is ten megabytes). */
#define WAITING_MAX (32U << 20)
#define TRIES       4

#define TOO_MUCH "a socket with too much data in it"
#define MOVING   "a connection in which data are moving"

enum { STATE_FIN_WAIT1 = 4, STATE_LAST_ACK = 9, STATE_CLOSING = 11 };
enum { NO_QUEUE, RECEIVE_QUEUE, SEND_QUEUE };

/** struct end - one end of a connection. */
struct end {
	struct dump_process *p;
	int fd;
	uint32_t inode;
	uint32_t received, sent; /* sequence numbers behind what was */
	int unread, unanswered;  /* bytes in its queues */
	struct buf data;         /* what waits in it */
};

static struct end *ends;
static size_t n_ends;

static int set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value)) < 0 ? -errno : 0;
}

static int begin_reading(int fd)
{
	return set(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_ON);
}

/* Without an announcement to the other end. */
static int end_reading(int fd, uint64_t options)
{
	int rc = set(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP);
	int back = set(fd, SOL_SOCKET, SO_REUSEADDR, (options & SOCKET_REUSEADDR) != 0);

	return rc < 0 ? rc : back;
}

static int read_position(int fd, int queue, uint32_t *ret)
{
	socklen_t n = sizeof(*ret);
	int rc = set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, queue);

	if (rc == 0 && getsockopt(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, ret, &n) < 0)
		rc = -errno;
	return rc;
}

/* The first @n bytes of the queue that was chosen, behind @to. Return: how many there were, or -errno. */
static int peek(int fd, int n, struct buf *to)
{
	char *bytes = malloc((size_t)n + 1);
	ssize_t got;

	if (bytes == NULL)
		abort();
	got = n == 0 ? 0 : recv(fd, bytes, (size_t)n, MSG_PEEK | MSG_DONTWAIT);
	if (got > 0)
		buf_add(to, bytes, (size_t)got);
	free(bytes);
	return got < 0 ? -errno : (int)got;
}

static int count_unread(int fd, struct end *e)
{
	if (ioctl(fd, FIONREAD, &e->unread) < 0)
		return -errno;
	return (unsigned int)e->unread > WAITING_MAX ? -E2BIG : 0;
}

/* Return: 0, -EAGAIN when something came meanwhile, -E2BIG, -errno. */
static int read_received(int fd, struct end *e)
{
	uint32_t after = 0;
	int rc = read_position(fd, RECEIVE_QUEUE, &e->received);

	buf_reset(&e->data);
	if (rc == 0)
		rc = count_unread(fd, e);
	if (rc == 0)
		rc = peek(fd, e->unread, &e->data);
	if (rc >= 0 && rc != e->unread)
		rc = -EIO;
	if (rc >= 0)
		rc = read_position(fd, RECEIVE_QUEUE, &after);
	return rc == 0 && after != e->received ? -EAGAIN : rc;
}

static int read_end(int fd, struct end *e)
{
	int rc = begin_reading(fd);

	if (rc < 0)
		return rc;
	for (int i = 0; i == 0 || (rc == -EAGAIN && i < TRIES); i++)
		rc = read_received(fd, e);
	return rc < 0 ? rc : read_position(fd, SEND_QUEUE, &e->sent);
}

static void add_end(const struct end *e)
{
	struct end *more = realloc(ends, (n_ends + 1) * sizeof(*more));

	if (more == NULL)
		abort();
	ends = more;
	ends[n_ends++] = *e;
}

int dump_tcp(struct dump *d, struct subject *s, struct err *err)
{
	struct end e = { .p = s->p,
		.fd = s->carrier >= 0 ? s->carrier : s->fd,
		.inode = s->out.inode,
		.data = BUF_INIT(2 * WAITING_MAX) };
	int rc = 0, back = 0;

	/* nothing is changed in those that run */
	if (d->examination != NULL) {
		rc = count_unread(s->copy, &e);
	} else {
		rc = read_end(s->copy, &e);
		back = end_reading(s->copy, s->out.position);
	}
	if (rc == 0 && ioctl(s->copy, SIOCOUTQ, &e.unanswered) < 0)
		rc = -errno;
	add_end(&e);
	s->waits = e.unanswered > 0;
	if (rc == -E2BIG)
		return subject_refuse(s, err, TOO_MUCH);
	if (rc == -EAGAIN)
		return subject_busy(d, s, err, MOVING);
	return rc < 0 || back < 0 ? subject_refuse(s, err, "a socket whose data cannot be read")
				  : 0;
}

int dump_tcp_over(struct dump *d, struct subject *s, struct err *err)
{
	struct end e = { .data = BUF_INIT(2 * WAITING_MAX) };
	int rc = count_unread(s->copy, &e);

	if (rc == 0)
		rc = peek(s->copy, e.unread, &e.data);
	if (rc >= 0 && rc == e.unread)
		s->out.data = image_add_bytes(&d->image, e.data.p, e.data.n);
	buf_free(&e.data);
	if (rc == -E2BIG)
		return subject_refuse(s, err, TOO_MUCH);
	return rc < 0 || rc != e.unread
		       ? subject_refuse(s, err, "a socket whose data cannot be read")
		       : 0;
}

/* --- when all are known --- */

static struct end *find_end(uint32_t inode)
{
	for (size_t i = 0; i < n_ends; i++) {
		if (ends[i].inode == inode)
			return &ends[i];
	}
	return NULL;
}

static int find_copy(const struct dump *d, uint32_t index)
{
	for (size_t i = 0; i < d->n_sockets; i++) {
		if (d->sockets[i].index == index)
			return d->sockets[i].copy;
	}
	return -EAGAIN;
}

/* What @from, our @fd, has sent and @to has not received goes behind what waits in @to. Return: 0, -EAGAIN when something has come since, -errno. */
static int add_unsent(int fd, const struct end *from, struct end *to, bool has_ended)
{
	cleanup_buf struct buf sent = BUF_INIT(2 * WAITING_MAX);
	int rc = set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, SEND_QUEUE), unanswered = 0;
	uint32_t known;

	if (rc == 0 && ioctl(fd, SIOCOUTQ, &unanswered) < 0)
		rc = -errno;
	if (rc == 0)
		rc = peek(fd, unanswered, &sent);
	if (rc < 0)
		return rc;
	known = to->received - (from->sent - (uint32_t)unanswered);
	/* its end takes a number, too */
	if ((rc != unanswered && (!has_ended || rc != unanswered - 1)) ||
		known > (uint32_t)unanswered)
		return -EAGAIN;
	if (known < sent.n)
		buf_add(&to->data, sent.p + known, sent.n - known);
	return 0;
}

static int refuse(const struct end *e, struct err *err, const char *why)
{
	return dump_refuse_at(e->p, e->fd, err, "descriptor %d is %s", e->fd, why);
}

static int follow(struct dump *d, const struct end *from, struct end *to,
	const struct image_description *row, uint32_t index, struct err *err)
{
	/* of those that run it is not known what is only to be acknowledged */
	uint32_t missing =
		d->examination != NULL ? (uint32_t)from->unanswered : from->sent - to->received;
	int fd, rc, back;

	if ((size_t)to->unread + missing > WAITING_MAX)
		return refuse(from, err, TOO_MUCH);
	if (d->examination != NULL || missing == 0)
		return 0;
	fd = find_copy(d, index);
	rc = fd < 0 ? fd : begin_reading(fd);
	if (rc == 0) {
		rc = add_unsent(fd, from, to, row->b != 0);
		back = end_reading(fd, row->position);
		rc = rc < 0 ? rc : back;
	}
	if (rc < 0)
		(void)refuse(
			from, err, rc == -EAGAIN ? MOVING : "a socket whose data cannot be read");
	if (rc == -EAGAIN)
		err->code = ERR_BUSY;
	return rc;
}

/* --- other ends that nobody has any more --- */

static bool orphan;

static void look_at_other(const void *message, size_t n)
{
	const struct inet_diag_msg *m = message;

	if (n >= sizeof(*m) && m->idiag_inode == 0)
		orphan = m->idiag_state == STATE_FIN_WAIT1 || m->idiag_state == STATE_CLOSING ||
			 m->idiag_state == STATE_LAST_ACK;
}

static void fill_place(const struct dump *d, struct image_span span, __be16 *port, __be32 words[4])
{
	const void *bytes = d->image.tables[TABLE_BYTES].p + span.offset;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;

	if (span.length == sizeof(v4)) {
		memcpy(&v4, bytes, sizeof(v4));
		*port = v4.sin_port;
		words[0] = v4.sin_addr.s_addr;
	} else if (span.length == sizeof(v6)) {
		memcpy(&v6, bytes, sizeof(v6));
		*port = v6.sin6_port;
		memcpy(words, &v6.sin6_addr, sizeof(v6.sin6_addr));
	}
}

/* Was the other end of @row closed while it still sends? What it has then only the kernel knows. Who is outside the sandbox is somebody's. */
static bool is_orphaned(
	const struct dump *d, const struct end *e, const struct image_description *row)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 request;
	} m = { .head = { .nlmsg_len = sizeof(m),
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
		.request = { .sdiag_family = (uint8_t)(row->c & 0xffff),
			.sdiag_protocol = IPPROTO_TCP,
			.id.idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } } };

	fill_place(d, row->remote, &m.request.id.idiag_sport, m.request.id.idiag_src);
	fill_place(d, row->path, &m.request.id.idiag_dport, m.request.id.idiag_dst);
	orphan = false;
	return dump_network(e->p) == 0 && dump_diag(&m, sizeof(m), look_at_other) == 0 && orphan;
}

static int refuse_orphaned(const struct dump *d, const struct end *e, struct err *err)
{
	int rc = refuse(e, err,
		"a connection whose other end was closed before all that it sent was received");

	if (d->examination == NULL)
		err->code = ERR_BUSY;
	return rc;
}

/* Has it dialled the address that it is bound to? */
static bool is_own_peer(const struct dump *d, const struct image_description *row)
{
	const char *bytes = d->image.tables[TABLE_BYTES].p;

	return row->path.length > 0 && row->path.length == row->remote.length &&
	       memcmp(bytes + row->path.offset, bytes + row->remote.offset, row->path.length) == 0;
}

static int end_one(struct dump *d, struct end *e, struct err *err)
{
	uint32_t index = dump_socket_find(d, e->inode);
	const struct image_description *row =
		index == IMAGE_NONE ? NULL : dump_description(d, index);
	struct end *to;

	if (row == NULL || row->kind != DESCRIPTION_CONNECTION)
		return 0;
	if (is_own_peer(d, row))
		return follow(d, e, e, row, index, err);
	if (row->peer == IMAGE_NONE)
		return (row->position & SOCKET_ENDED) == 0 && is_orphaned(d, e, row)
			       ? refuse_orphaned(d, e, err)
			       : 0;
	to = find_end(dump_description(d, row->peer)->inode);
	return to != NULL ? follow(d, e, to, row, index, err) : 0;
}

int dump_tcp_end(struct dump *d, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < n_ends; i++) {
		rc = end_one(d, &ends[i], err);
		/* an examination tells of each */
		if (rc < 0 && dump_note(d, err))
			rc = 0;
	}
	for (size_t i = 0; i < n_ends; i++) {
		uint32_t index = dump_socket_find(d, ends[i].inode);
		struct image_span data = image_add_bytes(&d->image, ends[i].data.p, ends[i].data.n);

		if (index != IMAGE_NONE)
			dump_description(d, index)->data = data;
		buf_free(&ends[i].data);
	}
	free(ends);
	ends = NULL;
	n_ends = 0;
	return rc;
}
