/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/verify.h - the signed list of what a layer holds. */
#ifndef CAY_STORE_VERIFY_H
#define CAY_STORE_VERIFY_H

#include "store/store.h"

/** verify_small() - write the list of layer @layer now if that takes milliseconds and there is none yet; larger ones are left to the job `verify`. */
int verify_small(const struct store *store, const char *layer, struct err *err) attr_must_use;

/** verify_has_list() - is there a list of layer @layer? Then it is on the disk (`sync`). */
bool verify_has_list(const struct store *store, const char *layer);

/** verify_listed() - %ERR_CORRUPT when layer @layer is not what its list says; one without a list may be anything. */
int verify_listed(const struct store *store, const char *layer, struct err *err) attr_must_use;

#endif
