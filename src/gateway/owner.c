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
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define KNOWN_MAX 512 /* groups remembered; the oldest is forgotten */
#define ASK_NS    NS_PER_S

struct known {
	uint32_t cgroup; /* low half; 0 = empty */
	bool told;
	uint64_t asked_until_ns; /* who wants to know before that waits for the same answer */
	char id[ID_LEN + 1];
};

static struct known known[KNOWN_MAX];
static size_t n_known;
static struct waiters told = { { &told.fibers, &told.fibers } };

/** struct owner_search - see owner.h. */
struct owner_search {
	struct list node; /* of @searches, until both are told */
	unsigned int references;
	uint64_t cgroup;
	uint32_t inode;
	uint64_t deadline_ns;
	bool exec_told, process_told; /* no more will come of it */
	struct waiters changed;
	struct owner owner;
};

static struct list searches = { &searches, &searches };
/* the keeper has not answered in time, and not since: who asks after the process does not wait, and the kernel's refusals do not wait for who does */
static bool overdue, exec_overdue;

/* --- the kernel --- */

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

/* Return: bytes of the answer, or -1. */
static ssize_t ask_kernel(int diag_fd, const struct owner_socket *s, char *answer, size_t size)
{
	struct netlink nl;
	ssize_t n;

	netlink_init(&nl);
	ask_for(&nl, s);
	n = netlink_ask(&nl, diag_fd, answer, size);
	netlink_fini(&nl);
	return n;
}

bool owner_has_closed(int diag_fd, const struct owner_socket *s)
{
	struct {
		struct nlmsghdr head;
		union {
			struct nlmsgerr error;
			struct inet_diag_msg socket;
		};
		char more[4096];
	} answer;
	ssize_t n = ask_kernel(diag_fd, s, (char *)&answer, sizeof(answer));

	if (n < (ssize_t)offsetof(typeof(answer), more))
		return false;
	return answer.head.nlmsg_type == NLMSG_ERROR ? answer.error.error == -ENOENT
						     : answer.socket.idiag_inode == 0;
}

static void find_socket(
	const struct gateway *gw, const struct owner_socket *s, struct owner_search *ret)
{
	const size_t head = sizeof(struct nlmsghdr) + sizeof(struct inet_diag_msg);
	char answer[4096];
	struct inet_diag_msg socket;
	const void *p;
	ssize_t n = ask_kernel(gw->diag_fd, s, answer, sizeof(answer));
	size_t size;

	if (n < (ssize_t)head)
		return;
	p = netlink_find(answer + head, (size_t)n - head, INET_DIAG_CGROUP_ID, &size);
	if (p != NULL && size == sizeof(ret->cgroup))
		memcpy(&ret->cgroup, p, sizeof(ret->cgroup));
	memcpy(&socket, answer + sizeof(struct nlmsghdr), sizeof(socket));
	ret->inode = socket.idiag_inode;
}

/* --- the exec --- */

static struct known *known_find(uint32_t cgroup)
{
	for (size_t i = 0; i < KNOWN_MAX; i++) {
		if (known[i].cgroup == cgroup)
			return &known[i];
	}
	return NULL;
}

static struct known *known_new(uint32_t cgroup)
{
	struct known *k = &known[n_known++ % KNOWN_MAX];

	*k = (struct known){ .cgroup = cgroup };
	return k;
}

static const char *find(uint32_t cgroup)
{
	const struct known *k = known_find(cgroup);

	return k != NULL && k->told ? k->id : NULL;
}

/* One question for all who want to know: those of a flood would fill the keeper's queue. Return: will owner_told() have the answer? */
static int ask_exec(uint64_t cgroup)
{
	struct known *k = known_find((uint32_t)cgroup);
	uint64_t now = clock_now_ns();
	int rc;

	if (k != NULL && now < k->asked_until_ns)
		return 0;
	rc = keeper_link_ask(cgroup);
	if (rc < 0)
		return rc;
	if (k == NULL)
		k = known_new((uint32_t)cgroup);
	k->asked_until_ns = now + ASK_NS;
	return 0;
}

