/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/keys.h - idempotency keys: whoever repeats a request with the same key gets the answer of the first, for a day, whatever happened to the server meanwhile. */
#ifndef CAY_API_KEYS_H
#define CAY_API_KEYS_H

#include "api/route.h"

/**
 * keys_begin() - look at the key of @call, if its route knows keys and it has one; sets @call->key. Of two requests with one key at the same time the second waits for the first.
 * Return: 0: go on; 1: the first answer was given again; -errno with @err set. Context: may wait.
 */
int keys_begin(struct api_call *call, struct err *err) attr_must_use;

/** keys_store() - remember what @call was answered, under its key. */
void keys_store(struct api_call *call, int status, const char *text);

/** keys_counts() - does what was made with a key, of which @doc says when, stand for that key still? For as long as its row does: afterwards a request with it is a new one. */
bool keys_counts(const json_t *doc);

/** keys_end() - @call is answered: who waits for its key goes on. */
void keys_end(struct api_call *call);

#endif
