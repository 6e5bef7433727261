/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/dump_wire.h"
#include "checkpoint/seizer.h"
#include "sys/cred.h"
#include "t.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static pid_t start_somebody(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			(void)pause();
	}
	return pid;
}

static void end(pid_t pid)
{
	int status;

	(void)kill(pid, SIGKILL);
	do
		check_int(waitpid(pid, &status, __WALL), pid);
	while (WIFSTOPPED(status));
}

/* seizer_stop() of an order that names @pid alone. */
static int seize(pid_t pid, int u2)
{
	static struct dump_order order = { .kind = DUMP_ORDER, .n_pids = 1, .filters = 1 };
	int pair[2], rc = -1;

	order.pids[0] = pid;
	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	if (send(pair[0], &order, sizeof(order), 0) == (ssize_t)sizeof(order))
		rc = seizer_stop(pair[1], u2);
	(void)close(pair[0]);
	(void)close(pair[1]);
	return rc;
}

static int map(int proc_fd, pid_t pid, attr_unused const void *arg)
{
	return cred_map_identity(proc_fd, pid);
}

TEST(who_is_in_the_namespace_is_stopped)
{
	cleanup_fd int ours = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	pid_t somebody = start_somebody();
	cleanup_fd int filters = seize(somebody, ours);
	siginfo_t info = { 0 };

	check(filters >= 0);
	check_int(waitid(P_PID, (id_t)somebody, &info, WSTOPPED | WNOHANG | WNOWAIT | __WALL), 0);
	check_int(info.si_pid, somebody);
	end(somebody);
}

/* It waits for its child, until that has executed a program, and cannot be stopped. */
static pid_t start_parent(int ready)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		check(write(ready, "r", 1) == 1);
		for (;;)
			(void)pause();
	}
	_exit(0);
}

TEST(who_cannot_be_stopped_is_named)
{
	cleanup_fd int ours = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	struct seized_thread last = { 0 };
	int ready[2];
	pid_t parent;
	char c;

	check(pipe(ready) == 0);
	parent = start_parent(ready[1]);
	check(read(ready[0], &c, 1) == 1);

	cleanup_fd int filters = seize(parent, ours);

	check(filters >= 0);
	check(pread(filters, &last, sizeof(last),
		      lseek(filters, 0, SEEK_END) - (off_t)sizeof(last)) == sizeof(last));
	check_int(last.host, parent);
	check(last.n == SEIZED_LEFT);
	end(parent);
}

TEST(who_is_outside_is_not_stopped)
{
	cleanup_fd int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_fd int other = cred_make_userns(proc, map, NULL);
	pid_t somebody;

	if (other < 0)
		skip("no user namespaces");
	somebody = start_somebody();
	check_int(seize(somebody, other), -ESRCH);
	check_int(waitpid(somebody, NULL, WNOHANG | __WALL), 0);
	end(somebody);
}
