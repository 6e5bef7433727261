/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/loader.c - the process that brings the missing pages of processes that run (lazy.h): those that are touched first, then all others in their order.
 *
 * Privileged, so it reads numbers only: of the kernel (faults, events), of the plan, and lengths of chunks. What it places where is bytes of the sandbox's own.
 *
 * Invariants
 *  (1) a page is placed only where a claim says that the program still expects it: a claim is made of the stash, and follows mremap() and fork();
 *  (2) what no claim says, or what has been placed, is zeros when it is missing: the program has given it up (MADV_DONTNEED) or never had it;
 *  (3) no descriptor is closed, by whoever dies, while a page behind it is missing: T' has them all too. When we fail, we end, and T' has everything killed.
 */
#include "prog/cay-template/claims.h"
#include "prog/cay-template/lazy.h"
#include "prog/cay-template/tracing.h"

#include <asm/ioctl.h>
#include <linux/prctl.h>
#include <linux/userfaultfd.h>

#define POLLIN      1
#define NOFILE      7
#define MANY_FILES  (1U << 20)
#define BEHIND      2U /* chunks for each coder that are asked for ahead of time */
#define TRIES_S     30 /* for a change to end, for a page to be placed, for room */
#define FEW_S       2  /* the same, for a test */
#define FEW_SPACES  512U
#define SLOW_MS     300
#define ALIVE_MS    100
#define SWEPT_MIN   256U /* address spaces, before it is looked whether some have ended */
#define YIELDS      1000 /* before we wait for time to pass */
#define PATIENCE_MS 20   /* before we ask what is waited for */
#define HEARD_MOST  1024 /* changes, before others have their turn */
#define ADDRESSES   (1ULL << 47)
#define LOWEST      0x10000ULL /* vm.mmap_min_addr is not above it */

#define SCM_CREDENTIALS 2

/* An address space. */
struct space {
	int fd;      /* -1: it has ended */
	int32_t pid; /* inside, of the process of the image that it has its memory of */
	uint64_t stash_start, stash_end;
	struct claims now;
	bool unsettled;   /* a change is under way: nothing can be placed until it is over */
	uint64_t touched; /* meanwhile, last; 0 = nothing was */
};

struct pollfd {
	int fd;
	short events, revents;
};

static struct space *spaces;
static struct pollfd *polled;
static uint32_t n_spaces;
static uint32_t sweep_at = SWEPT_MIN; /* so many, and they are looked at */
static uint32_t placing_at;           /* the one that is gone through */
static bool placing;                  /* all of them are */
static uint32_t next_chunk;           /* in their order */
static uint8_t *wanted;               /* chunks that somebody waits for */
static uint32_t n_unasked;            /* of those, when too many were asked for already */
static uint32_t n_recorded;
static long stops;       /* something to do for tracing_serve() */
static bool going, idle; /* the programs run; for a while nobody has touched anything */
static bool busy;        /* there may be more to hear */
static long creator;     /* T'; 0 = it is gone */
/* what tests want: to see what happens meanwhile; that there is no room from when memory is given back until some is again */
static bool slow, narrow, no_room;
static uint64_t tries_s = TRIES_S;
static uint32_t most_spaces = LAZY_SPACES;

/* @rc: -errno. */
static BARE_NORETURN void fail(enum lazy_end why, long rc)
{
	fork_shared()->loader_error = (uint32_t)-rc;
	bare_exit((int)why);
}

static void pause_ms(int ms)
{
	(void)CALL3(__NR_poll, NULL, 0, ms);
}

void *claims_room(uint64_t bytes)
{
	return pull_room(bytes);
}

static uint64_t seconds(void)
{
	int64_t now[2] = { 0 };

	(void)CALL2(__NR_clock_gettime, 1 /* MONOTONIC */, now);
	return (uint64_t)now[0];
}

/* What has not come to an end by then, never will: a call that waits for a page before it tells of its change, or that failed without telling (Linux before 0496a59745b0). */
static void give_up_later(uint64_t *since)
{
	if (*since == 0)
		*since = seconds();
	else if (seconds() - *since > tries_s)
		fail(LAZY_STUCK, -ETIME);
}

