/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/image_check.h - is every place, length and number in a plan and in an image one of something that is there?
 *
 * Both come from a dumper, which looks into what the payload made, or from disk. Whoever reads one checks it before anything else: the template its plan when it gets it, the opener the
 * image in each fork, when it has no right outside the sandbox. Behind that nothing is checked again where it is used.
 * What numbers mean to the kernel (flags, ids, modes) is for the kernel to refuse. Usable without libc; the time is linear in the number of rows.
 */
#ifndef CAY_CHECKPOINT_IMAGE_CHECK_H
#define CAY_CHECKPOINT_IMAGE_CHECK_H

#include "checkpoint/image.h"

/** plan_check() - @plan: @size bytes, aligned as its type. Return: NULL, or what is wrong. */
const char *plan_check(const struct plan *plan, uint64_t size);

/** image_check() - @image: @size bytes, aligned as its type; @plan: its plan, which plan_check() has found right. Return: NULL, or what is wrong. */
const char *image_check(const struct image_header *image, uint64_t size, const struct plan *plan);

#endif
