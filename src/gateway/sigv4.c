/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/sigv4.h"
#include "base/str.h"
#include "codec/urlpath.h"
#include "gateway/openssl.h"

#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdlib.h>

#define ALGORITHM     "AWS4-HMAC-SHA256"
#define CANONICAL_MAX (256U << 10)

/* ---- text ------------------------------------------------------------------------------------------------------------------- */

static bool begins(struct policy_text t, const char *with)
{
	return t.n >= strlen(with) && memcmp(t.p, with, strlen(with)) == 0;
}

static struct policy_text trimmed(struct policy_text t)
{
	while (t.n > 0 && (t.p[0] == ' ' || t.p[0] == '\t')) {
		t.p++;
		t.n--;
	}
	while (t.n > 0 && (t.p[t.n - 1] == ' ' || t.p[t.n - 1] == '\t'))
		t.n--;
	return t;
}

/* What stands before the next @mark; @rest goes on behind it. Without one: all, and @rest->p becomes NULL. */
static struct policy_text next_of(struct policy_text *rest, char mark)
{
	const char *at = rest->n > 0 ? memchr(rest->p, mark, rest->n) : NULL;
	struct policy_text part = { rest->p, at != NULL ? (size_t)(at - rest->p) : rest->n };

	*rest = at != NULL ? (struct policy_text){ at + 1, rest->n - part.n - 1 }
			   : (struct policy_text){ 0 };
	return part;
}

/* ---- finding it ------------------------------------------------------------------------------------------------------------- */

static bool is_signature(struct policy_text t)
{
	for (size_t i = 0; i < t.n; i++)
		if (str_hex_digit(t.p[i]) < 0)
			return false;
	return t.n == SIGV4_HEX;
}

/* "ID/date/region/service/aws4_request" */
static bool take_credential(struct policy_text credential, struct sigv4 *s)
{
	struct policy_text rest = credential;

	s->key_id = next_of(&rest, '/');
	s->scope = rest;
	s->date = next_of(&rest, '/');
	s->region = next_of(&rest, '/');
	s->service = next_of(&rest, '/');
	return s->key_id.n > 0 && s->date.n == 8 && s->region.n > 0 && s->service.n > 0 &&
	       text_is(rest, "aws4_request");
}

/* "AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…" */
static bool in_field(const struct head *rq, struct policy_text value, struct sigv4 *s)
{
	struct policy_text rest = { value.p + strlen(ALGORITHM), value.n - strlen(ALGORITHM) };
	bool credential = false;

	while (rest.p != NULL) {
		struct policy_text part = trimmed(next_of(&rest, ',')), name = next_of(&part, '=');

		if (text_is(name, "Credential"))
			credential = take_credential(part, s);
		else if (text_is(name, "SignedHeaders"))
			s->names = part;
		else if (text_is(name, "Signature"))
			s->signature = part;
	}
	s->time = head_field(rq, "x-amz-date");
	s->payload = head_field(rq, "x-amz-content-sha256");
	return credential;
}

/* A value of the query, decoded; empty when it cannot be. */
static struct policy_text plain(struct policy_text value, struct arena *arena)
{
	char *out = arena_alloc(arena, value.n + 1);

	if (out == NULL || httphead_decode(value.p, value.n, false, out, value.n + 1) < 0)
		return (struct policy_text){ 0 };
	return text_of(out);
}

/* "…&X-Amz-Credential=…&X-Amz-Signature=…": names are never escaped. */
static bool in_query(const struct head *rq, struct arena *arena, struct sigv4 *s)
{
	struct policy_text rest = rq->query;
	bool credential = false;

	while (rest.p != NULL) {
		struct policy_text part = next_of(&rest, '&'), name = next_of(&part, '=');

		if (text_is(name, "X-Amz-Credential"))
			credential = take_credential(plain(part, arena), s);
		else if (text_is(name, "X-Amz-SignedHeaders"))
			s->names = plain(part, arena);
		else if (text_is(name, "X-Amz-Date"))
			s->time = plain(part, arena);
		else if (text_is(name, "X-Amz-Content-Sha256"))
			s->payload = plain(part, arena);
		else if (text_is(name, "X-Amz-Signature"))
			s->signature = part;
	}
	s->in_query = true;
	if (s->payload.n == 0)
		s->payload = head_field(rq, "x-amz-content-sha256");
	if (s->payload.n == 0 && text_is(s->service, "s3"))
		s->payload = text_of("UNSIGNED-PAYLOAD");
	return credential;
}

