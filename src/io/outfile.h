/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: io/outfile.h - the output of an exec on disk: both streams in the order in which they came, readable at any offset while it is still written.
 *
 * NAME.bytes holds the bytes and nothing else; NAME.runs holds 16 bytes for each change of stream and each gap, little endian:
 *
 *	u64 offset of the run's first byte | u64 its place in NAME.bytes, times two, plus one when it is standard error
 *
 * A run ends where the next one begins in NAME.bytes, the last one at that file's end. Offsets only grow; a run whose offset is behind the end of the one before it leaves a gap: those
 * bytes are not there. The run is written before its bytes: after a crash at any point what is there is the beginning of the truth, and the reader never sees a byte in the
 * wrong stream.
 */
#ifndef CAY_IO_OUTFILE_H
#define CAY_IO_OUTFILE_H

#include "base/attr.h"

/** struct outfile - an open one; OUTFILE_INIT before anything else. */
struct outfile {
	int bytes, runs; /* descriptors; -1 = closed */
	uint64_t end;    /* writer: offset behind the last byte */
	uint64_t size;   /* writer: of NAME.bytes */
	uint64_t n_runs; /* writer: in NAME.runs */
	bool err;        /* writer: the last run is standard error */
};

#define OUTFILE_INIT \
	{ \
		.bytes = -1, .runs = -1 \
	}

/** struct outfile_part - some bytes of one stream, or a gap in front of them. */
struct outfile_part {
	uint64_t offset; /* of the first byte: behind what was asked for when there is a gap */
	uint64_t n;      /* how many of this run are there from there on */
	uint64_t place;  /* of the first one in NAME.bytes */
	bool err;        /* of standard error */
};

/**
 * outfile_create() - make both files in @dirfd, which must not be there yet, readable and writable, mode 0600.
 * @owner, @group: who they shall belong to; -1 = us.
 *
 * Return: 0 or -errno; then nothing is left.
 */
int outfile_create(
	struct outfile *f, int dirfd, const char *name, uid_t owner, gid_t group) attr_must_use;

/** outfile_append() - open existing files to write on behind their end. Return: 0, -ENOENT, -errno. */
int outfile_append(struct outfile *f, int dirfd, const char *name) attr_must_use;

/** outfile_open() - open for reading. Return: 0, -ENOENT, -errno. */
int outfile_open(struct outfile *f, int dirfd, const char *name) attr_must_use;

/**
 * outfile_add() - append @n bytes that begin at @offset, at or behind the end; @err: of standard error.
 *
 * Return: 0 or -errno; after an error nothing of these bytes counts, and nothing more may be added.
 */
int outfile_add(
	struct outfile *f, uint64_t offset, bool err, const void *bytes, size_t n) attr_must_use;

/** outfile_used() - bytes of both files; of the runs all but the first count. */
uint64_t outfile_used(const struct outfile *f);

/** outfile_cost() - so many more the runs will take for bytes at @offset. */
uint64_t outfile_cost(const struct outfile *f, uint64_t offset, bool err);

/**
 * outfile_cut() - forget what is at @offset and behind it, of a file that outfile_append() has opened: what was written is taken back.
 *
 * Return: 0 or -errno; then nothing more may be added. What is read meanwhile, or after a crash, is the beginning of what was there.
 */
int outfile_cut(struct outfile *f, uint64_t offset) attr_must_use;

/** outfile_find() - the bytes at @offset, else the first ones behind it. Return: 1, 0 when there are none, -errno. */
int outfile_find(const struct outfile *f, uint64_t offset, struct outfile_part *ret) attr_must_use;

/** outfile_read() - read the first @n bytes of @part, which it holds. Return: 0 or -errno (%-ENODATA: the file is shorter). */
int outfile_read(
	const struct outfile *f, const struct outfile_part *part, void *to, size_t n) attr_must_use;

/** outfile_close() - close; a closed one is allowed. */
void outfile_close(struct outfile *f);

#endif
