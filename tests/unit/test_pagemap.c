/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages are a process's own, read one by one. Those at the ends of what is mapped are left out: they may follow others. */
#include "checkpoint/pagemap.h"
#include "t.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE  4096UL
#define PAGES 10000UL /* more than are read at once */

struct fixture {
	char *at;
	struct page_region *found, *own; /* all, and the first in what is mapped */
	ssize_t n;                       /* so many are there */
};

/* Of ourselves: what is mapped at @f->at. */
static void look(struct fixture *f)
{
	uint64_t start = (uint64_t)(uintptr_t)f->at;
	int proc = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	ssize_t all = pagemap_read(proc, &f->found);

	check(all > 0);
	for (ssize_t i = 0; i < all; i++) {
		if (f->found[i].end <= start || f->found[i].start >= start + PAGES * PAGE)
			continue;
		if (f->n++ == 0)
			f->own = &f->found[i];
	}
	(void)close(proc);
}

static void check_run(const struct fixture *f, ssize_t i, uint64_t first, uint64_t end)
{
	if (i >= f->n)
		return;
	check_int((f->own[i].start - (uint64_t)(uintptr_t)f->at) / PAGE, first);
	check_int((f->own[i].end - (uint64_t)(uintptr_t)f->at) / PAGE, end);
}

static void fixture_end(struct fixture *f)
{
	free(f->found);
	(void)munmap(f->at, PAGES * PAGE);
}

static struct fixture mapped(int flags, int fd)
{
	struct fixture f = { .at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0) };

	(void)madvise(f.at, PAGES * PAGE, MADV_NOHUGEPAGE);
	return f;
}

TEST(pages_that_were_written)
{
	struct fixture f = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);

	memset(f.at + 2 * PAGE, 'x', 2 * PAGE);
	memset(f.at + 4095 * PAGE, 'x', 2 * PAGE);
	f.at[(PAGES - 2) * PAGE] = 'x';
	look(&f);
	check_int(f.n, 3);
	check_run(&f, 0, 2, 4);
	check_run(&f, 1, 4095, 4097);
	check_run(&f, 2, PAGES - 2, PAGES - 1);
	fixture_end(&f);
}

TEST(more_runs_than_there_is_room_for_at_first)
{
	struct fixture f = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);

	for (size_t i = 1; i < PAGES - 1; i += 2)
		f.at[i * PAGE] = 'x';
	look(&f);
	check_int(f.n, PAGES / 2 - 1);
	for (size_t i = 1; i < PAGES - 1; i += 2)
		check_run(&f, (ssize_t)i / 2, i, i + 1);
	fixture_end(&f);
}

/* The others are the file's, though they are there. */
TEST(of_a_file_what_was_changed)
{
	int fd = memfd_create("pages", MFD_CLOEXEC);
	struct fixture f;

	check_int(ftruncate(fd, PAGES * PAGE), 0);
	check_int(pwrite(fd, "x", 1, 100 * PAGE), 1);
	f = mapped(MAP_PRIVATE, fd);
	check_int(f.at[100 * PAGE], 'x');
	f.at[7 * PAGE] = 'y';
	look(&f);
	check_int(f.n, 1);
	check_run(&f, 0, 7, 8);
	fixture_end(&f);
	(void)close(fd);
}

TEST(shared_memory_is_nobodys_own)
{
	struct fixture f = mapped(MAP_SHARED | MAP_ANONYMOUS, -1);

	memset(f.at, 'x', 5 * PAGE);
	look(&f);
	check_int(f.n, 0);
	fixture_end(&f);
}
