/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/pool.h - where all trees lie: a btrfs in a file, mounted at STATE/pool, or a plain directory there. */
#ifndef CAY_STORE_POOL_H
#define CAY_STORE_POOL_H

#include "store/store.h"
#include <jansson.h>

/** pool_can_clone() - does FICLONE work in the directory behind @fd? Makes and removes two unnamed files. */
bool pool_can_clone(int fd);

/** pool_capture_way() - "snapshot", "reflink" or "copy": the best that the opened pool can. */
const char *pool_capture_way(const struct store *store);

#endif
