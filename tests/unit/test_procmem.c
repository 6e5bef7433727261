/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/procmem.h"
#include "t.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define PAGE 4096

/* Pages that a child has, too: one to write, behind it one to read. */
static char *pages(void)
{
	char *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(at != MAP_FAILED && mprotect(at + PAGE, PAGE, PROT_READ) == 0);
	return at;
}

/* Ends with 0 when @n bytes at @at are of @byte. */
static pid_t child_that_looks(const char *at, size_t n, char byte)
{
	pid_t pid = fork();

	check(pid >= 0);
	if (pid > 0)
		return pid;
	raise(SIGSTOP);
	for (size_t i = 0; i < n; i++) {
		if (at[i] != byte)
			_exit(1);
	}
	_exit(0);
}

static int ended(pid_t pid)
{
	int status = -1;

	check(kill(pid, SIGCONT) == 0 && waitpid(pid, &status, 0) == pid);
	return status;
}

static struct procmem opened(pid_t pid)
{
	struct procmem p = PROCMEM_NONE;

	check(waitpid(pid, NULL, WUNTRACED) == pid);
	check_int(procmem_open(pid, &p), 0);
	return p;
}

static uint64_t address(const char *at)
{
	return (uint64_t)(uintptr_t)at;
}

static int wrote(const struct procmem *p, uint64_t at, const void *bytes, size_t n)
{
	uint64_t faults;

	return procmem_write(p, at, bytes, n, &faults);
}

TEST(what_may_be_written_is)
{
	char *at = pages(), bytes[100];
	pid_t pid = child_that_looks(at + PAGE - 100, 100, 7);
	struct procmem p = opened(pid);

	memset(bytes, 7, sizeof(bytes));
	check_int(wrote(&p, address(at + PAGE - 100), bytes, sizeof(bytes)), 0);
	check_int(ended(pid), 0);
	check_int(at[PAGE - 1], 0);
	procmem_close(&p);
}

TEST(what_may_not_be_written_is_refused)
{
	char *at = pages(), bytes[100] = { 1 };
	pid_t pid = child_that_looks(at, PAGE, 0);
	struct procmem p = opened(pid);
	const uint64_t wrong[] = { 0, UINT64_MAX, UINT64_MAX - 50, INT64_MAX, INT64_MAX - 50,
		(1ULL << 47) - 50, 1ULL << 47 };

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		check_int(wrote(&p, wrong[i], bytes, sizeof(bytes)), -EFAULT);
	check_int(ended(pid), 0);
	procmem_close(&p);
}

TEST(what_is_only_read_is_not_written)
{
	char *at = pages(), bytes[100] = { 1 };
	struct procmem p;
	pid_t pid;

	if (!procmem_asks())
		skip("before Linux 6.11 nothing says what may be done with a mapping");
	pid = child_that_looks(at, 2UL * PAGE, 0);
	p = opened(pid);
	check_int(wrote(&p, address(at + PAGE), bytes, sizeof(bytes)), -EFAULT);
	check_int(wrote(&p, address(at + PAGE - 99), bytes, sizeof(bytes)), -EFAULT);
	check_int(ended(pid), 0);
	procmem_close(&p);
}

TEST(pages_that_were_not_there_are_counted)
{
	const size_t room = 1UL << 32;
	int fd = memfd_create("far", MFD_CLOEXEC);
	char bytes[100] = { 7 }, *at;
	struct procmem p;
	uint64_t faults;
	pid_t pid;

	check_int(ftruncate(fd, 4L * PAGE), 0);
	at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(at != MAP_FAILED);
	pid = child_that_looks(at + PAGE, 1, 7);
	p = opened(pid);
	/* the first takes some of its own, where memory is watched (AddressSanitizer) */
	check_int(procmem_write(&p, address(at + 2L * PAGE), bytes, sizeof(bytes), &faults), 0);
	check(faults >= 1);
	check_int(procmem_write(&p, address(at + PAGE - 50), bytes, sizeof(bytes), &faults), 0);
	check_int(faults, 2);
	check_int(procmem_write(&p, address(at + PAGE), bytes, sizeof(bytes), &faults), 0);
	check_int(faults, 0);
	/* beyond the end of its file: not by the kernel's count */
	check(procmem_write(&p, address(at + room / 2), bytes, sizeof(bytes), &faults) < 0);
	check(faults >= 2);
	check_int(procmem_write(&p, 0, bytes, sizeof(bytes), &faults), -EFAULT);
	check(!procmem_asks() || faults == 0);
	check_int(ended(pid), 0);
	check_int(munmap(at, room), 0);
	procmem_close(&p);
	check_int(close(fd), 0);
}

TEST(who_has_ended_is_not_written)
{
	char *at = pages(), bytes[100] = { 1 };
	pid_t pid = child_that_looks(at, PAGE, 0);
	struct procmem p = opened(pid), none = PROCMEM_NONE;

	check_int(ended(pid), 0);
	check(wrote(&p, address(at), bytes, sizeof(bytes)) < 0);
	check_int(procmem_open(pid, &none), -ENOENT);
	procmem_close(&p);
	procmem_close(&none);
}
