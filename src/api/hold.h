/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/hold.h - the overlays of a sandbox whose processes go on elsewhere in time (suspended, or being rewound) are held, so that nobody else gets their device numbers before the new ones have
 * them (sandbox/devices.h).
 *
 * A superblock without users, and a descriptor of ours, for each; nothing when the server dies: then the numbers are others. All of it is best effort.
 */
#ifndef CAY_API_HOLD_H
#define CAY_API_HOLD_H

#include "base/attr.h"

struct live;
struct sandbox;
struct server;

/** struct hold - zero: nothing is. */
struct hold {
	size_t n;
	struct hold_place {
		char *path; /* where it is mounted inside */
		int fd;
	} * places;
};

/** hold_take() - hold the overlays of @sb, whose keeper runs, instead of what was held; none where it is stopped to be suspended and has no file open for writing. Locked. Context: waits. */
void hold_take(struct sandbox *sb);

/** hold_give() - give what is held to the keeper of @sb, which is ready and about to start the processes of @l. Locked. */
void hold_give(struct sandbox *sb, const struct live *l);

/** hold_drop() - hold nothing. Locked. */
void hold_drop(struct sandbox *sb);

/** hold_end() - the server ends in order. */
void hold_end(struct server *srv);

/** hold_drop_all() - the same of all sandboxes that nobody works on: their storage is to go. */
void hold_drop_all(struct server *srv);

#endif
