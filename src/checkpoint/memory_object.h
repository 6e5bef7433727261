/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/memory_object.h - memory of a stopped process tree on disk: pool/memory/ID/ (docs/design/0009).
 *
 *   PAGES     chunks of image, plan and pages, one after the other (codec/pagechunk.h), without their heads
 *   PAGES.N   the same of earlier objects, where bytes are that this one has too: further names of their files, so nobody has to count who needs them
 *   INDEX     struct memory_chunk for each chunk, in the order of image, plan and pages
 *   STATE     what the keeper carries over: rings, input, ids (sandbox/carry.h)
 *   MANIFEST  signed; digests of INDEX and STATE, sizes, the machine
 *   EXACT     empty; made by a keeper that has ended the processes as they lie here
 *
 * Made below tmp/ and renamed: an object that can be found is whole. Every byte is authenticated before anybody decodes it.
 */
#ifndef CAY_CHECKPOINT_MEMORY_OBJECT_H
#define CAY_CHECKPOINT_MEMORY_OBJECT_H

#include "checkpoint/chunk_set.h"
#include "checkpoint/template_wire.h"
#include "codec/pagechunk.h"
#include "store/store.h"
#include <jansson.h>

#define MEMORY_DIR   "memory"
#define MEMORY_EXACT "EXACT"
#define MEMORY_LINKS 8U  /* PAGES.1 to PAGES.8 */
#define MEMORY_AHEAD 16U /* chunks that the disk is asked for at once */

/** struct memory_chunk - a record of INDEX. */
struct memory_chunk {
	struct pagechunk_head head;
	unsigned char digest[DIGEST_SIZE];  /* of the stored bytes */
	unsigned char content[DIGEST_SIZE]; /* of what they stand for, as its coder said */
	uint32_t file;                      /* 0 = PAGES, else N of PAGES.N */
	uint32_t reserved;
	uint64_t offset; /* of the stored bytes in it */
};

/** struct memory_reader - an opened object. */
struct memory_reader {
	int dir;
	json_t *manifest;
	const struct memory_chunk *index; /* mapped */
	size_t n;
	const unsigned char
		*pages; /* all files, mapped one behind the other; NULL when nothing is stored */
	size_t pages_size;
	uint64_t sizes[1 + MEMORY_LINKS], starts[1 + MEMORY_LINKS]; /* of each in it */
	struct template_stream parts;
	size_t next; /* chunk */
};

#define MEMORY_READER_INIT \
	{ \
		.dir = -1 \
	}

/** struct memory_writer - an object under construction. */
struct memory_writer {
	const struct store *store;
	const char *id; /* borrowed */
	const struct memory_reader
		*base; /* an object whose bytes need not be written again, or NULL; borrowed */
	uint32_t links[1 + MEMORY_LINKS]; /* N of our name for each file of the base, 0 = none */
	bool used[1 + MEMORY_LINKS]; /* each PAGES.N of ours: is anything of it in the index? */
	int dir, pages;
	struct buf index;
	struct chunk_set *known; /* the base's chunks, then our own in their order */
	uint64_t stored, shared; /* bytes in PAGES, and in the others */
	uint64_t begun, done;    /* bytes of PAGES that were begun to be written out; that are */
	struct template_stream parts;
	unsigned char state[DIGEST_SIZE];
};

/**
 * memory_writer_open() - begin object @id. @base: opened, stays open as long as @w; NULL = none. Those files of it are linked of which it uses half at least, the largest
 * MEMORY_LINKS of them: what it has of others is written again, so chains do not grow and old files go.
 *
 * Return: 0 or an error; memory_writer_close() in any case.
 */
int memory_writer_open(struct memory_writer *w, const struct store *store, const char *id,
	const struct memory_reader *base, struct err *err) attr_must_use;
/** memory_writer_known() - the chunks of the base that need not be written again. chunk_set_free() releases. */
struct chunk_set *memory_writer_known(const struct memory_writer *w);
/** memory_writer_expect() - what will come; once, before the first chunk. */
void memory_writer_expect(struct memory_writer *w, const struct template_stream *parts);
/**
 * memory_writer_add() - append a chunk, or, when its bytes are there already, only its record. @stored: NULL = they are. @content: as of struct memory_chunk.
 * Return: the bytes that it stands for; -EBADMSG when it is malformed, or not there; -ESTALE when the base's bytes are not what they were; other -errno.
 */
int memory_writer_add(struct memory_writer *w, const struct pagechunk_head *head,
	const void *stored, const unsigned char content[DIGEST_SIZE]) attr_must_use;
/** memory_writer_state() - copy the file @path. Return: 0 or -errno. */
int memory_writer_state(struct memory_writer *w, const char *path) attr_must_use;
/** memory_writer_commit() - manifest, sync, rename, sync: it survives a crash of the machine. @machine: borrowed. */
int memory_writer_commit(struct memory_writer *w, const char *sandbox, json_t *machine,
	struct err *err) attr_must_use;
/** memory_writer_close() - release; what was not committed goes. */
void memory_writer_close(struct memory_writer *w);

/** memory_reader_open() - open object @id and check manifest and index. %ERR_CORRUPT names what was changed. memory_reader_close() in any case. */
int memory_reader_open(struct memory_reader *r, const struct store *store, const char *id,
	struct err *err) attr_must_use;
/** memory_reader_ahead() - have the disk begin to give @n chunks from chunk @at on; those beyond the last are nobody's. memory_reader_next() does it by itself. */
void memory_reader_ahead(const struct memory_reader *r, size_t at, size_t n);
/** memory_reader_next() - next chunk; its stored bytes are at @offset of @r->pages, and can be read. Whether they have the digest is the caller's to look. Return: 1, 0 at the end, %ERR_CORRUPT when the disk does not give them. */
int memory_reader_next(struct memory_reader *r, const struct memory_chunk **chunk, uint64_t *offset,
	struct err *err) attr_must_use;
/** memory_reader_place() - where the stored bytes of @chunk are in @r->pages. */
uint64_t memory_reader_place(const struct memory_reader *r, const struct memory_chunk *chunk);
/** memory_reader_check() - as memory_reader_next(), its digest compared. */
int memory_reader_check(struct memory_reader *r, struct err *err) attr_must_use;
/** memory_reader_changed() - %ERR_CORRUPT: stored bytes are not what the index says. */
int memory_reader_changed(const struct memory_reader *r, struct err *err);
/** memory_reader_state() - the carried state, checked. */
int memory_reader_state(struct memory_reader *r, struct buf *out, struct err *err) attr_must_use;
/** memory_reader_close() - release. */
void memory_reader_close(struct memory_reader *r);

#endif
