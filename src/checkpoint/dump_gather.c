/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_gather.c - before the stop: memory that a process has to itself, without holes, goes into huge pages, so that the twin's page tables are copied by the two
 * megabytes (100 MiB: 0.13 ms of processor time instead of 3.2).
 *
 * Only a help: the template does it, on a hint of ours, and may not be allowed to; what is not gathered when the time is up is copied as it is. Nothing of it shows in the
 * process. What relatives share stays shared, because only pages that nobody else maps are touched.
 */
#include "base/clock.h"
#include "checkpoint/dump.h"
#include "checkpoint/pagemap.h"
#include "sys/fdpass.h"

#include <fcntl.h>

#define HUGE_PAGE   (2ULL << 20)
#define SMALL_PAGES (HUGE_PAGE / 4096)
#define RANGE_MAX   (8 * HUGE_PAGE) /* one hint; the time is looked at between them */
#define GATHER_NS   (200 * NS_PER_MS)

struct gathering {
	pid_t host;
	int pagemap;
	uint64_t deadline_ns;
	uint64_t start, end; /* found, not said yet */
	bool over;
};

static bool is_full(const struct gathering *g, uint64_t at)
{
	static uint64_t entries[SMALL_PAGES];
	const uint64_t want = ENTRY_PRESENT | ENTRY_EXCLUSIVE;

	if (pread(g->pagemap, entries, sizeof(entries), (off_t)(at / 4096 * sizeof(*entries))) !=
		(ssize_t)sizeof(entries))
		return false;
	for (size_t i = 0; i < SMALL_PAGES; i++) {
		if ((entries[i] & (want | ENTRY_FILE)) != want)
			return false;
	}
	return true;
}

/* Nothing is left to do for it: and each hint has all processors give back pages that they hold, and is waited for. */
static bool is_huge(const struct gathering *g, uint64_t at)
{
	struct page_region found = { 0 };
	struct pm_scan_arg arg = { .size = sizeof(arg),
		.start = at,
		.end = at + HUGE_PAGE,
		.vec = (uint64_t)(uintptr_t)&found,
		.vec_len = 1,
		.category_mask = PAGE_IS_HUGE | PAGE_IS_PRESENT,
		.return_mask = PAGE_IS_HUGE };

	return ioctl(g->pagemap, PAGEMAP_SCAN, &arg) == 1 && found.start == at &&
	       found.end == at + HUGE_PAGE;
}

static void say(struct gathering *g)
{
	const struct template_gather hint = { .kind = TEMPLATE_GATHER,
		.pid = g->host,
		.start = g->start,
		.length = g->end - g->start };
	struct template_message m = { 0 };
	size_t none;

	if (g->end > g->start)
		g->over =
			fdpass_send(DUMP_TEMPLATE_FD, &hint, sizeof(hint), NULL, 0) < 0 ||
			fdpass_recv(DUMP_TEMPLATE_FD, &m, sizeof(m), NULL, 0, &none) != sizeof(m) ||
			m.status == -EPERM || clock_now_ns() > g->deadline_ns;
	g->start = g->end = 0;
}

static void gather_region(struct gathering *g, uint64_t start, uint64_t end)
{
	for (uint64_t at = (start + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
		!g->over && at + HUGE_PAGE <= end; at += HUGE_PAGE) {
		bool full = !is_huge(g, at) && is_full(g, at);

		/* what a program has set aside may be terabytes of which nothing is there */
		g->over = clock_now_ns() > g->deadline_ns;
		if (!full || g->end != at || g->end - g->start >= RANGE_MAX)
			say(g);
		if (full && g->start == 0)
			g->start = at;
		if (full)
			g->end = at + HUGE_PAGE;
	}
	say(g);
}

void dump_gather(pid_t host, const struct mappings *maps, uint64_t *deadline_ns)
{
	struct gathering g = { .host = host, .pagemap = -1 };
	char path[32];

	if (*deadline_ns == 0)
		*deadline_ns = clock_now_ns() + GATHER_NS;
	g.deadline_ns = *deadline_ns;
	(void)snprintf(path, sizeof(path), "/proc/%d/pagemap", host);
	g.pagemap = open(path, O_RDONLY | O_CLOEXEC);
	g.over = g.pagemap < 0;
	for (size_t i = 0; !g.over && i < maps->n; i++) {
		const struct proc_map *m = &maps->list[i];

		if (m->inode == 0 && m->readable && !m->shared && m->end - m->start >= HUGE_PAGE)
			gather_region(&g, m->start, m->end);
	}
	fd_close(&g.pagemap);
}
