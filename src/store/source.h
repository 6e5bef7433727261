/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/source.h - what a sandbox was given of the host, by its own path.
 *
 * The path was judged when the sandbox was made. Whoever may write above the place could put a symbolic link on the way there at any time since,
 * and choose so what root opens: another sandbox with a mount of mode rw is enough. So no link is followed.
 */
#ifndef CAY_STORE_SOURCE_H
#define CAY_STORE_SOURCE_H

#include "base/attr.h"
#include "base/err.h"

/** source_open() - open directory @path for reading. Return: descriptor, -ELOOP when a link lies on the way, other -errno. */
int source_open(const char *path) attr_must_use;

/** source_find() - the same with O_PATH, of a directory or of whatever else it is. */
int source_find(const char *path) attr_must_use;

/** source_refuse() - say that @path cannot be had because of @rc: %ERR_CONFLICT for a link. @what: what it was to be ("mount"). Return: negative, @err filled. */
int source_refuse(const char *what, const char *path, int rc, struct err *err);

#endif
