/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/fork_tree.c - T': enters the new sandbox, has the tree cloned, waits for it, reaps it.
 *
 * Privileged until the last process has been cloned, so it reads the plan and nothing else. A failure anywhere ends all: the first that fails reports, T'
 * kills the roots and exits, the keeper kills the rest with the sandbox.
 */
#include "checkpoint/plan_steps.h"
#include "prog/cay-template/fork.h"
#include "prog/cay-template/lazy.h"
#include "sys/confine_told.h"

#include <asm/ioctls.h>
#include <asm/poll.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>

#define SIGCHLD 17
#define P_PID   1
#define WEXITED 4
#define WNOWAIT 0x01000000
#define WALL    0x40000000

#define LEAVE_IDLE_S 4  /* each wait ends after a second */
#define LINE_LEAST   16 /* generations: with fewer nobody has to wait */
#define DONT_FORK    10 /* MADV_DONTFORK, MADV_DOFORK */
#define DO_FORK      11

#define CLD_EXITED 1
#define CLD_DUMPED 3

/* words of siginfo_t for SIGCHLD */
enum { SIGINFO_CODE = 2, SIGINFO_PID = 4, SIGINFO_STATUS = 6 };

/* helpers that are roots, by their pid outside; T' alone */
static int32_t root_helpers[TEMPLATE_PIDS_MAX * 2];
static uint32_t n_root_helpers;

/* of each process, from before anything is cloned */
static uint16_t steps[TEMPLATE_PIDS_MAX * 2];

static bool long_line; /* known before anything is cloned */

static void send(const struct template_message *m)
{
	(void)CALL6(__NR_sendto, fork.socket, m, sizeof(*m), 0x4000 /* NOSIGNAL */, 0, 0);
}

void futex_wait(uint32_t *word, uint32_t value)
{
	struct {
		int64_t s, ns;
	} second = { 1, 0 };

	(void)CALL6(__NR_futex, word, FUTEX_WAIT, value, &second, 0, 0);
}

void futex_wake(uint32_t *word)
{
	(void)CALL6(__NR_futex, word, FUTEX_WAKE, 0x7fffffff, 0, 0, 0);
}

static void put_step(struct template_message *m, const char *step)
{
	for (size_t n = 0; step[n] != '\0' && n < sizeof(m->step) - 1; n++)
		m->step[n] = step[n];
}

BARE_NORETURN void fork_fail_of(int32_t pid, const char *step, long rc)
{
	struct template_message m = { .kind = TEMPLATE_FAILED, .pid = pid, .status = (int32_t)rc };
	struct fork_shared *s = fork_shared();

	put_step(&m, step);
	if (__atomic_exchange_n(&s->failed, 1, __ATOMIC_SEQ_CST) == 0)
		send(&m);
	futex_wake(&s->stage);
	futex_wake(&s->bell);
	bare_exit(125);
}

BARE_NORETURN void fork_fail(const char *step, long rc)
{
	fork_fail_of((int32_t)CALL0(__NR_getpid), step, rc);
}

long fork_must(long rc, const char *step)
{
	if (rc < 0)
		fork_fail(step, rc);
	return rc;
}

void fork_pass_stage(enum fork_stage stage)
{
	struct fork_shared *s = fork_shared();

	if (__atomic_add_fetch(&s->arrived[stage], 1, __ATOMIC_SEQ_CST) == s->expected[stage])
		futex_wake(&s->arrived[stage]);
}

void fork_await(enum fork_stage stage)
{
	struct fork_shared *s = fork_shared();
	uint32_t now;

	while ((now = __atomic_load_n(&s->stage, __ATOMIC_SEQ_CST)) <= (uint32_t)stage) {
		if (__atomic_load_n(&s->failed, __ATOMIC_SEQ_CST) != 0)
			bare_exit(125);
		futex_wait(&s->stage, now);
	}
}

void fork_arrive(enum fork_stage stage)
{
	fork_pass_stage(stage);
	fork_await(stage);
}

/* Before the processes run each is needed. Who reports a failure does so before it dies. */
static void check_nobody_failed(void)
{
	int32_t pid = 0;

	(void)lives_lost(&pid);
	lazy_check();
	if (__atomic_load_n(&fork_shared()->failed, __ATOMIC_SEQ_CST) != 0)
		bare_exit(125);
	if (pid != 0)
		fork_fail_of(pid, "it was killed before it had been restored", -ESRCH);
}

