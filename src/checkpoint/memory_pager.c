/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/memory_pager.c - see the header. It has no privilege over the sandbox: it sees numbers of chunks, and orders.
 */
#include "checkpoint/memory_pager.h"
#include "base/fault.h"
#include "sys/fdpass.h"
#include "sys/file.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* --- image and plan --- */

static int order_unpacked(
	struct memory_coders *coders, const struct memory_chunk *chunk, uint64_t offset)
{
	struct coder_order order = { .offset = offset, .head = chunk->head };

	memcpy(order.digest, chunk->digest, sizeof(order.digest));
	return memory_coders_order(coders, &order);
}

int memory_order_next(struct memory_reader *r, struct memory_coders *coders,
	const struct pagechunk_head **head, struct err *err)
{
	const struct memory_chunk *chunk;
	uint64_t offset;
	int rc = memory_reader_next(r, &chunk, &offset, err);

	if (rc <= 0)
		return rc;
	*head = &chunk->head;
	rc = order_unpacked(coders, chunk, offset);
	return rc < 0 ? err_raise_sys(err, rc, "read the memory from disk") : 1;
}

/* What a coder made of a chunk whose head is @head, the authentic one. */
static int add_chunk(int fd, struct memory_coders *coders, const struct pagechunk_head *head)
{
	static unsigned char raw[PAGECHUNK_MAX];
	const unsigned char *pages;
	struct coder_chunk chunk;
	int rc = memory_coders_next(coders, &chunk, &pages);

	if (rc < 0)
		return rc;
	pagechunk_spread(head, pages, raw);
	rc = file_write_all(fd, raw, head->raw);
	return rc == 0 ? memory_coders_done(coders) : rc;
}

/* A part that the template gets as a file: unpacked chunk by chunk into sealed memory. */
static int load_table(struct memory_reader *r, struct memory_coders *coders, const char *name,
	uint64_t left, struct err *err)
{
	cleanup_fd int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc = fd < 0 ? -errno : 0;

	while (rc == 0 && left > 0) {
		const struct pagechunk_head *head;

		rc = memory_order_next(r, coders, &head, err);
		if (rc < 0)
			return rc;
		rc = rc == 0 || head->raw > left ? -EBADMSG : add_chunk(fd, coders, head);
		left -= rc == 0 ? head->raw : 0;
	}
	if (rc == 0)
		rc = file_seal(fd);
	return rc < 0 ? err_raise_sys(err, rc, "read the %s from disk", name) : TAKE_FD(fd);
}

int memory_tables(
	struct memory_reader *r, struct memory_coders *coders, int ret[2], struct err *err)
{
	ret[0] = load_table(r, coders, "image", r->parts.image, err);
	ret[1] = ret[0] < 0 ? -1 : load_table(r, coders, "plan", r->parts.plan, err);
	return ret[0] < 0 ? ret[0] : ret[1] < 0 ? ret[1] : 0;
}

/* --- before anything runs --- */

/* Return: a memory file. */
static int sealed(const char *name, const void *bytes, size_t n)
{
	cleanup_fd int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc = fd < 0 ? -errno : 0;

	if (rc == 0 && n > 0)
		rc = file_write_all(fd, bytes, n);
	if (rc == 0)
		rc = file_seal(fd);
	return rc < 0 ? rc : TAKE_FD(fd);
}

/* How many bytes each chunk of pages stands for: a sealed memory file. */
static int lengths(const struct memory_reader *r)
{
	cleanup_buf struct buf all = BUF_INIT((size_t)1 << 30);

	for (size_t i = r->next; i < r->n; i++)
		buf_add(&all, &r->index[i].head.raw, sizeof(uint32_t));
	return buf_failed(&all) ? -E2BIG : sealed("chunks", all.p, all.n);
}

/* @requests: the template's end. */
static int order_attach(struct memory_reader *r, int template, const int tables[2],
	const struct first *first, int requests, struct memory_coders *coders)
{
	const uint32_t kind = TEMPLATE_ATTACH;
	cleanup_fd int table = lengths(r);
	cleanup_fd int places = sealed("places", first->list, first->n * sizeof(*first->list));
	int fds[5 + MEMORY_CODER_FDS] = { tables[0], tables[1], table, places, requests }, rc;

	if (table < 0 || places < 0)
		return table < 0 ? table : places;
	rc = fdpass_send(
		template, &kind, sizeof(kind), fds, 5 + memory_coders_takers(coders, fds + 5));
	memory_coders_handed_on(coders);
	return rc;
}

/* --- serving --- */

/* A coder that has ended said why to whoever waits for the chunk. */
static int order_chunk(const struct memory_reader *r, struct memory_coders *coders, uint32_t number)
{
	const struct memory_chunk *chunk = &r->index[r->next + number];
	int rc;

	if (number >= r->n - r->next)
		return -EINVAL;
	rc = order_unpacked(coders, chunk, memory_reader_place(r, chunk));
	return rc == -EPIPE ? 0 : rc;
}

