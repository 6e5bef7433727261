/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/secrets.h"
#include "base/str.h"
#include "codec/jsontext.h"
#include "codec/urlpath.h"
#include "gateway/exchange.h"
#include "gateway/stage.h"
#include "policy/pattern.h"

#include <strings.h>

#define QUERY_MAX 65536      /* of a query with secrets in it */
#define PART_MAX  (1U << 20) /* of a part of a form, or of a query, with secrets in it */

struct secret {
	char *value, *placeholder;
	char *mask; /* what stands for the value in answers and events: the placeholder, or something of the value's own shape when that has changed */
	const struct policy_secret *binding;
};

struct secrets {
	unsigned int refs;
	struct policy *policy; /* a reference: bindings point into it */
	struct secret *list;
	size_t n;
	struct scrub_set *hide; /* values -> masks */
	struct scrub_set *find; /* placeholders */
};

/* ---- the set ---------------------------------------------------------------------------------------------------------------- */

static char *masked(const char *text)
{
	unsigned char random[SCRUB_SECRET_MAX];

	(void)!RAND_bytes(random, sizeof(random));
	return scrub_placeholder(text, random);
}

static bool same_shape(const char *a, const char *b)
{
	struct scrub_pair pair = { a, b };
	struct scrub_set *set = scrub_set_new(&pair, 1);

	scrub_set_free(set);
	return set != NULL;
}

static int take(struct secrets *s, const struct policy_secret *binding, const json_t *value,
	struct err *err)
{
	const char *v = json_string_value(json_object_get(value, "value"));
	const char *p = json_string_value(json_object_get(value, "placeholder"));
	struct secret *secret = &s->list[s->n];

	if (v == NULL || p == NULL || !scrub_secret_valid(v) || !scrub_secret_valid(p))
		return err_raise(err, ERR_INVALID, "secret '%s' has no usable value or placeholder",
			binding->name);
	*secret = (struct secret){ str_dup(v), str_dup(p), NULL, binding };
	secret->mask = same_shape(v, p) ? str_dup(p) : masked(v);
	s->n++;
	return 0;
}

static struct scrub_set *compile(const struct secrets *s, bool hide)
{
	struct scrub_pair *pairs = xalloc((s->n + 1) * sizeof(*pairs));
	struct scrub_set *set;

	for (size_t i = 0; i < s->n; i++) {
		const struct secret *one = &s->list[i];

		pairs[i] = hide ? (struct scrub_pair){ one->value, one->mask }
				: (struct scrub_pair){ one->placeholder, one->placeholder };
	}
	set = scrub_set_new(pairs, s->n);
	free(pairs);
	return set;
}

struct secrets *secrets_new(struct policy *policy, const json_t *values, struct err *err)
{
	struct secrets *s = xnew(struct secrets);
	size_t n_bound, i;
	const struct policy_secret *bound = policy_secrets(policy, &n_bound);
	const json_t *value;
	int rc = 0;

	s->refs = 1;
	s->policy = policy_ref(policy);
	s->list = xalloc((n_bound + 1) * sizeof(*s->list));
	for (size_t k = 0; k < n_bound && rc == 0; k++) {
		json_array_foreach ((json_t *)(uintptr_t)values, i, value) {
			const char *name = json_string_value(json_object_get(value, "name"));

			if (name != NULL && str_eq(name, bound[k].name)) {
				rc = take(s, &bound[k], value, err);
				break;
			}
		}
	}
	if (rc == 0) {
		s->hide = compile(s, true);
		s->find = compile(s, false);
	}
	if (rc == 0 && (s->hide == NULL || s->find == NULL))
		rc = err_raise(err, ERR_INVALID, "more than %d secrets", SCRUB_PAIRS_MAX);
	if (rc == 0)
		return s;
	secrets_unref(s);
	return NULL;
}

struct secrets *secrets_ref(struct secrets *s)
{
	if (s != NULL)
		s->refs++;
	return s;
}

void secrets_unref(struct secrets *s)
{
	if (s == NULL || --s->refs > 0)
		return;
	for (size_t i = 0; i < s->n; i++) {
		explicit_bzero(s->list[i].value, strlen(s->list[i].value));
		free(s->list[i].value);
		free(s->list[i].placeholder);
		free(s->list[i].mask);
	}
	scrub_set_free(s->hide);
	scrub_set_free(s->find);
	free(s->list);
	policy_unref(s->policy);
	free(s);
}

