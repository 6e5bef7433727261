/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/chunk_set.h - which bytes have been written already: SHA-256 of chunks, and the numbers of the first that had them.
 *
 * All memory is allocated at the beginning: a coder adds and asks where it may only read and write (checkpoint/memory_coder.h).
 */
#ifndef CAY_CHECKPOINT_CHUNK_SET_H
#define CAY_CHECKPOINT_CHUNK_SET_H

#include "store/digest.h"

#define CHUNK_SET_MORE (1U << 16) /* chunks that are added to those known from the beginning */
#define CHUNK_NONE     UINT64_MAX

/** struct chunk_set - chunk_set_free() releases. */
struct chunk_set;

/** chunk_set_new() - room for @known chunks and CHUNK_SET_MORE. Aborts when memory runs out. */
struct chunk_set *chunk_set_new(size_t known);
/** chunk_set_free() - NULL is allowed. */
void chunk_set_free(struct chunk_set *s);

/**
 * chunk_set_add() - the next chunk: numbers begin at 0. @digest: of its bytes, NULL = nobody shall find it. The first of equal ones is found; what has no room any more is
 * not, which costs its bytes on disk and nothing else.
 */
void chunk_set_add(struct chunk_set *s, const unsigned char digest[DIGEST_SIZE]);

/** chunk_set_find() - number of the first chunk with @digest, or CHUNK_NONE. */
uint64_t chunk_set_find(const struct chunk_set *s, const unsigned char digest[DIGEST_SIZE]);

#endif
