/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/ration.h - how much of a kind the programs of a sandbox may have, of what the kernel keeps for them and charges to nobody's control group.
 *
 * Whoever wants more waits until it is decided. What is given back is not told, so what was granted is counted as if it were all there, and only where that would be too much is it
 * looked how much there is. A grant is not yet something that can be seen: it counts beside what is seen for as long as the thread that got it may be on its way.
 */
#ifndef CAY_SANDBOX_RATION_H
#define CAY_SANDBOX_RATION_H

#include "base/attr.h"

/** enum ration_kind - what is rationed. */
enum ration_kind {
	RATION_NETLINK, /* sockets of netlink: what waits in them unread is charged to nobody */
	RATION_PING,    /* those of echo requests: the same */
	RATION_GROUPS,  /* groups of multicast, which a device keeps */
	RATION_SOURCES, /* their sources. Never fewer: the kernel's list of them is empty while its newest group has none */
	RATION_PROGRAMS, /* system call filters of programs, compiled into one room of the machine */
	RATION_FILTERS, /* packet filters that were put before sockets: compiled into the same. Never fewer: nothing tells of their end */
	RATIONS
};

#define RATION_SOCKETS_MIN  8U
#define RATION_SOCKETS_MAX  256U
#define RATION_GROUPS_MAX   1024U
#define RATION_SOURCES_MAX  1024U
#define RATION_FILTERS_MAX  256U
#define RATION_PROGRAMS_MAX 1024U

#define RATION_FAULTS_MAX \
	4096U /* in memory of programs, taken by the keeper in its life: each makes up to three pages of tables */

/* Writing there took too long, or waits in it have together been a second: counted as so many. */
#define RATION_WAIT_FAULTS (RATION_FAULTS_MAX / 4)

#define RATION_GRANTS 1024

/** struct ration - what there is of one kind. All zero: nothing is known. */
struct ration {
	bool known; /* @counted is */
	uint64_t
		counted; /* there were when it was looked last, and what has come without being asked for */
	uint64_t granted; /* since, and before by those who may still have been on their way */
	uint64_t full_until_ns; /* no look before it: one has just found no room */
	uint32_t n_grants;
	struct ration_grant {
		int32_t thread; /* 0 = it has done it for certain */
		uint32_t n;
	} grants[RATION_GRANTS];
};

/** struct ration_view - how it is looked. */
struct ration_view {
	/* how many there are; UINT64_MAX: it cannot be told. NULL: it never can, what there was counts for ever */
	uint64_t (*count)(void *ctx);
	/* may @thread be within a system call that it does not sleep in, or about to make it? */
	bool (*on_its_way)(void *ctx, int32_t thread);
	void *ctx;
	bool no_look; /* looks have had their share of the keeper's time: what does not fit by what is known is refused without one */
	uint64_t now_ns,
		rest_ns; /* how long behind a look that found no room all are refused without one; 0 = each has its own */
};

/**
 * ration_take() - may @thread have @n more, of @max in all?
 * @thread: waits for the answer just now. Return: yes; it is counted.
 */
bool ration_take(struct ration *r, int32_t thread, uint32_t n, uint64_t max,
	const struct ration_view *view) attr_must_use;

/** ration_give_back() - @n that were granted have not been made: of what nothing tells the end of (@count of struct ration_view is NULL), else the next look sees it. */
void ration_give_back(struct ration *r, uint32_t n);

/** ration_add() - @n have come that nobody was asked for. */
void ration_add(struct ration *r, uint32_t n);

/**
 * ration_sockets() - how many sockets of a kind a sandbox may have, if all of them are full.
 * @memory: bytes of its limit, of which they take an eighth; 0 = it has none. @queue: bytes that one may be asked to keep (net.core.rmem_max), twice of which it does keep.
 * Return: %RATION_SOCKETS_MIN to %RATION_SOCKETS_MAX.
 */
uint32_t ration_sockets(uint64_t memory, uint64_t queue) attr_must_use;

#endif
