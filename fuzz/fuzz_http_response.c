/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/http_response.h"
#include "fuzz/fuzz.h"

/* Reads the body in pieces of @step bytes; the bytes that it was made of must be the same whatever the step. */
static size_t read_body(
	const struct http_response *r, const char *p, size_t n, size_t step, bool *ret_bad)
{
	struct http_body_reader b;
	struct buf trailers = BUF_INIT(HTTP_TRAILERS_MAX + 2);
	size_t used = 0, total = 0;

	http_body_begin_as(&b, r->body, r->length, &trailers);
	*ret_bad = false;
	while (!b.done && used < n) {
		const char *piece;
		size_t size, give = n - used < step ? n - used : step;
		ssize_t k = http_body_next(&b, p + used, give, &piece, &size);

		if (k < 0) {
			*ret_bad = true;
			break;
		}
		MUST(k > 0 && (size_t)k <= give);
		MUST(size <= (size_t)k &&
			(size == 0 || (piece >= p + used && piece + size <= p + used + k)));
		used += (size_t)k;
		total += size;
	}
	MUST(trailers.n <= HTTP_TRAILERS_MAX + 2);
	if (b.done && trailers.n > 0)
		MUST(trailers.p[trailers.n - 1] == '\n');
	buf_free(&trailers);
	return total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data;
	struct http_response r;
	ssize_t n = http_response_parse(p, size, &r);
	bool bad, bad_bytewise;
	size_t value_n, total;

	if (n <= 0)
		return 0;
	MUST((size_t)n <= size && r.status >= 100 && r.status <= 999);
	(void)http_response_header(&r, "content-length", &value_n);
	total = read_body(&r, p + n, size - (size_t)n, size + 1, &bad);
	MUST(read_body(&r, p + n, size - (size_t)n, 1, &bad_bytewise) == total);
	MUST(bad == bad_bytewise);
	return 0;
}