/* A secret goes to its hosts, and only where the host's certificate was checked. */
static bool goes_to(const struct secret *secret, const struct exchange *x)
{
	return x->conn->tls && policy_secret_bound(secret->binding, x->host.host);
}

bool secrets_scrubs(const struct exchange *x)
{
	const struct secrets *s = x->secrets;

	for (size_t i = 0; s != NULL && i < s->n; i++)
		if (goes_to(&s->list[i], x))
			return true;
	return false;
}

/* ---- putting in ------------------------------------------------------------------------------------------------------------- */

static bool holds(struct policy_text text, const char *word)
{
	return text.n > 0 && memmem(text.p, text.n, word, strlen(word)) != NULL;
}

/* @text with every @from as @to, appended to @out. */
static void exchange_words(
	struct policy_text text, const char *from, const char *to, struct buf *out)
{
	const char *at;

	while ((at = text.n > 0 ? memmem(text.p, text.n, from, strlen(from)) : NULL) != NULL) {
		buf_add(out, text.p, (size_t)(at - text.p));
		buf_str(out, to);
		text.n -= (size_t)(at - text.p) + strlen(from);
		text.p = at + strlen(from);
	}
	buf_add(out, text.p, text.n);
}

/* The bytes of @out as text of the exchange; @out is overwritten and freed. */
static int keep(struct exchange *x, struct buf *out, struct policy_text *ret)
{
	char *copy = buf_failed(out) ? NULL : arena_copy(&x->arena, buf_cstr(out), out->n);

	*ret = (struct policy_text){ copy, out->n };
	if (out->n > 0)
		explicit_bzero(out->p, out->n);
	buf_free(out);
	return copy != NULL ? 0 : -ENOMEM;
}

/* "Basic dXNlcjpwYXNz": the words are in what is encoded (RFC 7617). */
static int place_basic(struct exchange *x, const struct secret *secret, struct policy_field *field)
{
	unsigned char plain[HTTPHEAD_BYTES_MAX], encoded[HTTPHEAD_BYTES_MAX * 2];
	struct policy_text value = { field->value.p + 6, field->value.n - 6 };
	struct buf out = BUF_INIT(HTTPHEAD_BYTES_MAX), line = BUF_INIT(HTTPHEAD_BYTES_MAX * 2);
	int n = -1;

	while (value.n > 0 && *value.p == ' ') {
		value.p++;
		value.n--;
	}
	if (value.n % 4 == 0 && value.n / 4 * 3 <= sizeof(plain))
		n = EVP_DecodeBlock(plain, (const unsigned char *)value.p, (int)value.n);
	if (n <= 0)
		return 0;
	for (size_t i = value.n; i > 0 && value.p[i - 1] == '='; i--)
		n--; /* padding is decoded to zeros */
	if (!holds((struct policy_text){ (char *)plain, (size_t)n }, secret->placeholder))
		return 0;
	exchange_words((struct policy_text){ (char *)plain, (size_t)n }, secret->placeholder,
		secret->value, &out);
	buf_str(&line, "Basic ");
	if (!buf_failed(&out)) {
		n = EVP_EncodeBlock(encoded, (const unsigned char *)out.p, (int)out.n);
		buf_add(&line, encoded, (size_t)n);
		explicit_bzero(out.p, out.n);
	}
	explicit_bzero(encoded, sizeof(encoded));
	buf_free(&out);
	return keep(x, &line, &field->value);
}

static int place_header(struct exchange *x, const struct secret *secret, const char *name)
{
	int rc = 0;

	for (size_t i = 0; i < x->request.n_fields && rc == 0; i++) {
		struct policy_field *f = &x->request.fields[i];
		struct buf out = BUF_INIT(HTTPHEAD_BYTES_MAX);

		if (f->name.n != strlen(name) || strncasecmp(f->name.p, name, f->name.n) != 0)
			continue;
		if (holds(f->value, secret->placeholder)) {
			exchange_words(f->value, secret->placeholder, secret->value, &out);
			rc = keep(x, &out, &f->value);
		} else if (f->value.n > 6 && strncasecmp(f->value.p, "basic ", 6) == 0) {
			rc = place_basic(x, secret, f);
		}
	}
	return rc;
}

