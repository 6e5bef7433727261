/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/put.c - the job `put`: one file, or a tree as tar, into a running sandbox.
 *
 * Everything happens below /proc/<pid>/root: openat2(RESOLVE_IN_ROOT) finds the place, whatever the payload does to its links meanwhile; below it nothing follows
 * a link. Files belong to the sandbox's root, count against its limit, and appear by rename.
 */
#include "base/ablate.h"
#include "base/id.h"
#include "base/str.h"
#include "codec/tar.h"
#include "store/copier.h"
#include "store/tree.h"
#include "store/verbs.h"
#include "sys/cred.h"
#include "sys/feature.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <signal.h>

#define DEFAULT_MAX (1ULL << 40)
#define BELOW       (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

struct putter {
	struct job *job;
	int root;
	uint64_t max, bytes;
	const char *part; /* input received and not used yet */
	size_t part_n;
	bool ended;
};

/* The next bytes of the body; 0 at its end. */
static ssize_t body(struct putter *p, const char **bytes, size_t max, struct err *err)
{
	size_t n;

	if (p->part_n == 0 && !p->ended) {
		ssize_t got = job_input(p->job, &p->part);

		if (got < 0)
			return err_raise_sys(err, (int)got, "receive the body");
		p->ended = got == 0;
		p->part_n = (size_t)got;
		p->bytes += (size_t)got;
		if (p->bytes > p->max)
			return err_raise(err, ERR_TOO_LARGE, "the body has more than %llu bytes",
				(unsigned long long)p->max);
	}
	n = p->part_n < max ? p->part_n : max;
	*bytes = p->part;
	p->part += n;
	p->part_n -= n;
	return (ssize_t)n;
}

static ssize_t body_read(void *context, void *bytes, size_t n, struct err *err)
{
	size_t done = 0;

	while (done < n) {
		const char *part = NULL;
		ssize_t got = body(context, &part, n - done, err);

		if (got <= 0)
			return got < 0 ? got : (ssize_t)done;
		memcpy((char *)bytes + done, part, (size_t)got);
		done += (size_t)got;
	}
	return (ssize_t)done;
}

/* A directory inside, by the sandbox's own links and no others. */
static int open_inside(int root, const char *path)
{
	uint64_t how = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;

	if (ablated("path_resolve_in_root"))
		how = 0; /* an absolute path is one of the host then */
	if (ablated("path_links_in_root")) {
		how = 0; /* an absolute link is one of the host then */
		path = path[1] != '\0' ? path + 1 : ".";
	}
	return raw_openat2(root, path, O_RDONLY | O_DIRECTORY, 0, how);
}

/* The directory of the last name of @path, links inside the sandbox followed. */
static int open_parent(const struct putter *p, const char *path, char name[NAME_MAX + 1])
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *dir = strndup(path, (size_t)(slash - path) + 1);

	if (dir == NULL || str_copy(name, NAME_MAX + 1, slash + 1) < 0)
		return -ENAMETOOLONG;
	if (name[0] == '\0' || str_eq(name, ".") || str_eq(name, ".."))
		return -EISDIR;
	return open_inside(p->root, dir);
}

/* What is zero stays a hole of the new file. */
static int write_piece(int fd, const char *bytes, size_t n)
{
	if (bytes_zero(bytes, n))
		return lseek(fd, (off_t)n, SEEK_CUR) < 0 ? -errno : 0;
	return file_write_all(fd, bytes, n);
}

static int write_body(struct putter *p, int fd, struct err *err)
{
	for (;;) {
		const char *bytes = NULL;
		ssize_t n = body(p, &bytes, SIZE_MAX, err);
		int rc;

		if (n < 0)
			return (int)n;
		rc = n > 0                                ? write_piece(fd, bytes, (size_t)n)
		     : ftruncate(fd, (off_t)p->bytes) < 0 ? -errno
							  : 0;
		if (rc < 0)
			return err_raise_sys(err, rc, "write the file");
		if (n == 0)
			return 0;
	}
}

static int no_place(int rc, const char *path, struct err *err)
{
	if (rc == -ELOOP || rc == -ENOTDIR || rc == -ENAMETOOLONG || rc == -EISDIR || rc == -EXDEV)
		return err_raise(err, ERR_INVALID, "'%s' in the sandbox: %s", path, strerror(-rc));
	return err_raise_sys(err, rc, "find the directory of '%s' in the sandbox", path);
}

