/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/pagechunk.h"
#include "fuzz/fuzz.h"

static struct pagechunk_coder *packer, *unpacker;

/* As memory: what is packed comes back. */
static void there_and_back(
	const uint8_t *data, size_t size, unsigned char *raw, unsigned char *again)
{
	static unsigned char stored[PAGECHUNK_MAX], pages[PAGECHUNK_MAX];
	struct pagechunk_head head;

	if (size == 0 || size > PAGECHUNK_MAX)
		return;
	memset(raw, 0, PAGECHUNK_MAX);
	memcpy(raw, data, size);
	pagechunk_pack(packer, raw, size, &head, stored);
	MUST(pagechunk_check(&head) == 0 && head.raw == size);
	MUST(pagechunk_unpack(unpacker, &head, stored, pages) == 0);
	pagechunk_spread(&head, pages, again);
	MUST(memcmp(raw, again, size) == 0);
}

/* As a chunk: a head and what follows it. */
static void as_chunk(const uint8_t *data, size_t size, unsigned char *raw)
{
	static unsigned char pages[PAGECHUNK_MAX];
	struct pagechunk_head head;
	unsigned char *stored;

	if (size < sizeof(head))
		return;
	memcpy(&head, data, sizeof(head));
	if (pagechunk_check(&head) < 0 || head.stored > size - sizeof(head))
		return;
	stored = xalloc(head.stored + 1U);
	memcpy(stored, data + sizeof(head), head.stored);
	if (pagechunk_unpack(unpacker, &head, stored, pages) == 0)
		pagechunk_spread(&head, pages, raw);
	free(stored);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned char raw[PAGECHUNK_MAX], again[PAGECHUNK_MAX];

	if (packer == NULL) {
		packer = pagechunk_coder_new(true);
		unpacker = pagechunk_coder_new(false);
	}
	there_and_back(data, size, raw, again);
	as_chunk(data, size, raw);
	return 0;
}
