/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/saving.c - see the header. Pieces and chunks go through memory that coders have too: only their bytes are taken from there, no number.
 */
#include "prog/cay-template/saving.h"
#include "prog/cay-template/page_runs.h"
#include "prog/cay-template/reading.h"

/* What comes after the memory file. */
static uint32_t n_coders(uint32_t n_fds)
{
	return (n_fds - 1) / 2;
}

bool saving_fds_fit(uint32_t n_fds)
{
	return n_fds % 2 == 1 && n_fds > 1 && n_coders(n_fds) <= TEMPLATE_CODERS_MAX;
}

static int pipe_of(const int *fds, uint32_t coder)
{
	return fds[1 + 2 * coder];
}

static int credit_of(const int *fds, uint32_t coder)
{
	return fds[2 + 2 * coder];
}

/* How far the copies are filled, or have been given. */
struct cursor {
	uint32_t copy;
	uint64_t done; /* bytes of it */
};

/* To what comes next: a copy may be empty. */
static void step(struct cursor *c, uint64_t n)
{
	c->done += n;
	while (c->copy < plan->n_copies && c->done == plan_copies()[c->copy].length)
		*c = (struct cursor){ .copy = c->copy + 1 };
}

/* Bytes from @c on that lie side by side, within one block of the stash. */
static uint64_t run_of(const struct cursor *c)
{
	const struct plan_copy *copy = &plan_copies()[c->copy];
	uint64_t left = copy->length - c->done,
		 block = TEMPLATE_PIECE - (copy->to + c->done) % TEMPLATE_PIECE;

	return left < block ? left : block;
}

static uint64_t block_of(const struct cursor *c)
{
	return (plan_copies()[c->copy].to + c->done) / TEMPLATE_PIECE;
}

/*
 * The next piece ends where a block does, unless that would make it small, and with its process. So what is added somewhere leaves other pieces as they were in the
 * snapshot before, and relatives with the same memory have the same pieces. Addresses in the stash are those of the process, modulo 2 MiB.
 */
static uint64_t piece_of(struct cursor c)
{
	int32_t pid = plan_copies()[c.copy].pid;
	uint64_t n = 0, block = block_of(&c);

	for (uint64_t run; c.copy < plan->n_copies && plan_copies()[c.copy].pid == pid; n += run) {
		run = run_of(&c);
		if (n + run > TEMPLATE_PIECE || n % BARE_PAGE != 0 ||
			(block_of(&c) != block && n >= TEMPLATE_PIECE / 8))
			break;
		block = block_of(&c);
		step(&c, run);
	}
	return n;
}

/* --- to disk --- */

/* Where pieces go, and how many have gone. */
struct giving {
	const int *fds;
	uint32_t n_coders;
	uint64_t pieces;
	bool from_processes;
	struct reading reading;
};

/* A slot for the next piece, when its coder has one. Return: where, or -errno. */
static long wait_for_slot(const struct giving *g)
{
	uint32_t coder = (uint32_t)(g->pieces % g->n_coders),
		 slot = (uint32_t)(g->pieces / g->n_coders % TEMPLATE_PIECE_SLOTS);
	char byte;
	long rc = bare_read_all(credit_of(g->fds, coder), &byte, 1);

	return rc < 0 ? rc
		      : (long)(WINDOW_COPY +
				(uint64_t)(coder * TEMPLATE_PIECE_SLOTS + slot) * TEMPLATE_PIECE);
}

static long give(struct giving *g, uint64_t n)
{
	long rc = CALL3(
		__NR_write, pipe_of(g->fds, (uint32_t)(g->pieces++ % g->n_coders)), &n, sizeof(n));

	return rc == (long)sizeof(n) ? 0 : rc < 0 ? rc : -EIO;
}

static long give_table(struct giving *g, uint64_t from, uint64_t left)
{
	long rc = 0;

	while (rc == 0 && left > 0) {
		uint64_t n = left < TEMPLATE_PIECE ? left : TEMPLATE_PIECE;
		long slot = wait_for_slot(g);

		if (slot < 0)
			return slot;
		(void)memcpy((void *)slot, (const void *)from, n);
		rc = give(g, n);
		from += n;
		left -= n;
	}
	return rc;
}

