/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/secrets_internal.h - what secrets.c (the set, and the way back), secrets_place.c and secrets_parts.c (putting in), secrets_check.c (placeholders where they do not belong) and secrets_sign.c share. */
#ifndef CAY_GATEWAY_SECRETS_INTERNAL_H
#define CAY_GATEWAY_SECRETS_INTERNAL_H

#include "gateway/exchange.h"
#include "gateway/secrets.h"

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

/** secret_goes_to() - a secret goes to its hosts, and only where the host's certificate was checked. */
bool secret_goes_to(const struct secret *secret, const struct exchange *x);

/** text_holds() - is @word in @text? */
bool text_holds(struct policy_text text, const char *word);

/** text_exchange() - @text with every @from as @to, appended to @out. */
void text_exchange(struct policy_text text, const char *from, const char *to, struct buf *out);

/** secret_keep() - the bytes of @out as text of the exchange; @out is overwritten and freed. Return: 0; -ENOMEM, *@ret stays what it was: it will be told. */
int secret_keep(struct exchange *x, struct buf *out, struct policy_text *ret) attr_must_use;

/** secret_place_query() - into the values of @name of the query. Return: 0 or -ENOMEM. */
int secret_place_query(
	struct exchange *x, const struct secret *secret, const char *name) attr_must_use;

/** secret_place_form() - into the values of @name of a form that is held. Return: 0; -ENOMEM when it becomes too large; -EBUSY when there is no room now. Context: fiber; waits. */
int secret_place_form(
	struct exchange *x, const struct secret *secret, const char *name) attr_must_use;

/** secret_is_form() - does the head say that the body is a form, uncompressed? */
bool secret_is_form(const struct head *rq);

/** secrets_check() - is a placeholder left in the request? Then it is told. Return: 0 or -EACCES. Context: fiber; others have their turn. */
int secrets_check(struct exchange *x) attr_must_use;

/** secrets_sign() - a request that was signed with a placeholder gets the signature that the secret makes; the secret itself goes nowhere. Return: 0; -EACCES when it cannot be signed (@x->reason is set); -ENOMEM. */
int secrets_sign(struct exchange *x) attr_must_use;

#endif
