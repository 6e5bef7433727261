/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sandbox/rootfs_internal.h - what rootfs.c and rootfs_parts.c share. */
#ifndef CAY_SANDBOX_ROOTFS_INTERNAL_H
#define CAY_SANDBOX_ROOTFS_INTERNAL_H

#include "sandbox/rootfs.h"
#include <sys/stat.h>

/** rootfs_stage_layer() - attach directory @dir below the staging directory; @path (of @size bytes) receives where. 0 or an error. */
int rootfs_stage_layer(
	struct rootfs *r, const char *dir, char *path, size_t size, struct err *err) attr_must_use;

/** rootfs_in_pool() - path of pool directory @dir as seen through the staged mount of the pool; @path has PATH_MAX bytes. 0 or an error. */
int rootfs_in_pool(
	const struct rootfs *r, const char *dir, char *path, struct err *err) attr_must_use;

/**
 * rootfs_cow() - make the overlay of cow mount @m. @staged (of @size bytes): receives where its directory is attached among the layers, also on failure if it is.
 * Return: detached mount, owned by the caller, or an error.
 */
int rootfs_cow(struct rootfs *r, const struct spec_mount *m, const char *live, char *staged,
	size_t size, struct err *err) attr_must_use;

/** rootfs_open_points() - open LIVE/points. Return: descriptor or an error. */
int rootfs_open_points(const char *live, struct err *err) attr_must_use;

/** rootfs_stat_below() - attributes of directory @name in the topmost of @lower that has it, else in @image; false when none has. */
bool rootfs_stat_below(
	const struct spec_layers *lower, const char *image, const char *name, struct stat *st);

/** rootfs_skeleton() - put the host's top-level links, and mount points for its directories, into LIVE/points. 0 or an error. */
int rootfs_skeleton(const char *live, struct err *err) attr_must_use;

#endif
