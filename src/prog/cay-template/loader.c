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
#include "prog/cay-template/lazy.h"

#include <asm/ioctl.h>
#include <linux/prctl.h>
#include <linux/userfaultfd.h>

#define POLLIN     1
#define NOFILE     7
#define MANY_FILES (1U << 20)
#define CLAIMS_MIN 128U /* room at the beginning */
#define BEHIND     2U   /* chunks for each coder that are asked for ahead of time */
#define ENOMEM_MS  30000
#define SLOW_MS    300
#define ALIVE_MS   100
#define CLAIMED_MAX \
	(512ULL << 20) /* who cuts its memory into more pieces, or forks them, loses itself alone */
#define YIELDS   1000  /* before we wait for time to pass */
#define BORN_MAX 4096  /* forks at the same time, of one address space */

#define ENOENT 2
#define ESRCH  3
#define EAGAIN 11
#define ENOMEM 12
#define EEXIST 17
#define ENOSPC 28

/* Addresses at which pages of the stash are expected. */
struct claim {
	uint64_t start, end, stash;
	uint64_t epoch; /* of its address space, when it was made */
};

struct claims {
	struct claim *list;
	uint32_t n, room;
};

/* An address space. */
struct space {
	int fd;      /* -1: it has ended */
	int32_t pid; /* inside, of the process of the image that it has its memory of */
	uint64_t stash_start, stash_end;
	struct claims now;
	struct claims
		past;   /* what was taken away since the epoch began: a child may have it still */
	uint64_t epoch; /* counts up when no change of mappings is under way */
	bool unsettled; /* since it counted up mappings have changed */
};

struct pollfd {
	int fd;
	short events, revents;
};

static struct space *spaces;
static struct pollfd *polled;
static uint32_t n_spaces;
static bool placing;        /* all of them are gone through */
static uint32_t next_chunk; /* in their order */
static uint8_t *wanted;     /* chunks that somebody waits for */
static uint32_t n_unasked;  /* of those, when too many were asked for already */
static int born
	[BORN_MAX]; /* children of the one that is being listened to: which memory they have is clear when it has settled */
static uint32_t n_born;
static bool going;
static long creator; /* T'; 0 = it is gone */
static bool slow,
	idle; /* a test wants to see what happens meanwhile; for a while nobody has touched anything */

static BARE_NORETURN void fail(void)
{
	bare_exit(1);
}

static void pause_ms(int ms)
{
	(void)CALL3(__NR_poll, NULL, 0, ms);
}

/* --- claims --- */

static uint64_t claimed; /* bytes, ever */

static void put_claim(struct claims *c, struct claim one)
{
	if (c->n == c->room) {
		uint32_t room = c->room < CLAIMS_MIN ? CLAIMS_MIN : c->room * 2;
		struct claim *more = pull_room(room * sizeof(*more));

		claimed += room * sizeof(*more);
		if (more == NULL || claimed > CLAIMED_MAX)
			fail();
		memcpy(more, c->list, c->n * sizeof(*more));
		c->list = more;
		c->room = room;
	}
	c->list[c->n++] = one;
}

static void add_claim(struct space *s, uint64_t start, uint64_t end, uint64_t stash)
{
	put_claim(&s->now, (struct claim){ start, end, stash, s->epoch });
}

/* What is left of @c without @start to @end is as old as it was. */
static void put_rest(struct claims *to, struct claim c, uint64_t start, uint64_t end)
{
	if (c.start < start)
		put_claim(to, (struct claim){ c.start, start, c.stash, c.epoch });
	if (c.end > end)
		put_claim(to, (struct claim){ end, c.end, c.stash + (end - c.start), c.epoch });
}

static bool overlap(const struct claim *c, uint64_t start, uint64_t end)
{
	return c->start < end && c->end > start;
}

/*
 * Nothing is expected at @start to @end any more. @but_new: except by claims of this epoch: the mappings were taken away before those were made, though we hear of it afterwards (an address that one
 * thread gives up is given to another before the first has told us).
 */
static void give_up(struct space *s, uint64_t start, uint64_t end, bool but_new)
{
	for (uint32_t i = 0; i < s->now.n;) {
		struct claim c = s->now.list[i];

		if (!overlap(&c, start, end) || (but_new && c.epoch == s->epoch)) {
			i++;
			continue;
		}
		/* the last comes here, and is looked at too; what is added does not overlap */
		s->now.list[i] = s->now.list[--s->now.n];
		put_rest(&s->now, c, start, end);
	}
}