/* Of the file that open_new() made nothing stays. */
static void drop(int dir, const char *tmp)
{
	(void)unlinkat(dir, tmp, 0);
	job_temporary(NULL);
}

/*
 * A file without a name, of which nothing stays when the sender goes away; where the file system has no such files, one called @tmp, which is the job's
 * temporary one until it gets its name or drop() is called.
 */
static int open_new(int dir, const char *tmp)
{
	static char path[64 + NAME_MAX];
	int fd = -1;

	errno = EOPNOTSUPP;
	if (!feature_withheld(FEATURE_OVERLAY_TMPFILE))
		fd = openat(dir, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir, tmp);
		job_temporary(path);
		fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0)
			job_temporary(NULL);
	}
	return fd < 0 ? -errno : fd;
}

/* By way of the name @tmp: who reads the place sees the old file or the whole new one. SIGIO ends a job whose peer is gone (job.c). */
static int give_name(int dir, int fd, const char *tmp, const char *name)
{
	sigset_t gone, before;
	struct stat st;
	char self[40];
	int rc = 0;

	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (fstat(fd, &st) < 0)
		return -errno;
	(void)sigemptyset(&gone);
	(void)sigaddset(&gone, SIGIO);
	(void)sigprocmask(SIG_BLOCK, &gone, &before);
	if (st.st_nlink == 0 && linkat(AT_FDCWD, self, dir, tmp, AT_SYMLINK_FOLLOW) < 0)
		rc = -errno;
	if (rc == 0 && renameat(dir, tmp, dir, name) < 0) {
		rc = -errno;
		(void)unlinkat(dir, tmp, 0);
	}
	job_temporary(NULL);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static int put_file(struct putter *p, const char *path, mode_t mode, struct err *err)
{
	cleanup_free char *tmp = str_dupf(".cay-put-%s", id_new().s);
	char name[NAME_MAX + 1];
	cleanup_fd int dir = open_parent(p, path, name), fd = -1;
	struct stat st;
	int rc;

	if (dir < 0)
		return no_place(dir, path, err);
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
		return err_raise(err, ERR_EXISTS, "'%s' is a directory", path);
	fd = open_new(dir, tmp);
	if (fd < 0)
		return err_raise_sys(err, fd, "write '%s'", path);
	rc = write_body(p, fd, err);
	if (rc == 0) {
		rc = fchmod(fd, mode & 07777) < 0 ? -errno : give_name(dir, fd, tmp, name);
		rc = rc < 0 ? err_raise_sys(err, rc, "write '%s'", path) : 0;
	}
	if (rc < 0)
		drop(dir, tmp);
	return rc;
}

/* Strip "./", refuse everything else that leads somewhere. NULL when it is refused; "" is the directory itself. */
static char *clean_path(const char *path)
{
	cleanup_buf struct buf out = BUF_INIT(PATH_MAX);

	if (path[0] == '/')
		return NULL;
	while (*path != '\0') {
		size_t n = strcspn(path, "/");

		if (n == 2 && path[0] == '.' && path[1] == '.')
			return NULL;
		if (n > 0 && !(n == 1 && path[0] == '.')) {
			if (out.n > 0)
				buf_char(&out, '/');
			buf_add(&out, path, n);
		}
		path += n + (path[n] == '/' ? 1 : 0);
	}
	if (buf_failed(&out))
		return NULL;
	return str_dup(buf_cstr(&out));
}

static int tar_parent(int dir, const char *path, char name[NAME_MAX + 1])
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *parent =
		slash == NULL ? str_dup(".") : strndup(path, (size_t)(slash - path));
	int rc = str_copy(name, NAME_MAX + 1, slash == NULL ? path : slash + 1);

	if (rc == 0 && slash != NULL && !ablated("put_archive_links"))
		rc = file_mkdirs_at(dir, parent, 0755);
	return rc < 0 ? rc
		      : raw_openat2(dir, parent, O_RDONLY | O_DIRECTORY, 0,
				ablated("put_archive_links") ? 0 : BELOW);
}

