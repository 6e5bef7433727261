/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sys/procmem.h - memory of another process, written as that process itself could write it: /proc/PID/mem alone would write what is only to be read, too.
 *
 * What was opened stays that one address space, whoever has the number of its process later: when it has ended, or executed another program, nothing is written.
 */
#ifndef CAY_SYS_PROCMEM_H
#define CAY_SYS_PROCMEM_H

#include "base/attr.h"

#include <stddef.h>
#include <stdint.h>

/** struct procmem - an address space. */
struct procmem {
	int32_t tid;
	int mem, maps; /* -1 = not open */
};

#define PROCMEM_NONE \
	{ \
		.mem = -1, .maps = -1 \
	}

/**
 * procmem_open() - the address space of thread @tid, by the caller's /proc.
 * @ret: empty; procmem_close() in any case.
 * Return: 0; -EACCES (it may not be traced), -ENOENT (it has ended), other -errno.
 */
int procmem_open(int32_t tid, struct procmem *ret) attr_must_use;

/**
 * procmem_write() - put @n @bytes, 256 at most, at @address.
 * Blocks for as long as a page of it takes to come: from disk, or from what answers for it (userfaultfd(2), a network's file system). A signal that kills ends that.
 * A mapping that is changed meanwhile may be written although it is not writable any more; so may be, on kernels before 6.11 (procmem_asks()), private
 * mappings that never were.
 * @ret_faults: how often a page was not there, in any case. What the kernel makes for it (tables of pages, page cache) is charged to the caller's group, not to the other's.
 * Return: 0; -EFAULT when not all of it may be written: none or some has been, -errno.
 */
int procmem_write(const struct procmem *p, uint64_t address, const void *bytes, size_t n,
	uint64_t *ret_faults) attr_must_use;

/** procmem_asks() - does the kernel say what may be done with a mapping? */
bool procmem_asks(void);

/** procmem_close() - close what is open. */
void procmem_close(struct procmem *p);

#endif
