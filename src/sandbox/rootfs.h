/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/rootfs.h - the overlay mounts of a sandbox: its root, and one for each cow mount.
 *
 * Made by the keeper in a private mount namespace, handed to the builder as detached mounts. Layers are idmapped in root mode, so what is
 * on disk keeps unshifted ids (docs/design/0001). Sources: Documentation/filesystems/overlayfs.rst; the trap that an overlay over idmapped layers
 * must be mounted with a file-system uid that the idmap maps.
 */
#ifndef CAY_SANDBOX_ROOTFS_H
#define CAY_SANDBOX_ROOTFS_H

#include "base/err.h"
#include "sandbox/spec.h"

/** struct rootfs - the keeper's side of the mounts. */
struct rootfs {
	int stage; /* tmpfs in our own mount namespace where layers are attached for path look-up; -1 before rootfs_init() */
	const char *state; /* state directory */
	bool rootless;     /* no idmapping; user.overlay.* attributes */
	int userns;        /* U1, for idmapped layers; -1 when rootless */
	uid_t base;        /* host uid of uid 0 inside */
	unsigned int n_attached;
};

/**
 * rootfs_init() - leave the host's mount namespace and make a private place for layers.
 * Context: the keeper, once; needs CAP_SYS_ADMIN.
 */
int rootfs_init(struct rootfs *r, const char *state, bool rootless, struct err *err) attr_must_use;

/**
 * rootfs_mounts() - make every mount that @spec asks for.
 * @live: absolute path of the sandbox's live directory.
 * @mounts: room for SPEC_MOUNTS_MAX + 1 descriptors; [0] is the root, then one for each spec mount. Filled with owned descriptors on success.
 * @err: says which mount failed.
 *
 * Return: number of descriptors, or negative. On failure nothing stays open.
 */
int rootfs_mounts(struct rootfs *r, const struct spec *spec, const char *live, int *mounts,
	struct err *err) attr_must_use;

/** rootfs_points() - create the mount points of @spec (and /proc /dev /sys) in the layer LIVE/points. */
int rootfs_points(const struct rootfs *r, const struct spec *spec, const char *live,
	struct err *err) attr_must_use;

#endif