static int tar_file(
	struct tar *tar, const struct tar_entry *e, int at, const char *name, struct err *err)
{
	cleanup_free char *tmp = str_dupf(".cay-put-%s", id_new().s);
	const struct timespec times[2] = { e->atime, e->mtime };
	cleanup_fd int fd = open_new(at, tmp);
	static char chunk[1 << 17];
	uint64_t offset;
	ssize_t n = 0;
	int rc = fd < 0 ? fd : ftruncate(fd, (off_t)e->size) < 0 ? -errno : 0;

	if (rc < 0)
		(void)err_raise_sys(err, rc, "write '%s'", e->path);
	while (rc == 0 && (n = tar_data(tar, chunk, sizeof(chunk), &offset, err)) > 0) {
		for (ssize_t done = bytes_zero(chunk, (size_t)n) ? n : 0; rc == 0 && done < n;) {
			ssize_t w =
				pwrite(fd, chunk + done, (size_t)(n - done), (off_t)offset + done);

			if (w < 0)
				rc = err_raise_sys(err, -errno, "write '%s'", e->path);
			done += w;
		}
	}
	if (n < 0)
		rc = (int)n;
	if (rc == 0) {
		rc = fchmod(fd, e->mode & 07777) < 0 || futimens(fd, times) < 0
			     ? -errno
			     : give_name(at, fd, tmp, name);
		rc = rc < 0 ? err_raise_sys(err, rc, "write '%s'", e->path) : 0;
	}
	if (rc < 0)
		drop(at, tmp);
	return rc;
}

