/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/stack.h - what overlayfs would show for a list of layer directories, found without mounting (whiteouts, opaque and redirected directories).
 *
 * Source of the rules: Linux Documentation/filesystems/overlayfs.rst and fs/overlayfs/namei.c (ovl_lookup).
 */
#ifndef CAY_STORE_STACK_H
#define CAY_STORE_STACK_H

#include "store/tree.h"
#include <jansson.h>

#define STACK_MAX 512

/** struct stack - opened layers, top first. Release with stack_close(). */
struct stack {
	size_t n;
	struct stack_layer {
		int root;
		char *path;
		uint64_t
			captured_ns; /* when its content was taken from the live directory of @lineage; UINT64_MAX = it is that directory */
		char lineage
			[24]; /* sandbox whose live subvolume it is or snapshots; "" = none or a copy */
		bool alone;  /* file systems that are mounted in it do not count */
		bool births; /* birth times of entries are those in the sandbox */
	} * layers;
	const char *xattr; /* prefix of overlay's own attributes */
};

/** struct merged - one directory as the overlay shows it: the directories it consists of, top first. Zero-initialise; merged_close(). */
struct merged {
	size_t n;
	struct merged_part {
		size_t layer;
		int fd;
	} * parts;
};

enum found_kind { FOUND_NONE, FOUND_FILE, FOUND_DIR };

/** struct found - what a name means in a merged directory. Release with found_close(). */
struct found {
	enum found_kind kind;
	struct stat st; /* of the entry, or of the top directory */
	size_t layer;   /* of the entry, the top directory, or the whiteout */
	int dir; /* directory that holds the entry or the whiteout: borrowed from the parent, or @own; -1 when nothing does */
	char name[NAME_MAX + 1]; /* its name there */
	bool whiteout;           /* %FOUND_NONE because of a whiteout */
	struct merged merged;    /* %FOUND_DIR */
	bool last; /* layers below the stack would not count: opaque, or covered by something that is no directory */
	char *redirect; /* %FOUND_DIR that is not @last: where layers below the stack would be looked into instead; NULL = at the same name */
};

/** stack_open() - open @paths (a JSON array of absolute directories, top first). */
int stack_open(struct stack *stack, const struct store *store, const json_t *paths,
	struct err *err) attr_must_use;

/** stack_close() - release; a zero-initialised one is fine. */
void stack_close(struct stack *stack);

/** stack_root() - the merged root. */
int stack_root(const struct stack *stack, struct merged *ret) attr_must_use;

/** stack_lookup() - what is @name in directory @dir? Return: 0 (also for %FOUND_NONE) or -errno. */
int stack_lookup(const struct stack *stack, const struct merged *dir, const char *name,
	struct found *ret) attr_must_use;

/** stack_list() - add all names that any of the parts [@from, @to) of @dir has, whiteouts too. Unsorted. */
int stack_list(
	const struct merged *dir, size_t from, size_t to, struct tree_names *names) attr_must_use;

/** found_at() - the descriptor and name by which the attributes of @f can be read. */
static inline int found_at(const struct found *f, const char **name)
{
	*name = f->kind == FOUND_DIR ? "." : f->name;
	return f->kind == FOUND_DIR ? f->merged.parts[0].fd : f->dir;
}

/** found_dir() - make @ret the directory @dir itself (a copy). Return: 0 or -errno. */
int found_dir(const struct merged *dir, struct found *ret) attr_must_use;

/** merged_close() - release; a zero-initialised one is fine. */
void merged_close(struct merged *m);

/** found_close() - release; a zero-initialised one is fine. */
void found_close(struct found *f);

#endif
