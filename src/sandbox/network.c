/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/network.h"
#include "base/ablate.h"
#include "base/str.h"
#include "sys/feature.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netfilter_ipv4.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define LO_INDEX      1 /* always: the device that every network namespace begins with */
#define TABLE         "cay"
#define PORTS         "ports"
#define NAMES_PORT    53
#define LOG_GROUP     1
#define LOG_BYTES     96 /* largest IPv6 header chain that tells protocol and ports, roughly */
#define LOG_ROOM      (256 << 10)
#define TCP_BACKLOG   512
#define VISIT_STACK   16384
#define STEERED       1 /* mark */
#define OFFSET_SOURCE 0 /* source port */
#define OFFSET_PORT   2 /* destination port in TCP and UDP headers */
#define OFFSET_FLAGS  13
#define SYN           0x02
#define FLAGS_ASKED   0x17 /* FIN, SYN, RST, ACK */

/* --- device, addresses, routes --- */

static void add_device_up(struct netlink *nl)
{
	struct ifinfomsg m = { .ifi_index = LO_INDEX, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };

	netlink_open(nl, RTM_NEWLINK, 0, &m, sizeof(m));
	netlink_close(nl);
}

static void add_address(struct netlink *nl, uint8_t family, const void *address, uint8_t bytes)
{
	struct ifaddrmsg m = {
		.ifa_family = family, .ifa_prefixlen = (uint8_t)(bytes * 8), .ifa_index = LO_INDEX
	};

	netlink_open(nl, RTM_NEWADDR, NLM_F_CREATE, &m, sizeof(m));
	netlink_attr(nl, IFA_LOCAL, address, bytes);
	netlink_attr(nl, IFA_ADDRESS, address, bytes);
	netlink_close(nl);
}

/* AnyIP: every address of the family is one of ours; @source is what programs speak from. */
static void add_any_route(struct netlink *nl, uint8_t family, const void *source, uint8_t bytes)
{
	const uint32_t device = LO_INDEX;
	struct rtmsg m = { .rtm_family = family,
		.rtm_table = RT_TABLE_LOCAL,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = RT_SCOPE_HOST,
		.rtm_type = RTN_LOCAL };

	netlink_open(nl, RTM_NEWROUTE, NLM_F_CREATE, &m, sizeof(m));
	netlink_attr(nl, RTA_OIF, &device, sizeof(device));
	if (family == AF_INET)
		netlink_attr(nl, RTA_PREFSRC, source, bytes);
	netlink_close(nl);
}

static const unsigned char own4[4] = { 10, 0, 0, 2 };
static const unsigned char own6[16] = { 0xfd, [15] = 2 };

/* @any: with all addresses; else the device alone. */
static int make_device(bool any)
{
	cleanup_fd int fd = netlink_socket(NETLINK_ROUTE);
	struct netlink nl;
	int rc;

	if (fd < 0)
		return fd;
	netlink_init(&nl);
	add_device_up(&nl);
	if (any) {
		add_address(&nl, AF_INET, own4, sizeof(own4));
		add_address(&nl, AF_INET6, own6, sizeof(own6));
		add_any_route(&nl, AF_INET, own4, sizeof(own4));
		add_any_route(&nl, AF_INET6, own6, sizeof(own6));
	}
	netlink_want_answer(&nl); /* an error is told in any case */
	rc = netlink_talk(&nl, fd);
	netlink_fini(&nl);
	return rc;
}

/* --- the table --- */

static void goes_to_own(struct nft *nft)
{
	nft_goto(nft, "own");
	nft_rule_end(nft);
}

/* One rule for each kind of address that is the sandbox's own. */
static void rules_for_own(struct nft *nft)
{
	static const unsigned char loopback4 = 127, one6[16] = { [15] = 1 };
	const struct {
		const unsigned char *value;
		uint32_t n;
	} own[] = { { &loopback4, sizeof(loopback4) }, { own4, sizeof(own4) } };
	const unsigned char *const six[] = { one6, own6 };

	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		nft_rule(nft, "output");
		nft_family_field(nft, NFPROTO_IPV4, 16, own[i].value, own[i].n);
		goes_to_own(nft);
	}
	for (size_t i = 0; i < ARRAY_SIZE(six); i++) {
		nft_rule(nft, "output");
		nft_family(nft, NFPROTO_IPV6);
		nft_field(nft, NFT_NETWORK, 24, six[i], NULL, sizeof(one6), false);
		goes_to_own(nft);
	}
}

