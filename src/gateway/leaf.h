/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/leaf.h - leaf certificates by host, kept as objects: parsing one costs ten times what signing it does. */
#ifndef CAY_GATEWAY_LEAF_H
#define CAY_GATEWAY_LEAF_H

#include "gateway/ca.h"

#define LEAF_MAX 1000 /* then the one that was not used for longest goes */

struct leaf_cache;

/** leaf_cache_new() - empty; leaf_cache_free(). @issuer is borrowed. Aborts without memory. */
struct leaf_cache *leaf_cache_new(const struct ca_issuer *issuer) attr_must_use;

/** leaf_cache_free() - NULL is allowed. */
void leaf_cache_free(struct leaf_cache *cache);

/**
 * leaf_get() - the certificate of @host (lower case name or canonical address), made when there is none.
 * Return: owned by the cache, good until the next call; NULL on failure.
 */
X509 *leaf_get(struct leaf_cache *cache, const char *host) attr_must_use;

#endif
