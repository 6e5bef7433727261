/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/spill.h - an exec's output on disk, in STATE/exec/<sandbox>/<exec> (io/outfile.h), owned by cayd.
 *
 * Two uses: an exec that asked for it has all its output written there as it comes, up to a number of bytes (the runs but the first count as what they take); and when a sandbox is stopped what the rings still hold is
 * added. What is written while it runs is taken off the sandbox's disk limit in steps of SPILL_STEP (box_charge()). A full disk or a reached limit ends the
 * writing, never the exec: its newest output is in the ring as ever, and readers are told of the gap.
 */
#ifndef CAY_SANDBOX_SPILL_H
#define CAY_SANDBOX_SPILL_H

#include "io/outfile.h"
#include "sandbox/box.h"
#include "sandbox/ring.h"

#define SPILL_STEP (4U << 20)

/** struct spill - SPILL_INIT before anything else. */
struct spill {
	struct outfile file;
	uint64_t max;     /* bytes to write at most, runs included */
	uint64_t charged; /* of them counted against the disk limit */
	int stopped; /* -errno that ended the writing; %-EFBIG: @max is reached; 0 = it goes on */
};

#define SPILL_INIT \
	{ \
		.file = OUTFILE_INIT \
	}

/** spill_open() - make the files. Return: 0 or -errno. */
int spill_open(
	struct spill *s, const struct box *box, const char *exec, uint64_t max) attr_must_use;

/** spill_resume() - go on with the files that an earlier keeper of this sandbox has left. Return: 0, -ENOENT when there are none, -errno. */
int spill_resume(
	struct spill *s, const struct box *box, const char *exec, uint64_t max) attr_must_use;

/** spill_rewind() - forget what the files have of the output from @end on: it is taken back. Return: 0 or -errno; then it is closed. */
int spill_rewind(struct spill *s, uint64_t end) attr_must_use;

/** spill_is_open() - is there a file? */
static inline bool spill_is_open(const struct spill *s)
{
	return s->file.bytes >= 0;
}

/** spill_follows() - is everything until @end, the end of the output, on disk? */
static inline bool spill_follows(const struct spill *s, uint64_t end)
{
	return spill_is_open(s) && s->stopped == 0 && s->file.end == end;
}

/** spill_add() - write the newest output, which begins at @offset, as far as it may. Afterwards @s->stopped tells. */
void spill_add(struct spill *s, struct box *box, uint64_t offset, enum ring_stream stream,
	const void *bytes, size_t n);

/** spill_add_ring() - add what @r holds and the file does not, not counted against any limit. Return: 0 or -errno. */
int spill_add_ring(struct spill *s, const struct ring *r) attr_must_use;

/** spill_close() - close; a closed one is fine. */
void spill_close(struct spill *s);

#endif
