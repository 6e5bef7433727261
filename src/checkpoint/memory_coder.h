/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/memory_coder.h - the processes that look at a payload's memory on its way to disk and back (codec/pagechunk.h): one for each processor that we may use, at most
 * TEMPLATE_CODERS_MAX; chunk N is the (N % n)-th one's.
 *
 * They have no privilege, no descriptors but four pipes, and may only read, write and end (confine_strict()). What they take and make lies in slots of memory that they
 * share with whoever gives and takes it; pipes say that a slot is full, or free again. Which bytes are in whose slot is a matter among them: all of it is of one sandbox.
 *
 *   pack:   pieces of image, plan and pages, in slots (template_wire.h) -> struct coder_packed, stored bytes in slots
 *   unpack: struct coder_order -> chunks, their pages in slots (struct template_pages tells how)
 */
#ifndef CAY_CHECKPOINT_MEMORY_CODER_H
#define CAY_CHECKPOINT_MEMORY_CODER_H

#include "checkpoint/chunk_set.h"
#include "checkpoint/template_wire.h"
#include "codec/pagechunk.h"
#include <sys/types.h>

/**
 * struct coder_order - a chunk to be unpacked; its stored bytes are at @offset of the input, and have this digest: nothing else is ever decoded. A coder that finds other bytes there, or none since the
 * disk does not give them, gives %TEMPLATE_DAMAGED instead of a slot and ends.
 */
struct coder_order {
	uint64_t offset;
	unsigned char digest[DIGEST_SIZE];
	struct pagechunk_head head;
};

/** struct coder_chunk - what came of one, in @slot. */
struct coder_chunk {
	uint64_t slot;
	struct pagechunk_head head;
};

/** struct coder_packed - a chunk on its way to disk. Bytes that are known are not packed again: nothing is in a slot then, and of the head only @raw counts. */
struct coder_packed {
	struct coder_chunk chunk;
	uint64_t known;                     /* whether they are */
	unsigned char content[DIGEST_SIZE]; /* SHA-256 of the bytes that it stands for */
};

/** struct memory_coder - one of them. All descriptors are the caller's, blocking. */
struct memory_coder {
	pid_t pid;     /* 0 = none */
	int in;        /* to be written */
	int in_credit; /* to be read: a byte gives a slot of what it takes back. Open to the end: to give back what nobody waits for is no error */
	int out; /* to be read; it ends with what it was given, or early when that was malformed */
	int credit; /* to be written: a byte gives a slot of what it makes back */
	int spare;  /* the end of @credit that is read, for the same reason */
};

/** struct memory_coders - MEMORY_CODERS_INIT, then one of memory_coders_pack() and memory_coders_unpack(). */
struct memory_coders {
	struct memory_coder each[TEMPLATE_CODERS_MAX];
	uint32_t n;
	uint64_t ordered, taken;    /* chunks: whose turn it is */
	int slots;                  /* memory file: slots of pieces, then slots of chunks */
	unsigned char *memory;      /* it, mapped */
	struct chunk_set *known;    /* of those that pack, else NULL; borrowed */
	const unsigned char *input; /* of those that unpack; borrowed */
};

#define MEMORY_CODERS_INIT \
	{ \
		.slots = -1 \
	}

#define MEMORY_CODER_FDS (1 + 2 * TEMPLATE_CODERS_MAX)

/** memory_coders_pack() - start some that pack. @known: the chunks that there are; each has a copy and adds its own. Return: 0 or -errno; memory_coders_end() in any case. */
int memory_coders_pack(struct memory_coders *c, struct chunk_set *known) attr_must_use;

/** memory_coders_unpack() - start some that unpack. @input: what orders point into, mapped. Return: 0 or -errno; memory_coders_end() in any case. */
int memory_coders_unpack(struct memory_coders *c, const unsigned char *input) attr_must_use;

/** memory_coders_givers() - what a template needs to give pieces to those that pack. @fds: borrowed ones. Return: how many. */
size_t memory_coders_givers(const struct memory_coders *c, int fds[MEMORY_CODER_FDS]);

/** memory_coders_takers() - what a template needs to take the next chunks and all others from those that unpack. @fds: borrowed ones. Return: how many. */
size_t memory_coders_takers(const struct memory_coders *c, int fds[MEMORY_CODER_FDS]);

/** memory_coders_given() - we give no more orders, or pieces: whoever else does so, they must see its end. */
void memory_coders_given(struct memory_coders *c);

/** memory_coders_handed_on() - somebody else takes chunks from now on: if that ends, they must see it. */
void memory_coders_handed_on(struct memory_coders *c);

/** memory_coders_order() - have a chunk unpacked. Return: 0 or -errno. */
int memory_coders_order(struct memory_coders *c, const struct coder_order *order) attr_must_use;

/** memory_coders_next() - wait for the next chunk. @bytes: its slot, until memory_coders_done(). Return: 0, -EPIPE at the end, -errno. */
int memory_coders_next(struct memory_coders *c, struct coder_chunk *ret,
	const unsigned char **bytes) attr_must_use;

/** memory_coders_packed() - wait for the next chunk of those that pack. @bytes: its slot, until memory_coders_done(); NULL when it is known: there is nothing to give back then. Return: as memory_coders_next(). */
int memory_coders_packed(struct memory_coders *c, struct coder_packed *ret,
	const unsigned char **bytes) attr_must_use;

/** memory_coders_done() - give the slot of the last chunk back. Return: 0 or -errno. */
int memory_coders_done(struct memory_coders *c) attr_must_use;

/** memory_coders_end() - close what is open and wait for their ends. Idempotent. Return: 0, or -EBADMSG when stored bytes were not what an order said, or could not be read. */
int memory_coders_end(struct memory_coders *c);

#endif
