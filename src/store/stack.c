/* SPDX-License-Identifier: Apache-2.0 */
#include "store/stack.h"
#include "base/id.h"
#include "base/str.h"
#include "store/disk.h"
#include "store/layer.h"
#include "store/source.h"
#include "sys/btrfs.h"
#include "sys/mount.h"
#include "sys/raw.h"

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW)

/* STATE/pool/live/<id>/N/upper and STATE/pool/layers/<id>/N tell where their content comes from. */
static void layer_origin(struct stack_layer *l, const struct store *store)
{
	cleanup_free char *live = str_dupf("%s/pool/live/", store->path);
	cleanup_free char *layers = str_dupf("%s/pool/layers/", store->path);
	char id[ID_LEN + 1] = "";
	const char *how, *sandbox;
	json_t *manifest;

	if (str_starts(l->path, live)) {
		l->captured_ns = UINT64_MAX;
		l->births = true;
		(void)snprintf(
			l->lineage, sizeof(l->lineage), "%.*s", ID_LEN, l->path + strlen(live));
		return;
	}
	if (!str_starts(l->path, layers))
		return;
	(void)snprintf(id, sizeof(id), "%s", l->path + strlen(layers));
	manifest = layer_manifest_read(store, id, NULL);
	how = json_string_value(json_object_get(manifest, "how"));
	sandbox = json_string_value(json_object_get(manifest, "sandbox"));
	if (how != NULL && sandbox != NULL) {
		l->births = str_eq(how, "snapshot") || str_eq(how, "seal");
		l->captured_ns =
			(uint64_t)json_integer_value(json_object_get(manifest, "captured_ns"));
		if (str_eq(how, "snapshot"))
			(void)snprintf(l->lineage, sizeof(l->lineage), "%.*s", ID_LEN, sandbox);
	}
	json_decref(manifest);
}

/* A mounted directory of the host is one file system; the host's own root is put together of all that is mounted there (rootfs_parts.c), and that of a running sandbox (/proc/PID/root). */
static bool is_alone(const struct store *store, const char *path)
{
	return !str_eq(path, "/") && !str_path_under(path, store->path) &&
	       !str_starts(path, "/proc/");
}

/* A live directory's trees may lie on a disk of its own. */
static int open_layer(const struct store *store, const char *path)
{
	cleanup_free char *lives = str_dupf("%s/pool/live/", store->path);
	char id[ID_LEN + 1], home[64];
	cleanup_fd int live = -1, trees = -1;
	const char *below;

	if (is_alone(store, path))
		return source_open(path);
	if (!str_starts(path, lives) || strlen(path) <= strlen(lives) + ID_LEN)
		return raw_openat2(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, 0);
	(void)snprintf(id, sizeof(id), "%s", path + strlen(lives));
	below = path + strlen(lives) + ID_LEN + 1;
	(void)snprintf(home, sizeof(home), "live/%s", id);
	live = store_dir(store, home);
	trees = live < 0 ? live : disk_open(live, id);
	return trees < 0 ? trees
			 : raw_openat2(trees, below, O_RDONLY | O_DIRECTORY, 0, RESOLVE_BENEATH);
}

int stack_open(struct stack *stack, const struct store *store, const json_t *paths, struct err *err)
{
	const json_t *e;
	size_t i;

	stack->xattr = store_overlay_xattr(store);
	if (!json_is_array(paths) || json_array_size(paths) > STACK_MAX)
		return err_raise(err, ERR_INVALID,
			"a stack is not an array of at most %d directories", STACK_MAX);
	stack->layers = calloc(json_array_size(paths) + 1, sizeof(*stack->layers));
	if (stack->layers == NULL)
		abort();
	json_array_foreach (paths, i, e) {
		struct stack_layer *l = &stack->layers[i];
		const char *path = json_string_value(e);

		if (path == NULL || !str_path_clean(path))
			return err_raise(err, ERR_INVALID,
				"a stack holds something that is no clean absolute path");
		l->root = open_layer(store, path);
		if (l->root < 0)
			return source_refuse("open directory", path, l->root, err);
		stack->n++;
		l->path = str_dup(path);
		l->alone = is_alone(store, path);
		layer_origin(l, store);
	}
	return 0;
}

void stack_close(struct stack *stack)
{
	for (size_t i = 0; i < stack->n; i++) {
		fd_close(&stack->layers[i].root);
		free(stack->layers[i].path);
	}
	free(stack->layers);
	*stack = (struct stack){ 0 };
}

void merged_close(struct merged *m)
{
	for (size_t i = 0; i < m->n; i++)
		fd_close(&m->parts[i].fd);
	free(m->parts);
	*m = (struct merged){ 0 };
}

