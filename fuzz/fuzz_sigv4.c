/* SPDX-License-Identifier: Apache-2.0 */
/* A request in lines: path, query, authorization, x-amz-date, x-amz-content-sha256; the rest is its body. */
#include "fuzz/fuzz.h"
#include "gateway/sigv4.h"

static struct policy_text line(struct policy_text *rest)
{
	const char *end = rest->n > 0 ? memchr(rest->p, '\n', rest->n) : NULL;
	struct policy_text one = { rest->p, end != NULL ? (size_t)(end - rest->p) : rest->n };

	rest->p += one.n + (end != NULL);
	rest->n -= one.n + (end != NULL);
	return one;
}

static bool within(struct policy_text part, struct policy_text whole)
{
	return part.p >= whole.p && part.p + part.n <= whole.p + whole.n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = { "authorization", "x-amz-date",
		"x-amz-content-sha256" };
	char *copy = xalloc(size + 1), first[SIGV4_HEX + 1], again[SIGV4_HEX + 1];
	struct policy_text rest = { memcpy(copy, data, size), size };
	struct arena arena = ARENA_INIT(1U << 20);
	struct head rq = { .method = text_of("GET"), .authority = text_of("a.example") };
	const char *why = NULL;
	struct sigv4 s;
	int rc;

	rq.path = line(&rest);
	rq.query = line(&rest);
	rq.has_query = true;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct policy_text value = line(&rest);

		if (value.n > 0)
			MUST(head_add(&rq, names[i], value) == 0);
	}
	rc = sigv4_find(&rq, &arena, &s, &why);
	MUST(rc == 0 || rc == -ENOENT || (rc == -EINVAL && why != NULL));
	(void)sigv4_wants_body(&rq, &arena);
	if (rc == 0) {
		MUST(s.signature.n == SIGV4_HEX && s.key_id.n > 0);
		MUST(within(s.signature, s.in_query ? rq.query : head_field(&rq, "authorization")));
		rc = sigv4_make(&rq, &s, "00", "secret", first);
		MUST(rc == 0 || rc == -ENOENT || rc == -ENOMEM);
		if (rc == 0) {
			MUST(sigv4_make(&rq, &s, "00", "secret", again) == 0);
			MUST(strlen(first) == SIGV4_HEX && strcmp(first, again) == 0);
		}
	}
	arena_free(&arena);
	free(copy);
	return 0;
}
