/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: events/segment_index.h - what a sealed segment of the journal holds, in a file beside it (NNNNNN.index) that is mapped, not read into memory.
 *
 * Made from the segment and made again when it is missing or damaged; it is for this machine alone (its own byte order). In the file, one behind the other:
 *
 *	struct index_head      with a SHA-256 over all that follows
 *	u32 starts[events]     where each line begins
 *	struct index_chain     one a chain, sorted by sandbox
 *	u32 numbers[events]    lines of the chains, chain by chain: counted from the segment's first
 */
#ifndef CAY_EVENTS_SEGMENT_INDEX_H
#define CAY_EVENTS_SEGMENT_INDEX_H

#include "base/err.h"
#include "events/line.h"

/** struct index_chain - the part of a chain that lies in one segment. */
struct index_chain {
	char sandbox[ID_LEN]; /* not terminated; zeros = the instance */
	uint32_t count;       /* of its events here */
	uint32_t first;       /* of its numbers in numbers[] */
	uint32_t unused;
	uint64_t first_seq;
	unsigned char before[LINE_HASH_SIZE],
		after[LINE_HASH_SIZE]; /* hash of the event before the first, of the last */
};

/** struct index_head - see above. */
struct index_head {
	char magic[8];
	uint64_t first_n, bytes, first_time_ns, last_time_ns; /* of the segment; times are wall */
	uint32_t events, chains;
	unsigned char sum[LINE_HASH_SIZE];
};

/** struct segment_index - a mapped one. */
struct segment_index {
	const struct index_head *head;
	const uint32_t *starts, *numbers;
	const struct index_chain *chains;
	size_t size; /* of the mapping */
};

/**
 * segment_index_write() - make file @name in @dir, all or nothing, synced.
 * @head: everything but magic and sum. @starts, @chains, @numbers: as in the file; @chains is sorted here.
 *
 * Return: 0 or -errno.
 */
int segment_index_write(int dir, const char *name, struct index_head head, const uint32_t *starts,
	struct index_chain *chains, const uint32_t *numbers) attr_must_use;

/** segment_index_open() - map file @name. Return: 0, -ENOENT, -EBADMSG when it is damaged or not of a segment of @bytes bytes, -errno. */
int segment_index_open(
	struct segment_index *x, int dir, const char *name, uint64_t bytes) attr_must_use;

/** segment_index_close() - unmap; a zeroed one is fine. */
void segment_index_close(struct segment_index *x);

/** segment_index_find() - the part of chain @sandbox ("" = the instance); NULL when it has none here. */
const struct index_chain *segment_index_find(const struct segment_index *x, const char *sandbox);

/** segment_index_size() - size of the @i-th line with its newline. */
uint64_t segment_index_size(const struct segment_index *x, uint32_t i);

#endif
