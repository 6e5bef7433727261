/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/secrets.h"
#include "base/str.h"
#include "gateway/secrets_internal.h"
#include "gateway/stage.h"

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

bool secret_goes_to(const struct secret *secret, const struct exchange *x)
{
	return x->conn->tls && policy_secret_bound(secret->binding, x->host.host);
}

/* What a host got over TLS it may tell over any connection. */
static bool may_come_from(const struct secret *secret, const struct exchange *x)
{
	return policy_secret_bound(secret->binding, x->host.host);
}

bool secrets_scrubs(const struct exchange *x)
{
	const struct secrets *s = x->secrets;

	for (size_t i = 0; s != NULL && i < s->n; i++)
		if (may_come_from(&s->list[i], x))
			return true;
	return false;
}

/* ---- the way back ----------------------------------------------------------------------------------------------------------- */

int secrets_scrub_fields(struct exchange *x, struct policy_field *fields, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0 && secrets_scrubs(x); i++) {
		struct buf out = BUF_INIT(HTTPHEAD_BYTES_MAX);

		if (scrub_whole(x->secrets->hide, fields[i].value.p, fields[i].value.n, &out) > 0)
			rc = secret_keep(x, &out, &fields[i].value);
		buf_free(&out);
	}
	return rc;
}

/* Does the host get to know a secret? Not one that only signs. */
static bool knows_secret(const struct exchange *x)
{
	const struct secrets *s = x->secrets;

	for (size_t i = 0; i < s->n; i++) {
		const struct policy_secret *binding = s->list[i].binding;

		for (size_t k = 0; may_come_from(&s->list[i], x) && k < binding->n_places; k++)
			if (binding->places[k].surface != POLICY_IN_SIGV4)
				return true;
	}
	return false;
}

int secrets_scrub_head(struct exchange *x)
{
	struct policy_text coding = head_field(&x->answer, "content-encoding");

	if (!secrets_scrubs(x))
		return 0;
	if (knows_secret(x) && x->answer.body != HTTP_BODY_NONE && coding.n > 0 &&
		!text_is(coding, "identity")) {
		exchange_because(x, "failed",
			"%s answers with a compressed body though it was asked not to: it could hold a secret",
			x->host.host);
		return -EACCES;
	}
	return secrets_scrub_fields(x, x->answer.fields, x->answer.n_fields);
}

struct scrub *secrets_scrub_body(const struct exchange *x)
{
	struct scrub *s = secrets_scrubs(x) ? scrub_new(x->secrets->hide) : NULL;

	if (s != NULL)
		scrub_evenly(s);
	return s;
}

struct scrub *secrets_hide_body(const struct exchange *x)
{
	const struct secrets *s = x->secrets;

	for (size_t i = 0; s != NULL && i < s->n; i++)
		if (secret_goes_to(&s->list[i], x))
			return scrub_new(s->hide);
	return NULL;
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
