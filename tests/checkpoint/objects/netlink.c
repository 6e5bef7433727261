/* SPDX-License-Identifier: Apache-2.0 */
/* Netlink sockets: the number that the kernel answers to, groups, options; and it does answer. One that has asked nothing yet has no number. */
#include "object.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#ifndef SOL_NETLINK
#define SOL_NETLINK 270
#endif

static int opened(uint32_t groups)
{
	struct sockaddr_nl a = { .nl_family = AF_NETLINK, .nl_groups = groups };
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	MUST(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	return fd;
}

static struct sockaddr_nl own(int fd)
{
	struct sockaddr_nl a = { 0 };
	socklen_t n = sizeof(a);

	MUST(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
	return a;
}

/* Return: how many devices there are. */
static int ask(int fd)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg about;
	} m = { .head = { .nlmsg_len = sizeof(m),
			.nlmsg_type = RTM_GETLINK,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP } };
	static char answer[65536] __attribute__((aligned(8)));
	int devices = 0;

	MUST(send(fd, &m, sizeof(m), 0) == sizeof(m));
	for (;;) {
		ssize_t n = recv(fd, answer, sizeof(answer), 0);
		struct nlmsghdr *h = (void *)answer;

		MUST(n > 0);
		for (; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_type == NLMSG_DONE)
				return devices;
			MUST(h->nlmsg_type == RTM_NEWLINK);
			devices++;
		}
	}
}

int main(void)
{
	int plain = opened(0), listening = opened(RTMGRP_LINK | RTMGRP_IPV4_IFADDR), one = 1,
	    fresh = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), group = RTNLGRP_NEXTHOP, value = 0;
	uint32_t number = own(plain).nl_pid, other = own(listening).nl_pid, groups[4] = { 0 };
	socklen_t n = sizeof(value);

	MUST(setsockopt(plain, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one)) == 0);
	MUST(setsockopt(listening, SOL_NETLINK, NETLINK_PKTINFO, &one, sizeof(one)) == 0);
	MUST(setsockopt(listening, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) == 0);
	MUST(setsockopt(fresh, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) == 0);
	MUST(ask(plain) > 0 && number != 0 && other != number);

	object_ready();

	MUST(own(plain).nl_pid == number && own(plain).nl_groups == 0);
	MUST(own(listening).nl_pid == other &&
		own(listening).nl_groups == (RTMGRP_LINK | RTMGRP_IPV4_IFADDR));
	MUST(own(fresh).nl_pid == 0);
	MUST(getsockopt(plain, SOL_NETLINK, NETLINK_EXT_ACK, &value, &n) == 0 && value == 1);
	MUST(getsockopt(plain, SOL_NETLINK, NETLINK_PKTINFO, &value, &n) == 0 && value == 0);
	MUST(getsockopt(listening, SOL_NETLINK, NETLINK_PKTINFO, &value, &n) == 0 && value == 1);
	MUST(getsockopt(listening, SOL_SOCKET, SO_PASSCRED, &value, &n) == 0 && value == 1);
	n = sizeof(groups);
	MUST(getsockopt(fresh, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, groups, &n) == 0 &&
		groups[0] == 1U << (RTNLGRP_NEXTHOP - 1) % 32 && groups[1] == 0);
	MUST(ask(plain) > 0 && ask(fresh) > 0);
	return object_done();
}
