/* SPDX-License-Identifier: Apache-2.0 */
/* System call filters that kill for almost every call, those among them that a restorer needs: they are the program's own, and hold as before. */
#include "filtered.h"

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

static void wait_for_filter(pid_t pid)
{
	while (filters_of(pid) == filters_of(getpid()))
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
