/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: tests/checkpoint/objects/filtered.h - for objects under system call filters: parts of a filter, children that are told what to do by a pipe. */
#ifndef FILTERED_H
#define FILTERED_H

#include "object.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

#define LOAD(member)  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define IS(value)     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1)
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)

/** filters_of() - filters of thread @tid, the sandbox's own among them. */
static inline int filters_of(pid_t tid)
{
	char path[64], line[256];
	int n = -1;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", tid);
	f = fopen(path, "r");
	MUST(f != NULL);
	while (n < 0 && fgets(line, sizeof(line), f) != NULL)
		(void)sscanf(line, "Seccomp_filters: %d", &n);
	MUST(fclose(f) == 0 && n > 0);
	return n;
}

/** struct child - of child(). */
struct child {
	pid_t pid;
	int commands;
};

/** child() - start a child that runs @run with the end of a pipe, and ends with what it says. */
static inline struct child child(int (*run)(int commands))
{
	struct child c;
	int ends[2];

	MUST(pipe(ends) == 0);
	c.commands = ends[1];
	c.pid = fork();
	MUST(c.pid >= 0);
	if (c.pid == 0) {
		(void)close(ends[1]);
		exit(run(ends[0]));
	}
	(void)close(ends[0]);
	return c;
}

/** ends_as() - give it @commands and wait for its end. Return: as of wait(2). */
static inline int ends_as(const struct child *c, const char *commands)
{
	int status;

	MUST(write(c->commands, commands, strlen(commands)) == (ssize_t)strlen(commands));
	MUST(close(c->commands) == 0 && waitpid(c->pid, &status, 0) == c->pid);
	return status;
}

#endif