/* --- address spaces --- */

static void end_space(struct space *s)
{
	(void)CALL1(__NR_close, s->fd);
	s->fd = -1;
	s->now.n = 0;
}

/* What the kernel says of a page, without doing anything: ENOENT: it is not mapped, or is not ours; EINVAL: it is; EAGAIN: mappings are changing; ESRCH: the address space has ended. */
static long look_at(int fd, uint64_t page)
{
	struct uffdio_continue c = { .range = { page, BARE_PAGE } };

	return CALL3(__NR_ioctl, fd, UFFDIO_CONTINUE, &c);
}

static bool has_ended(int fd)
{
	return look_at(fd, LOWEST) == -ESRCH;
}

static void sweep(void)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < n_spaces; i++) {
		if (spaces[i].fd >= 0 && !spaces[i].unsettled && has_ended(spaces[i].fd))
			end_space(&spaces[i]);
		left += spaces[i].fd >= 0;
	}
	sweep_at = left * 2 > SWEPT_MIN ? left * 2 : SWEPT_MIN;
}

/* While all are gone through, only behind the one that is met: it is to be met too. */
static uint32_t free_place(void)
{
	uint32_t i = placing ? placing_at + 1 : 0;

	while (i < n_spaces && spaces[i].fd >= 0)
		i++;
	return i;
}

static struct space *add_space(int fd, int32_t pid, uint64_t stash_start, uint64_t stash_end)
{
	uint32_t i = free_place();

	if (i == n_spaces && i >= sweep_at) {
		sweep();
		i = free_place();
	}
	if (i == most_spaces)
		fail(LAZY_CROWDED, -E2BIG);
	if (i == n_spaces)
		n_spaces++;
	/* room for claims is used again */
	spaces[i] = (struct space){ .fd = fd,
		.pid = pid,
		.stash_start = stash_start,
		.stash_end = stash_end,
		.now = { spaces[i].now.list, 0, spaces[i].now.room } };
	return &spaces[i];
}

static void wake(const struct space *s, uint64_t start, uint64_t length)
{
	struct uffdio_range range = { start, length };

	(void)CALL3(__NR_ioctl, s->fd, UFFDIO_WAKE, &range);
}

/* While mappings change nothing can be placed: whoever waits is woken, and touches it again, when that is over. */
static void place_zeros(struct space *s, uint64_t page)
{
	struct uffdio_zeropage z = { .range = { page, BARE_PAGE } };
	long rc = CALL3(__NR_ioctl, s->fd, UFFDIO_ZEROPAGE, &z);

	if (rc == -EAGAIN) {
		s->unsettled = true;
		s->touched = page;
	} else if (rc < 0) {
		wake(s, page, BARE_PAGE);
	}
}

static void ask(uint32_t chunk)
{
	long rc = pull_ask(chunk);

	if (rc < 0)
		fail(LAZY_NOT_ASKED, rc);
}

/* Somebody waits for it, for the first time. */
static void record(const struct space *s, uint64_t stash)
{
	struct fork_shared *shared = fork_shared();

	/* (others can write to what is shared) */
	if (n_recorded == TEMPLATE_FIRST_MAX)
		return;
	shared->first[n_recorded++] =
		(struct template_first){ .pid = s->pid, .address = pull_place(stash) };
	shared->n_first = n_recorded;
}

static void fault(struct space *s, uint64_t address)
{
	uint64_t page = address & ~(BARE_PAGE - 1);
	const struct claim *c = claims_find(&s->now, page);
	uint32_t chunk = c == NULL ? PULL_NONE : pull_chunk_of(c->stash + (page - c->start));

	if (chunk == PULL_NONE || pull.state[chunk] == PULL_IN) {
		place_zeros(s, page);
		return;
	}
	if (pull.state[chunk] == PULL_OUT && pull_may_ask())
		ask(chunk);
	else if (pull.state[chunk] == PULL_OUT && wanted[chunk] == 0)
		n_unasked++;
	if (wanted[chunk] == 0)
		record(s, c->stash + (page - c->start));
	wanted[chunk] = 1;
}

