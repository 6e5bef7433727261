/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "checkpoint/alive.h"
#include "checkpoint/tracee_parts.h"
#include "codec/proctext.h"
#include "sys/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/elf.h>
#include <linux/rseq.h>
#include <linux/sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#ifndef PTRACE_GET_RSEQ_CONFIGURATION
#define PTRACE_GET_RSEQ_CONFIGURATION 0x420f
#endif

/* What the kernel answers to that. */
struct rseq_configuration {
	uint64_t address;
	uint32_t size, signature, flags, pad;
};

static bool
	taken_over; /* all threads were stopped by seizer_stop(), before this program was executed */

void tracee_take_over(void)
{
	taken_over = true;
}

bool tracee_has_taken_over(void)
{
	return taken_over;
}

int tracee_trace(int request, pid_t tid, uintptr_t address, const void *data)
{
	return ptrace((enum __ptrace_request)request, tid, (void *)address, data) < 0 ? -errno : 0;
}

/* --- stopping --- */

#define STOP_LOOK_US 50000 /* how often a wait looks at the time */

static uint64_t
	stop_deadline_ns; /* 0 = a stop is waited for without end, while there is who can stop */

static void on_alarm(attr_unused int signal)
{
}

/* From time to time, so that it is never lost. */
static void set_alarm(bool on)
{
	static bool handled;
	const struct itimerval every = { { 0, on ? STOP_LOOK_US : 0 },
		{ 0, on ? STOP_LOOK_US : 0 } };
	const struct sigaction action = {
		.sa_handler = on_alarm
	}; /* without SA_RESTART: it ends waitpid() */

	if (!handled)
		handled = sigaction(SIGALRM, &action, NULL) == 0;
	(void)setitimer(ITIMER_REAL, &every, NULL);
}

void tracee_hurry(bool on)
{
	stop_deadline_ns = on ? clock_now_ns() + TRACEE_STOP_NS : 0;
	set_alarm(on);
}

void tracee_expire(void)
{
	stop_deadline_ns = 1;
}

/* A first thread is not seen to end before the others have been waited for, which are ours as well: so who is killed is looked for. */
static bool has_ended(pid_t tid)
{
	cleanup_buf struct buf text = BUF_INIT(65536);
	struct proc_stat stat;
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	return file_read_at(AT_FDCWD, path, &text) < 0 ||
	       proc_stat_parse(buf_cstr(&text), &stat) < 0 || stat.state == 'Z' ||
	       stat.state == 'X';
}

/* Return: status, -errno (-EINTR: from time to time), 0 = @no_hang, and it does not stop yet. */
static int wait_once(pid_t tid, int no_hang)
{
	int status;
	pid_t got = waitpid(tid, &status, __WALL | no_hang);

	if (got <= 0)
		return got < 0 ? -errno : 0;
	return WIFSTOPPED(status) ? status : -ESRCH;
}

int tracee_wait(pid_t tid)
{
	bool hurried = stop_deadline_ns != 0;
	int rc = wait_once(tid, WNOHANG);

	alive();
	if (rc != 0 && rc != -EINTR)
		return rc;
	if (hurried && clock_now_ns() > stop_deadline_ns)
		return has_ended(tid) ? -ESRCH : -ETIMEDOUT;
	if (!hurried)
		set_alarm(true);
	do
		rc = wait_once(tid, 0);
	while (rc == -EINTR && !has_ended(tid) && (!hurried || clock_now_ns() <= stop_deadline_ns));
	if (!hurried)
		set_alarm(false);
	return rc != -EINTR ? rc : has_ended(tid) ? -ESRCH : -ETIMEDOUT;
}

/* Seized and told to stop; whoever is about to take a signal takes it later. Return: SIGTRAP, the signal that has stopped its process already, -errno. */
static int stop_thread(pid_t tid)
{
	int status;

	for (;;) {
		status = tracee_wait(tid);
		if (status < 0)
			return status;
		if (status >> 16 == PTRACE_EVENT_STOP)
			return WSTOPSIG(status);
		/* a signal came first: hand it on and wait for our stop */
		status = tracee_trace(PTRACE_CONT, tid, 0, (void *)(uintptr_t)WSTOPSIG(status));
		if (status < 0)
			return status;
	}
}

