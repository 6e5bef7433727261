/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sys/mount.h - the descriptor-based mount API (fsopen, open_tree, move_mount, mount_setattr; Linux 5.12).
 *
 * A mount lives behind a descriptor until it is attached to a directory or file that is a descriptor too: no path of a sandbox is ever
 * resolved by string. Needs CAP_SYS_ADMIN over the mount namespace in use.
 */
#ifndef CAY_SYS_MOUNT_H
#define CAY_SYS_MOUNT_H

#include "base/attr.h"
#include <sys/mount.h>

/**
 * mount_fs_new() - make a detached mount of a new file system instance.
 * @type: "tmpfs", "proc", "devpts" …
 * @options: NULL-terminated list of "key" or "key=value" (the latter split at the first '=').
 * @attrs: MOUNT_ATTR_* of the mount.
 *
 * Return: mount descriptor (owned by the caller) or -errno.
 */
int mount_fs_new(const char *type, const char *const *options, unsigned int attrs) attr_must_use;

/** mount_clone() - detached copy of what is mounted at (@dirfd, @path); with @recursive also below. Return: descriptor or -errno. */
int mount_clone(int dirfd, const char *path, bool recursive) attr_must_use;

/** mount_clone_fd() - detached copy of the mount tree that starts at the object behind @fd (O_PATH is enough). */
int mount_clone_fd(int fd, bool recursive) attr_must_use;

/** mount_attach() - attach detached @mount to the directory or file behind @target_fd. Return: 0 or -errno. */
int mount_attach(int mount, int target_fd) attr_must_use;

/** mount_attach_at() - attach detached @mount to (@dirfd, @path); a final symbolic link is not followed. */
int mount_attach_at(int mount, int dirfd, const char *path) attr_must_use;

/** mount_move_at() - move the mount at (@from_dir, @from) to (@to_dir, @to). */
int mount_move_at(int from_dir, const char *from, int to_dir, const char *to) attr_must_use;

/** mount_set() - set MOUNT_ATTR_* @set on @mount; with @recursive on all below. Return: 0 or -errno. */
int mount_set(int mount, uint64_t set, bool recursive) attr_must_use;

/** mount_clear() - take MOUNT_ATTR_* @clear off @mount. Return: 0 or -errno. */
int mount_clear(int mount, uint64_t clear) attr_must_use;

/** mount_set_idmap() - translate ids of @mount, not of those below it, by user namespace @userns_fd (detached, not yet idmapped mounts only). */
int mount_set_idmap(int mount, int userns_fd) attr_must_use;

/**
 * mount_forget() - have names looked up anew in the file system behind @mount (the top of its mount; O_PATH is enough): what an overlay found in its layers before they were changed.
 * Return: 0 or -errno. What somebody has open stays as it was.
 */
int mount_forget(int mount) attr_must_use;

/** mount_watch() - open this mount namespace's table for mount_changed(). Return: descriptor, or -errno. Context: no privilege. */
int mount_watch(void) attr_must_use;

/** mount_changed() - was anything mounted, moved or taken off since the last call, or since mount_watch()? @watch: its descriptor. Context: does not block. */
bool mount_changed(int watch);

/** mount_propagation() - set the propagation (%MS_PRIVATE, %MS_SLAVE) of the whole tree of this mount namespace. Return: 0 or -errno. */
int mount_propagation(uint64_t propagation) attr_must_use;

#endif
