/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/nearby.h - which public addresses are the machine's own, or in a network that it is in: only its routes say so. */
#ifndef CAY_GATEWAY_NEARBY_H
#define CAY_GATEWAY_NEARBY_H

#include "base/attr.h"

#include <netinet/in.h>

/** nearby_open() - a socket to ask, made before the jail. Return: descriptor or -errno. */
int nearby_open(void) attr_must_use;

/**
 * nearby() - why a gateway does not dial it unless a rule permits private addresses, beside address_forbidden().
 * @fd: of nearby_open(). Asked each time: addresses of a machine change while it runs.
 *
 * Return: "local" (the machine's own), "local-network", "unknown" (the kernel does not say); NULL when it is neither.
 */
const char *nearby(int fd, const struct in6_addr *address);

#endif
