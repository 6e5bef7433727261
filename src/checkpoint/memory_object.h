/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/memory_object.h - memory of a stopped process tree on disk: pool/memory/ID/ (docs/design/0009).
 *
 *   PAGES     chunks of image, plan and pages, one after the other (codec/pagechunk.h), without their heads
 *   INDEX     struct memory_chunk for each
 *   STATE     what the keeper carries over: rings, input, ids (sandbox/carry.h)
 *   MANIFEST  signed; digests of INDEX and STATE, sizes, the machine
 *   EXACT     empty; made by a keeper that has ended the processes as they lie here
 *
 * Made below tmp/ and renamed: an object that can be found is whole. Every byte is authenticated before anybody decodes it.
 */
#ifndef CAY_CHECKPOINT_MEMORY_OBJECT_H
#define CAY_CHECKPOINT_MEMORY_OBJECT_H

#include "checkpoint/template_wire.h"
#include "codec/pagechunk.h"
#include "store/digest.h"
#include "store/store.h"
#include <jansson.h>

#define MEMORY_DIR   "memory"
#define MEMORY_EXACT "EXACT"

/** struct memory_chunk - a record of INDEX. */
struct memory_chunk {
	struct pagechunk_head head;
	unsigned char digest[DIGEST_SIZE]; /* of the stored bytes */
};

/** struct memory_writer - an object under construction. */
struct memory_writer {
	const struct store *store;
	const char *id; /* borrowed */
	int dir, pages;
	struct buf index;
	uint64_t stored;
	struct template_stream parts;
	unsigned char state[DIGEST_SIZE];
};

/** memory_writer_open() - begin object @id. Return: 0 or an error; memory_writer_close() in any case. */
int memory_writer_open(struct memory_writer *w, const struct store *store, const char *id,
	struct err *err) attr_must_use;
/** memory_writer_add() - append a chunk. Return: 0 or -errno. */
int memory_writer_add(struct memory_writer *w, const struct pagechunk_head *head,
	const void *stored) attr_must_use;
/** memory_writer_state() - copy the file @path. Return: 0 or -errno. */
int memory_writer_state(struct memory_writer *w, const char *path) attr_must_use;
/** memory_writer_commit() - manifest, sync, rename, sync: it survives a crash of the machine. @machine: borrowed. */
int memory_writer_commit(struct memory_writer *w, const char *sandbox, json_t *machine,
	struct err *err) attr_must_use;
/** memory_writer_close() - release; what was not committed goes. */
void memory_writer_close(struct memory_writer *w);

/** struct memory_reader - an opened object. */
struct memory_reader {
	int dir;
	json_t *manifest;
	const struct memory_chunk *index; /* mapped */
	const unsigned char *pages;       /* mapped; NULL when nothing is stored */
	size_t n, pages_size;
	struct template_stream parts;
	size_t next;     /* chunk */
	uint64_t offset; /* of its bytes */
};

/** memory_reader_open() - open object @id and check manifest and index. %ERR_CORRUPT names what was changed. memory_reader_close() in any case. */
int memory_reader_open(struct memory_reader *r, const struct store *store, const char *id,
	struct err *err) attr_must_use;
/** memory_reader_next() - next chunk, its digest compared; its stored bytes are where @offset was before. Return: 1, 0 at the end, %ERR_CORRUPT. */
int memory_reader_next(
	struct memory_reader *r, const struct pagechunk_head **head, struct err *err) attr_must_use;
/** memory_reader_state() - the carried state, checked. */
int memory_reader_state(struct memory_reader *r, struct buf *out, struct err *err) attr_must_use;
/** memory_reader_close() - release. */
void memory_reader_close(struct memory_reader *r);

#endif