/* Packets to the sandbox itself. */
static void make_own(struct nft *nft)
{
	uint16_t listener = htons(NETWORK_PORT);

	nft_chain(nft, "own", -1, 0);
	/* the gateway answers datagrams from its own port: the asker expects them from where it sent to */
	nft_rule(nft, "own");
	nft_protocol_field(nft, IPPROTO_UDP, OFFSET_SOURCE, &listener, sizeof(listener));
	nft_set_source_port(nft, NAMES_PORT);
	nft_rule_end(nft);
	if (ablated("gateway_port_closed"))
		return;
	/* TCP and UDP: what is numbered between them nobody can send; ICMP, with its checksum there, is not */
	nft_rule(nft, "own");
	nft_protocols(nft, IPPROTO_TCP, IPPROTO_UDP);
	nft_field(nft, NFT_TRANSPORT, OFFSET_PORT, &listener, NULL, sizeof(listener), false);
	nft_goto(nft, "refuse");
	nft_rule_end(nft);
}

static void make_refuse(struct nft *nft, uint32_t level)
{
	nft_chain(nft, "refuse", -1, 0);
	if (level > 0) {
		nft_rule(nft, "refuse");
		nft_mark_by_cgroup(nft, level);
		nft_rule_end(nft);
	}
	nft_rule(nft, "refuse");
	nft_log(nft, LOG_GROUP, LOG_BYTES);
	nft_protocol(nft, IPPROTO_TCP);
	nft_reject(nft, true);
	nft_rule_end(nft);
	nft_rule(nft, "refuse");
	nft_reject(nft, false);
	nft_rule_end(nft);
}

static void make_output(struct nft *nft)
{
	static const uint8_t syn = SYN, asked = FLAGS_ASKED;

	nft_chain(nft, "output", NF_INET_LOCAL_OUT, 0);
	/* TCP that does not open a connection: first, since most packets are that */
	nft_rule(nft, "output");
	nft_protocol(nft, IPPROTO_TCP);
	nft_field(nft, NFT_TRANSPORT, OFFSET_FLAGS, &syn, &asked, 1, true);
	nft_goto(nft, NULL);
	nft_rule_end(nft);
	rules_for_own(nft);
	/* the mark tells the other side of the loopback device; the payload cannot set one */
	nft_rule(nft, "output");
	nft_port_in(nft, PORTS);
	nft_mark(nft, STEERED);
	nft_goto(nft, NULL);
	nft_rule_end(nft);
	nft_rule(nft, "output");
	nft_goto(nft, "refuse");
	nft_rule_end(nft);
}

/* Only what begins a connection, and datagrams: an answer that were steered would be lost, and sent again for seconds. */
static void make_prerouting(struct nft *nft)
{
	nft_chain(nft, "prerouting", NF_INET_PRE_ROUTING, -150);
	nft_rule(nft, "prerouting");
	nft_marked(nft, STEERED);
	nft_tproxy(nft, NETWORK_PORT);
	nft_rule_end(nft);
}

/* struct opened - to which ports connections are steered: those of a policy, and that for names, joined with what it touches. */
struct opened {
	struct nft_ranges policy; /* ascending, not touching */
	struct nft_range names;
};

static bool touch(struct nft_range a, struct nft_range b)
{
	return a.first <= b.last + 1 && b.first <= a.last + 1;
}

static struct opened opened(struct nft_ranges policy)
{
	struct opened o = { policy, { NAMES_PORT, NAMES_PORT } };

	for (size_t i = 0; i < policy.n; i++) {
		struct nft_range r = policy.p[i];

		if (!touch(r, o.names))
			continue;
		o.names.first = r.first < o.names.first ? r.first : o.names.first;
		o.names.last = r.last > o.names.last ? r.last : o.names.last;
	}
	return o;
}

/* The @i-th range of the set, of policy.n + 1. Return: false when it is part of that for names. */
static bool nth_range(const struct opened *o, size_t i, struct nft_range *ret)
{
	*ret = i < o->policy.n ? o->policy.p[i] : o->names;
	return i == o->policy.n || !touch(*ret, o->names);
}

