/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/follow.c - see the header.
 *
 * Overlay notes in a directory that was renamed where its lower part lies (`redirect`). An apply brings what is there to the new place and removes the old one: the directory would be empty, or, where
 * something else is at the old name now, show that. The new place is therefore noted instead, as an absolute path: so it counts below a directory that is new (opaque), too. The handle of what it was copied up
 * from (`origin`) goes, because that is no more (applyjob.c: is_another()).
 */
#include "store/follow.h"
#include "base/str.h"
#include "sys/raw.h"

#include <sys/xattr.h>

#define INSIDE (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV)

struct walk {
	const struct stack *a;
	char redirect[64], origin[64]; /* names of attributes */
	char path[PATH_MAX];           /* of the directory at hand, with a slash before each name */
	size_t n;
};

bool follow_can(const struct stack *a)
{
	return a->n == 2 && a->layers[0].captured_ns == UINT64_MAX;
}

static bool is_on_host(const struct walk *w)
{
	cleanup_fd int fd = raw_openat2(w->a->layers[w->a->n - 1].root, w->path + 1,
		O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, INSIDE);

	return fd >= 0;
}

static int follow_one(const struct walk *w, int dir)
{
	char was[PATH_MAX];
	int rc;

	if (tree_xattr_get(dir, ".", w->redirect, was, sizeof(was)) < 0 || !is_on_host(w))
		return 0;
	rc = tree_xattr_set(dir, ".", w->redirect, w->path, w->n);
	if (rc == 0 && fremovexattr(dir, w->origin) < 0 && errno != ENODATA)
		rc = -errno;
	return rc;
}

static int follow_below(struct walk *w, int dir);

static int follow_entry(struct walk *w, int dir, const char *name)
{
	cleanup_fd int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	size_t before = w->n;
	int n, rc;

	if (fd < 0)
		return errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
	n = snprintf(w->path + w->n, sizeof(w->path) - w->n, "/%s", name);
	if ((size_t)n >= sizeof(w->path) - w->n)
		return -ENAMETOOLONG;
	w->n += (size_t)n;
	rc = follow_one(w, fd);
	if (rc == 0)
		rc = follow_below(w, fd);
	w->n = before;
	w->path[before] = '\0';
	return rc;
}

static int follow_below(struct walk *w, int dir)
{
	cleanup_names struct tree_names names = { 0 };
	int rc = tree_names(dir, &names);

	for (size_t i = 0; rc == 0 && i < names.n; i++)
		rc = follow_entry(w, dir, names.names[i]);
	return rc;
}

int follow_renames(const struct stack *a)
{
	struct walk w = { .a = a };

	(void)snprintf(w.redirect, sizeof(w.redirect), "%sredirect", a->xattr);
	(void)snprintf(w.origin, sizeof(w.origin), "%sorigin", a->xattr);
	return follow_below(&w, a->layers[0].root);
}
