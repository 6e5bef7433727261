/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/fill.c - the template's orders. Privileged, so it reads numbers only and checks each: what is copied is memory of processes that the
 * keeper named, and it lands in the stash.
 *
 * A dumper, which looks into what the payload made, has its keeper's connection: the kernel says who sent an order, and whoever has not connected may do nothing but
 * fill, or say where the memory is, out of those processes.
 */
#include "prog/cay-template/fill.h"
#include "checkpoint/image_check.h"
#include "prog/cay-template/copying.h"
#include "prog/cay-template/fork.h"
#include "prog/cay-template/frames.h"
#include "prog/cay-template/lazy.h"
#include "prog/cay-template/lending.h"
#include "prog/cay-template/reading.h"
#include "prog/cay-template/saving.h"
#include "prog/cay-template/stock.h"

#include <linux/fcntl.h>

#define FDS_MAX          248
#define SOL_SOCKET       1
#define SCM_RIGHTS       1
#define SCM_CREDENTIALS  2
#define SO_PEERCRED      17
#define MSG_CMSG_CLOEXEC 0x40000000

/* struct ucred */
struct sender {
	int32_t pid;
	uint32_t uid, gid;
};

struct control {
	uint64_t length;
	int32_t level, type;
	int32_t fds[];
};

/* room for who sent it and for descriptors, as the kernel lays them out */
#define CONTROL_ROOM (2 * sizeof(struct control) + 16 + FDS_MAX * 4)

const struct plan *plan;
const struct image_header *image;
uint64_t image_size;
struct fork_context fork;

static struct template_allow allow;
static struct template_stream held; /* sizes of what is held; all 0 before */
static bool pointing;               /* the memory is in the processes still */
static const char *wrong;           /* with the plan that came last */
static bool used;                   /* something has come of what is held: it is that for good */

static union {
	uint32_t kind;
	struct template_allow allow;
	struct template_gather gather;
	struct template_lend lend;
	struct template_same same;
	struct template_memory memory;
	struct template_fork fork;
} order;

/* @sender: its number, 0 when the kernel does not say it. */
static long receive(int peer, int fds[FDS_MAX], uint32_t *n_fds, int32_t *sender)
{
	static char room[CONTROL_ROOM] __attribute__((aligned(8)));
	struct bare_iovec iov = { (uint64_t)&order, sizeof(order) };
	struct bare_message m = {
		.iov = &iov, .n_iov = 1, .control = room, .control_length = sizeof(room)
	};
	long n = CALL3(__NR_recvmsg, peer, &m, MSG_CMSG_CLOEXEC);
	const struct control *c;

	*n_fds = 0;
	*sender = 0;
	for (uint64_t at = 0; n > 0 && at + sizeof(*c) <= m.control_length;
		at += (c->length + 7) & ~7UL) {
		c = (const struct control *)(const void *)(room + at);
		if (c->length < sizeof(*c) || c->level != SOL_SOCKET)
			break;
		if (c->type == SCM_CREDENTIALS)
			*sender = ((const struct sender *)(const void *)c->fds)->pid;
		if (c->type != SCM_RIGHTS)
			continue;
		*n_fds = (uint32_t)((c->length - sizeof(*c)) / 4);
		for (uint32_t i = 0; i < *n_fds; i++)
			fds[i] = c->fds[i];
	}
	return n;
}

/* Who connected. Return: its number; 0 when the kernel does not say it. */
static int32_t connected(int peer)
{
	struct sender s = { 0 };
	uint32_t n = sizeof(s);

	return CALL5(__NR_getsockopt, peer, SOL_SOCKET, SO_PEERCRED, &s, &n) < 0 ? 0 : s.pid;
}

static void close_all(const int *fds, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		(void)CALL1(__NR_close, fds[i]);
}

/* @fd: goes with it, -1 = none does. */
static void answer_with(int peer, enum template_message_kind kind, long rc, long fd)
{
	struct {
		uint64_t length;
		int32_t level, type, fd, pad;
	} given = { sizeof(struct control) + 4, SOL_SOCKET, SCM_RIGHTS, (int32_t)fd, 0 };
	struct template_message m = { .kind = kind, .status = (int32_t)rc, .held = held };
	struct bare_iovec iov = { (uint64_t)&m, sizeof(m) };
	struct bare_message message = { .iov = &iov,
		.n_iov = 1,
		.control = fd >= 0 ? &given : NULL,
		.control_length = fd >= 0 ? sizeof(given) : 0 };

	for (size_t n = 0; wrong != NULL && wrong[n] != '\0' && n < sizeof(m.step) - 1; n++)
		m.step[n] = wrong[n];
	wrong = NULL;
	(void)CALL3(__NR_sendmsg, peer, &message, 0x4000 /* NOSIGNAL */);
}

