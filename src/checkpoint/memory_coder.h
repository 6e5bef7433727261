/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/memory_coder.h - the process that looks at a payload's memory on its way to disk and back (codec/pagechunk.h).
 *
 * It has no privilege, no descriptors but three pipes, and may only read, write and end (seccomp's strict mode). What it makes lies in slots of memory that it shares with
 * whoever takes it, a chunk in each; it says so in a pipe, and waits until a slot is given back when none is left.
 *
 *   pack:   template_stream, image, plan, pieces of the pages -> template_stream, then struct coder_packed of each part in turn, their stored bytes in slots
 *   unpack: struct coder_order -> chunks, their pages in slots (struct template_pages tells how)
 */
#ifndef CAY_CHECKPOINT_MEMORY_CODER_H
#define CAY_CHECKPOINT_MEMORY_CODER_H

#include "checkpoint/chunk_set.h"
#include "codec/pagechunk.h"
#include <sys/types.h>

/** struct coder_order - a chunk to be unpacked; its stored bytes are at @offset of the input. */
struct coder_order {
	uint64_t offset;
	struct pagechunk_head head;
};

/** struct coder_chunk - what came of one, in @slot. */
struct coder_chunk {
	uint64_t slot;
	struct pagechunk_head head;
};

/** struct coder_packed - a chunk on its way to disk. Bytes that are known are not packed again: nothing is in a slot then. */
struct coder_packed {
	struct coder_chunk chunk;
	uint64_t known; /* number of the chunk that has these bytes, CHUNK_NONE = none has */
	unsigned char content[DIGEST_SIZE]; /* SHA-256 of the bytes that it stands for */
};

/** struct memory_coder - all descriptors are the caller's, blocking. */
struct memory_coder {
	pid_t pid; /* 0 = none */
	int in;    /* to be written */
	int out; /* to be read; it ends with what it was given, or early when that was malformed */
	int credit; /* to be written: a byte gives a slot back */
	int spare; /* the end of @credit that is read, so that giving back to one who has ended is no error */
	int slots;                  /* memory file */
	unsigned char *memory;      /* the slots, mapped */
	struct chunk_set *known;    /* of one that packs, else NULL; borrowed */
	const unsigned char *input; /* of one that unpacks; borrowed */
};

#define MEMORY_CODER_INIT \
	{ \
		.in = -1, .out = -1, .credit = -1, .spare = -1, .slots = -1 \
	}

/** memory_coder_pack() - start one that packs. @known: the chunks that there are; the coder has a copy and adds its own, in their order. Return: 0 or -errno; memory_coder_end() in any case. */
int memory_coder_pack(struct memory_coder *c, struct chunk_set *known) attr_must_use;

/** memory_coder_unpack() - start one that unpacks. @input: what orders point into, mapped. Return: 0 or -errno; memory_coder_end() in any case. */
int memory_coder_unpack(struct memory_coder *c, const unsigned char *input) attr_must_use;

/** memory_coder_order() - have a chunk unpacked. @head, @stored: as of the input. Return: 0 or -errno. */
int memory_coder_order(
	struct memory_coder *c, const struct pagechunk_head *head, uint64_t offset) attr_must_use;

/** memory_coder_next() - wait for a chunk. @bytes: its slot, until memory_coder_done(). Return: 0, -EPIPE at the end, -errno. */
int memory_coder_next(
	struct memory_coder *c, struct coder_chunk *ret, const unsigned char **bytes) attr_must_use;

/** memory_coder_packed() - wait for a chunk of one that packs. @bytes: its slot, until memory_coder_done(); NULL when it is known: there is nothing to give back then. Return: as memory_coder_next(). */
int memory_coder_packed(struct memory_coder *c, struct coder_packed *ret,
	const unsigned char **bytes) attr_must_use;

/** memory_coder_done() - give the slot of the last chunk back. Return: 0 or -errno. */
int memory_coder_done(struct memory_coder *c) attr_must_use;

/** memory_coder_end() - close what is open and wait for its end. Idempotent. */
void memory_coder_end(struct memory_coder *c);

#endif
