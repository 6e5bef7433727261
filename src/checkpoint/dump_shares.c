/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_shares.c - what tasks have in common. A restored process's threads share ids, descriptors and directories, and processes share none of it; clone(2), unshare(2) and
 * calls of one thread that go past the C library can make it otherwise, which is refused. What the kernel does not tell (kcmp(2)) is taken to be as it mostly is.
 */
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"

#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Return: 1 when @a and @b have the same @what, 0 when they have not, -1: the kernel does not tell. */
static int share(pid_t a, pid_t b, int what)
{
	long rc = syscall(SYS_kcmp, a, b, what, 0, 0);

	return rc < 0 ? -1 : rc == 0;
}

static int check_thread(
	const struct dump_process *p, const struct tracee_thread *thread, struct err *err)
{
	if (thread->identity != p->tracee.threads[0].identity)
		return dump_refuse(
			p, err, "its thread %d has ids or capabilities of its own", thread->inner);
	if (share(p->tracee.host, thread->host, KCMP_FILES) == 0)
		return dump_refuse(p, err, "its thread %d has descriptors of its own (unshare(2))",
			thread->inner);
	if (share(p->tracee.host, thread->host, KCMP_FS) == 0)
		return dump_refuse(p, err,
			"its thread %d has a working directory, root directory and umask of its own (unshare(2))",
			thread->inner);
	return 0;
}

static int check_parent(
	const struct dump_process *p, const struct dump_process *parent, struct err *err)
{
	static const struct {
		int what;
		const char *name;
	} all[] = { { KCMP_VM, "memory" }, { KCMP_FILES, "descriptors" },
		{ KCMP_FS, "working directory, root directory and umask" } };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (share(parent->tracee.host, p->tracee.host, all[i].what) > 0)
			return dump_refuse(p, err, "it shares its %s with process %d (clone(2))",
				all[i].name, parent->tracee.inner);
	}
	return 0;
}

int dump_shares_check(const struct dump *d, const struct dump_process *p, struct err *err)
{
	const struct dump_process *parent = dump_by_host_pid(d, p->stat.ppid);
	int rc = 0;

	for (size_t i = 1; rc == 0 && i < p->tracee.n_threads; i++)
		rc = check_thread(p, p->tracee.threads + i, err);
	return rc == 0 && parent != NULL && !parent->tracee.zombie ? check_parent(p, parent, err)
								   : rc;
}