static void answer(int peer, enum template_message_kind kind, long rc)
{
	answer_with(peer, kind, rc, -1);
}

/* --- before and after the stop --- */

static bool allowed(int32_t pid)
{
	for (uint32_t i = 0; i < allow.n; i++) {
		if (allow.pids[i] == pid)
			return true;
	}
	return false;
}

/* Tables of huge pages are what fork() copies fastest, and the source stands still for it. Nothing that the process can see changes. */
static long gather(const struct template_gather *g)
{
	struct bare_iovec range = { g->start, g->length };
	long pidfd = allowed(g->pid) ? CALL2(__NR_pidfd_open, g->pid, 0) : -EPERM, rc;

	if (pidfd < 0)
		return pidfd;
	rc = CALL5(__NR_process_madvise, pidfd, &range, 1, 25 /* COLLAPSE */, 0);
	(void)CALL1(__NR_close, pidfd);
	return rc < 0 ? rc : 0;
}

/* Answers itself. */
static void lend(int peer, uint64_t n, int32_t sender)
{
	long fd = n == sizeof(order.lend) && allowed(order.lend.pid)
			  ? lending_open(&order.lend, sender)
			  : -EPERM;

	answer_with(peer, fd < 0 ? TEMPLATE_FAILED : TEMPLATE_DONE, fd < 0 ? fd : 0, fd);
	if (fd >= 0)
		(void)CALL1(__NR_close, fd);
}

/* Answers itself. */
static void tell_same(int peer, uint64_t n)
{
	static struct template_likeness found;
	const struct template_same *o = &order.same;

	memset(&found, 0, sizeof(found));
	found.kind = TEMPLATE_SAME;
	found.status = -EPERM;
	if (n == sizeof(*o) && o->pages <= TEMPLATE_SAME_PAGES && allowed(o->pids[0]) &&
		allowed(o->pids[1]))
		found.status = (int32_t)frames_compare(o, found.same);
	bare_fault("live.template.same");
	(void)CALL6(__NR_sendto, peer, &found, sizeof(found), 0x4000 /* NOSIGNAL */, 0, 0);
}

/* What nobody would be named for is closed by who received it. */
static long take_memories(const struct template_memory *m, const int *fds, uint32_t n_fds)
{
	long rc = m->n <= TEMPLATE_HAND_MAX && m->n == n_fds && plan == NULL ? 0 : -EINVAL;

	for (uint32_t i = 0; rc == 0 && i < m->n; i++)
		rc = allowed(m->pids[i]) ? reading_hand(m->pids[i], fds[i]) : -EPERM;
	return rc;
}

/* A sealed memfd of the dumper, mapped for good. */
static long map_file(int fd, uint64_t at, uint64_t *ret_size)
{
	struct {
		uint64_t head[6];
		uint64_t size;
		uint64_t rest[11];
	} st; /* struct stat */
	long rc = CALL2(__NR_fstat, fd, &st);

	if (rc < 0)
		return rc;
	if (st.size == 0 || st.size > 1ULL << 36 ||
		CALL2(__NR_fcntl, fd, F_GET_SEALS) !=
			(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE))
		return -EINVAL;
	*ret_size = st.size;
	rc = CALL6(__NR_mmap, at, st.size, 1, 2 | 0x100000 /* PRIVATE | FIXED_NOREPLACE */, fd, 0);
	return rc < 0 ? rc : 0;
}

#define HUGE_PAGE   (2UL << 20)
#define PIECE_LEAST (64UL << 10)
#define PIECE_MOST  (8UL << 20) /* what it lacks is memory for nothing */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/** struct filling - what comes into a mapping. */
struct filling {
	uint64_t bytes;
	uint64_t
		touched; /* bytes of the huge pages that it touches, as far as these are the mapping's own */
};

