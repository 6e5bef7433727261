/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/leaf.h - leaf certificates by host, all of one key that never leaves the process, kept as objects: parsing one costs ten times what signing it does.
 * When half of a leaf's time is over, a new one takes its place; connections keep what they began with.
 */
#ifndef CAY_GATEWAY_LEAF_H
#define CAY_GATEWAY_LEAF_H

#include "gateway/ca.h"

#include <time.h>

#define LEAF_MAX 1000 /* then the one that was not used for longest goes */

struct leaf_cache;

/** leaf_cache_new() - empty, with a new key; leaf_cache_free(). @root signs, and is borrowed. Aborts without memory. Return: NULL when no key could be made. */
struct leaf_cache *leaf_cache_new(const struct ca_root *root) attr_must_use;

/** leaf_cache_free() - wipe the key. NULL is allowed. */
void leaf_cache_free(struct leaf_cache *cache);

/**
 * leaf_get() - the certificate of @host (lower case name or canonical address), made when there is none, or none that is young enough at @now.
 * Return: owned by the cache, good until the next call; NULL on failure.
 */
X509 *leaf_get(struct leaf_cache *cache, const char *host, time_t now) attr_must_use;

/** leaf_key() - the key of all of them, borrowed. */
EVP_PKEY *leaf_key(const struct leaf_cache *cache);

#endif
