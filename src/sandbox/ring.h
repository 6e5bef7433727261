/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/ring.h - the last bytes that an exec wrote, with offsets, both streams in the order in which they were read.
 *
 * Offsets count the bytes of stdout and stderr together from 0 and never restart. The oldest bytes give way when the ring is full.
 */
#ifndef CAY_SANDBOX_RING_H
#define CAY_SANDBOX_RING_H

#include "base/attr.h"

enum ring_stream { RING_STDOUT = 1, RING_STDERR = 2 };

struct ring_segment {
	uint64_t end; /* offset behind its last byte */
	enum ring_stream stream;
};

struct ring {
	char *bytes;
	size_t cap, max;               /* allocated and largest size; powers of two */
	uint64_t start, end;           /* offsets of what is held: start..end */
	struct ring_segment *segments; /* oldest first, from @first, modulo @segments_cap */
	size_t first, n_segments, segments_cap;
};

/** ring_init() - @max is rounded up to a power of two, at least 4096 bytes. */
void ring_init(struct ring *r, size_t max);

/** ring_fini() - release the memory. */
void ring_fini(struct ring *r);

/** ring_add() - append; what does not fit any more at the front is forgotten. */
void ring_add(struct ring *r, enum ring_stream stream, const void *bytes, size_t n);

/** ring_space() - bytes that can be added before offset @keep would be forgotten. */
size_t ring_space(const struct ring *r, uint64_t keep);

/**
 * ring_read() - a run of bytes of one stream from @offset on.
 * @offset: within start..end.
 * @max: at most this many.
 * @ret_stream: which stream the bytes are from. @ret_bytes: points into the ring until the next ring_add().
 *
 * Return: how many, 0 at the end.
 */
size_t ring_read(const struct ring *r, uint64_t offset, size_t max, enum ring_stream *ret_stream,
	const char **ret_bytes);

#endif