/* Copies follow each other as maps do; *@at is the first that may be in @m. */
static struct filling filling_of(const struct plan_map *m, uint32_t *at)
{
	const struct plan_copy *c = plan_copies();
	uint64_t last = m->address, end = m->address + m->length;
	struct filling f = { 0 };

	while (*at < plan->n_copies && c[*at].to < m->address)
		++*at;
	for (uint32_t i = *at; i < plan->n_copies && c[i].to < end; i++) {
		uint64_t first = most(c[i].to & ~(HUGE_PAGE - 1), last);

		last = least((c[i].to + c[i].length + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1), end);
		f.bytes += c[i].length;
		f.touched += last - least(first, last);
	}
	return f;
}

/* What is dense is filled as fast as memory goes, and forked by the two megabytes; what is smaller, by many pages. */
static long make_map(const struct plan_map *m, uint32_t *at)
{
	const struct filling f = filling_of(m, at);
	const bool dense = f.bytes >= HUGE_PAGE && f.bytes >= f.touched / 8 * 7;
	long rc;

	if (m->grows_down == 0 && dense && f.bytes >= m->length / 8 * 7 &&
		stock_give(m->address, m->length))
		return 0;
	if (m->grows_down == 0 && !dense && f.bytes >= PIECE_LEAST && m->length <= PIECE_MOST &&
		f.bytes >= m->length / 4 * 3 && stock_give_piece(m->address, m->length))
		return 0;
	rc = bare_map(m->address, m->length, 3,
		2 | 0x4000 /* PRIVATE | NORESERVE */ | (m->grows_down != 0 ? 0x100 : 0));
	if (rc == 0 && dense)
		(void)CALL3(__NR_madvise, m->address, m->length, 14 /* HUGEPAGE */);
	else if (rc == 0 && m->content != 0) /* no process will have it: it stays as it is */
		(void)CALL3(__NR_madvise, m->address, m->length, 15 /* NOHUGEPAGE */);
	return rc;
}

static long make_stash(void)
{
	uint32_t at = 0;
	long rc = 0;

	for (uint32_t i = 0; i < plan->n_maps && rc == 0; i++)
		rc = make_map(&plan_maps()[i], &at);
	return rc;
}

/* Are all copies of what the keeper named? */
static bool copies_allowed(void)
{
	const struct plan_copy *c = plan_copies();

	for (uint32_t i = 0; i < plan->n_copies; i++) {
		if (!allowed(c[i].pid))
			return false;
	}
	return true;
}

static void count_pages(void)
{
	const struct plan_copy *copies = plan_copies();

	held.pages = 0;
	for (uint32_t i = 0; i < plan->n_copies; i++)
		held.pages += copies[i].length;
}

/* What was held of a capture that was given up. */
static void forget(void)
{
	for (uint32_t i = 0; !pointing && plan != NULL && i < plan->n_maps; i++)
		(void)CALL2(__NR_munmap, plan_maps()[i].address, plan_maps()[i].length);
	(void)CALL2(__NR_munmap, WINDOW_IMAGE, held.image);
	(void)CALL2(__NR_munmap, WINDOW_PLAN, held.plan);
	reading_forget();
	held = (struct template_stream){ 0 };
	plan = NULL;
	image = NULL;
	pointing = false;
}

/* The plan is checked here; the image by who reads it, in each fork. */
static long take_tables(int image_fd, int plan_fd)
{
	long rc;

	rc = map_file(image_fd, WINDOW_IMAGE, &held.image);
	if (rc == 0 && held.image < sizeof(*image))
		rc = -EINVAL;
	if (rc == 0)
		rc = map_file(plan_fd, WINDOW_PLAN, &held.plan);
	if (rc < 0)
		return rc;
	image = (const struct image_header *)WINDOW_IMAGE;
	plan = (const struct plan *)WINDOW_PLAN;
	image_size = held.image;
	wrong = plan_check(plan, held.plan);
	if (wrong != NULL) {
		plan = NULL; /* nobody looks into it: its counts may be anything */
		return -EINVAL;
	}
	count_pages();
	return 0;
}

/* What came is not kept by halves. */
static long held_or(long rc)
{
	if (rc < 0)
		forget();
	return rc;
}

