/* SPDX-License-Identifier: Apache-2.0 */
#include "events/line.h"
#include "base/str.h"

#include <openssl/sha.h>

#define TAIL_MAX 400 /* longer than a line without cause and data */

/* A line ends with ,"hash":"<64 digits>"} */
#define HASH_TAIL (sizeof(",\"hash\":\"\"}") - 1 + 64)

void line_hash_text(const unsigned char hash[LINE_HASH_SIZE], char *out)
{
	str_hex(out, hash, LINE_HASH_SIZE);
}

bool line_hash_parse(const char *digits, unsigned char ret[LINE_HASH_SIZE])
{
	for (size_t i = 0; i < 2 * LINE_HASH_SIZE; i++) {
		char c = digits[i];
		int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (d < 0)
			return false;
		ret[i / 2] = (unsigned char)(i % 2 == 0 ? d << 4 : ret[i / 2] | d);
	}
	return true;
}

void line_hash(const unsigned char before[LINE_HASH_SIZE], const char *line, size_t size,
	unsigned char ret[LINE_HASH_SIZE])
{
	SHA256_CTX ctx;

	/* EVP allocates for each digest; this runs for every event */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	(void)SHA256_Init(&ctx);
	(void)SHA256_Update(&ctx, before, LINE_HASH_SIZE);
	(void)SHA256_Update(&ctx, line, size);
	(void)SHA256_Final(ret, &ctx);
#pragma GCC diagnostic pop
}

bool line_stated_hash(const char *line, size_t size, unsigned char ret[LINE_HASH_SIZE])
{
	const char *p = line + size - HASH_TAIL;

	if (size <= HASH_TAIL || memcmp(p, ",\"hash\":\"", 9) != 0 ||
		memcmp(line + size - 2, "\"}", 2) != 0)
		return false;
	return line_hash_parse(p + 9, ret);
}

bool line_has_type(const char *line, size_t size, const char *type)
{
	char tail[80];
	int n = snprintf(tail, sizeof(tail), ",\"type\":\"%s\"", type);

	return n > 0 && (size_t)n < sizeof(tail) && size > HASH_TAIL + (size_t)n &&
	       memcmp(line + size - HASH_TAIL - (size_t)n, tail, (size_t)n) == 0;
}

void line_expected_hash(const unsigned char before[LINE_HASH_SIZE], char *line, size_t size,
	unsigned char ret[LINE_HASH_SIZE])
{
	size_t body = size - HASH_TAIL;
	char kept = line[body];

	line[body] = '}';
	line_hash(before, line, body + 1, ret);
	line[body] = kept;
}

/*
 * It is our own canonical text, and behind "epoch" come only ids, numbers, time and type, so the last "epoch" of the line is the event's own whatever its
 * data hold.
 */
bool line_numbers(const char *line, size_t size, struct line_numbers *ret)
{
	char tail[TAIL_MAX + 1], *epoch = NULL, *at;

	(void)snprintf(tail, sizeof(tail), "%.*s", (int)(size < TAIL_MAX ? size : TAIL_MAX),
		size < TAIL_MAX ? line : line + size - TAIL_MAX);
	for (char *p = tail; (p = strstr(p, ",\"epoch\":")) != NULL; p++)
		epoch = p;
	at = epoch != NULL ? strstr(epoch, ",\"n\":") : NULL;
	if (at == NULL)
		return false;
	*ret = (struct line_numbers){ .n = strtoull(at + 5, &at, 10) };
	if (str_starts(at, ",\"sandbox\":\"") && strlen(at) > 12 + ID_LEN) {
		memcpy(ret->sandbox, at + 12, ID_LEN);
		if (!id_valid(ret->sandbox))
			return false;
	}
	at = strstr(at, ",\"seq\":");
	if (at == NULL)
		return false;
	ret->seq = strtoull(at + 7, NULL, 10);
	return true;
}
