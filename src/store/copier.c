/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/copier.c - see the header.
 *
 * A file needs no second copy when inode, ctime, mtime, size, mode and links are what they were just before its copy, the ctime was 20 ms old then (clocks
 * of file systems tick in up to 10 ms), and nobody maps it shared and writable, by whichever of its names. Who maps what is looked at before the first pass
 * and in the second: whoever maps a file between, and is gone by then, gives it a ctime behind the first look with his first store, and may store more without
 * a trace. So what is as young as that in the first pass is copied again.
 */
#include "store/copier.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "sys/raw.h"

#include <linux/fs.h>
#include <sys/ioctl.h>

#define RACY_NS   (20 * (int64_t)NS_PER_MS)
#define PATH_LONG (1U << 20)

struct entry {
	char *path; /* relative to the tree; NULL = free slot */
	struct copier_seen seen;
};

struct table {
	struct entry *slots;
	size_t n, cap; /* cap is a power of two */
};

struct copier {
	int from, to, previous;
	int64_t begun_ns; /* wall time, before anybody looks who maps what */
	bool clone, clone_previous;
	char *prefix;
	struct table seen, before;
	struct table
		links; /* inodes with several names, in this pass: number as text -> place in @first */
	struct tree_names first; /* where the first name of each was copied to */
	const struct tree_names *mapped;
	struct table
		mapped_too; /* inodes with several names, of which one is in @mapped: number as text */
	struct buf path;    /* of the entry at hand */
};

static int64_t timespec_ns(const struct timespec *t)
{
	return (int64_t)t->tv_sec * (int64_t)NS_PER_S + t->tv_nsec;
}

static size_t slot_of(const struct table *t, const char *path)
{
	uint64_t h = 14695981039346656037ULL;
	size_t i;

	for (const char *p = path; *p != '\0'; p++)
		h = (h ^ (unsigned char)*p) * 1099511628211ULL;
	for (i = (size_t)(h & (t->cap - 1)); t->slots[i].path != NULL; i = (i + 1) & (t->cap - 1)) {
		if (str_eq(t->slots[i].path, path))
			break;
	}
	return i;
}

static struct copier_seen *table_get(const struct table *t, const char *path)
{
	size_t i;

	if (t->n == 0)
		return NULL;
	i = slot_of(t, path);
	return t->slots[i].path == NULL ? NULL : &t->slots[i].seen;
}

static void table_grow(struct table *t)
{
	struct table bigger = { .cap = t->cap == 0 ? 256 : 2 * t->cap, .n = t->n };

	bigger.slots = calloc(bigger.cap, sizeof(*bigger.slots));
	if (bigger.slots == NULL)
		abort();
	for (size_t i = 0; i < t->cap; i++) {
		if (t->slots[i].path != NULL)
			bigger.slots[slot_of(&bigger, t->slots[i].path)] = t->slots[i];
	}
	free(t->slots);
	*t = bigger;
}

static void table_put(struct table *t, const char *path, const struct copier_seen *seen)
{
	size_t i;

	if (2 * t->n >= t->cap)
		table_grow(t);
	i = slot_of(t, path);
	if (t->slots[i].path == NULL) {
		t->slots[i].path = str_dup(path);
		t->n++;
	}
	t->slots[i].seen = *seen;
}

static void table_free(struct table *t)
{
	for (size_t i = 0; i < t->cap; i++)
		free(t->slots[i].path);
	free(t->slots);
}

struct copier *copier_new(int from, int to, bool clone, const char *prefix)
{
	struct copier *c = xnew(struct copier);

	c->from = from;
	c->to = to;
	c->previous = -1;
	c->begun_ns = (int64_t)clock_wall_ns();
	c->clone = clone;
	c->prefix = str_dup(prefix);
	c->path.max = PATH_LONG;
	return c;
}

static void forget_pass(struct copier *c)
{
	table_free(&c->links);
	table_free(&c->mapped_too);
	c->links = c->mapped_too = (struct table){ 0 };
	tree_names_free(&c->first);
}

