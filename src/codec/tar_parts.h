/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: codec/tar_parts.h - what tar.c, tar_extended.c and tar_sparse.c share and nobody else needs. */
#ifndef CAY_CODEC_TAR_PARTS_H
#define CAY_CODEC_TAR_PARTS_H

#include "base/buf.h"
#include "codec/tar.h"

struct pax_record;

/* Offsets and lengths of the fields of a header block. */
enum {
	H_NAME = 0,
	H_MODE = 100,
	H_UID = 108,
	H_GID = 116,
	H_SIZE = 124,
	H_MTIME = 136,
	H_SUM = 148,
	H_TYPE = 156,
	H_LINK = 157,
	H_MAGIC = 257,
	H_PREFIX = 345,
	H_GNU_SPARSE = 386,
	H_GNU_EXTENDED = 482,
	H_GNU_REALSIZE = 483,
};

struct piece {
	uint64_t offset, size;
};

/* Which PAX keys were seen; a second time is refused. */
enum {
	SAW_PATH = 1 << 0,
	SAW_LINK = 1 << 1,
	SAW_SIZE = 1 << 2,
	SAW_UID = 1 << 3,
	SAW_GID = 1 << 4,
	SAW_MTIME = 1 << 5,
	SAW_ATIME = 1 << 6,
	SAW_SPARSE_NAME = 1 << 7,
	SAW_SPARSE_SIZE = 1 << 8,
	SAW_SPARSE_REALSIZE = 1 << 9,
	SAW_SPARSE_MAP = 1 << 10,
	SAW_SPARSE_MAJOR = 1 << 11,
	SAW_SPARSE_MINOR = 1 << 12,
	SAW_SPARSE_BLOCKS = 1 << 13,
};

struct tar {
	tar_read_fn *read;
	void *context;
	uint64_t position;
	uint64_t left; /* stored bytes of the current entry that were not read */
	unsigned int pad;
	bool failed, ended;

	/* what is known of the entry being read */
	struct tar_entry entry;
	struct buf path, link, header; /* NUL-terminated names; the last extended header */
	struct tar_xattr xattrs[TAR_XATTRS_MAX];
	unsigned int saw;
	bool extended, gnu_path, gnu_link;
	uint64_t pax_size, pax_uid, pax_gid, sparse_realsize, sparse_major, sparse_minor;
	struct timespec pax_mtime, pax_atime;

	/* sparse map of the current entry */
	struct piece *map;
	size_t n_map, cap_map, at_map;
	uint64_t in_piece; /* bytes of map[at_map] already handed out */
};

/** tar_corrupt() - ERR_CORRUPT with the place; @what: a clause. Return: negative. */
int tar_corrupt(struct tar *t, struct err *err, const char *what);

/** tar_hostile() - ERR_HOSTILE_ARCHIVE with the place: readers could disagree about it. Return: negative. */
int tar_hostile(struct tar *t, struct err *err, const char *what);

/** tar_take() - read exactly @n bytes of the stream. */
int tar_take(struct tar *t, void *bytes, size_t n, struct err *err) attr_must_use;

/** tar_skip() - read and drop exactly @n bytes. */
int tar_skip(struct tar *t, uint64_t n, struct err *err) attr_must_use;

/** tar_number() - a number of a header field, octal or base-256. Return: 0, -EBADMSG (malformed), -ERANGE (negative, or above @max). */
int tar_number(const unsigned char *p, size_t n, uint64_t max, uint64_t *ret) attr_must_use;

/* --- tar_extended.c --- */

/** tar_extended_read() - the data, @size bytes, of an extended header of @type: one of x, g, L, K. */
int tar_extended_read(struct tar *t, char type, uint64_t size, struct err *err) attr_must_use;

/* --- tar_sparse.c --- */

/** tar_map_add() - one more piece of the current entry; bounded by %TAR_SPARSE_MAX. */
int tar_map_add(struct tar *t, uint64_t offset, uint64_t size, struct err *err) attr_must_use;

/** tar_map_parse() - PAX 0.1: the whole map in one record. */
int tar_map_parse(struct tar *t, const struct pax_record *r, struct err *err) attr_must_use;

/** tar_map_record() - PAX 0.0: one number of the map. */
int tar_map_record(
	struct tar *t, const struct pax_record *r, bool is_offset, struct err *err) attr_must_use;

/** tar_map_read() - complete and check the map of the current entry, whose header @h is of @type; a file that is not sparse is one piece. */
int tar_map_read(struct tar *t, const unsigned char *h, char type, struct err *err) attr_must_use;

#endif
