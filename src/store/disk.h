/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/disk.h - the disk of one sandbox: a file system of fixed size in the sparse file live/<id>/disk.ext4, which holds its trees instead of live/<id>
 * itself. For limits that the pool cannot hold otherwise (docs/design/0002 "Disks"). Root mode only.
 *
 * It is mounted by whoever needs it, as a mount without a place: nothing is left when the process dies. All of them share one loop device, which goes with
 * the last.
 */
#ifndef CAY_STORE_DISK_H
#define CAY_STORE_DISK_H

#include "store/store.h"

#define DISK_FILE "disk.ext4"

/** struct disk_size - what a disk holds for its sandbox, exactly. */
struct disk_size {
	uint64_t bytes;  /* rounded down to blocks of 4096 */
	uint64_t inodes; /* 0 = as many as fit its bytes well */
};

/** disk_why_not() - why this machine cannot have disks; NULL when it can. Static text. */
const char *disk_why_not(void);

/** disk_exists() - has the sandbox whose live directory is @live a disk? */
bool disk_exists(int live);

/**
 * disk_make() - make the disk of sandbox @id in its live directory, if it has none yet.
 * @n_trees: trees that are made on it (they are not counted).
 *
 * Crash at any point: there is a whole disk or none, and nothing stays mounted. Context: a job; blocks; runs mkfs.ext4.
 */
int disk_make(int live, const char *id, const struct disk_size *size, unsigned int n_trees,
	struct err *err) attr_must_use;

/**
 * disk_mount() - mount the disk of sandbox @id.
 * @live: its live directory.
 *
 * Return: descriptor of the detached mount (also good as a directory for openat), -ENOENT when there is no disk, -errno.
 * Context: root; waits up to 10 s for another process that mounts it just now.
 */
int disk_mount(int live, const char *id) attr_must_use;

/** disk_open() - the top directory of a live directory's trees: that of the disk when there is one, else a copy of @live. Descriptor or -errno. */
int disk_open(int live, const char *id) attr_must_use;

/** disk_usage() - what the sandbox has used of the mounted disk behind @root. Return: 0, -ENODATA when that is no disk, -errno. */
int disk_usage(int root, struct disk_size *used) attr_must_use;

#endif
