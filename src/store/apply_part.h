/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/apply_part.h - of the changes of an apply only those at or below named places are brought; all others stay the sandbox's, and must be there as they were for a later apply.
 *
 * Places are absolute paths inside the sandbox, as a diff shows them. A directory that is new, or was something else, is brought with what is in it (itself, not all that is in it).
 */
#ifndef CAY_STORE_APPLY_PART_H
#define CAY_STORE_APPLY_PART_H

#include "store/diff.h"
#include <jansson.h>

struct plan;

/** struct apply_part - what is named, and what is known of all else. Zero-initialised and without apply_part_init(): everything is named. */
struct apply_part {
	json_t *named;  /* {path: has it named a change?}; NULL: everything is */
	json_t *above;  /* {path: true}: directories above what is named */
	const char *at; /* of the tree at hand: where the sandbox has it; borrowed */
	json_t *shown; /* of the tree at hand: {inode of the host's: path at which the sandbox shows it, as a change that is not named} */
	json_t *origins; /* of the tree at hand: {inode of the host's: [handle]} of files that such changes were copied up from */
	json_t *taken;   /* [handle] of those of @origins that the steps take away */
	json_int_t left; /* changes that are not named, */
	json_t *left_at; /* {path: true}: where they are, and all above */
	char *dir;       /* the directory of the change looked at last, */
	ino_t dir_ino;   /* and the inode of the host's; 0: there is none */
};

/** apply_part_init() - @paths: array of clean absolute paths; NULL: everything. Return: 0, or negative with @err set. */
int apply_part_init(struct apply_part *part, const json_t *paths, struct err *err) attr_must_use;

/** apply_part_free() - release. */
void apply_part_free(struct apply_part *part);

/** apply_part_begin() - the next tree, which the sandbox has at @at. */
void apply_part_begin(struct apply_part *part, const char *at);

/** apply_part_names() - is @path, relative to the tree at hand, named, or below what is? */
bool apply_part_names(struct apply_part *part, const char *path);

/** apply_part_has() - is @c brought: is it named, or a directory without which what is named cannot be there? */
bool apply_part_has(struct apply_part *part, const struct change *c);

/** apply_part_is_whole() - is the directory @path of the tree at hand on the host as the sandbox has it, once the changes that are brought are there? */
bool apply_part_is_whole(const struct apply_part *part, const char *path);

/** apply_part_leave() - @c is not brought: note what of the host it shows or came from. */
void apply_part_leave(struct plan *p, const struct change *c);

/**
 * apply_part_end() - behind all changes of the tree at hand: a step that takes away or changes what a change that is not brought shows is a conflict, for that would be nowhere any more. Fills @taken.
 */
void apply_part_end(struct plan *p);

/** apply_part_check() - behind all trees: has each path named something? Return: 0, or negative with @err set. */
int apply_part_check(const struct apply_part *part, struct err *err) attr_must_use;

#endif
