/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/lending.c - see the header. It is asked for while the processes run, when a number may come to be anybody's: so all goes by way of one descriptor of /proc/PID,
 * which is of one process for ever, and whose user namespace says whether it is of the sandbox.
 */
#include "prog/cay-template/lending.h"

#include <linux/fcntl.h>

#define NAME_ROOM    64
#define GET_PARENT   0xb702     /* NS_GET_PARENT */
#define MEMORY_FILES 0x01021994 /* TMPFS_MAGIC */

static long open_process(int32_t pid)
{
	char path[NAME_ROOM] = "/proc/";

	*bare_digits(path + 6, (uint32_t)pid, 10) = '\0';
	return CALL3(__NR_open, path, BARE_CLOEXEC | O_DIRECTORY, 0);
}

/* Device and inode of what @fd is open on. */
static bool identify(long fd, uint64_t ret[18])
{
	return fd >= 0 && CALL2(__NR_fstat, fd, ret) == 0;
}

/* Each sandbox has a user namespace of its own: dumpers are executed in it, and the one of its processes is its child. */
static bool is_of_sandbox(long process, int32_t dumper)
{
	long other = open_process(dumper),
	     its = CALL4(__NR_openat, process, "ns/user", BARE_CLOEXEC, 0),
	     above = its < 0 ? its : CALL3(__NR_ioctl, its, GET_PARENT, 0),
	     own = other < 0 ? other : CALL4(__NR_openat, other, "ns/user", BARE_CLOEXEC, 0);
	uint64_t a[18], b[18]; /* struct stat */
	bool is = identify(above, a) && identify(own, b) && a[0] == b[0] && a[1] == b[1];

	(void)CALL1(__NR_close, other);
	(void)CALL1(__NR_close, its);
	(void)CALL1(__NR_close, above);
	(void)CALL1(__NR_close, own);
	return is;
}

/* Nobody could have opened it by a name. */
static bool is_nameless_memory(long fd)
{
	uint64_t st[18],
		fs[15]; /* struct stat: behind device and inode the number of names; struct statfs: the kind comes first */

	return identify(fd, st) && st[2] == 0 && CALL2(__NR_fstatfs, fd, fs) == 0 &&
	       fs[0] == MEMORY_FILES;
}

static long open_mapping(long process, uint64_t start, uint64_t end)
{
	char path[NAME_ROOM] = "map_files/", *at = bare_digits(path + 10, start, 16);

	*at++ = '-';
	*bare_digits(at, end, 16) = '\0';
	return CALL4(__NR_openat, process, path, BARE_CLOEXEC, 0);
}

long lending_open(const struct template_lend *l, int32_t dumper)
{
	long process = open_process(l->pid), fd = -EPERM;

	if (process < 0)
		return process;
	if (is_of_sandbox(process, dumper))
		fd = open_mapping(process, l->start, l->end);
	if (fd >= 0 && !is_nameless_memory(fd)) {
		(void)CALL1(__NR_close, fd);
		fd = -EPERM;
	}
	(void)CALL1(__NR_close, process);
	return fd;
}
