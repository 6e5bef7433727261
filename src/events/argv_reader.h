/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: events/argv_reader.h - arguments of processes, as /proc/PID/cmdline tells them, read by a process of its own.
 *
 * Whoever reads them waits for the address space, which the threads of that process can keep from others for as long as they like (the kernel's mmap_lock; they may have the least of the
 * processor, too), or takes it down when it ends just then. Only a signal that kills ends that wait. So a child waits, which is ended and made anew where it waits for too long.
 */
#ifndef CAY_EVENTS_ARGV_READER_H
#define CAY_EVENTS_ARGV_READER_H

#include <stdbool.h>
#include <sys/types.h>

#define ARGV_READER_MAX   1024 /* bytes that are read at most */
#define ARGV_READER_ENDED 8

/** struct argv_reader - the child. */
struct argv_reader {
	pid_t pid;
	int socket;                     /* -1: there is none */
	pid_t ended[ARGV_READER_ENDED]; /* killed, and not gone yet; 0: none */
};

#define ARGV_READER_NONE \
	{ \
		.socket = -1 \
	}

/** argv_reader_begin() - make the child now, with as little of its parent's memory as there is yet, and not when it is needed. */
void argv_reader_begin(struct argv_reader *r);

/**
 * argv_reader_read() - what /proc/@pid/cmdline begins with.
 * @wait_ms: how long it may take.
 * @text: %ARGV_READER_MAX bytes.
 * @ret_waited: the child slept meanwhile, or has not answered; not that it had no processor.
 *
 * Context: blocks for @wait_ms at most.
 * Return: bytes; -ETIMEDOUT: it waited for too long; -EAGAIN: as many as there may be wait still; other -errno.
 */
ssize_t argv_reader_read(struct argv_reader *r, pid_t pid, int wait_ms, char text[ARGV_READER_MAX],
	bool *ret_waited);

/** argv_reader_end() - end the child. */
void argv_reader_end(struct argv_reader *r);

#endif
