/* SPDX-License-Identifier: Apache-2.0 */
#include "store/origin.h"
#include "base/str.h"
#include "store/tree.h"

#include <fcntl.h>
#include <sys/xattr.h>

#define MAGIC 0xfb

ssize_t origin_get(const char *prefix, int dir, const char *name, struct origin *ret)
{
	char xattr[64];

	(void)snprintf(xattr, sizeof(xattr), "%sorigin", prefix);
	return tree_xattr_get(dir, name, xattr, ret, sizeof(*ret));
}

ssize_t origin_size(const struct origin *o, ssize_t n)
{
	if (n < (ssize_t)offsetof(struct origin, fid) || o->magic != MAGIC || o->len != n)
		return -ENODATA;
	return n - (ssize_t)offsetof(struct origin, fid);
}

int origin_open(int mount, const struct origin *o, size_t n)
{
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + 128];
	} u = { .h = { .handle_bytes = (unsigned int)n, .handle_type = o->type } };
	int fd;

	memcpy(u.h.f_handle, o->fid, n);
	fd = open_by_handle_at(mount, &u.h, O_PATH | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int origin_stat(int mount, const struct origin *o, size_t n, struct stat *ret)
{
	cleanup_fd int fd = origin_open(mount, o, n);

	if (fd < 0)
		return fd == -ESTALE ? 0 : fd;
	return fstat(fd, ret) == 0 && ret->st_nlink > 0;
}

bool origin_opens(int mount, const struct origin *o, size_t n)
{
	struct stat st;

	return origin_stat(mount, o, n, &st) != 0;
}

ssize_t origin_above(
	int pool, const char *prefix, const struct origin *o, size_t n, struct origin *ret)
{
	cleanup_fd int fd = origin_open(pool, o, n);
	char xattr[64], path[64];

	if (fd < 0)
		return fd;
	(void)snprintf(xattr, sizeof(xattr), "%sorigin", prefix);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return origin_size(ret, getxattr(path, xattr, ret, sizeof(*ret)));
}

ssize_t origin_first(
	int pool, const char *prefix, int dir, const char *name, size_t max, struct origin *ret)
{
	ssize_t n = origin_size(ret, origin_get(prefix, dir, name, ret)), above;

	for (size_t i = 0; n >= 0 && i < max; i++) {
		struct origin o;

		above = origin_above(pool, prefix, ret, (size_t)n, &o);
		if (above < 0)
			break;
		*ret = o;
		n = above;
	}
	return n;
}

char *origin_text(const struct origin *o, size_t n)
{
	cleanup_buf struct buf out = BUF_INIT(1U << 10);

	buf_fmt(&out, "%02x", o->type);
	for (size_t i = 0; i < n; i++)
		buf_fmt(&out, "%02x", o->fid[i]);
	return str_dup(buf_cstr(&out));
}