/* The memory stays where it is until it is saved: nobody else will want it. */
static long point(const int *fds, uint32_t n_fds)
{
	long rc;

	if (n_fds != 2 || plan != NULL)
		return -EINVAL;
	pointing = true;
	rc = take_tables(fds[0], fds[1]);
	return held_or(rc == 0 && !copies_allowed() ? -EPERM : rc);
}

static long fill(const int *fds, uint32_t n_fds)
{
	long rc;

	if (n_fds != 2 || plan != NULL)
		return -EINVAL;
	rc = take_tables(fds[0], fds[1]);
	if (rc == 0)
		rc = make_stash();
	bare_fault("live.template.filling");
	if (rc == 0)
		rc = copies_allowed() ? copying_run() : -EPERM;
	reading_forget();
	bare_fault("live.template.filled");
	return held_or(rc);
}

/* --- to disk and back --- */

/* By a clone, so that forks need not wait. It ends with those that it gives to. */
static long save(int peer, const int *fds, uint32_t n_fds)
{
	struct bare_clone args = { .exit_signal = 17 };
	long rc;

	if (plan == NULL || pull.on || !saving_fds_fit(n_fds))
		return -EINVAL;
	used = true;
	rc = CALL2(__NR_clone3, &args, sizeof(args));
	if (rc != 0)
		return rc < 0 ? rc : 0;
	(void)CALL1(__NR_close, TEMPLATE_LINK_FD);
	(void)CALL1(__NR_close, TEMPLATE_LISTEN_FD);
	(void)CALL1(__NR_close, peer);
	saving_give(&held, pointing, fds, n_fds);
}

/* What comes from disk was written by a template and is authentic; it is checked like anything else. */
static long load(const int *fds, uint32_t n_fds)
{
	long rc;

	if (n_fds < 2 || !saving_fds_fit(n_fds - 2) || plan != NULL)
		return -EINVAL;
	rc = take_tables(fds[0], fds[1]);
	if (rc == 0)
		rc = make_stash();
	if (rc == 0)
		rc = saving_take(held.pages, fds + 2, n_fds - 2);
	used = rc == 0;
	return held_or(rc);
}

/* Pages are brought when they are touched: one fork can be made of it, and no snapshot. Where nobody may serve faults all are taken at once. */
static long attach(const int *fds, uint32_t n_fds)
{
	bool all = true;
	long rc;

	if (n_fds < 4 || !pull_fds_fit(n_fds - 4) || plan != NULL)
		return -EINVAL;
	rc = take_tables(fds[0], fds[1]);
	if (rc == 0)
		all = !lazy_possible();
	if (!all)
		lazy_prepare();
	stock_drop(); /* what is there cannot be missed */
	if (rc == 0)
		rc = make_stash();
	if (rc == 0)
		rc = pull_begin(fds[2], fds + 4, n_fds - 4, held.pages);
	if (rc == 0)
		rc = pull_first(fds[3]);
	if (rc == 0)
		rc = pull_contents(all);
	used = rc == 0;
	if (rc < 0 || all)
		pull_end();
	return held_or(rc);
}

/* The beginning of a capture. What is malformed names nobody: then nothing is copied. */
static void take_names(uint64_t n)
{
	if (!used)
		forget();
	allow.n = 0;
	if (n == sizeof(order.allow) && order.allow.n <= TEMPLATE_PIDS_MAX && plan == NULL)
		memcpy(&allow, &order.allow, sizeof(allow));
}

/* --- forking --- */

static bool take_descriptors(int peer, const int *fds, uint32_t n_fds)
{
	const struct template_fork *o = &order.fork;
	uint32_t at = 0;

	if (plan == NULL || pointing || o->n_tasks > 8 || o->n_leaves != plan->n_leaves ||
		o->n_slots != plan->n_slots ||
		n_fds != 7U + (o->has_u1 != 0 ? 1U : 0U) + (o->has_timens != 0 ? 1U : 0U) +
				 (o->has_cgroup != 0 ? 1U : 0U) +
				 (o->has_loader_cgroup != 0 ? 1U : 0U) + o->n_tasks + o->n_leaves +
				 o->n_slots)
		return false;
	fork = (struct fork_context){ .order = *o,
		.socket = peer,
		.u1 = -1,
		.timens = -1,
		.keeper_cgroup = -1,
		.loader_cgroup = -1 };
	fork.init = fds[at++];
	fork.pids = fds[at++];
	fork.cgroups = fds[at++];
	if (o->has_u1 != 0)
		fork.u1 = fds[at++];
	fork.u2 = fds[at++];
	if (o->has_timens != 0)
		fork.timens = fds[at++];
	fork.filter = fds[at++];
	fork.program = fds[at++];
	fork.starter = fds[at++];
	if (o->has_cgroup != 0)
		fork.keeper_cgroup = fds[at++];
	if (o->has_loader_cgroup != 0)
		fork.loader_cgroup = fds[at++];
	for (uint32_t i = 0; i < o->n_tasks; i++)
		fork.tasks[i] = fds[at++];
	for (uint32_t i = 0; i < o->n_leaves; i++)
		fork.leaves[i] = fds[at++];
	for (uint32_t i = 0; i < o->n_slots; i++)
		fork.slots[i] = fds[at++];
	return true;
}

