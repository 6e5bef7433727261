/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/secrets.h - placeholders become secrets on the way out, secrets become placeholders on the way back.
 *
 * A secret is put in last, into the places that the policy names, of a request over verified TLS to a host that it is bound to. A placeholder anywhere else stops the request, or in a body, where the rule says so, goes as it is.
 * Answers of such hosts, over TLS or not, and every event are scrubbed (codec/scrub.h); their bodies are asked for without compression. The object is counted: an exchange keeps the one that it began with.
 */
#ifndef CAY_GATEWAY_SECRETS_H
#define CAY_GATEWAY_SECRETS_H

#include "base/err.h"
#include "codec/scrub.h"
#include "policy/policy.h"

#include <jansson.h>

struct secrets;
struct exchange;

/**
 * secrets_new() - the secrets of a policy.
 * @policy: says where they may go; one more reference is taken.
 * @values: [{"name","value","placeholder"}]; others than the policy binds are ignored. NULL: there are none.
 *
 * Return: the object, secrets_unref(); NULL with @err when a value or placeholder cannot be one.
 */
struct secrets *secrets_new(
	struct policy *policy, const json_t *values, struct err *err) attr_must_use;

/** secrets_ref() - one more user. NULL is allowed. Return: @s. */
struct secrets *secrets_ref(struct secrets *s);

/** secrets_grown() - bytes that @n bytes of text can become, at most, with secrets in them. @s: NULL is allowed. */
size_t secrets_grown(const struct secrets *s, size_t n);

/** secrets_unref() - one less; the last one overwrites and frees. NULL is allowed. */
void secrets_unref(struct secrets *s);

/** secrets_want_body() - must the request's body be held, because a secret may belong into it? */
bool secrets_want_body(struct exchange *x);

/**
 * secrets_place() - put what is bound to its host into the request of @x, which is ready to be sent; sign it anew when it was signed with a placeholder.
 * Return: 0; -EACCES when a placeholder stands where it may not (told in an event), or it cannot be signed; -EBUSY when there is no room now; -ENOMEM when it would be too large. @x->reason is set.
 */
int secrets_place(struct exchange *x) attr_must_use;

/** secrets_check_fields() - a placeholder in fields that follow the body is misplaced, as secrets_place() says. Return: 0 or -EACCES. */
int secrets_check_fields(
	struct exchange *x, const struct policy_field *fields, size_t n) attr_must_use;

/** secrets_unsign() - what the sandbox signed with a placeholder has its own signature again: the one that was sent could be used by whoever is told of it. */
void secrets_unsign(struct exchange *x);

/** secrets_watch() - a stream for the request's body that finds placeholders; scrub_free(). NULL: nothing is to be found. */
struct scrub *secrets_watch(struct exchange *x);

/**
 * secrets_watched() - has the stream found one in the "body" or a "message" (@where)? Then tell it, as secrets_place() does: at once, or when the body has @ended
 * where the rule lets it pass.
 * Return: 0 or -EACCES.
 */
int secrets_watched(
	struct exchange *x, const struct scrub *watch, const char *where, bool ended) attr_must_use;

/** secrets_scrubs() - must answers of the host of @x be scrubbed? */
bool secrets_scrubs(const struct exchange *x);

/**
 * secrets_scrub_head() - scrub the answer's head.
 * Return: 0; -EACCES when its body is compressed all the same, so that a secret which the host knows could not be scrubbed (@x->reason is set); -ENOMEM.
 */
int secrets_scrub_head(struct exchange *x) attr_must_use;

/** secrets_scrub_body() - a stream for the answer's body; scrub_free(). NULL: the host knows no secret. */
struct scrub *secrets_scrub_body(const struct exchange *x);

/** secrets_scrub_fields() - scrub values, for trailers. Return: 0 or -ENOMEM. */
int secrets_scrub_fields(struct exchange *x, struct policy_field *fields, size_t n) attr_must_use;

/** secrets_hide_body() - a stream for what is told of the request's body, into which secrets were put; scrub_free(). NULL: the host gets none. */
struct scrub *secrets_hide_body(const struct exchange *x);

/** secrets_scrub_text() - @json, JSON text, without any secret; its length stays. What held it is overwritten. */
void secrets_scrub_text(const struct secrets *s, struct buf *json);

/** secrets_scrub_json() - the same value without any secret; @value is stolen. Return: a new reference. */
json_t *secrets_scrub_json(const struct secrets *s, json_t *value) attr_must_use;

#endif
