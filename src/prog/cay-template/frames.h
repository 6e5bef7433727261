/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay-template/frames.h - which pages of two processes that the keeper named are one: the numbers of page frames are shown to the host's root alone. */
#ifndef CAY_TEMPLATE_FRAMES_H
#define CAY_TEMPLATE_FRAMES_H

#include "prog/cay-template/fork.h"

/**
 * frames_compare() - a bit in @same for each page of @o that both processes have in one frame of memory: they have the same bytes there. Others may be equal too.
 * @o: of processes that stand still; at most TEMPLATE_SAME_PAGES.
 * Return: 0; -EPERM where the kernel shows nobody the numbers (rootless); other -errno.
 */
long frames_compare(const struct template_same *o, uint64_t *same);

#endif