/* T' lets a stage end when all have arrived. */
static void conduct(enum fork_stage stage)
{
	struct fork_shared *s = fork_shared();
	uint32_t n, expected = s->expected[stage];

	for (int rounds = 0; (n = __atomic_load_n(&s->arrived[stage], __ATOMIC_SEQ_CST)) < expected;
		rounds++) {
		check_nobody_failed();
		/* each wait ends after a second or an arrival */
		if (rounds > FORK_TIMEOUT_S + (int)expected * 4)
			fork_fail("wait for the processes", -ETIME);
		lives_wait(&s->arrived[stage], n);
	}
	(void)__atomic_store_n(&s->stage, (uint32_t)stage + 1, __ATOMIC_SEQ_CST);
	futex_wake(&s->stage);
}

/* Who runs already may end the others, which is no failure, or stop them: they are not waited for for ever. */
static void wait_until_left(void)
{
	struct fork_shared *s = fork_shared();
	uint32_t n, before = 0;

	for (int idle = 0; idle < LEAVE_IDLE_S; idle++) {
		uint32_t left = __atomic_load_n(&s->arrived[STAGE_LEFT], __ATOMIC_SEQ_CST);

		/* with it ends whom it holds */
		if (life_is_lost(life_helper()))
			fork_fail_of(
				plan->helper_pid, "it was killed before it had let all go", -ESRCH);
		n = left + lives_lost(NULL);
		if (n >= s->expected[STAGE_LEFT])
			return;
		if (n != before)
			idle = 0;
		before = n;
		lives_wait(&s->arrived[STAGE_LEFT], left);
	}
}

/* --- cloning --- */

/* End as the zombie did. */
static BARE_NORETURN void end_as(int32_t status)
{
	const uint64_t by_default[4] = {
		0
	}; /* struct kernel_sigaction: it may be one that whoever started the template ignores */
	uint64_t all = ~0ULL;
	int sig = status & 0x7f;

	if (sig == 0)
		bare_exit(status >> 8 & 0xff);
	(void)CALL4(__NR_rt_sigaction, sig, by_default, 0, 8);
	(void)CALL4(__NR_rt_sigprocmask, 1 /* UNBLOCK */, &all, 0, 8);
	(void)CALL2(__NR_kill, CALL0(__NR_getpid), sig);
	bare_exit(128 + sig);
}

/* Page tables are copied for those who need them alone. */
static void inherit(uint64_t from, uint64_t to, bool on)
{
	(void)CALL3(__NR_madvise, from, to - from, on ? DO_FORK : DONT_FORK);
}

/* Its own part of the stash, and those of its ancestors that have some of its memory. */
static void inherit_stash(const struct plan_process *p, bool on)
{
	const struct plan_process *all = plan_processes(), *one = p;

	if (p->stash_end > p->stash_start)
		inherit(p->stash_start, p->stash_end, on);
	while (p->base != 0 && one->pid != p->base) {
		one = &all[one->parent];
		if (one->stash_end > one->stash_start)
			inherit(one->stash_start, one->stash_end, on);
	}
}

/* Who comes from @top, itself included. Creators come first. */
static const bool *subtree(uint32_t top)
{
	static bool in[TEMPLATE_PIDS_MAX * 2];
	const struct plan_process *all = plan_processes();

	in[top] = true;
	for (uint32_t i = top + 1; i < plan->n_processes; i++)
		in[i] = all[i].parent != IMAGE_NONE && all[i].parent >= top && in[all[i].parent];
	return in;
}

static void inherit_subtree(uint32_t top, bool on)
{
	const struct plan_process *all = plan_processes();
	const bool *in = subtree(top);

	for (uint32_t i = top; i < plan->n_processes; i++) {
		if (in[i])
			inherit_stash(&all[i], on);
	}
}

