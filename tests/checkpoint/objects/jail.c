/* SPDX-License-Identifier: Apache-2.0 */
/* System call filters that kill for almost every call, those among them that a restorer needs: they are the program's own, and hold as before. */
#include "object.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

#define LOAD(member)  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define IS(value)     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1)
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)

/* What it may not do kills it: returning from a signal handler is among that. */
static int jail(int commands)
{
	struct sock_filter code[] = { LOAD(nr), IS(SYS_read), RETURN(SECCOMP_RET_ALLOW),
		IS(SYS_exit_group), RETURN(SECCOMP_RET_ALLOW), RETURN(SECCOMP_RET_KILL_PROCESS) };
	struct sock_fprog program = { .len = sizeof(code) / sizeof(code[0]), .filter = code };
	char c = 0;

	MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
	while (c != 'e' && syscall(SYS_read, commands, &c, 1) == 1) {
		if (c == 'x')
			(void)syscall(SYS_getppid);
	}
	syscall(SYS_exit_group, 3);
	return 4;
}

struct child {
	pid_t pid;
	int commands;
};

static struct child child(int (*run)(int commands))
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

static int ends_as(const struct child *c, const char *commands)
{
	int status;

	MUST(write(c->commands, commands, strlen(commands)) == (ssize_t)strlen(commands));
	MUST(close(c->commands) == 0 && waitpid(c->pid, &status, 0) == c->pid);
	return status;
}

static int count(pid_t pid)
{
	char path[64], line[256];
	int n = -1;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "r");
	MUST(f != NULL);
	while (n < 0 && fgets(line, sizeof(line), f) != NULL)
		(void)sscanf(line, "Seccomp_filters: %d", &n);
	MUST(fclose(f) == 0 && n > 0);
	return n;
}

static void wait_for_filter(pid_t pid)
{
	while (count(pid) == count(getpid()))
		(void)sched_yield();
}

int main(void)
{
	struct child obeys, breaks_out;
	int status;

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	obeys = child(jail);
	breaks_out = child(jail);
	wait_for_filter(obeys.pid);
	wait_for_filter(breaks_out.pid);

	object_ready();

	status = ends_as(&obeys, "ae");
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 3);
	status = ends_as(&breaks_out, "axe");
	MUST(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
	return object_done();
}