static bool has_range(const struct opened *o, struct nft_range r)
{
	struct nft_range own;

	for (size_t i = 0; i <= o->policy.n; i++) {
		if (nth_range(o, i, &own) && own.first == r.first && own.last == r.last)
			return true;
	}
	return false;
}

/* What @o has and @but has not, into the list of elements that is open in @nft; NULL: count. Return: how many. */
static size_t put_ranges(struct nft *nft, const struct opened *o, const struct opened *but)
{
	struct nft_range r;
	size_t n = 0;

	for (size_t i = 0; i <= o->policy.n; i++) {
		if (!nth_range(o, i, &r) || has_range(but, r))
			continue;
		if (nft != NULL)
			nft_ports_range(nft, IPPROTO_TCP, r);
		n++;
	}
	return n;
}

/* Questions for names are steered in any case. */
static void open_names(struct nft *nft)
{
	static const struct nft_range names = { NAMES_PORT, NAMES_PORT };

	nft_ports(nft, PORTS);
	nft_ports_range(nft, IPPROTO_UDP, names);
	nft_ports_range(nft, IPPROTO_TCP, names);
	nft_ports_end(nft);
}

static int make_table(int fd, uint32_t level)
{
	struct nft nft;

	nft_begin(&nft, TABLE);
	nft_table(&nft);
	nft_port_set(&nft, PORTS);
	open_names(&nft);
	make_refuse(&nft, level);
	make_own(&nft);
	make_output(&nft);
	make_prerouting(&nft);
	return nft_commit(&nft, fd);
}

/* --- sockets --- */

static int set_option(int fd, int level, int option)
{
	static const int on = 1;

	return setsockopt(fd, level, option, &on, sizeof(on)) < 0 ? -errno : 0;
}

/* Dual stack, transparent, on all addresses. */
static int make_listener(int type)
{
	cleanup_fd int fd = socket(AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(NETWORK_PORT) };
	static const int off;
	int rc;

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0)
		return -errno;
	/* one property of a socket for both versions */
	rc = set_option(fd, IPPROTO_IP, IP_TRANSPARENT);
	if (rc == 0 && type == SOCK_DGRAM)
		rc = set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO);
	if (rc == 0 && bind(fd, (struct sockaddr *)&any, sizeof(any)) < 0)
		rc = -errno;
	if (rc == 0 && type == SOCK_STREAM && listen(fd, TCP_BACKLOG) < 0)
		rc = -errno;
	return rc < 0 ? rc : TAKE_FD(fd);
}

/* Numbered messages: what the queue could not take shows as a gap. */
static int begin_log(int fd)
{
	static const struct nfulnl_msg_config_cmd bind_group = { NFULNL_CFG_CMD_BIND };
	const struct nfulnl_msg_config_mode mode = { .copy_range = htonl(LOG_BYTES),
		.copy_mode = NFULNL_COPY_PACKET };
	const struct nfgenmsg g = { .version = NFNETLINK_V0, .res_id = htons(LOG_GROUP) };
	const uint16_t numbered = htons(NFULNL_CFG_F_SEQ);
	const uint32_t at_once = htonl(1);
	static const int room = LOG_ROOM;
	struct netlink nl;
	int rc;

	netlink_init(&nl);
	netlink_open(&nl, (uint16_t)(NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG), NLM_F_ACK, &g,
		sizeof(g));
	netlink_attr(&nl, NFULA_CFG_CMD, &bind_group, sizeof(bind_group));
	netlink_attr(&nl, NFULA_CFG_MODE, &mode, sizeof(mode));
	netlink_attr(&nl, NFULA_CFG_FLAGS, &numbered, sizeof(numbered));
	netlink_attr(&nl, NFULA_CFG_QTHRESH, &at_once, sizeof(at_once));
	netlink_close(&nl);
	rc = netlink_talk(&nl, fd);
	netlink_fini(&nl);
	if (rc == 0 && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)) < 0)
		rc = -errno;
	return rc;
}

/* --- all of it --- */

static int missing_part(struct err *err, int rc, const char *what)
{
	(void)err_raise_sys(err, rc, "%s", what);
	/* what a kernel without the option says */
	return rc == -ENOENT || rc == -EAFNOSUPPORT || rc == -EPROTONOSUPPORT || rc == -EINVAL
		       ? -EOPNOTSUPP
		       : rc;
}

