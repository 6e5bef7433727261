/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-init/main.c - PID 1 of a sandbox: it reaps orphans and does nothing else.
 *
 * Freestanding: no libc, no heap, no file descriptor, two pages of memory. It is executed inside the set-up namespace U1, makes itself
 * non-dumpable, joins the payload's user namespace U2 (descriptor 3), gives up every capability, installs a filter that leaves
 * it five system calls, and waits. Since its memory belongs to U1, no process of the payload can read, write or trace it.
 * It answers to nobody: exit statuses of execs are collected by the keeper, which is their parent.
 */
#include <asm/unistd.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

#define NORETURN    __attribute__((noreturn))
#define SIGNAL_CHLD 17
#define SIGNAL_KILL 9
#define WAIT_EXITED 4
#define WAIT_NOHANG 1
#define WAIT_ALL    0
#define BLOCK       0

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
static long sys(long nr, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	long rc;

	__asm__ volatile("syscall"
			 : "=a"(rc)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return rc;
}
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
static long sys(long nr, long a, long b, long c, long d, long e)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
			 : "memory");
	return x0;
}
#else
#error "no system call instruction known for this architecture"
#endif

static NORETURN void quit(int status)
{
	for (;;)
		(void)sys(__NR_exit_group, status, 0, 0, 0, 0);
}

static void must(long rc, int status)
{
	if (rc < 0)
		quit(status);
}

static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3,
		.pid = 0 };
	struct __user_cap_data_struct none[2];

	for (int i = 0; i < 2; i++) {
		none[i].effective = 0;
		none[i].permitted = 0;
		none[i].inheritable = 0;
	}
	must(sys(__NR_capset, (long)&header, (long)none, 0, 0, 0), 101);
}

static void restrict_calls(void)
{
	static struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_rt_sigtimedwait, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_waitid, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_restart_syscall, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit_group, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	static struct sock_fprog program = { .len = sizeof(rules) / sizeof(rules[0]),
		.filter = rules };

	must(sys(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 102);
	must(sys(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program, 0, 0), 103);
}

static NORETURN void reap_for_ever(void)
{
	uint64_t child = 1ULL << (SIGNAL_CHLD - 1);

	for (;;) {
		(void)sys(__NR_rt_sigtimedwait, (long)&child, 0, 0, sizeof(child), 0);
		for (;;) {
			int info[32]; /* siginfo_t; its first word, si_signo, stays 0 when nobody is left to reap */

			info[0] = 0;
			if (sys(__NR_waitid, WAIT_ALL, 0, (long)info, WAIT_EXITED | WAIT_NOHANG,
				    0) < 0 ||
				info[0] == 0)
				break;
		}
	}
}

#ifdef CAY_ABLATION
/* Test builds: U2 may be the namespace that we are in (userns_last is off), and an argument says that init_nondumpable is off. */
static void join_payload(long argc)
{
	(void)sys(__NR_setns, 3, CLONE_NEWUSER, 0, 0, 0);
	if (argc < 2)
		must(sys(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0), 106);
}
#else
static void join_payload(long argc)
{
	(void)argc;
	must(sys(__NR_setns, 3, CLONE_NEWUSER, 0, 0, 0), 105);
	must(sys(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0), 106);
}
#endif

/* named by _start alone */
NORETURN __attribute__((used)) void start(const long *stack);

/* @stack: number of arguments and the arguments, as the kernel puts them there. */
NORETURN void start(const long *stack)
{
	uint64_t all = ~0ULL;

	(void)sys(__NR_prctl, PR_SET_NAME, (long)"cay-init", 0, 0, 0);
	must(sys(__NR_rt_sigprocmask, BLOCK, (long)&all, 0, sizeof(all), 0), 104);
	join_payload(stack[0]);
	/* after the change of credentials, which forgets it: the keeper's death is ours and so the sandbox's */
	must(sys(__NR_prctl, PR_SET_PDEATHSIG, SIGNAL_KILL, 0, 0, 0), 107);
	must(sys(__NR_close_range, 0, -1, 0, 0, 0), 108);
	drop_capabilities();
	restrict_calls();
	reap_for_ever();
}

/* The kernel enters with an aligned stack and no return address. */
#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tandq $-16, %rsp\n\tcall start\n");
#else
__asm__(".globl _start\n_start:\n\tmov x0, sp\n\tbl start\n");
#endif
