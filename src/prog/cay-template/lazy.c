/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/lazy.c - see the header: what T' and the processes do for the loader. */
#include "prog/cay-template/lazy.h"

#include <asm/ioctl.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>

#define SOL_SOCKET  1
#define SO_PASSCRED 16

#define SIGCHLD 17
#define P_PID   1
#define WNOHANG 1
#define WEXITED 4
#define WNOWAIT 0x01000000
#define NOFILE  7
#define ERRORS  134U

#define CLD_EXITED 1
/* words of siginfo_t for SIGCHLD */
enum { SIGINFO_CODE = 2, SIGINFO_PID = 4, SIGINFO_STATUS = 6 };

#define MAPS_MOST 2048U   /* each is told of when it is moved, and looked for among all */
#define FDS_MOST  500000U /* half of what nobody may go beyond (fs.nr_open) */
#define ADDRESSES (1ULL << 47)

#define ROOM \
	4096U /* descriptors of T' and the opener that are no descriptions: below lazy_first_fd() */
#define SOME_MOST    (8U << 20) /* more than arguments may be */
#define ROBUST_LIMIT 2048       /* entries of a robust list that the kernel looks at */
#define EVENTS \
	(UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | \
		UFFD_FEATURE_EVENT_UNMAP)

static long loader;
static int to_loader = -1;
static bool serves;             /* what is missing is loaded when it is touched */
static bool prepared, had_none; /* huge pages */

/* Return: a descriptor of this address space, or -errno. */
static long make(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = EVENTS };
	long fd = CALL1(__NR_userfaultfd, BARE_CLOEXEC | 04000 /* NONBLOCK */), rc;

	if (fd < 0)
		return fd;
	rc = CALL3(__NR_ioctl, fd, UFFDIO_API, &api);
	if (rc < 0)
		(void)CALL1(__NR_close, fd);
	return rc < 0 ? rc : fd;
}

static uint32_t first_fd(void)
{
	return plan->first_description + 2 * plan->n_descriptions + ROOM;
}

static bool serves_anybody(void)
{
	uint32_t i = 0;

	while (i < plan->n_processes && !lazy_serves(&plan_processes()[i]))
		i++;
	return i < plan->n_processes;
}

/* Whoever shares our descriptors has as many as it needs of those of the sandbox's processes. Return: 0 or -errno. */
static long raise_limit(void)
{
	uint64_t least = first_fd() + PULL_FDS_MAX + plan->n_processes + 16, now[2];
	long rc = CALL4(__NR_prlimit64, 0, NOFILE, 0, now);

	if (rc < 0 || now[0] >= least)
		return rc;
	now[0] = least;
	if (now[1] < least)
		now[1] = least;
	return CALL4(__NR_prlimit64, 0, NOFILE, now, 0);
}

bool lazy_possible(void)
{
	long fd = -E2BIG;

	if (serves_anybody() && raise_limit() == 0 && first_fd() <= FDS_MOST &&
		plan->n_maps <= MAPS_MOST && plan->n_processes <= LAZY_SPACES / 4)
		fd = make();
	if (fd >= 0)
		(void)CALL1(__NR_close, fd);
	return fd >= 0;
}

