/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/leaf.h"
#include "base/list.h"
#include "base/str.h"

#define BUCKETS 256U
#define RENEW_S ((time_t)86400 * CA_DAYS_RENEW)

struct leaf {
	struct leaf *next; /* in its bucket */
	struct list used;  /* the longest unused first */
	time_t made;
	X509 *cert;
	char host[];
};

struct leaf_cache {
	const struct ca_root *root;
	EVP_PKEY *key;
	struct leaf *buckets[BUCKETS];
	struct list used;
	size_t n;
};

static size_t bucket_of(const char *host)
{
	uint32_t h = 2166136261U;

	for (const char *p = host; *p != '\0'; p++)
		h = (h ^ (unsigned char)*p) * 16777619U;
	return h % BUCKETS;
}

static void forget(struct leaf_cache *cache, struct leaf *leaf)
{
	struct leaf **at = &cache->buckets[bucket_of(leaf->host)];

	while (*at != leaf)
		at = &(*at)->next;
	*at = leaf->next;
	list_remove(&leaf->used);
	X509_free(leaf->cert);
	free(leaf);
	cache->n--;
}

static struct leaf *find(struct leaf_cache *cache, const char *host)
{
	struct leaf *leaf = cache->buckets[bucket_of(host)];

	while (leaf != NULL && !str_eq(leaf->host, host))
		leaf = leaf->next;
	return leaf;
}

static struct leaf *make(struct leaf_cache *cache, const char *host, time_t now)
{
	X509 *cert = ca_leaf(cache->root, cache->key, host);
	struct leaf **bucket = &cache->buckets[bucket_of(host)];
	struct leaf *leaf;

	if (cert == NULL)
		return NULL;
	if (cache->n == LEAF_MAX)
		forget(cache, list_entry(cache->used.next, struct leaf, used));
	leaf = xalloc(sizeof(*leaf) + strlen(host) + 1);
	memcpy(leaf->host, host, strlen(host) + 1);
	leaf->cert = cert;
	leaf->made = now;
	leaf->next = *bucket;
	*bucket = leaf;
	list_append(&cache->used, &leaf->used);
	cache->n++;
	return leaf;
}

X509 *leaf_get(struct leaf_cache *cache, const char *host, time_t now)
{
	struct leaf *leaf = find(cache, host);

	if (leaf != NULL && (now < leaf->made ||
				    now - leaf->made > RENEW_S)) { /* or the clock was wrong then */
		forget(cache, leaf);
		leaf = NULL;
	}
	if (leaf == NULL)
		leaf = make(cache, host, now);
	if (leaf == NULL)
		return NULL;
	list_remove(&leaf->used);
	list_append(&cache->used, &leaf->used);
	return leaf->cert;
}

EVP_PKEY *leaf_key(const struct leaf_cache *cache)
{
	return cache->key;
}

struct leaf_cache *leaf_cache_new(const struct ca_root *root)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	struct leaf_cache *cache;

	if (key == NULL)
		return NULL;
	cache = xnew(struct leaf_cache);
	cache->root = root;
	cache->key = key;
	list_init(&cache->used);
	return cache;
}

void leaf_cache_free(struct leaf_cache *cache)
{
	if (cache == NULL)
		return;
	while (cache->n > 0)
		forget(cache, list_entry(cache->used.next, struct leaf, used));
	EVP_PKEY_free(cache->key);
	free(cache);
}
