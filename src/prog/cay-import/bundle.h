/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay-import/bundle.h - from a source to a tree: which image, its layers in order, every digest checked. */
#ifndef CAY_IMPORT_BUNDLE_H
#define CAY_IMPORT_BUNDLE_H

#include "prog/cay-import/import_source.h"
#include "prog/cay-import/import_tree.h"

/** BUNDLE_CONFIG_MAX - bytes of an image configuration, without its history, that are kept. */
#define BUNDLE_CONFIG_MAX (96U << 10)

/**
 * bundle_unpack() - unpack the image of @source into @root.
 * @name:         tells which one when there are several; may be "".
 * @architecture: in OCI's spelling.
 *
 * Return: {"kind","digest","layers","config",counts…}, owned by the caller; NULL with *@err.
 */
json_t *bundle_unpack(struct source *source, struct import_tree *root, const char *name,
	const char *architecture, struct err *err) attr_must_use;

#endif