void lazy_prepare(void)
{
	had_none = CALL5(__NR_prctl, PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1;
	(void)CALL5(__NR_prctl, PR_SET_THP_DISABLE, 1, 0, 0, 0);
	prepared = true;
}

void lazy_leave(void)
{
	if (prepared && !had_none)
		(void)CALL5(__NR_prctl, PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

uint32_t lazy_first_fd(void)
{
	return loader == 0 ? ~0U : first_fd();
}

long lazy_loader(void)
{
	return loader;
}

void lazy_start(void)
{
	struct bare_clone args = { .flags = CLONE_FILES, .exit_signal = SIGCHLD };
	uint32_t above = first_fd();
	const int on = 1;
	int pair[2];

	if (!pull.on)
		return;
	(void)fork_must(raise_limit(), "raise the limit of files");
	pull.requests = fork_move_up(pull.requests, above);
	pull.slots = fork_move_up(pull.slots, above);
	for (uint32_t i = 0; i < pull.n; i++) {
		pull.pipes[i] = fork_move_up(pull.pipes[i], above);
		pull.credits[i] = fork_move_up(pull.credits[i], above);
	}
	(void)fork_must(CALL4(__NR_socketpair, 1, 5 | BARE_CLOEXEC, 0, pair), "make a socket pair");
	/* whom it shall trace the kernel says, of what is sent from now on */
	(void)fork_must(CALL5(__NR_setsockopt, pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)),
		"ask who sends");
	to_loader = fork_move_up(pair[0], above);
	serves = true;
	pair[1] = fork_move_up(pair[1], above);
	if (fork.loader_cgroup >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)fork.loader_cgroup;
	}
	loader = fork_must(CALL2(__NR_clone3, &args, sizeof(args)), "clone the loader");
	if (loader == 0)
		loader_main(pair[1]);
}

/* What it has left. Others can write there: a few words of errno mean something else to the keeper. */
static long own_error(void)
{
	uint32_t error = fork_shared()->loader_error;

	return error == 0 || error >= ERRORS || -(long)error == PULL_DAMAGED ||
			       -(long)error == TEMPLATE_LOCKED || -(long)error == TEMPLATE_REPLACED
		       ? -ESRCH
		       : -(long)error;
}

long lazy_error(const int *info)
{
	if (info[SIGINFO_CODE] == CLD_EXITED && info[SIGINFO_STATUS] == 0)
		return 0;
	if (info[SIGINFO_CODE] == CLD_EXITED && info[SIGINFO_STATUS] == LAZY_DAMAGED)
		return PULL_DAMAGED;
	return info[SIGINFO_CODE] == CLD_EXITED ? own_error() : -ESRCH;
}

const char *lazy_step(const int *info)
{
	static const char *const steps[LAZY_ENDS] = {
		[LAZY_NO_ROOM] = "load the memory: note what is missing",
		[LAZY_STUCK] = "load the memory: wait for a change of mappings",
		[LAZY_CROWDED] = "load the memory: follow so many processes",
		[LAZY_NOT_ASKED] = "load the memory: ask for it",
		[LAZY_NOT_TAKEN] = "load the memory: take what was read",
		[LAZY_NOT_MAPPED] = "load the memory: map the way to it",
		[LAZY_NOT_HEARD] = "load the memory: hear what a process does",
		[LAZY_NOT_PLACED] = "load the memory: place a page",
		[LAZY_NOT_TOLD] = "load the memory: be told of a process",
		[LAZY_NOT_KEPT] = "load the memory: keep a descriptor",
		[LAZY_NOT_TRACED] = "load the memory: trace a process",
	};
	int status = info[SIGINFO_STATUS];

	if (info[SIGINFO_CODE] != CLD_EXITED)
		return "load the memory: its loader was killed";
	return status > 0 && status < LAZY_ENDS && steps[status] != NULL ? steps[status]
									 : "load the memory";
}

void lazy_check(void)
{
	const char *step = "load the memory";
	int info[32];
	long rc;

	if (loader == 0)
		return;
	info[SIGINFO_PID] = 0;
	rc = CALL5(__NR_waitid, P_PID, loader, info, WEXITED | WNOHANG | WNOWAIT, 0);
	/* it may have gone on, and be done */
	if (rc == 0 && info[SIGINFO_PID] != 0) {
		rc = lazy_error(info);
		step = rc == PULL_DAMAGED ? step : lazy_step(info);
	}
	if (rc < 0)
		fork_fail(step, rc);
}

static void wait_for(uint32_t state)
{
	uint32_t *word = &fork_shared()->loader, now;

	while ((now = __atomic_load_n(word, __ATOMIC_SEQ_CST)) < state) {
		lazy_check();
		futex_wait(word, now);
	}
}

void lazy_go(void)
{
	const uint32_t go = LAZY_GO;

	if (loader == 0)
		return;
	wait_for(LAZY_HAS_ALL);
	if (CALL6(__NR_sendto, to_loader, &go, sizeof(go), 0x4000 /* NOSIGNAL */, 0, 0) !=
		(long)sizeof(go))
		fork_fail("let the loader go", -EIO);
	wait_for(LAZY_GOES);
	lazy_close();
}

void lazy_close(void)
{
	if (to_loader >= 0)
		(void)CALL1(__NR_close, to_loader);
	to_loader = -1;
}

/* --- in a process --- */

void lazy_begin(const struct plan_process *p)
{
	struct uffdio_register r = { .range = { p->stash_start, p->stash_end - p->stash_start },
		.mode = UFFDIO_REGISTER_MODE_MISSING };
	const uint32_t index = (uint32_t)(p - plan_processes());
	long fd;

	if (to_loader < 0 || !lazy_serves(p))
		return;
	fd = fork_must(make(), "make a userfaultfd");
	(void)fork_must(CALL3(__NR_ioctl, fd, UFFDIO_REGISTER, &r), "register the memory");
	fork_pass(to_loader, &index, sizeof(index), (int)fd);
	(void)CALL1(__NR_close, fd);
}

/* Read by the kernel, which says where nothing is mapped, and waits where something is missing. Return: whether all of it was there. */
static bool fetch(void *to, uint64_t from, uint64_t n)
{
	struct bare_iovec local = { (uint64_t)to, n }, remote = { from, n };

	return CALL6(__NR_process_vm_readv, CALL0(__NR_getpid), &local, 1, &remote, 1, 0) ==
	       (long)n;
}

/* Of few pages, wherever they are. */
static void fill_some(uint64_t start, uint64_t end)
{
	uint64_t word;

	/* a program may have told the kernel anything */
	if (!serves || end > ADDRESSES)
		return;
	if (end > start + SOME_MOST)
		end = start + SOME_MOST;
	for (uint64_t at = start & ~(BARE_PAGE - 1); at < end; at += BARE_PAGE)
		(void)fetch(&word, at, sizeof(word));
}

void lazy_fill(uint64_t start, uint64_t end, uint64_t stash)
{
	uint64_t word, at = stash;

	while (serves && (at = pull_next_page(at, stash + (end - start))) < stash + (end - start)) {
		(void)fetch(&word, start + (at - stash), sizeof(word));
		at += BARE_PAGE;
	}
}

static void need_lock(uint64_t entry, int64_t offset)
{
	uint64_t at = entry + (uint64_t)offset;

	fill_some(at, at + sizeof(uint32_t));
}

/* What the kernel goes through at the thread's end, which cannot wait: one page that is missing, and the locks behind it stay taken. */
static void need_robust_list(uint64_t at)
{
	struct {
		uint64_t next;
		int64_t offset;
		uint64_t pending;
	} head;
	uint64_t entry;

	if (at == 0 || !fetch(&head, at, sizeof(head)))
		return;
	need_lock(head.pending & ~1UL, head.offset);
	entry = head.next & ~1UL;
	for (int i = 0; i < ROBUST_LIMIT && entry != at; i++) {
		uint64_t next;

		need_lock(entry, head.offset);
		if (!fetch(&next, entry, sizeof(next)))
			return;
		entry = next & ~1UL;
	}
}

void lazy_need(const struct image_process *p)
{
	if (!serves)
		return;
	for (uint32_t i = 0; i < p->n_threads; i++) {
		const struct image_thread *t =
			IMAGE_ROW(struct image_thread, TABLE_THREADS, p->first_thread + i);

		fill_some(t->tid_address, t->tid_address + 4);
		fill_some(t->rseq, t->rseq + t->rseq_length);
		need_robust_list(t->robust_list);
	}
	fill_some(p->mm.arg_start, p->mm.arg_end);
	fill_some(p->mm.env_start, p->mm.env_end);
}
