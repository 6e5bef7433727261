/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: tests/checkpoint/objects/object.h - one program a kernel object: it builds a state, says "ready", is forked while it waits, and checks itself, in the
 * source and in the fork.
 */
#ifndef OBJECT_H
#define OBJECT_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/** object_fail() - say where and what, and end with failure. */
#define object_fail(...) \
	do { \
		printf("line %d: ", __LINE__); \
		printf(__VA_ARGS__); \
		printf(" (%s)\n", strerror(errno)); \
		exit(1); \
	} while (0)

/** MUST() - @condition holds before and after. */
#define MUST(condition) \
	do { \
		if (!(condition)) \
			object_fail("%s", #condition); \
	} while (0)

/** object_ready() - the state is built; returns when the fork has been made and this side is told to check. */
static inline void object_ready(void)
{
	char line[16];

	printf("ready\n");
	(void)fflush(stdout);
	while (read(0, line, sizeof(line)) < 0 && errno == EINTR)
		;
}

/** object_talk() - a byte that is written to @from can be read from @to. */
static inline void object_talk(int from, int to)
{
	char c = 0;

	MUST(write(from, "t", 1) == 1 && read(to, &c, 1) == 1 && c == 't');
}

/** object_done() - everything was as it should be. */
static inline int object_done(void)
{
	printf("fine\n");
	return 0;
}

#endif
