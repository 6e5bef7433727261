/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: checkpoint/ip_place.h - addresses of IP as sockets are bound to them, and which of these two sockets cannot both have. Without libc: the restorer includes it. */
#ifndef CAY_CHECKPOINT_IP_PLACE_H
#define CAY_CHECKPOINT_IP_PLACE_H

#include "checkpoint/image.h"

#define PLACE_V4_LENGTH 16 /* struct sockaddr_in */
#define PLACE_V6_LENGTH 28
#define PLACE_AF_INET   2

/** struct place - an address with its port; one of version 4 as version 6 shows it. Both in the order of the network. */
struct place {
	uint32_t words[4];
	uint16_t port; /* 0 = there is none, or it was no address of IP */
};

/** struct place_address - struct sockaddr_in, struct sockaddr_in6. */
struct place_address {
	uint16_t family, port;
	uint32_t words[6]; /* of version 4: the address first; of version 6: it begins at 1 */
	uint64_t length;
};

/** place_of() - the place that the @length bytes of an address say. */
static inline struct place place_of(const char *bytes, uint64_t length)
{
	struct place out = { .port = 0 };
	struct place_address a;

	if (length != PLACE_V4_LENGTH && length != PLACE_V6_LENGTH)
		return out;
	__builtin_memcpy(&a, bytes, length);
	out.port = a.port;
	if (length == PLACE_V6_LENGTH) {
		__builtin_memcpy(out.words, &a.words[1], sizeof(out.words));
	} else {
		out.words[2] = 0xffff0000U; /* as bytes: 0 0 ff ff */
		out.words[3] = a.words[0];
	}
	return out;
}

/** place_is_v4() - is it of version 4, also as version 6 shows it? */
static inline bool place_is_v4(const struct place *p)
{
	return p->words[0] == 0 && p->words[1] == 0 && p->words[2] == 0xffff0000U;
}

/** place_is_any() - is it all addresses? */
static inline bool place_is_any(const struct place *p)
{
	return p->words[0] == 0 && p->words[1] == 0 &&
	       (p->words[2] == 0 || p->words[2] == 0xffff0000U) && p->words[3] == 0;
}

/** place_same_address() - the ports aside. */
static inline bool place_same_address(const struct place *a, const struct place *b)
{
	return __builtin_memcmp(a->words, b->words, sizeof(a->words)) == 0;
}

/** place_can_be() - may @p be of a socket @d? Both versions of IP have ports of their own: a socket of the other one may have the same. */
static inline bool place_can_be(const struct image_description *d, const struct place *p)
{
	if ((d->c & 0xffff) == PLACE_AF_INET)
		return place_is_v4(p);
	return !place_is_v4(p) || (d->position & SOCKET_V6ONLY) == 0;
}

/** place_is_shared() - do two sockets of one protocol, bound to @p and @q, share an address with a port? */
static inline bool place_is_shared(const struct image_description *d, const struct place *p,
	const struct image_description *other, const struct place *q)
{
	if (d->c >> 16 != other->c >> 16 || p->port == 0 || p->port != q->port)
		return false;
	return place_same_address(p, q) || (place_is_any(p) && place_can_be(d, q)) ||
	       (place_is_any(q) && place_can_be(other, p));
}

#endif
