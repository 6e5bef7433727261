/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "gateway/secrets_internal.h"
#include "gateway/sigv4.h"
#include "gateway/stage.h"

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

		if (secret_goes_to(secret, x) && signs(secret, key_id))
			return secret;
	}
	return NULL;
}

/* What the signature stands in: the query, or the one field for it. */
static struct policy_text *holder_of(struct exchange *x, const struct sigv4 *s)
{
	for (size_t i = 0; !s->in_query && i < x->request.n_fields; i++)
		if (text_is(x->request.fields[i].name, "authorization"))
			return &x->request.fields[i].value;
	return &x->request.query;
}

/* The field or query that holds the signature, with @made in its place; the sandbox's own is kept for whom the exchange is told. */
static int replace_signature(struct exchange *x, const struct sigv4 *s, const char *made)
{
	struct policy_text *holder = holder_of(x, s);
	char *copy = arena_copy(&x->arena, holder->p, holder->n);

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

int secrets_sign(struct exchange *x)
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
	if (!s.in_query && head_count(&x->request, "authorization") > 1)
		return cannot_sign(x, secret, "it has several Authorization fields");
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