void copier_free(struct copier *c)
{
	if (c == NULL)
		return;
	forget_pass(c);
	table_free(&c->seen);
	table_free(&c->before);
	buf_free(&c->path);
	free(c->prefix);
	free(c);
}

/* Between file systems the kernel copies nothing for us. */
static ssize_t copy_plain(int from, int to, off_t at, size_t want)
{
	static char chunk[1 << 17];
	ssize_t n = pread(from, chunk, want < sizeof(chunk) ? want : sizeof(chunk), at);

	for (ssize_t done = 0; done < n;) {
		ssize_t w = pwrite(to, chunk + done, (size_t)(n - done), at + done);

		if (w < 0)
			return -1;
		done += w;
	}
	return n;
}

static int copy_range(int from, int to, off_t at, off_t end)
{
	bool plain = false;

	while (at < end) {
		loff_t in = at, out = at;
		size_t want = (size_t)(end - at);
		ssize_t n = plain ? copy_plain(from, to, at, want)
				  : copy_file_range(from, &in, to, &out, want, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && !plain &&
			(errno == EXDEV || errno == EOPNOTSUPP || errno == ENOSYS ||
				errno == EINVAL)) {
			plain = true;
			continue;
		}
		if (n < 0)
			return -errno;
		if (n == 0) /* it shrank; the second pass sees that */
			return 0;
		at += n;
	}
	return 0;
}

int copier_data(int from, int to, bool clone)
{
	struct stat st;
	off_t at = 0;
	int rc = 0;

	if (clone && ioctl(to, FICLONE, from) == 0)
		return 0;
	if (fstat(from, &st) < 0)
		return -errno;
	while (rc == 0 && at < st.st_size) {
		off_t data = lseek(from, at, SEEK_DATA), hole;

		if (data < 0) {
			rc = errno == ENXIO ? 0 : -errno; /* only a hole is left */
			break;
		}
		hole = lseek(from, data, SEEK_HOLE);
		if (hole < 0)
			return errno == ENXIO ? 0 : -errno;
		rc = copy_range(from, to, data, hole < st.st_size ? hole : st.st_size);
		at = hole;
	}
	if (rc == 0 && ftruncate(to, st.st_size) < 0)
		rc = -errno;
	return rc;
}

int copier_attributes(
	int from, const char *name, const struct stat *st, int to, const char *to_name)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	int rc;

	/* an owner change clears capabilities and set-uid bits: it comes first */
	if (fchownat(to, to_name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISLNK(st->st_mode) && fchmodat(to, to_name, st->st_mode & 07777, 0) < 0)
		return -errno;
	rc = tree_xattrs_copy(from, name, to, to_name);
	if (rc == 0 && utimensat(to, to_name, times, AT_SYMLINK_NOFOLLOW) < 0)
		rc = -errno;
	return rc;
}

