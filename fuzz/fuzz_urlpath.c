/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/urlpath.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *out = xalloc(size + 1), *again = xalloc(size + 1);
	ssize_t n = urlpath_canonical((const char *)data, size, out), m;

	if (n >= 0) {
		MUST(n > 0 && (size_t)n <= size && out[0] == '/' && strlen(out) == (size_t)n);
		MUST(strstr(out, "//") == NULL && strstr(out, "/../") == NULL &&
			strstr(out, "/./") == NULL);
		MUST(strpbrk(out, "?#\\ ") == NULL);
		m = urlpath_canonical(out, (size_t)n, again);
		MUST(m == n && memcmp(out, again, (size_t)n) == 0);
	}
	(void)urlpath_query_valid((const char *)data, size);
	free(out);
	free(again);
	return 0;
}
