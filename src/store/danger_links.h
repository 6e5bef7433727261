/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/danger_links.h - what on the host is executed or obeyed under another name: the files that dangerous links lead to (a hook that is a link to scripts/x). */
#ifndef CAY_STORE_DANGER_LINKS_H
#define CAY_STORE_DANGER_LINKS_H

#include "base/buf.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

/** struct danger_links - of one directory that changes are applied to. danger_links_init(), danger_links_free(). */
struct danger_links {
	char top[PATH_MAX]; /* the directory's own path, without links */
	const char *place;  /* as of danger_place(); borrowed */
	json_t *led;        /* path below @top (bytes in hex) -> why: what links pass and lead to */
	json_t *seen;       /* directories that were looked at, hex */
	size_t left;        /* so many names are still looked at */
};

/** danger_links_init() - @dir: descriptor of the directory; also looks at the checkout or repository that it is a part of. Return: 0 or -errno. */
int danger_links_init(struct danger_links *links, int dir, const char *place) attr_must_use;

/** danger_links_beside() - look at the links in every directory of the host in which @path lies, and in what is dangerous there. Each directory once. */
void danger_links_beside(struct danger_links *links, const char *path);

/**
 * danger_links_at() - does a dangerous link lead to @path, over it, or to something above it?
 * @is_dir: a directory is put there, which leads nowhere else.
 * Return: why, or NULL; valid until danger_links_free().
 */
const char *danger_links_at(const struct danger_links *links, const char *path, bool is_dir);

/** danger_links_free() - release; a zero-initialised one is fine. */
void danger_links_free(struct danger_links *links);

#endif
