/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay-import/import_tree.h"
#include "base/ablate.h"
#include "base/str.h"
#include "codec/tar.h"
#include "store/tree.h"
#include "sys/raw.h"

#include <limits.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define INSIDE  (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV)
#define NOBODY  65534U
#define IO_SIZE (256U << 10)

/* The entry under way. */
struct place {
	struct import_tree *root;
	const struct tar_entry *entry;
	struct buf name;           /* clean path below the root; "" is the root */
	char *base;                /* its last component, within @name */
	int parent;                /* directory that holds it */
	struct stat before;        /* of the parent: making an entry must not change its times */
	char hidden[NAME_MAX + 1]; /* a whiteout: the name that it hides */
	bool opaque;               /* a whiteout of all that lies below in its directory */
};

/* ---- names --------------------------------------------------------------------------------------------------------------------- */

const char *import_tree_escape(const char *name, struct buf *out)
{
	const unsigned char *p = (const unsigned char *)name;

	buf_reset(out);
	while (*p != '\0' && out->n < 200) {
		size_t n = *p < 0x80 ? 1 : *p < 0xE0 ? 2 : *p < 0xF0 ? 3 : 4;
		bool whole = strnlen((const char *)p, n) == n && str_utf8_valid((const char *)p, n);

		/* C1 controls are two bytes of UTF-8 that start with C2. */
		if (!whole || *p < ' ' || *p == 0x7F || (*p == 0xC2 && p[1] < 0xA0)) {
			buf_fmt(out, "\\x%02x", *p++);
			continue;
		}
		buf_add(out, p, n);
		p += n;
	}
	if (*p != '\0')
		buf_str(out, "…");
	return buf_cstr(out);
}

static int hostile(const char *name, struct err *err, const char *what)
{
	cleanup_buf struct buf shown = BUF_INIT(2048);

	return err_raise(
		err, ERR_HOSTILE_ARCHIVE, "'%s': %s", import_tree_escape(name, &shown), what);
}

int import_tree_name(const char *raw, struct buf *clean, struct err *err)
{
	size_t depth = 0;

	buf_reset(clean);
	buf_str(clean, "");
	for (const char *p = raw; *p != '\0';) {
		size_t n = strcspn(p, "/");

		if (n == 2 && p[0] == '.' && p[1] == '.' && !ablated("archive_paths"))
			return hostile(raw, err, "the name leads upwards");
		if (n > NAME_MAX)
			return hostile(raw, err, "a part of the name is longer than 255 bytes");
		if (n > 0 && !(n == 1 && p[0] == '.')) {
			if (++depth > IMPORT_TREE_DEPTH_MAX && !ablated("archive_caps"))
				return hostile(raw, err, "the name is too deep");
			if (clean->n > 0)
				buf_char(clean, '/');
			buf_add(clean, p, n);
		}
		p += n + (p[n] == '/');
	}
	if (buf_failed(clean) || clean->n >= PATH_MAX)
		return hostile(raw, err, "the name is longer than 4095 bytes");
	return 0;
}

/* Split a clean path at its last component. Returns the directory part, "." for the root. The path is changed; undo with join(). */
static const char *split(char *path, char **ret_base)
{
	char *slash = strrchr(path, '/');

	*ret_base = slash != NULL ? slash + 1 : path;
	if (slash == NULL)
		return ".";
	*slash = '\0';
	return path;
}

static void join(char *path, char *base)
{
	if (base > path)
		base[-1] = '/';
}

static int system_error(const struct place *p, int rc, struct err *err, const char *what)
{
	cleanup_buf struct buf shown = BUF_INIT(2048);

	return err_raise_sys(
		err, rc, "%s '%s'", what, import_tree_escape(buf_cstr(&p->name), &shown));
}

/* Why a path could not be walked. */
static int walk_error(const char *name, int rc, struct err *err)
{
	cleanup_buf struct buf shown = BUF_INIT(2048);

	if (rc == -ELOOP)
		return hostile(name, err, "the name leads through a symbolic link");
	if (rc == -ENOTDIR)
		return hostile(name, err, "the name leads through something that is no directory");
	if (rc == -EXDEV)
		return hostile(name, err, "the name leads out of the tree");
	return err_raise_sys(
		err, rc, "open the directory of '%s'", import_tree_escape(name, &shown));
}

static int open_dir(int tree, const char *path)
{
	return raw_openat2(
		tree, path, O_RDONLY | O_DIRECTORY, 0, ablated("archive_paths") ? 0 : INSIDE);
}

