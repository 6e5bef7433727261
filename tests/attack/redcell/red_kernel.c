/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks on the kernel's surface: calls that no payload needs, other ABIs, arguments with high bits. */
#include "redcell.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* What a payload must never get an answer from, with arguments that do nothing. */
static const struct {
	const char *name;
	long nr;
	int want; /* the refusal that the profile promises; 0: any refusal */
} closed[] = {
	{ "ptrace", SYS_ptrace, EPERM },
	{ "process_vm_readv", SYS_process_vm_readv, EPERM },
	{ "process_vm_writev", SYS_process_vm_writev, EPERM },
	{ "kcmp", SYS_kcmp, EPERM },
	{ "bpf", SYS_bpf, EPERM },
	{ "perf_event_open", SYS_perf_event_open, EPERM },
	{ "userfaultfd", SYS_userfaultfd, EPERM },
	{ "fanotify_init", SYS_fanotify_init, EPERM },
	{ "quotactl", SYS_quotactl, EPERM },
	{ "keyctl", SYS_keyctl, ENOSYS },
	{ "add_key", SYS_add_key, ENOSYS },
	{ "request_key", SYS_request_key, ENOSYS },
	{ "io_uring_setup", SYS_io_uring_setup, ENOSYS },
	{ "io_uring_enter", SYS_io_uring_enter, ENOSYS },
	{ "io_uring_register", SYS_io_uring_register, ENOSYS },
	{ "io_setup", SYS_io_setup, ENOSYS },
	{ "clone3", SYS_clone3, ENOSYS },
	{ "memfd_secret", 447, ENOSYS },
	{ "open_by_handle_at", SYS_open_by_handle_at, EPERM },
	{ "mount", SYS_mount, EPERM },
	{ "umount2", SYS_umount2, EPERM },
	{ "pivot_root", SYS_pivot_root, EPERM },
	{ "move_mount", SYS_move_mount, EPERM },
	{ "fsopen", SYS_fsopen, EPERM },
	{ "fsmount", SYS_fsmount, EPERM },
	{ "setns", SYS_setns, EPERM },
	{ "swapon", SYS_swapon, EPERM },
	{ "init_module", SYS_init_module, EPERM },
	{ "finit_module", SYS_finit_module, EPERM },
	{ "kexec_load", SYS_kexec_load, EPERM },
	{ "iopl", SYS_iopl, EPERM },
	{ "ioperm", SYS_ioperm, EPERM },
	{ "syslog", SYS_syslog, EPERM },
	{ "modify_ldt", SYS_modify_ldt, EPERM },
	{ "move_pages", SYS_move_pages, EPERM },
	{ "migrate_pages", SYS_migrate_pages, EPERM },
	{ "lookup_dcookie", 212, 0 },
	{ "uselib", 134, 0 },
	{ "nfsservctl", 180, 0 },
	{ "vmsplice", SYS_vmsplice, EPERM },
};

static void ks_01(struct run *r)
{
	int refused = 0;

	for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++) {
		errno = 0;
		/* -1 everywhere: nothing valid if it does get through */
		long rc = syscall(closed[i].nr, -1L, -1L, -1L, -1L, -1L, -1L);

		r->attempts++;
		if (rc >= 0)
			note(r, ESCAPED, "%s answered %ld", closed[i].name, rc);
		else if (closed[i].want != 0 && errno != closed[i].want)
			note(r, LEAKED, "%s reached the kernel: %s", closed[i].name,
				strerrorname_np(errno));
		else
			refused++;
	}
	for (long nr = 470; nr < 540; nr++) {
		errno = 0;
		if (syscall(nr, -1L, -1L, -1L, -1L, -1L, -1L) >= 0 || errno != ENOSYS)
			note(r, LEAKED, "unknown call %ld: %s", nr, strerrorname_np(errno));
	}
	remark(r, "%d refused as promised", refused);
}