/* Are there many generations? */
static bool has_long_line(void)
{
	static uint16_t before[TEMPLATE_PIDS_MAX * 2];
	const struct plan_process *all = plan_processes();
	uint32_t most = 0;

	for (uint32_t i = 0; i < plan->n_processes; i++) {
		before[i] = all[i].parent == IMAGE_NONE ? 0 : before[all[i].parent] + 1;
		most = before[i] > most ? before[i] : most;
	}
	return most >= LINE_LEAST;
}

/* Does @index make others, as does who makes it? T' is waited for, and has more to do: it keeps what it has. */
static bool is_in_line(uint32_t index)
{
	const struct plan_process *all = plan_processes();
	uint32_t i = index + 1;

	if (!long_line || all[index].parent == IMAGE_NONE)
		return false;
	while (i < plan->n_processes && all[i].parent != index)
		i++;
	return i < plan->n_processes;
}

/*
 * For each mapping the kernel keeps a list of all those ancestors that have it too (anon_vma), and copies it at each clone: of a long line of processes, in which each has the memory of
 * all that come behind it, that would be the cube of its length. So whoever has made the next one drops what it had for that one, which goes on when it has.
 */
static void hand_on(uint32_t top)
{
	const struct plan_process *all = plan_processes();
	const bool *in = subtree(top);
	uint32_t *alone = &fork_shared()->lives[top].alone;

	for (uint32_t i = top; i < plan->n_processes; i++) {
		if (in[i] && all[i].stash_end > all[i].stash_start)
			(void)fork_must(CALL2(__NR_munmap, all[i].stash_start,
						all[i].stash_end - all[i].stash_start),
				"drop the memory of those behind");
	}
	__atomic_store_n(alone, 1, __ATOMIC_SEQ_CST);
	futex_wake(alone);
}

static void wait_until_alone(uint32_t index)
{
	uint32_t *alone = &fork_shared()->lives[index].alone;

	while (__atomic_load_n(alone, __ATOMIC_SEQ_CST) == 0) {
		if (__atomic_load_n(&fork_shared()->failed, __ATOMIC_SEQ_CST) != 0)
			bare_exit(125);
		futex_wait(alone, 0);
	}
}

/* What is in descriptions is for the opener. */
static void inherit_contents(bool on)
{
	const struct plan_map *maps = plan_maps();

	for (uint32_t i = 0; i < plan->n_maps; i++) {
		if (maps[i].content != 0)
			inherit(maps[i].address, maps[i].address + maps[i].length, on);
	}
}

static void clone_children(uint32_t index, bool old_session)
{
	const struct plan_process *all = plan_processes();

	for (uint32_t i = index + 1; i < plan->n_processes; i++) {
		if (all[i].parent == index &&
			((all[i].flags & PLAN_OLD_SESSION) != 0) == old_session)
			tree_clone(i);
	}
}

/* @late: 0 or PLAN_LATE */
static void wait_for_helpers(uint32_t index, uint32_t late)
{
	const struct plan_process *all = plan_processes();

	for (uint32_t i = index + 1; i < plan->n_processes; i++) {
		if (all[i].parent == index && plan_is_helper(&all[i], late))
			(void)CALL4(__NR_wait4, all[i].pid, 0, WALL, 0);
	}
}

static void wait_for_zombies(uint32_t index)
{
	const struct plan_process *all = plan_processes();
	int info[32];

	for (uint32_t i = index + 1; i < plan->n_processes; i++) {
		if (all[i].parent == index && (all[i].flags & PLAN_ZOMBIE) != 0)
			(void)CALL5(
				__NR_waitid, P_PID, all[i].pid, info, WEXITED | WNOWAIT | WALL, 0);
	}
}