/* @p percent-decoded as in a query; free(), NULL when it cannot be. */
static char *decoded(const char *p, size_t n)
{
	char *out = xalloc(n + 1);

	if (httphead_decode(p, n, true, out, n + 1) == 0)
		return out;
	free(out);
	return NULL;
}

/* One "name=value" of a query or form, with the secret when it is the one that was named. */
static void place_in_part(
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
		return;
	}
	exchange_words(text_of(value), secret->placeholder, secret->value, &placed);
	buf_add(out, part.p, n + 1);
	urlpath_encode(buf_cstr(&placed), placed.n, "", false, out);
	if (placed.n > 0)
		explicit_bzero(placed.p, placed.n);
	buf_free(&placed);
}

/* "a=b&c=d" with the secret in the values of @name. */
static void place_in_parts(
	const struct secret *secret, const char *name, struct policy_text rest, struct buf *out)
{
	for (;;) {
		const char *next = rest.n > 0 ? memchr(rest.p, '&', rest.n) : NULL;
		size_t n = next != NULL ? (size_t)(next - rest.p) : rest.n;

		place_in_part(secret, name, (struct policy_text){ rest.p, n }, out);
		if (next == NULL)
			return;
		buf_char(out, '&');
		rest = (struct policy_text){ next + 1, rest.n - n - 1 };
	}
}

static int place_query(struct exchange *x, const struct secret *secret, const char *name)
{
	struct buf out = BUF_INIT(QUERY_MAX);

	if (!x->request.has_query || x->request.query.n == 0)
		return 0;
	place_in_parts(secret, name, x->request.query, &out);
	return keep(x, &out, &x->request.query);
}

static bool is_form(const struct head *rq)
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

