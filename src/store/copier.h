/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/copier.h - copy a tree that changes meanwhile, in two passes: the second, with the writers stopped, redoes what the first one got wrong.
 *
 * Kept: types, modes, owners, times, all extended attributes, hard links, holes, whiteouts, symbolic links, FIFOs, sockets.
 */
#ifndef CAY_STORE_COPIER_H
#define CAY_STORE_COPIER_H

#include "store/mapped.h"

struct copier;

/** struct copier_seen - what a file was when it was copied. */
struct copier_seen {
	uint64_t ino, size;
	int64_t ctime_ns, mtime_ns;
	int64_t copied_ns; /* wall time just before the copy */
	uint32_t mode, links;
};

/**
 * copier_new() - a copier from directory @from to the empty directory @to (both borrowed). Make it before you look for the first time which files are mapped.
 * @clone: try FICLONE before copying bytes.
 * @prefix: path of @from inside the sandbox ("" for the root), for @mapped.
 */
struct copier *copier_new(int from, int to, bool clone, const char *prefix) attr_must_use;

/**
 * copier_previous() - unchanged files may be taken from directory @previous (borrowed, of the file system that is copied to), which holds what the index file behind @index says. One that is not
 * whole (a power cut) says nothing.
 * @clone: they share their blocks (FICLONE); else they are one more name of the file, which whoever uses the copies sees in st_nlink and ctime.
 */
void copier_previous(struct copier *c, int previous, bool clone, FILE *index);

/**
 * copier_pass() - copy what is missing or changed, remove what is gone.
 * @mapped: files that count as changed; NULL = none.
 */
int copier_pass(struct copier *c, const struct tree_names *mapped, struct err *err) attr_must_use;

/** copier_save() - write what was seen, for the copier_previous() of the next capture. */
int copier_save(const struct copier *c, FILE *index) attr_must_use;

/** copier_free() - release; NULL is fine. */
void copier_free(struct copier *c);

/** copier_freep() - for cleanup(). */
static inline void copier_freep(struct copier **c)
{
	copier_free(*c);
}

/** copier_data() - copy the bytes and holes of regular file @from to the empty @to. Return: 0 or -errno. */
int copier_data(int from, int to, bool clone) attr_must_use;

/** copier_entry() - copy the non-directory @name of @from to @to_name of @to with all attributes but links. 0 or -errno. */
int copier_entry(int from, const char *name, int to, const char *to_name, const struct stat *st,
	bool clone) attr_must_use;

/** copier_attributes() - give (@to, @to_name) owner, mode, attributes and times of (@from, @name). */
int copier_attributes(int from, const char *name, const struct stat *st, int to,
	const char *to_name) attr_must_use;

#endif
