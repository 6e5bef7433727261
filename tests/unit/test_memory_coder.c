/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/memory_coder.h"
#include "sys/file.h"
#include "t.h"

#include <sys/mman.h>
#include <unistd.h>

#define PAGE   PAGECHUNK_PAGE
#define CHUNKS 64U /* more than all slots of one coder */

/* A page whose bytes are @n, as a chunk of its own. */
static void make_page(unsigned int n, unsigned char page[PAGE])
{
	memset(page, 'a', PAGE);
	memcpy(page, &n, sizeof(n));
}

/* What a template does: page @number, from the slot that is its turn. */
static void give_page(const struct memory_coders *c, unsigned int number, unsigned int content)
{
	const struct memory_coder *m = &c->each[number % c->n];
	size_t slot = number % c->n * TEMPLATE_PIECE_SLOTS + number / c->n % TEMPLATE_PIECE_SLOTS;
	uint64_t n = PAGE;
	char byte;

	check_int(file_read_all(m->in_credit, &byte, 1), 0);
	make_page(content, c->memory + slot * TEMPLATE_PIECE);
	check_int(file_write_all(m->in, &n, sizeof(n)), 0);
}

TEST(pieces_come_out_in_their_order)
{
	struct chunk_set *known = chunk_set_new(0);
	struct memory_coders c;
	struct coder_packed packed;
	const unsigned char *stored;
	unsigned char page[PAGE], digest[DIGEST_SIZE];
	unsigned int n;

	check_int(memory_coders_pack(&c, known), 0);
	n = CHUNKS / c.n * c.n;
	check(c.n >= 1 && c.n <= TEMPLATE_CODERS_MAX);
	for (unsigned int i = 0; i < n; i++) {
		give_page(&c, i, i);
		check_int(memory_coders_packed(&c, &packed, &stored), 0);
		make_page(i, page);
		digest_bytes(page, PAGE, digest);
		check(packed.known == 0 && stored != NULL);
		check(memcmp(packed.content, digest, DIGEST_SIZE) == 0);
		check_int(pagechunk_check(&packed.chunk.head), 0);
		check_int(memory_coders_done(&c), 0);
	}
	/* the same coder has seen them */
	for (unsigned int i = 0; i < n; i++) {
		give_page(&c, n + i, i);
		check_int(memory_coders_packed(&c, &packed, &stored), 0);
		check(packed.known != 0 && stored == NULL);
	}
	memory_coders_given(&c);
	check_int(memory_coders_packed(&c, &packed, &stored), -EPIPE);
	check_int(memory_coders_end(&c), 0);
	check_int(memory_coders_end(&c), 0);
	chunk_set_free(known);
}

TEST(what_somebody_wrote_before_is_known)
{
	struct chunk_set *known = chunk_set_new(1);
	unsigned char page[PAGE], digest[DIGEST_SIZE];
	struct memory_coders c;
	struct coder_packed packed;
	const unsigned char *stored;

	make_page(7, page);
	digest_bytes(page, PAGE, digest);
	chunk_set_add(known, digest);
	check_int(memory_coders_pack(&c, known), 0);
	give_page(&c, 0, 7);
	check_int(memory_coders_packed(&c, &packed, &stored), 0);
	check(packed.known != 0 && stored == NULL && packed.chunk.head.raw == PAGE);
	check_int(memory_coders_end(&c), 0);
	chunk_set_free(known);
}

/* @n orders for pages of @input, the last one's digest of something else if @spoilt. Return: as memory_coders_end(). */
static int unpack(unsigned int n, bool spoilt)
{
	unsigned char *input = xalloc((size_t)n * PAGE);
	struct memory_coders c;
	int rc = 0;

	for (unsigned int i = 0; i < n; i++)
		make_page(i, input + (size_t)i * PAGE);
	check_int(memory_coders_unpack(&c, input), 0);
	for (unsigned int i = 0; i < n; i++) {
		struct coder_order order = { .offset = (uint64_t)i * PAGE,
			.head = { .raw = PAGE, .stored = PAGE, .present = { 1 } } };
		const unsigned char *pages;
		struct coder_chunk chunk;

		digest_bytes(input + order.offset, PAGE, order.digest);
		order.digest[0] ^= spoilt && i == n - 1;
		check_int(memory_coders_order(&c, &order), 0);
		rc = memory_coders_next(&c, &chunk, &pages);
		check_int(rc, spoilt && i == n - 1 ? -EBADMSG : 0);
		if (rc < 0)
			break;
		check(memcmp(pages, input + order.offset, PAGE) == 0);
		check_int(memory_coders_done(&c), 0);
	}
	rc = memory_coders_end(&c);
	free(input);
	return rc;
}

TEST(chunks_come_back_in_their_order)
{
	check_int(unpack(CHUNKS, false), 0);
}

TEST(what_is_not_as_said_is_not_unpacked)
{
	check_int(unpack(CHUNKS, true), -EBADMSG);
	check_int(unpack(1, true), -EBADMSG);
}

/* A file that has become shorter than what was mapped of it is as a disk that fails. */
TEST(what_the_disk_does_not_give_is_told)
{
	cleanup_fd int fd = memfd_create("pages", 0);
	struct coder_order order = { .head = { .raw = PAGE, .stored = PAGE, .present = { 1 } } };
	const unsigned char *pages;
	struct coder_chunk chunk;
	struct memory_coders c;
	void *input;

	check_int(ftruncate(fd, PAGE), 0);
	input = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	check(input != MAP_FAILED);
	check_int(ftruncate(fd, 0), 0);
	check_int(memory_coders_unpack(&c, input), 0);
	check_int(memory_coders_order(&c, &order), 0);
	check_int(memory_coders_next(&c, &chunk, &pages), -EBADMSG);
	check(chunk.slot == TEMPLATE_DAMAGED);
	check_int(memory_coders_end(&c), -EBADMSG);
	(void)munmap(input, PAGE);
}
