/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sys/btrfs.h - subvolumes, snapshots and simple quotas of btrfs by ioctl; all return -errno. Need root of the initial namespace.
 *
 * Simple quotas (Linux 6.7) charge an extent to the subvolume that wrote it for as long as anything refers to it.
 */
#ifndef CAY_SYS_BTRFS_H
#define CAY_SYS_BTRFS_H

#include "base/attr.h"

#include <linux/btrfs.h>
#include <pthread.h>

/** btrfs_is() - does @fd lie on a btrfs? */
bool btrfs_is(int fd);

/** btrfs_subvolume_is() - is the directory behind @fd the top of a subvolume? */
bool btrfs_subvolume_is(int fd);

/** btrfs_quota_enable() - turn simple quotas on; idempotent. -EINVAL or -EOPNOTSUPP on kernels before 6.7. */
int btrfs_quota_enable(int fd) attr_must_use;

/** btrfs_quota_works() - does a limit on the subvolume behind @fd hold (are quotas on)? */
bool btrfs_quota_works(int fd);

/** btrfs_subvolume_new() - make subvolume @name in @dirfd. Return: 0 or -errno. */
int btrfs_subvolume_new(int dirfd, const char *name) attr_must_use;

/** btrfs_subvolume_limit() - at most @bytes of data and metadata in the subvolume behind @fd; 0 = no limit. */
int btrfs_subvolume_limit(int fd, uint64_t bytes) attr_must_use;

/** btrfs_subvolume_usage() - bytes charged to the subvolume behind @fd now. */
int btrfs_subvolume_usage(int fd, uint64_t *ret_bytes) attr_must_use;

/**
 * btrfs_is_settled() - would a snapshot that is begun now wait for no disk before it holds all that it will? In the whole file system behind @fd no byte of a file is unwritten, hardly
 * any change of its trees waits, and no commit is under way.
 * Return: false also where the kernel does not tell. What comes the moment after nobody knows.
 */
bool btrfs_is_settled(int fd);

/** struct btrfs_snapshot - one while it is made, by a thread of its own; zeroed = none. Not to be moved. */
struct btrfs_snapshot {
	struct btrfs_ioctl_vol_args_v2 args;
	int dirfd; /* borrowed */
	pthread_t thread;
	bool going;
	int rc;
};

/**
 * btrfs_snapshot_begin() - begin a writable snapshot of the subvolume behind @source, as @dirfd/@name.
 * @dirfd: a directory that nobody else changes; borrowed until btrfs_snapshot_end(), as is @source.
 *
 * What was written to @source before the call is in the snapshot; what is written after it has returned is not. It flushes @source. The snapshot can be opened only behind btrfs_snapshot_end().
 * Return: 0, or -errno when there is none: then nothing is going on. Blocks. Context: one thread.
 */
int btrfs_snapshot_begin(
	struct btrfs_snapshot *s, int source, int dirfd, const char *name) attr_must_use;

/** btrfs_snapshot_end() - wait until the snapshot that was begun is on the disk. Return: 0, also when none is being made, or -errno: there is none. */
int btrfs_snapshot_end(struct btrfs_snapshot *s) attr_must_use;

/** btrfs_subvolume_readonly() - set or clear the read-only flag of the subvolume behind @fd. */
int btrfs_subvolume_readonly(int fd, bool readonly) attr_must_use;

/** btrfs_subvolume_remove() - remove subvolume @dirfd/@name with all it holds, O(1); its quota group goes too when nothing is left in it. */
int btrfs_subvolume_remove(int dirfd, const char *name) attr_must_use;

#endif
