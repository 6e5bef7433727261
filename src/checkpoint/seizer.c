/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/seizer.h"
#include "base/clock.h"
#include "base/str.h"
#include "checkpoint/dump_wire.h"
#include "checkpoint/tracee.h"
#include "sys/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#ifndef PTRACE_SECCOMP_GET_METADATA
#define PTRACE_SECCOMP_GET_METADATA 0x420d
#endif
#define FILTER_LOG 2U /* SECCOMP_FILTER_FLAG_LOG */

struct metadata {
	uint64_t index, flags;
};

struct seizer {
	struct buf out;
	struct buf threads; /* int32_t each */
	struct stat u2;
	uint32_t base;       /* filters that are the sandbox's own */
	size_t last, last_n; /* where the filters are that were written last */
};

/* One of them. Return: 1, 0 when there is none, -errno. */
static int add_filter(struct buf *out, pid_t tid, uint32_t index)
{
	static struct sock_filter code[BPF_MAXINSNS];
	struct metadata m = { .index = index };
	struct seized_filter f = { 0 };
	long n = ptrace((enum __ptrace_request)PTRACE_SECCOMP_GET_FILTER, tid,
		(void *)(uintptr_t)index, code);

	if (n < 0)
		return errno == ENOENT || errno == EINVAL ? 0 : -errno;
	if (ptrace((enum __ptrace_request)PTRACE_SECCOMP_GET_METADATA, tid, (void *)sizeof(m), &m) >
		0)
		f.log = (m.flags & FILTER_LOG) != 0;
	f.n = (uint32_t)n;
	buf_add(out, &f, sizeof(f));
	buf_add(out, code, f.n * sizeof(*code));
	return 1;
}

static bool same_as_last(const struct seizer *s, const struct buf *filters)
{
	return s->last_n > 0 && s->last_n == filters->n &&
	       memcmp(s->out.p + s->last, filters->p, filters->n) == 0;
}

/* All or none of them. */
static void add_filters(struct seizer *s, pid_t tid)
{
	cleanup_buf struct buf filters = BUF_INIT(SEIZED_MAX);
	struct seized_thread thread = { .host = tid };
	int rc;

	while ((rc = add_filter(&filters, tid, s->base + thread.n)) == 1)
		thread.n++;
	if (rc < 0 || thread.n == 0 || buf_failed(&filters) ||
		s->out.n + 2 * sizeof(thread) + filters.n > SEIZED_MAX)
		return;
	if (same_as_last(s, &filters)) {
		thread.n = SEIZED_SAME;
		buf_add(&s->out, &thread, sizeof(thread));
		return;
	}
	buf_add(&s->out, &thread, sizeof(thread));
	s->last = s->out.n;
	s->last_n = filters.n;
	buf_add(&s->out, filters.p, filters.n);
}

/* Stopped, because we told it to; the stop stays to be waited for by who takes over. */
static int wait_stopped(pid_t tid, uint64_t deadline_ns)
{
	siginfo_t info;
	int status;

	for (;;) {
		if (waitid(P_PID, (id_t)tid, &info, WSTOPPED | WEXITED | WNOWAIT | __WALL) < 0) {
			if (errno != EINTR)
				return -errno;
			if (clock_now_ns() > deadline_ns)
				return -ETIMEDOUT;
			continue;
		}
		if (info.si_code != CLD_TRAPPED)
			return -ESRCH;
		if (info.si_status >> 8 == PTRACE_EVENT_STOP)
			return 0;
		/* a signal came first: hand it on and wait for our stop */
		if (waitpid(tid, &status, __WALL) != tid ||
			ptrace(PTRACE_CONT, tid, NULL, (void *)(uintptr_t)WSTOPSIG(status)) < 0)
			return -errno;
	}
}

/* No process of the sandbox can leave U2 or make a user namespace below it (sandbox/builder.c). */
static bool is_inside(const struct seizer *s, pid_t tid)
{
	char path[40];
	struct stat now;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", tid);
	return stat(path, &now) == 0 && now.st_dev == s->u2.st_dev && now.st_ino == s->u2.st_ino;
}

