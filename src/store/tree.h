/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/tree.h - whole directory trees: remove, count, attributes of entries.
 *
 * Trees hold whatever a payload made: names of any bytes, depths beyond PATH_MAX, symbolic links to anywhere. Everything goes by (directory, name) and never
 * follows a link.
 */
#ifndef CAY_STORE_TREE_H
#define CAY_STORE_TREE_H

#include "store/store.h"
#include <sys/stat.h>

/** Deeper trees are refused with %ERR_LIMIT where a walk keeps a descriptor per level. */
#define TREE_DEPTH_MAX 2000

/** tree_remove() - remove @dirfd/@name and all below, of any depth; subvolumes too. A missing one is fine. Return: 0 or -errno. */
int tree_remove(int dirfd, const char *name) attr_must_use;

/** tree_remove_content() - remove all entries of @dirfd/@name but not itself. Return: how many, or -errno. */
int tree_remove_content(int dirfd, const char *name) attr_must_use;

/** struct tree_names - entries of a directory without "." and "..", sorted by bytes. Release with tree_names_free(). */
struct tree_names {
	char **names;
	size_t n;
};

#define cleanup_names cleanup(tree_names_free)

/** tree_names() - list the directory behind @fd (its position is not kept). Return: 0 or -errno. */
int tree_names(int fd, struct tree_names *ret) attr_must_use;

/** tree_names_add() - append a copy of @name; sort afterwards with tree_names_sort(), which drops doubles. */
void tree_names_add(struct tree_names *names, const char *name);

/** tree_names_sort() - sort and drop doubles. */
void tree_names_sort(struct tree_names *names);

/** tree_names_free() - release; NULL is fine. */
void tree_names_free(struct tree_names *names);

/**
 * tree_xattr_names() - names of the extended attributes of (@dirfd, @name), sorted; a link itself, never its target.
 * @skip: names that begin so are left out; NULL = none.
 * Return: 0; -E2BIG when they are more than the kernel lists (64 KiB); other -errno.
 */
int tree_xattr_names(
	int dirfd, const char *name, const char *skip, struct tree_names *ret) attr_must_use;

/** tree_xattrs_same() - have (@a, @name_a) and (@b, @name_b) the same attributes, but for those that begin with @skip? However many. Return: 1, 0 (also when they cannot be listed) or -errno. */
int tree_xattrs_same(
	int a, const char *name_a, int b, const char *name_b, const char *skip) attr_must_use;

/** tree_xattrs_copy() - all attributes of (@from, @name) to (@to, @to_name), however many. */
int tree_xattrs_copy(int from, const char *name, int to, const char *to_name) attr_must_use;

/** struct tree_xattrs - extended attributes: name, NUL, u32 length, value; repeated, sorted by name. */
struct tree_xattrs {
	struct buf data;
};

/** TREE_XATTRS_MAX - more bytes of attributes on one file are refused. */
#define TREE_XATTRS_MAX (1U << 20)

/**
 * tree_xattrs_read() - all extended attributes of (@dirfd, @name); a link itself, never its target.
 * @skip: attributes whose name starts so are left out; NULL = none.
 * @ret: zero-initialised; release with tree_xattrs_free().
 */
int tree_xattrs_read(
	int dirfd, const char *name, const char *skip, struct tree_xattrs *ret) attr_must_use;

/** tree_xattrs_write() - set them all on (@dirfd, @name). */
int tree_xattrs_write(int dirfd, const char *name, const struct tree_xattrs *xattrs) attr_must_use;

/** tree_xattrs_drop() - remove all extended attributes of the directory or file behind @fd. */
int tree_xattrs_drop(int fd) attr_must_use;

/** tree_xattrs_next() - iterate: start with *@at 0. Return: false at the end. */
bool tree_xattrs_next(const struct tree_xattrs *xattrs, size_t *at, const char **name,
	const void **value, size_t *size);

/** tree_xattrs_free() - release; NULL is fine. */
void tree_xattrs_free(struct tree_xattrs *xattrs);

/** tree_xattr_get() - one attribute of (@dirfd, @name) into @buf. Return: its length, -ENODATA, other -errno. */
ssize_t tree_xattr_get(
	int dirfd, const char *name, const char *xattr, void *buf, size_t size) attr_must_use;

/** tree_xattr_set() - set one attribute of (@dirfd, @name). */
int tree_xattr_set(int dirfd, const char *name, const char *xattr, const void *value,
	size_t size) attr_must_use;

/** tree_xattr_set_fd() - the same of what is open as @fd, which is not O_PATH. */
int tree_xattr_set_fd(int fd, const char *xattr, const void *value, size_t size) attr_must_use;

/** struct tree_count - what a tree holds. */
struct tree_count {
	uint64_t entries;
	uint64_t files; /* regular */
	uint64_t bytes; /* allocated; hard links once per link */
	uint64_t limit; /* stop with -EOVERFLOW beyond so many entries; 0 = never */
};

/** tree_count() - count what is below @dirfd (not itself). Return: 0, -ELOOP when it is deeper than %TREE_DEPTH_MAX, -errno. */
int tree_count(int dirfd, struct tree_count *count) attr_must_use;

/** tree_type_name() - "file", "directory", "symlink", "char", "block", "fifo" or "socket"; static. */
const char *tree_type_name(mode_t mode);

/** tree_sync() - fsync every regular file and directory below and including @dirfd. Return: 0 or -errno. */
int tree_sync(int dirfd) attr_must_use;

#endif
