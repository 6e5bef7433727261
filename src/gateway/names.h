/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/names.h - names and the addresses that we give out for them.
 *
 * The n-th name gets 198.18.0.0/15 + n and fd00:cafe::n. A name keeps its address for ever, in this sandbox and in all that continue from it, so that programs may keep what
 * they looked up. The list is state: it goes to cayd (part "names") and comes back with the configuration.
 */
#ifndef CAY_GATEWAY_NAMES_H
#define CAY_GATEWAY_NAMES_H

#include "gateway/gateway.h"

#include <netinet/in.h>

#define NAMES_MAX       8192U
#define NAMES_BYTES_MAX (512U << 10) /* of all names together: the list must fit a frame */

/** names_new() - an empty list; names_free(). */
struct names *names_new(void);

/** names_free() - release it with all that names_find() gave out. */
void names_free(struct names *names);

/** names_load() - take over a list as names_json() made it; what is there already stays. */
void names_load(struct names *names, const json_t *list);

/** names_json() - ["first name",…]; a new reference. */
json_t *names_json(const struct names *names);

/**
 * names_give() - the number of @name, a new one if need be.
 * @ret_new: set to true when it is new. Return: the number, from 1; 0 when the list is full.
 */
uint32_t names_give(struct names *names, const char *name, bool *ret_new);

/** names_address() - the address of number @n. @v6: of that family, else IPv4 as ::ffff:a.b.c.d. */
void names_address(uint32_t n, bool v6, struct in6_addr *ret);

/** names_find() - the name behind an address of ours; NULL when it is none. Valid as long as the list. */
const char *names_find(const struct names *names, const struct in6_addr *address);

#endif