/* @n bytes from @c on, to @slot. */
static long take_run(struct giving *g, const struct cursor *c, uint64_t slot, uint64_t n)
{
	const struct plan_copy *copy = &plan_copies()[c->copy];

	if (g->from_processes)
		return reading_take(&g->reading, copy, c->done, slot, n);
	(void)memcpy((void *)slot, (const void *)(copy->to + c->done), n);
	return 0;
}

static long give_pages(struct giving *g, struct cursor *c)
{
	uint64_t n = piece_of(*c);
	long slot = wait_for_slot(g), rc = 0;

	if (slot < 0)
		return slot;
	for (uint64_t done = 0, run; rc == 0 && done < n; done += run) {
		run = run_of(c);
		rc = take_run(g, c, (uint64_t)slot + done, run);
		step(c, run);
	}
	return rc < 0 ? rc : give(g, n);
}

BARE_NORETURN void saving_give(
	const struct template_stream *held, bool from_processes, const int *fds, uint32_t n_fds)
{
	struct giving g = { .fds = fds,
		.n_coders = n_coders(n_fds),
		.from_processes = from_processes,
		.reading = READING_INIT };
	struct cursor c = { 0 };
	long rc = CALL6(__NR_mmap, WINDOW_COPY,
		(uint64_t)g.n_coders * TEMPLATE_PIECE_SLOTS * TEMPLATE_PIECE, 3,
		1 | 0x100000 /* SHARED | FIXED_NOREPLACE */, fds[0], 0);

	step(&c, 0);
	if (rc >= 0)
		rc = give_table(&g, WINDOW_IMAGE, held->image);
	if (rc == 0)
		rc = give_table(&g, WINDOW_PLAN, held->plan);
	while (rc == 0 && c.copy < plan->n_copies)
		rc = give_pages(&g, &c);
	bare_exit(rc == 0 ? 0 : 1);
}

/* --- back --- */

/* The next @n bytes, from @from on; without it they are zeros, as fresh memory is. */
static void advance(struct cursor *c, uint64_t from, uint64_t n)
{
	while (n > 0) {
		const struct plan_copy *copy = &plan_copies()[c->copy];
		uint64_t part = copy->length - c->done < n ? copy->length - c->done : n;

		if (from != 0) {
			(void)memcpy((void *)(copy->to + c->done), (const void *)from, part);
			from += part;
		}
		n -= part;
		step(c, part);
	}
}

static void take_pages(struct cursor *c, const struct template_pages *m)
{
	uint64_t at = WINDOW_COPY + m->slot * TEMPLATE_SLOT_SIZE;

	for (uint64_t done = 0, end; done < m->raw; done = end) {
		bool there;

		end = page_run_end(m, done, &there);
		advance(c, there ? at : 0, end - done);
		at += there ? end - done : 0;
	}
}

static long take_all(uint64_t left, const int *fds, uint32_t n)
{
	struct template_pages m = { 0 };
	struct cursor c = { 0 };
	long rc = 0;

	step(&c, 0);
	for (uint32_t turn = 0; rc == 0 && left > 0; left -= m.raw, turn = (turn + 1) % n) {
		rc = bare_read_all(pipe_of(fds, turn), &m, sizeof(m));
		if (rc == 0 && (m.slot >= (uint64_t)n * TEMPLATE_PAGE_SLOTS || m.raw == 0 ||
				       m.raw > TEMPLATE_SLOT_SIZE || m.raw > left))
			rc = -EINVAL;
		if (rc == 0)
			take_pages(&c, &m);
		if (rc == 0 && CALL3(__NR_write, credit_of(fds, turn), &m, 1) != 1)
			rc = -EIO;
	}
	return rc;
}

/* Mapped: to read the file would look up each of its pages anew. */
long saving_take(uint64_t left, const int *fds, uint32_t n_fds)
{
	uint32_t n = n_coders(n_fds);
	uint64_t size = (uint64_t)n * TEMPLATE_PAGE_SLOTS * TEMPLATE_SLOT_SIZE;
	long rc = CALL6(__NR_mmap, WINDOW_COPY, size, 1,
		1 | 0x100000 /* SHARED | FIXED_NOREPLACE */, fds[0], 0);

	if (rc < 0)
		return rc;
	rc = take_all(left, fds, n);
	/* forks have something else there */
	(void)CALL2(__NR_munmap, WINDOW_COPY, size);
	return rc;
}
