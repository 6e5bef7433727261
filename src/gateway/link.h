/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/link.h - what a keeper and its gateway say to each other: fixed-size messages with descriptors over a SOCK_SEQPACKET pair.
 *
 * The keeper has privileges and therefore parses nothing: it looks at @kind, @cgroup and @inode of a message of exactly the right size. The gateway has the pair on descriptor 3.
 *
 * A keeper outlives the version that it came with, and then starts gateways of the next one. So the size of a message never changes, a kind that is not known is passed over,
 * and a gateway asks only what the version in %LINK_START says that its keeper answers.
 */
#ifndef CAY_GATEWAY_LINK_H
#define CAY_GATEWAY_LINK_H

#include "base/attr.h"
#include "base/id.h"

#define LINK_FD 3 /* the gateway's end, when it starts */

#define LINK_VERSION 1 /* of this keeper: 0 knows no %LINK_WHICH */

#define LINK_COMM_SIZE 16 /* as the kernel's TASK_COMM_LEN */

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
	LINK_EXEC,   /* keeper -> gateway: the answer; @id is empty when it is none */
	LINK_WHICH,  /* gateway -> keeper: which process of @cgroup has socket @inode? */
	LINK_PROCESS /* keeper -> gateway: the answer, with the same two; @process.pid is 0 where it cannot be told */
};

struct link_message {
	uint32_t kind; /* enum link_kind */
	union {
		uint32_t version; /* of %LINK_START: what the keeper knows of this */
		uint32_t inode;   /* of a socket */
	};
	uint64_t cgroup; /* control group id; its low 32 bits are enough */
	union {
		char id[ID_LEN + 1]; /* sandbox or exec */
		struct {
			int32_t pid, inner_pid;    /* the keeper's, the sandbox's */
			char comm[LINK_COMM_SIZE]; /* ends with NUL; UTF-8 */
		} process;
	};
};

_Static_assert(sizeof(struct link_message) == 40, "as it was in version 0");

#endif
