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
#include "sandbox/devices.h"
#include "sandbox/spec.h"

/*
 * Where layers are staged, in a mount namespace of our own. Overlayfs shows the paths of its layers in /proc/self/mountinfo inside the
 * sandbox: a place that every host has, so that they say nothing of this one, and that nobody mounts into a sandbox (not below /proc: that
 * would forbid a fresh /proc in the set-up namespace).
 */
#define ROOTFS_STAGE "/sys/firmware"
/* The sandbox's own device nodes (root mode): those of the host would share locks, watches and times with it. */
#define ROOTFS_DEVICES ROOTFS_STAGE "/dev"

/** struct rootfs - the keeper's side of the mounts. */
struct rootfs {
	int stage; /* tmpfs in our own mount namespace where layers are attached for path look-up; -1 before rootfs_init() */
	const char *state; /* state directory */
	bool rootless;     /* no idmapping; user.overlay.* attributes */
	int userns;        /* U1, for idmapped layers; -1 when rootless */
	uid_t base;        /* host uid of uid 0 inside */
	unsigned int n_attached;
	struct devices devices; /* kept for the overlays that are to be made */
	char pool[256];         /* path of the staged pool; empty before it is needed */
	char disk
		[256]; /* path of the sandbox's own staged disk, which holds its trees; empty when it has none */
};

/**
 * rootfs_init() - leave the host's mount namespace and make a private place for layers.
 * Context: the keeper, once; needs CAP_SYS_ADMIN.
 */
int rootfs_init(struct rootfs *r, const char *state, bool rootless, struct err *err) attr_must_use;

/**
 * rootfs_root() - mount the root overlay: LIVE/points, @lower, then the image.
 * @image: "host" or an image id. @lower: layers of the pool, top first. @live: absolute path of the sandbox's live directory.
 *
 * May be done before the mount points of a specification are known: rootfs_points() adds them to the lowest-cost layer; whoever looked before that looked too early (mount_forget()).
 * Return: detached mount, owned by the caller, or an error.
 */
int rootfs_root(struct rootfs *r, const char *image, const struct spec_layers *lower,
	const char *live, struct err *err) attr_must_use;

/** rootfs_disk() - changes go to the disk behind the detached mount @mount from now on (root mode). Return: 0 or -errno. */
int rootfs_disk(struct rootfs *r, int mount) attr_must_use;

#define ROOTFS_PARTS_MAX \
	200 /* with the root and what is foreseen no more than one message takes (box.c) */
#define PART_NAME_SIZE 128

/** struct rootfs_parts - mounts of the host image besides its root (rootless only). */
struct rootfs_parts {
	size_t n;
	int mount[ROOTFS_PARTS_MAX];
	char name[ROOTFS_PARTS_MAX][PART_NAME_SIZE]; /* below "/" */
};

/** rootfs_parts() - make what has to be mounted onto the root before anything else; none in root mode. 0 or an error. */
int rootfs_parts(struct rootfs *r, const char *image, const struct spec_layers *lower,
	const char *live, struct rootfs_parts *parts, struct err *err) attr_must_use;

/**
 * rootfs_mounts() - make the mounts of @spec->mounts, from number @first on.
 * @mounts: room for @spec->n_mounts - @first descriptors; filled with detached mounts on success, owned by the caller.
 * @err: says which mount failed. Return: 0 or an error; on failure nothing stays open.
 */
int rootfs_mounts(struct rootfs *r, const struct spec *spec, size_t first, const char *live,
	int *mounts, struct err *err) attr_must_use;

/**
 * rootfs_skeleton_remove() - undo what a root of the host image, made ahead of time without root, left in the layer of mount points and in the root's tree: over
 * another image it would hide /bin and the like. The sandbox has never run. Return: 0 or an error.
 */
int rootfs_skeleton_remove(const struct rootfs *r, const char *live, struct err *err);

/** rootfs_points_base() - create /proc, /dev and /sys in the layer LIVE/points. */
int rootfs_points_base(const char *live, struct err *err) attr_must_use;

/** rootfs_points() - create those mount points of @spec, from mount number @first on, in LIVE/points that the root does not show anyway, like the image's own directories of those names. Return: 1 when there are any, 0, or an error. */
int rootfs_points(const struct rootfs *r, const struct spec *spec, size_t first, const char *live,
	struct err *err) attr_must_use;

/** rootfs_file_point() - create in LIVE/points what a file is mounted on at @target, above the root that @spec asks for. Return: 0 or an error. */
int rootfs_file_point(const struct rootfs *r, const struct spec *spec, const char *target,
	const char *live, struct err *err) attr_must_use;

#endif
