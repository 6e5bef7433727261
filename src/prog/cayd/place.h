/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cayd/place.h - where an instance lives and who it runs as (docs/design/0001, Places). */
#ifndef CAY_PROG_CAYD_PLACE_H
#define CAY_PROG_CAYD_PLACE_H

#include "base/err.h"
#include <sys/types.h>

#define PLACE_SIZE 4000
#define CAYD_UID \
	1073741823U /* just below the ranges of the sandboxes; used unless there is a user `cay` */

struct place {
	char state[PLACE_SIZE], run[PLACE_SIZE], socket[PLACE_SIZE + 16];
	char tag[9];
	bool rootless;
	uid_t uid; /* what cayd becomes */
	gid_t gid;
	gid_t admit_gid; /* members of group `cay` may connect; (gid_t)-1 = no such group */
	uint32_t subuid,
		subgid; /* rootless: first ids of the subordinate range; 0 = none of 65535 */
};

/** place_find() - from environment and user; makes RUN. Return: 0 or -errno with @err set. */
int place_find(struct place *p, struct err *err);

/**
 * place_lock() - make STATE, and take its lock: it has one server, wherever that has its RUN.
 *
 * Return: descriptor that holds it for the life of the process, or -errno with @err set.
 */
int place_lock(const struct place *p, struct err *err);

/** place_make() - make the directories below STATE and RUN, and the catalogue, with their owners. STATE is locked. */
int place_make(const struct place *p, struct err *err);

/**
 * place_program() - path of one of our programs: beside our own executable, else where the others are installed (CAY_PROGRAM_DIR).
 * Return: 0 or -errno; with -ENOENT @path is the second of these.
 */
int place_program(const char *name, char *path, size_t size) attr_must_use;

#endif
