/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "checkpoint/memory_object.h"

#include <sys/mman.h>

#define PAGE PAGECHUNK_PAGE

/* An opened object of two chunks, a page each; @ret_file: its PAGES. */
static struct memory_reader reader_new(struct memory_chunk index[2], int *ret_file)
{
	struct memory_reader r = MEMORY_READER_INIT;
	unsigned char page[PAGE];
	int file = memfd_create("pages", MFD_CLOEXEC);

	for (int i = 0; i < 2; i++) {
		memset(page, 'a' + i, sizeof(page));
		check_int(write(file, page, sizeof(page)), (int)sizeof(page));
		index[i] = (struct memory_chunk){
			.head = { .raw = PAGE, .stored = PAGE, .present = { 1 } },
			.offset = (uint64_t)i * PAGE
		};
		digest_bytes(page, sizeof(page), index[i].digest);
	}
	r.manifest = json_pack("{s:s}", "memory", "aaaaaaaaaaaaaaaaaaaa");
	r.index = index;
	r.n = 2;
	r.sizes[0] = r.pages_size = 2 * PAGE;
	r.pages = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
	check(r.pages != MAP_FAILED);
	*ret_file = file;
	return r;
}

static void reader_end(struct memory_reader *r, int file)
{
	(void)munmap((void *)(uintptr_t)r->pages, r->pages_size);
	json_decref(r->manifest);
	(void)close(file);
}

TEST(each_chunk_is_found_and_then_the_end)
{
	struct memory_chunk index[2];
	const struct memory_chunk *chunk;
	struct err err;
	uint64_t offset;
	int file;
	struct memory_reader r = reader_new(index, &file);

	check_int(memory_reader_next(&r, &chunk, &offset, &err), 1);
	check(chunk == &index[0] && offset == 0);
	check_int(memory_reader_next(&r, &chunk, &offset, &err), 1);
	check(chunk == &index[1] && offset == PAGE);
	check_int(memory_reader_next(&r, &chunk, &offset, &err), 0);
	reader_end(&r, file);
}

TEST(bytes_that_the_disk_does_not_give_are_corrupt)
{
	struct memory_chunk index[2];
	const struct memory_chunk *chunk;
	struct err err = { 0 };
	uint64_t offset;
	int file;
	struct memory_reader r = reader_new(index, &file);

	check_int(ftruncate(file, PAGE), 0); /* to touch the second page is a SIGBUS now */
	check_int(memory_reader_next(&r, &chunk, &offset, &err), 1);
	check(memory_reader_next(&r, &chunk, &offset, &err) < 0);
	check_int(err.code, ERR_CORRUPT);
	reader_end(&r, file);
}

TEST(bytes_that_are_not_what_they_were_are_corrupt)
{
	struct memory_chunk index[2];
	struct err err = { 0 };
	int file;
	struct memory_reader r = reader_new(index, &file);

	index[1].digest[0] ^= 1;
	check_int(memory_reader_check(&r, &err), 1);
	check(memory_reader_check(&r, &err) < 0);
	check_int(err.code, ERR_CORRUPT);
	reader_end(&r, file);
}

TEST(compressed_bytes_are_fewer_than_what_they_stand_for)
{
	struct pagechunk_head head = {
		.raw = PAGE, .stored = PAGE - 1, .flags = PAGECHUNK_COMPRESSED, .present = { 1 }
	};

	check_int(pagechunk_check(&head), 0);
	head.stored = PAGE;
	check_int(pagechunk_check(&head), -EBADMSG);
}