static int make_listeners(struct network *network, struct err *err)
{
	network->tcp = make_listener(SOCK_STREAM);
	if (network->tcp < 0)
		return missing_part(err, network->tcp, "listen for connections");
	network->udp = make_listener(SOCK_DGRAM);
	return network->udp < 0 ? missing_part(err, network->udp, "listen for datagrams") : 0;
}

/* The socket that made the table becomes that of the log. @level: how far below the root the group of an exec lies; 0: packets are not marked. */
static int make_filter(struct network *network, uint32_t level, struct err *err)
{
	cleanup_fd int fd = netlink_socket(NETLINK_NETFILTER);
	int rc;

	if (fd < 0)
		return missing_part(err, fd, "open netfilter");
	rc = make_table(fd, level);
	if (rc < 0)
		return missing_part(err, rc, "make the packet filter");
	rc = begin_log(fd);
	if (rc < 0)
		return missing_part(err, rc, "open the log of what is refused");
	network->log = TAKE_FD(fd);
	return 0;
}

/* Everything but the device. */
static int make_closed(struct network *network, uint32_t level, struct err *err)
{
	int rc = make_listeners(network, err);

	if (rc < 0)
		return rc;
	rc = make_filter(network, level, err);
	if (rc == 0 || level == 0)
		return rc;
	/* an older kernel cannot tell whose packet it was; a new socket, since this one may hold answers */
	*err = (struct err){ 0 };
	return make_filter(network, 0, err);
}

int network_make(struct network *network, uint32_t group_level, struct err *err)
{
	int rc, device;

	*network = (struct network)NETWORK_NONE;
	rc = feature_withheld(FEATURE_PACKET_FILTER)
		     ? missing_part(err, -ENOENT, "make the packet filter")
		     : make_closed(network, group_level, err);
	/* last: without a filter there is no route either */
	device = make_device(rc == 0);
	if (device < 0)
		rc = err_raise_sys(err, device, "bring the loopback device up");
	if (rc < 0)
		network_close(network);
	return rc;
}

void network_fds(const struct network *network, int fds[NETWORK_FDS])
{
	const int all[NETWORK_FDS] = { network->tcp, network->udp, network->log };

	memcpy(fds, all, sizeof(all));
}

void network_from_fds(struct network *network, const int fds[NETWORK_FDS])
{
	*network = (struct network){ fds[0], fds[1], fds[2] };
}

struct visit {
	int netns, protocol;
	int fd; /* what was got there, or -errno */
};

static int visit(void *p)
{
	struct visit *v = p;

	v->fd = setns(v->netns, CLONE_NEWNET) < 0 ? -errno : netlink_socket(v->protocol);
	return 0;
}

int network_netlink(int netns, int protocol)
{
	static char stack[VISIT_STACK] __attribute__((aligned(16)));
	struct visit v = { .netns = netns, .protocol = protocol };
	/* no signal: nobody but us waits for it */
	int pid = clone(visit, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | CLONE_FILES, &v);

	if (pid < 0 || waitpid(pid, NULL, __WALL) < 0)
		return -errno;
	return v.fd;
}

int network_change_ports(int netns, struct nft_ranges was, struct nft_ranges wanted)
{
	struct opened old = opened(was), new = opened(wanted);
	bool fewer = put_ranges(NULL, &old, &new) > 0, more = put_ranges(NULL, &new, &old) > 0;
	cleanup_fd int table = -1;
	struct nft nft;

	if (!fewer && !more)
		return 0;
	table = network_netlink(netns, NETLINK_NETFILTER);
	if (table < 0)
		return table;
	nft_begin(&nft, TABLE);
	if (fewer) {
		nft_ports_gone(&nft, PORTS);
		(void)put_ranges(&nft, &old, &new);
		nft_ports_end(&nft);
	}
	if (more) {
		nft_ports(&nft, PORTS);
		(void)put_ranges(&nft, &new, &old);
		nft_ports_end(&nft);
	}
	return nft_commit(&nft, table);
}

void network_close(struct network *network)
{
	fd_close(&network->tcp);
	fd_close(&network->udp);
	fd_close(&network->log);
}