/* Is a change of mappings under way, of which we have not heard, or whose caller has not gone on? The kernel looks at that first. */
static bool is_changing(int fd)
{
	struct uffdio_copy nothing = { 0 };

	return CALL3(__NR_ioctl, fd, UFFDIO_COPY, &nothing) == -EAGAIN;
}

/* What is missing in the parent is missing in the child. (Descriptors of address spaces that have ended meanwhile are found by sweep().) */
static void hear_fork(const struct space *parent, int fd)
{
	struct space *s = add_space(fd, parent->pid, parent->stash_start, parent->stash_end);

	if (!claims_copy(&parent->now, &s->now))
		fail(LAZY_NO_ROOM, -ENOMEM);
}

/* Of one task that runs in it all changes are heard in their order. */
static void hear(struct space *s, const struct uffd_msg *m)
{
	bool room = true;

	if (m->event == UFFD_EVENT_PAGEFAULT) {
		/* woken when nothing changes any more, it comes again */
		if (!s->unsettled)
			fault(s, m->arg.pagefault.address);
		else
			s->touched = m->arg.pagefault.address & ~(BARE_PAGE - 1);
		return;
	}
	s->unsettled = true;
	switch (m->event) {
	case UFFD_EVENT_FORK:
		hear_fork(s, (int)m->arg.fork.ufd);
		break;
	case UFFD_EVENT_REMAP:
		room = claims_move(&s->now, m->arg.remap.from, m->arg.remap.from + m->arg.remap.len,
			m->arg.remap.to);
		break;
	case UFFD_EVENT_REMOVE: /* told before it is done */
		no_room = narrow && !no_room;
		room = claims_drop(&s->now, m->arg.remove.start, m->arg.remove.end);
		break;
	case UFFD_EVENT_UNMAP:
		room = claims_drop(&s->now, m->arg.remove.start, m->arg.remove.end);
		break;
	default:
		fail(LAZY_NOT_HEARD, -EPROTO);
	}
	if (!room)
		fail(LAZY_NO_ROOM, -ENOMEM);
}

/* Whoever has touched something meanwhile, or waits where nothing is expected any more, touches it again. */
static void settle(struct space *s)
{
	s->unsettled = false;
	s->touched = 0;
	wake(s, LOWEST, ADDRESSES - BARE_PAGE - LOWEST);
}

/* mremap() that makes a mapping larger which has been locked waits for the pages that are new before it says where it has put the old ones: nothing is to come there, and nobody else knows of them. */
static bool let_be_zeros(struct space *s)
{
	struct uffdio_range page = { s->touched, BARE_PAGE };

	if (s->touched == 0 || claims_find(&s->now, s->touched) != NULL)
		return false;
	s->touched = 0;
	return CALL3(__NR_ioctl, s->fd, UFFDIO_UNREGISTER, &page) == 0;
}

/* A change is under way whose caller has not gone on. @rounds: for so long. */
static void wait_for_change(struct space *s, uint32_t rounds, uint64_t *since)
{
	give_up_later(since);
	tracing_serve();
	if (rounds < YIELDS)
		(void)CALL0(__NR_sched_yield);
	else if (rounds < YIELDS + PATIENCE_MS || !let_be_zeros(s))
		pause_ms(1);
}

/* What there is to hear of it, until no change is under way. Who changes something all the time does not keep the others waiting. */
static void listen(struct space *s)
{
	uint64_t since = 0;
	struct uffd_msg m;

	for (uint32_t rounds = 0, heard = 0; s->fd >= 0 && heard < HEARD_MOST; rounds++) {
		long n = CALL3(__NR_read, s->fd, &m, sizeof(m));

		if (n == (long)sizeof(m)) {
			hear(s, &m);
			if (++heard == HEARD_MOST)
				busy = true; /* also when another has less to tell */
			continue;
		}
		if (n != -EAGAIN)
			fail(LAZY_NOT_HEARD, n < 0 ? n : -EPROTO);
		if (!s->unsettled)
			return;
		if (is_changing(s->fd))
			wait_for_change(s, rounds, &since);
		else
			settle(s);
	}
}

