/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages are a process's own, read one by one. Those at the ends of what is mapped are left out: they may follow others.
 * Looked at is a child, which gives back what is huge before: the shadow of a sanitizer is terabytes, and reading of them took a quarter of a minute. */
#include "checkpoint/pagemap.h"
#include "t.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE     4096UL
#define PAGES    10000UL /* more than are read at once */
#define HUGE     (1UL << 30)
#define HUGE_MAX 16

struct fixture {
	char *at;
	struct page_region *found, *own; /* all, and the first in what is mapped */
	ssize_t n;                       /* so many are there */
};

struct span {
	uintptr_t start, end;
};

/* Mappings of ours of @HUGE bytes and more; returns how many. */
static size_t huge_mappings(struct span huge[HUGE_MAX])
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	size_t n = 0;

	check(maps != NULL);
	while (maps != NULL && n < HUGE_MAX && fgets(line, sizeof(line), maps) != NULL) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &huge[n].start, &huge[n].end) == 2 &&
			huge[n].end - huge[n].start >= HUGE)
			n++;
	}
	if (maps != NULL)
		(void)fclose(maps);
	return n;
}

/* Without its shadow a sanitized program may do nothing but call the kernel. */
__attribute__((no_sanitize("address", "undefined"))) static void give_back_and_stop(
	const struct span *huge, size_t n)
{
	for (size_t i = 0; i < n; i++)
		(void)syscall(SYS_munmap, huge[i].start, huge[i].end - huge[i].start);
	(void)syscall(SYS_kill, syscall(SYS_getpid), SIGSTOP);
	for (;;)
		(void)syscall(SYS_pause);
}

/* A child that stands still with the memory that we have; end it with end_child(). */
static pid_t standing_child(void)
{
	struct span huge[HUGE_MAX];
	size_t n = huge_mappings(huge);
	pid_t child = fork();
	int status = 0;

	if (child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		give_back_and_stop(huge, n);
	}
	check(child > 0 && waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	return child;
}

static void end_child(pid_t child)
{
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
}

/* What is mapped at @f->at. */
static void look(struct fixture *f)
{
	uint64_t start = (uint64_t)(uintptr_t)f->at;
	pid_t child = standing_child();
	char path[32];
	ssize_t all;
	int proc;

	(void)snprintf(path, sizeof(path), "/proc/%d", child);
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	all = pagemap_read(proc, &f->found);
	check(all > 0);
	for (ssize_t i = 0; i < all; i++) {
		if (f->found[i].end <= start || f->found[i].start >= start + PAGES * PAGE)
			continue;
		if (f->n++ == 0)
			f->own = &f->found[i];
	}
	(void)close(proc);
	end_child(child);
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