/* Of the payload and open to be looked at, or a later capture cannot see how it ended; no program of the sandbox runs yet. */
static BARE_NORETURN void end_zombie(int32_t status)
{
	opener_confine();
	(void)CALL5(__NR_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
	life_end(0);
	end_as(status);
}

static BARE_NORETURN void end_helper(void)
{
	life_end(0);
	bare_exit(0);
}

static void adopt(void)
{
	fork_await(STAGE_SETTLED);
	(void)fork_must(
		CALL5(__NR_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "take others' children");
	fork_pass_stage(STAGE_ADOPTING);
}

static void take(enum plan_step step, uint32_t index)
{
	const struct plan_process *p = &plan_processes()[index];

	switch (step) {
	case STEP_AWAIT_EARLY:
		wait_for_helpers(index, 0);
		break;
	case STEP_SETTLED:
		fork_pass_stage(STAGE_SETTLED);
		break;
	case STEP_ADOPT:
		adopt();
		break;
	case STEP_AWAIT_ADOPTING:
		fork_await(STAGE_ADOPTING);
		break;
	case STEP_AWAIT_LATE:
		wait_for_helpers(index, PLAN_LATE);
		break;
	case STEP_ADOPTED:
		fork_pass_stage(STAGE_ADOPTED);
		break;
	case STEP_AWAIT_ZOMBIES:
		wait_for_zombies(index);
		break;
	case STEP_END:
		if ((p->flags & PLAN_ZOMBIE) != 0)
			end_zombie(p->status);
		end_helper();
	case STEP_COUNT:
	default:
		break;
	}
}

/*
 * Helpers have done their work when all have joined their groups. What they have made becomes PID 1's while nobody is a subreaper; then that of those who have taken it in the source; and
 * when no helper is left others may say again that they would (become()).
 */
static void settle(uint32_t index)
{
	for (enum plan_step step = 0; step < STEP_COUNT; step++) {
		if (plan_has_step(steps[index], step))
			take(step, index);
	}
}

static uint32_t terminal_of(const struct plan_process *p)
{
	return plan->first_description + p->terminal - 1;
}

static BARE_NORETURN void run(uint32_t index)
{
	const struct plan_process *p = &plan_processes()[index];

	inherit(WINDOW_STASH, WINDOW_END, false);
	clone_children(index, true);
	if ((p->flags & PLAN_LEADER) != 0)
		(void)fork_must(CALL0(__NR_setsid), "setsid");
	if ((p->flags & PLAN_GROUP) != 0)
		(void)fork_must(CALL2(__NR_setpgid, 0, 0), "make a process group");
	/* inherited by those that are cloned from now on */
	if ((p->flags & PLAN_LEADER) != 0 && p->terminal != 0)
		(void)fork_must(CALL3(__NR_ioctl, terminal_of(p), TIOCSCTTY, 0),
			"take the controlling terminal");
	clone_children(index, false);
	if ((p->flags & PLAN_NO_TERMINAL) != 0)
		(void)fork_must(CALL3(__NR_ioctl, terminal_of(p), TIOCNOTTY, 0),
			"leave the controlling terminal");
	inherit_stash(p, true);
	fork_arrive(STAGE_CLONED);
	if (p->group != 0 && (p->flags & (PLAN_GROUP | PLAN_LEADER)) == 0)
		(void)fork_must(CALL2(__NR_setpgid, 0, p->group), "join the process group");
	fork_arrive(STAGE_GROUPED);
	if (p->foreground != 0)
		(void)fork_must(CALL3(__NR_ioctl, terminal_of(p), TIOCSPGRP, &p->foreground),
			"set the foreground group");
	settle(index);
	lazy_begin(p);
	become(p->image);
}

/* A process that was just cloned: of those that it comes from it needs nothing on the stack, which would not be enough for a long line of them. */
static BARE_NORETURN void begin(uint64_t index)
{
	const struct plan_process *p = &plan_processes()[index];

	life_begin((uint32_t)index, p->pid, &fork_shared()->bell);
	if (p->parent == IMAGE_NONE)
		(void)fork_must(CALL2(__NR_setns, fork.cgroups, CLONE_NEWCGROUP),
			"join the sandbox's cgroup namespace");
	if (is_in_line((uint32_t)index))
		wait_until_alone((uint32_t)index);
	run((uint32_t)index);
}

static uint64_t end_signal(const struct plan_process *p)
{
	uint32_t other = p->flags >> PLAN_SIGNAL;

	return other == 0 ? SIGCHLD : other - 1;
}

void tree_clone(uint32_t index)
{
	const struct plan_process *p = &plan_processes()[index];
	struct bare_clone args = {
		.exit_signal = end_signal(p), .set_tid = (uint64_t)&p->pid, .set_tid_size = 1
	};
	long rc;

	if (p->parent == IMAGE_NONE && fork.order.n_leaves > 0) {
		args.flags = CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)fork.leaves[p->leaf];
	}
	inherit_subtree(index, true);
	rc = fork_must(CALL2(__NR_clone3, &args, sizeof(args)), "clone a process with its pid");
	if (rc == 0)
		stack_begin(begin, index);
	inherit_subtree(index, false);
	if (is_in_line(index))
		hand_on(index);
	if (p->parent == IMAGE_NONE) {
		struct template_message m = {
			.kind = TEMPLATE_ROOT, .pid = (int32_t)rc, .inside = p->pid
		};

		if ((p->flags & PLAN_HELPER) == 0)
			send(&m);
		else
			root_helpers[n_root_helpers++] = (int32_t)rc;
	}
}

/* --- T' --- */

/* Everybody inherits our socket, so its other end cannot see from it that we are gone. */
static void introduce(void)
{
	struct template_message begun = { .kind = TEMPLATE_BEGUN,
		.pid = (int32_t)CALL0(__NR_getpid) };
	long self = fork_must(
		CALL2(__NR_pidfd_open, CALL0(__NR_getpid), 0), "open a descriptor of ourselves");

	fork_pass(fork.socket, &begun, sizeof(begun), (int)self);
	(void)CALL1(__NR_close, self);
}

static void enter_sandbox(void)
{
	const uint64_t no_core[2] = { 1, 1 }; /* as confine_core() */
	long fd;

	(void)CALL4(__NR_prlimit64, 0, 4 /* CORE */, no_core, 0);
	/* open to itself for the files below; no program of the sandbox runs yet, and it is closed again before one does */
	(void)fork_must(
		CALL5(__NR_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0), "open our own /proc entries");
	for (uint32_t i = 0; i < fork.order.n_tasks; i++)
		(void)fork_must(
			CALL3(__NR_write, fork.tasks[i], "0", 1), "enter a version 1 group");
	fd = fork_must(CALL3(__NR_open, "/proc/self/oom_score_adj", 1, 0), "open oom_score_adj");
	(void)fork_must(CALL3(__NR_write, fd, "500", 3), "set the out-of-memory score");
	(void)CALL1(__NR_close, fd);
	/* the sandbox's own is read-only */
	fork.last_pid = (int)fork_must(
		CALL3(__NR_open, "/proc/sys/kernel/ns_last_pid", 1 | BARE_CLOEXEC, 0),
		"open ns_last_pid");
	fd = !sysv_is_planned()
		     ? -1
		     : fork_must(CALL3(__NR_open, "/proc/sys/kernel", 0200000 | BARE_CLOEXEC, 0),
			       "open /proc/sys/kernel");
	if (fork.u1 >= 0)
		(void)fork_must(CALL2(__NR_setns, fork.u1, CLONE_NEWUSER),
			"join the keeper's user namespace");
	/* its clocks are those of all that is cloned from here */
	if (fork.timens >= 0)
		(void)fork_must(CALL2(__NR_setns, fork.timens, CLONE_NEWTIME),
			"join the sandbox's time namespace");
	(void)fork_must(CALL2(__NR_setns, fork.init,
				CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS),
		"join the sandbox's namespaces");
	sysv_open_ids((int)fd);
	if (fd >= 0)
		(void)CALL1(__NR_close, fd);
}

/* The domain of sandbox/starter.c: nothing outside the sandbox's root, no signals or abstract sockets out of it. */
static void confine(void)
{
	struct {
		uint64_t files, network, scoped;
	} attributes = { fork.order.landlock_files, 0, fork.order.landlock_scoped };
	struct {
		uint64_t allowed;
		int32_t parent;
	} __attribute__((packed)) root = { .allowed = fork.order.landlock_files };
	long ruleset;

	if (fork.order.landlock_size == 0)
		return;
	ruleset = fork_must(
		CALL3(__NR_landlock_create_ruleset, &attributes, fork.order.landlock_size, 0),
		"make a Landlock ruleset");
	root.parent = (int32_t)fork_must(
		CALL3(__NR_open, "/", 010000000 | 0200000 | BARE_CLOEXEC, 0), "open the root");
	(void)fork_must(CALL4(__NR_landlock_add_rule, ruleset, 1, &root, 0), "add a Landlock rule");
	(void)fork_must(
		CALL2(__NR_landlock_restrict_self, ruleset, 0), "enter the Landlock domain");
	(void)CALL1(__NR_close, root.parent);
	(void)CALL1(__NR_close, ruleset);
}

/*
 * The filter of filter_told(), once for all; where nobody may listen, its calls are refused without a word. Behind the helper, which could not suspend filters if it had one;
 * the starter makes its own.
 */
static void have_refusals_told(void)
{
	const uint32_t n = fork.order.told_bytes / sizeof(struct sock_filter);
	const uint64_t size = fork.order.filter_bytes + fork.order.told_bytes;
	struct sock_filter *rules = (struct sock_filter *)(WINDOW_FILTER + fork.order.filter_bytes);
	struct {
		uint64_t n, rules;
	} program = { n, (uint64_t)rules };
	struct template_message tells = { .kind = TEMPLATE_TELLS };
	long listener = -EBUSY;

	(void)fork_must(CALL6(__NR_mmap, WINDOW_FILTER, size, 3, 2 | 0x100000, fork.filter, 0),
		"map the system call filters");
	if (fork.order.told_listen != 0)
		listener = CALL3(__NR_seccomp, SECCOMP_SET_MODE_FILTER,
			SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
			&program);
	for (uint32_t i = 0; listener == -EBUSY && i < n; i++) {
		if (rules[i].code != (BPF_RET | BPF_K))
			continue;
		if (rules[i].k == SECCOMP_RET_USER_NOTIF)
			rules[i].k = SECCOMP_RET_ERRNO | fork.order.told_error;
		else if (rules[i].k == CONFINE_LEARN)
			rules[i].k = SECCOMP_RET_ALLOW;
		else if (rules[i].k == CONFINE_KNOW)
			rules[i].k = SECCOMP_RET_ERRNO | EOPNOTSUPP;
	}
	if (listener == -EBUSY) {
		(void)fork_must(CALL3(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program),
			"have refused system calls refused");
	} else {
		(void)fork_must(listener, "have refused system calls told");
		(void)CALL3(__NR_ioctl, listener, CONFINE_SET_FLAGS, CONFINE_SYNC_WAKE_UP);
		fork_pass(fork.socket, &tells, sizeof(tells), (int)listener);
		(void)CALL1(__NR_close, listener);
	}
	(void)CALL2(__NR_munmap, WINDOW_FILTER, size);
}

static void join_pids(void)
{
	(void)fork_must(CALL2(__NR_setns, fork.pids, CLONE_NEWPID), "join the pid namespace");
}

/* Nobody waits for it any more. */
static void drop_memory(void)
{
	(void)CALL2(__NR_munmap, WINDOW_STASH, WINDOW_END - WINDOW_STASH);
	(void)CALL2(__NR_munmap, WINDOW_IMAGE, WINDOW_PLAN - WINDOW_IMAGE);
	pull_forget();
}

/* Until it is told something, or nobody is there to tell it. */
static void await_order(int socket)
{
	struct pollfd p = { .fd = socket, .events = POLLIN };

	while (CALL3(__NR_poll, &p, 1, -1) <= 0)
		;
	if ((p.revents & POLLHUP) != 0)
		bare_exit(0);
}

/* All memory is that of T' too: nothing of it may be changed but the stack, and T' closes it to others (dumpable) for both, before a program runs. */
static BARE_NORETURN __attribute__((used)) void starter_begin(void)
{
	static const char *const argv[] = { "cay-keeper", "starter", 0 };
	static const char *const envp[] = { 0 };
	long program, socket;

	join_pids();
	(void)CALL5(__NR_prctl, PR_SET_PDEATHSIG, 9, 0, 0, 0);
	(void)CALL5(__NR_prctl, PR_SET_NAME, "cay-starter", 0, 0, 0);
	/* above what it is to become */
	program = CALL3(__NR_fcntl, fork.program, 1030, 20);
	socket = CALL3(__NR_fcntl, fork.starter, 1030, 20);
	(void)fork_must(CALL3(__NR_dup3, socket, 3, 0), "place the starter's socket");
	(void)fork_must(CALL3(__NR_dup3, program, 4, BARE_CLOEXEC), "place the starter's program");
	(void)CALL3(__NR_close_range, 5, ~0U, 0);
	await_order(3);
	/* it is inherited, and nobody else needs it any more */
	lazy_leave();
	(void)CALL5(__NR_execveat, 4, "", argv, envp, 0x1000);
	bare_exit(126);
}

/*
 * Programs that are started later must be in the domain of those that are restored, so their starter is a child of ours, made when we are in it. It is outside
 * the sandbox's pid namespace, as every starter is, and clones with our being the parent: we reap what it starts too. In most forks no other program is ever
 * started: until then it is not worth memory of its own, nor a program's beginning.
 */
static void start_starter(void)
{
	static char stack[8192] __attribute__((aligned(16)));
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	long rc;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "call starter_begin\n\t"
			 "1:"
			 : "=a"(rc)
			 : "a"(__NR_clone), "D"(CLONE_VM | SIGCHLD), "S"(stack + sizeof(stack)),
			 "d"(0), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	(void)fork_must(rc, "clone the starter");
}

static uint32_t count(uint32_t without)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < plan->n_processes; i++)
		n += (plan_processes()[i].flags & without) == 0;
	return n;
}