/* Most are asked for in order: the disk begins with what comes soon, and no more, since what else the program needs of it would wait behind that. */
static int heed(const struct memory_reader *r, struct memory_coders *coders, uint32_t request)
{
	uint32_t number = request & ~TEMPLATE_AHEAD;
	bool soon = number != request;

	memory_reader_ahead(r, r->next + number + (soon ? 0 : MEMORY_AHEAD), 1);
	return soon ? 0 : order_chunk(r, coders, number);
}

/* Return: 1, 0 when nobody can ask any more, -errno. */
static int serve_one(const struct memory_reader *r, struct memory_coders *coders, int requests)
{
	uint32_t numbers[64];
	ssize_t n = read(requests, numbers, sizeof(numbers));
	int rc = n < 0 ? -errno : n % (ssize_t)sizeof(*numbers) != 0 ? -EPROTO : n > 0;

	for (ssize_t i = 0; rc > 0 && i < n / (ssize_t)sizeof(*numbers); i++) {
		int ordered = heed(r, coders, numbers[i]);

		rc = ordered < 0 ? ordered : rc;
	}
	return rc;
}

/* What it asks for before it answers. */
static int wait_attached(
	const struct memory_reader *r, struct memory_coders *coders, int template, int requests)
{
	struct template_message m;
	size_t none;

	for (;;) {
		struct pollfd p[2] = { { .fd = template, .events = POLLIN },
			{ .fd = requests, .events = POLLIN } };
		int rc = poll(p, 2, -1) < 0 ? -errno : 0;

		if (rc == 0 && p[1].revents != 0)
			rc = serve_one(r, coders, requests);
		if (rc < 0)
			return rc;
		if (p[0].revents == 0)
			continue;
		if (fdpass_recv(template, &m, sizeof(m), NULL, 0, &none) != (ssize_t)sizeof(m))
			return -EPIPE;
		return m.kind == TEMPLATE_DONE ? 0 : m.status < 0 ? m.status : -EPROTO;
	}
}

static int attach(struct memory_reader *r, const struct first *first, int template,
	struct memory_coders *coders, int requests[2], struct err *err)
{
	int tables[2], rc = memory_tables(r, coders, tables, err);

	if (rc == 0) {
		(void)fault("memory.load.tables");
		rc = order_attach(r, template, tables, first, requests[1], coders);
		fd_close(&requests[1]);
		if (rc == 0)
			rc = wait_attached(r, coders, template, requests[0]);
		if (rc < 0)
			(void)err_raise_sys(err, rc, "load the memory into the template");
	}
	fd_close(&tables[0]);
	fd_close(&tables[1]);
	return rc;
}

static int begin(struct memory_reader *r, const struct first *first, int template,
	struct memory_coders *coders, int requests[2], struct err *err)
{
	int rc = memory_coders_unpack(coders, r->pages);

	if (rc == 0 && pipe2(requests, O_CLOEXEC) < 0)
		rc = -errno;
	if (rc < 0)
		return err_raise_sys(err, rc, "start the processes that unpack");
	rc = attach(r, first, template, coders, requests, err);
	/* what a coder found before it ended says more than that it has */
	if (rc < 0 && memory_coders_end(coders) == -EBADMSG) {
		*err = (struct err){ 0 };
		rc = memory_reader_changed(r, err);
	}
	return rc;
}

/* What outlives the verb. */
struct pager {
	struct memory_reader reader;
	struct memory_coders coders;
	int requests[2];
};

static void serve(void *ctx)
{
	struct pager *p = ctx;

	(void)prctl(PR_SET_NAME, "cay-pager");
	(void)fault("memory.pager.serving");
	while (serve_one(&p->reader, &p->coders, p->requests[0]) > 0)
		;
	(void)close(p->requests[0]);
	(void)!memory_coders_end(&p->coders);
	memory_reader_close(&p->reader);
	free(p);
}

int memory_pager_start(struct job *job, struct memory_reader *r, const struct first *first,
	int template, struct err *err)
{
	struct pager *p = calloc(1, sizeof(*p));
	int rc;

	if (p == NULL)
		abort();
	*p = (struct pager){ .reader = *r, .coders = MEMORY_CODERS_INIT, .requests = { -1, -1 } };
	rc = begin(&p->reader, first, template, &p->coders, p->requests, err);
	if (rc == 0) {
		*r = (struct memory_reader)MEMORY_READER_INIT;
		job_stay(job, serve, p);
		return 0;
	}
	(void)!memory_coders_end(&p->coders);
	fd_close(&p->requests[0]);
	fd_close(&p->requests[1]);
	free(p);
	return rc;
}
