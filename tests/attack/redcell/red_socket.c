/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks through sockets: families that reach past the namespaces, canary listeners of the host, setsockopt surface. */
#include "redcell.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MPTCP 262

/* What was opened stays open: the oracle looks at the family of each descriptor from outside. */
static void ks_04(struct run *r)
{
	char what[64];

	for (int family = 0; family <= 46; family++)
		for (int type = 1; type <= 5; type++) {
			if (family == AF_UNIX ||
				((family == AF_INET || family == AF_INET6) && type <= 2) ||
				family == AF_NETLINK)
				continue;
			snprintf(what, sizeof(what), "socket(%d, %d)", family, type);
			attempt(r, what, socket(family, type | SOCK_CLOEXEC, 0));
		}
	attempt(r, "MPTCP", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, MPTCP));
	attempt(r, "UDP-Lite", socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 136));
	attempt(r, "raw ICMP", socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));
	attempt(r, "raw ICMPv6", socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMPV6));
	attempt(r, "SCTP", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 132));
}

static void ks_04b(struct run *r)
{
	char what[64];

	for (int protocol = 1; protocol <= 22; protocol++) {
		snprintf(what, sizeof(what), "netlink protocol %d", protocol);
		attempt(r, what, socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
	}
}

static void ks_05(struct run *r)
{
	static const unsigned cids[] = { 0, 1, 2, 3, 0xffffffff };

	for (size_t i = 0; i < sizeof(cids) / sizeof(cids[0]); i++) {
		int s = socket(40, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		/* the socket itself is the break: connecting would talk to the hypervisor */
		attempt(r, "AF_VSOCK", s);
	}
}

static void ks_06(struct run *r)
{
	attempt(r, "AF_ALG", socket(38, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

static void ks_10(struct run *r)
{
	int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int one = 1, espinudp = 2;

	attempt(r, "UDP_ENCAP", setsockopt(udp, IPPROTO_UDP, 100, &espinudp, sizeof(espinudp)));
	attempt(r, "TCP_REPAIR", setsockopt(tcp, IPPROTO_TCP, TCP_REPAIR, &one, sizeof(one)));
	attempt(r, "TCP_FASTOPEN_CONNECT", setsockopt(tcp, IPPROTO_TCP, 30, &one, sizeof(one)));
	struct sockaddr_in any = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t n = sizeof(any);

	/* TCP_ULP wants a connection */
	if (bind(listener, (struct sockaddr *)&any, sizeof(any)) == 0 && listen(listener, 1) == 0 &&
		getsockname(listener, (struct sockaddr *)&any, &n) == 0 &&
		connect(tcp, (struct sockaddr *)&any, sizeof(any)) == 0)
		attempt(r, "TCP_ULP tls", setsockopt(tcp, IPPROTO_TCP, 31, "tls", 3));
	int prog = 0;

	attempt(r, "SO_ATTACH_BPF", setsockopt(tcp, SOL_SOCKET, 50, &prog, sizeof(prog)));
}

/* Sends the nonce to an address in every way TCP and UDP offer; the canary listener outside says whether it came. */
static void send_everywhere(struct run *r, struct sockaddr *to, socklen_t n)
{
	const char *nonce = arg(r, "nonce", "redcell");
	struct timeval soon = { 1, 0 };
	static const struct {
		const char *name;
		int type, protocol;
	} ways[] = { { "tcp", SOCK_STREAM, 0 }, { "udp", SOCK_DGRAM, 0 },
		{ "mptcp", SOCK_STREAM, MPTCP } };

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		int s = socket(to->sa_family, ways[i].type | SOCK_CLOEXEC, ways[i].protocol);

		if (s < 0) {
			attempt(r, ways[i].name, -1);
			continue;
		}
		setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon));
		r->attempts++;
		if (connect(s, to, n) == 0 && send(s, nonce, strlen(nonce), 0) > 0)
			remark(r, "%s sent", ways[i].name);
		else if (r->error == 0)
			r->error = errno;
		close(s);
	}
	int s = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon));
	if (sendto(s, nonce, strlen(nonce), MSG_FASTOPEN, to, n) > 0)
		remark(r, "fast open sent");
	close(s);
}

