/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/confine.h"
#include "t.h"

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* Below @n filters more, in a process of its own. Return: as of wait(2). */
static int below(unsigned int n, void (*fn)(void))
{
	static const struct sock_filter all[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		(void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
		(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		for (unsigned int i = 0; i < n; i++) {
			if (confine_seccomp(all, 1) < 0)
				_exit(99);
		}
		fn();
		_exit(98);
	}
	check(waitpid(pid, &status, 0) == pid);
	return status;
}

static uint32_t before;

static void count(void)
{
	_exit((int)(confine_filters() - before));
}

TEST(filters_are_counted)
{
	before = confine_filters();
	for (unsigned int n = 0; n < 4; n++)
		check_int(WEXITSTATUS(below(n, count)), n);
}

static void end_strictly(void)
{
	if (confine_strict() < 0)
		_exit(97);
	(void)syscall(SYS_write, STDERR_FILENO, "", 0);
	(void)syscall(SYS_exit, 7);
}

static void call_another(void)
{
	if (confine_strict() < 0)
		_exit(97);
	(void)syscall(SYS_getppid);
}

TEST(a_strict_one_reads_writes_and_ends)
{
	for (unsigned int n = 0; n < 2; n++) {
		check_int(WEXITSTATUS(below(n, end_strictly)), 7);
		check_int(WTERMSIG(below(n, call_another)), SIGSYS);
	}
}
