/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/threads.c - the other threads, and the way out: each thread leaves by rt_sigreturn from a frame in the residue.
 *
 * The residue is a page of instructions and the frames. Every thread but the first counts itself out there; the first waits for them, unmaps
 * everything else of the restorer from there, and leaves last.
 */
#include "prog/cay-template/fork.h"

#include <linux/prctl.h>
#include <linux/sched.h>

#define THREAD_FLAGS \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | \
		CLONE_SETTLS)
#define THREAD_STACK        (16UL << 10)
#define RESIDUE_END         (WINDOW_RESIDUE + (1ULL << 36))
#define ARCH_SET_GS         0x1001
#define ARCH_SET_FS         0x1002
#define ARCH_REQ_XCOMP_PERM 0x1023
#define EXTENDED            18   /* the first register state that is not there by itself */
#define KEEP_PARAMETERS     0x10 /* SCHED_FLAG_KEEP_PARAMS */
#define SET_MDWE            65   /* PR_SET_MDWE */
#define DONT_FORK           10   /* MADV_DONTFORK */
#define XSTATE_MAGIC1       0x46505853U
#define XSTATE_MAGIC2       0x46505845U
#define XSAVE_SW            464 /* struct _fpx_sw_bytes in the legacy area */
#define RESTART_SYS         512 /* ERESTARTSYS: made again behind a handler of SA_RESTART */
#define RESTART_NO_HAND     514 /* ERESTARTNOHAND: behind none */
#define SA_RESTART          0x10000000

/* index of struct user_regs_struct */
enum {
	R15,
	R14,
	R13,
	R12,
	RBP,
	RBX,
	R11,
	R10,
	R9,
	R8,
	RAX,
	RCX,
	RDX,
	RSI,
	RDI,
	ORIG_RAX,
	RIP,
	CS,
	FLAGS,
	RSP,
	SS,
	FS_BASE,
	GS_BASE
};

/* what the kernel reads back: struct rt_sigframe without the return address */
struct frame {
	uint64_t uc_flags, uc_link, stack_at, stack_flags, stack_size;
	uint64_t r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip,
		flags;
	uint16_t cs, gs, fs, ss;
	uint64_t error, trap, old_mask, fault, xsave;
	uint64_t reserved[8];
	uint64_t mask;
	uint8_t siginfo[128];
};

/* The instructions of the residue. Frames lie behind them. */
__asm__(".pushsection .text\n"
	".globl residue_begin, residue_first, residue_of_calls, residue_end\n"
	"residue_begin:\n" /* any other thread: rdi = counter */
	"\tlock incl (%rdi)\n"
	"\tmov $15, %eax\n"
	"\tsyscall\n"
	"\tud2\n"
	"residue_first:\n" /* r12, r13: first range to unmap; r14, r15: second */
	"\tmov $11, %eax\n"
	"\tmov %r12, %rdi\n"
	"\tmov %r13, %rsi\n"
	"\tsyscall\n"
	"\tmov $11, %eax\n"
	"\tmov %r14, %rdi\n"
	"\tmov %r15, %rsi\n"
	"\tsyscall\n"
	"\tmov $15, %eax\n"
	"\tsyscall\n"
	"\tud2\n"
	"residue_of_calls:\n" /* rbx: struct residue_call each; whoever traces it counts, and takes it away */
	"\tmov (%rbx), %rax\n"
	"\tmov 8(%rbx), %rdi\n"
	"\tmov 16(%rbx), %rsi\n"
	"\tmov 24(%rbx), %rdx\n"
	"\tmov 32(%rbx), %r8\n"
	"\tsyscall\n"
	"\tadd $40, %rbx\n"
	"\tjmp residue_of_calls\n"
	"residue_end:\n"
	".popsection\n");
extern char residue_begin[], residue_first[], residue_of_calls[], residue_end[];

static uint32_t prepared; /* threads that only wait for the end of the stages */

static uint32_t *left(void)
{
	return (uint32_t *)(WINDOW_RESIDUE + BARE_PAGE);
}

/* Signals that waited when one of the other threads left. */
static uint64_t *seen(void)
{
	return (uint64_t *)(WINDOW_RESIDUE + BARE_PAGE) + 1;
}

static struct frame *frame_of(uint32_t i)
{
	return (struct frame *)(WINDOW_RESIDUE + 2 * BARE_PAGE + (uint64_t)i * RESIDUE_FRAME_SIZE);
}

