/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/overlay.h - one overlay mount, made with what the running kernel offers. Source: Documentation/filesystems/overlayfs.rst.
 *
 * An overlay with an upper is volatile: fsync and syncfs inside answer at once and write nothing, and unmounting it does not sync the pool, which
 * all sandboxes share. What is durable is a snapshot; the store syncs it below the overlay. After a crash of the machine the files of a sandbox
 * are those that the pool had written back by itself (docs/design/0002-store.md).
 */
#ifndef CAY_SANDBOX_OVERLAY_H
#define CAY_SANDBOX_OVERLAY_H

#include "sandbox/devices.h"
#include "sandbox/rootfs.h"
#include <limits.h>

/**
 * struct overlay - its layers as paths in the keeper's mount namespace, top first. Zero-initialise; no upper and work: read-only.
 * @stranger: made by somebody who owns nothing of the layers and overrides nothing. The kernel asks for the rights of the maker of an overlay, too, each time
 * that something is looked up, listed or opened, so what others may not read nobody reads through this one, root of the host included; whenever it came there.
 * @place: where it will be mounted, and @devices: which numbers it gets there; NULL: any.
 */
struct overlay {
	bool stranger;
	const char *place;
	struct devices *devices;
	unsigned int try; /* to get them */
	char **lower;
	size_t n;
	char upper[PATH_MAX], work[PATH_MAX];
};

/** overlay_fini() - release the list of layers. */
void overlay_fini(struct overlay *o);

/** overlay_add_lower() - append a layer below those there are; @path is copied. */
void overlay_add_lower(struct overlay *o, const char *path);

/**
 * overlay_mount() - make the mount, detached.
 * @r: whose staging directory and ids are used. @attrs: MOUNT_ATTR_* of the mount.
 * Return: mount descriptor owned by the caller, or -errno (ELOOP: a layer lies below another layer's directory).
 */
int overlay_mount(const struct rootfs *r, struct overlay *o, unsigned int attrs) attr_must_use;

#endif