static void wait_for(enum template_message_kind kind)
{
	struct template_message m;

	if (CALL6(__NR_recvfrom, fork.socket, &m, sizeof(m), 0, 0, 0) != sizeof(m) ||
		m.kind != kind)
		bare_exit(124); /* the keeper is gone or gave up */
}

/* The descriptors of the image are not needed here any more. */
static void drop_descriptors(void)
{
	(void)CALL5(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (fork.socket != FORK_SOCKET)
		(void)CALL3(__NR_dup3, fork.socket, FORK_SOCKET, BARE_CLOEXEC);
	fork.socket = FORK_SOCKET;
	/* what is behind is closed when there is nothing to load any more */
	(void)CALL3(__NR_close_range, 4, lazy_first_fd() - (lazy_loader() != 0 ? 1 : 0), 0);
	(void)CALL3(__NR_close_range, 0, 2, 0);
}

static uint64_t microseconds(const int64_t usage[4])
{
	return (uint64_t)(usage[0] + usage[2]) * 1000000 + (uint64_t)(usage[1] + usage[3]);
}

/* As wait(2) would say it. */
static int32_t status_of(const int *info)
{
	int32_t value = info[SIGINFO_STATUS];

	if (info[SIGINFO_CODE] == CLD_EXITED)
		return (value & 0xff) << 8;
	return (value & 0x7f) | (info[SIGINFO_CODE] == CLD_DUMPED ? 0x80 : 0);
}

/* Whoever waits for a page that does not come waits until the keeper has ended all: we keep what would give up the rest. */
static void tell_loaded(const int *info)
{
	const struct fork_shared *s = fork_shared();
	struct template_message m = { .kind = TEMPLATE_TOUCHED };

	(void)CALL4(__NR_wait4, info[SIGINFO_PID], 0, WALL, 0);
	/* (any process of the sandbox may have written there) */
	for (uint32_t i = 0; i < s->n_first && i < TEMPLATE_FIRST_MAX; i++) {
		m.pid = s->first[i].pid;
		m.held.pages = s->first[i].address;
		send(&m);
	}
	m = (struct template_message){ .status = (int32_t)lazy_error(info) };
	m.kind = m.status == 0 ? TEMPLATE_LOADED : TEMPLATE_LOST;
	if (m.status != 0)
		put_step(&m, lazy_step(info));
	send(&m);
}

/* Report each root that ends, and reap it when the keeper has taken note: until then its pid is its own. */
static BARE_NORETURN void reap(void)
{
	bool loaded = lazy_loader() == 0;

	for (;;) {
		struct template_message m = { .kind = TEMPLATE_ENDED };
		int info[32];
		int64_t usage[18];
		int status = 0;

		info[0] = 0;
		if (CALL5(__NR_waitid, 0 /* P_ALL */, 0, info, WEXITED | WNOWAIT | WALL, 0) < 0)
			break;
		m.pid = info[SIGINFO_PID];
		if (m.pid == lazy_loader() && !loaded) {
			loaded = true;
			tell_loaded(info);
			continue;
		}
		if (helper_reap(m.pid))
			continue;
		m.status = status_of(info);
		(void)CALL5(__NR_waitid, P_PID, m.pid, info, WEXITED | WNOWAIT | WALL, usage);
		m.cpu_us = microseconds(usage);
		send(&m);
		wait_for(TEMPLATE_REAP);
		(void)CALL4(__NR_wait4, m.pid, &status, WALL, 0);
	}
	/* nobody is left: stay until the keeper goes */
	wait_for(TEMPLATE_REAP);
	bare_exit(0);
}

static uint32_t count_steps(enum plan_step step)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < plan->n_processes; i++)
		n += plan_has_step(steps[i], step);
	return n;
}

