/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: checkpoint/image_write.h - growing an image and a plan, and sealing them into memory files. */
#ifndef CAY_CHECKPOINT_IMAGE_WRITE_H
#define CAY_CHECKPOINT_IMAGE_WRITE_H

#include "base/buf.h"
#include "checkpoint/image.h"

/** struct image_writer - tables under construction; image_writer_fini() releases them. */
struct image_writer {
	struct buf tables[TABLE_COUNT];
	struct buf maps, copies; /* struct plan_map, struct plan_copy */
	uint64_t stash;          /* next free address of the stash */
};

/** image_writer_init() - empty. */
void image_writer_init(struct image_writer *w);
/** image_writer_fini() - release. */
void image_writer_fini(struct image_writer *w);

/** image_add() - append a record of @size bytes. Return: its index; memory that runs out shows in image_seal(). */
uint32_t image_add(struct image_writer *w, enum image_table table, const void *record, size_t size);

#define IMAGE_ADD(w, table, record) image_add(w, table, record, sizeof(*(record)))

/** image_row() - record @index of @size bytes; valid until the next image_add() to the table. */
void *image_row(struct image_writer *w, enum image_table table, uint32_t index, size_t size);

/** image_count() - records of @size bytes in @table. */
uint32_t image_count(const struct image_writer *w, enum image_table table, size_t size);

/** image_add_bytes() - append bytes and a NUL that does not count. */
struct image_span image_add_bytes(struct image_writer *w, const void *bytes, size_t n);

/** image_stash() - a range of the stash of @length bytes whose address equals @target modulo 2 MiB. */
uint64_t image_stash(struct image_writer *w, uint64_t target, uint64_t length, bool grows_down);

/** image_stash_content() - a range for the bytes of a description, which the opener reads. */
uint64_t image_stash_content(struct image_writer *w, uint64_t length);

/** image_mappings() - how many mappings the stash is: what touches is one to the kernel, if it is of one kind. */
uint32_t image_mappings(const struct image_writer *w);

/** image_copy() - have the template copy from process @pid. */
void image_copy(struct image_writer *w, int32_t pid, uint64_t from, uint64_t to, uint64_t length);

/** image_seal() - the image as a sealed memory file. Return: descriptor or -errno. */
int image_seal(const struct image_writer *w) attr_must_use;

/** plan_seal() - the plan: @head is completed with the counts. Return: descriptor or -errno. */
int plan_seal(const struct image_writer *w, struct plan *head,
	const struct plan_process *processes) attr_must_use;

#endif