/* Is there a query that says which algorithm it is signed with? @ret: which. */
static bool signed_query(const struct head *rq, struct policy_text *ret)
{
	struct policy_text rest = rq->has_query ? rq->query : (struct policy_text){ 0 };

	while (rest.p != NULL) {
		struct policy_text part = next_of(&rest, '&');

		if (text_is(next_of(&part, '='), "X-Amz-Algorithm")) {
			*ret = part;
			return true;
		}
	}
	return false;
}

int sigv4_find(const struct head *rq, struct arena *arena, struct sigv4 *ret, const char **ret_why)
{
	struct policy_text given = head_field(rq, "authorization"), rest = given, algorithm;
	bool well;

	*ret = (struct sigv4){ 0 };
	if (begins(given, "AWS4-")) {
		algorithm = next_of(&rest, ' ');
		well = text_is(algorithm, ALGORITHM) && in_field(rq, given, ret);
	} else if (signed_query(rq, &algorithm)) {
		well = text_is(algorithm, ALGORITHM) && in_query(rq, arena, ret);
	} else {
		return -ENOENT;
	}
	if (!text_is(algorithm, ALGORITHM))
		*ret_why = "its algorithm is not " ALGORITHM;
	else if (!well || ret->names.n == 0 || ret->time.n == 0 || !is_signature(ret->signature))
		*ret_why = "its signature is malformed, or x-amz-date is missing";
	else if (begins(ret->payload, "STREAMING-AWS4-"))
		*ret_why = "its body is signed chunk by chunk";
	else
		return 0;
	return -EINVAL;
}

bool sigv4_wants_body(const struct head *rq, struct arena *arena)
{
	struct sigv4 s;
	const char *why;

	return sigv4_find(rq, arena, &s, &why) == 0 && s.payload.n == 0;
}

/* ---- the canonical request -------------------------------------------------------------------------------------------------- */

/* S3 takes the path as it is, all others escape what is sent once more. */
static void add_path(const struct head *rq, const struct sigv4 *s, struct buf *out)
{
	bool once = begins(s->service, "s3");

	urlpath_encode(rq->path.p, rq->path.n, "/", once, out);
	buf_char(out, '\n');
}

/* A parameter in escaped form: where in the text its name and its value are. */
struct parameter {
	size_t at, name_n, value_n;
};

static int by_name_and_value(const void *left, const void *right, void *text)
{
	const struct parameter *a = left, *b = right;
	const char *p = text;
	int order = memcmp(p + a->at, p + b->at, a->name_n < b->name_n ? a->name_n : b->name_n);

	if (order == 0 && a->name_n != b->name_n)
		return a->name_n < b->name_n ? -1 : 1;
	if (order == 0)
		order = memcmp(p + a->at + a->name_n, p + b->at + b->name_n,
			a->value_n < b->value_n ? a->value_n : b->value_n);
	if (order == 0 && a->value_n != b->value_n)
		return a->value_n < b->value_n ? -1 : 1;
	return order;
}

static size_t parameters(const struct head *rq, struct buf *text, struct parameter *list)
{
	struct policy_text rest = rq->query;
	size_t n = 0;

	while (rest.p != NULL) {
		struct policy_text value = next_of(&rest, '&'), name = next_of(&value, '=');
		struct parameter *one = &list[n];

		if (name.n == 0 || text_is(name, "X-Amz-Signature"))
			continue;
		one->at = text->n;
		urlpath_encode(name.p, name.n, "", true, text);
		one->name_n = text->n - one->at;
		urlpath_encode(value.p, value.n, "", true, text);
		one->value_n = text->n - one->at - one->name_n;
		n++;
	}
	return n;
}

static int add_query(const struct head *rq, struct buf *out)
{
	cleanup_buf struct buf text = BUF_INIT(CANONICAL_MAX);
	struct parameter *list;
	size_t n = 1;

	for (size_t i = 0; rq->has_query && i < rq->query.n; i++)
		n += rq->query.p[i] == '&';
	list = xalloc(n * sizeof(*list));
	n = rq->has_query ? parameters(rq, &text, list) : 0;
	if (buf_failed(&text))
		n = 0;
	qsort_r(list, n, sizeof(*list), by_name_and_value, text.p);
	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			buf_char(out, '&');
		buf_add(out, text.p + list[i].at, list[i].name_n);
		buf_char(out, '=');
		buf_add(out, text.p + list[i].at + list[i].name_n, list[i].value_n);
	}
	free(list);
	buf_char(out, '\n');
	return buf_failed(&text) ? -ENOMEM : 0;
}