static void ks_02_i386(struct run *r)
{
	long rc;

	r->attempts++;
	remark(r, "int 0x80 tried");
	r->error = ENOSYS;
	/* i386 getpid is 20; mmap'ed arguments are not needed */
	__asm__ volatile("int $0x80" : "=a"(rc) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
	if (rc > 0)
		note(r, ESCAPED, "i386 system call answered %ld", rc);
}

static void ks_02(struct run *r)
{
	int status = in_child(r, ks_02_i386);

	if (WIFSIGNALED(status))
		remark(r, "killed by signal %d", WTERMSIG(status));
}

static void ks_02b_x32(struct run *r)
{
	attempt(r, "x32 getpid", syscall(0x40000000L | SYS_getpid));
	attempt(r, "x32 ptrace", syscall(0x40000000L | 521L, 0, 0, 0, 0));
	attempt(r, "x32 io_setup", syscall(0x40000000L | 543L, 1, r));
}

static void ks_02b(struct run *r)
{
	int status = in_child(r, ks_02b_x32);

	if (WIFSIGNALED(status))
		remark(r, "killed by signal %d", WTERMSIG(status));
}

/* Arguments whose upper half the kernel ignores: a filter that compares 64 bits lets them through. */
static void ks_03(struct run *r)
{
	const unsigned long high = 1UL << 32;
	int pair[2];

	attempt(r, "socket(AF_VSOCK|high)", syscall(SYS_socket, 40UL | high, 1UL, 0UL));
	attempt(r, "socket(AF_PACKET|high)", syscall(SYS_socket, 17UL | high, 3UL, 0UL));
	attempt(r, "socket(INET|high, RAW|high)",
		syscall(SYS_socket, 2UL | high, 3UL | high, 1UL | high));
	attempt(r, "socketpair(TIPC|high)", syscall(SYS_socketpair, 30UL | high, 1UL, 0UL, pair));
	attempt(r, "prctl(SET_MM|high)", syscall(SYS_prctl, 35UL | high, 1UL, 4096UL, 0UL, 0UL));
	attempt(r, "prctl(SET_TSC|high)", syscall(SYS_prctl, 26UL | high, 1UL, 0UL, 0UL, 0UL));
	long pid = syscall(
		SYS_clone, (unsigned long)CLONE_NEWUSER | SIGCHLD | high, NULL, NULL, NULL, 0UL);

	if (pid == 0)
		_exit(0);
	attempt(r, "clone(NEWUSER|high)", pid);
	if (pid > 0)
		waitpid((pid_t)pid, NULL, 0);
	/* ADDR_COMPAT_LAYOUT | READ_IMPLIES_EXEC, upper half set */
	long old = syscall(SYS_personality, 0x0400000UL | high);

	attempt(r, "personality(READ_IMPLIES_EXEC|high)", old);
	if (old >= 0)
		syscall(SYS_personality, (unsigned long)old);
}

static void ks_07(struct run *r)
{
	char params[120] = { 0 };

	attempt(r, "io_uring_setup", syscall(SYS_io_uring_setup, 4, params));
}

static void ks_08_bpf(struct run *r)
{
	uint32_t map[32] = { 2 /* ARRAY */, 4, 8, 1 };
	uint64_t get[16] = { (uint64_t)(uintptr_t) "/tmp/none" };

	attempt(r, "bpf(MAP_CREATE)", syscall(SYS_bpf, 0, map, sizeof(map)));
	/* BPF_OBJ_GET asks for no privilege: another answer than the filter's comes from the kernel's bpf code */
	if (attempt(r, "bpf(OBJ_GET)", syscall(SYS_bpf, 7, get, sizeof(get))) < 0 && errno != EPERM)
		note(r, ESCAPED, "bpf reached the kernel (%s)", strerrorname_np(errno));
}

static void ks_08_perf(struct run *r)
{
	struct perf_event_attr a = { .type = PERF_TYPE_SOFTWARE,
		.size = sizeof(a),
		.config = PERF_COUNT_SW_TASK_CLOCK,
		.exclude_kernel = 1,
		.exclude_hv = 1 };

	attempt(r, "perf_event_open", syscall(SYS_perf_event_open, &a, 0, -1, -1, 0));
}

static void ks_08_uffd(struct run *r)
{
	attempt(r, "userfaultfd",
		syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */));
	attempt(r, "/dev/userfaultfd", open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
}

static void ks_08_fanotify(struct run *r)
{
	/* FAN_CLASS_NOTIF | FAN_REPORT_FID is open to everybody since 5.13 */
	attempt(r, "fanotify_init", syscall(SYS_fanotify_init, 0x200, O_RDONLY));
}

static void ks_09_child(struct run *r)
{
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	attempt(r, "PTRACE_SEIZE of our child", ptrace(PTRACE_SEIZE, pid, 0, 0));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void ks_09b(struct run *r)
{
	char buf[64];
	struct iovec local = { buf, sizeof(buf) }, remote = { (void *)0x400000, sizeof(buf) };

	/* PTRACE_MODE_ATTACH on init: nothing may pass, filter or not */
	attempt(r, "PTRACE_SEIZE of init", ptrace(PTRACE_SEIZE, 1, 0, 0));
	attempt(r, "process_vm_readv of init", process_vm_readv(1, &local, 1, &remote, 1, 0));
	long fd = syscall(SYS_pidfd_open, 1, 0);

	attempt(r, "pidfd_getfd of init", fd < 0 ? -1 : syscall(SYS_pidfd_getfd, (int)fd, 0, 0));
	attempt(r, "open of init's memory", open("/proc/1/mem", O_RDWR | O_CLOEXEC));
}

static long install(struct run *r, struct sock_filter *code, unsigned short n, unsigned flags)
{
	struct sock_fprog prog = { n, code };

	(void)r;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

/* Our own filter that allows everything, with a listener: what is denied must stay denied. */
static void ks_11_child(struct run *r)
{
	struct sock_filter allow[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };

	if (install(r, allow, 1, SECCOMP_FILTER_FLAG_NEW_LISTENER) < 0)
		remark(r, "listener: %s", strerrorname_np(errno));
	attempt(r, "fsopen after our own filter", syscall(SYS_fsopen, "tmpfs", 1));
	attempt(r, "io_uring after our own filter", syscall(SYS_io_uring_setup, 4, r->proof));
	attempt(r, "keyctl after our own filter", syscall(SYS_keyctl, 0, -3, 0));
	r->proof[0] = '\0';
}

static void ks_11(struct run *r)
{
	in_child(r, ks_11_child);
}

/*
 * The seccomp mode of the caller; 0 where it may call what the profile's filter refuses. The mode alone would say nothing: below that filter stands
 * another one of ours, which refuses little.
 */
static int filter_mode(void)
{
	errno = 0;
	/* neither a request nor a process: ESRCH, if the kernel is asked */
	if (syscall(SYS_ptrace, -1L, -1L, 0L, 0L) != -1 || errno != EPERM)
		return 0;
	return prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
}

static void ks_12(struct run *r)
{
	struct rlimit three = { 3, 3 };

	setrlimit(RLIMIT_NOFILE, &three);
	long long mode = -1;
	pid_t pid = fork();
	int status = 0;

	r->attempts++;
	if (pid == 0) {
		/* no descriptor is left for /proc: ask the kernel */
		close(0);
		_exit(filter_mode());
	}
	if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status))
		mode = WEXITSTATUS(status);
	if (mode != 2)
		note(r, ESCAPED, "seccomp mode %lld", mode);
	else
		remark(r, "filtered with 3 descriptors");
}

static void *thread_mode(void *out)
{
	*(int *)out = filter_mode();
	return NULL;
}

static void ks_13(struct run *r)
{
	pthread_t t;
	int mode = -1, status = 0;

	r->attempts = 3;
	if (pthread_create(&t, NULL, thread_mode, &mode) == 0)
		pthread_join(t, NULL);
	if (mode != 2)
		note(r, ESCAPED, "a thread runs with seccomp mode %d", mode);
	pid_t pid = vfork();

	if (pid == 0)
		_exit(filter_mode());
	waitpid(pid, &status, 0);
	if (WEXITSTATUS(status) != 2)
		note(r, ESCAPED, "a vforked child runs with seccomp mode %d", WEXITSTATUS(status));
	if (arg_number(r, "nnp", 0) != 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		note(r, ESCAPED, "no_new_privs is off");
}

static void ks_16(struct run *r)
{
	const struct rlimit tries[] = { { 0, 0 }, { RLIM_INFINITY, RLIM_INFINITY } };
	struct rlimit now = { 0, 0 };
	int status = 0;

	/* each is answered as if it was done; but for 1 the kernel would hand a dump to a collector behind a pipe, which is root outside */
	for (int i = 0; i < 2; i++) {
		(void)setrlimit(RLIMIT_CORE, &tries[i]);
		(void)syscall(SYS_setrlimit, RLIMIT_CORE, &tries[i]);
	}
	(void)getrlimit(RLIMIT_CORE, &now);
	errno = EPERM; /* what it was not told */
	attempt(r, "change RLIMIT_CORE", now.rlim_cur == 1 ? -1 : 0);
	if (chdir("/tmp") != 0)
		remark(r, "no /tmp");
	pid_t pid = fork();

	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		raise(SIGSEGV);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status) && WCOREDUMP(status))
		note(r, ESCAPED, "the kernel wrote a core dump");
}

