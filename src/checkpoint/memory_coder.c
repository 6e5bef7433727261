/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/memory_coder.h"
#include "sys/confine.h"
#include "sys/cred.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define IN          0
#define OUT         1
#define CREDIT      2
#define IN_CREDIT   3
#define PIECES      ((size_t)TEMPLATE_PIECE_SLOTS * TEMPLATE_PIECE)
#define CHUNKS      ((size_t)TEMPLATE_PAGE_SLOTS * TEMPLATE_SLOT_SIZE)
#define NOBODY      65534
#define NOT_AS_SAID 2 /* status: stored bytes were not what an order said, or not to be had */

_Static_assert(TEMPLATE_SLOT_SIZE == PAGECHUNK_MAX, "a chunk fills a slot at most");
_Static_assert(TEMPLATE_PIECE <= PAGECHUNK_MAX, "a piece is a chunk");
_Static_assert(
	sizeof(struct coder_chunk) == sizeof(struct template_pages) &&
		offsetof(struct coder_chunk, head.raw) == offsetof(struct template_pages, raw) &&
		offsetof(struct coder_chunk, head.present) ==
			offsetof(struct template_pages, present),
	"the template reads what a coder writes");

/* What one of them knows of itself. */
struct coder {
	const struct memory_coders *all;
	uint32_t number;
	unsigned char *pieces; /* its slots */
	struct pagechunk_coder *codec;
};

static size_t pieces_of_all(const struct memory_coders *c)
{
	return c->known != NULL ? c->n * PIECES : 0;
}

/* --- in the process --- */

/* exit_group() is not among what remains allowed. */
static attr_noreturn void leave(int status)
{
	for (;;)
		(void)syscall(SYS_exit, status);
}

/* Return: whether all came; false also at the end of the input. */
static bool take(int from, void *to, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t got = read(from, (char *)to + done, n - done);

		if (got <= 0)
			return false;
		done += (size_t)got;
	}
	return true;
}

static void give(int to, const void *from, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t put = write(to, (const char *)from + done, n - done);

		if (put <= 0)
			leave(1);
		done += (size_t)put;
	}
}

/* The next slot, when whoever takes chunks has given it back. */
static unsigned char *wait_for_slot(const struct coder *c, struct coder_chunk *chunk)
{
	static uint64_t n;
	char byte;

	if (!take(CREDIT, &byte, 1))
		leave(1);
	chunk->slot = (uint64_t)c->number * TEMPLATE_PAGE_SLOTS + n++ % TEMPLATE_PAGE_SLOTS;
	return c->all->memory + pieces_of_all(c->all) + chunk->slot * PAGECHUNK_MAX;
}

static void pack_piece(const struct coder *c, unsigned char *raw, size_t n)
{
	struct coder_packed packed = { .chunk.head.raw = (uint32_t)n };
	struct chunk_set *known = c->all->known;

	/* whole pages are looked at */
	memset(raw + n, 0, -n % PAGECHUNK_PAGE);
	digest_bytes(raw, n, packed.content);
	packed.known = chunk_set_find(known, packed.content) != CHUNK_NONE;
	chunk_set_add(known, packed.content);
	if (packed.known == 0) {
		unsigned char *to = wait_for_slot(c, &packed.chunk);

		pagechunk_pack(c->codec, raw, n, &packed.chunk.head, to);
	}
	give(OUT, &packed, sizeof(packed));
}

static attr_noreturn void pack_main(const struct coder *c)
{
	uint64_t n;

	for (uint64_t i = 0; take(IN, &n, sizeof(n)); i++) {
		if (n == 0 || n > TEMPLATE_PIECE)
			leave(1);
		pack_piece(c, c->pieces + i % TEMPLATE_PIECE_SLOTS * TEMPLATE_PIECE, (size_t)n);
		give(IN_CREDIT, "", 1);
	}
	leave(0);
}

/* Whoever takes chunks is told, and by the status whoever has begun us. */
static attr_noreturn void leave_damaged(void)
{
	static const struct coder_chunk damaged = { .slot = TEMPLATE_DAMAGED };

	give(OUT, &damaged, sizeof(damaged));
	leave(NOT_AS_SAID);
}

/* The disk does not give what is mapped. */
static void on_bus(attr_unused int sig)
{
	leave_damaged();
}