/* Make one directory that the archive did not mention, and leave the times of the one that holds it. */
static int make_dir(int at, const char *name)
{
	struct stat before;

	if (fstat(at, &before) < 0)
		return -errno;
	if (mkdirat(at, name, 0755) < 0)
		return errno == EEXIST ? 0 : -errno;
	struct timespec times[2] = { before.st_atim, before.st_mtim };
	return futimens(at, times) < 0 ? -errno : 0;
}

static int make_dirs(int tree, const char *path)
{
	cleanup_fd int at = open_dir(tree, ".");

	while (at >= 0 && *path != '\0') {
		char part[NAME_MAX + 1];
		size_t n = strcspn(path, "/");
		int next, rc;

		memcpy(part, path, n);
		part[n] = '\0';
		rc = make_dir(at, part);
		if (rc < 0)
			return rc;
		next = open_dir(at, part);
		(void)close(at);
		at = next;
		path += n + (path[n] == '/');
	}
	return TAKE_FD(at);
}

/* Open the directory that holds @path; with @make also make it. */
static int open_parent(int tree, char *path, char **ret_base, bool make)
{
	const char *dir = split(path, ret_base);
	int fd = open_dir(tree, dir);

	if (fd == -ENOENT && make)
		fd = make_dirs(tree, dir);
	join(path, *ret_base);
	return fd;
}

/* ---- whiteouts ----------------------------------------------------------------------------------------------------------------- */

/* Is the entry a whiteout? Fills @hidden or @opaque. */
static int read_whiteout(struct place *p, bool layer, struct err *err)
{
	const char *name = buf_cstr(&p->name), *slash = strrchr(name, '/');
	const char *base = slash != NULL ? slash + 1 : name, *inner;

	p->hidden[0] = '\0';
	p->opaque = false;
	inner = strstr(name, ".wh.");
	if (inner == NULL)
		return 0;
	for (const char *at = name; (at = strstr(at, ".wh.")) != NULL; at++)
		if ((at == name || at[-1] == '/') && at < base)
			return hostile(name, err, "the name leads through a whiteout");
	if (!str_starts(base, ".wh."))
		return 0;
	if (!layer)
		return hostile(name, err, "a whiteout in an archive that is no layer");
	/* AUFS makes all of a layer's as links of one file. */
	if ((p->entry->type != TAR_FILE && p->entry->type != TAR_HARDLINK) || p->entry->size != 0)
		return hostile(name, err, "a whiteout that is no empty file");
	p->opaque = str_eq(base, ".wh..wh..opq");
	if (p->opaque)
		return 0;
	base += 4;
	if (base[0] == '\0' || str_eq(base, ".") || str_eq(base, "..") || str_starts(base, ".wh."))
		return hostile(name, err, "a malformed whiteout");
	return str_copy(p->hidden, sizeof(p->hidden), base);
}

static bool is_whiteout(const struct place *p)
{
	return p->opaque || p->hidden[0] != '\0';
}

/* Remove what the whiteout hides. Where there is no such directory, nothing is hidden: this layer may make it. */
static int hide(struct place *p, struct err *err)
{
	int rc;

	p->parent = open_parent(p->root->tree, p->name.p, &p->base, false);
	if (p->parent == -ENOENT || p->parent == -ENOTDIR || p->parent == -ELOOP)
		return 0;
	if (p->parent < 0)
		return walk_error(buf_cstr(&p->name), p->parent, err);
	if (fstat(p->parent, &p->before) < 0)
		return system_error(p, -errno, err, "look at");
	rc = p->opaque ? tree_remove_content(p->parent, ".") : tree_remove(p->parent, p->hidden);
	return rc < 0 ? system_error(p, rc, err, "hide by") : 0;
}

/* ---- attributes ---------------------------------------------------------------------------------------------------------------- */

static uint32_t map_id(struct import_tree *root, uint32_t id)
{
	if (id < root->ids)
		return id;
	root->changed_ids++;
	return root->ids > NOBODY ? NOBODY : 0;
}

static bool xattr_wanted(const struct import_tree *root, const char *name)
{
	if (str_starts(name, "user."))
		return !str_starts(name, "user.overlay."); /* overlayfs would obey it */
	if (str_eq(name, "security.capability"))
		return root->keep_caps;
	return str_eq(name, "system.posix_acl_access") || str_eq(name, "system.posix_acl_default");
}

