/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/memory_coder.h - the process that looks at a payload's memory on its way to disk and back (codec/pagechunk.h).
 *
 * It has no privilege, no descriptors but two pipes, and may only read, write and end (seccomp's strict mode).
 *
 *   pack:   template_stream, image, plan, pages -> template_stream, then chunks of each part in turn (head, stored bytes)
 *   unpack: chunks -> their bytes
 */
#ifndef CAY_CHECKPOINT_MEMORY_CODER_H
#define CAY_CHECKPOINT_MEMORY_CODER_H

#include "base/attr.h"
#include <sys/types.h>

/** struct memory_coder - both descriptors are the caller's, blocking. */
struct memory_coder {
	pid_t pid; /* 0 = none */
	int in;    /* to be written */
	int out; /* to be read; it ends with what it was given, or early when that was malformed */
};

#define MEMORY_CODER_INIT \
	{ \
		.in = -1, .out = -1 \
	}

/** memory_coder_start() - Return: 0 or -errno. */
int memory_coder_start(struct memory_coder *c, bool pack) attr_must_use;

/** memory_coder_end() - close what is open and wait for its end. Idempotent. */
void memory_coder_end(struct memory_coder *c);

#endif