/* Without spaces around it, and one where there were several. */
static void add_value(struct policy_text value, struct buf *out)
{
	value = trimmed(value);
	for (size_t i = 0; i < value.n; i++)
		if (value.p[i] != ' ' || value.p[i - 1] != ' ')
			buf_char(out, value.p[i]);
}

/* Return: was there such a field? Host and length are no fields of a head. */
static bool add_values(const struct head *rq, struct policy_text name, struct buf *out)
{
	bool found = false;

	if (text_is(name, "host")) {
		buf_add(out, rq->authority.p, rq->authority.n);
		return true;
	}
	if (text_is(name, "content-length") && rq->has_length) {
		buf_fmt(out, "%ju", (uintmax_t)rq->length);
		return true;
	}
	for (size_t i = 0; i < rq->n_fields; i++) {
		const struct policy_field *f = &rq->fields[i];

		if (f->name.n != name.n || memcmp(f->name.p, name.p, name.n) != 0)
			continue;
		if (found)
			buf_char(out, ',');
		add_value(f->value, out);
		found = true;
	}
	return found;
}

static int add_fields(const struct head *rq, struct policy_text names, struct buf *out)
{
	struct policy_text rest = names;

	while (rest.p != NULL) {
		struct policy_text name = next_of(&rest, ';');

		buf_add(out, name.p, name.n);
		buf_char(out, ':');
		if (!add_values(rq, name, out))
			return -ENOENT;
		buf_char(out, '\n');
	}
	buf_char(out, '\n');
	buf_add(out, names.p, names.n);
	buf_char(out, '\n');
	return 0;
}

static void add_hash(const void *p, size_t n, struct buf *out)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];

	SHA256(p, n, digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		buf_fmt(out, "%02x", digest[i]);
}

/* ---- the signature ---------------------------------------------------------------------------------------------------------- */

static void mac(unsigned char key[SHA256_DIGEST_LENGTH], struct policy_text text)
{
	unsigned char out[SHA256_DIGEST_LENGTH];

	if (HMAC(EVP_sha256(), key, SHA256_DIGEST_LENGTH, (const unsigned char *)text.p, text.n,
		    out, NULL) == NULL)
		abort();
	memcpy(key, out, sizeof(out));
	explicit_bzero(out, sizeof(out));
}

static void sign(
	const struct sigv4 *s, const char *secret, const struct buf *text, char ret[SIGV4_HEX + 1])
{
	unsigned char key[SHA256_DIGEST_LENGTH];
	struct buf first = BUF_INIT(SIZE_MAX / 2);

	buf_fmt(&first, "AWS4%s", secret);
	if (HMAC(EVP_sha256(), buf_cstr(&first), (int)first.n, (const unsigned char *)s->date.p,
		    s->date.n, key, NULL) == NULL)
		abort();
	explicit_bzero(first.p, first.n);
	buf_free(&first);
	mac(key, s->region);
	mac(key, s->service);
	mac(key, text_of("aws4_request"));
	mac(key, (struct policy_text){ text->p, text->n });
	str_hex(ret, key, sizeof(key));
	explicit_bzero(key, sizeof(key));
}

int sigv4_make(const struct head *rq, const struct sigv4 *s, const char *body_hash,
	const char *secret, char ret[SIGV4_HEX + 1])
{
	cleanup_buf struct buf request = BUF_INIT(CANONICAL_MAX), text = BUF_INIT(CANONICAL_MAX);
	int rc;

	buf_add(&request, rq->method.p, rq->method.n);
	buf_char(&request, '\n');
	add_path(rq, s, &request);
	rc = add_query(rq, &request);
	if (rc == 0)
		rc = add_fields(rq, s->names, &request);
	if (rc < 0)
		return rc;
	if (s->payload.n > 0)
		buf_add(&request, s->payload.p, s->payload.n);
	else
		buf_str(&request, body_hash);
	if (buf_failed(&request))
		return -ENOMEM;
	buf_fmt(&text, ALGORITHM "\n%.*s\n%.*s\n", (int)s->time.n, s->time.p, (int)s->scope.n,
		s->scope.p);
	add_hash(request.p, request.n, &text);
	if (buf_failed(&text))
		return -ENOMEM;
	sign(s, secret, &text, ret);
	return 0;
}
