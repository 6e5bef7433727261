/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/frames.c - see the header. */
#include "prog/cay-template/frames.h"
#include "prog/cay-template/reading.h"

#define PIECE 512U /* entries that are read at once */

/* an entry of /proc/PID/pagemap */
#define ENTRY_PRESENT (1ULL << 63)
#define ENTRY_FRAME   ((1ULL << 55) - 1)

static uint64_t entries[3][PIECE];

static long read_entries(long pagemap, uint64_t start, uint32_t n, uint64_t *to)
{
	long rc = CALL4(__NR_pread64, pagemap, to, n * 8, start / BARE_PAGE * 8);

	return rc == (long)n * 8 ? 0 : rc < 0 ? rc : -ESRCH; /* it has ended */
}

/*
 * The kernel may move pages to other frames at any time, and put another page where one was: so the first process is looked at before the second and after it.
 */
static long compare_piece(
	const long pagemaps[2], uint64_t start, uint32_t first, uint32_t n, uint64_t *same)
{
	const uint64_t at = start + first * BARE_PAGE;
	long rc = read_entries(pagemaps[0], at, n, entries[0]);

	if (rc == 0)
		rc = read_entries(pagemaps[1], at, n, entries[1]);
	if (rc == 0)
		rc = read_entries(pagemaps[0], at, n, entries[2]);
	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		const uint64_t one = entries[0][i], frame = one & ENTRY_FRAME;

		if ((one & ENTRY_PRESENT) == 0)
			continue;
		if (frame == 0)
			return -EPERM;
		if ((entries[1][i] & ENTRY_PRESENT) != 0 &&
			(entries[1][i] & ENTRY_FRAME) == frame && entries[2][i] == one)
			same[(first + i) / 64] |= 1ULL << (first + i) % 64;
	}
	return rc;
}

long frames_compare(const struct template_same *o, uint64_t *same)
{
	long pagemaps[2] = { reading_open(o->pids[0], "pagemap"),
		reading_open(o->pids[1], "pagemap") };
	long rc = pagemaps[0] < 0 ? pagemaps[0] : pagemaps[1] < 0 ? pagemaps[1] : 0;

	for (uint32_t at = 0, n; rc == 0 && at < o->pages; at += n) {
		n = o->pages - at < PIECE ? o->pages - at : PIECE;
		rc = compare_piece(pagemaps, o->start, at, n, same);
	}
	for (int i = 0; i < 2; i++) {
		if (pagemaps[i] >= 0)
			(void)CALL1(__NR_close, pagemaps[i]);
	}
	return rc;
}
