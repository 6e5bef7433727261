/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/address.h - IP addresses as one type: IPv4 as ::ffff:a.b.c.d. */
#ifndef CAY_GATEWAY_ADDRESS_H
#define CAY_GATEWAY_ADDRESS_H

#include "base/attr.h"

#include <netinet/in.h>
#include <sys/socket.h>

/** address_text() - canonical text; IPv4 as a.b.c.d. */
void address_text(const struct in6_addr *address, char ret[INET6_ADDRSTRLEN]);

/** address_parse() - from canonical text of either family. Return: 0 or -EINVAL. */
int address_parse(const char *text, struct in6_addr *ret) attr_must_use;

/** address_socket() - as a socket address of its own family. Return: its size. */
socklen_t address_socket(
	const struct in6_addr *address, uint16_t port, struct sockaddr_storage *ret);

/** address_own() - is it the sandbox's own: loopback, 10.0.0.2, fd00::2, unspecified? */
bool address_own(const struct in6_addr *address);

/** address_forbidden() - why a gateway never dials it unless a rule permits private addresses ("loopback", "private", "metadata", …); NULL when it may be. */
const char *address_forbidden(const struct in6_addr *address);

/**
 * address_host_forbidden() - the same for a host of which somebody else finds the address: an address itself ("private", ...), or a name that is of private networks wherever it is asked for:
 * localhost (RFC 6761), local (RFC 6762), home.arpa (RFC 8375), internal (reserved by ICANN in 2024), and what has no dot ("not public").
 * @host: canonical: lower case, without a dot at its end.
 */
const char *address_host_forbidden(const char *host);

#endif
