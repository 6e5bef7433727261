/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/ownermap.h - how a writable host directory is shown: root inside is the directory's owner, and nobody inside is root on disk.
 *
 * Without it a payload could leave a set-uid root program, or one with file capabilities, in a directory of an ordinary user.
 */
#ifndef CAY_SANDBOX_OWNERMAP_H
#define CAY_SANDBOX_OWNERMAP_H

#include "base/attr.h"
#include "base/buf.h"
#include <sys/types.h>

/**
 * ownermap_text() - the lines of one id map: @owner on disk is 0 inside, 0 on disk has no name inside, the others are themselves.
 * @text: receives the lines of /proc/PID/uid_map. Pure.
 * @owner: an id on disk, not 0.
 * @base: host id of id 0 inside.
 */
void ownermap_text(struct buf *text, uint32_t owner, uint32_t base);

/**
 * ownermap_userns() - a user namespace with such maps, for an idmapped mount.
 * @uid, @gid: owner of the directory, neither 0.
 * Context: root of the initial user namespace; forks.
 * Return: descriptor, owned by the caller, or -errno.
 */
int ownermap_userns(uid_t uid, gid_t gid, uint32_t base) attr_must_use;

#endif
