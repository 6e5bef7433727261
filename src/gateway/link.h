/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/link.h - what a keeper and its gateway say to each other: fixed-size messages with descriptors over a SOCK_SEQPACKET pair.
 *
 * The keeper has privileges and therefore parses nothing: it looks at @kind and @cgroup of a message of exactly the right size. The gateway has the pair on descriptor 3.
 */
#ifndef CAY_GATEWAY_LINK_H
#define CAY_GATEWAY_LINK_H

#include "base/attr.h"
#include "base/id.h"

#define LINK_FD 3 /* the gateway's end, when it starts */

/** enum link_socket - the descriptors of %LINK_START, in this order: sockets made inside the sandbox's network namespace. */
enum link_socket {
	LINK_TCP,  /* listener, dual stack, transparent */
	LINK_UDP,  /* datagrams to any port 53; answers leave from port 53 */
	LINK_LOG,  /* NFLOG: what the kernel refused */
	LINK_DIAG, /* sock_diag: whose socket is it? */
	LINK_SOCKETS
};

enum link_kind {
	LINK_START = 1, /* keeper -> gateway, first: sandbox id and the sockets */
	LINK_CLIENT, /* keeper -> gateway: one descriptor, a connection of cayd that speaks frames */
	LINK_WHO,    /* gateway -> keeper: which exec is control group @cgroup? */
	LINK_EXEC    /* keeper -> gateway: the answer; @id is empty when it is none */
};

struct link_message {
	uint32_t kind; /* enum link_kind */
	uint32_t padding;
	uint64_t cgroup;     /* control group id; its low 32 bits are enough */
	char id[ID_LEN + 1]; /* sandbox or exec */
};

#endif
