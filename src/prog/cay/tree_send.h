/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/tree_send.h - a directory of this machine as a tar stream (ustar with PAX records), for cay cp. */
#ifndef CAY_PROG_TREE_SEND_H
#define CAY_PROG_TREE_SEND_H

#include "base/err.h"

/** typedef tree_write_fn - takes the next bytes of the stream. Return: 0 or -errno. */
typedef int tree_write_fn(void *context, const void *bytes, size_t n);

/**
 * tree_send() - write a directory and everything below it; owners are left to the receiver (0).
 * @path:  the directory.
 * @name:  what it is called in the archive.
 * @write: called with the bytes; @context is handed to it.
 * @ret_skipped: set to how many sockets, pipes and devices were left out.
 *
 * A file that shrinks while it is read is filled up with zeros, one that grows is cut: it was never whole.
 * Return: 0, -errno of @write (then @err is untouched), or -errno with @err filled.
 */
int tree_send(const char *path, const char *name, tree_write_fn *write, void *context,
	size_t *ret_skipped, struct err *err) attr_must_use;

#endif