static void listen_to_all(void)
{
	for (uint32_t i = 0; i < n_spaces; i++) {
		if (spaces[i].fd >= 0)
			listen(&spaces[i]);
	}
}

/* --- placing --- */

/* There is something to hear before anything can be placed. */
static void hear_first(struct space *s)
{
	s->unsettled = true;
	listen(s);
	(void)CALL0(__NR_sched_yield);
}

/* What the kernel said instead of placing all of it. Return: how many bytes need not be tried again. */
static uint64_t placed_less(struct space *s, const struct uffdio_copy *c, long rc, uint64_t *since)
{
	if (c->copy > 0)
		return (uint64_t)c->copy;
	switch (rc) {
	case -ESRCH:
	case -ENOSPC:
		end_space(s);
		return c->len;
	case -EEXIST:
		return BARE_PAGE;
	case -ENOENT: /* not of one mapping; or of none any more, unless it is being moved just now */
		if (c->len > BARE_PAGE)
			return 0;
		if (!is_changing(s->fd))
			return BARE_PAGE;
		break;
	case -EAGAIN:
		break;
	case -ENOMEM: /* until somebody gives some back, who wants to be heard */
		listen_to_all();
		tracing_serve();
		give_up_later(since);
		pause_ms(1);
		return 0;
	default:
		fail(LAZY_NOT_PLACED, rc);
	}
	give_up_later(since);
	hear_first(s);
	return 0;
}

/* Return: whether anything of the @part from @done on is expected: then at @at, so much of it. */
static bool next_range(const struct space *s, const struct pull_part *part, uint64_t *done,
	struct uffdio_range *at)
{
	const struct claim *c = s->fd < 0 ? NULL : claims_next(&s->now, part->to + *done);
	uint64_t left;

	if (c == NULL || c->stash >= part->to + part->length)
		return false;
	if (c->stash > part->to + *done)
		*done = c->stash - part->to;
	at->start = c->start + (part->to + *done - c->stash);
	at->len = c->end - at->start;
	left = part->length - *done;
	if (at->len > left)
		at->len = left;
	return left > 0;
}

/* What is expected may change at each step. */
static void place(struct space *s, const struct pull_part *part)
{
	uint64_t done = 0, most = part->length;
	struct uffdio_range at;
	uint64_t since = 0;

	while (done < part->length && next_range(s, part, &done, &at)) {
		struct uffdio_copy c = { .dst = at.start,
			.src = part->from + done,
			.len = at.len < most ? at.len : most };
		long rc = no_room ? -ENOMEM : CALL3(__NR_ioctl, s->fd, UFFDIO_COPY, &c);

		if (rc == 0) {
			done += c.len;
			since = 0;
			most = part->length;
			continue;
		}
		if (rc == -ENOENT && c.copy <= 0)
			most = BARE_PAGE;
		done += placed_less(s, &c, rc, &since);
	}
}

static bool is_of(const struct space *s, const struct pull_part *part)
{
	return s->fd >= 0 && !part->content && part->to >= s->stash_start &&
	       part->to < s->stash_end;
}

/* Address spaces may be added meanwhile: they have what their parent had, and get the rest. */
static void place_everywhere(const struct pull_part *part)
{
	for (uint32_t i = 0; part->from != 0 && i < n_spaces; i++) {
		if (!is_of(&spaces[i], part))
			continue;
		if (part->length % BARE_PAGE != 0)
			fail(LAZY_NOT_PLACED, -EPROTO);
		placing_at = i;
		place(&spaces[i], part);
	}
}

static void wake_everywhere(const struct pull_part *part)
{
	for (uint32_t i = 0; i < n_spaces; i++) {
		struct uffdio_range at;

		for (uint64_t done = 0; is_of(&spaces[i], part) && done < part->length &&
					next_range(&spaces[i], part, &done, &at);
			done += at.len)
			wake(&spaces[i], at.start, at.len);
	}
}

