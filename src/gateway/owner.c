/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/owner.h"
#include "base/clock.h"
#include "base/str.h"
#include "gateway/keeper_link.h"
#include "sys/netlink.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <sys/socket.h>

#define KNOWN_MAX 512 /* groups remembered; the oldest is forgotten */
#define ASK_NS    NS_PER_S

struct known {
	uint32_t cgroup; /* low half; 0 = empty */
	char id[ID_LEN + 1];
};

static struct known known[KNOWN_MAX];
static size_t n_known;
static struct waiters told = { { &told.fibers, &told.fibers } };

static void put_address(uint32_t to[4], const struct in6_addr *address, bool v4)
{
	memset(to, 0, 16);
	memcpy(to, address->s6_addr + (v4 ? 12 : 0), v4 ? 4 : 16);
}

static void ask_for(struct netlink *nl, const struct owner_socket *s)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(&s->to), tcp = s->protocol == IPPROTO_TCP;
	struct inet_diag_req_v2 q = { .sdiag_family = v4 ? AF_INET : AF_INET6,
		.sdiag_protocol = s->protocol,
		.idiag_states = ~0U };

	q.id.idiag_cookie[0] = q.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	/* of datagram sockets the kernel takes the far side for the source */
	put_address(q.id.idiag_src, tcp ? &s->from : &s->to, v4);
	put_address(q.id.idiag_dst, tcp ? &s->to : &s->from, v4);
	q.id.idiag_sport = htons(tcp ? s->from_port : s->to_port);
	q.id.idiag_dport = htons(tcp ? s->to_port : s->from_port);
	netlink_open(nl, SOCK_DIAG_BY_FAMILY, 0, &q, sizeof(q));
	netlink_close(nl);
}

uint64_t owner_cgroup(const struct gateway *gw, const struct owner_socket *s)
{
	const size_t head = sizeof(struct nlmsghdr) + sizeof(struct inet_diag_msg);
	char answer[4096];
	struct netlink nl;
	uint64_t id = 0;
	const void *p;
	ssize_t n;
	size_t size;

	netlink_init(&nl);
	ask_for(&nl, s);
	/* answered before send() returns */
	n = send(gw->diag_fd, nl.bytes.p, nl.bytes.n, 0) < 0
		    ? -1
		    : recv(gw->diag_fd, answer, sizeof(answer), MSG_DONTWAIT);
	netlink_fini(&nl);
	if (n < (ssize_t)head)
		return 0;
	p = netlink_find(answer + head, (size_t)n - head, INET_DIAG_CGROUP_ID, &size);
	if (p != NULL && size == sizeof(id))
		memcpy(&id, p, sizeof(id));
	return id;
}

static const char *find(uint32_t cgroup)
{
	for (size_t i = 0; i < KNOWN_MAX; i++) {
		if (known[i].cgroup == cgroup)
			return known[i].id;
	}
	return NULL;
}

void owner_exec(struct gateway *gw, uint64_t cgroup, char ret[ID_LEN + 1])
{
	uint64_t deadline = clock_now_ns() + ASK_NS;
	const char *id;

	ret[0] = '\0';
	if ((uint32_t)cgroup == 0)
		return;
	id = find((uint32_t)cgroup);
	if (id == NULL)
		keeper_link_ask(gw, cgroup);
	while (id == NULL && waiters_wait(&told, deadline) == 0)
		id = find((uint32_t)cgroup);
	if (id != NULL)
		(void)!str_copy(ret, ID_LEN + 1, id);
}

void owner_told(attr_unused struct gateway *gw, uint64_t cgroup, const char *id)
{
	struct known *k = &known[n_known++ % KNOWN_MAX];

	if (find((uint32_t)cgroup) == NULL) {
		k->cgroup = (uint32_t)cgroup;
		(void)!str_copy(k->id, sizeof(k->id), id_valid(id) ? id : "");
	}
	waiters_wake(&told);
}
