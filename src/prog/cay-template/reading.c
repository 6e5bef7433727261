/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/reading.c - memory of processes, by number. */
#include "prog/cay-template/reading.h"

#include <linux/fcntl.h>

#define PATH_ROOM 32

/* Return: its length. */
static long name_entry(char path[PATH_ROOM], int32_t pid, const char *name)
{
	char *end;

	memcpy(path, "/proc/", 6);
	end = bare_digits(path + 6, (uint32_t)pid, 10);
	*end++ = '/';
	while (*name != '\0')
		*end++ = *name++;
	*end = '\0';
	return end - path;
}

long reading_open(int32_t pid, const char *name)
{
	char path[PATH_ROOM];

	(void)name_entry(path, pid, name);
	return CALL3(__NR_open, path, BARE_CLOEXEC, 0);
}

/*
 * Through /proc/PID/mem, also what the process may not read itself. Not by process_vm_readv(): it pins what it reads, and the kernel gives whoever is pinned a copy of its own of
 * every page that it shares with relatives, as a twin does all of them: at twice the cost, and out of the sandbox's memory.
 */
static long open_memory(int32_t pid)
{
	return reading_open(pid, "mem");
}

/* --- what dumpers have opened --- */

#define HANDED_MAX 1024U

static struct {
	int32_t pid, fd;
} handed[HANDED_MAX];
static uint32_t n_handed;

/* The number is one of our own /proc. Whoever has it later, the memory stays that of whom it belonged to when it was opened; when that has ended nothing can be read. */
static bool is_memory_of(int32_t pid, int fd)
{
	static const char links[] = "/proc/self/fd/";
	char link[PATH_ROOM], expected[PATH_ROOM], name[PATH_ROOM];
	uint64_t here[18], there[18]; /* struct stat: the device comes first */
	long n = name_entry(expected, pid, "mem");

	memcpy(link, links, sizeof(links));
	*bare_digits(link + sizeof(links) - 1, (uint32_t)fd, 10) = '\0';
	return CALL3(__NR_readlink, link, name, sizeof(name)) == n &&
	       memcmp(name, expected, (size_t)n) == 0 && CALL2(__NR_fstat, fd, there) == 0 &&
	       CALL2(__NR_stat, "/proc/self", here) == 0 && here[0] == there[0];
}

long reading_hand(int32_t pid, int fd)
{
	long copy;

	if (pid <= 0 || !is_memory_of(pid, fd))
		return -EPERM;
	if (n_handed == HANDED_MAX)
		return -ENOSPC;
	copy = CALL3(__NR_fcntl, fd, F_DUPFD_CLOEXEC, 0);
	if (copy < 0)
		return copy;
	handed[n_handed].pid = pid;
	handed[n_handed++].fd = (int32_t)copy;
	return 0;
}

void reading_forget(void)
{
	while (n_handed > 0)
		(void)CALL1(__NR_close, handed[--n_handed].fd);
}

/* Return: descriptor, -1 when there is none. */
static long find_handed(int32_t pid)
{
	for (uint32_t i = 0; i < n_handed; i++) {
		if (handed[i].pid == pid)
			return handed[i].fd;
	}
	return -1;
}

/* --- reading --- */

/*
 * Whoever has ended shows here as a process that is not ours to open, and as one that is not there: ESRCH. Who is there was not handed to us: of these there are too many.
 */
static long take_pinned(int32_t pid, uint64_t from, uint64_t to, uint64_t n)
{
	while (n > 0) {
		struct bare_iovec ours = { to, n }, theirs = { from, n };
		long rc = CALL6(__NR_process_vm_readv, pid, &ours, 1, &theirs, 1, 0);

		if (rc <= 0)
			return rc < 0 ? rc : -EFAULT;
		to += (uint64_t)rc;
		from += (uint64_t)rc;
		n -= (uint64_t)rc;
	}
	return 0;
}

static long take(long memory, uint64_t from, uint64_t to, uint64_t n)
{
	while (n > 0) {
		long rc = CALL4(__NR_pread64, memory, to, n, from);

		if (rc <= 0)
			return rc < 0 ? rc : -ESRCH; /* it has ended */
		to += (uint64_t)rc;
		from += (uint64_t)rc;
		n -= (uint64_t)rc;
	}
	return 0;
}

long reading_take(
	struct reading *r, const struct plan_copy *c, uint64_t done, uint64_t to, uint64_t n)
{
	if (c->pid != r->pid) {
		reading_end(r);
		r->memory = find_handed(c->pid);
		r->handed = r->memory >= 0;
		if (!r->handed)
			r->memory = open_memory(c->pid);
		r->pid = c->pid;
	}
	if (r->memory == -EACCES)
		return take_pinned(c->pid, c->from + done, to, n);
	return r->memory < 0 ? r->memory : take(r->memory, c->from + done, to, n);
}

void reading_end(struct reading *r)
{
	if (r->memory >= 0 && !r->handed)
		(void)CALL1(__NR_close, r->memory);
	*r = (struct reading)READING_INIT;
}
