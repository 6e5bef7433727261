/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/nameserver.h - the DNS of a sandbox, on port 53 of every address.
 *
 * It asks nobody. A name that some rule could allow gets an address of ours (names.h), whether it exists or not: that shows when it is dialled. A name that no rule allows does
 * not exist. So nothing that a program puts into a name ever leaves.
 */
#ifndef CAY_GATEWAY_NAMESERVER_H
#define CAY_GATEWAY_NAMESERVER_H

#include "gateway/conn.h"

/** nameserver_watch() - answer datagrams that come in on @fd. Return: 0 or -errno. */
int nameserver_watch(struct gateway *gw, int fd) attr_must_use;

/** nameserver_serve() - answer questions on a connection to port 53. Context: fiber; waits. */
void nameserver_serve(struct conn *c);

/** nameserver_go_on() - there is a policy, or there will be none: answer what waits. */
void nameserver_go_on(void);

#endif
