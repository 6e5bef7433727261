/* SPDX-License-Identifier: Apache-2.0 */
#include "store/tree.h"
#include "base/str.h"
#include "sys/btrfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/xattr.h>

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW)

/* Beyond this depth a directory is moved up to the top, so that no tree needs more descriptors than this. */
#define REMOVE_DEPTH 64

struct remover {
	int top;
	unsigned long lifted;
	unsigned long removed;
};

static bool is_dot(const char *name)
{
	return str_eq(name, ".") || str_eq(name, "..");
}

static int remove_entry(struct remover *r, int dirfd, const char *name, int depth);

static int remove_children(struct remover *r, int fd, int depth)
{
	int again = openat(fd, ".", OPEN_DIR | O_CLOEXEC), rc = 0;
	DIR *dir = again < 0 ? NULL : fdopendir(again);
	struct dirent *e;

	if (dir == NULL)
		return -errno;
	while (rc == 0 && (e = readdir(dir)) != NULL) {
		if (!is_dot(e->d_name))
			rc = remove_entry(r, fd, e->d_name, depth);
	}
	(void)closedir(dir);
	return rc;
}

static int lift(struct remover *r, int dirfd, const char *name)
{
	char up[64];

	for (;;) {
		(void)snprintf(up, sizeof(up), ".lifted-%lu", r->lifted++);
		if (faccessat(r->top, up, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		return renameat(dirfd, name, r->top, up) < 0 ? -errno : 0;
	}
}

static int remove_dir(struct remover *r, int dirfd, const char *name, int depth)
{
	cleanup_fd int fd = openat(dirfd, name, OPEN_DIR | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (btrfs_subvolume_is(fd) && btrfs_subvolume_remove(dirfd, name) == 0) {
		r->removed++;
		return 0;
	}
	if (r->top >= 0 && depth >= REMOVE_DEPTH)
		return lift(r, dirfd, name);
	rc = remove_children(r, fd, depth + 1);
	/* What was moved to the top, or made by readdir's blindness to moves, needs another round. */
	for (int round = 0; rc == 0 && unlinkat(dirfd, name, AT_REMOVEDIR) < 0; round++) {
		if (errno != ENOTEMPTY || round == 1000000)
			return -errno;
		rc = remove_children(r, fd, depth + 1);
	}
	r->removed++;
	return rc;
}

static int remove_entry(struct remover *r, int dirfd, const char *name, int depth)
{
	if (unlinkat(dirfd, name, 0) == 0) {
		r->removed++;
		return 0;
	}
	if (errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	return remove_dir(r, dirfd, name, depth);
}

int tree_remove(int dirfd, const char *name)
{
	cleanup_fd int fd = openat(dirfd, name, OPEN_DIR | O_CLOEXEC);
	struct remover r = { .top = fd };

	if (fd < 0 && errno == ENOENT)
		return 0;
	return remove_entry(&r, dirfd, name, 0);
}

int tree_remove_content(int dirfd, const char *name)
{
	cleanup_fd int fd = openat(dirfd, name, OPEN_DIR | O_CLOEXEC);
	cleanup_names struct tree_names names = { 0 };
	int rc;

	if (fd < 0)
		return -errno;
	rc = tree_names(fd, &names);
	for (size_t i = 0; rc == 0 && i < names.n; i++)
		rc = tree_remove(fd, names.names[i]);
	return rc < 0 ? rc : (int)names.n;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void tree_names_add(struct tree_names *names, const char *name)
{
	if ((names->n & (names->n - 1)) == 0) {
		size_t cap = names->n == 0 ? 1 : 2 * names->n;
		char **bigger = reallocarray(names->names, cap, sizeof(*bigger));

		if (bigger == NULL)
			abort();
		names->names = bigger;
	}
	names->names[names->n++] = str_dup(name);
}

void tree_names_sort(struct tree_names *names)
{
	size_t kept = 0;

	if (names->n == 0)
		return;
	qsort(names->names, names->n, sizeof(*names->names), by_name);
	for (size_t i = 1; i < names->n; i++) {
		if (str_eq(names->names[i], names->names[kept]))
			free(names->names[i]);
		else
			names->names[++kept] = names->names[i];
	}
	/* only the count that is a power of two or below decides when memory grows: keep that true */
	names->n = kept + 1;
	names->names = reallocarray(names->names, 2 * names->n, sizeof(*names->names));
	if (names->names == NULL)
		abort();
}

void tree_names_free(struct tree_names *names)
{
	if (names == NULL)
		return;
	for (size_t i = 0; i < names->n; i++)
		free(names->names[i]);
	free(names->names);
	*names = (struct tree_names){ 0 };
}

int tree_names(int fd, struct tree_names *ret)
{
	int again = openat(fd, ".", OPEN_DIR | O_CLOEXEC), rc = 0;
	DIR *dir = again < 0 ? NULL : fdopendir(again);
	struct dirent *e;

	if (dir == NULL)
		return -errno;
	for (;;) {
		errno = 0;
		e = readdir(dir);
		if (e == NULL)
			break;
		if (!is_dot(e->d_name))
			tree_names_add(ret, e->d_name);
	}
	rc = -errno;
	(void)closedir(dir);
	tree_names_sort(ret);
	return rc;
}

/* Extended attributes of links and special files have no descriptor calls: go through the directory's descriptor. */
static int entry_path(char *path, size_t size, int dirfd, const char *name)
{
	int n = snprintf(path, size, "/proc/self/fd/%d/%s", dirfd, name);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

#define ENTRY_PATH_SIZE (NAME_MAX + 64)

static int xattr_add(struct buf *data, const char *path, const char *name)
{
	char value[65536];
	ssize_t n = lgetxattr(path, name, value, sizeof(value));
	uint32_t size = (uint32_t)n;

	if (n < 0)
		return errno == ENODATA ? 0 : -errno;
	buf_add(data, name, strlen(name) + 1);
	buf_add(data, &size, sizeof(size));
	buf_add(data, value, size);
	return buf_failed(data) ? -E2BIG : 0;
}

int tree_xattr_names(int dirfd, const char *name, const char *skip, struct tree_names *ret)
{
	char path[ENTRY_PATH_SIZE], list[65536];
	int rc = entry_path(path, sizeof(path), dirfd, name);
	ssize_t n;

	if (rc < 0)
		return rc;
	n = llistxattr(path, list, sizeof(list));
	if (n < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (const char *p = list; p < list + n; p += strlen(p) + 1) {
		if (skip == NULL || !str_starts(p, skip))
			tree_names_add(ret, p);
	}
	tree_names_sort(ret);
	return 0;
}

static bool same_xattr(int a, const char *name_a, int b, const char *name_b, const char *xattr)
{
	static char one[65536], two[65536];
	ssize_t n = tree_xattr_get(a, name_a, xattr, one, sizeof(one));

	return n >= 0 && n == tree_xattr_get(b, name_b, xattr, two, sizeof(two)) &&
	       memcmp(one, two, (size_t)n) == 0;
}

int tree_xattrs_same(int a, const char *name_a, int b, const char *name_b, const char *skip)
{
	cleanup_names struct tree_names one = { 0 }, two = { 0 };
	int rc = tree_xattr_names(a, name_a, skip, &one);
	bool same;

	if (rc == 0)
		rc = tree_xattr_names(b, name_b, skip, &two);
	if (rc < 0) /* E2BIG: nobody can list so many */
		return rc == -E2BIG ? 0 : rc;
	same = one.n == two.n;
	for (size_t i = 0; same && i < one.n; i++)
		same = str_eq(one.names[i], two.names[i]) &&
		       same_xattr(a, name_a, b, name_b, one.names[i]);
	return same;
}

int tree_xattrs_copy(int from, const char *name, int to, const char *to_name)
{
	static char value[65536];
	cleanup_names struct tree_names names = { 0 };
	int rc = tree_xattr_names(from, name, NULL, &names);

	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		ssize_t n = tree_xattr_get(from, name, names.names[i], value, sizeof(value));

		if (n >= 0)
			rc = tree_xattr_set(to, to_name, names.names[i], value, (size_t)n);
		else if (n != -ENODATA)
			rc = (int)n;
	}
	return rc;
}

int tree_xattrs_read(int dirfd, const char *name, const char *skip, struct tree_xattrs *ret)
{
	cleanup_names struct tree_names names = { 0 };
	char path[ENTRY_PATH_SIZE];
	int rc = entry_path(path, sizeof(path), dirfd, name);

	if (rc == 0)
		rc = tree_xattr_names(dirfd, name, skip, &names);
	ret->data.max = TREE_XATTRS_MAX;
	for (size_t i = 0; rc == 0 && i < names.n; i++)
		rc = xattr_add(&ret->data, path, names.names[i]);
	return rc;
}

int tree_xattrs_drop(int fd)
{
	char list[65536];
	ssize_t n = flistxattr(fd, list, sizeof(list));

	if (n < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (const char *p = list; p < list + n; p += strlen(p) + 1) {
		if (fremovexattr(fd, p) < 0 && errno != ENODATA)
			return -errno;
	}
	return 0;
}

bool tree_xattrs_next(const struct tree_xattrs *xattrs, size_t *at, const char **name,
	const void **value, size_t *size)
{
	const char *p = buf_cstr(&xattrs->data) + *at;
	uint32_t n;

	if (*at >= xattrs->data.n)
		return false;
	*name = p;
	p += strlen(p) + 1;
	memcpy(&n, p, sizeof(n));
	*value = p + sizeof(n);
	*size = n;
	*at = (size_t)(p + sizeof(n) + n - buf_cstr(&xattrs->data));
	return true;
}

int tree_xattrs_write(int dirfd, const char *name, const struct tree_xattrs *xattrs)
{
	const char *xattr;
	const void *value;
	size_t at = 0, size;
	int rc = 0;

	while (rc == 0 && tree_xattrs_next(xattrs, &at, &xattr, &value, &size))
		rc = tree_xattr_set(dirfd, name, xattr, value, size);
	return rc;
}

void tree_xattrs_free(struct tree_xattrs *xattrs)
{
	if (xattrs != NULL)
		buf_free(&xattrs->data);
}

ssize_t tree_xattr_get(int dirfd, const char *name, const char *xattr, void *buf, size_t size)
{
	char path[ENTRY_PATH_SIZE];
	int rc = entry_path(path, sizeof(path), dirfd, name);
	ssize_t n;

	if (rc < 0)
		return rc;
	n = lgetxattr(path, xattr, buf, size);
	if (n < 0)
		return errno == EOPNOTSUPP ? -ENODATA : -errno;
	return n;
}

/* An access list (linux/posix_acl_xattr.h) without the users and groups that have no number in our namespace, which the kernel takes from nobody: the others may what they might. Return: its size. */
static size_t acl_of_nameable(const char *acl, size_t size, char *ret)
{
	size_t n = sizeof(struct posix_acl_xattr_header);

	if (size < n)
		return 0;
	memcpy(ret, acl, n);
	for (size_t at = n; at + sizeof(struct posix_acl_xattr_entry) <= size;
		at += sizeof(struct posix_acl_xattr_entry)) {
		struct posix_acl_xattr_entry e;

		memcpy(&e, acl + at, sizeof(e));
		if ((e.e_tag == ACL_USER || e.e_tag == ACL_GROUP) && e.e_id == UINT32_MAX)
			continue;
		memcpy(ret + n, &e, sizeof(e));
		n += sizeof(e);
	}
	return n;
}

/* Of @path; NULL: of what is behind @fd. */
static int xattr_put(const char *path, int fd, const char *xattr, const void *value, size_t size)
{
	int rc = path != NULL ? lsetxattr(path, xattr, value, size, 0)
			      : fsetxattr(fd, xattr, value, size, 0);

	return rc < 0 ? -errno : 0;
}

static int xattr_set(const char *path, int fd, const char *xattr, const void *value, size_t size)
{
	int rc = xattr_put(path, fd, xattr, value, size);

	if (rc == -EINVAL && str_starts(xattr, "system.posix_acl_")) {
		cleanup_free char *acl = xalloc(size + 1);

		size = acl_of_nameable(value, size, acl);
		rc = xattr_put(path, fd, xattr, acl, size);
	}
	return rc;
}

int tree_xattr_set(int dirfd, const char *name, const char *xattr, const void *value, size_t size)
{
	char path[ENTRY_PATH_SIZE];
	int rc = entry_path(path, sizeof(path), dirfd, name);

	return rc < 0 ? rc : xattr_set(path, -1, xattr, value, size);
}

int tree_xattr_set_fd(int fd, const char *xattr, const void *value, size_t size)
{
	return xattr_set(NULL, fd, xattr, value, size);
}

typedef int visit_fn(int dirfd, const char *name, const struct stat *st, int child, void *arg);

/* @visit sees every entry after what is below it; @child is an open directory or -1. */
static int walk(int fd, int depth, visit_fn *visit, void *arg)
{
	cleanup_names struct tree_names names = { 0 };
	int rc = depth > TREE_DEPTH_MAX ? -ELOOP : tree_names(fd, &names);

	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		cleanup_fd int child = -1;
		struct stat st;

		if (fstatat(fd, names.names[i], &st, AT_SYMLINK_NOFOLLOW) < 0) {
			rc = errno == ENOENT ? 0 : -errno;
			continue;
		}
		if (S_ISDIR(st.st_mode)) {
			child = openat(fd, names.names[i], OPEN_DIR | O_CLOEXEC);
			rc = child < 0 ? -errno : walk(child, depth + 1, visit, arg);
		}
		if (rc == 0)
			rc = visit(fd, names.names[i], &st, child, arg);
	}
	return rc;
}

static int count_one(attr_unused int dirfd, attr_unused const char *name, const struct stat *st,
	attr_unused int child, void *arg)
{
	struct tree_count *count = arg;

	count->entries++;
	count->files += S_ISREG(st->st_mode) ? 1 : 0;
	count->bytes += (uint64_t)st->st_blocks * 512;
	return count->limit != 0 && count->entries > count->limit ? -EOVERFLOW : 0;
}

int tree_count(int dirfd, struct tree_count *count)
{
	return walk(dirfd, 0, count_one, count);
}

static int sync_one(
	int dirfd, const char *name, const struct stat *st, int child, attr_unused void *arg)
{
	cleanup_fd int fd = -1;

	if (child >= 0)
		return fsync(child) < 0 ? -errno : 0;
	if (!S_ISREG(st->st_mode))
		return 0;
	fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int tree_sync(int dirfd)
{
	int rc = walk(dirfd, 0, sync_one, NULL);

	if (rc == 0 && fsync(dirfd) < 0)
		rc = -errno;
	return rc;
}

const char *tree_type_name(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "directory";
	case S_IFLNK:
		return "symlink";
	case S_IFCHR:
		return "char";
	case S_IFBLK:
		return "block";
	case S_IFIFO:
		return "fifo";
	default:
		return "socket";
	}
}
