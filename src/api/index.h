/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/index.h - what documents name, counted and found without looking at all of them: layers, memories, the snapshots that sandboxes continue from, runs and
 * idempotency keys.
 *
 * Invariant: whenever somebody may run who asks (at every wait), the index says what the documents say. So whoever changes one of the members named in index.c calls
 * sandbox_index() or snapshot_index() before it waits; sandbox_save(), snapshot_save(), and what puts objects into the lists, do so themselves. Under CAY_STRICT every question of
 * what may be removed compares all of it with the documents.
 */
#ifndef CAY_API_INDEX_H
#define CAY_API_INDEX_H

#include "base/tally.h"

#include <jansson.h>

#define INDEXED_MAX 7

struct server;
struct sandbox;
struct snapshot;

/** struct index - the server's; all zeros is an empty one. */
struct index {
	struct tally layers,
		memories;   /* ids; also those that are being made, which no document names yet */
	struct tally bases; /* ids of snapshots, by the sandboxes that continue from them */
	struct map runs, keys; /* sandboxes */
	struct tally making;   /* what index_making() counted */
};

/** struct indexed - what of a document is in the index. */
struct indexed {
	json_t *values[INDEXED_MAX]; /* references, or NULL */
};

/** sandbox_index() - the index has what @sb's document names now. */
void sandbox_index(struct sandbox *sb);
/** sandbox_unindex() - the index has nothing of @sb any more. Idempotent. */
void sandbox_unindex(struct sandbox *sb);
/** snapshot_index() - as sandbox_index(). */
void snapshot_index(struct server *srv, struct snapshot *s);
/** snapshot_unindex() - as sandbox_unindex(). */
void snapshot_unindex(struct server *srv, struct snapshot *s);

/** enum making - what is being made. */
enum making { MAKING_LAYER, MAKING_MEMORY };

/** index_making() - until index_made() @id is needed, though no document names it yet. */
void index_making(struct server *srv, enum making what, const char *id);
/** index_made() - the document names it, or nothing came of it. */
void index_made(struct server *srv, enum making what, const char *id);

/** layer_in_use() - does any snapshot or sandbox need this layer? */
bool layer_in_use(struct server *srv, const char *layer);
/** memory_in_use() - does any need this object? */
bool memory_in_use(struct server *srv, const char *id);
/** snapshot_is_base() - does some sandbox continue from it? */
bool snapshot_is_base(struct server *srv, const struct snapshot *s);

/** sandbox_by_run() - the sandbox made for the run with this key; NULL: there is none. Borrowed. */
struct sandbox *sandbox_by_run(struct server *srv, const char *key);
/** sandbox_by_key() - the sandbox made by the request with this idempotency key, if that counts still; NULL: there is none. Borrowed. */
struct sandbox *sandbox_by_key(struct server *srv, const char *key);

/** server_known_layers() - ids of all layers that are needed. A new reference. */
json_t *server_known_layers(struct server *srv);
/** server_known_memories() - ids of all objects that are needed. A new reference. */
json_t *server_known_memories(struct server *srv);

#endif