static long start_fork(int peer, const int *fds, uint32_t n_fds)
{
	struct bare_clone args = { .exit_signal = 17 };
	long rc;

	if (!take_descriptors(peer, fds, n_fds))
		return -EINVAL;
	used = true;
	reading_forget(); /* of a capture that never filled anything */
	bare_fault("live.template.forking");
	if (fork.keeper_cgroup >= 0) {
		args.flags = 0x200000000ULL; /* CLONE_INTO_CGROUP */
		args.cgroup = (uint64_t)fork.keeper_cgroup;
	}
	rc = CALL2(__NR_clone3, &args, sizeof(args));
	if (rc == 0)
		fork_main();
	/* what is missing comes once */
	if (rc > 0 && pull.on) {
		pull_end();
		pointing = true;
	}
	return rc;
}

static long obey(int peer, uint64_t n, const int *fds, uint32_t n_fds)
{
	switch (order.kind) {
	case TEMPLATE_GATHER:
		return n == sizeof(order.gather) ? gather(&order.gather) : -EINVAL;
	case TEMPLATE_MEMORY:
		return n == sizeof(order.memory) ? take_memories(&order.memory, fds, n_fds)
						 : -EINVAL;
	case TEMPLATE_FILL:
		return fill(fds, n_fds);
	case TEMPLATE_POINT:
		return point(fds, n_fds);
	case TEMPLATE_SAVE:
		return save(peer, fds, n_fds);
	case TEMPLATE_LOAD:
		return load(fds, n_fds);
	case TEMPLATE_ATTACH:
		return attach(fds, n_fds);
	case TEMPLATE_FORK:
		return n == sizeof(order.fork) ? start_fork(peer, fds, n_fds) : -EINVAL;
	default:
		return -EINVAL;
	}
}

/* What a dumper does for its keeper. */
static bool is_delegated(uint32_t kind)
{
	return kind == TEMPLATE_GATHER || kind == TEMPLATE_LEND || kind == TEMPLATE_SAME ||
	       kind == TEMPLATE_MEMORY || kind == TEMPLATE_FILL || kind == TEMPLATE_POINT;
}

/* By us: ALLOW is not, and some orders answer themselves. */
static bool is_answered(uint32_t kind, bool may)
{
	return kind != TEMPLATE_ALLOW && !(may && (kind == TEMPLATE_LEND || kind == TEMPLATE_SAME));
}

void fill_or_fork(int peer)
{
	const int32_t owner = connected(peer);
	int fds[FDS_MAX];
	uint32_t n_fds;
	int32_t sender;

	for (;;) {
		long n = receive(peer, fds, &n_fds, &sender), rc = -EPERM;
		bool may;

		if (n < (long)sizeof(order.kind))
			break;
		may = is_delegated(order.kind) || (sender != 0 && sender == owner);
		if (may && order.kind == TEMPLATE_ALLOW)
			take_names((uint64_t)n);
		else if (may && order.kind == TEMPLATE_LEND)
			lend(peer, (uint64_t)n, sender);
		else if (may && order.kind == TEMPLATE_SAME)
			tell_same(peer, (uint64_t)n);
		else if (may)
			rc = obey(peer, (uint64_t)n, fds, n_fds);
		close_all(fds, n_fds);
		if (!is_answered(order.kind, may))
			continue;
		if (order.kind == TEMPLATE_FORK && rc > 0)
			break; /* T' answers from now on */
		answer(peer, rc < 0 ? TEMPLATE_FAILED : TEMPLATE_DONE, rc);
	}
}
