/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/numbers.h - files that a program has open for writing keep their inode numbers where it goes on over a layer (a fork, a rewind): SQLite, for one, writes no more to a file whose number changed.
 *
 * An overlay shows a file that was copied up under the number of what it was copied from, but only while the copy lies in its upper. Captured, the copy is in a layer, and would be shown under
 * a number of its own. So a file that was open is copied up again, with the attribute that says where it came from at first (trusted.overlay.origin; the kernel's ovl_check_origin() looks it
 * up by handle, wherever it is). A file that shares its blocks (reflink) costs its list of extents. Device numbers are each mount's own: sandbox/devices.h.
 *
 * Root mode on btrfs: elsewhere layers are copies, or overlays do not know where a file came from.
 */
#ifndef CAY_SANDBOX_NUMBERS_H
#define CAY_SANDBOX_NUMBERS_H

#include "sandbox/spec.h"

/** numbers_listed() - what a dumper says (%DUMP_NUMBERS_MAX) as a list of [inode, path, device]; new reference, NULL when @fd is -1 or there is nothing. */
json_t *numbers_listed(int fd);

/**
 * numbers_keep() - copy up again what of @listed lies in the topmost layer of its tree under another number. Before anything is mounted over the uppers.
 * @live: live directory of the sandbox. Return: whether there is now something in the root's upper. What fails is left as it is.
 */
bool numbers_keep(int live, const struct spec *spec, const json_t *listed);

/**
 * numbers_copy_up() - the same of one file. @from: top of the layer, @to: of the upper, @path: below both. Nothing outside of these is looked at or changed, whatever links are in them.
 * Return: 1, 0 when there is nothing to do, -errno.
 */
int numbers_copy_up(int from, const char *path, int to, uint64_t number) attr_must_use;

/**
 * numbers_skip() - before anything is written there: have new files of the sandbox numbered behind those of its layers, if these are not too many (512).
 * @live: live directory. Each subvolume numbers its own inodes from 257 on, and an overlay shows the numbers of all that lie on one file system under one device: two files would be taken for one (`mv`, `cmp`,
 * SQLite). Only making inodes raises a subvolume's next number. What fails is left.
 */
void numbers_skip(int live, const struct spec *spec);

/**
 * numbers_databases() - the paths of those of @listed that are databases of SQLite, at most 16: where device numbers are others, connections that are opened from then on do not see the locks of older ones.
 * @root: of the sandbox, in which nothing runs yet. Return: new reference, NULL when there are none.
 */
json_t *numbers_databases(int root, const json_t *listed);

#endif