static int add_thread(struct tracee *t, pid_t tid)
{
	struct tracee_thread *all = realloc(t->threads, (t->n_threads + 1) * sizeof(*all));
	int rc;

	if (all == NULL)
		return -ENOMEM;
	t->threads = all;
	rc = taken_over ? 0 : tracee_trace(PTRACE_SEIZE, tid, 0, NULL);
	if (rc == 0 && !taken_over)
		rc = tracee_trace(PTRACE_INTERRUPT, tid, 0, NULL);
	if (rc < 0)
		return rc;
	all[t->n_threads++] = (struct tracee_thread){ .host = tid };
	return 0;
}

/* @proc: /proc/PID. @each is called with the threads in some order, until it fails. */
static int each_thread(int proc, int (*each)(struct tracee *t, pid_t tid), struct tracee *t)
{
	int fd = openat(proc, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	uint64_t tid;

	if (dir == NULL)
		return -errno;
	while (rc == 0 && (e = readdir(dir)) != NULL) {
		if (str_to_u64(e->d_name, 1, INT32_MAX, &tid) == 0)
			rc = each(t, (pid_t)tid);
	}
	(void)closedir(dir);
	return rc;
}

static int add_other_thread(struct tracee *t, pid_t tid)
{
	return tid == t->host ? 0 : add_thread(t, tid);
}

static int seize_threads(struct tracee *t)
{
	int rc = add_thread(t, t->host);

	return rc == 0 ? each_thread(t->proc, add_other_thread, t) : rc;
}

/* What a thread is told of its own instructions, and the kernel gives it before all else. */
#define SYNCHRONOUS \
	(1ULL << (SIGSEGV - 1) | 1ULL << (SIGBUS - 1) | 1ULL << (SIGILL - 1) | \
		1ULL << (SIGFPE - 1) | 1ULL << (SIGSYS - 1))

/*
 * The end of a step would take away what is set for it, or take its place in the queue. Where another signal of the thread's own instructions waits (it was stopped between a
 * fault and its handler), the kernel would give it that one in place of the end of the step, also while it is blocked.
 */
static bool has_trap(const char *status)
{
	static const char *const sets[] = { "SigCgt", "SigIgn", "SigPnd", "ShdPnd" };
	uint64_t all = 0;

	for (size_t i = 0; i < ARRAY_SIZE(sets); i++)
		all |= proc_number(status, sets[i], 16, 0);
	return (all >> (SIGTRAP - 1) & 1) != 0 ||
	       (proc_number(status, "SigPnd", 16, 0) & SYNCHRONOUS) != 0;
}

/* A sum (FNV-1a) of what clone(2) gives to a thread and its own calls can change: the C library's change that of all. */
static uint64_t identity_of(const char *status)
{
	static const char *const keys[] = { "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff",
		"CapBnd", "CapAmb" };
	uint64_t sum = 14695981039346656037ULL;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *value = proc_value(status, keys[i]);

		for (; value != NULL && *value != '\n' && *value != '\0'; value++)
			sum = (sum ^ (unsigned char)*value) * 1099511628211ULL;
		sum *= 1099511628211ULL;
	}
	return sum;
}

/* The text of the first thread is the process's. */
static int read_thread(struct tracee *t, struct tracee_thread *thread)
{
	cleanup_buf struct buf text = BUF_INIT(65536);
	uint64_t numbers[32];
	char path[48];
	size_t n;
	int rc;

	(void)snprintf(path, sizeof(path), "task/%d/status", thread->host);
	rc = file_read_at(t->proc, path, &text);
	if (rc < 0)
		return rc;
	n = proc_numbers(buf_cstr(&text), "NSpid", 10, numbers, ARRAY_SIZE(numbers));
	if (n == 0)
		return -EINVAL;
	thread->inner = (pid_t)numbers[n - 1];
	thread->filters = (uint32_t)proc_number(buf_cstr(&text), "Seccomp_filters", 10, 0);
	thread->no_new_privs = proc_number(buf_cstr(&text), "NoNewPrivs", 10, 0) != 0;
	thread->identity = identity_of(buf_cstr(&text));
	thread->traps = has_trap(buf_cstr(&text));
	thread->waiting = proc_number(buf_cstr(&text), "SigPnd", 16, 0) |
			  proc_number(buf_cstr(&text), "ShdPnd", 16, 0);
	if (thread->host == t->host) {
		buf_free(&t->status);
		t->status = text;
		text = (struct buf)BUF_INIT(0);
	}
	return 0;
}

