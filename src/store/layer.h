/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/layer.h - an immutable layer: its arrangement, its manifest, and its commit by rename (docs/design/0002 "Commit").
 *
 * On disk: `0/ 1/ …` (the trees), `ARRANGED` (empty: the trees stand here, no longer below N/upper), `MANIFEST`.
 */
#ifndef CAY_STORE_LAYER_H
#define CAY_STORE_LAYER_H

#include "base/str.h"
#include "store/store.h"
#include <jansson.h>

#define LAYER_FORMAT   1
#define LAYER_TREES    33 /* root and 32 cow mounts */
#define LAYER_MANIFEST "MANIFEST"

/**
 * layer_arrange() - turn what was a live directory (N/upper, N/work, points, …) into the shape of a layer, O(1) in the size of the trees.
 * Crash at any point: layer_disarrange() restores the live shape. Return: 0 or -errno.
 */
int layer_arrange(int dir) attr_must_use;

/** layer_disarrange() - the reverse, from any intermediate state; idempotent. */
int layer_disarrange(int dir) attr_must_use;

/**
 * layer_manifest_new() - the manifest of the arranged layer behind @dir, counted but not yet written.
 * @request: the job's request (layer, sandbox, parents, trees). New reference, or NULL with @err.
 */
json_t *layer_manifest_new(
	int dir, const json_t *request, const char *how, uint64_t captured_ns, struct err *err);

/** layer_manifest_read() - read and check the manifest of layers/@layer. New reference, or NULL and %ERR_CORRUPT or %ERR_NOT_FOUND. */
json_t *layer_manifest_read(const struct store *store, const char *layer, struct err *err);

/**
 * layer_commit() - write the manifest and rename @from_dir/@from to layers/<layer>: the layer is sealed from then on.
 * @manifest: borrowed; signed as a side effect.
 */
int layer_commit(const struct store *store, int from_dir, const char *from, json_t *manifest,
	struct err *err) attr_must_use;

/** LAYER_FLAT - how the id of a layer that stands for several begins (`flatten`); others that begin so by chance are only never flattened again. */
#define LAYER_FLAT "flat"

/** layer_is_flat() - does @layer stand for several? */
static inline bool layer_is_flat(const char *layer)
{
	return str_starts(layer, LAYER_FLAT);
}

/** layer_exists() - is there a committed layer of that id? */
bool layer_exists(const struct store *store, const char *layer);

/** layer_reply() - the job's reply that describes @manifest. */
json_t *layer_reply(const json_t *manifest, uint64_t frozen_us);

#endif