/* A number that had come free could be anybody's on the machine; from now on it does not come free. Without options who is seized is let go when we end. */
static int seize(struct seizer *s, pid_t tid)
{
	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0)
		return 0; /* it has gone */
	if (!is_inside(s, tid))
		return -ESRCH;
	buf_add(&s->threads, &(int32_t){ tid }, sizeof(int32_t));
	return 0;
}

/* All threads of @pid but those that have gone. */
static int seize_threads(struct seizer *s, pid_t pid)
{
	char path[32];
	const struct dirent *e;
	uint64_t tid;
	DIR *dir;
	int rc = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (rc == 0 && dir != NULL && (e = readdir(dir)) != NULL) {
		if (str_to_u64(e->d_name, 1, INT32_MAX, &tid) == 0)
			rc = seize(s, (pid_t)tid);
	}
	if (dir != NULL)
		(void)closedir(dir);
	return rc;
}

static bool set_options(pid_t tid, uintptr_t options)
{
	return ptrace(PTRACE_SETOPTIONS, tid, NULL, (void *)options) == 0;
}

/* Whose filters cannot be read is refused by the dumper, which misses them. Return: of wait_stopped(). */
static int suspend(struct seizer *s, pid_t tid, uint64_t deadline_ns)
{
	int rc = wait_stopped(tid, deadline_ns);

	if (rc == 0 && set_options(tid, TRACEE_OPTIONS | PTRACE_O_SUSPEND_SECCOMP))
		add_filters(s, tid);
	else if (rc == 0 && !set_options(tid, TRACEE_OPTIONS))
		rc = -ESRCH;
	return rc;
}

/* It is a program of the sandbox that decides how many cannot be stopped (each parent in vfork()): the first is waited for, and no other. */
static void suspend_all(struct seizer *s)
{
	const int32_t *tids = (const int32_t *)(const void *)s->threads.p;
	size_t n = s->threads.n / sizeof(*tids);
	uint64_t deadline_ns = clock_now_ns() + TRACEE_STOP_NS;
	struct seized_thread left = { .n = SEIZED_LEFT };
	int rc = 0;

	tracee_hurry(true); /* its signals end waits */
	for (size_t i = 0; i < n; i++)
		(void)ptrace(PTRACE_INTERRUPT, tids[i], NULL, NULL);
	for (size_t i = 0; rc != -ETIMEDOUT && i < n; i++) {
		rc = suspend(s, tids[i], deadline_ns);
		left.host = tids[i];
	}
	tracee_hurry(false);
	/* whoever stops from now on has no options, so nothing may be done to it */
	if (rc == -ETIMEDOUT)
		buf_add(&s->out, &left, sizeof(left));
}

/* The order stays where it is. */
static int wait_for_order(int keeper, struct dump_order *order)
{
	ssize_t n;

	do
		n = recv(keeper, order, sizeof(*order), MSG_PEEK);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(*order) && order->kind == DUMP_ORDER &&
			       order->n_pids <= TEMPLATE_PIDS_MAX
		       ? 0
		       : -EPROTO;
}

int seizer_stop(int keeper, int u2)
{
	static struct dump_order order;
	struct seizer s = { .out = BUF_INIT(SEIZED_MAX), .threads = BUF_INIT(SEIZED_MAX) };
	cleanup_fd int fd = memfd_create("filters", MFD_CLOEXEC);
	int rc = fd < 0 || fstat(u2, &s.u2) < 0 ? -errno : wait_for_order(keeper, &order);

	s.base = order.filters;
	for (uint32_t i = 0; rc == 0 && i < order.n_pids; i++)
		rc = seize_threads(&s, order.pids[i]);
	if (rc == 0) {
		suspend_all(&s);
		rc = file_write_all(fd, s.out.p, s.out.n);
	}
	buf_free(&s.threads);
	buf_free(&s.out);
	return rc < 0 ? rc : TAKE_FD(fd);
}