static bool is_socket(const struct tracee *t, const struct tracee_thread *thread, uint64_t fd)
{
	char path[64], to[16] = { 0 };

	(void)snprintf(path, sizeof(path), "task/%d/fd/%d", thread->host, (int)fd);
	return readlinkat(t->proc, path, to, sizeof(to) - 1) > 0 && str_starts(to, "socket:");
}

/* Calls of sockets: where one has a time limit (SO_RCVTIMEO, SO_SNDTIMEO) the kernel does not make them again. */
static bool is_of_socket(const struct tracee *t, const struct tracee_thread *thread)
{
	const struct user_regs_struct *r = &thread->registers;

	switch (r->orig_rax) {
	case SYS_read:
	case SYS_readv:
	case SYS_write:
	case SYS_writev:
	case SYS_sendfile:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_recvmmsg:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_sendmmsg:
	case SYS_accept:
	case SYS_accept4:
	case SYS_connect:
		return is_socket(t, thread, r->rdi);
	case SYS_splice:
		return is_socket(t, thread, r->rdi) || is_socket(t, thread, r->rdx);
	default:
		return false;
	}
}

/* Calls that say EINTR after a stop although no signal came, and that wait without a limit or with one that guards a peer; event loops compute theirs anew. */
static bool is_to_wait_on(const struct tracee *t, const struct tracee_thread *thread)
{
	const struct user_regs_struct *r = &thread->registers;

	switch (r->orig_rax) {
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
		return (int32_t)r->r10 < 0;
	case SYS_epoll_pwait2:
		return r->r10 == 0;
	case SYS_rt_sigtimedwait:
		return r->rdx == 0;
	case SYS_semop:
	case SYS_semtimedop:
		return true;
	default:
		return is_of_socket(t, thread);
	}
}

/*
 * Nobody is to see that it was stopped: neither the fork nor the source, whatever becomes of the capture. The kernel itself makes the call again when the thread leaves the stop;
 * where a signal has come meanwhile, in hours of a pause, it says EINTR behind the handler instead, as it would have.
 */
static void forget_stop(const struct tracee *t, struct tracee_thread *thread)
{
	struct user_regs_struct *r = &thread->registers;

	thread->again = (long long)r->orig_rax >= 0 && (long long)r->rax == -EINTR &&
			(thread->waiting & ~thread->mask) == 0 && is_to_wait_on(t, thread);
	if (thread->again)
		r->rax = (unsigned long long)-RESTART_NO_HAND;
}

static int read_rseq(struct tracee_thread *thread)
{
	struct rseq_configuration c = { 0 };
	int rc = tracee_trace(PTRACE_GET_RSEQ_CONFIGURATION, thread->host, sizeof(c), &c);

	thread->rseq = c.address;
	thread->rseq_size = c.size;
	thread->rseq_signature = c.signature;
	return rc == -EIO || rc == -EINVAL ? 0 : rc;
}

/*
 * Who was stopped within a restartable sequence does not go on in it: as soon as it runs the kernel sends it to where the sequence is begun anew. If it runs for us first, the
 * kernel only forgets the sequence. So it is sent there here; a sequence that is not right is left to the kernel, which kills for it.
 */
static void leave_sequence(const struct tracee *t, struct tracee_thread *thread)
{
	struct user_regs_struct *r = &thread->registers;
	struct rseq_cs now;
	uint64_t at = 0;
	uint32_t signature;

	if (thread->rseq == 0 || (long long)r->orig_rax >= 0 ||
		tracee_read(t, thread->rseq + offsetof(struct rseq, rseq_cs), &at, sizeof(at)) <
			0 ||
		at == 0 || tracee_read(t, at, &now, sizeof(now)) < 0)
		return;
	if (now.version == 0 && now.flags == 0 && r->rip - now.start_ip < now.post_commit_offset &&
		now.abort_ip - now.start_ip >= now.post_commit_offset &&
		tracee_read(t, now.abort_ip - sizeof(signature), &signature, sizeof(signature)) ==
			0 &&
		signature == thread->rseq_signature)
		r->rip = now.abort_ip;
}

