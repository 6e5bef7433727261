/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/reading.c - memory of processes, by number. */
#include "prog/cay-template/reading.h"

static char *append_number(char *to, uint32_t n)
{
	char digits[10];
	int i = 0;

	do
		digits[i++] = (char)('0' + n % 10);
	while ((n /= 10) != 0);
	while (i > 0)
		*to++ = digits[--i];
	return to;
}

/*
 * Through /proc/PID/mem, also what the process may not read itself. Not by process_vm_readv(): it pins what it reads, and the kernel gives whoever is pinned a copy of its own of
 * every page that it shares with relatives, as a twin does all of them: at twice the cost, and out of the sandbox's memory.
 */
static long open_memory(int32_t pid)
{
	char path[32] = "/proc/";

	memcpy(append_number(path + 6, (uint32_t)pid), "/mem", 5);
	return CALL3(__NR_open, path, BARE_CLOEXEC, 0);
}

/*
 * Rootless, the entries in /proc of a process with ids of another user of its sandbox are not ours to open, though we may trace it; nor are those of whoever has ended, as which
 * it shows here: ESRCH.
 */
static long take_pinned(int32_t pid, uint64_t from, uint64_t to, uint64_t n)
{
	while (n > 0) {
		struct bare_iovec ours = { to, n }, theirs = { from, n };
		long rc = CALL6(__NR_process_vm_readv, pid, &ours, 1, &theirs, 1, 0);

		if (rc <= 0)
			return rc < 0 ? rc : -14; /* EFAULT */
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
			return rc < 0 ? rc : -3; /* ESRCH: it has ended */
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
		r->memory = open_memory(c->pid);
		r->pid = c->pid;
	}
	if (r->memory == -13) /* EACCES */
		return take_pinned(c->pid, c->from + done, to, n);
	return r->memory < 0 ? r->memory : take(r->memory, c->from + done, to, n);
}

void reading_end(struct reading *r)
{
	if (r->memory >= 0)
		(void)CALL1(__NR_close, r->memory);
	*r = (struct reading)READING_INIT;
}
