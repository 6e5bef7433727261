/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/keys.h - idempotency keys: whoever repeats a request with the same key gets the answer of the first, for a day, whatever happened to the server meanwhile. */
#ifndef CAY_API_KEYS_H
#define CAY_API_KEYS_H

#include "api/route.h"

struct sandbox;

/**
 * keys_begin() - look at the key of @call, if its route knows keys and it has one; sets @call->key. Of two requests with one key at the same time the second waits for the first.
 * Return: 0: go on; 1: the first answer was given again; -errno with @err set. Context: may wait.
 */
int keys_begin(struct api_call *call, struct err *err) attr_must_use;

/**
 * keys_note() - what is being written does what @call asks for, as far as @made (stolen) says. Of a request that was not answered behind it (the server died, or the rest failed) the next one
 * with that key finds it in its member `made`. In the transaction that does it, or by itself before it is begun. Nothing for a NULL @call, or one without a key.
 *
 * Return: 0 or an error.
 */
int keys_note(struct api_call *call, json_t *made, struct err *err) attr_must_use;

/** keys_begun() - what keys_note() said of a request with the key of @call that was not answered, if it was about @sb (member "sandbox": its id); else NULL. Borrowed. */
const json_t *keys_begun(const struct api_call *call, const struct sandbox *sb);

/** keys_answer() - the same, where nothing is left to be done: @text is the answer. In the transaction that does it. Return: 0 or an error. */
int keys_answer(struct api_call *call, int status, const char *text, struct err *err) attr_must_use;

/** keys_store() - remember what @call is answered, under its key, if that is not written yet. */
void keys_store(struct api_call *call, int status, const char *text);

/** keys_counts() - does what was made with a key, of which @doc says when, stand for that key still? For as long as its row does: afterwards a request with it is a new one. */
bool keys_counts(const json_t *doc);

/** keys_end() - @call is answered: who waits for its key goes on. */
void keys_end(struct api_call *call);

#endif