static int place_form(struct exchange *x, const struct secret *secret, const char *name)
{
	struct form_walk walk = { secret, name, .part = BUF_INIT(PART_MAX) };
	struct held_piece *at = NULL;
	size_t n, done = 0;
	const char *p;
	int rc = 0;

	if (!x->body_whole || x->body.n == 0 || !is_form(&x->request))
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

struct body_place {
	const struct secret *secret;
	bool changed;
};

static bool place_in_value(const json_t *value, void *ctx)
{
	struct body_place *place = ctx;
	struct policy_text text = { json_string_value(value), json_string_length(value) };
	struct buf out = BUF_INIT(POLICY_BODY_TOP);

	if (!json_is_string(value) || !holds(text, place->secret->placeholder))
		return true;
	exchange_words(text, place->secret->placeholder, place->secret->value, &out);
	if (!buf_failed(&out))
		place->changed = json_string_setn((json_t *)(uintptr_t)value, out.p, out.n) == 0;
	if (out.n > 0)
		explicit_bzero(out.p, out.n);
	buf_free(&out);
	return true;
}

static int place_body(struct exchange *x, const struct secret *secret, const char *pointer)
{
	struct body_place place = { secret, false };

	if (x->json == NULL)
		return 0;
	(void)pointer_walk(x->json, pointer, place_in_value, &place);
	return !place.changed || exchange_restate_body(x) ? 0 : -ENOMEM;
}

static int place_secret(struct exchange *x, const struct secret *secret)
{
	int rc = 0;

	for (size_t i = 0; i < secret->binding->n_places && rc == 0; i++) {
		const struct policy_place *place = &secret->binding->places[i];

		switch (place->surface) {
		case POLICY_IN_HEADER:
			rc = place_header(x, secret, place->name);
			break;
		case POLICY_IN_QUERY:
			rc = place_query(x, secret, place->name);
			break;
		case POLICY_IN_BODY:
			rc = place_body(x, secret, place->name);
			break;
		case POLICY_IN_FORM:
			rc = place_form(x, secret, place->name);
			break;
		case POLICY_IN_SIGV4: /* when all else is in place: sign_anew() */
			break;
		}
	}
	return rc;
}

/* Uploads of files, which no place is in. */
static bool is_multipart(const struct head *rq)
{
	static const char type[] = "multipart/";
	struct policy_text given = head_field(rq, "content-type");

	return given.n >= sizeof(type) - 1 && strncasecmp(given.p, type, sizeof(type) - 1) == 0;
}

static bool is_json_place(attr_unused struct exchange *x, const struct policy_place *place)
{
	return place->surface == POLICY_IN_BODY;
}

static bool may_hold(struct exchange *x, const struct policy_place *place)
{
	return (place->surface == POLICY_IN_BODY && !is_multipart(&x->request)) ||
	       (place->surface == POLICY_IN_FORM && is_form(&x->request)) ||
	       (place->surface == POLICY_IN_SIGV4 && sigv4_wants_body(&x->request, &x->arena));
}

/* Is there a place for a secret that @asked says yes to? */
static bool any_place(
	struct exchange *x, bool (*asked)(struct exchange *x, const struct policy_place *place))
{
	const struct secrets *s = x->secrets;

	for (size_t i = 0; s != NULL && i < s->n; i++) {
		const struct policy_secret *binding = s->list[i].binding;

		for (size_t k = 0; goes_to(&s->list[i], x) && k < binding->n_places; k++)
			if (asked(x, &binding->places[k]))
				return true;
	}
	return false;
}

bool secrets_want_body(struct exchange *x)
{
	return any_place(x, may_hold);
}

/* ---- placeholders where they do not belong ---------------------------------------------------------------------------------- */

/* Is a placeholder let through there, as it is? */
static bool passes(const struct exchange *x, const char *where)
{
	return x->rule != NULL && x->rule->passes_placeholders && str_eq(where, "body");
}

/* @field: the header's name, if it is in one. */
static int misplaced(struct exchange *x, const struct secret *secret, const char *where,
	struct policy_text field)
{
	bool passed = passes(x, where);
	struct buf data = BUF_INIT(PROXY_EVENT_MAX);

	jsontext_open(&data, '{');
	jsontext_member_string(&data, "name", secret->binding->name);
	jsontext_member_string(&data, "host", x->host.host);
	jsontext_member_string(&data, "where", where);
	jsontext_member_integer(&data, "exchange", (int64_t)x->number);
	jsontext_member_bool(&data, "passed", passed);
	jsontext_close(&data, '}');
	x->proxy->hooks.event(x->proxy->hooks.ctx, x->conn, "secret.misplaced", &data);
	buf_free(&data);
	if (passed)
		return 0;
	if (field.n > 0)
		exchange_because(x, "denied",
			"the placeholder of secret '%s' may not go into the header '%.*s' of a request to %s",
			secret->binding->name, field.n < 64 ? (int)field.n : 64, field.p,
			x->host.host);
	else
		exchange_because(x, "denied",
			"the placeholder of secret '%s' may not go into the %s of a request to %s%s",
			secret->binding->name, where, x->host.host,
			str_eq(where, "body")
				? " (a rule with placeholders: pass lets it, as it is)"
				: "");
	return -EACCES;
}

static int check_found(
	struct exchange *x, const struct scrub *search, const char *where, struct policy_text field)
{
	int rc = 0;

	for (size_t i = 0; i < x->secrets->n && rc == 0; i++)
		if (scrub_found(search, i) > 0)
			rc = misplaced(x, &x->secrets->list[i], where, field);
	return rc;
}

static int check_text(
	struct exchange *x, struct policy_text text, const char *where, struct policy_text field)
{
	struct scrub *search = scrub_new(x->secrets->find);
	struct buf out = BUF_INIT(SIZE_MAX / 2);
	int rc;

	scrub_write(search, text.p, text.n, &out);
	scrub_end(search, &out);
	rc = check_found(x, search, where, field);
	buf_free(&out);
	scrub_free(search);
	return rc;
}

static int check_body(struct exchange *x)
{
	struct scrub *search = scrub_new(x->secrets->find);
	struct buf out = BUF_INIT(SIZE_MAX / 2);
	struct held_piece *at = NULL;
	size_t n, done = 0;
	const char *p;
	int rc;

	while ((p = held_next(&x->body, &at, &n)) != NULL) {
		scrub_write(search, p, n, &out);
		buf_reset(&out);
		exchange_turn(&done, n);
	}
	scrub_end(search, &out);
	rc = check_found(x, search, "body", (struct policy_text){ 0 });
	buf_free(&out);
	scrub_free(search);
	return rc;
}

int secrets_check_fields(struct exchange *x, const struct policy_field *fields, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0 && x->secrets != NULL && x->secrets->n > 0; i++) {
		rc = check_text(x, fields[i].name, "headers", (struct policy_text){ 0 });
		if (rc == 0)
			rc = check_text(x, fields[i].value, "headers", fields[i].name);
	}
	return rc;
}

