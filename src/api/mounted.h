/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/mounted.h - file systems that the machine has mounted below directories that sandboxes show: the places of those are empty inside.
 *
 * A mount of a sandbox is one file system, and an overlay over it (root mode; an ordinary user's kernel refuses the overlay). Compared are the texts of paths: what is named through a
 * symbolic link is not found.
 */
#ifndef CAY_API_MOUNTED_H
#define CAY_API_MOUNTED_H

#include <jansson.h>

struct server;

/** struct mounted - where something is mounted, as of the last look; zero-initialise, mounted_init(). */
struct mounted {
	int watch;
	json_t *points;  /* NULL: not looked yet */
	json_t *distant; /* those that may not answer */
	json_t *in_host; /* mounted_in_host() of those; NULL: not asked yet */
};

/** mounted_init() - Return: 0 or -errno. */
int mounted_init(struct mounted *m);

/** mounted_not_shown() - places below the sources of @mounts that those do not show, a hundred at most; NULL: none. A new reference. The machine's table is only read when it has changed. */
json_t *mounted_not_shown(struct server *srv, const json_t *mounts);

/**
 * mounted_in_host() - what of the machine's mounts decides how the host image is put together (rootless): to be compared as a whole. Of places that this user cannot reach it has the
 * first directory that he may not search, however much is mounted there.
 *
 * Return: a new reference. The machine's table, and who may search directories, is only read when the table has changed.
 */
json_t *mounted_in_host(struct server *srv);

#endif
