/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/stock.c - see the header. */
#include "prog/cay-template/stock.h"
#include "checkpoint/image.h"

#define HUGE_PAGE         (2UL << 20)
#define ROOM              (64UL << 30) /* addresses, of which memory is only what has been made */
#define MADV_DONTNEED     4
#define MADV_POPULATE     23 /* for writing */
#define MADV_HUGEPAGE     14
#define MADV_COLLAPSE     25
#define MREMAP_TO_ADDRESS 3 /* MAYMOVE | FIXED */

static bool reserved, dropped;
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

static bool reserve(void)
{
	if (!reserved && !dropped)
		reserved =
			bare_map(WINDOW_STOCK, ROOM, 3, 2 | 0x4000 /* PRIVATE | NORESERVE */) == 0;
	return reserved;
}

void stock_want(uint64_t mebibytes)
{
	wanted = up(mebibytes << 20);
	if (wanted > ROOM || !reserve())
		wanted = 0;
}

/* Gathered, not asked for (MADV_HUGEPAGE): that would stay with the mapping, and be a program's own wish in forks. */
static bool make_huge_page(void)
{
	const uint64_t at = WINDOW_STOCK + made;

	if (CALL3(__NR_madvise, at, BARE_PAGE, MADV_POPULATE) < 0 ||
		CALL3(__NR_madvise, at, HUGE_PAGE, MADV_COLLAPSE) < 0)
		return false;
	made += HUGE_PAGE;
	return true;
}

bool stock_grow(void)
{
	if (made < wanted && !make_huge_page())
		wanted = made;
	return made < wanted;
}

/* Of a huge page that is only in part a mapping's, the rest would be nobody's and stay: it is made anew there, of small ones. */
static void forget_edge(uint64_t at)
{
	if (at != down(at))
		(void)CALL3(__NR_madvise, WINDOW_STOCK + down(at), HUGE_PAGE, MADV_DONTNEED);
}

/* What is at @from of it becomes what is at @address, where nothing may be. */
static bool move(uint64_t from, uint64_t address, uint64_t length)
{
	/* mremap() would replace what is there */
	if (bare_map(address, length, 0, 2 | 0x4000 /* PRIVATE | NORESERVE */) < 0)
		return false;
	if (CALL5(__NR_mremap, WINDOW_STOCK + from, length, length, MREMAP_TO_ADDRESS, address) ==
		(long)address)
		return true;
	(void)CALL2(__NR_munmap, address, length);
	return false;
}

bool stock_give(uint64_t address, uint64_t length)
{
	/* page tables are moved whole where both ends stand alike within two megabytes */
	const uint64_t from = up(given) + address % HUGE_PAGE, to = from + length;
	const bool is_there = to <= made;

	if (up(from) + HUGE_PAGE > made || up(from) + HUGE_PAGE > to || to > ROOM)
		return false;
	forget_edge(from);
	if (to < made)
		forget_edge(to);
	given = up(to);
	if (!move(from, address, length))
		return false;
	/* the rest is made when it is filled */
	if (!is_there)
		(void)CALL3(__NR_madvise, address, length, MADV_HUGEPAGE);
	return true;
}

bool stock_give_piece(uint64_t address, uint64_t length)
{
	const uint64_t from = given, to = from + length;

	if (to > ROOM || !reserve())
		return false;
	while (made < to) {
		if (!make_huge_page())
			return false;
	}
	given = to;
	return move(from, address, length);
}

void stock_drop(void)
{
	if (reserved)
		(void)CALL2(__NR_munmap, WINDOW_STOCK, ROOM);
	reserved = false;
	dropped = true;
	wanted = made = given = 0;
}
