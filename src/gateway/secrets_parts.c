/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
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

/* One "name=value" of a query or form, with the secret when it is the one that was named. Return: is it there; -ENOMEM when it becomes too long. */
static int place_in_part(
	const struct secret *secret, const char *name, struct policy_text part, struct buf *out)
{
	const char *equals = part.n > 0 ? memchr(part.p, '=', part.n) : NULL;
	size_t n = equals != NULL ? (size_t)(equals - part.p) : 0;
	cleanup_free char *key = decoded(part.p, n);
	cleanup_free char *value = equals != NULL ? decoded(equals + 1, part.n - n - 1) : NULL;
	struct buf placed = BUF_INIT(PART_MAX * 2);
	int rc;

	if (key == NULL || value == NULL || !str_eq(key, name) ||
		strstr(value, secret->placeholder) == NULL) {
		buf_add(out, part.p, part.n);
		return buf_failed(out) ? -ENOMEM : 0;
	}
	text_exchange(text_of(value), secret->placeholder, secret->value, &placed);
	buf_add(out, part.p, n + 1);
	urlpath_encode(buf_cstr(&placed), placed.n, "", false, out);
	rc = buf_failed(&placed) || buf_failed(out) ? -ENOMEM : 1;
	if (placed.n > 0)
		explicit_bzero(placed.p, placed.n);
	buf_free(&placed);
	return rc;
}

/* "a=b&c=d" with the secret in the values of @name. Return: as place_in_part(). */
static int place_in_parts(
	const struct secret *secret, const char *name, struct policy_text rest, struct buf *out)
{
	int found = 0;

	for (;;) {
		const char *next = rest.n > 0 ? memchr(rest.p, '&', rest.n) : NULL;
		size_t n = next != NULL ? (size_t)(next - rest.p) : rest.n;

		int rc = place_in_part(secret, name, (struct policy_text){ rest.p, n }, out);

		found = rc != 0 ? rc : found;
		if (next == NULL || rc < 0)
			return found;
		buf_char(out, '&');
		rest = (struct policy_text){ next + 1, rest.n - n - 1 };
	}
}

int secret_place_query(struct exchange *x, const struct secret *secret, const char *name)
{
	struct buf out = BUF_INIT(QUERY_MAX);
	int rc;

	if (!x->request.has_query || x->request.query.n == 0)
		return 0;
	rc = place_in_parts(secret, name, x->request.query, &out);
	if (rc > 0)
		return secret_keep(x, &out, &x->request.query);
	buf_free(&out);
	return rc;
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

/* A form part by part, first to know what it becomes, then to write it; a part that is longer than any secret in its place is left as it is. */
struct form_walk {
	const struct secret *secret;
	const char *name;
	size_t max;
	struct buf part;
	bool passes; /* the part is too long: its bytes go through */
	bool found;  /* the secret belongs somewhere */
	bool writes; /* to @out; else @n only counts */
	size_t n;
	struct held out;
};

static int put(struct form_walk *walk, const char *p, size_t n)
{
	walk->n += n;
	if (walk->n > walk->max)
		return -ENOMEM;
	return walk->writes ? held_add(&walk->out, p, n) : 0;
}

static int part_ends(struct form_walk *walk)
{
	struct buf out = BUF_INIT(PART_MAX * 4);
	int rc = place_in_part(walk->secret, walk->name,
		(struct policy_text){ buf_cstr(&walk->part), walk->part.n }, &out);

	walk->found = walk->found || rc > 0;
	if (rc >= 0)
		rc = put(walk, out.p, out.n);
	if (out.n > 0)
		explicit_bzero(out.p, out.n);
	buf_free(&out);
	buf_reset(&walk->part);
	walk->passes = false;
	return rc;
}

static int walk_piece(struct form_walk *walk, const char *p, size_t n)
{
	int rc = 0;

	while (rc == 0 && n > 0) {
		const char *end = memchr(p, '&', n);
		size_t part = end != NULL ? (size_t)(end - p) : n;

		if (!walk->passes && walk->part.n + part > PART_MAX) {
			rc = put(walk, walk->part.p, walk->part.n);
			buf_reset(&walk->part);
			walk->passes = true;
		}
		if (rc == 0 && walk->passes)
			rc = put(walk, p, part);
		else
			buf_add(&walk->part, p, part);
		if (rc == 0 && end != NULL)
			rc = part_ends(walk) < 0 ? -ENOMEM : put(walk, "&", 1);
		p += part + (end != NULL);
		n -= part + (end != NULL);
	}
	return rc;
}

static int walk_form(struct exchange *x, struct form_walk *walk)
{
	struct held_piece *at = NULL;
	size_t n, done = 0;
	const char *p;
	int rc = 0;

	walk->n = 0;
	while (rc == 0 && (p = held_next(&x->body, &at, &n)) != NULL) {
		rc = walk_piece(walk, p, n);
		exchange_turn(&done, n);
	}
	return rc == 0 ? part_ends(walk) : rc;
}

/* Until what is written takes the place of the body both are there. */
static int rewrite_form(struct exchange *x, struct form_walk *walk)
{
	size_t n = walk->n;
	int rc;

	if (exchange_reserve(x, n) < 0 ||
		room_take(&x->proxy->trees, n, clock_now_ns() + x->proxy->room_ns) < 0)
		return -EBUSY;
	walk->writes = true;
	walk->out.reserved = n;
	rc = walk_form(x, walk);
	if (rc == 0)
		exchange_replace_body(x, &walk->out);
	held_free(&walk->out);
	room_give(&x->proxy->trees, n);
	return rc;
}

int secret_place_form(struct exchange *x, const struct secret *secret, const char *name)
{
	struct form_walk walk = { secret, name, .part = BUF_INIT(PART_MAX) };
	int rc;

	if (!x->body_whole || x->body.n == 0 || !secret_is_form(&x->request))
		return 0;
	walk.max = policy_body_max(x->policy);
	rc = walk_form(x, &walk);
	if (rc == 0 && walk.found)
		rc = rewrite_form(x, &walk);
	buf_free(&walk.part);
	return rc;
}
