/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/owner.h - which exec a packet or a connection comes from, and which process in it: by the control group and the inode of its socket.
 *
 * The kernel is asked for the socket (sock_diag, inside the sandbox's network namespace), the keeper for the exec of that group and for the process that has the socket. No
 * connection waits for its answers, only their event does. A process is told as it was when the connection was new.
 */
#ifndef CAY_GATEWAY_OWNER_H
#define CAY_GATEWAY_OWNER_H

#include "gateway/gateway.h"
#include "gateway/link.h"

#include <netinet/in.h>

/** struct owner_socket - the client's side of an exchange. */
struct owner_socket {
	uint8_t protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	struct in6_addr from, to;
	uint16_t from_port, to_port;
};

/** struct owner - what an event tells of it. */
struct owner {
	char exec[ID_LEN + 1]; /* "" when there is none */
	int32_t pid,
		inner_pid; /* the machine's, as events of processes have it, and the sandbox's; 0 = not told */
	char comm[LINK_COMM_SIZE]; /* what the program calls itself; UTF-8 */
};

struct owner_search;

/** owner_has_closed() - has everybody closed the socket, so that nobody reads what still comes? @diag_fd: sock_diag of its network. False when nobody knows. */
bool owner_has_closed(int diag_fd, const struct owner_socket *s);

/** owner_search_new() - whose is the socket? The kernel is asked at once, a moment later it may be closed; the keeper's answers are not waited for. Return: a reference. */
struct owner_search *owner_search_new(
	struct gateway *gw, const struct owner_socket *s) attr_must_use;

/** owner_search_ref() - one more reference. */
struct owner_search *owner_search_ref(struct owner_search *s) attr_must_use;

/** owner_search_unref() - NULL is allowed. */
void owner_search_unref(struct owner_search *s);

/**
 * owner_search_result() - what was found.
 * Return: borrowed. Context: fiber; waits for the keeper until a second after the question, and for the process not at all while it owes an answer for longer than that.
 */
const struct owner *owner_search_result(struct owner_search *s);

/** owner_search_exec() - the same without waiting for the process, which may be there all the same. */
const struct owner *owner_search_exec(struct owner_search *s);

/** owner_search_known() - the same without waiting for anything: what has been told so far. */
const struct owner *owner_search_known(const struct owner_search *s);

/** owner_exec() - the exec of a group (its low 32 bits are enough). @ret: "" when there is none. Context: fiber; waits for the keeper, a second at most. */
void owner_exec(uint64_t cgroup, char ret[ID_LEN + 1]);

/** owner_exec_known() - the same without waiting. Return: is it known (also that there is none)? */
bool owner_exec_known(uint64_t cgroup, char ret[ID_LEN + 1]);

/** owner_overdue() - has owner_exec() waited in vain, and the keeper said nothing of execs since? */
bool owner_overdue(void);

/** owner_told() - the keeper has answered. */
void owner_told(struct gateway *gw, uint64_t cgroup, const char *id);

/** owner_told_process() - the keeper has answered that; @pid: 0 when it cannot be told. */
void owner_told_process(
	uint64_t cgroup, uint32_t inode, int32_t pid, int32_t inner_pid, const char *comm);

#endif
