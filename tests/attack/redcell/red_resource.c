/* SPDX-License-Identifier: Apache-2.0 */
/* Exhaustion: everything is bounded at a few times the sandbox's limit, so that a missing limit is seen and not felt. */
#include "redcell.h"

#include <dirent.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#define MIB (1L << 20)

static void cg_01(struct run *r)
{
	mkdir("/tmp/cg", 0755);
	attempt(r, "mount cgroup2", mount("c", "/tmp/cg", "cgroup2", 0, NULL));
	attempt(r, "mount cgroup v1", mount("c", "/tmp/cg", "cgroup", 0, "memory"));
	attempt(r, "release_agent", open("/tmp/cg/release_agent", O_WRONLY | O_CLOEXEC));
	attempt(r, "fsopen cgroup2", syscall(SYS_fsopen, "cgroup2", 1));
}

static void cg_02(struct run *r)
{
	static const char *const files[] = { "/sys/fs/cgroup/cgroup.procs",
		"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
		"/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/unified/cgroup.procs",
		"/sys/fs/cgroup/cpu/cpu.shares", "/sys/fs/cgroup/devices/devices.allow",
		"/sys/fs/cgroup/memory/release_agent" };

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		attempt(r, files[i], open(files[i], O_WRONLY | O_CLOEXEC));
}

static void cg_03(struct run *r)
{
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls,
			set_tid, set_tid_size, cgroup;
	} a = {
		.flags = 0x200000000ULL /* CLONE_INTO_CGROUP */, .exit_signal = SIGCHLD, .cgroup = 0
	};
	long pid = syscall(SYS_clone3, &a, sizeof(a));

	if (pid == 0)
		_exit(0);
	/* EBADF: the call itself was let through */
	if (pid < 0 && errno != ENOSYS && errno != EPERM)
		note(r, ESCAPED, "clone3 reached the kernel (%s)", strerrorname_np(errno));
	else
		attempt(r, "clone3(CLONE_INTO_CGROUP)", pid);
}

static void rx_01(struct run *r)
{
	long want = arg_number(r, "processes", 400);
	long made = 0;

	while (made < want) {
		pid_t pid = fork();

		if (pid == 0) {
			alarm(20);
			for (;;)
				pause();
		}
		if (pid < 0)
			break;
		made++;
	}
	r->attempts++;
	if (made < want)
		r->error = errno;
	remark(r, "%ld processes", made);
	if (made >= want)
		note(r, ESCAPED, "no limit up to %ld processes", want);
}

/* A real bomb: every process forks on. A time bounds it, and a number that is well above the limit: where the limit is missing nothing else may suffer. */
static void rx_01b(struct run *r)
{
	long want = arg_number(r, "processes", 400);
	long *made = mmap(
		NULL, sizeof(*made), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	r->attempts++;
	remark(r, "bomb");
	for (;;) {
		alarm(6);
		if (__atomic_load_n(made, __ATOMIC_RELAXED) >= want)
			pause();
		pid_t pid = fork();

		if (pid < 0)
			sched_yield();
		else if (pid > 0)
			__atomic_add_fetch(made, 1, __ATOMIC_RELAXED);
	}
}

static long chunk_list(struct run *r, long want_mib, bool (*take)(long i))
{
	long got = 0;

	while (got < want_mib && take(got))
		got++;
	r->attempts++;
	if (got < want_mib) {
		r->error = errno;
		remark(r, "refused after %ld MiB", got);
	} else {
		note(r, ESCAPED, "took %ld MiB", got);
	}
	return got;
}

static bool take_anonymous(long i)
{
	void *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return false;
	memset(p, (int)i + 1, MIB);
	return true;
}

static void rx_02a(struct run *r)
{
	chunk_list(r, arg_number(r, "mib", 256), take_anonymous);
}

static char block[MIB];
static const char *fill_path;

static bool take_file(long i)
{
	int fd = open(fill_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

	memset(block, (int)i + 1, sizeof(block));
	ssize_t n = fd < 0 ? -1 : write(fd, block, sizeof(block));

	if (fd >= 0)
		close(fd);
	if (n >= 0 && n < (ssize_t)sizeof(block))
		errno = ENOSPC;
	return n == (ssize_t)sizeof(block);
}

static void rx_02b(struct run *r)
{
	fill_path = "/dev/shm/fill";
	chunk_list(r, arg_number(r, "mib", 256), take_file);
	unlink(fill_path);
}

static bool take_memfd(long i)
{
	int fd = memfd_create("fill", MFD_CLOEXEC);

	memset(block, (int)i + 1, sizeof(block));
	return fd >= 0 && write(fd, block, sizeof(block)) == (ssize_t)sizeof(block);
}

static void rx_02c(struct run *r)
{
	chunk_list(r, arg_number(r, "mib", 256), take_memfd);
}

static bool take_shm(long i)
{
	int id = shmget(IPC_PRIVATE, MIB, IPC_CREAT | 0600);
	char *p = id < 0 ? (char *)-1 : shmat(id, NULL, 0);

	if (p == (char *)-1)
		return false;
	memset(p, (int)i + 1, MIB);
	return true;
}

static void rx_02d(struct run *r)
{
	chunk_list(r, arg_number(r, "mib", 256), take_shm);
}

static bool take_pipe(long i)
{
	int p[2];
	int made = 0;

	(void)i;
	/* sixteen pipes of 64 KiB, full */
	for (; made < 16; made++)
		if (pipe2(p, O_CLOEXEC | O_NONBLOCK) != 0 || write(p[1], block, 65536) <= 0)
			return false;
	return true;
}

static void rx_02e(struct run *r)
{
	chunk_list(r, arg_number(r, "mib", 256), take_pipe);
}

static bool take_socket(long i)
{
	int p[2];

	(void)i;
	for (int made = 0; made < 8; made++) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, p) != 0)
			return false;
		long sent = 0;

		while (sent < 128 * 1024) {
			ssize_t n = write(p[0], block, 65536);

			if (n <= 0)
				break;
			sent += n;
		}
		if (sent == 0)
			return false;
	}
	return true;
}