/* A directory may have those of an earlier layer, and each entry got the access list that its directory gives. */
static int drop_xattrs(struct place *p, int fd, struct err *err)
{
	char list[65536];
	ssize_t n = flistxattr(fd, list, sizeof(list));

	if (n < 0 && errno != EOPNOTSUPP)
		return system_error(p, -errno, err, "list the extended attributes of");
	for (const char *x = list; x < list + n; x += strlen(x) + 1) {
		if (xattr_wanted(p->root, x) && fremovexattr(fd, x) < 0 && errno != ENODATA)
			return system_error(p, -errno, err, "remove an extended attribute of");
	}
	return 0;
}

static int set_xattrs(struct place *p, int fd, struct err *err)
{
	for (size_t i = 0; i < p->entry->n_xattrs; i++) {
		const struct tar_xattr *x = &p->entry->xattrs[i];

		if (xattr_wanted(p->root, x->name) &&
			fsetxattr(fd, x->name, x->value, x->size, 0) == 0)
			continue;
		if (xattr_wanted(p->root, x->name) && errno != EOPNOTSUPP && errno != EPERM &&
			errno != EINVAL && errno != ERANGE)
			return system_error(p, -errno, err, "set an extended attribute of");
		p->root->dropped_xattrs++;
	}
	return 0;
}

/* Owner first: it clears set-uid bits and capabilities. The mode after an inherited access list, whose mask it would be. Times last. */
static int set_attributes(struct place *p, int fd, struct err *err)
{
	const struct tar_entry *e = p->entry;
	struct timespec times[2] = { e->atime, e->mtime };
	uid_t uid = map_id(p->root, e->uid);
	gid_t gid = map_id(p->root, e->gid);
	int rc;

	if (fchown(fd, uid, gid) < 0)
		return system_error(p, -errno, err, "set the owner of");
	rc = drop_xattrs(p, fd, err);
	if (rc == 0 && fchmod(fd, (mode_t)e->mode) < 0)
		return system_error(p, -errno, err, "set the mode of");
	if (rc == 0)
		rc = set_xattrs(p, fd, err);
	if (rc == 0 && futimens(fd, times) < 0)
		return system_error(p, -errno, err, "set the times of");
	if (e->type == TAR_FILE && (e->mode & 06000) != 0)
		p->root->setuid++;
	return rc;
}

/* ---- making entries ------------------------------------------------------------------------------------------------------------ */

static int write_piece(int fd, const char *bytes, size_t n, uint64_t offset)
{
	while (n > 0) {
		ssize_t done = pwrite(fd, bytes, n, (off_t)offset);

		if (done < 0 && errno != EINTR)
			return -errno;
		if (done > 0) {
			bytes += done;
			n -= (size_t)done;
			offset += (uint64_t)done;
		}
	}
	return 0;
}

static int write_content(struct place *p, struct tar *tar, int fd, struct err *err)
{
	static char bytes[IO_SIZE];
	uint64_t offset;
	ssize_t n;

	while ((n = tar_data(tar, bytes, sizeof(bytes), &offset, err)) > 0) {
		int rc = write_piece(fd, bytes, (size_t)n, offset);

		if (rc < 0)
			return system_error(p, rc, err, "write");
	}
	if (n == 0 && p->entry->sparse && ftruncate(fd, (off_t)p->entry->size) < 0)
		return system_error(p, -errno, err, "write");
	return (int)n;
}

static int make_file(struct place *p, struct tar *tar, struct err *err)
{
	cleanup_fd int fd = openat(
		p->parent, p->base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int rc;

	if (fd < 0)
		return system_error(p, -errno, err, "create");
	rc = write_content(p, tar, fd, err);
	p->root->files++;
	return rc < 0 ? rc : set_attributes(p, fd, err);
}

static int make_directory(struct place *p, struct err *err)
{
	cleanup_fd int fd = -1;

	if (p->name.n > 0 && mkdirat(p->parent, p->base, 0700) < 0 && errno != EEXIST)
		return system_error(p, -errno, err, "create");
	fd = open_dir(p->parent, p->name.n > 0 ? p->base : ".");
	if (fd < 0)
		return walk_error(buf_cstr(&p->name), fd, err);
	return set_attributes(p, fd, err);
}

static bool was_dropped(const struct import_tree *root, const char *name)
{
	for (size_t i = 0; i < root->n_devices; i++)
		if (str_eq(root->devices[i], name))
			return true;
	return false;
}

static int drop(struct place *p)
{
	struct import_tree *root = p->root;

	root->dropped_devices++;
	if (root->n_devices < IMPORT_TREE_DROPPED_MAX && !was_dropped(root, buf_cstr(&p->name)))
		root->devices[root->n_devices++] = str_dup(buf_cstr(&p->name));
	return 0;
}

static int make_hardlink(struct place *p, struct buf *target, struct err *err)
{
	cleanup_fd int dir = -1;
	struct stat st;
	char *base;

	dir = open_parent(p->root->tree, target->p, &base, false);
	if (dir < 0 && dir != -ENOENT)
		return walk_error(buf_cstr(target), dir, err);
	if (dir < 0 || fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (was_dropped(p->root, buf_cstr(target)))
			return drop(p);
		return hostile(buf_cstr(&p->name), err, "a hard link to a name that is not there");
	}
	if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode) && !ablated("archive_links"))
		return hostile(buf_cstr(&p->name), err,
			S_ISLNK(st.st_mode) ? "a hard link to a symbolic link"
					    : "a hard link to something that is no file");
	if (linkat(dir, base, p->parent, p->base, 0) < 0)
		return system_error(p, -errno, err, "link");
	p->root->files++;
	return 0;
}

