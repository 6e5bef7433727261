/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/procmem.h"
#include "base/ablate.h"
#include "sys/feature.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

/* linux/fs.h of 6.11 */
struct procmap_query {
	uint64_t size, flags, address, start, end, vma_flags, page_size, offset, inode;
	uint32_t major, minor, name_size, build_id_size;
	uint64_t name, build_id;
};

#define PROCMAP_QUERY    _IOWR('f', 17, struct procmap_query)
#define PROCMAP_WRITABLE 2U /* only of a mapping that is */

static int open_of(int32_t tid, const char *name, int flags)
{
	char path[48];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", tid, name);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int procmem_open(int32_t tid, struct procmem *ret)
{
	ret->tid = tid;
	ret->mem = open_of(tid, "mem", O_RDWR);
	ret->maps = ret->mem < 0 ? ret->mem : open_of(tid, "maps", O_RDONLY);
	return ret->maps < 0 ? ret->maps : 0;
}

/* @ret_end: of the writable mapping at @address. Return: 0; -ENOENT: there is none, -ENOTTY: the kernel does not say, other -errno. */
static int find_writable(int maps, uint64_t address, uint64_t *ret_end)
{
	struct procmap_query query = {
		.size = sizeof(query), .flags = PROCMAP_WRITABLE, .address = address
	};

	if (feature_withheld(FEATURE_PROCMAP_QUERY))
		return -ENOTTY;
	if (ioctl(maps, PROCMAP_QUERY, &query) < 0)
		return -errno;
	*ret_end = query.end;
	return 0;
}

bool procmem_asks(void)
{
	cleanup_fd int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	uint64_t end;

	return maps >= 0 && find_writable(maps, (uint64_t)(uintptr_t)&end, &end) == 0;
}

/* Is all from @address to @end, as far as the kernel says? */
static bool is_writable(int maps, uint64_t address, uint64_t end)
{
	while (address < end && !ablated("procmem_writable")) {
		int rc = find_writable(maps, address, &address);

		if (rc < 0)
			return rc == -ENOTTY;
	}
	return true;
}

/* Faults of this thread, those that it takes in other address spaces among them. Since Linux 5.9. */
static uint64_t faults_taken(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) < 0
		       ? 0
		       : (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

/* @done: of pwrite(). Return: 0 or -errno. */
static int result_of(ssize_t done, size_t n)
{
	return done < 0 ? -errno : (size_t)done == n ? 0 : -EFAULT;
}

/*
 * Pages for which userfaultfd(2) answers do not come for /proc/PID/mem, which waits for nobody; for process_vm_readv() they do. It goes by the number: what is read may be of another process, and is
 * forgotten.
 */
static bool bring(int32_t tid, uint64_t address, size_t n)
{
	char room[256];
	const struct iovec local = { room, n }, remote = { (void *)(uintptr_t)address, n };

	return n <= sizeof(room) && process_vm_readv(tid, &local, 1, &remote, 1, 0) == (ssize_t)n;
}

int procmem_write(const struct procmem *p, uint64_t address, const void *bytes, size_t n,
	uint64_t *ret_faults)
{
	const uint64_t before = faults_taken();
	uint64_t failed;
	int rc;

	*ret_faults = 0;

	/* whether it is below the kernel's own memory, pwrite() sees */
	if (address > INT64_MAX - n || !is_writable(p->maps, address, address + n))
		return -EFAULT;
	rc = result_of(pwrite(p->mem, bytes, n, (off_t)address), n);
	/* one that fails makes tables too, and is no fault by the kernel's count */
	failed = rc < 0;
	if (rc == -EIO || rc == -EFAULT) {
		if (bring(p->tid, address, n))
			rc = result_of(pwrite(p->mem, bytes, n, (off_t)address), n);
		failed += rc < 0;
	}
	*ret_faults = faults_taken() - before + failed;
	return rc == -EIO ? -EFAULT : rc;
}

void procmem_close(struct procmem *p)
{
	fd_close(&p->mem);
	fd_close(&p->maps);
}
