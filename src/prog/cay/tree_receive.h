/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay/tree_receive.h - a tar stream from a sandbox, written below a directory of this machine, for cay cp.
 *
 * The stream is hostile until shown otherwise: no path leaves the directory, no link is followed, no device is made, no set-uid bit and no owner
 * is taken over.
 */
#ifndef CAY_PROG_TREE_RECEIVE_H
#define CAY_PROG_TREE_RECEIVE_H

#include "codec/tar.h"

/**
 * tree_receive() - write the entries of @tar below @dir.
 * @dir: descriptor of the directory, which is the archive's top.
 * @top: what the top is called in the archive; every path begins with it. "" when it has no name there.
 * @made: @dir was made for it, and gets its mode.
 * @ret_skipped: set to how many devices, pipes and the like were left out.
 *
 * Return: 0 or -errno with @err filled (%ERR_HOSTILE_ARCHIVE for a path that would leave, %ERR_INVALID when the top is no directory); what was written before stays.
 */
int tree_receive(struct tar *tar, int dir, const char *top, bool made, size_t *ret_skipped,
	struct err *err) attr_must_use;

#endif
