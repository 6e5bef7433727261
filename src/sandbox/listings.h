/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/listings.h - what overlays keep for directories that are open.
 *
 * An overlay keeps the names of a directory that lies in several layers for whoever has listed it: once for all who found them so, and anew for each that listed it behind a change of a
 * name, as long as that one has it open. It tells nobody for whom. So each that was opened counts as if it had its own, with the names that are there now: however many descriptors stand
 * for it, and one for all where no name has changed since the sandbox began. What cannot be told is nothing.
 */
#ifndef CAY_SANDBOX_LISTINGS_H
#define CAY_SANDBOX_LISTINGS_H

#include "sandbox/holders.h"
#include <sys/types.h>

#define LISTINGS_MOUNTS      64
#define LISTINGS_DIRECTORIES (1U << 13)
#define LISTINGS_DESCRIPTORS (1U << 16)

/** struct listing - one directory. */
struct listing {
	uint64_t mount, inode; /* 0 = none */
	uint64_t changed_ns;   /* at the latest, wall clock */
	uint32_t n;            /* descriptors */
	uint32_t last;         /* of these, from 1 on */
};

/** struct listed - one descriptor. */
struct listed {
	uint64_t group;
	int32_t pid, fd;
	uint32_t before; /* the one of the same directory, from 1 on; 0 = none */
};

/** struct listings - what was seen so far; all zero at the beginning. Large: of a process that looks once. */
struct listings {
	uint64_t mounts[LISTINGS_MOUNTS]; /* of overlays, by their ids */
	size_t n_mounts;
	uint64_t
		began_ns; /* wall clock: names that have changed by then are the same for all; 0 = not known */
	struct listing all[LISTINGS_DIRECTORIES];
	struct listed descriptors[LISTINGS_DESCRIPTORS];
	uint32_t n;
	uint32_t opened
		[LISTINGS_DESCRIPTORS]; /* of one directory: descriptors that were opened each for itself, by the kernel's order */
};

/** listings_learn() - which mounts of process @pid are overlays; those that are more than there is room for are none. */
void listings_learn(struct listings *l, int32_t pid);

/** listings_began() - process @pid is the sandbox's first. */
void listings_began(struct listings *l, int32_t pid);

/** listings_note() - a descriptor, if it may have a listing. @fds: /proc/@pid/fd; @name: of the descriptor in there; @group: of whom it is. */
void listings_note(struct listings *l, int32_t pid, int fds, const char *name, uint64_t group);

/**
 * listings_add() - add what is kept for those that were noted, the directories with most descriptors first, as long as clock_now_ns() is not beyond @until_ns.
 * Each that was opened counts for the group of the descriptor that was noted last of it. Context: blocks for the disk.
 */
void listings_add(struct listings *l, struct holders *h, uint64_t until_ns);

#endif
