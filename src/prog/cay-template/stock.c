/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/stock.c - see the header. */
#include "prog/cay-template/stock.h"
#include "checkpoint/image.h"

#define HUGE_PAGE         (2UL << 20)
#define ROOM              (64UL << 30) /* addresses, of which memory is only what has been made */
#define MADV_HUGEPAGE     14
#define MADV_DONTNEED     4
#define MADV_POPULATE     23 /* for writing */
#define MREMAP_TO_ADDRESS 3  /* MAYMOVE | FIXED */

static uint64_t wanted, made; /* bytes from its beginning on */
static uint64_t given;        /* so many have gone */

static uint64_t down(uint64_t n)
{
	return n & ~(HUGE_PAGE - 1);
}

static uint64_t up(uint64_t n)
{
	return down(n + HUGE_PAGE - 1);
}

void stock_want(uint64_t mebibytes)
{
	wanted = up(mebibytes << 20);
	if (wanted > ROOM ||
		bare_map(WINDOW_STOCK, ROOM, 3, 2 | 0x4000 /* PRIVATE | NORESERVE */) < 0)
		wanted = 0;
	else
		(void)CALL3(__NR_madvise, WINDOW_STOCK, ROOM, MADV_HUGEPAGE);
}

bool stock_grow(void)
{
	if (made < wanted &&
		CALL3(__NR_madvise, WINDOW_STOCK + made, HUGE_PAGE, MADV_POPULATE) == 0)
		made += HUGE_PAGE;
	else
		wanted = made;
	return made < wanted;
}

/* Of a huge page that is only in part a mapping's, the rest would be nobody's and stay: it is made anew there, of small ones. */
static void forget_edge(uint64_t at)
{
	if (at != down(at))
		(void)CALL3(__NR_madvise, WINDOW_STOCK + down(at), HUGE_PAGE, MADV_DONTNEED);
}

bool stock_give(uint64_t address, uint64_t length)
{
	/* page tables are moved whole where both ends stand alike within two megabytes */
	uint64_t from = given + address % HUGE_PAGE, to = from + length;

	if (up(from) + HUGE_PAGE > made || up(from) + HUGE_PAGE > to || to > ROOM)
		return false;
	/* mremap() would replace what is there */
	if (bare_map(address, length, 0, 2 | 0x4000 /* PRIVATE | NORESERVE */) < 0)
		return false;
	forget_edge(from);
	if (to < made)
		forget_edge(to);
	if (CALL5(__NR_mremap, WINDOW_STOCK + from, length, length, MREMAP_TO_ADDRESS, address) <
		0) {
		(void)CALL2(__NR_munmap, address, length);
		return false;
	}
	given = up(to);
	return true;
}

void stock_drop(void)
{
	if (wanted != 0)
		(void)CALL2(__NR_munmap, WINDOW_STOCK, ROOM);
	wanted = made = given = 0;
}
