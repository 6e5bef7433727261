/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/passthrough.h - a connection that a rule allows as it is: bytes go through the kernel from one socket to the other and are counted. */
#ifndef CAY_GATEWAY_PASSTHROUGH_H
#define CAY_GATEWAY_PASSTHROUGH_H

#include "gateway/conn.h"

/** passthrough_serve() - dial what @c's host is for @rule and move bytes until both sides are done; tells net.connection. @transport: "tcp" or "tls". Context: fiber; waits. */
void passthrough_serve(struct conn *c, const struct policy_rule *rule, const char *transport);

#endif
