/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: base/map.h - objects found by a text that they hold: a hash table whose nodes live inside the objects. */
#ifndef CAY_BASE_MAP_H
#define CAY_BASE_MAP_H

#include "base/attr.h"

struct map_node {
	struct map_node *next;
	const char *key; /* not copied; NULL: in no map */
	uint32_t hash;
};

/** struct map - all zeros is an empty one. */
struct map {
	struct map_node **buckets;
	size_t n_buckets, n;
};

#define map_entry(node, type, member) container_of(node, type, member)

/** map_add() - @node, which is in no map, is found by @key from now on; @key stays as it is as long. Aborts when there is no memory. */
void map_add(struct map *m, struct map_node *node, const char *key);

/** map_remove() - take @node out; nothing when it is in no map. */
void map_remove(struct map *m, struct map_node *node);

/** map_find() - of several with that key the one that was added first. NULL: none. */
struct map_node *map_find(const struct map *m, const char *key);

/** map_next() - to walk through all nodes, in no order: the one behind @node, or the first when that is NULL. NULL: no more. Nothing may be added between. */
struct map_node *map_next(const struct map *m, const struct map_node *node);

/** map_free() - forget all nodes; the objects are the caller's. */
void map_free(struct map *m);

#endif
