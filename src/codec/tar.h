/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/tar.h - a strict reader of tar streams: V7, ustar, GNU (long names, sparse) and PAX (with GNU sparse 0.0, 0.1, 1.0, xattrs).
 *
 * Why not libarchive's: names are bytes here, and it puts PAX names into Unicode normal form C in a UTF-8 locale and warns in any other; and
 * it reads on where two readers could see two things. Here every doubt ends the reading: wrong checksum, sizes on entries
 * that have no data, two extended headers for one entry, two ways of naming it, global headers that rename, NUL bytes in names.
 * What is read is only what the archive says: names are neither cleaned nor judged; whoever writes files does that.
 *
 * Memory is bounded: %TAR_HEADER_MAX for an extended header, %TAR_SPARSE_MAX entries of a sparse map.
 */
#ifndef CAY_CODEC_TAR_H
#define CAY_CODEC_TAR_H

#include "base/err.h"
#include <time.h>

#define TAR_BLOCK      512
#define TAR_HEADER_MAX (1U << 20)
#define TAR_SPARSE_MAX (1U << 18)
#define TAR_XATTRS_MAX 64
#define TAR_SIZE_MAX   (1ULL << 62)

enum tar_type {
	TAR_FILE,
	TAR_HARDLINK,
	TAR_SYMLINK,
	TAR_CHAR,
	TAR_BLOCKDEV,
	TAR_DIRECTORY,
	TAR_FIFO,
};

/** struct tar_xattr - one extended attribute; @name is NUL-terminated, @value is bytes. */
struct tar_xattr {
	char *name;
	char *value;
	size_t size;
};

/** struct tar_entry - what the archive says of one file; valid until the next tar_next(). */
struct tar_entry {
	enum tar_type type;
	const char *path; /* bytes as they stand, never empty */
	const char *link; /* target of a hard or symbolic link, never empty there; else "" */
	uint32_t mode;    /* 0..07777 */
	uint32_t uid, gid;
	uint64_t size; /* of the file, holes included */
	struct timespec mtime, atime;
	const struct tar_xattr *xattrs;
	size_t n_xattrs;
	bool slash;  /* the path ended with '/' */
	bool sparse; /* tar_data() leaves holes */
};

/**
 * typedef tar_read_fn - where the bytes come from.
 *
 * Fills @n bytes unless the input ends first. Return: bytes read, or -errno with *@err filled.
 */
typedef ssize_t tar_read_fn(void *context, void *bytes, size_t n, struct err *err);

struct tar;

/** tar_new() - a reader at the start of an uncompressed stream; free with tar_free(). @context is borrowed. */
struct tar *tar_new(tar_read_fn *read, void *context) attr_must_use;

/** tar_free() - NULL is allowed. */
void tar_free(struct tar *tar);

static inline void cleanup_tar_freep(struct tar **tar)
{
	tar_free(*tar);
}

/**
 * tar_next() - go on to the next entry, past data that was not read.
 * @ret: borrowed from the reader.
 *
 * Return: 1, 0 at the end of the archive (input behind it is not read), or -errno with *@err: %ERR_CORRUPT (damaged or cut off),
 *         %ERR_HOSTILE_ARCHIVE (says two things at once, or something absurd).
 */
int tar_next(struct tar *tar, const struct tar_entry **ret, struct err *err) attr_must_use;

/**
 * tar_data() - the next bytes of the current file.
 * @ret_offset: where in the file they belong; what lies between two pieces of a sparse file is zero.
 *
 * Return: bytes, 0 when there are no more, or -errno as for tar_next().
 */
ssize_t tar_data(struct tar *tar, void *bytes, size_t n, uint64_t *ret_offset,
	struct err *err) attr_must_use;

/** tar_position() - bytes of the stream that were consumed; right after tar_next(): where the data of the entry begins. */
uint64_t tar_position(const struct tar *tar);

#endif
