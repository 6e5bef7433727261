/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/tree_send.h - a directory of this machine as a tar stream (ustar with PAX records), for cay cp. */
#ifndef CAY_PROG_TREE_SEND_H
#define CAY_PROG_TREE_SEND_H

#include "base/err.h"

/** typedef tree_write_fn - takes the next bytes of the stream. Return: 0 or -errno. */
typedef int tree_write_fn(void *context, const void *bytes, size_t n);

/** struct tree_sent - what the stream is not. */
struct tree_sent {
	size_t skipped; /* sockets, pipes and devices, left out */
	size_t shorter; /* files that lost their end while they were read: zeros stand for it */
	char *first;    /* one of those, as it is called in the archive; free() */
};

/**
 * tree_send() - write a directory and everything below it; owners are left to the receiver (0).
 * @path:  the directory.
 * @name:  what it is called in the archive.
 * @write: called with the bytes; @context is handed to it.
 * @sent: zeros before; what could not be sent as it is, also of a failure.
 *
 * A file that shrinks while it is read is filled up with zeros, since its size was said before; one that grows is cut: what it was when it was opened is there.
 * Return: 0, -errno of @write (then @err is untouched), or -errno with @err filled.
 */
int tree_send(const char *path, const char *name, tree_write_fn *write, void *context,
	struct tree_sent *sent, struct err *err) attr_must_use;

#endif