static void ll_02(struct run *r)
{
	static const char *const hosts[] = { "127.0.0.1", "127.0.0.2", "0.0.0.0" };
	char copy[256], *save = NULL;
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct sockaddr_in6 to6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };

	to.sin_port = htons((uint16_t)arg_number(r, "port", 9));
	to6.sin6_port = to.sin_port;
	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		inet_pton(AF_INET, hosts[i], &to.sin_addr);
		send_everywhere(r, (struct sockaddr *)&to, sizeof(to));
	}
	send_everywhere(r, (struct sockaddr *)&to6, sizeof(to6));
	/* the machine's own addresses, which the runner knows */
	snprintf(copy, sizeof(copy), "%s", arg(r, "addresses", ""));
	for (char *p = strtok_r(copy, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save))
		if (inet_pton(AF_INET, p, &to.sin_addr) == 1)
			send_everywhere(r, (struct sockaddr *)&to, sizeof(to));
}

static void ll_02b(struct run *r)
{
	/* which interfaces are there besides lo? */
	struct if_nameindex *list = if_nameindex();

	r->attempts++;
	for (struct if_nameindex *i = list; i != NULL && i->if_index != 0; i++)
		if (strcmp(i->if_name, "lo") != 0)
			note(r, LEAKED, "interface %s", i->if_name);
	if (list != NULL)
		if_freenameindex(list);
}

/* Where the gateway listens: who reaches it without being steered there says himself where he wanted to go. */
static void nw_03(struct run *r)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(15001) };
	int own = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(own, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(own, (struct sockaddr *)&to, sizeof(to)) != 0 || listen(own, 1) != 0)
		remark(r, "no listener of our own: %s", strerrorname_np(errno));
	inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
	attempt(r, "connect to the gateway's port", connect(s, (struct sockaddr *)&to, sizeof(to)));
	inet_pton(AF_INET, "203.0.113.1", &to.sin_addr);
	close(s);
	s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	attempt(r, "the same at another address", connect(s, (struct sockaddr *)&to, sizeof(to)));
}

static void unix_to(struct run *r, const char *name, bool abstract, int type)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	const char *nonce = arg(r, "nonce", "redcell");
	int s = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	size_t n = strlen(name);

	if (n + 1 >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path + (abstract ? 1 : 0), name, n);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);

	r->attempts++;
	if (connect(s, (struct sockaddr *)&to, size) == 0 && send(s, nonce, strlen(nonce), 0) > 0)
		note(r, ESCAPED, "connected to %s", name);
	else
		attempt(r, name, -1);
	close(s);
}

static void ll_03(struct run *r)
{
	unix_to(r, arg(r, "abstract", "cay-attack"), true, SOCK_STREAM);
	unix_to(r, arg(r, "abstract_dgram", "cay-attack-dgram"), true, SOCK_DGRAM);
}

static void ll_03b(struct run *r)
{
	char copy[4096], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", arg(r, "sockets", "/run/docker.sock"));
	for (char *p = strtok_r(copy, ":", &save); p != NULL; p = strtok_r(NULL, ":", &save))
		unix_to(r, p, false, SOCK_STREAM);
}

static void ll_03c(struct run *r)
{
	/* any socket at all below the places where daemons put theirs */
	static const char *const common[] = { "/run/docker.sock", "/var/run/docker.sock",
		"/run/containerd/containerd.sock", "/run/dbus/system_bus_socket",
		"/run/systemd/private", "/run/systemd/journal/stdout", "/run/systemd/notify",
		"/run/cay/cayd.sock", "/run/udev/control", "/tmp/.X11-unix/X0",
		"/run/podman/podman.sock", "/run/snapd.socket" };

	for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++)
		unix_to(r, common[i], false, SOCK_STREAM);
}

const struct attack attacks_socket[] = {
	{ "KS-04", "opens every socket family and type", ks_04 },
	{ "KS-04B", "opens every netlink protocol", ks_04b },
	{ "KS-05", "AF_VSOCK to the hypervisor", ks_05 },
	{ "KS-06", "AF_ALG", ks_06 },
	{ "KS-10", "dangerous socket options", ks_10 },
	{ "LL-02", "sends to the host's loopback and addresses by TCP, MPTCP, fast open, UDP",
		ll_02 },
	{ "LL-02B", "looks for interfaces besides lo", ll_02b },
	{ "NW-03", "connects to the gateway's port by itself", nw_03 },
	{ "LL-03", "connects to the host's abstract sockets", ll_03 },
	{ "LL-03B", "connects to the host's path sockets", ll_03b },
	{ "LL-03C", "connects to the sockets of common daemons", ll_03c },
	{ NULL, NULL, NULL },
};
