/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: checkpoint/pagemap.h - which pages a process has, as the kernel lists them: PAGEMAP_SCAN of newer kernels (linux/fs.h). */
#ifndef CAY_CHECKPOINT_PAGEMAP_H
#define CAY_CHECKPOINT_PAGEMAP_H

#include <stdint.h>
#include <sys/ioctl.h>

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

#endif