/* The sandbox has a mount between the two names. Without set-id bits: it is root's inside, and whose the other one is by now is not known. */
static int copy_linked(int from, const char *last, int at, const char *name)
{
	cleanup_fd int in = openat(from, last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	cleanup_fd int out = -1;
	struct stat st;
	int rc;

	if (in < 0 || fstat(in, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EXDEV;
	out = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	rc = out < 0 ? -errno : copier_data(in, out, false);
	if (rc == 0 && (fchmod(out, st.st_mode & 01777) < 0 ||
			       futimens(out, (struct timespec[2]){ st.st_atim, st.st_mtim }) < 0))
		rc = -errno;
	return rc;
}

static int tar_hardlink(const struct tar_entry *e, int dir, int at, const char *name)
{
	cleanup_free char *to = clean_path(e->link);
	char last[NAME_MAX + 1];
	cleanup_fd int from = to == NULL || *to == '\0' ? -EINVAL : tar_parent(dir, to, last);

	if (from < 0)
		return -EINVAL;
	if (linkat(from, last, at, name, 0) == 0)
		return 0;
	return errno == EXDEV ? copy_linked(from, last, at, name) : -errno;
}

static int make_special(const struct tar_entry *e, int dir, int at, const char *name)
{
	switch (e->type) {
	case TAR_SYMLINK:
		return raw_result(symlinkat(e->link, at, name));
	case TAR_HARDLINK:
		return tar_hardlink(e, dir, at, name);
	case TAR_FIFO:
		return raw_result(mknodat(at, name, S_IFIFO | (e->mode & 0777), 0));
	case TAR_FILE:
	case TAR_DIRECTORY:
	case TAR_CHAR:
	case TAR_BLOCKDEV:
		break;
	}
	return -EINVAL;
}

/* What was there stays where nothing comes of it: by way of another name, too. That stays over when both are names of one file. */
static int tar_special(const struct tar_entry *e, int dir, int at, const char *name)
{
	cleanup_free char *tmp = str_dupf(".cay-put-%s", id_new().s);
	static char path[64 + NAME_MAX];
	int rc;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", at, tmp);
	job_temporary(path);
	rc = make_special(e, dir, at, tmp);
	if (rc == 0 && renameat(at, tmp, at, name) < 0)
		rc = -errno;
	drop(at, tmp);
	return rc;
}

/* The name may be a link by now: only the mode of what was opened is set. */
static int tar_directory(const struct tar_entry *e, int at, const char *name)
{
	cleanup_fd int fd = -1;

	if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 || fchmod(fd, e->mode & 07777) < 0 ? -errno : 0;
}

static int tar_entry(struct tar *tar, const struct tar_entry *e, int dir, struct err *err)
{
	cleanup_free char *path = clean_path(e->path);
	char name[NAME_MAX + 1];
	cleanup_fd int at = -1;
	int rc;

	if (strlen(e->path) >= PATH_MAX)
		return err_raise(err, ERR_TOO_LARGE,
			"the archive holds '%.100s…', a path of more than %d bytes", e->path,
			PATH_MAX - 1);
	if (path == NULL || e->type == TAR_CHAR || e->type == TAR_BLOCKDEV)
		return err_raise(err, ERR_HOSTILE_ARCHIVE, "the archive holds '%s', which %s",
			e->path, path == NULL ? "leads out of the directory" : "is a device");
	if (*path == '\0')
		return 0;
	at = tar_parent(dir, path, name);
	if (at < 0)
		return no_place(at, path, err);
	if (e->type == TAR_FILE)
		return tar_file(tar, e, at, name, err);
	rc = e->type == TAR_DIRECTORY ? tar_directory(e, at, name) : tar_special(e, dir, at, name);
	if (rc == -EINVAL)
		return err_raise(err, ERR_HOSTILE_ARCHIVE,
			"the archive holds '%s', a link to nothing in it", e->path);
	return rc < 0 ? err_raise_sys(err, rc, "make '%s'", path) : 0;
}

static int put_tar(struct putter *p, const char *path, struct err *err)
{
	cleanup_fd int dir = open_inside(p->root, path);
	cleanup(cleanup_tar_freep) struct tar *tar = NULL;
	const struct tar_entry *e;
	int rc;

	if (dir < 0)
		return no_place(dir, path, err);
	tar = tar_new(body_read, p);
	while ((rc = tar_next(tar, &e, err)) == 1) {
		rc = tar_entry(tar, e, dir, err);
		if (rc < 0)
			return rc;
	}
	/* what follows the end of the archive is padding: the sender wants to get rid of it */
	while (rc == 0 && !p->ended) {
		const char *rest;

		p->part_n = 0;
		rc = (int)body(p, &rest, SIZE_MAX, err);
		rc = rc > 0 ? 0 : rc;
	}
	return rc;
}

static int open_root(struct putter *p, struct err *err)
{
	uint64_t pid, base;
	char path[40];
	int rc = job_number(p->job->request, "pid", 0, &pid, err);

	if (rc == 0)
		rc = job_number(p->job->request, "uid_base", 0, &base, err);
	if (rc < 0)
		return rc;
	if (pid == 0 || pid > INT32_MAX || base > UINT32_MAX)
		return err_raise(
			err, ERR_INVALID, "member 'pid' or 'uid_base' is missing or out of range");
	(void)snprintf(path, sizeof(path), "/proc/%llu/root", (unsigned long long)pid);
	p->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	/* of a process that has ended */
	if (p->root < 0 && errno == ENOENT)
		return err_raise(err, ERR_BUSY,
			"the sandbox is being ended: files can only be put into a running one");
	if (p->root < 0)
		return err_raise_sys(err, -errno, "open the root of the sandbox");
	rc = cred_set_fsids((uid_t)base, (gid_t)base);
	return rc < 0 ? err_raise_sys(err, rc, "act as the sandbox's root") : 0;
}

int store_put(struct job *job, json_t **ok, struct err *err)
{
	struct putter p = { .job = job, .root = -1 };
	const char *path = job_text(job->request, "path", err);
	const char *format = json_string_value(json_object_get(job->request, "format"));
	uint64_t mode;
	int rc = path == NULL ? -EINVAL
			      : job_number(job->request, "max_bytes", DEFAULT_MAX, &p.max, err);

	if (rc == 0)
		rc = job_number(job->request, "mode", 0644, &mode, err);
	if (rc == 0 && (path[0] != '/' || mode > 07777))
		rc = err_raise(err, ERR_INVALID,
			"path '%s' is not absolute, or the mode is no mode", path);
	if (rc == 0)
		rc = open_root(&p, err);
	if (rc == 0)
		rc = format != NULL && str_eq(format, "tar")
			     ? put_tar(&p, path, err)
			     : put_file(&p, path, (mode_t)mode, err);
	if (rc == 0)
		*ok = json_pack("{s:I}", "bytes", (json_int_t)p.bytes);
	fd_close(&p.root);
	return rc;
}