/* --- the order --- */

static void ask_more(void)
{
	uint64_t most = !slow ? (uint64_t)pull.n * BEHIND : idle ? 1 : 0;

	for (uint32_t i = 0; i < pull.n_chunks && n_unasked > 0; i++) {
		if (wanted[i] == 0 || pull.state[i] != PULL_OUT)
			continue;
		if (!pull_may_ask())
			return;
		n_unasked--;
		ask(i);
	}
	while (going && next_chunk < pull.n_chunks && pull.asked - pull.taken < most) {
		if (pull.state[next_chunk] == PULL_OUT)
			ask(next_chunk);
		next_chunk++;
	}
}

static void take_chunk(void)
{
	long chunk;

	placing = true;
	chunk = pull_take(place_everywhere);
	placing = false;
	if (chunk == PULL_DAMAGED)
		bare_exit(LAZY_DAMAGED);
	if (chunk < 0)
		fail(LAZY_NOT_TAKEN, chunk);
	bare_fault("live.loader.chunk");
	/* zeros among them are placed by whoever touches them */
	if (wanted[chunk] != 0)
		pull_parts((uint32_t)chunk, wake_everywhere);
}

struct passed {
	uint64_t length; /* struct cmsghdr with who sent it */
	int32_t level, type;
	int32_t pid;
	uint32_t uid, gid, pad;
	uint64_t fd_length; /* and one with a descriptor */
	int32_t fd_level, fd_type;
	int32_t fd, fd_pad;
};

/* Return: what was said; with it, unless it is LAZY_GO, a descriptor. */
static uint32_t receive(int socket, struct passed *ret)
{
	uint32_t index = 0;
	struct bare_iovec iov = { (uint64_t)&index, sizeof(index) };
	struct bare_message m = {
		.iov = &iov, .n_iov = 1, .control = ret, .control_length = sizeof(*ret)
	};
	long n = CALL3(__NR_recvmsg, socket, &m, 0x40000000 /* CMSG_CLOEXEC */);

	if (n != (long)sizeof(index) || ret->length != 28 || ret->type != SCM_CREDENTIALS)
		fail(LAZY_NOT_TOLD, n < 0 ? n : -EPROTO);
	if (index != LAZY_GO && (index >= plan->n_processes || ret->fd_length != 20))
		fail(LAZY_NOT_TOLD, -EPROTO);
	return index;
}

/* T' gives up its low descriptors later. */
static void receive_space(int socket)
{
	struct passed passed = { 0 };
	const struct plan_process *p;
	uint32_t index = receive(socket, &passed);
	long kept, rc;

	if (index == LAZY_GO)
		fail(LAZY_NOT_TOLD, -EPROTO);
	kept = CALL3(__NR_fcntl, passed.fd, 1030 /* F_DUPFD_CLOEXEC */, socket);
	if (kept < 0)
		fail(LAZY_NOT_KEPT, kept);
	rc = tracing_add(passed.pid);
	if (rc < 0)
		fail(LAZY_NOT_TRACED, rc);
	(void)CALL1(__NR_close, passed.fd);
	p = &plan_processes()[index];
	if (!claims_put(&add_space((int)kept, p->pid, p->stash_start, p->stash_end)->now,
		    (struct claim){ p->stash_start, p->stash_end, p->stash_start }))
		fail(LAZY_NO_ROOM, -ENOMEM);
}

static uint32_t count_expected(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < plan->n_processes; i++)
		n += lazy_serves(&plan_processes()[i]);
	return n;
}

static void say(uint32_t state)
{
	uint32_t *word = &fork_shared()->loader;

	__atomic_store_n(word, state, __ATOMIC_SEQ_CST);
	futex_wake(word);
}

