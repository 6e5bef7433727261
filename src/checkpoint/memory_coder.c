/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/memory_coder.h"
#include "checkpoint/template_wire.h"
#include "sys/cred.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define IN        0
#define OUT       1
#define CREDIT    2
#define PIPE_SIZE (1 << 20)
#define NOBODY    65534
#define SLOTS     TEMPLATE_PAGE_SLOTS
#define MEMORY    ((size_t)SLOTS * TEMPLATE_SLOT_SIZE)

_Static_assert(TEMPLATE_SLOT_SIZE == PAGECHUNK_MAX, "a chunk fills a slot at most");
_Static_assert(
	sizeof(struct coder_chunk) == sizeof(struct template_pages) &&
		offsetof(struct coder_chunk, head.raw) == offsetof(struct template_pages, raw) &&
		offsetof(struct coder_chunk, head.present) ==
			offsetof(struct template_pages, present),
	"the template reads what a coder writes");

/* --- in the process --- */

static unsigned char raw[PAGECHUNK_MAX];

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

static void give(const void *from, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t put = write(OUT, (const char *)from + done, n - done);

		if (put <= 0)
			leave(1);
		done += (size_t)put;
	}
}

/* The next slot, when whoever takes chunks has given it back. */
static unsigned char *wait_for_slot(const struct memory_coder *m, struct coder_chunk *chunk)
{
	static uint64_t n;
	char byte;

	if (!take(CREDIT, &byte, 1))
		leave(1);
	chunk->slot = n++ % SLOTS;
	return m->memory + chunk->slot * PAGECHUNK_MAX;
}

static void pack_chunk(const struct memory_coder *m, struct pagechunk_coder *c, size_t n)
{
	struct coder_packed packed = { .known = CHUNK_NONE };
	unsigned char *to;

	if (!take(IN, raw, n))
		leave(1);
	memset(raw + n, 0, PAGECHUNK_MAX - n);
	digest_bytes(raw, n, packed.content);
	packed.known = chunk_set_find(m->known, packed.content);
	chunk_set_add(m->known, packed.content);
	if (packed.known == CHUNK_NONE) {
		to = wait_for_slot(m, &packed.chunk);
		pagechunk_pack(c, raw, n, &packed.chunk.head, to);
	}
	give(&packed, sizeof(packed));
}

/* A part of @left bytes; the pages come in pieces, each with its length before it. */
static void pack_part(
	const struct memory_coder *m, struct pagechunk_coder *c, uint64_t left, bool pieces)
{
	while (left > 0) {
		uint64_t n = left < PAGECHUNK_MAX ? left : PAGECHUNK_MAX;

		if (pieces && (!take(IN, &n, sizeof(n)) || n == 0 || n > PAGECHUNK_MAX || n > left))
			leave(1);
		pack_chunk(m, c, (size_t)n);
		left -= n;
	}
}

static attr_noreturn void pack_main(const struct memory_coder *m, struct pagechunk_coder *c)
{
	struct template_stream parts;

	if (!take(IN, &parts, sizeof(parts)))
		leave(1);
	give(&parts, sizeof(parts));
	pack_part(m, c, parts.image, false);
	pack_part(m, c, parts.plan, false);
	pack_part(m, c, parts.pages, true);
	leave(0);
}

static attr_noreturn void unpack_main(const struct memory_coder *m, struct pagechunk_coder *c)
{
	struct coder_order order;
	struct coder_chunk chunk;

	while (take(IN, &order, sizeof(order))) {
		unsigned char *to = wait_for_slot(m, &chunk);

		chunk.head = order.head;
		if (pagechunk_unpack(c, &order.head, m->input + order.offset, to) < 0)
			leave(1);
		give(&chunk, sizeof(chunk));
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
	if (raw_close_range(CREDIT + 1, ~0U, 0) < 0)
		_exit(120);
#ifndef __SANITIZE_ADDRESS__
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) < 0)
		_exit(121);
#endif
}

