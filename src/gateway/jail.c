/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/jail.h"
#include "base/ablate.h"
#include "gateway/gateway.h"
#include "sys/confine.h"

#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define FILES_MAX 8192U /* two sockets and four pipe ends for each connection, and some */

/* Sockets, time, memory. Nothing that opens a file, starts a program, or looks at another process. */
static const char *const allowed[] = { "accept4", "bind", "brk", "clock_gettime", "clock_nanosleep",
	"close", "connect", "dup", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait",
	"eventfd2", "exit", "exit_group", "fcntl", "fstat", "futex", "getpeername", "getpid",
	"getrandom", "getsockname", "getsockopt", "gettid", "gettimeofday", "ioctl", "lseek",
	"madvise", "mmap", "mprotect", "mremap", "munmap", "newfstatat", "pipe2", "poll", "ppoll",
	"pread64", "prlimit64", "read", "readv", "recvfrom", "recvmsg", "restart_syscall",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sched_yield", "sendmmsg", "sendmsg",
	"sendto", "set_robust_list", "setsockopt", "shutdown", "sigaltstack", "splice", "tgkill",
	"write", "writev" };

static int limit(int which, uint64_t value)
{
	struct rlimit l = { .rlim_cur = value, .rlim_max = value };

	return setrlimit((__rlimit_resource_t)which, &l) < 0 ? -errno : 0;
}

static int set_limits(void)
{
	int rc = confine_core();

	if (rc == 0)
		rc = limit(RLIMIT_NOFILE, FILES_MAX);
	if (rc == 0)
		rc = limit(RLIMIT_NPROC, 0);
#ifndef __SANITIZE_ADDRESS__ /* it needs much, and writes what it finds */
	if (rc == 0)
		rc = limit(RLIMIT_FSIZE, 0);
	if (rc == 0 && !ablated("gateway_memory"))
		rc = limit(RLIMIT_DATA, GATEWAY_MEMORY_MAX);
#endif
	return rc;
}

/* Sockets to the world only: the family is the argument. */
static int add_socket_rule(scmp_filter_ctx ctx)
{
	static const int families[] = { AF_INET, AF_INET6 };
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(families); i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
			SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[i]));
	return rc;
}

static int set_filter(void)
{
	/* what libraries probe for and can do without fails; what nobody has a reason to call ends the process */
	static const char *const probed[] = { "open", "openat", "access", "readlink", "stat",
		"lstat", "uname", "getcwd", "io_uring_setup", "sysinfo", "sched_getaffinity",
		"getuid", "geteuid", "getgid", "getegid", "statx", "socketpair", "prctl", "rseq",
		"clone3", "clone" };
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int rc = ctx == NULL ? -ENOMEM : add_socket_rule(ctx);

	if (rc == 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
			SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
	if (rc == 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
			SCMP_A0(SCMP_CMP_EQ, AF_NETLINK));
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(allowed); i++)
		rc = seccomp_rule_add(
			ctx, SCMP_ACT_ALLOW, seccomp_syscall_resolve_name(allowed[i]), 0);
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(probed); i++)
		rc = seccomp_rule_add(
			ctx, SCMP_ACT_ERRNO(EPERM), seccomp_syscall_resolve_name(probed[i]), 0);
	if (rc == 0)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	return rc;
}

int jail_prepare(unsigned int libuv, struct err *err)
{
	scmp_filter_ctx ctx;
	int rc;

	if (libuv < (1 << 16 | 45 << 8) || ablated("gateway_jail"))
		return 0;
	ctx = seccomp_init(SCMP_ACT_ALLOW);
	rc = ctx == NULL
		     ? -ENOMEM
		     : seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(io_uring_setup), 0);
	if (rc == 0)
		rc = seccomp_load(ctx); /* sets no_new_privs */
	seccomp_release(ctx);
	return rc < 0 ? err_raise_sys(err, rc, "keep io_uring from the event loop") : 0;
}

int jail_enter(struct err *err)
{
	int rc = set_limits();

	if (rc < 0)
		return err_raise_sys(err, rc, "set the gateway's limits");
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_raise_sys(err, -errno, "give up privileges");
	rc = ablated("gateway_jail") ? 0 : set_filter();
	return rc < 0 ? err_raise_sys(err, rc, "enter the gateway's filter") : 0;
}
