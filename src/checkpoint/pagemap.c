/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/pagemap.h"
#include "base/buf.h"
#include "codec/proctext.h"
#include "sys/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define PAGE      4096U
#define ENTRIES   4096U /* that are read at once */
#define ROOM      4096U /* runs that are made room for at once */
#define SMAPS_MAX (256U << 20)

struct listing {
	struct page_region *list;
	size_t n;
};

static bool is_own(uint64_t entry)
{
	return (entry & (ENTRY_PRESENT | ENTRY_SWAPPED)) != 0 && (entry & ENTRY_FILE) == 0;
}

static int add_page(struct listing *l, uint64_t at)
{
	if (l->n > 0 && l->list[l->n - 1].end == at) {
		l->list[l->n - 1].end += PAGE;
		return 0;
	}
	if (l->n % ROOM == 0) {
		struct page_region *more = realloc(l->list, (l->n + ROOM) * sizeof(*more));

		if (more == NULL)
			return -ENOMEM;
		l->list = more;
	}
	l->list[l->n++] = (struct page_region){ .start = at, .end = at + PAGE };
	return 0;
}

static int add_mapping(struct listing *l, int fd, uint64_t at, uint64_t end)
{
	static uint64_t entries[ENTRIES];
	int rc = 0;

	while (rc == 0 && at < end) {
		uint64_t pages = (end - at) / PAGE, want = pages < ENTRIES ? pages : ENTRIES;
		ssize_t n = pread(fd, entries, want * sizeof(*entries),
			(off_t)(at / PAGE * sizeof(*entries)));

		if (n <= 0)
			return n < 0 ? -errno : 0;
		for (size_t i = 0; rc == 0 && i < (size_t)n / sizeof(*entries); i++, at += PAGE)
			rc = is_own(entries[i]) ? add_page(l, at) : 0;
	}
	return rc;
}

ssize_t pagemap_read(int proc, struct page_region **ret)
{
	cleanup_fd int fd = openat(proc, "pagemap", O_RDONLY | O_CLOEXEC);
	cleanup_buf struct buf text = BUF_INIT(SMAPS_MAX);
	struct listing l = { 0 };
	struct proc_smap m;
	const char *at, *end;
	int rc = fd < 0 ? -errno : file_read_at(proc, "smaps", &text), more = 0;

	at = buf_cstr(&text);
	end = at + text.n;
	while (rc == 0 && (more = proc_smap_next(&at, end, &m)) > 0)
		rc = m.own ? add_mapping(&l, fd, m.start, m.end) : 0;
	*ret = l.list;
	return rc < 0 ? rc : more < 0 ? more : (ssize_t)l.n;
}
