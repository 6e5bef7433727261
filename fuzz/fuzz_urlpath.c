/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/urlpath.h"
#include "fuzz/fuzz.h"

/* What was encoded has nothing left to encode, and loses nothing by being encoded once more. */
static void encodes_once(const char *p, size_t n)
{
	struct buf once = BUF_INIT(SIZE_MAX / 2), twice = BUF_INIT(SIZE_MAX / 2);

	urlpath_encode(p, n, "/", true, &once);
	urlpath_encode(buf_cstr(&once), once.n, "/", true, &twice);
	MUST(once.n == twice.n && memcmp(buf_cstr(&once), buf_cstr(&twice), once.n) == 0);
	MUST(once.n <= 3 * n && urlpath_query_valid(buf_cstr(&once), once.n));
	buf_free(&once);
	buf_free(&twice);
}

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
	encodes_once((const char *)data, size);
	free(out);
	free(again);
	return 0;
}
