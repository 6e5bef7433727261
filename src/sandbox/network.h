/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/network.h - the network of a sandbox: a loopback device on which every address is local, and a table that lets the gateway answer or refuses.
 *
 * There is no other device, so nothing can leave whatever happens to the table; the table is how a refusal becomes fast, explained and recorded. It belongs to U1: no
 * capability of the payload works on it. The recipe, with its measured costs and traps: docs/design/0007.
 *
 *   output      TCP that does not open a connection: accept
 *               to the sandbox's own addresses: accept (never the gateway's port)
 *               protocol and port in the set `ports`: accept; names (53) are always there
 *               everything else: tell NFLOG whose it was, then refuse
 *   prerouting  what was accepted to foreign addresses: to the transparent listeners
 */
#ifndef CAY_SANDBOX_NETWORK_H
#define CAY_SANDBOX_NETWORK_H

#include "base/err.h"
#include "sys/nft.h"

#define NETWORK_PORT \
	15001 /* of the gateway's listeners; the one port that a sandbox cannot have for itself */

/** struct network - descriptors that were made inside; -1 = none. Those of enum link_socket in its order, as far as something can be waiting in them. */
struct network {
	int tcp, udp, log;
};

#define NETWORK_FDS 3

/** NETWORK_NONE - nothing is open. */
#define NETWORK_NONE \
	{ \
		-1, -1, -1 \
	}

/**
 * network_make() - set up the network namespace of the calling process and make the descriptors.
 * @group_level: how far below the root of the caller's cgroup namespace the groups of the sandbox's programs lie (struct cgroup); 0: it is not known, and packets do not
 * say whose they were.
 * Context: root of the user namespace that owns it; before the cgroup namespace is unshared, because groups are counted from its root. Half a millisecond at most.
 *
 * Return: 0; -EOPNOTSUPP with @err set when this kernel lacks a part: then there is a loopback device and nothing else, and every connection fails at once;
 * other -errno with @err set.
 */
int network_make(struct network *network, uint32_t group_level, struct err *err) attr_must_use;

/** network_fds() - the descriptors as a list for passing. */
void network_fds(const struct network *network, int fds[NETWORK_FDS]);

/** network_from_fds() - the reverse; takes them over. */
void network_from_fds(struct network *network, const int fds[NETWORK_FDS]);

/**
 * network_netlink() - a netlink socket of @protocol in network namespace @netns (borrowed).
 *
 * Made by a process that shares our memory and descriptors for the moment: without root nobody who has left the host's network namespace gets back into it.
 * Context: root of the user namespace that owns @netns; one thread. Return: descriptor or -errno.
 */
int network_netlink(int netns, int protocol) attr_must_use;

/**
 * network_change_ports() - let connections to ports @wanted reach the gateway, and to no others. What stays open is not touched: an older kernel's packets can miss for a
 * moment what a batch takes out and puts in again.
 * @netns: the namespace that network_make() has set up (borrowed). @was: what it was called with before; none at first. Both ascending, not touching.
 * Context: as for network_netlink(). Return: 0 or -errno; then the former ones hold.
 */
int network_change_ports(int netns, struct nft_ranges was, struct nft_ranges wanted) attr_must_use;

/** network_close() - close all. */
void network_close(struct network *network);

#endif
