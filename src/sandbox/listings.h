/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/listings.h - what overlays keep for directories that are open.
 *
 * An overlay keeps the names of a directory for whoever has listed it: once for all who found them so, and anew for each that listed it behind a change of a name, as long as that one has
 * it open. It tells nobody for whom. So each descriptor counts as if it had its own, with the names that are there now.
 */
#ifndef CAY_SANDBOX_LISTINGS_H
#define CAY_SANDBOX_LISTINGS_H

#include "base/attr.h"
#include <sys/types.h>

#define LISTINGS_MOUNTS 64
#define LISTINGS_MAX    256

/** struct listing - one directory. */
struct listing {
	uint64_t mount, inode;
	uint64_t names;
};

/** struct listings - what was seen so far; all zero at the beginning. */
struct listings {
	uint64_t mounts[LISTINGS_MOUNTS]; /* of overlays, by their ids */
	size_t n_mounts;
	struct listing all[LISTINGS_MAX]; /* those whose names were counted */
	size_t n;
	uint64_t names;    /* of all these */
	uint64_t spent_ns; /* processor time of counting them */
};

/** listings_learn() - which mounts of process @pid are overlays; those that are more than there is room for are none. */
void listings_learn(struct listings *l, int32_t pid);

/**
 * listings_bytes() - what is kept for a descriptor at the most, if it is of a directory on an overlay.
 * @fds: /proc/PID/fd; @name: of the descriptor in there. Names are counted once for each directory, and as long as a tenth of a second of processor time is left; those of others are as many as
 * in these on average. Return: bytes, 0 = nothing, also where it cannot be told. Context: blocks for the disk.
 */
uint64_t listings_bytes(struct listings *l, int fds, const char *name);

#endif