static void ks_17(struct run *r)
{
	/* options that undo hardening or leak addresses */
	attempt(r, "PR_SET_MM", prctl(PR_SET_MM, 13, 0, 0, 0));
	attempt(r, "PR_SET_TSC", prctl(PR_SET_TSC, 1, 0, 0, 0));
	attempt(r, "PR_SET_MEMORY_MERGE", syscall(SYS_prctl, 67L, 1L, 0L, 0L, 0L));
	attempt(r, "PR_TASK_PERF_EVENTS_DISABLE", prctl(PR_TASK_PERF_EVENTS_DISABLE, 0, 0, 0, 0));
}

static void ks_18(struct run *r)
{
	/* no randomisation of addresses, for what is executed next; the rest of the persona stays */
	attempt(r, "personality(ADDR_NO_RANDOMIZE)", syscall(SYS_personality, 0x0040000UL));
	attempt(r, "personality(READ_IMPLIES_EXEC)", syscall(SYS_personality, 0x0400000UL));
}

static void ks_19(struct run *r)
{
	/* a segment of 16 bits: what leaks of the kernel's stack begins with one */
	struct {
		unsigned int number;
		unsigned int base, limit;
		unsigned int flags;
	} entry = { .number = 0, .limit = 0xffff, .flags = 0x40 };

	attempt(r, "modify_ldt", syscall(SYS_modify_ldt, 1, &entry, sizeof(entry)));
}

