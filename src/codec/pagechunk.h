/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/pagechunk.h - memory in pieces of at most 1 MiB for the disk: pages of zeros are left out, the rest is compressed (zstd) where that saves something.
 *
 * A chunk is a head and `stored` bytes. Coders allocate once and make no system call afterwards: they work in processes that may only read and write.
 */
#ifndef CAY_CODEC_PAGECHUNK_H
#define CAY_CODEC_PAGECHUNK_H

#include "base/attr.h"

#define PAGECHUNK_PAGE  4096U
#define PAGECHUNK_PAGES 256U
#define PAGECHUNK_MAX   (PAGECHUNK_PAGE * PAGECHUNK_PAGES)

enum pagechunk_flag { PAGECHUNK_COMPRESSED = 1 };

/** struct pagechunk_head - in front of each chunk, little endian as it lies in memory. */
struct pagechunk_head {
	uint32_t raw; /* bytes that it stands for, 1 to PAGECHUNK_MAX; the last page may be short */
	uint32_t stored; /* bytes that follow, at most PAGECHUNK_MAX */
	uint32_t flags;
	uint32_t reserved;                      /* 0 */
	uint64_t present[PAGECHUNK_PAGES / 64]; /* pages that are not all zeros */
};

/** struct pagechunk_coder - packs or unpacks; pagechunk_coder_free() releases. */
struct pagechunk_coder;

/** pagechunk_coder_new() - for one direction. Aborts when memory runs out. */
struct pagechunk_coder *pagechunk_coder_new(bool pack);
/** pagechunk_coder_free() - NULL is allowed. */
void pagechunk_coder_free(struct pagechunk_coder *c);

/**
 * pagechunk_pack() - @n (1 to PAGECHUNK_MAX) bytes at @raw, a buffer of whole pages whose rest is zero.
 * @stored: PAGECHUNK_MAX bytes, of which the first head->stored are set: what follows @head.
 */
void pagechunk_pack(struct pagechunk_coder *c, const unsigned char *raw, size_t n,
	struct pagechunk_head *head, unsigned char *stored);

/** pagechunk_check() - may this head be the head of a chunk? Return: 0 or -EBADMSG. */
int pagechunk_check(const struct pagechunk_head *head) attr_must_use;

/**
 * pagechunk_unpack() - the other way, but for the pages of zeros. @stored: head->stored bytes. @pages: PAGECHUNK_MAX bytes; the pages that are present, side by side.
 * Return: 0, or -EBADMSG when the bytes are not what the head says.
 */
int pagechunk_unpack(struct pagechunk_coder *c, const struct pagechunk_head *head,
	const unsigned char *stored, unsigned char *pages) attr_must_use;

/** pagechunk_spread() - @pages of pagechunk_unpack() to where they belong in @raw, PAGECHUNK_MAX bytes, of which the first head->raw are meant. */
void pagechunk_spread(
	const struct pagechunk_head *head, const unsigned char *pages, unsigned char *raw);

#endif
