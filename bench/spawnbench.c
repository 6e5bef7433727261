/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/spawnbench.c - how long a command line takes from before it is started until it has ended.
 *
 *   spawnbench COUNT COMMAND [ARGUMENT…]
 *
 * Prints {"ns":[…],"errors":N,"cpu_us":N}: the last is the processor time of all that was started and waited for. Each sample is one posix_spawnp() (vfork and exec, so that the size of this program does not count), and the wait for
 * its end, on CLOCK_MONOTONIC. Standard output goes to a memory file (peers give what they get to another user: never the machine's /dev/null). An end with another status than 0 is an error and no sample.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

static uint64_t children_cpu_us(void)
{
	struct rusage u;

	(void)getrusage(RUSAGE_CHILDREN, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000U +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

int main(int argc, char **argv)
{
	posix_spawn_file_actions_t files;
	unsigned long count, errors = 0;
	const char *comma = "";

	if (argc < 3) {
		fprintf(stderr, "usage: spawnbench COUNT COMMAND [ARGUMENT...]\n");
		return 2;
	}
	count = strtoul(argv[1], NULL, 10);
	if (posix_spawn_file_actions_init(&files) != 0 ||
		posix_spawn_file_actions_adddup2(&files, memfd_create("output", MFD_CLOEXEC), 1) !=
			0)
		return 1;
	printf("{\"ns\":[");
	for (unsigned long i = 0; i < count; i++) {
		uint64_t start = now_ns();
		int status = -1;
		pid_t pid;

		if (posix_spawnp(&pid, argv[2], &files, NULL, argv + 2, environ) != 0 ||
			waitpid(pid, &status, 0) != pid || status != 0) {
			errors++;
			continue;
		}
		printf("%s%" PRIu64, comma, now_ns() - start);
		comma = ",";
	}
	printf("],\"errors\":%lu,\"cpu_us\":%" PRIu64 "}\n", errors, children_cpu_us());
	return 0;
}
