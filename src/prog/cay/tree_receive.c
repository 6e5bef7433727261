/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/tree_receive.h"
#include "base/buf.h"
#include "base/str.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define PIECE 65536

/* Opens below @dir, through no link and past no "..". */
static int open_below(int dir, const char *path, int flags)
{
	struct open_how how = { .flags = (uint64_t)(unsigned int)flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
	long fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

/* "./a/b/" → "a/b"; "" for the top; NULL for what would leave. Free with free(). */
static char *clean(const char *path)
{
	struct buf out = BUF_INIT(PATH_MAX);

	if (*path == '/')
		return NULL;
	for (const char *p = path; *p != '\0';) {
		size_t n = strcspn(p, "/");

		if (n == 2 && memcmp(p, "..", 2) == 0) {
			buf_free(&out);
			return NULL;
		}
		if (n > 0 && !(n == 1 && *p == '.')) {
			buf_str(&out, out.n > 0 ? "/" : "");
			buf_add(&out, p, n);
		}
		p += n;
		p += *p == '/';
	}
	if (buf_failed(&out)) {
		buf_free(&out);
		return NULL;
	}
	return out.n > 0 ? buf_take(&out) : str_dup("");
}

/* The path below the archive's top, which is called @top in it; as clean(). */
static char *below_top(const char *path, const char *top)
{
	cleanup_free char *whole = clean(path);
	size_t n = strlen(top);

	if (whole == NULL || n == 0)
		return TAKE_PTR(whole);
	if (strncmp(whole, top, n) != 0 || (whole[n] != '\0' && whole[n] != '/'))
		return NULL;
	return str_dup(whole + n + (whole[n] == '/'));
}

/* The directory that @path lies in, made when the archive did not name it; *@ret_name is the last part. Return: descriptor or -errno. */
static int parent_of(int dir, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *parent = NULL;
	int fd;

	*ret_name = slash != NULL ? slash + 1 : path;
	if (slash == NULL)
		return fcntl(dir, F_DUPFD_CLOEXEC, 3);
	parent = str_dupf("%.*s", (int)(slash - path), path);
	for (char *p = strchr(parent, '/');; p = strchr(p + 1, '/')) {
		const char *name;
		cleanup_free char *part =
			p != NULL ? str_dupf("%.*s", (int)(p - parent), parent) : str_dup(parent);
		const char *last = strrchr(part, '/');
		cleanup_free char *above =
			last != NULL ? str_dupf("%.*s", (int)(last - part), part) : str_dup(".");
		cleanup_fd int at = open_below(dir, above, O_PATH | O_DIRECTORY);

		name = last != NULL ? last + 1 : part;
		if (at < 0)
			return at;
		if (mkdirat(at, name, 0755) < 0 && errno != EEXIST)
			return -errno;
		if (p == NULL)
			break;
	}
	fd = open_below(dir, parent, O_PATH | O_DIRECTORY);
	return fd;
}

/* What is zero stays a hole of the new file: what takes no room in the sandbox takes none here. */
static int receive_file(
	struct tar *tar, const struct tar_entry *e, int at, const char *name, struct err *err)
{
	cleanup_fd int fd = -1;
	static char bytes[PIECE];
	uint64_t offset;
	ssize_t n;

	fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_raise_sys(err, -errno, "make '%s'", e->path);
	while ((n = tar_data(tar, bytes, sizeof(bytes), &offset, err)) > 0) {
		for (ssize_t done = bytes_zero(bytes, (size_t)n) ? n : 0; done < n;) {
			ssize_t k = pwrite(
				fd, bytes + done, (size_t)(n - done), (off_t)offset + (off_t)done);

			if (k < 0)
				return err_raise_sys(err, -errno, "write '%s'", e->path);
			done += k;
		}
	}
	if (n < 0)
		return (int)n;
	if (ftruncate(fd, (off_t)e->size) < 0 || fchmod(fd, e->mode & 0777) < 0)
		return err_raise_sys(err, -errno, "write '%s'", e->path);
	(void)futimens(fd, (const struct timespec[2]){ { .tv_nsec = UTIME_NOW }, e->mtime });
	return 0;
}

static int receive_hardlink(
	const struct tar_entry *e, const char *top, int dir, int at, const char *name)
{
	cleanup_free char *to = below_top(e->link, top);
	const char *last;
	cleanup_fd int from = -1;

	if (to == NULL || *to == '\0')
		return -EXDEV;
	from = parent_of(dir, to, &last);
	if (from < 0)
		return from;
	return linkat(from, last, at, name, 0) < 0 ? -errno : 0;
}

static int receive_directory(const struct tar_entry *e, int at, const char *name)
{
	struct stat st;

	/* Writable for us while it is filled; a read-only directory of a sandbox stays so only for the others. */
	if (mkdirat(at, name, (e->mode & 0777) | 0700) == 0)
		return 0;
	if (errno != EEXIST || fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

static int receive_entry(struct tar *tar, const struct tar_entry *e, const char *top, int dir,
	const char *path, size_t *skipped, struct err *err)
{
	const char *name;
	cleanup_fd int at = parent_of(dir, path, &name);
	int rc = at;

	if (at < 0)
		return err_raise(err,
			rc == -EXDEV || rc == -ELOOP ? ERR_HOSTILE_ARCHIVE : ERR_INTERNAL,
			"'%s': %s", path, strerrordesc_np(-rc));
	rc = 0;
	if (e->type == TAR_FILE || e->type == TAR_SYMLINK || e->type == TAR_HARDLINK)
		(void)unlinkat(at, name, 0); /* replaced; a directory in the way fails below */
	switch (e->type) {
	case TAR_FILE:
		return receive_file(tar, e, at, name, err);
	case TAR_DIRECTORY:
		rc = receive_directory(e, at, name);
		break;
	case TAR_SYMLINK:
		rc = symlinkat(e->link, at, name) < 0 ? -errno : 0;
		break;
	case TAR_HARDLINK:
		rc = receive_hardlink(e, top, dir, at, name);
		break;
	case TAR_CHAR:
	case TAR_BLOCKDEV:
	case TAR_FIFO:
		(*skipped)++;
		break;
	}
	return rc < 0 ? err_raise_sys(err, rc, "make '%s'", path) : 0;
}

/* What was asked for itself. */
static int receive_top(
	const struct tar_entry *e, int dir, const char *top, bool made, struct err *err)
{
	if (e->type != TAR_DIRECTORY)
		return err_raise(err, ERR_INVALID, "'%s' is neither a file nor a directory", top);
	if (made && fchmod(dir, (e->mode & 0777) | 0700) < 0)
		return err_raise_sys(err, -errno, "set the mode of '%s'", top);
	return 0;
}

int tree_receive(
	struct tar *tar, int dir, const char *top, bool made, size_t *ret_skipped, struct err *err)
{
	const struct tar_entry *e;
	int rc;

	*ret_skipped = 0;
	while ((rc = tar_next(tar, &e, err)) > 0) {
		cleanup_free char *path = below_top(e->path, top);

		if (strlen(e->path) >= PATH_MAX)
			return err_raise(err, ERR_TOO_LARGE,
				"the sandbox sent '%.100s…', a path of more than %d bytes", e->path,
				PATH_MAX - 1);
		if (path == NULL)
			return err_raise(err, ERR_HOSTILE_ARCHIVE,
				"the sandbox sent '%s', which lies outside of what was asked for",
				e->path);
		rc = *path == '\0' ? receive_top(e, dir, top, made, err)
				   : receive_entry(tar, e, top, dir, path, ret_skipped, err);
		if (rc < 0)
			return rc;
	}
	return rc;
}
