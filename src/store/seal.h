/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/seal.h - taking a seal back; used by the seal itself when it fails, and by recovery. */
#ifndef CAY_STORE_SEAL_H
#define CAY_STORE_SEAL_H

#include "store/job.h"
#include "store/store.h"
#include <jansson.h>

/** seal_give_back() - make sealing/@name (`<sandbox>.<layer>`, in any state of arrangement) the live directory again. -EBUSY when there is one that was written to. */
int seal_give_back(const struct store *store, const char *name) attr_must_use;

/** seal_undo() - make sealed layers/@layer the live directory of @sandbox again. -EBUSY when that was written to since. */
int seal_undo(const struct store *store, const char *sandbox, const char *layer) attr_must_use;

/**
 * seal_ensure_live() - make an empty live directory for a sandbox that the request says to be `bare`, if it has none: it never ran, or went back to a snapshot and was not
 * started since. The roots of its trees are as in the first of the `parents`, else as in the tree's `source`. Return: 0 or an error.
 */
int seal_ensure_live(const struct job *job, const char *sandbox, struct err *err) attr_must_use;

/** seal_renew_live() - make the empty live directory that follows the seal of layers/@layer: a tree for each of its trees. */
int seal_renew_live(
	const struct store *store, const char *sandbox, const char *layer) attr_must_use;

/**
 * seal_read() - what layers/@layer is: its manifest, or, when that cannot be read, what a seal is marked with beside it: `layer`, `sandbox`, `how`, `epoch`. New reference,
 * or NULL with the error of layer_manifest_read().
 */
json_t *seal_read(const struct store *store, const char *layer, struct err *err);

#endif