static attr_noreturn void unpack_main(const struct coder *c)
{
	struct coder_order order;

	while (take(IN, &order, sizeof(order))) {
		const unsigned char *stored = c->all->input + order.offset;
		struct coder_chunk chunk = { .head = order.head };
		unsigned char digest[DIGEST_SIZE], *to;

		digest_bytes(stored, order.head.stored, digest);
		if (memcmp(digest, order.digest, sizeof(digest)) != 0)
			leave_damaged();
		to = wait_for_slot(c, &chunk);
		if (pagechunk_unpack(c->codec, &order.head, stored, to) < 0)
			leave(1);
		give(OUT, &chunk, sizeof(chunk));
	}
	leave(0);
}

static void confine(void)
{
	/* a single-uid namespace has no other ids; there the filter alone has to do */
	(void)!setgroups(0, NULL);
	(void)!setresgid(NOBODY, NOBODY, NOBODY);
	(void)!setresuid(NOBODY, NOBODY, NOBODY);
	(void)!cred_set_caps(0);
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (raw_close_range(IN_CREDIT + 1, ~0U, 0) < 0)
		_exit(120);
#ifndef __SANITIZE_ADDRESS__
	if (confine_strict() < 0)
		_exit(121);
#endif
}

/* @ends: ours, by the numbers that they get. */
static attr_noreturn void coder_main(const struct memory_coders *all, uint32_t number, int ends[4])
{
	const bool pack = all->known != NULL;
	struct coder c = { all, number, all->memory + number * PIECES, pagechunk_coder_new(pack) };

	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGBUS, pack ? SIG_DFL : on_bus);
	for (int i = 0; i < 4; i++) {
		ends[i] = fcntl(ends[i], F_DUPFD, 10);
		if (ends[i] < 0)
			_exit(122);
	}
	for (int i = 0; i < 4; i++) {
		if (dup2(ends[i], i) < 0)
			_exit(122);
	}
	confine();
	if (pack)
		pack_main(&c);
	unpack_main(&c);
}

/* --- their caller --- */

/* As many as there are processors that we may use: they do nothing but compute. */
static uint32_t count_processors(void)
{
	cpu_set_t allowed;
	uint32_t n = 1;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
		n = (uint32_t)CPU_COUNT(&allowed);
	return n < TEMPLATE_CODERS_MAX ? n : TEMPLATE_CODERS_MAX;
}

static size_t memory_size(const struct memory_coders *c)
{
	return pieces_of_all(c) + c->n * CHUNKS;
}

static int make_slots(struct memory_coders *c)
{
	c->slots = memfd_create("slots", MFD_CLOEXEC);
	if (c->slots < 0 || ftruncate(c->slots, (off_t)memory_size(c)) < 0)
		return -errno;
	c->memory = mmap(NULL, memory_size(c), PROT_READ | PROT_WRITE, MAP_SHARED, c->slots, 0);
	if (c->memory == MAP_FAILED) {
		c->memory = NULL;
		return -errno;
	}
	return 0;
}

static int make_pipe(int *to_read, int *to_write)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	*to_read = fds[0];
	*to_write = fds[1];
	return 0;
}

/* @ends: those of the coder. Everything is free at first. */
static int make_pipes(struct memory_coder *m, int ends[4])
{
	static const char credits[TEMPLATE_PAGE_SLOTS], pieces[TEMPLATE_PIECE_SLOTS];
	int rc = make_pipe(&ends[IN], &m->in);

	if (rc == 0)
		rc = make_pipe(&m->out, &ends[OUT]);
	if (rc == 0)
		rc = make_pipe(&ends[CREDIT], &m->credit);
	if (rc == 0)
		rc = make_pipe(&m->in_credit, &ends[IN_CREDIT]);
	if (rc == 0)
		rc = file_write_all(m->credit, credits, sizeof(credits));
	return rc == 0 ? file_write_all(ends[IN_CREDIT], pieces, sizeof(pieces)) : rc;
}

static int start_one(struct memory_coders *c, uint32_t number)
{
	struct memory_coder *m = &c->each[number];
	int ends[4] = { -1, -1, -1, -1 }, rc = make_pipes(m, ends);

	if (rc == 0) {
		m->pid = fork();
		if (m->pid == 0)
			coder_main(c, number, ends);
	}
	if (m->pid < 0) {
		m->pid = 0;
		rc = -EAGAIN;
	}
	m->spare = ends[CREDIT];
	fd_close(&ends[IN]);
	fd_close(&ends[OUT]);
	fd_close(&ends[IN_CREDIT]);
	return rc;
}