/* @m: our ends in place of the caller's. */
static attr_noreturn void coder_main(const struct memory_coder *m)
{
	struct pagechunk_coder *c = pagechunk_coder_new(m->known != NULL);
	int in = fcntl(m->in, F_DUPFD, 10), out = fcntl(m->out, F_DUPFD, 10),
	    credit = fcntl(m->credit, F_DUPFD, 10);

	(void)signal(SIGPIPE, SIG_DFL);
	if (in < 0 || out < 0 || credit < 0 || dup2(in, IN) < 0 || dup2(out, OUT) < 0 ||
		dup2(credit, CREDIT) < 0)
		_exit(122);
	confine();
	if (m->known != NULL)
		pack_main(m, c);
	unpack_main(m, c);
}

/* --- its caller --- */

static int make_slots(struct memory_coder *c)
{
	c->slots = memfd_create("slots", MFD_CLOEXEC);
	if (c->slots < 0 || ftruncate(c->slots, (off_t)MEMORY) < 0)
		return -errno;
	c->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, c->slots, 0);
	if (c->memory == MAP_FAILED) {
		c->memory = NULL;
		return -errno;
	}
	return 0;
}

static int make_pipes(struct memory_coder *c, struct memory_coder *inside)
{
	static const char credits[SLOTS];
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	inside->in = fds[0];
	c->in = fds[1];
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	c->out = fds[0];
	inside->out = fds[1];
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	c->spare = inside->credit = fds[0];
	c->credit = fds[1];
	/* as large as we may: less waiting for each other */
	(void)fcntl(c->in, F_SETPIPE_SZ, PIPE_SIZE);
	return file_write_all(c->credit, credits, sizeof(credits));
}

static int start(struct memory_coder *c)
{
	struct memory_coder inside = *c;
	int rc = make_slots(c);

	inside.memory = c->memory;
	if (rc == 0)
		rc = make_pipes(c, &inside);
	if (rc == 0)
		c->pid = fork();
	if (rc == 0 && c->pid == 0)
		coder_main(&inside);
	if (c->pid < 0)
		rc = -EAGAIN;
	fd_close(&inside.in);
	fd_close(&inside.out);
	return rc;
}

int memory_coder_pack(struct memory_coder *c, struct chunk_set *known)
{
	*c = (struct memory_coder)MEMORY_CODER_INIT;
	c->known = known;
	return start(c);
}

int memory_coder_unpack(struct memory_coder *c, const unsigned char *input)
{
	*c = (struct memory_coder)MEMORY_CODER_INIT;
	c->input = input;
	return start(c);
}

int memory_coder_order(struct memory_coder *c, const struct pagechunk_head *head, uint64_t offset)
{
	struct coder_order order = { .offset = offset, .head = *head };

	return file_write_all(c->in, &order, sizeof(order));
}

static int find_slot(
	const struct memory_coder *c, const struct coder_chunk *chunk, const unsigned char **bytes)
{
	if (chunk->slot >= SLOTS)
		return -EBADMSG;
	*bytes = c->memory + chunk->slot * PAGECHUNK_MAX;
	return 0;
}

int memory_coder_next(struct memory_coder *c, struct coder_chunk *ret, const unsigned char **bytes)
{
	int rc = file_read_all(c->out, ret, sizeof(*ret));

	return rc < 0 ? rc : find_slot(c, ret, bytes);
}

int memory_coder_packed(
	struct memory_coder *c, struct coder_packed *ret, const unsigned char **bytes)
{
	int rc = file_read_all(c->out, ret, sizeof(*ret));

	*bytes = NULL;
	return rc < 0 || ret->known != CHUNK_NONE ? rc : find_slot(c, &ret->chunk, bytes);
}

int memory_coder_done(struct memory_coder *c)
{
	return file_write_all(c->credit, "", 1);
}

void memory_coder_end(struct memory_coder *c)
{
	fd_close(&c->in);
	fd_close(&c->out);
	fd_close(&c->credit);
	if (c->pid > 0)
		(void)waitpid(c->pid, NULL, 0);
	c->pid = 0;
	fd_close(&c->spare);
	fd_close(&c->slots);
	if (c->memory != NULL)
		(void)munmap(c->memory, MEMORY);
	c->memory = NULL;
}
