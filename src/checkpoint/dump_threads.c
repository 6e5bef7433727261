/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/dump_threads.c - registers, and what the kernel keeps for one thread. */
#include "checkpoint/dump.h"
#include "sys/file.h"

#include <cpuid.h>
#include <linux/elf.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define CODE_SEGMENT_64 0x33

/* an area as XSAVE writes it: which states it has room for (the kernel's word), which are not as they begin */
#define XSAVE_ROOM     464U
#define XSAVE_USED     512U
#define XSAVE_LEGACY   576U
#define XSAVE_EXTENDED 2U           /* the first state behind that */
#define XSAVE_TILES    (3ULL << 17) /* AMX: a thread has room for them once it has used them */
#define CPUID_XSAVE    0xd

#define PROCESSORS_MAX 8192 /* of a machine */
#define IO_OF_THREAD   1    /* IOPRIO_WHO_PROCESS */
#define IO_CLASS_SHIFT 13
#define RESET_ON_FORK  1 /* SCHED_FLAG_RESET_ON_FORK */

/* struct sched_attr of the kernel, whose header does not bear that of libc */
struct scheduling {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

/* __syscall_cancel_arch() of glibc from 2.41 on, from the instruction behind its test to "syscall": the number is its second argument, %rsi. */
static const unsigned char cancellable[] = { 0x49, 0x89, 0xfb, 0x48, 0x89, 0xf0, 0x48, 0x89, 0xd7,
	0x48, 0x89, 0xce, 0x4c, 0x89, 0xc2, 0x4d, 0x89, 0xca, 0x4c, 0x8b, 0x44, 0x24, 0x08, 0x4c,
	0x8b, 0x4c, 0x24, 0x10, 0x4c, 0x89, 0x5c, 0x24, 0x08, 0x0f, 0x05 };

/* Where its caller took that from: "mov at(%rsp), %rsi" a few instructions before the call. Return: 0: it cannot be seen. */
static uint64_t passed_at(const struct tracee *t, uint64_t sp)
{
	unsigned char code[32];
	uint64_t behind;

	if (tracee_read(t, sp, &behind, sizeof(behind)) < 0 ||
		tracee_read(t, behind - sizeof(code), code, sizeof(code)) < 0 ||
		code[sizeof(code) - 5] != 0xe8)
		return 0;
	for (size_t i = sizeof(code) - 10; i > 0; i--) {
		if (memcmp(code + i, "\x48\x8b\x74\x24", 4) == 0 && code[i + 4] < 0x80)
			return sp + 8 + code[i + 4];
	}
	return 0;
}

/* What is at @at of a stack. */
static uint64_t number_at(const struct tracee *t, uint64_t at)
{
	uint64_t nr;

	return at != 0 && tracee_read(t, at, &nr, sizeof(nr)) >= 0 ? nr : UINT64_MAX;
}

/*
 * What the kernel has put in the place of a call that goes on after a stop (restart_syscall) is in the code: "mov $nr, %eax" before "syscall", or, in glibc from 2.41 on,
 * "mov at(%rsp), %rax" and in the function above.
 */
static long call_in_code(const struct tracee *t, const struct user_regs_struct *r)
{
	unsigned char code[sizeof(cancellable)];
	const unsigned char *last = code + sizeof(code) - 7;
	uint64_t nr = UINT64_MAX;

	if (tracee_read(t, r->rip - sizeof(code), code, sizeof(code)) < 0)
		return -1;
	if (memcmp(code, cancellable, sizeof(code)) == 0)
		nr = number_at(t, passed_at(t, r->rsp));
	else if (memcmp(last, "\x48\x8b\x44\x24", 4) == 0 && last[4] < 0x80)
		nr = number_at(t, r->rsp + last[4]);
	else if (last[0] == 0xb8)
		nr = last[1] | (uint64_t)last[2] << 8 | (uint64_t)last[3] << 16 |
		     (uint64_t)last[4] << 24;
	return nr == SYS_poll || nr == SYS_nanosleep || nr == SYS_clock_nanosleep || nr == SYS_futex
		       ? (long)nr
		       : -1;
}

/* The kernel has written the time that remains to where the program asks for it: the call is made again with that. */
static void sleep_the_rest(struct user_regs_struct *r, long nr)
{
	if (nr == SYS_nanosleep && r->rsi != 0)
		r->rdi = r->rsi;
	else if (nr == SYS_clock_nanosleep && r->r10 != 0)
		r->rdx = r->r10;
}

/*
 * In the source the kernel makes an interrupted call again by itself. In the fork nobody knows of it: step back to the instruction. A restart block holds
 * the time that remains, and only the kernel can read it: unless it has told the program too, the call starts with what its arguments say. One that the kernel has
 * taken up once before has lost its number; where the code does not tell it, the call says EINTR, as it may.
 */
static uint32_t restart_call(const struct tracee *t, struct user_regs_struct *r)
{
	long long result = (long long)r->rax;
	long nr = (long)r->orig_rax;

	if (nr < 0)
		return 0;
	if (nr == SYS_restart_syscall && result == -RESTART_BLOCK)
		nr = call_in_code(t, r);
	if (result == -RESTART_BLOCK)
		sleep_the_rest(r, nr);
	if (nr < 0)
		r->rax = (unsigned long long)-EINTR;
	if (nr < 0 || (result != -RESTART_SYS && result != -RESTART_NO_INTR &&
			      result != -RESTART_NO_HAND && result != -RESTART_BLOCK))
		return 0;
	r->rax = (unsigned long long)nr;
	r->rip -= 2;
	/* a handler that comes first ends it as it would have */
	return result == -RESTART_BLOCK ? RESTART_NO_HAND : (uint32_t)-result;
}

/* Where the last of @states ends. The kernel takes back no more than a fresh thread has room for: not all that the processor could have. */
static uint32_t xsave_end(uint64_t states)
{
	static uint64_t known;
	static uint32_t last;
	unsigned int size, at, c, d;

	if (states == known)
		return last;
	last = XSAVE_LEGACY;
	for (unsigned int i = XSAVE_EXTENDED; i < 63; i++) {
		if ((states >> i & 1) != 0 &&
			__get_cpuid_count(CPUID_XSAVE, i, &size, &at, &c, &d) != 0 &&
			at + size > last)
			last = at + size;
	}
	known = states;
	return last;
}

/* Return: 0, -errno, -ENOTSUP when the thread has tiles, which sigreturn gives to nobody who has not used some. */
static int read_xsave(struct dump *d, pid_t tid, struct image_thread *out)
{
	unsigned char area[TRACEE_XSAVE_MAX + 64] = { 0 };
	struct iovec iov = { area, sizeof(area) };
	uint64_t room, used;
	uint32_t end;

	if (ptrace(PTRACE_GETREGSET, tid, NT_X86_XSTATE, &iov) < 0)
		return -errno;
	if (iov.iov_len > TRACEE_XSAVE_MAX)
		return -E2BIG;
	memcpy(&room, area + XSAVE_ROOM, sizeof(room));
	memcpy(&used, area + XSAVE_USED, sizeof(used));
	if ((used & XSAVE_TILES) != 0)
		return -ENOTSUP;
	room &= ~XSAVE_TILES;
	memcpy(area + XSAVE_ROOM, &room, sizeof(room));
	end = xsave_end(room);
	out->xsave = image_add_bytes(&d->image, area, end < iov.iov_len ? end : iov.iov_len);
	return 0;
}

static int read_robust_list(pid_t tid, struct image_thread *out)
{
	uint64_t head = 0;
	size_t length = 0;

	if (syscall(SYS_get_robust_list, tid, &head, &length) < 0)
		return -errno;
	out->robust_list = head;
	out->robust_length = (uint32_t)length;
	return 0;
}

/* What only the thread itself could ask for. */
static int read_told(const struct dump_process *p, size_t i, struct image_thread *out)
{
	const struct tracee_question *stack = dump_told_thread(p, i), *tid = stack + 1,
				     *slack = stack + 2;
	struct {
		uint64_t at;
		uint32_t flags, pad;
		uint64_t size;
	} answer;

	memcpy(&answer, stack->answer, sizeof(answer));
	memcpy(&out->tid_address, tid->answer, sizeof(out->tid_address));
	out->altstack = answer.at;
	out->altstack_size = answer.size;
	out->altstack_flags = answer.flags;
	out->timer_slack_ns = slack->result < 0 ? 0 : (uint64_t)slack->result;
	return stack->result < 0 ? (int)stack->result : tid->result < 0 ? (int)tid->result : 0;
}

/* The first thread's is in what was read of the process, where some kernels write newlines and backslashes otherwise. */
static int read_name(const struct dump_process *p, pid_t tid, struct image_thread *out)
{
	cleanup_buf struct buf text = BUF_INIT(4096);
	char path[48];
	size_t n;
	int rc;

	_Static_assert(sizeof(out->name) == sizeof(p->stat.name), "it is as long");
	if (tid == p->tracee.host && strchr(p->stat.name, '\\') == NULL) {
		memcpy(out->name, p->stat.name, sizeof(out->name));
		return 0;
	}
	(void)snprintf(path, sizeof(path), "task/%d/comm", tid);
	rc = file_read_at(p->tracee.proc, path, &text);
	n = rc < 0 ? 0 : text.n;
	if (n > 0 && text.p[n - 1] == '\n')
		n--;
	memcpy(out->name, buf_cstr(&text), n < sizeof(out->name) - 1 ? n : sizeof(out->name) - 1);
	return rc;
}

/* Only where it is not ours: a sandbox's processes begin with what the keeper has, and we have it from there. */
static int read_processors(struct dump *d, pid_t tid, struct image_thread *out)
{
	static unsigned char all[PROCESSORS_MAX / 8], own[PROCESSORS_MAX / 8];
	static long all_n;
	long n = syscall(SYS_sched_getaffinity, tid, sizeof(own), own);

	if (all_n == 0)
		all_n = syscall(SYS_sched_getaffinity, 0, sizeof(all), all);
	if (n < 0 || all_n < 0)
		return -errno;
	if (n != all_n || memcmp(all, own, (size_t)n) != 0)
		out->processors = image_add_bytes(&d->image, own, (size_t)n);
	return 0;
}

static int read_scheduling(struct dump *d, pid_t tid, struct image_thread *out)
{
	struct scheduling attr = { .size = sizeof(attr) };
	long io = syscall(SYS_ioprio_get, IO_OF_THREAD, tid);

	if (syscall(SYS_sched_getattr, tid, &attr, sizeof(attr), 0) < 0 || io < 0)
		return -errno;
	out->policy = attr.policy;
	out->priority = attr.priority;
	out->nice = attr.nice;
	out->reset_on_fork = (attr.flags & RESET_ON_FORK) != 0;
	out->io_priority = io >> IO_CLASS_SHIFT != 0 ? (uint32_t)io : 0;
	return read_processors(d, tid, out);
}

static int dump_thread(struct dump *d, struct dump_process *p, size_t i, struct err *err)
{
	struct tracee_thread *t = &p->tracee.threads[i];
	struct image_thread out = { .tid = t->inner,
		.mask = t->mask,
		.rseq = t->rseq,
		.rseq_length = t->rseq_size,
		.rseq_signature = t->rseq_signature };
	struct user_regs_struct r = t->registers;
	int rc;

	dump_filters(d, p, i, &out);
	out.restart = restart_call(&p->tracee, &r);
	memcpy(out.registers, &r, sizeof(out.registers));
	rc = read_xsave(d, t->host, &out);
	if (rc == -ENOTSUP)
		return dump_refuse(
			p, err, "its thread %d has tiles (AMX) in its registers", t->inner);
	if (rc == 0)
		rc = read_robust_list(t->host, &out);
	if (rc == 0)
		rc = read_name(p, t->host, &out);
	if (rc == 0)
		rc = read_told(p, i, &out);
	if (rc == 0)
		rc = read_scheduling(d, t->host, &out);
	if (rc < 0)
		return err_raise_sys(err, rc, "read thread %d of process %d (%s)", t->inner,
			p->tracee.inner, p->name);
	out.first_siginfo = p->queued[i].first;
	out.n_siginfos = p->queued[i].n;
	(void)IMAGE_ADD(&d->image, TABLE_THREADS, &out);
	return 0;
}

int dump_threads_check(struct dump_process *p, struct err *err)
{
	for (size_t i = 0; i < p->tracee.n_threads; i++) {
		if (p->tracee.threads[i].registers.cs != CODE_SEGMENT_64)
			return dump_refuse(p, err, "its thread %d runs 32-bit code",
				p->tracee.threads[i].inner);
	}
	return 0;
}

int dump_threads(struct dump *d, struct dump_process *p, struct err *err)
{
	p->out.first_thread = image_count(&d->image, TABLE_THREADS, sizeof(struct image_thread));
	p->out.n_threads = (uint32_t)p->tracee.n_threads;
	for (size_t i = 0; i < p->tracee.n_threads; i++) {
		int rc = dump_thread(d, p, i, err);

		if (rc < 0)
			return rc;
	}
	dump_filters_end(d, p);
	return 0;
}
