/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/follow.c - see the header.
 *
 * Overlay notes in a directory that was renamed where its lower part lies (`redirect`). An apply brings what is there to the new place and removes the old one: the directory would be empty, or, where
 * something else is at the old name now, show that. The new place is therefore noted instead, as an absolute path: so it counts below a directory that is new (opaque), too. The handle of what it was copied up
 * from (`origin`) becomes that of what is there, because the other is no more (applyjob.c: is_another()); so it does in the directories that were moved with it.
 */
#include "store/follow.h"
#include "base/str.h"
#include "sys/raw.h"

#include <sys/xattr.h>

#define INSIDE (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV)

struct walk {
	const struct stack *a;
	bool (*is_whole)(void *arg, const char *path);
	void *arg;
	char redirect[64], origin[64], opaque[64]; /* names of attributes */
	char path[PATH_MAX]; /* of the directory at hand, with a slash before each name */
	size_t n;
};

bool follow_can(const struct stack *a)
{
	return a->n == 2 && a->layers[0].captured_ns == UINT64_MAX;
}

/* What the attribute `origin` begins with, before the handle (fs/overlayfs/overlayfs.h, struct ovl_fb); it stays, since the file system does. */
#define ORIGIN_HEAD 21
#define ORIGIN_LEN  2 /* where it says how long it is, */
#define ORIGIN_TYPE 4 /* and of which type the handle is */

/* Return: a descriptor of what the host has there, or negative. */
static int on_host(const struct walk *w)
{
	return raw_openat2(w->a->layers[w->a->n - 1].root, w->path + 1,
		O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, INSIDE);
}

/* The handle of @host in the place of the one that is gone, as if @dir had been copied up from there; none where that cannot be said. */
static int renew_origin(const struct walk *w, int dir, int host)
{
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} u = { .h = { .handle_bytes = MAX_HANDLE_SZ } };
	unsigned char origin[ORIGIN_HEAD + MAX_HANDLE_SZ];
	ssize_t n = tree_xattr_get(dir, ".", w->origin, origin, sizeof(origin));
	int mount;

	if (n == -ENODATA)
		return 0;
	if (n < ORIGIN_HEAD || name_to_handle_at(host, "", &u.h, &mount, AT_EMPTY_PATH) < 0)
		return fremovexattr(dir, w->origin) < 0 && errno != ENODATA ? -errno : 0;
	origin[ORIGIN_LEN] = (unsigned char)(ORIGIN_HEAD + u.h.handle_bytes);
	origin[ORIGIN_TYPE] = (unsigned char)u.h.handle_type;
	memcpy(origin + ORIGIN_HEAD, u.h.f_handle, u.h.handle_bytes);
	return tree_xattr_set(dir, ".", w->origin, origin, ORIGIN_HEAD + (size_t)u.h.handle_bytes);
}

static bool is_opaque(const struct walk *w, int dir)
{
	char value[8];

	return tree_xattr_get(dir, ".", w->opaque, value, sizeof(value)) == 1 && value[0] == 'y';
}

/* @moved: is it in a directory that was moved? So is it itself, then, unless it shows nothing of the host. One that was not applied shows what it showed. */
static int follow_one(const struct walk *w, int dir, bool *moved)
{
	char was[PATH_MAX];
	bool renamed = tree_xattr_get(dir, ".", w->redirect, was, sizeof(was)) >= 0;
	bool here = !renamed || w->is_whole(w->arg, w->path + 1);
	cleanup_fd int host = -1;
	int rc = 0;

	*moved = here && (renamed || (*moved && !is_opaque(w, dir)));
	host = *moved ? on_host(w) : -1;
	if (host < 0)
		return 0;
	if (renamed)
		rc = tree_xattr_set(dir, ".", w->redirect, w->path, w->n);
	return rc < 0 ? rc : renew_origin(w, dir, host);
}

static int follow_below(struct walk *w, int dir, bool moved);

static int follow_entry(struct walk *w, int dir, const char *name, bool moved)
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
	rc = follow_one(w, fd, &moved);
	if (rc == 0)
		rc = follow_below(w, fd, moved);
	w->n = before;
	w->path[before] = '\0';
	return rc;
}

static int follow_below(struct walk *w, int dir, bool moved)
{
	cleanup_names struct tree_names names = { 0 };
	int rc = tree_names(dir, &names);

	for (size_t i = 0; rc == 0 && i < names.n; i++)
		rc = follow_entry(w, dir, names.names[i], moved);
	return rc;
}

int follow_renames(const struct stack *a, bool (*is_whole)(void *arg, const char *path), void *arg)
{
	struct walk w = { .a = a, .is_whole = is_whole, .arg = arg };

	(void)snprintf(w.redirect, sizeof(w.redirect), "%sredirect", a->xattr);
	(void)snprintf(w.origin, sizeof(w.origin), "%sorigin", a->xattr);
	(void)snprintf(w.opaque, sizeof(w.opaque), "%sopaque", a->xattr);
	return follow_below(&w, a->layers[0].root, false);
}