/* A child that is told of later, or that was, may have been forked before it was taken away. */
static void remember(struct space *s, uint64_t start, uint64_t end)
{
	for (uint32_t i = 0; i < s->now.n; i++) {
		if (overlap(&s->now.list[i], start, end))
			put_claim(&s->past, s->now.list[i]);
	}
}

/* The two do not overlap. */
static void move_claims(struct space *s, uint64_t from, uint64_t to, uint64_t length)
{
	uint32_t n;

	give_up(s, to, to + length, false);
	n = s->now.n;
	for (uint32_t i = 0; i < n; i++) {
		struct claim c = s->now.list[i];

		if (!overlap(&c, from, from + length))
			continue;
		if (c.start < from) {
			c.stash += from - c.start;
			c.start = from;
		}
		if (c.end > from + length)
			c.end = from + length;
		add_claim(s, to + (c.start - from), to + (c.end - from), c.stash);
	}
	give_up(s, from, from + length, false);
}

static const struct claim *find_claim(const struct space *s, uint64_t address)
{
	for (uint32_t i = 0; i < s->now.n; i++) {
		if (overlap(&s->now.list[i], address, address + 1))
			return &s->now.list[i];
	}
	return NULL;
}

/* --- address spaces --- */

/* Not in the place of one that has ended while all are gone through: it is to be met. */
static struct space *add_space(int fd, int32_t pid, uint64_t stash_start, uint64_t stash_end)
{
	uint32_t i = placing ? n_spaces : 0;

	while (i < n_spaces && spaces[i].fd >= 0)
		i++;
	if (i == LAZY_SPACES)
		fail();
	if (i == n_spaces)
		n_spaces++;
	/* room for claims is used again */
	spaces[i] = (struct space){ .fd = fd,
		.pid = pid,
		.stash_start = stash_start,
		.stash_end = stash_end,
		.now = { spaces[i].now.list, 0, spaces[i].now.room },
		.past = { spaces[i].past.list, 0, spaces[i].past.room } };
	return &spaces[i];
}

static void end_space(struct space *s)
{
	(void)CALL1(__NR_close, s->fd);
	s->fd = -1;
	s->now.n = 0;
}

/* @c, but for what is claimed already. */
static void inherit_past(struct space *s, struct claim c)
{
	while (c.start < c.end) {
		const struct claim *has = find_claim(s, c.start);
		uint64_t to = has != NULL ? has->end : c.end;

		for (uint32_t i = 0; has == NULL && i < s->now.n; i++) {
			if (s->now.list[i].start > c.start && s->now.list[i].start < to)
				to = s->now.list[i].start;
		}
		if (has == NULL)
			add_claim(s, c.start, to, c.stash);
		c.stash += to - c.start;
		c.start = to;
	}
}

/*
 * What is missing in the parent is missing in the child, at the same addresses. Of what was moved or unmapped by another thread meanwhile we do not know whether it was before the fork or after it: the
 * child has it at one of two addresses, and a claim on the other, where nothing is mapped, does no harm.
 */
static void fork_space(const struct space *parent, int fd)
{
	struct space *s = add_space(fd, parent->pid, parent->stash_start, parent->stash_end);

	for (uint32_t i = 0; i < parent->now.n; i++)
		add_claim(s, parent->now.list[i].start, parent->now.list[i].end,
			parent->now.list[i].stash);
	for (uint32_t i = 0; i < parent->past.n; i++)
		inherit_past(s, parent->past.list[i]);
	s->epoch = 1; /* all of it is of before */
}

static void wake(const struct space *s, uint64_t start, uint64_t length)
{
	struct uffdio_range range = { start, length };

	(void)CALL3(__NR_ioctl, s->fd, UFFDIO_WAKE, &range);
}

/* Whoever is woken touches the page again: when nothing came of it, we hear of it again. */
static void place_zeros(struct space *s, uint64_t page)
{
	struct uffdio_zeropage z = { .range = { page, BARE_PAGE } };
	long rc = CALL3(__NR_ioctl, s->fd, UFFDIO_ZEROPAGE, &z);

	if (rc < 0)
		wake(s, page, BARE_PAGE);
}

static void ask(uint32_t chunk)
{
	if (pull_ask(chunk) < 0)
		fail();
}

/* Somebody waits for it, for the first time. */
static void record(const struct space *s, uint64_t stash)
{
	struct fork_shared *shared = fork_shared();

	if (shared->n_first < TEMPLATE_FIRST_MAX)
		shared->first[shared->n_first++] =
			(struct template_first){ .pid = s->pid, .address = pull_place(stash) };
}