uint64_t residue_calls(void)
{
	return WINDOW_RESIDUE + (uint64_t)(residue_of_calls - residue_begin);
}

static void make_residue(const struct image_process *p)
{
	char *filters = (char *)frame_of(p->n_threads);

	(void)fork_must(bare_map(WINDOW_RESIDUE,
				(uint64_t)filters + filters_size(p) - WINDOW_RESIDUE, 3, 2),
		"map the last page");
	memcpy((void *)WINDOW_RESIDUE, residue_begin, (size_t)(residue_end - residue_begin));
	(void)fork_must(
		CALL3(__NR_mprotect, WINDOW_RESIDUE, BARE_PAGE, 5), "protect the last page");
	filters_lay(p, filters);
}

static void fill_xsave(struct frame *f, const struct image_thread *t)
{
	char *area = (char *)f + RESIDUE_XSAVE; /* aligned to 64, behind the frame */
	uint32_t size = (uint32_t)t->xsave.length;
	uint64_t features;
	struct {
		uint32_t magic, extended;
		uint64_t features;
		uint32_t size, padding[7];
	} sw = { .magic = XSTATE_MAGIC1, .extended = size + 4, .size = size };
	uint32_t end = XSTATE_MAGIC2;

	memcpy(area, image_bytes(t->xsave), size);
	/* the kernel leaves the mask of features here when it is asked for the state */
	memcpy(&features, area + XSAVE_SW, sizeof(features));
	sw.features = features;
	memcpy(area + XSAVE_SW, &sw, sizeof(sw));
	memcpy(area + size, &end, sizeof(end));
	f->xsave = (uint64_t)area;
}

static void fill_frame(struct frame *f, const struct image_thread *t)
{
	const uint64_t *r = t->registers;

	f->uc_flags = 1 | 2 | 4; /* FP_XSTATE, SIGCONTEXT_SS, STRICT_RESTORE_SS */
	f->stack_at = t->altstack;
	f->stack_flags = t->altstack_flags;
	f->stack_size = t->altstack_size;
	f->r8 = r[R8], f->r9 = r[R9], f->r10 = r[R10], f->r11 = r[R11];
	f->r12 = r[R12], f->r13 = r[R13], f->r14 = r[R14], f->r15 = r[R15];
	f->rdi = r[RDI], f->rsi = r[RSI], f->rbp = r[RBP], f->rbx = r[RBX];
	f->rdx = r[RDX], f->rax = r[RAX], f->rcx = r[RCX], f->rsp = r[RSP];
	f->rip = r[RIP], f->flags = r[FLAGS];
	f->cs = (uint16_t)r[CS], f->ss = (uint16_t)r[SS];
	f->mask = t->mask;
	fill_xsave(f, t);
}

/*
 * Who may have less than it had (the server runs with a higher nice value now, a processor is not there) gets what it can. A thread inherits it from its maker: the first thread
 * comes last.
 */
static void set_scheduling(const struct image_thread *t)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = { sizeof(attr), t->policy, t->reset_on_fork, t->nice, t->priority, 0, 0, 0 };

	/* beside SCHED_IDLE only this sets it */
	(void)CALL3(__NR_setpriority, 0, 0, t->nice);
	if (CALL3(__NR_sched_setattr, 0, &attr, 0) < 0) {
		attr.flags |= KEEP_PARAMETERS;
		(void)CALL3(__NR_sched_setattr, 0, &attr, 0);
	}
	if (t->io_priority != 0)
		(void)CALL3(__NR_ioprio_set, 1 /* of the thread */, 0, t->io_priority);
	if (t->processors.length > 0)
		(void)CALL3(__NR_sched_setaffinity, 0, t->processors.length,
			image_bytes(t->processors));
	if (t->timer_slack_ns != 0)
		(void)CALL5(__NR_prctl, PR_SET_TIMERSLACK, t->timer_slack_ns, 0, 0, 0);
}

