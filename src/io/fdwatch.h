/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: io/fdwatch.h - fibers that wait for a descriptor themselves, where bytes must stay in the kernel (peeking, splicing, datagrams). */
#ifndef CAY_IO_FDWATCH_H
#define CAY_IO_FDWATCH_H

#include "io/fiber.h"

/** struct fdwatch - one descriptor, which stays the owner's. At most one of these for each open file. */
struct fdwatch {
	uv_poll_t poll;
	struct waiters readable, writable;
	void (*closed)(struct fdwatch *w);
};

/** fdwatch_open() - @fd becomes non-blocking. Return: 0 or -errno. */
int fdwatch_open(struct fdwatch *w, uv_loop_t *loop, int fd) attr_must_use;

/** fdwatch_wait() - wait until the descriptor is readable (or, with @write, writable) or broken. Return: 0, -ETIMEDOUT. Context: fiber; waits. */
int fdwatch_wait(struct fdwatch *w, bool write, uint64_t deadline_ns) attr_must_use;

/** fdwatch_close() - stop; wakes who waits, then calls @closed on the loop: only then may the memory go. The descriptor may be closed at once. */
void fdwatch_close(struct fdwatch *w, void (*closed)(struct fdwatch *w));

#endif
