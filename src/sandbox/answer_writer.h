/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/answer_writer.h - procmem_write() by a process of its own.
 *
 * Whoever writes into an address space waits for its lock, which the threads of that process can keep from others for as long as they like (the kernel's mmap_lock; they may have the least of
 * the processor, too), and for pages that come from elsewhere. Only a signal that kills ends that wait. So a child waits, which is ended and made anew where it waits for too long.
 */
#ifndef CAY_SANDBOX_ANSWER_WRITER_H
#define CAY_SANDBOX_ANSWER_WRITER_H

#include "sys/procmem.h"

#include <stdbool.h>

/** struct answer_writer - the child; made when it is first needed. */
struct answer_writer {
	int socket;  /* -1: there is none */
	int process; /* pidfd */
};

#define ANSWER_WRITER_NONE \
	{ \
		.socket = -1, .process = -1 \
	}

/**
 * answer_writer_write() - as procmem_write().
 * @ret_faults: and what was waited for it, a second as RATION_WAIT_FAULTS.
 * Context: blocks for two seconds at most.
 * Return: what that says; -ETIMEDOUT: it waited for too long, and nothing is written any more; -EINPROGRESS: it may be written still, since the child does not end before the page has come; other -errno:
 * there is no child, and nothing is written.
 */
int answer_writer_write(struct answer_writer *w, const struct procmem *p, uint64_t address,
	const void *bytes, size_t n, uint64_t *ret_faults) attr_must_use;

/** answer_writer_end() - end the child, if there is one. Context: blocks for a second at most. Return: it has ended. */
bool answer_writer_end(struct answer_writer *w);

#endif
