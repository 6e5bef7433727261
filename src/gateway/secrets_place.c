/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "gateway/secrets_internal.h"
#include "gateway/sigv4.h"
#include "policy/pattern.h"
#include "policy/sieve.h"

#include <strings.h>

/* ---- text ------------------------------------------------------------------------------------------------------------------------ */

bool text_holds(struct policy_text text, const char *word)
{
	return text.n > 0 && memmem(text.p, text.n, word, strlen(word)) != NULL;
}

void text_exchange(struct policy_text text, const char *from, const char *to, struct buf *out)
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

size_t secrets_grown(const struct secrets *s, size_t n)
{
	size_t most = n;

	for (size_t i = 0; s != NULL && i < s->n; i++) {
		size_t value = strlen(s->list[i].value),
		       placeholder = strlen(s->list[i].placeholder);
		size_t grown = value > placeholder && placeholder > 0
				       ? n / placeholder * (value - placeholder)
				       : 0;

		most = n + grown > most ? n + grown : most;
	}
	return most;
}

int secret_keep(struct exchange *x, struct buf *out, struct policy_text *ret)
{
	char *copy = buf_failed(out) ? NULL : arena_copy(&x->arena, buf_cstr(out), out->n);

	if (copy != NULL)
		*ret = (struct policy_text){ copy, out->n };
	if (out->p != NULL)
		explicit_bzero(out->p, out->n);
	buf_free(out);
	return copy != NULL ? 0 : -ENOMEM;
}

/* ---- headers --------------------------------------------------------------------------------------------------------------------- */

/* "Basic dXNlcjpwYXNz": the words are in what is encoded (RFC 7617). */
static int place_basic(struct exchange *x, const struct secret *secret, struct policy_field *field)
{
	unsigned char plain[HTTPHEAD_BYTES_MAX], encoded[HTTPHEAD_BYTES_MAX * 2];
	struct policy_text value = { field->value.p + 6, field->value.n - 6 };
	struct buf out = BUF_INIT(HTTPHEAD_BYTES_MAX), line = BUF_INIT(HTTPHEAD_BYTES_MAX * 2);
	bool fits;
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
	if (!text_holds((struct policy_text){ (char *)plain, (size_t)n }, secret->placeholder))
		return 0;
	text_exchange((struct policy_text){ (char *)plain, (size_t)n }, secret->placeholder,
		secret->value, &out);
	fits = !buf_failed(&out);
	buf_str(&line, "Basic ");
	n = fits ? EVP_EncodeBlock(encoded, (const unsigned char *)out.p, (int)out.n) : 0;
	buf_add(&line, encoded, (size_t)n);
	explicit_bzero(encoded, sizeof(encoded));
	explicit_bzero(out.p, out.n);
	buf_free(&out);
	if (fits)
		return secret_keep(x, &line, &field->value);
	buf_free(&line);
	return -ENOMEM;
}

static int place_header(struct exchange *x, const struct secret *secret, const char *name)
{
	int rc = 0;

	for (size_t i = 0; i < x->request.n_fields && rc == 0; i++) {
		struct policy_field *f = &x->request.fields[i];
		struct buf out = BUF_INIT(HTTPHEAD_BYTES_MAX);

		if (f->name.n != strlen(name) || strncasecmp(f->name.p, name, f->name.n) != 0)
			continue;
		if (text_holds(f->value, secret->placeholder)) {
			text_exchange(f->value, secret->placeholder, secret->value, &out);
			rc = secret_keep(x, &out, &f->value);
		} else if (f->value.n > 6 && strncasecmp(f->value.p, "basic ", 6) == 0) {
			rc = place_basic(x, secret, f);
		}
	}
	return rc;
}

/* ---- bodies of JSON -------------------------------------------------------------------------------------------------------------- */

struct body_place {
	const struct secret *secret;
	size_t max;
	bool changed, too_large;
};

static bool place_in_value(const json_t *value, void *ctx)
{
	struct body_place *place = ctx;
	struct policy_text text = { json_string_value(value), json_string_length(value) };
	struct buf out = BUF_INIT(place->max);

	if (!json_is_string(value) || sieve_number(value) != NULL ||
		!text_holds(text, place->secret->placeholder))
		return true;
	text_exchange(text, place->secret->placeholder, place->secret->value, &out);
	place->too_large = place->too_large || buf_failed(&out);
	if (!buf_failed(&out))
		place->changed = json_string_setn((json_t *)(uintptr_t)value, out.p, out.n) == 0;
	if (out.n > 0)
		explicit_bzero(out.p, out.n);
	buf_free(&out);
	return true;
}

static int place_body(struct exchange *x, const struct secret *secret, const char *pointer)
{
	struct body_place place = { .secret = secret, .max = policy_body_max(x->policy) };

	if (x->json == NULL)
		return 0;
	(void)pointer_walk(x->json, pointer, place_in_value, &place);
	if (place.too_large)
		return -ENOMEM;
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
			rc = secret_place_query(x, secret, place->name);
			break;
		case POLICY_IN_BODY:
			rc = place_body(x, secret, place->name);
			break;
		case POLICY_IN_FORM:
			rc = secret_place_form(x, secret, place->name);
			break;
		case POLICY_IN_SIGV4: /* when all else is in place: secrets_sign() */
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
	       (place->surface == POLICY_IN_FORM && secret_is_form(&x->request)) ||
	       (place->surface == POLICY_IN_SIGV4 && sigv4_wants_body(&x->request, &x->arena));
}

/* Is there a place for a secret that @asked says yes to? */
static bool any_place(
	struct exchange *x, bool (*asked)(struct exchange *x, const struct policy_place *place))
{
	const struct secrets *s = x->secrets;

	for (size_t i = 0; s != NULL && i < s->n; i++) {
		const struct policy_secret *binding = s->list[i].binding;

		for (size_t k = 0; secret_goes_to(&s->list[i], x) && k < binding->n_places; k++)
			if (asked(x, &binding->places[k]))
				return true;
	}
	return false;
}

bool secrets_want_body(struct exchange *x)
{
	return any_place(x, may_hold);
}

int secrets_place(struct exchange *x)
{
	const struct secrets *s = x->secrets;
	int rc = 0;

	if (s == NULL || s->n == 0)
		return 0;
	if (any_place(x, is_json_place) && exchange_read_json(x, true) < 0)
		rc = -EBUSY;
	for (size_t i = 0; i < s->n && rc == 0; i++)
		if (secret_goes_to(&s->list[i], x))
			rc = place_secret(x, &s->list[i]);
	exchange_forget_json(x);
	if (rc == -EBUSY)
		exchange_because(
			x, "failed", "too many large bodies are changed at once; try again later");
	else if (rc < 0)
		exchange_because(x, "failed", "with its secrets in it is too large");
	if (rc == 0)
		rc = secrets_check(x);
	if (rc == 0 && secrets_scrubs(x)) {
		head_remove(&x->request, "accept-encoding");
		rc = head_add(&x->request, "accept-encoding", text_of("identity"));
	}
	return rc == 0 ? secrets_sign(x) : rc;
}
