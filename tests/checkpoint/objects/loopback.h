/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: tests/checkpoint/objects/loopback.h - for objects with sockets of version 4 on loopback. */
#ifndef LOOPBACK_H
#define LOOPBACK_H

#include "object.h"

#include <netinet/in.h>
#include <sys/socket.h>

/** bound() - a socket of @type at a port of the kernel's choice; @a: gets its address. */
static inline int bound(int type, struct sockaddr_in *a)
{
	int fd = socket(AF_INET, type, 0);
	socklen_t n = sizeof(*a);

	*a = (struct sockaddr_in){ .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	MUST(bind(fd, (struct sockaddr *)a, sizeof(*a)) == 0);
	MUST(getsockname(fd, (struct sockaddr *)a, &n) == 0);
	return fd;
}

#endif
