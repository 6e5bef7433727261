/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "codec/httphead.h"
#include "fuzz/fuzz.h"

#include <strings.h>

static bool inside(struct httphead_text t, const char *p, size_t n)
{
	return t.p == NULL ? t.n == 0 : t.p >= p && t.p + t.n <= p + n;
}

static void check_head(const struct httphead *h, const char *p, size_t n)
{
	size_t hosts = 0, lengths = 0;

	MUST(inside(h->method, p, n) && inside(h->path, p, n) && inside(h->query, p, n));
	MUST(h->method.n > 0 && h->path.n > 0 && h->path.p[0] == '/' &&
		h->n_fields <= HTTPHEAD_HEADERS_MAX);
	for (size_t i = 0; i < h->n_fields; i++) {
		const struct httphead_field *f = &h->fields[i];

		MUST(inside(f->name, p, n) && inside(f->value, p, n) && f->name.n > 0);
		MUST(memchr(f->value.p, '\r', f->value.n) == NULL &&
			memchr(f->value.p, '\n', f->value.n) == NULL);
		hosts += f->name.n == 4 && strncasecmp(f->name.p, "host", 4) == 0;
		lengths += f->name.n == 14 && strncasecmp(f->name.p, "content-length", 14) == 0;
	}
	MUST(hosts == 1 && lengths <= 1 && h->has_length == (lengths == 1));
	MUST(!(h->chunked && h->has_length));
}

static void check_decoded(const char *p, size_t n, bool plus)
{
	char out[HTTPHEAD_TARGET_MAX + 1];

	if (httphead_decode(p, n, plus, out, sizeof(out)) == 0) {
		MUST(strlen(out) <= n);
		MUST(str_utf8_valid(out, strlen(out)));
	}
	MUST(n == 0 || httphead_decode(p, n, plus, out, 1) < 0);
}

/* What the strict reader takes the one for proxies takes too, and reads alike. */
static void check_any(const char *p, size_t n, const struct httphead *strict)
{
	static struct httphead any;
	const char *reason = NULL;
	int rc = httphead_parse_any(p, n, &any, &reason);

	MUST(rc == 0 || (reason != NULL && strict == NULL));
	if (rc < 0)
		return;
	MUST(any.method.n > 0 && inside(any.path, p, n) && inside(any.authority, p, n));
	MUST(inside(any.query, p, n) && inside(any.scheme, p, n) && any.minor <= 1);
	MUST(any.form != HTTPHEAD_ORIGIN || any.path.p[0] == '/');
	MUST(!(any.chunked && any.has_length) && !(any.chunked && any.minor == 0));
	MUST(strict == NULL || (any.form == HTTPHEAD_ORIGIN && any.path.n == strict->path.n &&
				       any.n_fields == strict->n_fields));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct httphead h;
	const char *p = (const char *)data, *reason = NULL;
	ssize_t n = httphead_size(p, size);

	check_decoded(p, size < 2000 ? size : 2000, true);
	if (n <= 0)
		return 0;
	MUST((size_t)n <= size && n >= 4 && memcmp(p + n - 4, "\r\n\r\n", 4) == 0);
	if (httphead_parse(p, (size_t)n, &h, &reason) < 0) {
		MUST(reason != NULL);
		check_any(p, (size_t)n, NULL);
		return 0;
	}
	check_any(p, (size_t)n, &h);
	check_head(&h, p, (size_t)n);
	(void)httphead_get(&h, "host");
	(void)httphead_has_word(&h, "connection", "upgrade");
	check_decoded(h.path.p, h.path.n, false);
	return 0;
}