static int check_request(struct exchange *x)
{
	const struct head *rq = &x->request;
	const struct policy_text no_field = { 0 };
	int rc = check_text(x, rq->path, "path", no_field);

	if (rc == 0 && rq->has_query)
		rc = check_text(x, rq->query, "query", no_field);
	if (rc == 0)
		rc = secrets_check_fields(x, rq->fields, rq->n_fields);
	if (rc == 0 && x->body.n > 0)
		rc = check_body(x);
	return rc;
}

/* ---- signatures ------------------------------------------------------------------------------------------------------------- */

static bool signs(const struct secret *secret, struct policy_text key_id)
{
	for (size_t i = 0; i < secret->binding->n_places; i++) {
		const struct policy_place *place = &secret->binding->places[i];

		if (place->surface == POLICY_IN_SIGV4 &&
			(str_eq(place->name, "*") || text_is(key_id, place->name)))
			return true;
	}
	return false;
}

/* The secret that a request to this host with the key's id @key_id is signed with. */
static const struct secret *signing_secret(const struct exchange *x, struct policy_text key_id)
{
	for (size_t i = 0; i < x->secrets->n; i++) {
		const struct secret *secret = &x->secrets->list[i];

		if (goes_to(secret, x) && signs(secret, key_id))
			return secret;
	}
	return NULL;
}

/* The field or query that holds the signature, with @made in its place; the sandbox's own is kept for whom the exchange is told. */
static int replace_signature(struct exchange *x, const struct sigv4 *s, const char *made)
{
	struct policy_text *holder = &x->request.query;
	char *copy;

	for (size_t i = 0; !s->in_query && i < x->request.n_fields; i++)
		if (text_is(x->request.fields[i].name, "authorization"))
			holder = &x->request.fields[i].value;
	copy = arena_copy(&x->arena, holder->p, holder->n);
	if (copy == NULL)
		return -ENOMEM;
	x->signature = copy + (s->signature.p - holder->p);
	memcpy(x->signature_was, x->signature, SIGV4_HEX);
	memcpy(x->signature, made, SIGV4_HEX);
	holder->p = copy;
	return 0;
}

static int cannot_sign(struct exchange *x, const struct secret *secret, const char *why)
{
	exchange_because(x, "denied", "the request cannot be signed with secret '%s': %s",
		secret->binding->name, why);
	return -EACCES;
}

static int hash_body(struct exchange *x, char ret[SIGV4_HEX + 1])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned char digest[SIGV4_HEX / 2];
	struct held_piece *at = NULL;
	size_t n, done = 0;
	const char *p;
	bool ok = ctx != NULL && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1;

	while (ok && (p = held_next(&x->body, &at, &n)) != NULL) {
		ok = EVP_DigestUpdate(ctx, p, n) == 1;
		exchange_turn(&done, n);
	}
	ok = ok && EVP_DigestFinal_ex(ctx, digest, NULL) == 1;
	EVP_MD_CTX_free(ctx);
	str_hex(ret, digest, sizeof(digest));
	return ok ? 0 : -ENOMEM;
}

/* A request that was signed with a placeholder gets the signature that the secret makes; the secret itself goes nowhere. */
static int sign_anew(struct exchange *x)
{
	const char *why = "its signature is malformed";
	const struct secret *secret;
	char made[SIGV4_HEX + 1], hash[SIGV4_HEX + 1] = "";
	struct sigv4 s;
	int found = sigv4_find(&x->request, &x->arena, &s, &why), rc;

	if (found == -ENOENT)
		return 0;
	secret = signing_secret(x, s.key_id);
	if (secret == NULL)
		return 0;
	if (found < 0)
		return cannot_sign(x, secret, why);
	if (s.payload.n == 0 && x->request.body != HTTP_BODY_NONE && !x->body_whole)
		return cannot_sign(x, secret, "its body is too large to be held");
	if (s.payload.n == 0 && hash_body(x, hash) < 0)
		return -ENOMEM;
	rc = sigv4_make(&x->request, &s, hash, secret->value, made);
	if (rc == -ENOENT)
		return cannot_sign(x, secret, "a field that is signed does not leave the gateway");
	return rc == 0 ? replace_signature(x, &s, made) : rc;
}

