/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/base64.h"
#include "fuzz/fuzz.h"

#include <string.h>

/* What is written is read again; what is read is what would have been written. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_buf struct buf bytes = BUF_INIT(1U << 20), again = BUF_INIT(1U << 20);
	cleanup_free char *text = base64_encode(data, size), *other = NULL;

	MUST(base64_decode(text, strlen(text), &bytes) == 0);
	MUST(bytes.n == size && (size == 0 || memcmp(bytes.p, data, size) == 0));
	if (base64_decode((const char *)data, size, &again) < 0)
		return 0;
	other = base64_encode(again.p, again.n);
	MUST(strlen(other) == size && (size == 0 || memcmp(other, data, size) == 0));
	return 0;
}
