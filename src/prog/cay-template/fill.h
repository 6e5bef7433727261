/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay-template/fill.h - what comes over the template's socket: memory, once, and orders to fork. */
#ifndef CAY_TEMPLATE_FILL_H
#define CAY_TEMPLATE_FILL_H

/** fill_or_fork() - serve one connection to its end; the descriptor stays the caller's. */
void fill_or_fork(int peer);

#endif
