/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/uncounted.h - memory of the machine's kernel that no control group counts: how much there is in all is looked at once a second while sandboxes run, and only when that has
 * grown the keepers are asked what theirs hold (docs/design/0007, *Uncounted*).
 */
#ifndef CAY_API_UNCOUNTED_H
#define CAY_API_UNCOUNTED_H

#include "base/attr.h"

struct server;

/** struct uncounted - what is known of it. All bytes are of uncounted_of(). */
struct uncounted {
	uint64_t bound;    /* by so many it has to grow; 0 = a part of what the machine has */
	uint64_t quiet;    /* as many there were when all was in order, or fewer since */
	uint64_t seen;     /* when it was looked last */
	uint64_t due_ns;   /* CLOCK_MONOTONIC: when it is looked next */
	uint64_t again_ns; /* when keepers are asked though nothing has grown; 0 = not */
	uint64_t wait_ns;  /* how long that was behind the round before */
	bool asking;       /* the keepers are being asked */
};

/**
 * uncounted_of() - bytes that the kernel has for itself and does not give back when they are wanted.
 * @meminfo, @zoneinfo: texts of /proc/meminfo, and of /proc/zoneinfo, or "": pages that each processor keeps free for itself are not among those that meminfo calls free; @total: set to what the machine has.
 */
uint64_t uncounted_of(const char *meminfo, const char *zoneinfo, uint64_t *total) attr_must_use;

/** uncounted_has_grown() - there are @bytes now, of a machine with @total: by so many more that it is to be asked why? */
bool uncounted_has_grown(struct uncounted *u, uint64_t bytes, uint64_t total) attr_must_use;

/**
 * uncounted_asked() - all keepers have been asked at @now_ns; @settled: none holds too much.
 * Who had only begun then, while what another had was given back, has grown unseen since: they are asked again, three times, later and later.
 */
void uncounted_asked(struct uncounted *u, bool settled, uint64_t now_ns);

/** uncounted_init() - @bound: bytes as decimal text (CAY_UNCOUNTED); NULL, or none: what is usual. */
void uncounted_init(struct uncounted *u, const char *bound);

/** uncounted_settle() - look, if it is time; to be called often. Cheap: two files of /proc a second at most, none where no sandbox runs. */
void uncounted_settle(struct server *srv);

#endif
