/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/refusals.h - what was refused, told without letting whoever tries often flood the log.
 *
 * The first of its kind is an event at once; the same again within a second is counted and told at the second's end. What does not fit the table is counted as net.lost.
 */
#ifndef CAY_GATEWAY_REFUSALS_H
#define CAY_GATEWAY_REFUSALS_H

#include "gateway/gateway.h"

#define REFUSAL_WAYS       3
#define REFUSALS_LATER_MAX 512 /* that ask whose they were, each with a stack of its own */

/** struct refusal - all borrowed; "" and 0 where unknown. */
struct refusal {
	const char
		*what; /* "connection", "datagram", "packet", "name", "records", "tls", "request" */
	const char *protocol; /* "tcp", "udp", "icmp", "dns", … */
	const char *host;     /* name or address that was wanted */
	const char *type;     /* of records; NULL of all else */
	const char *address;
	uint16_t port;
	const struct owner *owner;
	const char *reason; /* a short sentence without names in it */
	unsigned int
		way; /* below %REFUSAL_WAYS: which of the ways to ask for the same thing, which is asked for in all of them at once and counts once */
};

/** refusals_add() - tell or count one. */
void refusals_add(struct gateway *gw, const struct refusal *r);

/** refusals_watch() - read what the kernel refused from the NFLOG socket @fd. Return: 0 or -errno. */
int refusals_watch(struct gateway *gw, int fd) attr_must_use;

/**
 * refusals_later() - run @fn(@arg, true), which adds one when it knows more, in a fiber that refusals_drain() waits for. While %REFUSALS_LATER_MAX of them wait, @fn(@arg, false) at
 * once instead, which adds what is known by now and does not wait.
 */
void refusals_later(void (*fn)(void *arg, bool may_wait), void *arg);

/** refusals_lost() - what was refused and cannot be told: one more of net.lost. */
void refusals_lost(struct gateway *gw);

/** refusals_drain() - read all that waits on the socket and tell all that is counted. Context: fiber; lets others have their turn, and waits for those who ask whose they were; half a second at most in all. */
void refusals_drain(struct gateway *gw);

#endif
