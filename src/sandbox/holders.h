/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/holders.h - what the TCP and UDP sockets of a network hold of the machine's memory, by the control group that they were made in.
 *
 * The kernel tells of each that has a port (sock_diag): also of connections that nobody has accepted, which have their listener's group. What waits in an error queue counts as
 * received. It does not say what of it a group is charged for.
 */
#ifndef CAY_SANDBOX_HOLDERS_H
#define CAY_SANDBOX_HOLDERS_H

#include "base/attr.h"

#define HOLDERS_MAX 64

/** struct holder - the sockets of one control group. */
struct holder {
	uint64_t group; /* its id; 0 = none is known, or they are too many */
	uint64_t bytes;
};

/** struct holders - all zero but @ours: nothing is held. */
struct holders {
	uint64_t ours; /* a group whose sockets are left out; 0 = none */
	struct holder all[HOLDERS_MAX];
	size_t n;
	uint64_t bytes; /* of all */
};

/** holders_add() - a socket, or what else holds memory, of @group has @bytes. */
void holders_add(struct holders *h, uint64_t group, uint64_t bytes);

/** holders_add_all() - what @more has, too. */
void holders_add_all(struct holders *h, const struct holders *more);

/** holders_largest() - who has most; NULL where nobody has anything. Points into @h. */
const struct holder *holders_largest(const struct holders *h);

/**
 * holders_ask() - add all sockets of a network.
 * @diag_fd: sock_diag of it, with nothing to be read.
 * Return: 0; -errno, @h then has a part: -ENOENT where the kernel tells of none. Context: blocks for the kernel's work: some microseconds for each socket.
 */
int holders_ask(int diag_fd, struct holders *h) attr_must_use;

#endif