static void fault(struct space *s, uint64_t address)
{
	uint64_t page = address & ~(BARE_PAGE - 1);
	const struct claim *c = find_claim(s, page);
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
static bool is_changing(const struct space *s)
{
	struct uffdio_copy nothing = { 0 };

	return CALL3(__NR_ioctl, s->fd, UFFDIO_COPY, &nothing) == -EAGAIN;
}

/* All that has happened has been heard, unless a change is under way. */
static void settle(struct space *s, uint32_t rounds)
{
	if (is_changing(s)) {
		if (rounds < YIELDS)
			(void)CALL0(__NR_sched_yield);
		else
			pause_ms(1);
		return;
	}
	s->unsettled = false;
	s->epoch++;
	while (n_born > 0)
		fork_space(s, born[--n_born]);
	s->past.n = 0;
}

static void hear_fork(int fd)
{
	if (n_born == BORN_MAX)
		fail();
	born[n_born++] = fd;
}

/* Whoever waits where nothing is expected any more touches it again. */
static void hear(struct space *s, const struct uffd_msg *m)
{
	const uint64_t start = m->arg.remove.start, end = m->arg.remove.end;

	s->unsettled |= m->event != UFFD_EVENT_PAGEFAULT && m->event != UFFD_EVENT_REMOVE;
	switch (m->event) {
	case UFFD_EVENT_PAGEFAULT:
		fault(s, m->arg.pagefault.address);
		break;
	case UFFD_EVENT_FORK:
		hear_fork((int)m->arg.fork.ufd);
		break;
	case UFFD_EVENT_REMAP:
		remember(s, m->arg.remap.from, m->arg.remap.from + m->arg.remap.len);
		move_claims(s, m->arg.remap.from, m->arg.remap.to, m->arg.remap.len);
		wake(s, m->arg.remap.from, m->arg.remap.len);
		break;
	case UFFD_EVENT_REMOVE: /* told before it is done: what a child has still it may lose */
		give_up(s, start, end, false);
		wake(s, start, end - start);
		break;
	case UFFD_EVENT_UNMAP:
		remember(s, start, end);
		give_up(s, start, end, true);
		wake(s, start, end - start);
		break;
	default:
		fail();
	}
}

/* All that there is to hear of it, until whoever has changed mappings has gone on. */
static void listen(struct space *s)
{
	struct uffd_msg m;

	for (uint32_t rounds = 0; s->fd >= 0; rounds++) {
		long n = CALL3(__NR_read, s->fd, &m, sizeof(m));

		if (n == -EAGAIN && s->unsettled) {
			settle(s, rounds);
			continue;
		}
		if (n == -EAGAIN)
			return;
		if (n != (long)sizeof(m))
			fail();
		hear(s, &m);
		rounds = 0;
	}
}

/* --- placing --- */

/* What the kernel said instead of placing all of it. Return: how many bytes need not be tried again. */
static uint64_t placed_less(
	struct space *s, const struct uffdio_copy *c, long rc, int *without_memory)
{
	if (c->copy > 0)
		return (uint64_t)c->copy;
	switch (rc) {
	case -EAGAIN: /* there is something to hear first */
		listen(s);
		(void)CALL0(__NR_sched_yield);
		return 0;
	case -ESRCH:
	case -ENOSPC:
		end_space(s);
		return c->len;
	case -ENOENT: /* not of one mapping; or of none any more, unless it is being moved just now */
		if (c->len > BARE_PAGE)
			return 0;
		if (!is_changing(s))
			return BARE_PAGE;
		listen(s);
		(void)CALL0(__NR_sched_yield);
		return 0;
	case -EEXIST:
		return BARE_PAGE;
	case -ENOMEM:
		if (++*without_memory > ENOMEM_MS)
			fail();
		pause_ms(1);
		return 0;
	default:
		fail();
	}
}

/* Where the stash from @stash on is expected: the claim that has it, or else the next one behind it. */
static const struct claim *next_claim(const struct space *s, uint64_t stash)
{
	const struct claim *found = NULL;

	for (uint32_t i = 0; i < s->now.n; i++) {
		const struct claim *c = &s->now.list[i];

		if (stash >= c->stash + (c->end - c->start))
			continue;
		if (c->stash <= stash)
			return c;
		if (found == NULL || c->stash < found->stash)
			found = c;
	}
	return found;
}

/* Return: whether anything of the @part from @done on is expected: then at @at, so much of it. */
static bool next_range(const struct space *s, const struct pull_part *part, uint64_t *done,
	struct uffdio_range *at)
{
	const struct claim *c = s->fd < 0 ? NULL : next_claim(s, part->to + *done);
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
	int without_memory = 0;

	while (done < part->length && next_range(s, part, &done, &at)) {
		struct uffdio_copy c = { .dst = at.start,
			.src = part->from + done,
			.len = at.len < most ? at.len : most };
		long rc = CALL3(__NR_ioctl, s->fd, UFFDIO_COPY, &c);

		if (rc == 0) {
			done += c.len;
			most = part->length;
			continue;
		}
		if (rc == -ENOENT && c.copy <= 0)
			most = BARE_PAGE;
		done += placed_less(s, &c, rc, &without_memory);
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
			fail();
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
	if (chunk < 0)
		fail();
	bare_fault("live.loader.chunk");
	/* zeros among them are placed by whoever touches them */
	if (wanted[chunk] != 0)
		pull_parts((uint32_t)chunk, wake_everywhere);
}

struct passed {
	uint64_t length; /* struct cmsghdr with one descriptor */
	int32_t level, type;
	int32_t fd, pad;
};

/* Return: what was said; with it, unless it is LAZY_GO, a descriptor. */
static uint32_t receive(int socket, int *ret_fd)
{
	uint32_t index = 0;
	struct bare_iovec iov = { (uint64_t)&index, sizeof(index) };
	struct passed control = { 0 };
	struct bare_message m = {
		.iov = &iov, .n_iov = 1, .control = &control, .control_length = sizeof(control)
	};
	long n = CALL3(__NR_recvmsg, socket, &m, 0x40000000 /* CMSG_CLOEXEC */);

	if (n != (long)sizeof(index) ||
		(index != LAZY_GO && (index >= plan->n_processes || control.length != 20)))
		fail();
	*ret_fd = control.fd;
	return index;
}

/* T' gives up its low descriptors later. */
static void receive_space(int socket)
{
	const struct plan_process *p;
	int fd;
	uint32_t index = receive(socket, &fd);
	long kept;

	if (index == LAZY_GO)
		fail();
	kept = CALL3(__NR_fcntl, fd, 1030 /* F_DUPFD_CLOEXEC */, socket);
	if (kept < 0)
		fail();
	(void)CALL1(__NR_close, fd);
	p = &plan_processes()[index];
	add_claim(add_space((int)kept, p->pid, p->stash_start, p->stash_end), p->stash_start,
		p->stash_end, p->stash_start);
}

static uint32_t count_expected(void)
{
	const struct plan_process *p = plan_processes();
	uint32_t n = 0;

	for (uint32_t i = 0; i < plan->n_processes; i++)
		n += p[i].image != IMAGE_NONE && p[i].stash_end > p[i].stash_start;
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
	int none;

	if (receive(socket, &none) != LAZY_GO)
		fail();
	(void)CALL1(__NR_close, socket);
	(void)CALL5(__NR_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0);
	going = true;
	say(LAZY_GOES);
	bare_fault("live.loader.going");
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
	first = n;
	for (uint32_t i = 0; i < n_spaces; i++)
		polled[n++] = (struct pollfd){ .fd = spaces[i].fd, .events = POLLIN };
	rc = CALL3(__NR_poll, polled, n, slow ? SLOW_MS : ALIVE_MS);
	idle = rc == 0;
	look_after_parent();
	if (rc <= 0)
		return;
	for (uint32_t i = 0; first + i < n; i++) {
		if (polled[first + i].revents != 0)
			listen(&spaces[i]);
	}
	if (polled[1].revents != 0)
		receive_go(socket);
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

	creator = CALL0(__NR_getppid);
	(void)CALL5(__NR_prctl, PR_SET_NAME, "cay-loader", 0, 0, 0);
	(void)CALL5(__NR_prctl, PR_SET_PDEATHSIG, 9, 0, 0, 0);
	(void)CALL4(__NR_prlimit64, 0, NOFILE, limit, 0);
	slow = bare_fault_named("live.loader.slow");
	wanted = pull_room(pull.n_chunks);
	spaces = pull_room(LAZY_SPACES * sizeof(*spaces));
	polled = pull_room((LAZY_SPACES + 2) * sizeof(*polled));
	if (wanted == NULL || spaces == NULL || polled == NULL || pull_map() < 0)
		fail();
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