/* What every thread sets for itself. */
static void set_thread(const struct image_thread *t)
{
	struct {
		uint64_t at, flags, size;
	} stack = { t->altstack, t->altstack_flags & ~1U, t->altstack_size };

	(void)CALL5(__NR_prctl, PR_SET_NAME, t->name, 0, 0, 0);
	set_scheduling(t);
	if (t->no_new_privs != 0)
		(void)fork_must(
			CALL5(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs");
	/* by the call: sigreturn does not change it for a thread that stands on it */
	(void)CALL2(__NR_sigaltstack, &stack, 0);
	if (t->registers[GS_BASE] != 0)
		(void)fork_must(
			CALL2(__NR_arch_prctl, ARCH_SET_GS, t->registers[GS_BASE]), "set gs");
	(void)CALL1(__NR_set_tid_address, t->tid_address);
	if (t->rseq != 0)
		(void)fork_must(CALL4(__NR_rseq, t->rseq, t->rseq_length, 0, t->rseq_signature),
			"register restartable sequences");
	signals_queue(t);
}

static const struct image_thread *thread_of(const struct image_process *p, uint32_t i)
{
	return IMAGE_ROW(struct image_thread, TABLE_THREADS, p->first_thread + i);
}

/* Whose end lets @p go. */
static enum fork_stage last_stage(const struct image_process *p)
{
	return p->own_filters != 0 || p->stopped != IMAGE_RUNS ? STAGE_FIRST : STAGE_GO;
}

/* Of a stopped one the kernel ends the call (holding.c). */
static uint32_t restart_of(const struct image_process *p, const struct image_thread *t)
{
	return p->stopped == IMAGE_RUNS ? t->restart : 0;
}

static bool ends_call(int sig, uint32_t restart)
{
	struct {
		uint64_t handler, flags, restorer, mask;
	} action = { 0 };

	(void)CALL4(__NR_rt_sigaction, sig, 0, &action, 8);
	return action.handler > 1 /* SIG_IGN */ &&
	       (restart == RESTART_NO_HAND ||
		       (restart == RESTART_SYS && (action.flags & SA_RESTART) == 0));
}

/*
 * It stands before the call that it waited in, and would make it behind the handlers of what has come meanwhile: an alarm that was to end it would be missed. Where one of them
 * ends a call it says so, as it would have. Return: what waits.
 */
static uint64_t interrupt_call(struct frame *f, uint32_t restart, uint64_t waiting)
{
	uint64_t own = 0;

	(void)CALL2(__NR_rt_sigpending, &own, 8);
	waiting = (waiting | own) & ~f->mask;
	for (int sig = 1; restart != 0 && sig <= (int)IMAGE_SIGNALS; sig++) {
		if ((waiting >> (sig - 1) & 1) == 0 || !ends_call(sig, restart))
			continue;
		f->rip += 2;
		f->rax = -(uint64_t)EINTR;
		break;
	}
	return own;
}

struct thread_argument {
	const struct image_process *process;
	uint64_t index;
};

static BARE_NORETURN __attribute__((used)) void thread_main(struct thread_argument *a)
{
	const struct image_thread *t = thread_of(a->process, (uint32_t)a->index);
	struct frame *f = frame_of((uint32_t)a->index);
	const enum fork_stage stage = last_stage(a->process);
	const uint32_t restart = restart_of(a->process, t);

	set_thread(t);
	if (t->robust_list != 0)
		(void)fork_must(CALL2(__NR_set_robust_list, t->robust_list, t->robust_length),
			"set the robust list");
	fill_frame(f, t);
	(void)__atomic_add_fetch(&prepared, 1, __ATOMIC_SEQ_CST);
	futex_wake(&prepared);
	fork_await(stage); /* from here on the image may be gone */
	(void)__atomic_or_fetch(seen(), interrupt_call(f, restart, 0), __ATOMIC_SEQ_CST);
	__asm__ volatile("mov %0, %%rsp\n\tmov %1, %%rdi\n\tjmp *%2\n"
			 :
			 : "r"(f), "r"(left()), "r"(WINDOW_RESIDUE)
			 : "rdi", "memory");
	__builtin_unreachable();
}

static long clone_thread(void *stack_end, uint64_t tls)
{
	register long r10 __asm__("r10") = 0;
	register uint64_t r8 __asm__("r8") = tls;
	long rc;

	__asm__ volatile(
		"syscall\n\t"
		"test %%rax, %%rax\n\t"
		"jnz 1f\n\t"
		"xor %%ebp, %%ebp\n\t"
		"mov %%rsp, %%rdi\n\t"
		"call thread_main\n\t"
		"1:"
		: "=a"(rc)
		: "a"(__NR_clone), "D"(THREAD_FLAGS), "S"(stack_end), "d"(0), "r"(r10), "r"(r8)
		: "rcx", "r11", "memory");
	return rc;
}

static void create(const struct image_process *p, uint32_t i)
{
	const struct image_thread *t = thread_of(p, i);
	struct thread_argument *a =
		(struct thread_argument *)(WINDOW_COPY + (i + 1) * THREAD_STACK) - 4;
	long tid;

	a->process = p;
	a->index = i;
	helper_lock();
	helper_ask(HELPER_CHOOSE, t->tid);
	tid = clone_thread(a, t->registers[FS_BASE]);
	helper_unlock();
	(void)fork_must(tid, "clone a thread");
	if (tid != t->tid)
		fork_fail("get the thread's id", -EEXIST);
}

static void ask_for_states(const struct image_process *p)
{
	for (uint32_t i = EXTENDED; i < 63; i++) {
		if ((p->may_extend >> i & 1) != 0)
			(void)fork_must(CALL2(__NR_arch_prctl, ARCH_REQ_XCOMP_PERM, i),
				"ask for a register state");
	}
}

/* All but our own and the way to the keeper, who is told of a failure until STAGE_READY. */
static void leave_descriptions(void)
{
	(void)CALL3(__NR_close_range, plan->first_description, fork.socket - 1, 0);
	(void)CALL3(__NR_close_range, fork.socket + 1, ~0U, 0);
}

/* Whoever leaves first may clone a process before the restorer is unmapped: it has none of it. */
static void keep_from_children(void)
{
	(void)CALL3(__NR_madvise, WINDOW_START, WINDOW_RESIDUE - WINDOW_START, DONT_FORK);
	(void)CALL3(__NR_madvise, RESIDUE_END, WINDOW_END - RESIDUE_END, DONT_FORK);
}

void threads_withdraw(void)
{
	(void)CALL1(__NR_close, fork.socket);
	(void)CALL2(__NR_munmap, WINDOW_IMAGE, WINDOW_PLAN - WINDOW_IMAGE);
}

BARE_NORETURN void threads_become(const struct image_process *p)
{
	const struct image_thread *first = thread_of(p, 0);
	const uint64_t robust_list = first->robust_list;
	const enum fork_stage stage = last_stage(p);
	const uint32_t others = p->n_threads - 1;
	const uint32_t restart = restart_of(p, first);
	const bool hears = stops_hears(p);
	struct frame *f = frame_of(0);
	uint32_t n;

	ask_for_states(p);
	make_residue(p);
	/* no memory becomes a program's any more */
	if (p->no_new_code != 0)
		(void)fork_must(CALL5(__NR_prctl, SET_MDWE, p->no_new_code, 0, 0, 0),
			"deny memory that is written and executed");
	(void)fork_must(bare_map(WINDOW_COPY, p->n_threads * THREAD_STACK, 3, 2), "map stacks");
	for (uint32_t i = 1; i < p->n_threads; i++)
		create(p, i);
	while ((n = __atomic_load_n(&prepared, __ATOMIC_SEQ_CST)) < others)
		futex_wait(&prepared, n);
	files_end(p);
	(void)fork_must(CALL2(__NR_arch_prctl, ARCH_SET_FS, first->registers[FS_BASE]), "set fs");
	set_thread(first);
	timers_become(p);
	limits_end(p);
	fill_frame(f, first);
	leave_descriptions();
	locks_become(p);
	filters_hold(p, (uint64_t)frame_of(p->n_threads));
	keep_from_children();
	if (!hears)
		threads_withdraw();
	fork_arrive(STAGE_READY);
	if (hears)
		stops_hear(p);
	fork_await(stage);
	while (__atomic_load_n(left(), __ATOMIC_SEQ_CST) < others)
		(void)CALL0(__NR_sched_yield);
	life_end(robust_list);
	/* only now may the fork be called running: before, a capture would find the restorer in it */
	fork_pass_stage(STAGE_LEFT);
	/* the first that a signal for all would have gone to: who left before may have taken it */
	(void)interrupt_call(f, restart, __atomic_load_n(seen(), __ATOMIC_SEQ_CST));
	__asm__ volatile("mov %0, %%r12\n\tmov %1, %%r13\n\tmov %2, %%r14\n\tmov %3, %%r15\n\t"
			 "mov %4, %%rsp\n\tjmp *%5\n"
			 :
			 : "r"(WINDOW_START), "r"(WINDOW_RESIDUE - WINDOW_START), "r"(RESIDUE_END),
			 "r"(WINDOW_END - RESIDUE_END), "r"(f),
			 "r"(WINDOW_RESIDUE + (uint64_t)(residue_first - residue_begin))
			 : "r12", "r13", "r14", "r15", "memory");
	__builtin_unreachable();
}