static int copy_regular(int from, const char *name, int to, const char *to_name, bool clone)
{
	cleanup_fd int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	cleanup_fd int out = -1;

	if (in < 0)
		return -errno;
	out = openat(to, to_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return out < 0 ? -errno : copier_data(in, out, clone);
}

static int copy_symlink(int from, const char *name, int to, const char *to_name)
{
	char target[PATH_MAX + 1];
	ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	return symlinkat(target, to, to_name) < 0 ? -errno : 0;
}

int copier_entry(
	int from, const char *name, int to, const char *to_name, const struct stat *st, bool clone)
{
	int rc;

	if (S_ISREG(st->st_mode))
		rc = copy_regular(from, name, to, to_name, clone);
	else if (S_ISLNK(st->st_mode))
		rc = copy_symlink(from, name, to, to_name);
	else
		rc = mknodat(to, to_name, st->st_mode & S_IFMT, st->st_rdev) < 0 ? -errno : 0;
	return rc < 0 ? rc : copier_attributes(from, name, st, to, to_name);
}

static struct copier_seen seen_of(const struct stat *st, int64_t copied_ns)
{
	return (struct copier_seen){ .ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.ctime_ns = timespec_ns(&st->st_ctim),
		.mtime_ns = timespec_ns(&st->st_mtim),
		.copied_ns = copied_ns,
		.mode = st->st_mode,
		.links = (uint32_t)st->st_nlink };
}

static void inode_text(char text[24], const struct stat *st)
{
	(void)snprintf(text, 24, "%llu", (unsigned long long)st->st_ino);
}

static bool is_mapped(const struct copier *c, const struct stat *st)
{
	cleanup_free char *path = NULL;
	char ino[24];

	if (c->mapped == NULL || !S_ISREG(st->st_mode))
		return false;
	inode_text(ino, st);
	if (st->st_nlink > 1 && table_get(&c->mapped_too, ino) != NULL)
		return true;
	path = str_dupf("%s/%s", c->prefix, buf_cstr(&c->path));
	return mapped_has(c->mapped, path);
}

/* A process maps a file by one of its names, and stores into all of them. */
static void find_mapped_too(struct copier *c)
{
	const struct copier_seen found = { 0 };
	size_t prefix = strlen(c->prefix);

	for (size_t i = 0; c->mapped != NULL && i < c->mapped->n; i++) {
		const char *path = c->mapped->names[i];
		cleanup_fd int fd = -1;
		struct stat st;
		char ino[24];

		if (!str_starts(path, c->prefix) || path[prefix] != '/')
			continue;
		fd = raw_openat2(c->from, path + prefix + 1, O_PATH | O_NOFOLLOW, 0,
			RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
		if (fd < 0 || fstat(fd, &st) < 0 || st.st_nlink < 2)
			continue;
		inode_text(ino, &st);
		table_put(&c->mapped_too, ino, &found);
	}
}

static bool unchanged(const struct copier *c, const struct copier_seen *then, const struct stat *st)
{
	struct copier_seen now = seen_of(st, 0);

	return then != NULL && then->ino == now.ino && then->size == now.size &&
	       then->ctime_ns == now.ctime_ns && then->mtime_ns == now.mtime_ns &&
	       then->mode == now.mode && then->links == now.links &&
	       then->ctime_ns + RACY_NS < then->copied_ns && !is_mapped(c, st);
}

/* A file that had another name in this pass becomes one more link to its copy. */
static const char *link_find(const struct copier *c, const struct stat *st)
{
	const struct copier_seen *place;
	char ino[24];

	if (st->st_nlink < 2)
		return NULL;
	inode_text(ino, st);
	place = table_get(&c->links, ino);
	return place == NULL ? NULL : c->first.names[place->size];
}

static void link_note(struct copier *c, const struct stat *st)
{
	const struct copier_seen place = { .size = c->first.n };
	char ino[24];

	/* whiteouts share one inode, and may as well be many */
	if (st->st_nlink < 2 || S_ISCHR(st->st_mode) || link_find(c, st) != NULL)
		return;
	inode_text(ino, st);
	table_put(&c->links, ino, &place);
	tree_names_add(&c->first, buf_cstr(&c->path));
}

static int open_copy(const struct copier *c, const char *path)
{
	return raw_openat2(c->to, path, O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH);
}

static bool is_first_pass(const struct copier *c)
{
	return c->mapped == NULL;
}

/* May stores into the file follow, or have followed, that leave no trace? */
static bool hides_stores(const struct copier *c, const struct stat *st)
{
	return is_mapped(c, st) ||
	       (is_first_pass(c) && timespec_ns(&st->st_ctim) + RACY_NS >= c->begun_ns);
}

/* Is there a copy already, and is it one file with what this pass has as the copy of another name? That one may have been made anew. */
static bool is_copied(const struct copier *c, int to, const char *name, const struct stat *st)
{
	const char *other = link_find(c, st);
	cleanup_fd int at = other == NULL ? -1 : open_copy(c, other);
	struct stat copy, first;

	if (fstatat(to, name, &copy, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	return other == NULL || (at >= 0 && fstat(at, &first) == 0 && first.st_ino == copy.st_ino);
}

/* Is what the last capture made of @path there as it made it, with size, times and mode of @then? Whoever damaged it since has mostly moved one of them. */
static bool is_kept(const struct copier *c, const char *path, const struct copier_seen *then)
{
	struct stat st;

	return fstatat(c->previous, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_mode == then->mode && (uint64_t)st.st_size == then->size &&
	       timespec_ns(&st.st_mtim) == then->mtime_ns;
}

static bool has_previous(const struct copier *c, const char *path, const struct stat *st)
{
	const struct copier_seen *then = table_get(&c->before, path);

	return c->previous >= 0 && S_ISREG(st->st_mode) && st->st_nlink == 1 &&
	       unchanged(c, then, st) && is_kept(c, path, then);
}

/* Whether what the last capture made of @path is now @name of @to, without taking room again. */
static bool share_previous(const struct copier *c, const char *path, int to, const char *name)
{
	cleanup_fd int in = -1, out = -1;

	if (!c->clone_previous)
		return linkat(c->previous, path, to, name, 0) == 0;
	in = openat(c->previous, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	out = in < 0 ? -1
		     : openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0)
		return false;
	if (ioctl(out, FICLONE, in) == 0)
		return true;
	(void)unlinkat(to, name, 0);
	return false;
}

static int copy_or_link(struct copier *c, int from, const char *name, int to, const struct stat *st)
{
	const char *path = buf_cstr(&c->path), *other = link_find(c, st);

	if (other != NULL) {
		cleanup_fd int at = open_copy(c, other);
		char self[40];

		if (at < 0)
			return at;
		(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", at);
		return linkat(AT_FDCWD, self, to, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
	}
	if (has_previous(c, path, st) && share_previous(c, path, to, name))
		return c->clone_previous ? copier_attributes(from, name, st, to, name) : 0;
	return copier_entry(from, name, to, name, st, c->clone);
}

static int do_entry(struct copier *c, int from, const char *name, int to, const struct stat *st)
{
	const char *path = buf_cstr(&c->path);
	struct copier_seen *then = table_get(&c->seen, path);
	int64_t now = (int64_t)clock_wall_ns();
	struct copier_seen seen = seen_of(st, now);
	int rc = 0;

	if (!unchanged(c, then, st) || !is_copied(c, to, name, st)) {
		rc = tree_remove(to, name);
		if (rc == 0)
			rc = copy_or_link(c, from, name, to, st);
		/* never trust this one later */
		if (hides_stores(c, st))
			seen.copied_ns = 0;
		if (rc == 0)
			table_put(&c->seen, path, &seen);
	}
	if (rc == 0)
		link_note(c, st);
	return rc;
}

static int do_dir(struct copier *c, int from, int to, int depth);

static int do_subdir(
	struct copier *c, int from, const char *name, int to, const struct stat *st, int depth)
{
	cleanup_fd int in = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_fd int out = -1;
	struct stat there;
	int rc = 0;

	if (in < 0)
		return -errno;
	if (fstatat(to, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(there.st_mode))
		rc = tree_remove(to, name);
	if (rc == 0 && mkdirat(to, name, 0700) < 0 && errno != EEXIST)
		rc = -errno;
	if (rc < 0)
		return rc;
	out = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	rc = out < 0 ? -errno : do_dir(c, in, out, depth + 1);
	return rc < 0 ? rc : copier_attributes(from, name, st, to, name);
}

static int remove_gone(int to, const struct tree_names *kept)
{
	cleanup_names struct tree_names there = { 0 };
	int rc = tree_names(to, &there);

	for (size_t i = 0; rc == 0 && i < there.n; i++) {
		if (!mapped_has(kept, there.names[i]))
			rc = tree_remove(to, there.names[i]);
	}
	return rc;
}

/*
 * Is @name of @from, which was @then, gone, another thing, or as young as what may have changed without a trace? Whatever of it then failed says nothing: there may be a
 * whiteout (ENXIO, EACCES), a link (ELOOP), a file (ENOTDIR) or nothing (ENOENT) in its place by now.
 */
static bool is_changing(int from, const char *name, const struct copier_seen *then)
{
	struct copier_seen now;
	struct stat st;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT;
	now = seen_of(&st, (int64_t)clock_wall_ns());
	return now.ino != then->ino || now.mode != then->mode || now.ctime_ns != then->ctime_ns ||
	       now.ctime_ns + RACY_NS >= now.copied_ns;
}

static int do_name(struct copier *c, int from, const char *name, int to, int depth)
{
	struct copier_seen then;
	struct stat st;
	int rc;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT && is_first_pass(c) ? 0 : -errno;
	then = seen_of(&st, 0);
	if (is_first_pass(c) && fault("store.copy.looked") < 0)
		return -EIO;
	rc = S_ISDIR(st.st_mode) ? do_subdir(c, from, name, to, &st, depth)
				 : do_entry(c, from, name, to, &st);
	return rc < 0 && is_first_pass(c) && is_changing(from, name, &then) ? 0 : rc;
}

/*
 * What changes under our eyes is left to the second pass; in it nothing can change. @to has no attributes meanwhile: those of the first pass may be others by now, and a default access list
 * would be inherited by what is made in it.
 */
static int do_dir(struct copier *c, int from, int to, int depth)
{
	cleanup_names struct tree_names names = { 0 };
	size_t parent = c->path.n;
	int rc = depth > TREE_DEPTH_MAX ? -EOVERFLOW : tree_names(from, &names);

	if (rc == 0)
		rc = remove_gone(to, &names);
	if (rc == 0 && tree_xattrs_drop(to) < 0)
		rc = -EIO;
	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		if (parent > 0)
			buf_char(&c->path, '/');
		buf_str(&c->path, names.names[i]);
		if (buf_failed(&c->path))
			return -ENAMETOOLONG;
		rc = do_name(c, from, names.names[i], to, depth);
		if (rc == 0) {
			c->path.n = parent;
			c->path.p[parent] = '\0';
		}
	}
	return rc;
}

int copier_pass(struct copier *c, const struct tree_names *mapped, struct err *err)
{
	struct stat st;
	int rc;

	c->mapped = mapped;
	forget_pass(c);
	find_mapped_too(c);
	buf_reset(&c->path);
	rc = do_dir(c, c->from, c->to, 0);
	if (rc == 0)
		rc = fstat(c->from, &st) < 0 ? -errno
					     : copier_attributes(c->from, ".", &st, c->to, ".");
	if (rc == -EOVERFLOW)
		return err_raise(
			err, ERR_LIMIT, "a directory lies deeper than %d levels", TREE_DEPTH_MAX);
	if (rc < 0)
		return err_raise_sys(err, rc, "copy '%s/%s'", c->prefix, buf_cstr(&c->path));
	return 0;
}

int copier_save(const struct copier *c, FILE *index)
{
	for (size_t i = 0; i < c->seen.cap; i++) {
		const struct entry *e = &c->seen.slots[i];
		uint32_t n;

		if (e->path == NULL)
			continue;
		n = (uint32_t)strlen(e->path);
		if (fwrite(&n, sizeof(n), 1, index) != 1 || fwrite(e->path, n, 1, index) != 1 ||
			fwrite(&e->seen, sizeof(e->seen), 1, index) != 1)
			return -EIO;
	}
	return fflush(index) == 0 ? 0 : -errno;
}

void copier_previous(struct copier *c, int previous, bool clone, FILE *index)
{
	uint32_t n;

	while (fread(&n, sizeof(n), 1, index) == 1) {
		struct copier_seen seen;
		cleanup_free char *path = n < PATH_LONG ? calloc(1, n + 1) : NULL;

		if (path == NULL || fread(path, n, 1, index) != 1 ||
			fread(&seen, sizeof(seen), 1, index) != 1) {
			table_free(&c->before);
			c->before = (struct table){ 0 };
			return;
		}
		table_put(&c->before, path, &seen);
	}
	c->previous = previous;
	c->clone_previous = clone;
}
