/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"
#include "base/str.h"

#include <stdlib.h>

#define BUCKETS_MIN 16U

/* FNV-1a (Fowler, Noll, Vo), 32 bits. The keys are ids and names of our own users: nobody gains by collisions. */
static uint32_t hash_of(const char *key)
{
	uint32_t h = 2166136261U;

	for (const char *p = key; *p != '\0'; p++)
		h = (h ^ (unsigned char)*p) * 16777619U;
	return h;
}

static struct map_node **bucket(const struct map *m, uint32_t hash)
{
	return &m->buckets[hash & (m->n_buckets - 1)];
}

static void append(struct map *m, struct map_node *node)
{
	struct map_node **at = bucket(m, node->hash);

	while (*at != NULL)
		at = &(*at)->next;
	node->next = NULL;
	*at = node;
}

static void grow(struct map *m)
{
	struct map old = *m;

	m->n_buckets = old.n_buckets != 0 ? 2 * old.n_buckets : BUCKETS_MIN;
	m->buckets = xalloc(m->n_buckets * sizeof(struct map_node *));
	for (size_t i = 0; i < old.n_buckets; i++) {
		for (struct map_node *n = old.buckets[i], *next; n != NULL; n = next) {
			next = n->next;
			append(m, n);
		}
	}
	free(old.buckets);
}

void map_add(struct map *m, struct map_node *node, const char *key)
{
	if (m->n == m->n_buckets)
		grow(m);
	node->key = key;
	node->hash = hash_of(key);
	append(m, node);
	m->n++;
}

void map_remove(struct map *m, struct map_node *node)
{
	if (node->key == NULL)
		return;
	for (struct map_node **at = bucket(m, node->hash); *at != NULL; at = &(*at)->next) {
		if (*at != node)
			continue;
		*at = node->next;
		node->key = NULL;
		m->n--;
		return;
	}
}

struct map_node *map_find(const struct map *m, const char *key)
{
	uint32_t hash = hash_of(key);

	if (m->n == 0)
		return NULL;
	for (struct map_node *n = *bucket(m, hash); n != NULL; n = n->next) {
		if (n->hash == hash && str_eq(n->key, key))
			return n;
	}
	return NULL;
}

struct map_node *map_next(const struct map *m, const struct map_node *node)
{
	size_t i = node != NULL ? (node->hash & (m->n_buckets - 1)) + 1 : 0;

	if (node != NULL && node->next != NULL)
		return node->next;
	while (i < m->n_buckets && m->buckets[i] == NULL)
		i++;
	return i < m->n_buckets ? m->buckets[i] : NULL;
}

void map_free(struct map *m)
{
	free(m->buckets);
	*m = (struct map){ 0 };
}