static int look_at_thread(struct tracee *t, struct tracee_thread *thread)
{
	int stop = stop_thread(thread->host), rc = stop < 0 ? stop : read_thread(t, thread);

	t->stopped |= stop >= 0 && stop != SIGTRAP;
	if (rc == 0)
		rc = tracee_trace(PTRACE_GETREGS, thread->host, 0, &thread->registers);
	if (rc == 0)
		rc = tracee_trace(
			PTRACE_GETSIGMASK, thread->host, sizeof(thread->mask), &thread->mask);
	if (rc == 0)
		rc = read_rseq(thread);
	if (rc == 0)
		leave_sequence(t, thread);
	/* who was stopped by a signal is told so by some calls, as ever */
	if (rc == 0 && stop == SIGTRAP)
		forget_stop(t, thread);
	return rc;
}

#define EXITING 0x4U /* PF_EXITING of the kernel (include/linux/sched.h) */

/* A thread of a process that is being killed has ended, too, or is about to. */
static int note_living(struct tracee *t, pid_t tid)
{
	cleanup_buf struct buf text = BUF_INIT(65536), status = BUF_INIT(65536);
	struct proc_stat stat;
	char path[48];

	(void)snprintf(path, sizeof(path), "task/%d/stat", tid);
	if (tid == t->host || file_read_at(t->proc, path, &text) < 0 ||
		proc_stat_parse(buf_cstr(&text), &stat) < 0)
		return 0;
	(void)snprintf(path, sizeof(path), "task/%d/status", tid);
	if (stat.state != 'Z' && stat.state != 'X' && (stat.flags & EXITING) == 0 &&
		file_read_at(t->proc, path, &status) == 0 &&
		(proc_number(buf_cstr(&status), "SigPnd", 16, 0) >> (SIGKILL - 1) & 1) == 0)
		t->headless = true;
	return 0;
}

static int read_state(struct tracee *t)
{
	cleanup_buf struct buf text = BUF_INIT(65536);
	struct proc_stat stat;
	int rc = file_read_at(t->proc, "stat", &text);

	if (rc == 0)
		rc = proc_stat_parse(buf_cstr(&text), &stat);
	if (rc == 0)
		t->zombie = stat.state == 'Z';
	if (rc == 0 && t->zombie)
		rc = each_thread(t->proc, note_living, t);
	return rc;
}

static int read_number(struct tracee *t)
{
	struct tracee_thread leader = { .host = t->host };
	int rc = read_thread(t, &leader);

	t->inner = leader.inner;
	return rc;
}

static int note_thread(struct tracee *t, pid_t tid)
{
	struct tracee_thread thread = { .host = tid }, *all;

	if (read_thread(t, &thread) < 0)
		return 0; /* it has ended meanwhile */
	all = realloc(t->threads, (t->n_threads + 1) * sizeof(*all));
	if (all == NULL)
		return -ENOMEM;
	t->threads = all;
	all[t->n_threads++] = thread;
	return 0;
}

static int count_one(struct tracee *count, attr_unused pid_t tid)
{
	count->n_threads++;
	return 0;
}

size_t tracee_count_threads(const struct tracee *t)
{
	struct tracee count = { 0 };

	return each_thread(t->proc, count_one, &count) < 0 ? 0 : count.n_threads;
}

int tracee_watch_threads(struct tracee *t)
{
	return each_thread(t->proc, note_thread, t);
}

void tracee_forget_threads(struct tracee *t)
{
	free(t->threads);
	t->threads = NULL;
	t->n_threads = 0;
}

static int begin(struct tracee *t, pid_t host)
{
	char path[32];

	*t = (struct tracee){ .host = host, .status = BUF_INIT(65536) };
	(void)snprintf(path, sizeof(path), "/proc/%d", host);
	t->proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return t->proc < 0 ? -errno : read_state(t);
}

int tracee_watch(struct tracee *t, pid_t host)
{
	int rc = begin(t, host);

	return rc < 0 ? rc : read_number(t);
}

