/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: tests/checkpoint/objects/asleep.h - threads that wait in system calls, as the kernel sees them. */
#ifndef ASLEEP_H
#define ASLEEP_H

#include "object.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Wait until @thread, 0 as long as it has not said its number, is in a call that waits. */
static inline void asleep_await(const volatile pid_t *thread)
{
	char path[64], text[256];
	pid_t tid;

	while ((tid = *thread) == 0)
		(void)sched_yield();
	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	for (;;) {
		int fd = open(path, O_RDONLY);
		ssize_t n = read(fd, text, sizeof(text) - 1);

		MUST(n > 0 && close(fd) == 0);
		text[n] = '\0';
		if (strstr(text, ") S ") != NULL)
			return;
		(void)sched_yield();
	}
}

#endif
