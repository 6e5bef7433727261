/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/clienthello.h"
#include "fuzz/fuzz.h"

#include <string.h>

/* The same message in records of one byte each says the same. */
static void split(const uint8_t *data, size_t size, const struct clienthello *whole)
{
	unsigned char *out = xalloc(6 * size + 6);
	struct clienthello again;
	size_t n = 0;

	for (size_t at = 0; at + 5 <= size;) {
		size_t record = (size_t)data[at + 3] << 8 | data[at + 4];

		for (size_t i = 0; i < record && at + 5 + i < size; i++) {
			const unsigned char one[6] = { 22, 3, 1, 0, 1, data[at + 5 + i] };

			memcpy(out + n, one, sizeof(one));
			n += sizeof(one);
		}
		at += 5 + record;
	}
	MUST(clienthello_parse(out, n, &again) == 1);
	MUST(memcmp(&again, whole, sizeof(again)) == 0);
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct clienthello hello, part;
	int rc = clienthello_parse(data, size, &hello), shorter;

	MUST(rc == 1 || rc == 0 || rc == -EBADMSG || rc == -EMSGSIZE);
	if (rc != 1)
		return 0;
	/* it ends where it says: without its last byte it is not complete, and what comes behind it changes nothing */
	shorter = clienthello_parse(data, size - 1, &part);
	MUST(shorter == 0 || (shorter == 1 && memcmp(&part, &hello, sizeof(part)) == 0));
	MUST(strlen(hello.server_name) <= 253 && hello.n_protocols <= CLIENTHELLO_PROTOCOLS);
	for (const char *p = hello.server_name; *p != '\0'; p++)
		MUST((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '-' ||
			*p == '_' || *p == '.');
	split(data, size, &hello);
	return 0;
}
