/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/image_write.h"
#include "sys/file.h"

#include <fcntl.h>
#include <sys/mman.h>

#define TABLE_MAX ((size_t)1 << 32)
#define HUGE_PAGE (2ULL << 20)

void image_writer_init(struct image_writer *w)
{
	for (int i = 0; i < TABLE_COUNT; i++)
		w->tables[i] = (struct buf)BUF_INIT(TABLE_MAX);
	w->maps = (struct buf)BUF_INIT(TABLE_MAX);
	w->copies = (struct buf)BUF_INIT(TABLE_MAX);
	w->stash = WINDOW_STASH;
}

void image_writer_fini(struct image_writer *w)
{
	for (int i = 0; i < TABLE_COUNT; i++)
		buf_free(&w->tables[i]);
	buf_free(&w->maps);
	buf_free(&w->copies);
}

uint32_t image_count(const struct image_writer *w, enum image_table table, size_t size)
{
	return (uint32_t)(w->tables[table].n / size);
}

uint32_t image_add(struct image_writer *w, enum image_table table, const void *record, size_t size)
{
	uint32_t index = image_count(w, table, size);

	buf_add(&w->tables[table], record, size);
	return index;
}

void *image_row(struct image_writer *w, enum image_table table, uint32_t index, size_t size)
{
	BUG_ON(index >= w->tables[table].n / size);
	return w->tables[table].p + index * size;
}

struct image_span image_add_bytes(struct image_writer *w, const void *bytes, size_t n)
{
	struct buf *b = &w->tables[TABLE_BYTES];
	struct image_span span = { .offset = b->n, .length = n };

	buf_add(b, bytes, n);
	buf_char(b, '\0');
	while (b->n % 8 != 0 && !buf_failed(b))
		buf_char(b, '\0');
	return span;
}

static uint64_t stash(
	struct image_writer *w, uint64_t target, uint64_t length, bool grows_down, bool content)
{
	/* the kernel keeps a gap below what grows down */
	uint64_t from = w->stash + (grows_down ? HUGE_PAGE : 0);
	uint64_t at = (from & ~(HUGE_PAGE - 1)) + (target & (HUGE_PAGE - 1));
	struct plan_map map;

	if (at < from)
		at += HUGE_PAGE;
	map = (struct plan_map){
		.address = at, .length = length, .grows_down = grows_down, .content = content
	};
	buf_add(&w->maps, &map, sizeof(map));
	w->stash = at + length;
	return at;
}

uint64_t image_stash(struct image_writer *w, uint64_t target, uint64_t length, bool grows_down)
{
	return stash(w, target, length, grows_down, false);
}

uint64_t image_stash_content(struct image_writer *w, uint64_t length)
{
	uint64_t whole = (length + IMAGE_PAGE - 1) & ~(uint64_t)(IMAGE_PAGE - 1);

	return stash(w, 0, whole, false, true);
}

uint32_t image_mappings(const struct image_writer *w)
{
	const struct plan_map *maps = (const struct plan_map *)(const void *)w->maps.p;
	uint32_t n = 0;

	for (size_t i = 0; i < w->maps.n / sizeof(*maps); i++) {
		if (i == 0 || maps[i].address != maps[i - 1].address + maps[i - 1].length ||
			maps[i].grows_down != maps[i - 1].grows_down ||
			maps[i].content != maps[i - 1].content)
			n++;
	}
	return n;
}

void image_copy(struct image_writer *w, int32_t pid, uint64_t from, uint64_t to, uint64_t length)
{
	struct plan_copy copy = { .pid = pid, .from = from, .to = to, .length = length };

	buf_add(&w->copies, &copy, sizeof(copy));
}

int image_seal(const struct image_writer *w)
{
	struct image_header h = { .magic = IMAGE_MAGIC, .version = IMAGE_VERSION };
	cleanup_fd int fd = memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint64_t at = sizeof(h);
	int rc = fd < 0 ? -errno : 0;

	for (int i = 0; rc == 0 && i < TABLE_COUNT; i++) {
		h.tables[i].offset = at;
		h.tables[i].count = w->tables[i].n;
		at += (w->tables[i].n + 63) & ~63ULL;
		if (buf_failed(&w->tables[i]))
			rc = -ENOMEM;
	}
	h.size = at;
	if (rc == 0)
		rc = file_write_all(fd, &h, sizeof(h));
	for (int i = 0; rc == 0 && i < TABLE_COUNT; i++) {
		if (lseek(fd, (off_t)h.tables[i].offset, SEEK_SET) < 0)
			rc = -errno;
		else
			rc = file_write_all(fd, w->tables[i].p, w->tables[i].n);
	}
	if (rc == 0 && ftruncate(fd, (off_t)at) < 0)
		rc = -errno;
	if (rc == 0)
		rc = file_seal(fd);
	return rc < 0 ? rc : TAKE_FD(fd);
}

int plan_seal(const struct image_writer *w, struct plan *head, const struct plan_process *processes)
{
	cleanup_fd int fd = memfd_create("plan", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc = fd < 0 ? -errno : 0;

	head->magic = PLAN_MAGIC;
	head->version = IMAGE_VERSION;
	head->n_maps = (uint32_t)(w->maps.n / sizeof(struct plan_map));
	head->n_copies = (uint32_t)(w->copies.n / sizeof(struct plan_copy));
	if (rc == 0 && (buf_failed(&w->maps) || buf_failed(&w->copies)))
		rc = -ENOMEM;
	if (rc == 0)
		rc = file_write_all(fd, head, sizeof(*head));
	if (rc == 0)
		rc = file_write_all(fd, processes, head->n_processes * sizeof(*processes));
	if (rc == 0)
		rc = file_write_all(fd, w->maps.p, w->maps.n);
	if (rc == 0)
		rc = file_write_all(fd, w->copies.p, w->copies.n);
	if (rc == 0)
		rc = file_seal(fd);
	return rc < 0 ? rc : TAKE_FD(fd);
}