/* Zombies and helpers have ended when the others are restored. */
static void set_expected(void)
{
	uint32_t *expected = fork_shared()->expected;

	plan_steps(plan_processes(), plan->n_processes, steps);
	expected[STAGE_SETTLED] = count_steps(STEP_SETTLED);
	expected[STAGE_ADOPTING] = count_steps(STEP_ADOPT);
	expected[STAGE_ADOPTED] = count_steps(STEP_ADOPTED);
	expected[STAGE_CLONED] = expected[STAGE_GROUPED] = plan->n_processes;
	expected[STAGE_READY] = count(PLAN_ZOMBIE | PLAN_HELPER);
	expected[STAGE_HEARD] = stops_parents();
	expected[STAGE_LEFT] = expected[STAGE_READY];
}

BARE_NORETURN void fork_main(void)
{
	struct template_message ready = { .kind = TEMPLATE_READY },
				going = { .kind = TEMPLATE_GOING },
				running = { .kind = TEMPLATE_RUNNING };
	const uint64_t by_default[4] = { 0 };
	long opener;

	(void)CALL3(__NR_close_range, TEMPLATE_LINK_FD, TEMPLATE_LISTEN_FD, 0);
	if (lives_make() < 0)
		bare_exit(123);
	set_expected();
	(void)CALL5(__NR_prctl, PR_SET_NAME, "cay-fork", 0, 0, 0);
	introduce();
	/* unlike those of the template, children are waited for: their ends are looked at */
	(void)CALL4(__NR_rt_sigaction, SIGCHLD, by_default, 0, 8);
	lazy_start();
	creds_leave_keyring();
	enter_sandbox();
	bare_fault("live.fork.entered");
	confine();
	inherit(WINDOW_STASH, WINDOW_END, false);
	start_starter();
	join_pids();
	if (helper_is_wanted())
		helper_start();
	have_refusals_told();
	inherit_contents(true);
	long_line = has_long_line();
	opener = opener_run();
	inherit_contents(false);
	bare_fault("live.fork.opened");
	for (uint32_t i = 0; i < plan->n_processes; i++) {
		if (plan_processes()[i].parent == IMAGE_NONE)
			tree_clone(i);
	}
	bare_fault("live.fork.cloned");
	conduct(STAGE_CLONED);
	conduct(STAGE_GROUPED);
	while (n_root_helpers > 0)
		(void)CALL4(__NR_wait4, root_helpers[--n_root_helpers], 0, WALL, 0);
	conduct(STAGE_SETTLED);
	conduct(STAGE_ADOPTING);
	conduct(STAGE_ADOPTED);
	conduct(STAGE_READY);
	helper_finish();
	helper_pass(STAGE_ARMED);
	conduct(STAGE_ARMED);
	opener_end(opener);
	if (fork.order.hold != 0) {
		send(&ready);
		wait_for(TEMPLATE_GO);
	}
	lazy_go();
	drop_descriptors();
	bare_fault("live.fork.going");
	conduct(STAGE_FIRST);
	helper_pass(STAGE_HELD);
	(void)fork_must(fork_shared()->refused, "install the system call filters of the programs");
	conduct(STAGE_HELD);
	conduct(STAGE_HEARD);
	/* whoever leaves first may call what it likes while others are still on their way */
	send(&going);
	conduct(STAGE_GO);
	wait_until_left();
	bare_fault("live.fork.left");
	running.status = lazy_loader() != 0;
	send(&running);
	drop_memory();
	reap();
}
