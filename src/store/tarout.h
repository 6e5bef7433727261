/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/tarout.h - headers of a tar stream: ustar, with PAX records for what does not fit. */
#ifndef CAY_STORE_TAROUT_H
#define CAY_STORE_TAROUT_H

#include "store/tree.h"

#define TAROUT_BLOCK 512

/** struct tarout_entry - one entry; all borrowed. */
struct tarout_entry {
	const char *path;
	const char *link; /* target of a symbolic link, or of a hard link; else NULL */
	bool hard;        /* @link is the path of an earlier entry */
	const struct stat *st;
	uint32_t uid, gid;
	const struct tree_xattrs *xattrs; /* NULL = none */
};

/** tarout_header() - append all header blocks of @entry. The data (st_size bytes of a regular file that is no hard link) and its padding follow. */
void tarout_header(struct buf *out, const struct tarout_entry *entry);

/** tarout_padding() - zero bytes that follow @size bytes of data. */
size_t tarout_padding(uint64_t size);

/** tarout_end() - append the end of the archive. */
void tarout_end(struct buf *out);

#endif
