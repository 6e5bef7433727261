/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/nearby.h"
#include "sys/netlink.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>

int nearby_open(void)
{
	return netlink_socket(NETLINK_ROUTE);
}

static void ask_for(struct netlink *nl, const struct in6_addr *address)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(address);
	/* with the flag the kernel tells the route, and not what it makes of it for this address */
	const struct rtmsg q = { .rtm_family = v4 ? AF_INET : AF_INET6,
		.rtm_dst_len = v4 ? 32 : 128,
		.rtm_flags = RTM_F_FIB_MATCH };

	netlink_open(nl, RTM_GETROUTE, 0, &q, sizeof(q));
	netlink_attr(nl, RTA_DST, address->s6_addr + (v4 ? 12 : 0), v4 ? 4 : 16);
	netlink_close(nl);
}

/*
 * A network that the machine has an address in: said by the kernel, or by what asks for addresses, which may say it in the kernel's place (dhcpcd does). Whoever made another route without a
 * gateway (a tunnel, a provider's) knew what is there.
 */
static bool is_of_address(const struct rtmsg *route)
{
	return route->rtm_protocol == RTPROT_KERNEL || route->rtm_protocol == RTPROT_RA ||
	       route->rtm_protocol == RTPROT_DHCP;
}

static bool is_connected(const struct rtmsg *route, const void *attributes, size_t n)
{
	size_t size;

	if (route->rtm_type != RTN_UNICAST || !is_of_address(route))
		return false;
	return netlink_find(attributes, n, RTA_GATEWAY, &size) == NULL &&
	       netlink_find(attributes, n, RTA_MULTIPATH, &size) == NULL;
}

const char *nearby(int fd, const struct in6_addr *address)
{
	struct {
		struct nlmsghdr head;
		struct rtmsg route;
		char attributes[4096];
	} answer;
	const size_t head = offsetof(typeof(answer), attributes);
	struct netlink nl;
	ssize_t n;

	netlink_init(&nl);
	ask_for(&nl, address);
	n = netlink_ask(&nl, fd, &answer, sizeof(answer));
	netlink_fini(&nl);
	if (n >= (ssize_t)sizeof(answer.head) && answer.head.nlmsg_type == NLMSG_ERROR)
		return NULL; /* no way there: who dials hears so */
	if (n < (ssize_t)head)
		return "unknown";
	/* one route for all that there is says nothing of an address */
	if (answer.route.rtm_dst_len == 0)
		return NULL;
	if (answer.route.rtm_type == RTN_LOCAL)
		return "local";
	return is_connected(&answer.route, answer.attributes, (size_t)n - head) ? "local-network"
										: NULL;
}
