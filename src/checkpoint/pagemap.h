/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: checkpoint/pagemap.h - which pages a process has, as the kernel lists them: PAGEMAP_SCAN of newer kernels (linux/fs.h), /proc/PID/pagemap of all. */
#ifndef CAY_CHECKPOINT_PAGEMAP_H
#define CAY_CHECKPOINT_PAGEMAP_H

#include "base/attr.h"

#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/types.h>

/** struct page_region - pages that follow each other and are of the same kind. */
struct page_region {
	uint64_t start, end, categories;
};

/** struct pm_scan_arg - what is asked for. */
struct pm_scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted,
		category_mask, category_anyof_mask, return_mask;
};

#define PAGEMAP_SCAN    _IOWR('f', 16, struct pm_scan_arg)
#define PAGE_IS_FILE    (1U << 2)
#define PAGE_IS_PRESENT (1U << 3)
#define PAGE_IS_SWAPPED (1U << 4)
#define PAGE_IS_ZERO    (1U << 5)
#define PAGE_IS_HUGE    (1U << 6) /* one entry of the tables for all of it */
#define PAGE_IS_GUARD   (1U << 8) /* from Linux 6.15 on */

/* an entry of /proc/PID/pagemap */
#define ENTRY_EXCLUSIVE (1ULL << 56)
#define ENTRY_FILE      (1ULL << 61)
#define ENTRY_SWAPPED   (1ULL << 62)
#define ENTRY_PRESENT   (1ULL << 63)

/**
 * pagemap_read() - the pages that belong to a process alone, one by one: for kernels before 6.7, that have no PAGEMAP_SCAN (nor guards).
 * @proc: its /proc/PID.
 * @ret:  runs by rising address, allocated, to be freed in any case. Pages of zeros that were only ever read are among them where there are others: nothing tells them apart.
 *
 * Only mappings that have such pages are looked at; each page of their address space costs an entry, whether it is there or not (a terabyte: 2 GiB of them).
 *
 * Return: how many; -ENOMEM, -errno. A process that has ended has none.
 */
ssize_t pagemap_read(int proc, struct page_region **ret) attr_must_use;

#endif
