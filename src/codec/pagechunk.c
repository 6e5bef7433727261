/* SPDX-License-Identifier: Apache-2.0 */
#define ZSTD_STATIC_LINKING_ONLY /* contexts in memory of ours */
#include "codec/pagechunk.h"

#include <string.h>
#include <zstd.h>

#define LEVEL      (-1) /* unpacked 1.5 to 2 times as fast as level 1, for a third more bytes */
#define WORTH_PART 8    /* compressed only when it saves at least this part */

struct pagechunk_coder {
	void *workspace;
	ZSTD_CCtx *pack;
	ZSTD_DCtx *unpack;
	unsigned char pages[PAGECHUNK_MAX]; /* those that are present, side by side */
};

struct pagechunk_coder *pagechunk_coder_new(bool pack)
{
	struct pagechunk_coder *c = xnew(struct pagechunk_coder);
	size_t n = pack ? ZSTD_estimateCCtxSize(LEVEL) : ZSTD_estimateDCtxSize();

	c->workspace = xalloc(n);
	if (pack)
		c->pack = ZSTD_initStaticCCtx(c->workspace, n);
	else
		c->unpack = ZSTD_initStaticDCtx(c->workspace, n);
	BUG_ON(c->pack == NULL && c->unpack == NULL);
	return c;
}

void pagechunk_coder_free(struct pagechunk_coder *c)
{
	if (c == NULL)
		return;
	free(c->workspace);
	free(c);
}

static uint32_t pages_of(uint32_t raw)
{
	return (raw + PAGECHUNK_PAGE - 1) / PAGECHUNK_PAGE;
}

static bool is_present(const struct pagechunk_head *head, uint32_t page)
{
	return (head->present[page / 64] >> page % 64 & 1) != 0;
}

static bool is_zero(const unsigned char *page)
{
	return page[0] == 0 && memcmp(page, page + 1, PAGECHUNK_PAGE - 1) == 0;
}

static uint32_t count_present(const struct pagechunk_head *head)
{
	uint32_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(head->present); i++)
		n += (uint32_t)__builtin_popcountll(head->present[i]);
	return n;
}

static void find_present(const unsigned char *raw, struct pagechunk_head *head)
{
	for (uint32_t i = 0; i < pages_of(head->raw); i++) {
		if (!is_zero(raw + (size_t)i * PAGECHUNK_PAGE))
			head->present[i / 64] |= 1ULL << i % 64;
	}
}

/* Return: the pages that are present, side by side; where all are, as they lie. */
static const unsigned char *gather(
	unsigned char *to, const unsigned char *raw, const struct pagechunk_head *head)
{
	size_t at = 0;

	if (count_present(head) == pages_of(head->raw))
		return raw;
	for (uint32_t i = 0; i < pages_of(head->raw); i++) {
		if (!is_present(head, i))
			continue;
		memcpy(to + at, raw + (size_t)i * PAGECHUNK_PAGE, PAGECHUNK_PAGE);
		at += PAGECHUNK_PAGE;
	}
	return to;
}

void pagechunk_pack(struct pagechunk_coder *c, const unsigned char *raw, size_t n,
	struct pagechunk_head *head, unsigned char *stored)
{
	const unsigned char *pages;
	size_t full, small;

	*head = (struct pagechunk_head){ .raw = (uint32_t)n };
	find_present(raw, head);
	pages = gather(c->pages, raw, head);
	full = (size_t)count_present(head) * PAGECHUNK_PAGE;
	/* too small a room: an error, and that is what it shall be */
	small = full == 0 ? 0
			  : ZSTD_compressCCtx(
				    c->pack, stored, full - full / WORTH_PART, pages, full, LEVEL);
	if (full > 0 && ZSTD_isError(small) == 0) {
		head->flags = PAGECHUNK_COMPRESSED;
		head->stored = (uint32_t)small;
		return;
	}
	head->stored = (uint32_t)full;
	memcpy(stored, pages, full);
}

int pagechunk_check(const struct pagechunk_head *head)
{
	uint32_t present = count_present(head) * PAGECHUNK_PAGE;
	bool compressed = (head->flags & PAGECHUNK_COMPRESSED) != 0;

	if (head->raw == 0 || head->raw > PAGECHUNK_MAX || head->stored > PAGECHUNK_MAX ||
		head->reserved != 0 || (head->flags & ~(uint32_t)PAGECHUNK_COMPRESSED) != 0)
		return -EBADMSG;
	for (uint32_t i = pages_of(head->raw); i < PAGECHUNK_PAGES; i++) {
		if (is_present(head, i))
			return -EBADMSG;
	}
	if (compressed ? head->stored == 0 || head->stored >= present : head->stored != present)
		return -EBADMSG;
	return 0;
}

int pagechunk_unpack(struct pagechunk_coder *c, const struct pagechunk_head *head,
	const unsigned char *stored, unsigned char *pages)
{
	size_t want = (size_t)count_present(head) * PAGECHUNK_PAGE;
	int rc = pagechunk_check(head);

	if (rc < 0)
		return rc;
	if ((head->flags & PAGECHUNK_COMPRESSED) == 0)
		memcpy(pages, stored, want);
	else if (ZSTD_decompressDCtx(c->unpack, pages, want, stored, head->stored) != want)
		rc = -EBADMSG;
	return rc;
}

void pagechunk_spread(
	const struct pagechunk_head *head, const unsigned char *pages, unsigned char *raw)
{
	for (uint32_t i = 0; i < pages_of(head->raw); i++) {
		unsigned char *page = raw + (size_t)i * PAGECHUNK_PAGE;

		if (is_present(head, i)) {
			memcpy(page, pages, PAGECHUNK_PAGE);
			pages += PAGECHUNK_PAGE;
		} else {
			memset(page, 0, PAGECHUNK_PAGE);
		}
	}
}
