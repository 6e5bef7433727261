/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/danger.h - is a change something that a tool outside the sandbox would execute or obey? Rules in defs/dangerous.def. */
#ifndef CAY_STORE_DANGER_H
#define CAY_STORE_DANGER_H

#include "store/diff.h"

/** danger_path() - why @path (relative to the mounted directory) is dangerous; NULL when no rule names it. Static text. */
const char *danger_path(const char *path);

/** danger_change() - the same for a change as a whole: also modes and links. Static text or NULL. */
const char *danger_change(const struct change *change);

#endif
