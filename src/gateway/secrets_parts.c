/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "codec/urlpath.h"
#include "gateway/secrets_internal.h"

#include <strings.h>

#define QUERY_MAX 65536      /* of a query with secrets in it */
#define PART_MAX  (1U << 20) /* of a part of a form, or of a query, with secrets in it */

/* @p percent-decoded as in a query; free(), NULL when it cannot be. */
static char *decoded(const char *p, size_t n)
{
	char *out = xalloc(n + 1);

	if (httphead_decode(p, n, true, out, n + 1) == 0)
		return out;
	free(out);
	return NULL;
}

/* One "name=value" of a query or form, with the secret when it is the one that was named. Return: is it there? */
static bool place_in_part(
	const struct secret *secret, const char *name, struct policy_text part, struct buf *out)
{
	const char *equals = part.n > 0 ? memchr(part.p, '=', part.n) : NULL;
	size_t n = equals != NULL ? (size_t)(equals - part.p) : 0;
	cleanup_free char *key = decoded(part.p, n);
	cleanup_free char *value = equals != NULL ? decoded(equals + 1, part.n - n - 1) : NULL;
	struct buf placed = BUF_INIT(PART_MAX * 2);

	if (key == NULL || value == NULL || !str_eq(key, name) ||
		strstr(value, secret->placeholder) == NULL) {
		buf_add(out, part.p, part.n);
		return false;
	}
	text_exchange(text_of(value), secret->placeholder, secret->value, &placed);
	buf_add(out, part.p, n + 1);
	urlpath_encode(buf_cstr(&placed), placed.n, "", false, out);
	if (placed.n > 0)
		explicit_bzero(placed.p, placed.n);
	buf_free(&placed);
	return true;
}

/* "a=b&c=d" with the secret in the values of @name. Return: is it there? */
static bool place_in_parts(
	const struct secret *secret, const char *name, struct policy_text rest, struct buf *out)
{
	bool found = false;

	for (;;) {
		const char *next = rest.n > 0 ? memchr(rest.p, '&', rest.n) : NULL;
		size_t n = next != NULL ? (size_t)(next - rest.p) : rest.n;

		found |= place_in_part(secret, name, (struct policy_text){ rest.p, n }, out);
		if (next == NULL)
			return found;
		buf_char(out, '&');
		rest = (struct policy_text){ next + 1, rest.n - n - 1 };
	}
}

int secret_place_query(struct exchange *x, const struct secret *secret, const char *name)
{
	struct buf out = BUF_INIT(QUERY_MAX);

	if (!x->request.has_query || x->request.query.n == 0)
		return 0;
	if (place_in_parts(secret, name, x->request.query, &out))
		return secret_keep(x, &out, &x->request.query);
	buf_free(&out);
	return 0;
}

bool secret_is_form(const struct head *rq)
{
	static const char type[] = "application/x-www-form-urlencoded";
	struct policy_text given = head_field(rq, "content-type"),
			   coding = head_field(rq, "content-encoding");
	size_t n = sizeof(type) - 1;

	return (coding.n == 0 || text_is(coding, "identity")) && given.n >= n &&
	       strncasecmp(given.p, type, n) == 0 &&
	       (given.n == n || given.p[n] == ';' || given.p[n] == ' ');
}

/* A form part by part; one that is longer than any secret in its place is left as it is. */
struct form_walk {
	const struct secret *secret;
	const char *name;
	struct buf part;
	bool passes; /* the part is too long: its bytes go through */
	struct held out;
};

static int part_ends(struct form_walk *walk)
{
	struct buf out = BUF_INIT(PART_MAX * 4);
	int rc;

	place_in_part(walk->secret, walk->name,
		(struct policy_text){ buf_cstr(&walk->part), walk->part.n }, &out);
	rc = buf_failed(&out) ? -ENOMEM : held_add(&walk->out, out.p, out.n);
	if (out.n > 0)
		explicit_bzero(out.p, out.n);
	buf_free(&out);
	buf_reset(&walk->part);
	walk->passes = false;
	return rc;
}

static int walk_form(struct form_walk *walk, const char *p, size_t n)
{
	int rc = 0;

	while (rc == 0 && n > 0) {
		const char *end = memchr(p, '&', n);
		size_t part = end != NULL ? (size_t)(end - p) : n;

		if (!walk->passes && walk->part.n + part > PART_MAX) {
			rc = held_add(&walk->out, walk->part.p, walk->part.n);
			buf_reset(&walk->part);
			walk->passes = true;
		}
		if (rc == 0 && walk->passes)
			rc = held_add(&walk->out, p, part);
		else
			buf_add(&walk->part, p, part);
		if (rc == 0 && end != NULL)
			rc = part_ends(walk) < 0 ? -ENOMEM : held_add(&walk->out, "&", 1);
		p += part + (end != NULL);
		n -= part + (end != NULL);
	}
	return rc;
}

int secret_place_form(struct exchange *x, const struct secret *secret, const char *name)
{
	struct form_walk walk = { secret, name, .part = BUF_INIT(PART_MAX) };
	struct held_piece *at = NULL;
	size_t n, done = 0;
	const char *p;
	int rc = 0;

	if (!x->body_whole || x->body.n == 0 || !secret_is_form(&x->request))
		return 0;
	walk.out.reserved = x->body.n;
	while (rc == 0 && (p = held_next(&x->body, &at, &n)) != NULL) {
		rc = walk_form(&walk, p, n);
		exchange_turn(&done, n);
	}
	if (rc == 0)
		rc = part_ends(&walk);
	if (rc == 0)
		exchange_replace_body(x, &walk.out);
	held_free(&walk.out);
	buf_free(&walk.part);
	return rc;
}
