/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-template/stock.h - memory that is there before anybody wants it (docs/design/0006, *A template ahead of time*).
 *
 * The kernel clears new pages, and a virtual machine's host may have to bring them first: that takes longer than the copy that goes into them, and somebody
 * waits for it. So a template that has nothing to do makes huge pages of the amount it was told at its start, two mebibytes at a time. A mapping of the stash that is
 * to be full is a piece of it, moved to its address by one mremap(), which moves page tables and no bytes.
 */
#ifndef CAY_TEMPLATE_STOCK_H
#define CAY_TEMPLATE_STOCK_H

#include "prog/cay-template/bare.h"

/** stock_want() - how many mebibytes there are to be; 0 = none. Once, before anything else. */
void stock_want(uint64_t mebibytes);

/** stock_grow() - two mebibytes more, when there are not enough yet. Return: whether more are to come. */
bool stock_grow(void);

/**
 * stock_give() - map memory of the stock at @address, of which nothing is mapped yet: zeros, to be read and written, huge pages as far as they fit.
 * @length: bytes, whole pages.
 * Return: whether it is there; otherwise nothing is: of the stock it would have got no two mebibytes, or something is mapped there.
 */
bool stock_give(uint64_t address, uint64_t length);

/**
 * stock_give_piece() - the same of less than huge pages, which it makes where there are none left: pages that lie in one huge page are there at once instead of one by one, and from Linux 6.9 on
 * fork(2) and exit take many of them in one step, though each has an entry of its own.
 */
bool stock_give_piece(uint64_t address, uint64_t length);

/** stock_drop() - what is left goes back to the machine, and none is made any more. */
void stock_drop(void);

#endif