static void receive_go(int socket)
{
	struct passed none = { 0 };

	if (receive(socket, &none) != LAZY_GO)
		fail(LAZY_NOT_TOLD, -EPROTO);
	(void)CALL1(__NR_close, socket);
	(void)CALL5(__NR_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0);
	going = true;
	say(LAZY_GOES);
	bare_fault("live.loader.going");
	if (bare_fault_named("live.loader.lost"))
		fail(LAZY_NOT_PLACED, -E2BIG);
}

/* The keeper learns of the end of T' by its socket, which is ours too. */
static void look_after_parent(void)
{
	if (going && creator != 0 && CALL0(__NR_getppid) != creator) {
		creator = 0;
		(void)CALL1(__NR_close, FORK_SOCKET);
	}
}

static void wait_and_serve(int socket)
{
	uint32_t n = 0, first;
	long rc;

	polled[n++] = (struct pollfd){ .fd = pull_pipe(), .events = POLLIN };
	polled[n++] = (struct pollfd){ .fd = going ? -1 : socket, .events = POLLIN };
	polled[n++] = (struct pollfd){ .fd = (int)stops, .events = POLLIN };
	first = n;
	for (uint32_t i = 0; i < n_spaces; i++)
		polled[n++] = (struct pollfd){ .fd = spaces[i].fd, .events = POLLIN };
	rc = CALL3(__NR_poll, polled, n, busy ? 0 : slow ? SLOW_MS : ALIVE_MS);
	idle = rc == 0 && !busy;
	look_after_parent();
	if (rc < 0 || idle)
		return;
	busy = false;
	for (uint32_t i = 0; first + i < n; i++) {
		if (polled[first + i].revents != 0 || spaces[i].unsettled)
			listen(&spaces[i]);
	}
	if (polled[1].revents != 0)
		receive_go(socket);
	if (polled[2].revents != 0)
		tracing_serve();
	if (polled[0].revents != 0)
		take_chunk();
}

static bool nobody_left(void)
{
	for (uint32_t i = 0; i < n_spaces; i++) {
		if (spaces[i].fd >= 0)
			return false;
	}
	return true;
}

BARE_NORETURN void loader_main(int socket)
{
	uint64_t limit[2] = { MANY_FILES, MANY_FILES };
	long rc;

	creator = CALL0(__NR_getppid);
	(void)CALL5(__NR_prctl, PR_SET_NAME, "cay-loader", 0, 0, 0);
	(void)CALL5(__NR_prctl, PR_SET_PDEATHSIG, 9, 0, 0, 0);
	(void)CALL4(__NR_prlimit64, 0, NOFILE, limit, 0);
	slow = bare_fault_named("live.loader.slow");
	narrow = bare_fault_named("live.loader.narrow");
	if (bare_fault_named("live.loader.crowded"))
		most_spaces = FEW_SPACES;
	tries_s = bare_fault_named("live.loader.impatient") ? FEW_S : TRIES_S;
	wanted = pull_room(pull.n_chunks);
	spaces = pull_room(LAZY_SPACES * sizeof(*spaces));
	polled = pull_room((LAZY_SPACES + 3) * sizeof(*polled));
	stops = tracing_begin(socket);
	if (wanted == NULL || spaces == NULL || polled == NULL)
		fail(LAZY_NO_ROOM, -ENOMEM);
	if (stops < 0)
		fail(LAZY_NOT_TRACED, stops);
	rc = pull_map();
	if (rc < 0)
		fail(LAZY_NOT_MAPPED, rc);
	if (bare_fault_named("live.loader.stuck"))
		fail(LAZY_STUCK, -ETIME);
	for (uint32_t left = count_expected(); left > 0; left--)
		receive_space(socket);
	bare_fault("live.loader.begun");
	say(LAZY_HAS_ALL);
	for (;;) {
		ask_more();
		if (going && (nobody_left() ||
				     (next_chunk == pull.n_chunks && pull.asked == pull.taken)))
			break;
		wait_and_serve(socket);
	}
	bare_fault("live.loader.done");
	for (uint32_t i = 0; i < n_spaces; i++) {
		if (spaces[i].fd >= 0)
			end_space(&spaces[i]);
	}
	pull_end();
	bare_exit(0);
}