static int start(struct memory_coders *c)
{
	int rc;

	c->n = count_processors();
	for (uint32_t i = 0; i < c->n; i++)
		c->each[i] = (struct memory_coder){
			.in = -1, .in_credit = -1, .out = -1, .credit = -1, .spare = -1
		};
	rc = make_slots(c);
	for (uint32_t i = 0; rc == 0 && i < c->n; i++)
		rc = start_one(c, i);
	return rc;
}

int memory_coders_pack(struct memory_coders *c, struct chunk_set *known)
{
	*c = (struct memory_coders)MEMORY_CODERS_INIT;
	c->known = known;
	return start(c);
}

int memory_coders_unpack(struct memory_coders *c, const unsigned char *input)
{
	*c = (struct memory_coders)MEMORY_CODERS_INIT;
	c->input = input;
	return start(c);
}

size_t memory_coders_givers(const struct memory_coders *c, int fds[MEMORY_CODER_FDS])
{
	size_t n = 0;

	fds[n++] = c->slots;
	for (uint32_t i = 0; i < c->n; i++) {
		fds[n++] = c->each[i].in;
		fds[n++] = c->each[i].in_credit;
	}
	return n;
}

size_t memory_coders_takers(const struct memory_coders *c, int fds[MEMORY_CODER_FDS])
{
	size_t n = 0;

	fds[n++] = c->slots;
	for (uint32_t i = 0; i < c->n; i++) {
		const struct memory_coder *m = &c->each[(c->taken + i) % c->n];

		fds[n++] = m->out;
		fds[n++] = m->credit;
	}
	return n;
}

void memory_coders_given(struct memory_coders *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		fd_close(&c->each[i].in);
}

void memory_coders_handed_on(struct memory_coders *c)
{
	for (uint32_t i = 0; i < c->n; i++) {
		fd_close(&c->each[i].out);
		fd_close(&c->each[i].credit);
	}
}

int memory_coders_order(struct memory_coders *c, const struct coder_order *order)
{
	return file_write_all(c->each[c->ordered++ % c->n].in, order, sizeof(*order));
}

static int find_slot(
	const struct memory_coders *c, const struct coder_chunk *chunk, const unsigned char **bytes)
{
	if (chunk->slot >= (uint64_t)c->n * TEMPLATE_PAGE_SLOTS)
		return -EBADMSG;
	*bytes = c->memory + pieces_of_all(c) + chunk->slot * PAGECHUNK_MAX;
	return 0;
}

int memory_coders_next(
	struct memory_coders *c, struct coder_chunk *ret, const unsigned char **bytes)
{
	int rc = file_read_all(c->each[c->taken++ % c->n].out, ret, sizeof(*ret));

	return rc < 0 ? rc : find_slot(c, ret, bytes);
}

int memory_coders_packed(
	struct memory_coders *c, struct coder_packed *ret, const unsigned char **bytes)
{
	int rc = file_read_all(c->each[c->taken++ % c->n].out, ret, sizeof(*ret));

	*bytes = NULL;
	return rc < 0 || ret->known != 0 ? rc : find_slot(c, &ret->chunk, bytes);
}

int memory_coders_done(struct memory_coders *c)
{
	return file_write_all(c->each[(c->taken - 1) % c->n].credit, "", 1);
}

int memory_coders_end(struct memory_coders *c)
{
	int rc = 0, status;

	memory_coders_given(c);
	memory_coders_handed_on(c);
	for (uint32_t i = 0; i < c->n; i++) {
		struct memory_coder *m = &c->each[i];

		if (m->pid > 0 && waitpid(m->pid, &status, 0) == m->pid && WIFEXITED(status) &&
			WEXITSTATUS(status) == NOT_AS_SAID)
			rc = -EBADMSG;
		m->pid = 0;
		fd_close(&m->spare);
		fd_close(&m->in_credit);
	}
	fd_close(&c->slots);
	if (c->memory != NULL)
		(void)munmap(c->memory, memory_size(c));
	c->memory = NULL;
	return rc;
}
