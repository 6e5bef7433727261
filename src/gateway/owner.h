/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/owner.h - which exec a packet or a connection comes from: by the control group of its socket.
 *
 * The kernel is asked for the socket (sock_diag, inside the sandbox's network namespace), the keeper for the exec of that group.
 */
#ifndef CAY_GATEWAY_OWNER_H
#define CAY_GATEWAY_OWNER_H

#include "gateway/gateway.h"

#include <netinet/in.h>

/** struct owner_socket - the client's side of an exchange. */
struct owner_socket {
	uint8_t protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	struct in6_addr from, to;
	uint16_t from_port, to_port;
};

/** owner_cgroup() - control group id of the socket; 0 when the kernel knows none. Does not wait. */
uint64_t owner_cgroup(const struct gateway *gw, const struct owner_socket *s);

/** owner_exec() - the exec of a group (its low 32 bits are enough). @ret: "" when there is none. Context: fiber; waits for the keeper, a second at most. */
void owner_exec(struct gateway *gw, uint64_t cgroup, char ret[ID_LEN + 1]);

/** owner_told() - the keeper has answered. */
void owner_told(struct gateway *gw, uint64_t cgroup, const char *id);

#endif