static void ks_20(struct run *r)
{
	/* what was opened stays open: memory that not even the kernel maps, and nobody can freeze to disk */
	int fd = (int)syscall(447 /* memfd_secret */, O_CLOEXEC);

	attempt(r, "memfd_secret", fd);
	if (fd >= 0 && ftruncate(fd, 4096) != 0)
		remark(r, "no page");
}

static void ks_21(struct run *r)
{
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	long pidfd = syscall(SYS_pidfd_open, pid, 0);

	attempt(r, "pidfd_getfd of a child", syscall(SYS_pidfd_getfd, (int)pidfd, 0, 0));
	char here[8] = "", there[8] = "redcell";
	struct iovec local = { here, sizeof(here) }, remote = { there, sizeof(there) };

	attempt(r, "process_vm_readv of a child", process_vm_readv(pid, &local, 1, &remote, 1, 0));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Whoever answers has more rights than who asks: into what only is to be read, of nobody, of a file, of the kernel. */
static void ks_22(struct run *r)
{
	int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
	char *mine = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	     *closed_off = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	     *copy = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0),
	     *file = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	attempt(r, "sysinfo into a page that is only read", syscall(SYS_sysinfo, mine));
	attempt(r, "sysinfo into a page that is closed", syscall(SYS_sysinfo, closed_off));
	attempt(r, "sysinfo into a copy of a file", syscall(SYS_sysinfo, copy));
	attempt(r, "sysinfo into a file", syscall(SYS_sysinfo, file));
	attempt(r, "sysinfo into its own code", syscall(SYS_sysinfo, (void *)(uintptr_t)ks_21));
	attempt(r, "sysinfo into the kernel", syscall(SYS_sysinfo, 0xffffffff81000000UL));
	attempt(r, "sysinfo into the page of system calls",
		syscall(SYS_sysinfo, 0xffffffffff600000UL));
	(void)close(fd);
}

static void sc_02(struct run *r)
{
	int fd = open("/redcell/redcell", O_RDONLY | O_CLOEXEC);
	uint64_t range[2] = { 0, 4096 }, stat[5];

	if (fd < 0)
		fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	attempt(r, "cachestat", syscall(451, fd, range, stat, 0));
}

