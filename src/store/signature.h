/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/signature.h - JSON objects that only this instance can have written: member "hmac" is over the rest, in its canonical text. */
#ifndef CAY_STORE_SIGNATURE_H
#define CAY_STORE_SIGNATURE_H

#include "store/store.h"
#include <jansson.h>

/** signature_add() - sign @object, whatever signature it had before. Return: 0 or -errno of the key. */
int signature_add(const struct store *store, json_t *object) attr_must_use;

/** signature_check() - is @object as it was signed? Its signature is taken off. Return: 0, -EBADMSG when it is not, -errno of the key. */
int signature_check(const struct store *store, json_t *object) attr_must_use;

#endif