void found_close(struct found *f)
{
	merged_close(&f->merged);
	free(f->redirect);
}

static void merged_add(struct merged *m, size_t layer, int fd)
{
	m->parts = reallocarray(m->parts, m->n + 1, sizeof(*m->parts));
	if (m->parts == NULL)
		abort();
	m->parts[m->n++] = (struct merged_part){ .layer = layer, .fd = fd };
}

int stack_root(const struct stack *stack, struct merged *ret)
{
	for (size_t i = 0; i < stack->n; i++) {
		int fd = openat(stack->layers[i].root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd < 0)
			return -errno;
		merged_add(ret, i, fd);
	}
	return 0;
}

int found_dir(const struct merged *dir, struct found *ret)
{
	*ret = (struct found){ .kind = FOUND_DIR, .dir = -1 };
	for (size_t i = 0; i < dir->n; i++) {
		int fd = openat(dir->parts[i].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd < 0)
			return -errno;
		merged_add(&ret->merged, dir->parts[i].layer, fd);
	}
	if (dir->n == 0)
		return -ENOENT;
	ret->layer = dir->parts[0].layer;
	return fstat(dir->parts[0].fd, &ret->st) < 0 ? -errno : 0;
}

static bool is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

static bool is_opaque(const struct stack *stack, int fd)
{
	char xattr[64], value[8];

	(void)snprintf(xattr, sizeof(xattr), "%sopaque", stack->xattr);
	return tree_xattr_get(fd, ".", xattr, value, sizeof(value)) == 1 && value[0] == 'y';
}

/* Return: true and the text when the directory says where its lower parts are. */
static bool redirected(const struct stack *stack, int fd, char to[PATH_MAX])
{
	char xattr[64];
	ssize_t n;

	(void)snprintf(xattr, sizeof(xattr), "%sredirect", stack->xattr);
	n = tree_xattr_get(fd, ".", xattr, to, PATH_MAX - 1);
	if (n <= 0)
		return false;
	to[n] = '\0';
	return true;
}

