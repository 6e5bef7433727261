/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/thinning.h - which of many snapshots of one trajectory are kept: all of the newest, of older ones fewer the older they are. Pure. */
#ifndef CAY_STORE_THINNING_H
#define CAY_STORE_THINNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define THINNING_ALL 16U /* as many of the newest steps keep theirs */

/** thinning_stride() - one snapshot is kept in each stretch of so many steps; @age: steps since then. 1 below %THINNING_ALL, then an eighth of the age's power of two. */
uint64_t thinning_stride(uint64_t age);

/**
 * thinning_choose() - which to keep.
 * @steps: ascending numbers of the steps that have a snapshot, @n of them. @newest: number of the newest step of all, at least the last of @steps.
 * @keep: @n answers.
 *
 * The first of each stretch (%thinning_stride(), at multiples of it) stays. A stretch grows only by joining its neighbour, so what is dropped today would not be wanted later. For N steps
 * at most 16 + 9 log2(N) stay.
 */
void thinning_choose(const uint64_t *steps, size_t n, uint64_t newest, bool *keep);

#endif