static void rx_02f(struct run *r)
{
	chunk_list(r, arg_number(r, "mib", 256), take_socket);
}

/* Bytes that wait in socket @fd to be read or sent, with what the kernel takes beside. */
static long queued(int fd)
{
	uint32_t said[16] = { 0 };
	socklen_t n = sizeof(said);

	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, said, &n) != 0)
		return 0;
	return (long)said[0] + (long)said[5]; /* SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_WMEM_QUEUED */
}

static int loopback(int type, struct sockaddr_in *at)
{
	socklen_t n = sizeof(*at);
	int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	*at = (struct sockaddr_in){ .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (fd >= 0 && (bind(fd, (struct sockaddr *)at, sizeof(*at)) != 0 ||
			       getsockname(fd, (struct sockaddr *)at, &n) != 0)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* One connection that nobody reads. Return: bytes in its queue; -1: there can be no more. */
static long fill_tcp(void)
{
	static int listener = -1;
	static struct sockaddr_in at;
	int from, to;

	if (listener < 0) {
		listener = loopback(SOCK_STREAM, &at);
		if (listener < 0 || listen(listener, 64) != 0)
			return -1;
	}
	from = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (from < 0 || connect(from, (struct sockaddr *)&at, sizeof(at)) != 0)
		return -1;
	to = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (to >= 0 && send(from, block, sizeof(block), MSG_DONTWAIT) > 0)
		;
	return to < 0 ? -1 : queued(from) + queued(to);
}

/* One socket that nobody reads. */
static long fill_udp(void)
{
	struct sockaddr_in at;
	int to = loopback(SOCK_DGRAM, &at), from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (to < 0 || from < 0)
		return -1;
	for (int i = 0; i < 8; i++)
		(void)!sendto(from, block, 60000, MSG_DONTWAIT, (struct sockaddr *)&at, sizeof(at));
	close(from);
	return queued(to);
}

static void fill_sockets(struct run *r, long (*fill)(void))
{
	long want = arg_number(r, "mib", 256) * MIB, got = 0, n = 0, one = 0;
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	while (got < want && n < arg_number(r, "sockets", 2000) && (one = fill()) >= 0) {
		got += one;
		n++;
	}
	r->attempts++;
	r->error = one < 0 ? errno : ENOBUFS;
	remark(r, "%ld MiB in %ld sockets", got / MIB, n);
	if (got >= want)
		note(r, ESCAPED, "took %ld MiB", got / MIB);
}

static void rx_02i(struct run *r)
{
	fill_sockets(r, fill_tcp);
}

static void rx_02j(struct run *r)
{
	fill_sockets(r, fill_udp);
}

static bool take_shared(long i)
{
	char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return false;
	memset(p, (int)i + 1, MIB);
	return true;
}

static void rx_02g(struct run *r)
{
	chunk_list(r, arg_number(r, "mib", 256), take_shared);
}

/* One page in every two MiB: as much again in page tables. */
static bool take_tables(long i)
{
	const size_t size = 256UL << 20;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return false;
	(void)madvise(p, size, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < size; at += 2 * MIB)
		p[at] = (char)i;
	return true;
}

static void rx_02h(struct run *r)
{
	/* a MiB of pages and tables for each */
	chunk_list(r, arg_number(r, "mib", 256), take_tables);
}

static void rx_04(struct run *r)
{
	fill_path = arg(r, "fill", "/tmp/fill");
	chunk_list(r, arg_number(r, "mib", 64), take_file);
}

static void rx_04b(struct run *r)
{
	long want = arg_number(r, "mib", 64);
	const char *path = arg(r, "fill", "/tmp/fill");
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	r->attempts++;
	if (fallocate(fd, 0, 0, want * MIB) == 0)
		note(r, ESCAPED, "fallocate of %ld MiB", want);
	else
		r->error = errno;
	remark(r, "fallocate: %s", strerrorname_np(r->error));
	close(fd);
}

/* A sparse file, filled through a mapping: without room the writer gets SIGBUS. */
static void sparse_child(struct run *r)
{
	long want = arg_number(r, "mib", 64);
	int fd = open(arg(r, "fill", "/tmp/fill"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	if (ftruncate(fd, want * MIB) != 0) {
		attempt(r, "ftruncate", -1);
		return;
	}
	char *p = mmap(NULL, (size_t)(want * MIB), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED) {
		attempt(r, "mmap", -1);
		return;
	}
	for (long i = 0; i < want * MIB; i += 4096)
		p[i] = 1;
	if (msync(p, (size_t)(want * MIB), MS_SYNC) != 0 || fsync(fd) != 0)
		attempt(r, "msync", -1);
	else
		note(r, ESCAPED, "%ld MiB through a sparse mapping", want);
}

static void rx_04c(struct run *r)
{
	int status = in_child(r, sparse_child);

	r->attempts++;
	if (WIFSIGNALED(status))
		remark(r, "ended by signal %d", WTERMSIG(status));
}

static void rx_04d(struct run *r)
{
	/* deleted but open */
	long want = arg_number(r, "mib", 64), got = 0;
	int fd = open(arg(r, "fill", "/tmp/fill"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	unlink(arg(r, "fill", "/tmp/fill"));
	while (got < want && write(fd, block, sizeof(block)) == (ssize_t)sizeof(block))
		got++;
	r->attempts++;
	if (got < want)
		r->error = errno;
	remark(r, "%ld MiB", got);
	if (got >= want)
		note(r, ESCAPED, "%ld MiB into a deleted file", got);
}

static void rx_05(struct run *r)
{
	long want = arg_number(r, "inodes", 20000), made = 0;
	char path[256];

	snprintf(path, sizeof(path), "%s", arg(r, "dir", "/tmp/inodes"));
	mkdir(path, 0755);
	for (; made < want; made++) {
		snprintf(path, sizeof(path), "%s/%ld", arg(r, "dir", "/tmp/inodes"), made);
		int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

		if (fd < 0)
			break;
		close(fd);
	}
	r->attempts++;
	if (made < want)
		r->error = errno;
	remark(r, "%ld files", made);
	if (made >= want)
		note(r, ESCAPED, "%ld files", made);
}

static void rx_05b(struct run *r)
{
	char value[3000], name[64], path[64];
	long total = 0, want = arg_number(r, "mib", 64) * MIB;

	memset(value, 'x', sizeof(value));
	for (long f = 0; total < want; f++) {
		snprintf(path, sizeof(path), "/tmp/x%ld", f);
		int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

		if (fd < 0)
			break;
		snprintf(name, sizeof(name), "user.fill");
		int rc = fsetxattr(fd, name, value, sizeof(value), 0);

		close(fd);
		if (rc != 0)
			break;
		total += (long)sizeof(value);
	}
	r->attempts++;
	if (total < want)
		r->error = errno;
	remark(r, "%ld KiB of attributes", total / 1024);
	if (total >= want)
		note(r, ESCAPED, "%ld MiB of attributes", total / MIB);
}

/* Names alone: long links in directories of their own. */
static void rx_05c(struct run *r)
{
	long total = 0, want = arg_number(r, "mib", 64) * MIB;
	char target[2000], path[64];

	memset(target, 'x', sizeof(target) - 1);
	target[sizeof(target) - 1] = '\0';
	for (long n = 0; total < want; n++) {
		snprintf(path, sizeof(path), "/tmp/d%ld", n / 500);
		if (n % 500 == 0 && mkdir(path, 0755) != 0)
			break;
		snprintf(path, sizeof(path), "/tmp/d%ld/l%ld", n / 500, n);
		if (symlink(target, path) != 0)
			break;
		total += (long)sizeof(target);
	}
	r->attempts++;
	if (total < want)
		r->error = errno;
	remark(r, "%ld KiB of links", total / 1024);
	if (total >= want)
		note(r, ESCAPED, "%ld MiB of links", total / MIB);
}

static void rx_06(struct run *r)
{
	long want = arg_number(r, "files", 80000), got = 0;
	struct rlimit unlimited = { (rlim_t)want + 10, (rlim_t)want + 10 };

	attempt(r, "raise RLIMIT_NOFILE", setrlimit(RLIMIT_NOFILE, &unlimited));
	while (got < want && dup(0) >= 0)
		got++;
	if (got < want)
		r->error = errno;
	remark(r, "%ld descriptors", got);
	if (got >= want)
		note(r, ESCAPED, "%ld descriptors", got);
}

static void rx_08(struct run *r)
{
	unsigned long context = 0;

	attempt(r, "io_setup", syscall(SYS_io_setup, 128, &context));
}

static void rx_09(struct run *r)
{
	long watches = 0, timers = 0, queues = 0;
	int fd = inotify_init1(IN_CLOEXEC);
	char path[64];
	timer_t t;
	struct sigevent e = { .sigev_notify = SIGEV_NONE };

	mkdir("/tmp/watch", 0755);
	for (; watches < 2000; watches++) {
		snprintf(path, sizeof(path), "/tmp/watch/%ld", watches % 200);
		mkdir(path, 0755);
		if (inotify_add_watch(fd, path, IN_ALL_EVENTS) < 0)
			break;
	}
	for (; timers < 6000; timers++)
		if (timer_create(CLOCK_MONOTONIC, &e, &t) != 0)
			break;
	for (; queues < 1000; queues++) {
		snprintf(path, sizeof(path), "/redcell-%ld", queues);
		if (mq_open(path, O_RDWR | O_CREAT, 0600, NULL) < 0)
			break;
	}
	r->attempts = 3;
	r->error = errno;
	remark(r, "%ld watches, %ld timers, %ld queues", watches, timers, queues);
	if (timers >= 6000)
		note(r, ESCAPED, "no limit seen up to %ld timers", timers);
}

static void rx_09b(struct run *r)
{
	long want = arg_number(r, "instances", 200), got = 0;

	while (got < want && inotify_init1(IN_CLOEXEC) >= 0)
		got++;
	r->attempts = 1;
	r->error = errno;
	remark(r, "%ld instances", got);
}

static void rx_10(struct run *r)
{
	struct sched_param p = { .sched_priority = 1 };
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} a = { 48, 6, 0, 0, 0, 10000000, 30000000, 30000000 };

	attempt(r, "SCHED_FIFO", sched_setscheduler(0, SCHED_FIFO, &p));
	attempt(r, "SCHED_RR", sched_setscheduler(0, SCHED_RR, &p));
	attempt(r, "SCHED_DEADLINE", syscall(SYS_sched_setattr, 0, &a, 0));
	attempt(r, "nice -20", setpriority(PRIO_PROCESS, 0, -20));
	struct rlimit rt = { 99, 99 };

	attempt(r, "RLIMIT_RTPRIO", setrlimit(RLIMIT_RTPRIO, &rt));
	attempt(r, "io priority realtime", syscall(SYS_ioprio_set, 1, 0, 1 << 13));
}

static void rx_12(struct run *r)
{
	long want = arg_number(r, "mib", 64);

	/* no line end at all, to standard output; the result goes to standard error */
	memset(block, 'A', sizeof(block));
	for (long i = 0; i < want; i++) {
		size_t done = 0;

		while (done < sizeof(block)) {
			ssize_t n = write(STDOUT_FILENO, block + done, sizeof(block) - done);

			if (n <= 0)
				_exit(1);
			done += (size_t)n;
		}
	}
	r->attempts++;
	remark(r, "%ld MiB written", want);
	fprintf(stderr, "flooded %ld\n", want);
}

static void rx_13(struct run *r)
{
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			*(volatile int *)(uintptr_t)8 = 1;
			_exit(0);
		}
		if (pid < 0)
			break;
		waitpid(pid, NULL, 0);
	}
	r->attempts = 100;
	remark(r, "100 crashes");
}

static void rx_20(struct run *r)
{
	/* a process protects itself from the OOM killer: the machine would pay */
	int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);

	attempt(r, "oom_score_adj -1000", fd < 0 ? -1 : write(fd, "-1000", 5));
	char now[16] = "";
	ssize_t n = fd < 0 ? -1 : pread(fd, now, sizeof(now) - 1, 0);

	if (n > 0 && atoi(now) <= 0)
		note(r, ESCAPED, "oom_score_adj %d: killed no sooner than the host's own",
			atoi(now));
	else
		remark(r, "oom_score_adj %s", now);
}

static void rx_20b(struct run *r)
{
	/* what it was given on the way in, taken off again */
	int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);

	attempt(r, "oom_score_adj 0", fd < 0 ? -1 : write(fd, "0", 1));
}

static void rx_21(struct run *r)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };

	attempt(r, "RLIMIT_MEMLOCK", setrlimit(RLIMIT_MEMLOCK, &unlimited));
	attempt(r, "RLIMIT_MSGQUEUE", setrlimit(RLIMIT_MSGQUEUE, &unlimited));
	attempt(r, "RLIMIT_SIGPENDING", setrlimit(RLIMIT_SIGPENDING, &unlimited));
	void *p = mmap(NULL, 128 * MIB, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	attempt(r, "mlock of 128 MiB", mlock(p, 128 * MIB));
}

const struct attack attacks_resource[] = {
	{ "CG-01", "mounts cgroup hierarchies, writes release_agent", cg_01 },
	{ "CG-02", "writes cgroup files", cg_02 },
	{ "CG-03", "clones into another cgroup", cg_03 },
	{ "RX-01", "forks until refused", rx_01 },
	{ "RX-01B", "fork bomb", rx_01b },
	{ "RX-02A", "memory bomb: anonymous", rx_02a },
	{ "RX-02B", "memory bomb: /dev/shm", rx_02b },
	{ "RX-02C", "memory bomb: memfd", rx_02c },
	{ "RX-02D", "memory bomb: System V shared memory", rx_02d },
	{ "RX-02E", "memory bomb: pipes", rx_02e },
	{ "RX-02F", "memory bomb: socket buffers", rx_02f },
	{ "RX-02G", "memory bomb: shared anonymous", rx_02g },
	{ "RX-02H", "memory bomb: page tables", rx_02h },
	{ "RX-02I", "memory bomb: buffers of TCP", rx_02i },
	{ "RX-02J", "memory bomb: buffers of UDP", rx_02j },
	{ "RX-04A", "fills the disk by writing", rx_04 },
	{ "RX-04B", "fills the disk by fallocate", rx_04b },
	{ "RX-04C", "fills the disk through a sparse mapping", rx_04c },
	{ "RX-04D", "fills the disk with a deleted file", rx_04d },
	{ "RX-05A", "takes all inodes", rx_05 },
	{ "RX-05B", "fills with extended attributes", rx_05b },
	{ "RX-05C", "fills with symbolic links", rx_05c },
	{ "RX-06", "takes all descriptors", rx_06 },
	{ "RX-08", "asynchronous I/O contexts", rx_08 },
	{ "RX-09", "watches, timers, message queues", rx_09 },
	{ "RX-09B", "takes all instances of inotify", rx_09b },
	{ "RX-10", "real-time and deadline scheduling", rx_10 },
	{ "RX-12", "floods its output", rx_12 },
	{ "RX-13", "crashes a hundred times", rx_13 },
	{ "RX-20", "hides from the OOM killer", rx_20 },
	{ "RX-20B", "takes back the score it was given", rx_20b },
	{ "RX-21", "locks memory, lifts limits", rx_21 },
	{ NULL, NULL, NULL },
};
