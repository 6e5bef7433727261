/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/netbench.c - what the network of a sandbox costs, from nothing.
 *
 *   netbench COUNT
 *
 * Prints {"namespace":[ns…],"recipe":[ns…],"whole":[ns…],"enter":[ns…],"errors":N}. Each sample is a process that makes a network namespace (in a user namespace of its own): that
 * alone is the bound; sets it up as the builder does; and enters one that is there already. `whole` is the first two together. Nothing touches the network of the machine.
 */
#include "sandbox/network.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

#define GROUP_LEVEL 4 /* of the programs of a sandbox, as a keeper knows it */

enum { NAMESPACE, RECIPE, WHOLE, ENTER, SPANS };

static uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

static void sample(int out)
{
	struct network network;
	struct err err = { 0 };
	uint64_t at[4], spans[SPANS];
	int self, host = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	if (host < 0 || unshare(CLONE_NEWUSER) < 0)
		_exit(1);
	at[0] = now_ns();
	if (unshare(CLONE_NEWNET) < 0)
		_exit(1);
	at[1] = now_ns();
	if (network_make(&network, GROUP_LEVEL, &err) < 0) {
		fprintf(stderr, "%s\n", err.msg);
		_exit(1);
	}
	at[2] = now_ns();
	self = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (self < 0 || setns(self, CLONE_NEWNET) < 0)
		_exit(1);
	at[3] = now_ns();
	spans[NAMESPACE] = at[1] - at[0];
	spans[RECIPE] = at[2] - at[1];
	spans[WHOLE] = at[2] - at[0];
	spans[ENTER] = at[3] - at[2];
	if (write(out, spans, sizeof(spans)) != sizeof(spans))
		_exit(1);
	_exit(0);
}

int main(int argc, char **argv)
{
	static const char *const names[SPANS] = { "namespace", "recipe", "whole", "enter" };
	unsigned long count = argc == 2 ? strtoul(argv[1], NULL, 10) : 0, done = 0;
	uint64_t(*all)[SPANS] = calloc(count + 1, sizeof(*all));
	int pipe_fd[2];

	if (count == 0 || all == NULL || pipe(pipe_fd) < 0) {
		fprintf(stderr, "usage: netbench COUNT\n");
		return 2;
	}
	for (unsigned long i = 0; i < count; i++) {
		int status = -1;
		pid_t pid = fork();

		if (pid == 0)
			sample(pipe_fd[1]);
		if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 &&
			read(pipe_fd[0], all[done], sizeof(all[done])) == sizeof(all[done]))
			done++;
	}
	for (int span = 0; span < SPANS; span++) {
		printf("%s\"%s\":[", span == 0 ? "{" : ",", names[span]);
		for (unsigned long i = 0; i < done; i++)
			printf("%s%" PRIu64, i > 0 ? "," : "", all[i][span]);
		printf("]");
	}
	printf(",\"errors\":%lu}\n", count - done);
	free(all);
	return done > 0 ? 0 : 1;
}