static bool is_mount_root(int fd)
{
	struct statx st;

	return statx(fd, "", AT_EMPTY_PATH, 0, &st) == 0 &&
	       (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* Kept by the kernel for those who look for it, and always empty (fs/proc/proc_tty.c). */
static int open_empty(void)
{
	int fd = open("/proc/tty/ldisc", OPEN_DIR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/*
 * As overlay does, see no file system that is mounted there: what is below it is reached through another mount of @dirfd, without those on top. Rootless nobody can get there: then
 * it has nothing in it, for what is on top was never seen inside either. @st: what it is, corrected; NULL = not wanted.
 */
static int open_dir(
	const struct stack *stack, size_t layer, int dirfd, const char *name, struct stat *st)
{
	cleanup_fd int fd = openat(dirfd, name, OPEN_DIR | O_CLOEXEC), bare = -1;
	int below;

	if (fd < 0)
		return -errno;
	if (!stack->layers[layer].alone || !is_mount_root(fd))
		return TAKE_FD(fd);
	bare = mount_clone_fd(dirfd, false);
	if (bare < 0)
		return open_empty();
	below = openat(bare, name, OPEN_DIR | O_CLOEXEC);
	if (below < 0)
		return -errno;
	if (st != NULL)
		(void)fstat(below, st);
	return below;
}

enum look { LOOK_ON, LOOK_STOP };

/* One layer's contribution: what is @name in @dirfd of @layer? @redirect is set when the directory found has one. */
static int look_at(const struct stack *stack, size_t layer, int dirfd, const char *name,
	struct found *f, char redirect[PATH_MAX], enum look *look)
{
	struct stat st;
	int fd;

	*look = LOOK_ON;
	redirect[0] = '\0';
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	if (!S_ISDIR(st.st_mode))
		*look = LOOK_STOP;
	if (f->merged.n == 0) {
		f->st = st;
		f->layer = layer;
		f->dir = dirfd;
		(void)snprintf(f->name, sizeof(f->name), "%s", name);
		f->whiteout = is_whiteout(&st);
		f->kind = f->whiteout ? FOUND_NONE : S_ISDIR(st.st_mode) ? FOUND_DIR : FOUND_FILE;
	}
	if (!S_ISDIR(st.st_mode))
		return 0;
	fd = open_dir(stack, layer, dirfd, name, f->merged.n == 0 ? &f->st : NULL);
	if (fd < 0)
		return fd;
	merged_add(&f->merged, layer, fd);
	if (is_opaque(stack, fd))
		*look = LOOK_STOP;
	else
		(void)redirected(stack, fd, redirect);
	return 0;
}

/* Lower layers have what is in the directory that @path without its last @rest bytes names at @to: a name beside it, or an absolute path. */
static int turn(char path[PATH_MAX], size_t rest, const char *to)
{
	size_t end = strlen(path) - rest, from = end;
	cleanup_free char *turned = NULL;

	while (from > 0 && (to[0] == '/' || path[from - 1] != '/'))
		from--;
	turned = str_dupf("%.*s%s%s", (int)from, path, to, path + end);
	return str_copy(path, PATH_MAX, turned) < 0 ? -ENAMETOOLONG : 0;
}

/* A directory on the way to another one. Return: 1 with @fd, 0 when it is not there, -errno; @to is as @redirect of look_at(). */
static int step_into(const struct stack *stack, size_t layer, int dirfd, const char *name, int *fd,
	char to[PATH_MAX], enum look *look)
{
	struct stat st;

	to[0] = '\0';
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISDIR(st.st_mode)) {
		*look = LOOK_STOP;
		return 0;
	}
	*fd = open_dir(stack, layer, dirfd, name, NULL);
	if (*fd < 0)
		return *fd;
	if (is_opaque(stack, *fd))
		*look = LOOK_STOP;
	else
		(void)redirected(stack, *fd, to);
	return 1;
}

/*
 * One layer's contribution: what is absolute @path there? Lower layers have it where @path leads to then, for each directory on the way may have been renamed, too. They do not count when one of these
 * is opaque, unless another further down came from elsewhere.
 */
static int look_along(const struct stack *stack, size_t layer, char path[PATH_MAX], struct found *f,
	enum look *look)
{
	cleanup_fd int at = openat(stack->layers[layer].root, ".", OPEN_DIR | O_CLOEXEC);
	size_t rest = strlen(path);
	int rc = at < 0 ? -errno : 1;

	*look = LOOK_ON;
	while (rc == 1) {
		const char *s = path + strlen(path) - rest;
		char name[NAME_MAX + 1], to[PATH_MAX];
		enum look here = LOOK_ON;
		size_t len;
		int next = -1;

		s += strspn(s, "/");
		len = strcspn(s, "/");
		if (len == 0 || len > NAME_MAX)
			return -EINVAL;
		(void)snprintf(name, sizeof(name), "%.*s", (int)len, s);
		s += len;
		rest = strlen(s);
		if (s[strspn(s, "/")] == '\0')
			rc = look_at(stack, layer, at, name, f, to, &here);
		else
			rc = step_into(stack, layer, at, name, &next, to, &here);
		if (rc >= 0 && (here == LOOK_STOP || to[0] == '/'))
			*look = here;
		if (rc >= 0 && to[0] != '\0' && turn(path, rest, to) < 0)
			rc = -ENAMETOOLONG;
		fd_close(&at);
		at = next;
	}
	return rc;
}

/* The lower parts of a directory that was renamed: from layer @from on, below absolute path @redirect. */
static int look_below(
	const struct stack *stack, size_t from, char redirect[PATH_MAX], struct found *f)
{
	enum look look = LOOK_ON;

	for (size_t layer = from; layer < stack->n && look == LOOK_ON; layer++) {
		int rc = look_along(stack, layer, redirect, f, &look);

		if (rc < 0)
			return rc;
	}
	f->last = look == LOOK_STOP;
	f->redirect = str_dup(redirect);
	return 0;
}

int stack_lookup(
	const struct stack *stack, const struct merged *dir, const char *name, struct found *ret)
{
	char as[NAME_MAX + 1], redirect[PATH_MAX];
	enum look look = LOOK_ON;

	*ret = (struct found){ .dir = -1 };
	if (str_copy(as, sizeof(as), name) < 0)
		return -ENAMETOOLONG;
	for (size_t i = 0; i < dir->n && look == LOOK_ON; i++) {
		const struct merged_part *p = &dir->parts[i];
		int rc = look_at(stack, p->layer, p->fd, as, ret, redirect, &look);

		if (rc < 0)
			return rc;
		if (redirect[0] == '/')
			return look_below(stack, p->layer + 1, redirect, ret);
		if (redirect[0] != '\0' && str_copy(as, sizeof(as), redirect) < 0)
			return -ENAMETOOLONG;
	}
	ret->last = look == LOOK_STOP;
	if (!str_eq(as, name))
		ret->redirect = str_dup(as);
	return 0;
}

int stack_list(const struct merged *dir, size_t from, size_t to, struct tree_names *names)
{
	for (size_t i = from; i < to; i++) {
		cleanup_names struct tree_names here = { 0 };
		int rc = tree_names(dir->parts[i].fd, &here);

		if (rc < 0)
			return rc;
		for (size_t k = 0; k < here.n; k++)
			tree_names_add(names, here.names[k]);
	}
	return 0;
}