/* It cannot be opened. It has no mode, and its attributes are left out. */
static int make_symlink(struct place *p, struct err *err)
{
	const struct tar_entry *e = p->entry;
	struct timespec times[2] = { e->atime, e->mtime };

	if (strlen(e->link) >= PATH_MAX)
		return hostile(
			buf_cstr(&p->name), err, "the target of a link is longer than 4095 bytes");
	if (symlinkat(e->link, p->parent, p->base) < 0)
		return system_error(p, -errno, err, "create");
	p->root->dropped_xattrs += e->n_xattrs;
	if (fchownat(p->parent, p->base, map_id(p->root, e->uid), map_id(p->root, e->gid),
		    AT_SYMLINK_NOFOLLOW) < 0 ||
		utimensat(p->parent, p->base, times, AT_SYMLINK_NOFOLLOW) < 0)
		return system_error(p, -errno, err, "set owner or times of");
	return 0;
}

static int make_fifo(struct place *p, struct err *err)
{
	cleanup_fd int fd = -1;

	if (mknodat(p->parent, p->base, S_IFIFO | 0600, 0) < 0)
		return system_error(p, -errno, err, "create");
	fd = openat(p->parent, p->base, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? system_error(p, -errno, err, "open") : set_attributes(p, fd, err);
}

/* What stands under the name goes away, unless it is a directory and a directory comes. */
static int make_room(struct place *p, struct err *err)
{
	struct stat st;
	int rc;

	if (fstatat(p->parent, p->base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : system_error(p, -errno, err, "look at");
	if (S_ISDIR(st.st_mode) && p->entry->type == TAR_DIRECTORY)
		return 0;
	rc = tree_remove(p->parent, p->base);
	return rc < 0 ? system_error(p, rc, err, "replace") : 0;
}

static int make_object(struct place *p, struct tar *tar, struct buf *target, struct err *err)
{
	switch (p->entry->type) {
	case TAR_FILE:
		return make_file(p, tar, err);
	case TAR_DIRECTORY:
		return make_directory(p, err);
	case TAR_HARDLINK:
		return make_hardlink(p, target, err);
	case TAR_SYMLINK:
		return make_symlink(p, err);
	case TAR_FIFO:
		return make_fifo(p, err);
	case TAR_CHAR:
	case TAR_BLOCKDEV:
	default:
		/* the one device that everybody may make is a whiteout to overlayfs */
		if (ablated("archive_devices") && mknodat(p->parent, p->base, S_IFCHR, 0) == 0)
			return 0;
		return drop(p);
	}
}

static int make(struct place *p, struct tar *tar, struct buf *target, struct err *err)
{
	int rc;

	if (p->name.n == 0 && p->entry->type == TAR_DIRECTORY) {
		p->parent = open_dir(p->root->tree, ".");
		return p->parent < 0 ? system_error(p, p->parent, err, "open")
				     : make_directory(p, err);
	}
	p->parent = open_parent(p->root->tree, p->name.p, &p->base, true);
	if (p->parent < 0)
		return walk_error(buf_cstr(&p->name), p->parent, err);
	if (fstat(p->parent, &p->before) < 0)
		return system_error(p, -errno, err, "look at");
	rc = make_room(p, err);
	return rc < 0 ? rc : make_object(p, tar, target, err);
}

/* A whiteout in the second pass: it was carried out in the first; what is left is that it may not go through a link of this layer. */
static int check_whiteout(struct place *p, struct err *err)
{
	cleanup_fd int dir = open_parent(p->root->tree, p->name.p, &p->base, false);

	return dir == -ELOOP ? walk_error(buf_cstr(&p->name), dir, err) : 0;
}

/* ---- streams ------------------------------------------------------------------------------------------------------------------- */

/* What can be said of an entry without the tree. */
static int check_entry(struct place *p, struct buf *target, bool layer, struct err *err)
{
	struct import_tree *root = p->root;
	const struct tar_entry *e = p->entry;
	int rc = import_tree_name(e->path, &p->name, err);

	if (rc == 0)
		rc = read_whiteout(p, layer, err);
	if (rc < 0)
		return rc;
	if (p->name.n == 0 && e->type != TAR_DIRECTORY)
		return hostile(e->path, err, "the root is no directory");
	if (!ablated("archive_caps") &&
		(e->size > root->limit_bytes || e->size > root->limit_bytes - root->bytes))
		return err_hint(err,
			hostile(e->path, err, "the archive holds more bytes than allowed"),
			"raise limit_bytes of the import (cay image import --limit-bytes) if the archive is honest");
	root->bytes += e->size;
	if (e->type != TAR_HARDLINK)
		return 0;
	rc = import_tree_name(e->link, target, err);
	if (rc == 0 && (target->n == 0 || str_eq(target->p, buf_cstr(&p->name))))
		rc = hostile(e->path, err, "a hard link to itself or to the root");
	return rc;
}

static int count_entry(struct import_tree *root, struct err *err)
{
	if (++root->entries <= root->limit_entries || ablated("archive_caps"))
		return 0;
	return err_hint(err,
		err_raise(err, ERR_HOSTILE_ARCHIVE, "the archive has more than %llu entries",
			(unsigned long long)root->limit_entries),
		"raise limit_entries of the import (cay image import --limit-entries) if the archive is honest");
}

static int apply_entry(struct place *p, struct tar *tar, struct buf *target,
	enum import_tree_pass pass, struct err *err)
{
	int rc;

	p->parent = -1;
	if (pass == IMPORT_TREE_HIDE)
		rc = is_whiteout(p) ? hide(p, err) : 0;
	else
		rc = is_whiteout(p) ? check_whiteout(p, err) : make(p, tar, target, err);
	if (rc == 0 && p->parent >= 0 && p->name.n > 0) {
		struct timespec times[2] = { p->before.st_atim, p->before.st_mtim };

		if (futimens(p->parent, times) < 0)
			rc = system_error(p, -errno, err, "set the times of the directory of");
	}
	fd_close(&p->parent);
	return rc;
}

static int apply(
	struct place *p, struct tar *tar, enum import_tree_pass pass, bool layer, struct err *err)
{
	cleanup_buf struct buf target = BUF_INIT(TAR_HEADER_MAX + 1);
	int rc;

	while ((rc = tar_next(tar, &p->entry, err)) > 0) {
		rc = count_entry(p->root, err);
		if (rc == 0)
			rc = check_entry(p, &target, layer, err);
		if (rc == 0)
			rc = apply_entry(p, tar, &target, pass, err);
		if (rc < 0)
			return rc;
	}
	return rc;
}

int import_tree_apply(struct import_tree *root, struct unzip *in, enum import_tree_pass pass,
	bool layer, struct err *err)
{
	cleanup(cleanup_tar_freep) struct tar *tar = tar_new(unzip_read, in);
	struct place p = { .root = root, .name = BUF_INIT(TAR_HEADER_MAX + 1), .parent = -1 };
	uint64_t entries = root->entries, bytes = root->bytes;
	int rc = apply(&p, tar, pass, layer, err);

	buf_free(&p.name);
	if (pass == IMPORT_TREE_HIDE) { /* the same entries come again */
		root->entries = entries;
		root->bytes = bytes;
	}
	return rc < 0 ? rc : unzip_drain(in, err);
}

json_t *import_tree_report(const struct import_tree *root)
{
	cleanup_buf struct buf shown = BUF_INIT(2048);
	json_t *names = json_array();

	for (size_t i = 0; i < root->n_devices && i < 20; i++)
		(void)json_array_append_new(
			names, json_string(import_tree_escape(root->devices[i], &shown)));
	return json_pack("{s:I, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:o}}", "entries",
		(json_int_t)root->entries, "files", (json_int_t)root->files, "bytes",
		(json_int_t)root->bytes, "setuid", (json_int_t)root->setuid, "dropped", "devices",
		(json_int_t)root->dropped_devices, "xattrs", (json_int_t)root->dropped_xattrs,
		"ids", (json_int_t)root->changed_ids, "names", names);
}

void import_tree_fini(struct import_tree *root)
{
	for (size_t i = 0; i < root->n_devices; i++)
		free(root->devices[i]);
	root->n_devices = 0;
}