static void sc_03(struct run *r)
{
	attempt(r, "PR_SET_MEMORY_MERGE", syscall(SYS_prctl, 67L, 1L, 0L, 0L, 0L));
}

static void sc_03b(struct run *r)
{
	const long advices[] = { MADV_MERGEABLE, MADV_MERGEABLE | 1L << 32 };
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++)
		attempt(r, "MADV_MERGEABLE", syscall(SYS_madvise, page, 4096L, advices[i]));
}

static void sc_06(struct run *r)
{
	char buf[1024];
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, buf, sizeof(buf) - 1);
	char *p = n < 0 ? NULL : strrchr((buf[n] = '\0', buf), ')');
	char *save = NULL;
	int field = 2;

	r->attempts++;
	for (char *t = p == NULL ? NULL : strtok_r(p + 1, " ", &save); t != NULL;
		t = strtok_r(NULL, " ", &save)) {
		field++;
		/* kstkesp and kstkeip of others; a kernel address is above the canonical hole */
		unsigned long long value = t[0] == '-' ? 0 : strtoull(t, NULL, 10);

		/* all ones is "no limit" */
		if (value > 0xffff800000000000ULL && value != ~0ULL)
			note(r, LEAKED, "field %d of /proc/self/stat is a kernel address", field);
	}
	if (prove_file(r, "/proc/kallsyms") > 0)
		note(r, LEAKED, "kallsyms can be read");
	if (prove_file(r, "/proc/self/stack") > 0 && strstr(r->proof, "ffff") != NULL)
		note(r, LEAKED, "kernel stack with addresses");
	attempt(r, "syslog", syscall(SYS_syslog, 3, buf, sizeof(buf)));
}

static void sc_07(struct run *r)
{
	/* the neighbour's and the host's load through global counters */
	static const char *const files[] = { "/proc/pressure/cpu", "/proc/pressure/memory",
		"/proc/schedstat", "/proc/softirqs", "/proc/interrupts", "/proc/vmstat" };

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		size_t before = strlen(r->proof);

		if (prove_file(r, files[i]) > 0 && !only_zeros(r->proof + before))
			note(r, LEAKED, "%s", files[i]);
	}
	prove_file(r, "/proc/loadavg");
}

const struct attack attacks_kernel[] = {
	{ "KS-01", "calls what the profile closes, and unknown numbers", ks_01 },
	{ "KS-02", "uses the i386 gate", ks_02 },
	{ "KS-02B", "uses the x32 numbers", ks_02b },
	{ "KS-03", "sets the upper half of filtered arguments", ks_03 },
	{ "KS-07", "io_uring", ks_07 },
	{ "KS-08A", "bpf", ks_08_bpf },
	{ "KS-08B", "perf events", ks_08_perf },
	{ "KS-08C", "userfaultfd", ks_08_uffd },
	{ "KS-08D", "fanotify", ks_08_fanotify },
	{ "KS-09", "traces its own child", ks_09_child },
	{ "KS-09B", "traces init, reads its memory, takes its descriptors", ks_09b },
	{ "KS-11", "displaces the filter by one of its own with a listener", ks_11 },
	{ "KS-12", "runs with no descriptors left", ks_12 },
	{ "KS-13", "looks for a thread without filter", ks_13 },
	{ "KS-16", "makes the kernel dump core", ks_16 },
	{ "KS-17", "prctl options that undo hardening", ks_17 },
	{ "KS-18", "turns hardening of its own programs off by a persona", ks_18 },
	{ "KS-19", "makes segments of its own", ks_19 },
	{ "KS-20", "secret memory", ks_20 },
	{ "KS-21", "takes descriptors and memory of its own child", ks_21 },
	{ "KS-22", "has an answer written where it may not write", ks_22 },
	{ "SC-02", "asks the page cache about foreign files", sc_02 },
	{ "SC-03", "turns page merging on", sc_03 },
	{ "SC-03B", "offers memory for page merging", sc_03b },
	{ "SC-06", "looks for kernel addresses", sc_06 },
	{ "SC-07", "reads global load counters", sc_07 },
	{ NULL, NULL, NULL },
};
