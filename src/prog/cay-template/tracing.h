/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-template/tracing.h - while pages of an address space are missing, one task runs in it and no other: so what it does with its mappings is heard in the order in which it does it (claims.h).
 *
 * The loader traces the processes that it loads for, and with them all that they clone. A thread, or another process that shares their memory, is held before its first instruction until nothing is missing
 * any more, which is when the loader ends. Whoever waits for its child of vfork() does not run meanwhile: such a child goes on at once, as do those that have memory of their own. Signals are passed on.
 */
#ifndef CAY_TEMPLATE_TRACING_H
#define CAY_TEMPLATE_TRACING_H

#include <stdbool.h>
#include <stdint.h>

/** tracing_begin() - in the loader, once. @above: T', which has the same descriptors, takes and closes none from there on. Return: a descriptor that can be read when there is something for tracing_serve(), or -errno. */
long tracing_begin(int above);

/** tracing_add() - trace process @pid, which has one thread and has not run anything of its program yet. Return: 0 or -errno. */
long tracing_add(int32_t pid);

/** tracing_serve() - see to whoever has stopped. */
void tracing_serve(void);

#endif
