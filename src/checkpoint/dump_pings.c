/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_pings.c - sockets of echo requests: SOCK_DGRAM with IPPROTO_ICMP or IPPROTO_ICMPV6 (ping). The port of their address is the identifier of what they send.
 *
 * To whom one is connected is in /proc/net/icmp and icmp6 alone: getpeername() knows no peer whose port is 0, as it is here, and sock_diag none of these sockets. One without an
 * identifier is not in there, and not connected.
 */
#include "base/fault.h"
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "sys/file.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define TABLE_MAX \
	(64U << 20) /* some 400,000 sockets, of which there are 65,536 where none share an identifier */
#define STATE_ESTABLISHED 1
#define LO_INDEX          1 /* the only device of a sandbox */

/** struct ping - a line of the table. */
struct ping {
	struct in6_addr to; /* of version 4: the first word alone */
	unsigned int port;  /* of @to: whatever the program said to connect() */
	unsigned int state;
	unsigned long inode;
};

/* sl, local, remote, st, tx:rx, tr:when, retrnsmt, uid, timeout, inode */
#define BEHIND "%x %*x:%*x %*x:%*x %*x %*u %*u %lu"

/* Words of an address are shown as they lie in memory. */
static bool parse_v4(const char *line, struct ping *ret)
{
	return sscanf(line, " %*d: %*x:%*x %8x:%x " BEHIND, &ret->to.s6_addr32[0], &ret->port,
		       &ret->state, &ret->inode) == 4;
}

static bool parse_v6(const char *line, struct ping *ret)
{
	uint32_t *w = ret->to.s6_addr32;

	return sscanf(line, " %*d: %*32[0-9A-F]:%*x %8x%8x%8x%8x:%x " BEHIND, &w[0], &w[1], &w[2],
		       &w[3], &ret->port, &ret->state, &ret->inode) == 7;
}

/** struct pings - all of one version, by their inodes. Of a capture: it looks at one set of processes, once. */
struct pings {
	struct ping *all;
	size_t n;
	const struct dump_process *by; /* through whom it was read, NULL = not yet */
};

static struct pings known[2]; /* of versions 4 and 6 */

static int by_inode(const void *a, const void *b)
{
	const struct ping *x = a, *y = b;

	return x->inode < y->inode ? -1 : x->inode > y->inode;
}

static void add(struct pings *to, bool version6, const char *line)
{
	struct ping row = { 0 };
	struct ping *more = to->all;

	if (!(version6 ? parse_v6(line, &row) : parse_v4(line, &row)))
		return;
	/* powers of two */
	if ((to->n & (to->n - 1)) == 0)
		more = realloc(more, (to->n == 0 ? 1 : 2 * to->n) * sizeof(*more));
	if (more == NULL)
		abort();
	to->all = more;
	more[to->n++] = row;
}

static int read_all(const struct dump_process *p, bool version6, struct pings *ret)
{
	cleanup_buf struct buf table = BUF_INIT(TABLE_MAX);
	char *save = NULL;
	int rc = file_read_at(p->tracee.proc, version6 ? "net/icmp6" : "net/icmp", &table);

	if (rc < 0)
		return rc;
	(void)fault("live.dump.pings");
	ret->n = 0;
	ret->by = p;
	for (char *line = table.n > 0 ? strtok_r(table.p, "\n", &save) : NULL; line != NULL;
		line = strtok_r(NULL, "\n", &save))
		add(ret, version6, line);
	if (ret->n > 0)
		qsort(ret->all, ret->n, sizeof(*ret->all), by_inode);
	return 0;
}

/* Those who run may have made one since: of each process it is asked once more. */
static int find(const struct dump *d, const struct subject *s, bool version6, struct ping *ret)
{
	struct pings *list = &known[version6];
	const struct ping key = { .inode = s->st.st_ino };
	const struct ping *row = NULL;
	int rc = list->by == NULL ? read_all(s->p, version6, list) : 0;

	if (rc == 0 && list->n > 0)
		row = bsearch(&key, list->all, list->n, sizeof(key), by_inode);
	if (rc == 0 && row == NULL && d->examination != NULL && list->by != s->p) {
		rc = read_all(s->p, version6, list);
		if (rc == 0 && list->n > 0)
			row = bsearch(&key, list->all, list->n, sizeof(key), by_inode);
	}
	if (row != NULL)
		*ret = *row;
	return rc < 0 ? rc : row == NULL ? -ENOENT : 0;
}

static struct image_span add_v4(struct dump *d, const struct ping *p)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)p->port) };

	to.sin_addr.s_addr = p->to.s6_addr32[0];
	return image_add_bytes(&d->image, &to, sizeof(to));
}

static struct image_span add_v6(struct dump *d, const struct ping *p)
{
	struct sockaddr_in6 to = {
		.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)p->port), .sin6_addr = p->to
	};

	if (IN6_IS_ADDR_LINKLOCAL(&p->to) || IN6_IS_ADDR_MC_LINKLOCAL(&p->to) ||
		IN6_IS_ADDR_MC_NODELOCAL(&p->to))
		to.sin6_scope_id = LO_INDEX;
	return image_add_bytes(&d->image, &to, sizeof(to));
}

/* Without an identifier it is bound to nothing: to bind it would give it one. */
static bool has_identifier(const struct subject *s)
{
	struct sockaddr_storage a = { 0 };
	socklen_t n = sizeof(a);
	in_port_t port;

	if (getsockname(s->copy, (struct sockaddr *)&a, &n) < 0)
		return false;
	/* it is at the same place in both versions */
	memcpy(&port, (const char *)&a + offsetof(struct sockaddr_in, sin_port), sizeof(port));
	return port != 0;
}

/* One that is not received from any more can be read for ever, whether anything is in it or not. That it does not send any more, alone, shows nowhere and changes nothing. */
static int check_waiting(struct dump *d, struct subject *s, struct err *err)
{
	struct pollfd state = { .fd = s->copy, .events = POLLIN | POLLRDHUP };

	if (poll(&state, 1, 0) < 0)
		return subject_refuse(s, err, "a ping socket of which the kernel tells nothing");
	if ((state.revents & POLLERR) != 0)
		return subject_busy(
			d, s, err, "a ping socket with an error that nobody has been told yet");
	/* they cannot be sent again: only the kernel answers */
	if ((state.revents & POLLIN) != 0 &&
		((state.revents & POLLRDHUP) == 0 || !dump_socket_is_empty(s->copy)))
		return subject_busy(d, s, err, "a ping socket with answers in it");
	s->out.b = dump_socket_shut(state.revents);
	return 0;
}

int dump_ping(struct dump *d, struct subject *s, struct err *err)
{
	int domain = (int)(s->out.c & 0xffff), rc = check_waiting(d, s, err);
	struct ping row;

	s->out.kind = DESCRIPTION_SOCKET;
	if (rc < 0)
		return rc;
	if (!has_identifier(s)) {
		s->out.path = (struct image_span){ 0 };
		return 0;
	}
	if (find(d, s, domain == AF_INET6, &row) < 0)
		return subject_refuse(s, err, "a ping socket of which the kernel tells nothing");
	if (row.state == STATE_ESTABLISHED)
		s->out.remote = domain == AF_INET ? add_v4(d, &row) : add_v6(d, &row);
	return 0;
}
