/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/mapped.h - which files do the processes of a control group map shared and writable? Stores through such a mapping move no time stamp. */
#ifndef CAY_STORE_MAPPED_H
#define CAY_STORE_MAPPED_H

#include "store/tree.h"

/** MAPPED_ALL - the entry of a list that means every file; it sorts before all paths. */
#define MAPPED_ALL "*"

/**
 * mapped_files() - collect the files mapped so by any process below cgroup directory @box.
 * @box: v2 directory of the payload; the caller has frozen it, else the answer is old at once.
 * @ret: zero-initialised; filled with paths as inside the sandbox (one that cannot be told from another: both), sorted; %MAPPED_ALL among them where some cannot be told.
 *
 * Return: 0 or -errno.
 */
int mapped_files(const char *box, struct tree_names *ret) attr_must_use;

/** mapped_has() - is @path in the sorted list? */
bool mapped_has(const struct tree_names *mapped, const char *path);

#endif