int tracee_stop(struct tracee *t, pid_t host)
{
	int rc = begin(t, host);

	if (rc == 0 && t->zombie)
		rc = read_number(t);
	if (rc < 0 || (t->zombie && !t->headless))
		return rc;
	rc = t->headless ? each_thread(t->proc, add_other_thread, t) : seize_threads(t);
	/* all, even when one cannot be stopped: the others have been, and it must not show */
	for (size_t i = 0; i < t->n_threads; i++) {
		int this = look_at_thread(t, &t->threads[i]);

		rc = rc < 0 ? rc : this;
	}
	if (!t->headless && t->n_threads > 0)
		t->inner = t->threads[0].inner;
	return rc;
}

/* --- letting go --- */

static void restore(struct tracee_thread *thread)
{
	(void)tracee_trace(PTRACE_SETREGS, thread->host, 0, &thread->registers);
	(void)tracee_trace(PTRACE_SETSIGMASK, thread->host, sizeof(thread->mask), &thread->mask);
	(void)tracee_trace(PTRACE_SETOPTIONS, thread->host, 0, NULL);
	thread->changed = false;
}

void tracee_release(struct tracee *t)
{
	tracee_scratch_end(&t, 1);
	for (size_t i = 0; i < t->n_threads; i++) {
		struct tracee_thread *thread = &t->threads[i];

		if (thread->changed)
			restore(thread);
		else if (thread->again)
			(void)tracee_trace(PTRACE_SETREGS, thread->host, 0, &thread->registers);
		(void)tracee_trace(PTRACE_DETACH, thread->host, 0, NULL);
	}
	tracee_forget_threads(t);
	buf_free(&t->status);
	if (t->proc > 0)
		(void)close(t->proc);
	t->proc = -1;
}

/* Signal to hand on when it goes, or -errno. A call that it makes for us is ended by the stop. */
static int bring_to_stop(struct tracee_thread *thread)
{
	int status;

	tracee_hurry(true);
	status = tracee_await(thread, false);
	if (status == -ETIMEDOUT && tracee_trace(PTRACE_INTERRUPT, thread->host, 0, NULL) == 0) {
		tracee_hurry(true);
		status = tracee_wait(thread->host);
	}
	tracee_hurry(false);
	if (status == -ETIMEDOUT || status == -ESRCH)
		return status;
	thread->runs = false;
	/* anything else is a stop of which it learns nothing, but for a signal on its way */
	return status > 0 && status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP &&
			       WSTOPSIG(status) != (SIGTRAP | 0x80)
		       ? WSTOPSIG(status)
		       : 0;
}

#define LARGEST_CODE 0xff /* what a signal says of itself; that of another stop is larger */

/* It has not begun to run yet, or has stopped again, and we were torn out before we took note of it. @ret: a signal on its way to it. */
static bool is_stopped(const struct tracee_thread *thread, int *ret)
{
	siginfo_t info = { 0 };
	int rc = tracee_trace(PTRACE_GETSIGINFO, thread->host, 0, &info);

	*ret = rc == 0 && info.si_signo != SIGTRAP && info.si_code <= LARGEST_CODE ? info.si_signo
										   : 0;
	return rc == 0 || rc == -EINVAL;
}

void tracee_calm(struct tracee *t)
{
	for (size_t i = 0; i < t->n_threads; i++) {
		struct tracee_thread *thread = &t->threads[i];

		if (thread->runs && is_stopped(thread, &thread->signal))
			thread->runs = false;
		else if (thread->runs)
			thread->signal = bring_to_stop(thread);
	}
}

unsigned int tracee_give_up(struct tracee *t)
{
	unsigned int left = 0;

	tracee_calm(t);
	tracee_hurry(true);
	if (t->n_threads > 0 && t->threads[0].signal == 0)
		tracee_scratch_end(&t, 1);
	tracee_hurry(false);
	for (size_t i = 0; i < t->n_threads; i++) {
		struct tracee_thread *thread = &t->threads[i];
		int signal = thread->signal > 0 ? thread->signal : 0;

		if (thread->changed || thread->again)
			restore(thread);
		if (tracee_trace(PTRACE_DETACH, thread->host, 0, (void *)(uintptr_t)signal) < 0 &&
			!has_ended(thread->host))
			left++;
	}
	return left;
}