void secrets_unsign(struct exchange *x)
{
	if (x->signature != NULL)
		memcpy(x->signature, x->signature_was, SIGV4_HEX);
}

int secrets_place(struct exchange *x)
{
	const struct secrets *s = x->secrets;
	int rc = 0;

	if (s == NULL || s->n == 0)
		return 0;
	if (any_place(x, is_json_place))
		rc = exchange_read_json(x, true);
	for (size_t i = 0; i < s->n && rc == 0; i++)
		if (goes_to(&s->list[i], x))
			rc = place_secret(x, &s->list[i]);
	exchange_forget_json(x);
	if (rc < 0)
		exchange_because(x, "failed", "there is no room to put a secret into its body");
	if (rc == 0)
		rc = check_request(x);
	if (rc == 0 && secrets_scrubs(x)) {
		head_remove(&x->request, "accept-encoding");
		rc = head_add(&x->request, "accept-encoding", text_of("identity"));
	}
	return rc == 0 ? sign_anew(x) : rc;
}

struct scrub *secrets_watch(struct exchange *x)
{
	return x->secrets != NULL && x->secrets->n > 0 ? scrub_new(x->secrets->find) : NULL;
}

int secrets_watched(struct exchange *x, const struct scrub *watch, const char *where, bool ended)
{
	if (watch == NULL || (passes(x, where) && !ended))
		return 0;
	return check_found(x, watch, where, (struct policy_text){ 0 });
}

/* ---- the way back ----------------------------------------------------------------------------------------------------------- */

int secrets_scrub_fields(struct exchange *x, struct policy_field *fields, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0 && secrets_scrubs(x); i++) {
		struct buf out = BUF_INIT(HTTPHEAD_BYTES_MAX);

		if (scrub_whole(x->secrets->hide, fields[i].value.p, fields[i].value.n, &out) > 0)
			rc = keep(x, &out, &fields[i].value);
		buf_free(&out);
	}
	return rc;
}

int secrets_scrub_head(struct exchange *x)
{
	struct policy_text coding = head_field(&x->answer, "content-encoding");

	if (!secrets_scrubs(x))
		return 0;
	if (x->answer.body != HTTP_BODY_NONE && coding.n > 0 && !text_is(coding, "identity")) {
		exchange_because(x, "failed",
			"%s answers with a compressed body though it was asked not to: it could hold a secret",
			x->host.host);
		return -EACCES;
	}
	return secrets_scrub_fields(x, x->answer.fields, x->answer.n_fields);
}

struct scrub *secrets_scrub_body(const struct exchange *x)
{
	return secrets_scrubs(x) ? scrub_new(x->secrets->hide) : NULL;
}

void secrets_scrub_text(const struct secrets *s, struct buf *json)
{
	struct buf out = BUF_INIT(json->max);

	if (s == NULL || s->n == 0)
		return;
	(void)scrub_whole(s->hide, json->p, json->n, &out);
	BUG_ON(buf_failed(&out) || out.n != json->n);
	explicit_bzero(json->p, json->n);
	buf_free(json);
	*json = out;
}

json_t *secrets_scrub_json(const struct secrets *s, json_t *value)
{
	struct buf out = BUF_INIT(SIZE_MAX / 2);
	cleanup_free char *text = NULL;
	json_t *scrubbed = NULL;

	if (s == NULL || s->n == 0)
		return value;
	text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
	if (text != NULL && scrub_whole(s->hide, text, strlen(text), &out) > 0)
		scrubbed = json_loadb(out.p, out.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	buf_free(&out);
	if (scrubbed == NULL)
		return value;
	json_decref(value);
	return scrubbed;
}
