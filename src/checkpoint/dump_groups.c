/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_groups.c - groups of multicast that a socket has joined (ip(7), ipv6(7)). The kernel tells which there are in a network, and of each whether this socket
 * has it, and from whom it wants to hear: so each is asked for. A network in which nobody has joined one has those of the kernel's own alone, and nothing is asked.
 */
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "sys/file.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define TABLE_MAX   (16U << 20)
#define SOURCES_MAX 4096U

/** struct groups - those of one version of IP. Of a capture: it looks at one network, once. */
struct groups {
	struct group_req *all;
	size_t n;
	bool read;
};

static struct groups known[2]; /* of versions 4 and 6 */

static void add(struct groups *to, unsigned int device, const void *address, size_t n)
{
	struct group_req *more = realloc(to->all, (to->n + 1) * sizeof(*more));

	if (more == NULL)
		abort();
	to->all = more;
	more[to->n] = (struct group_req){ .gr_interface = device };
	memcpy(&more[to->n++].gr_group, address, n);
}

/* A line of the device, and those of its groups. */
static void parse_v4(struct groups *to, const char *line, unsigned int *device)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	unsigned int users;

	if (line[0] != '\t')
		(void)sscanf(line, "%u", device);
	/* as it lies in memory */
	else if (sscanf(line, " %8x %u", &a.sin_addr.s_addr, &users) == 2 &&
		 (users > 1 || a.sin_addr.s_addr != htonl(INADDR_ALLHOSTS_GROUP)))
		add(to, *device, &a, sizeof(a));
}

static bool is_kernels(const struct in6_addr *a)
{
	return IN6_IS_ADDR_MC_NODELOCAL(a) || IN6_IS_ADDR_MC_LINKLOCAL(a);
}

static void parse_v6(struct groups *to, const char *line)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6 };
	unsigned int device, users, byte;
	char digits[2 * sizeof(a.sin6_addr) + 1];

	if (sscanf(line, "%u %*s %32[0-9a-f] %u", &device, digits, &users) != 3 ||
		strlen(digits) != sizeof(digits) - 1)
		return;
	for (size_t i = 0; i < sizeof(a.sin6_addr); i++) {
		if (sscanf(digits + 2 * i, "%2x", &byte) != 1)
			return;
		a.sin6_addr.s6_addr[i] = (uint8_t)byte;
	}
	if (users > 1 || !is_kernels(&a.sin6_addr) || a.sin6_addr.s6_addr32[3] != htonl(1))
		add(to, device, &a, sizeof(a));
}

static int read_all(const struct dump_process *p, bool version6, struct groups *ret)
{
	cleanup_buf struct buf table = BUF_INIT(TABLE_MAX);
	unsigned int device = 0;
	char *save = NULL;
	int rc = file_read_at(p->tracee.proc, version6 ? "net/igmp6" : "net/igmp", &table);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc; /* a kernel without multicast */
	for (char *line = table.n > 0 ? strtok_r(table.p, "\n", &save) : NULL; line != NULL;
		line = strtok_r(NULL, "\n", &save)) {
		if (version6)
			parse_v6(ret, line);
		else
			parse_v4(ret, line, &device);
	}
	return 0;
}

/* It is joined, and where not all are heard then that is set. */
static void add_joined(struct dump *d, struct subject *s, int level, const struct group_req *g,
	struct group_filter *f)
{
	socklen_t size = (socklen_t)GROUP_FILTER_SIZE(f->gf_numsrc);

	dump_add_option(d, s, level, MCAST_JOIN_GROUP, g, sizeof(*g));
	if (f->gf_numsrc > 0)
		dump_add_option(d, s, level, MCAST_MSFILTER, f, size);
}

/* Return: 0, -EADDRNOTAVAIL when @s has not joined it, or another -errno. */
static int ask(struct dump *d, struct subject *s, int level, const struct group_req *g)
{
	struct group_filter *f = calloc(1, GROUP_FILTER_SIZE(SOURCES_MAX));
	socklen_t size = (socklen_t)GROUP_FILTER_SIZE(SOURCES_MAX);
	int rc = 0;

	if (f == NULL)
		abort();
	f->gf_interface = g->gr_interface;
	f->gf_group = g->gr_group;
	f->gf_numsrc = SOURCES_MAX;
	if (getsockopt(s->copy, level, MCAST_MSFILTER, f, &size) < 0)
		rc = -errno;
	else if (f->gf_numsrc > SOURCES_MAX)
		rc = -E2BIG;
	else
		add_joined(d, s, level, g, f);
	free(f);
	return rc;
}

static int of_version(struct dump *d, struct subject *s, bool version6, struct err *err)
{
	struct groups *list = &known[version6];
	int rc = list->read ? 0 : read_all(s->p, version6, list);

	list->read = true;
	for (size_t i = 0; rc == 0 && i < list->n; i++) {
		rc = ask(d, s, version6 ? IPPROTO_IPV6 : IPPROTO_IP, &list->all[i]);
		if (rc == -EADDRNOTAVAIL)
			rc = 0;
	}
	return rc < 0 ? subject_refuse(s, err, "a socket whose groups of multicast cannot be read")
		      : 0;
}

int dump_groups(struct dump *d, struct subject *s, struct err *err)
{
	int domain = (int)(s->out.c & 0xffff), rc;

	if ((domain != AF_INET && domain != AF_INET6) || s->out.c >> 16 == IPPROTO_TCP)
		return 0;
	rc = of_version(d, s, false, err);
	return rc < 0 || domain != AF_INET6 ? rc : of_version(d, s, true, err);
}