bool owner_exec_known(uint64_t cgroup, char ret[ID_LEN + 1])
{
	const char *id = (uint32_t)cgroup != 0 ? find((uint32_t)cgroup) : "";

	(void)!str_copy(ret, ID_LEN + 1, id != NULL ? id : "");
	return id != NULL;
}

void owner_exec(uint64_t cgroup, char ret[ID_LEN + 1])
{
	uint64_t deadline = clock_now_ns() + ASK_NS;
	int rc = 0;

	if (owner_exec_known(cgroup, ret) || ask_exec(cgroup) < 0)
		return;
	while (rc == 0 && !owner_exec_known(cgroup, ret))
		rc = waiters_wait(&told, deadline);
	exec_overdue = exec_overdue || rc < 0;
}

bool owner_overdue(void)
{
	return exec_overdue;
}

static void search_told(struct owner_search *s)
{
	if (s->exec_told && s->process_told)
		list_remove(&s->node);
	waiters_wake(&s->changed);
}

static void take_exec(struct owner_search *s, const char *id)
{
	(void)!str_copy(s->owner.exec, sizeof(s->owner.exec), id);
	s->exec_told = true;
}

void owner_told(attr_unused struct gateway *gw, uint64_t cgroup, const char *id)
{
	struct known *k = known_find((uint32_t)cgroup);

	exec_overdue = false;
	if (k == NULL)
		k = known_new((uint32_t)cgroup);
	if (!k->told)
		(void)!str_copy(k->id, sizeof(k->id), id_valid(id) ? id : "");
	k->told = true;
	waiters_wake(&told);
	list_for_each (&searches, pos, next) {
		struct owner_search *s = list_entry(pos, struct owner_search, node);

		if (!s->exec_told && (uint32_t)s->cgroup == (uint32_t)cgroup) {
			take_exec(s, id_valid(id) ? id : "");
			search_told(s);
		}
	}
}

/* --- the process --- */

static void ask_keeper(struct gateway *gw, struct owner_search *s)
{
	const char *id = find((uint32_t)s->cgroup);

	if (id != NULL)
		take_exec(s, id);
	else
		s->exec_told = ask_exec(s->cgroup) < 0;
	s->process_told = s->inode == 0 || keeper_link_ask_process(gw, s->cgroup, s->inode) < 0;
	if (!s->exec_told || !s->process_told)
		list_append(&searches, &s->node);
}

struct owner_search *owner_search_new(struct gateway *gw, const struct owner_socket *socket)
{
	struct owner_search *s = xnew(struct owner_search);

	s->references = 1;
	s->deadline_ns = clock_now_ns() + ASK_NS;
	list_init(&s->node);
	waiters_init(&s->changed);
	find_socket(gw, socket, s);
	if ((uint32_t)s->cgroup == 0)
		s->exec_told = s->process_told = true;
	else
		ask_keeper(gw, s);
	return s;
}

struct owner_search *owner_search_ref(struct owner_search *s)
{
	s->references++;
	return s;
}

void owner_search_unref(struct owner_search *s)
{
	if (s == NULL || --s->references > 0)
		return;
	list_remove(&s->node);
	free(s);
}

const struct owner *owner_search_known(const struct owner_search *s)
{
	return &s->owner;
}

const struct owner *owner_search_exec(struct owner_search *s)
{
	while (!s->exec_told && waiters_wait(&s->changed, s->deadline_ns) == 0)
		;
	return &s->owner;
}

const struct owner *owner_search_result(struct owner_search *s)
{
	while (!s->process_told && !overdue)
		overdue = waiters_wait(&s->changed, s->deadline_ns) < 0 && !s->process_told;
	return owner_search_exec(s);
}

void owner_told_process(
	uint64_t cgroup, uint32_t inode, int32_t pid, int32_t inner_pid, const char *comm)
{
	overdue = false;
	list_for_each (&searches, pos, next) {
		struct owner_search *s = list_entry(pos, struct owner_search, node);

		if (s->cgroup != cgroup || s->inode != inode)
			continue;
		s->process_told = true;
		s->owner.pid = pid;
		s->owner.inner_pid = inner_pid;
		(void)!str_copy(s->owner.comm, sizeof(s->owner.comm), comm);
		search_told(s);
	}
}
