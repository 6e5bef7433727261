/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/diff.c - see the header.
 *
 * The walk goes down both merged trees at once. Let the layers at the end of both stacks that are the same be common. A directory whose parts are the same common
 * directories on both sides, and nothing else, is not entered. If the common parts are the same, only names in the other parts can differ.
 */
#include "store/diff.h"
#include "base/clock.h"
#include "base/str.h"
#include "store/import_start.h"
#include "sys/file.h"

#define PATH_LONG (1U << 20)

/* A file whose ctime is this much older than both captures was not written between reading the clock and the capture. */
#define SETTLED_NS NS_PER_S

struct walk {
	const struct diff *d;
	size_t common; /* layers at the end of both stacks */
	bool one_id; /* every owner is ours, or one that cannot be expressed: nothing inside could make the difference */
	struct buf path;
};

static int pair(struct walk *w, const struct merged *a, const struct merged *b, int depth);

int diff_open(const struct found *f)
{
	int fd = openat(f->dir, f->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static uint64_t ctime_ns(const struct stat *st)
{
	return (uint64_t)st->st_ctim.tv_sec * NS_PER_S + (uint64_t)st->st_ctim.tv_nsec;
}

/* Two captures of one live subvolume: the same inode, untouched. */
static bool same_by_lineage(const struct walk *w, const struct found *a, const struct found *b)
{
	const struct stack_layer *la = &w->d->a->layers[a->layer], *lb = &w->d->b->layers[b->layer];
	uint64_t then = ctime_ns(&a->st);

	return la->lineage[0] != '\0' && str_eq(la->lineage, lb->lineage) &&
	       a->st.st_ino == b->st.st_ino && a->st.st_size == b->st.st_size &&
	       then == ctime_ns(&b->st) && then + SETTLED_NS < la->captured_ns &&
	       then + SETTLED_NS < lb->captured_ns;
}

int diff_same_bytes(int a, int b)
{
	static char one[1 << 17], two[1 << 17];

	for (off_t at = 0;;) {
		off_t at_a = file_data_from(a, at), at_b = file_data_from(b, at);
		ssize_t n, m;

		at = at_a < at_b ? at_a : at_b; /* in front of it both are holes */
		n = pread(a, one, sizeof(one), at);
		m = pread(b, two, sizeof(two), at);
		if (n < 0 || m < 0)
			return -errno;
		if (n != m || memcmp(one, two, (size_t)n) != 0)
			return 0;
		if (n == 0)
			return 1;
		at += n;
	}
}

static int same_link(const struct found *a, const struct found *b)
{
	char one[PATH_MAX], two[PATH_MAX];
	ssize_t n = readlinkat(a->dir, a->name, one, sizeof(one));
	ssize_t m = n < 0 ? n : readlinkat(b->dir, b->name, two, sizeof(two));

	if (n < 0 || m < 0)
		return -errno;
	return n == m && memcmp(one, two, (size_t)n) == 0;
}

/* Return: 1 the same content, 0 another, -errno. Types are equal. */
static int same_content(const struct walk *w, const struct found *a, const struct found *b)
{
	if (S_ISREG(a->st.st_mode)) {
		cleanup_fd int one = -1, two = -1;

		if (a->st.st_size != b->st.st_size)
			return 0;
		if (same_by_lineage(w, a, b))
			return 1;
		one = diff_open(a);
		two = one < 0 ? one : diff_open(b);
		return two < 0 ? two : diff_same_bytes(one, two);
	}
	if (S_ISLNK(a->st.st_mode))
		return same_link(a, b);
	if (S_ISCHR(a->st.st_mode) || S_ISBLK(a->st.st_mode))
		return a->st.st_rdev == b->st.st_rdev;
	return 1;
}

static bool same_owner(const struct walk *w, const struct found *a, const struct found *b)
{
	return w->one_id || (a->st.st_uid == b->st.st_uid && a->st.st_gid == b->st.st_gid);
}

static int same_attributes(const struct walk *w, const struct found *a, const struct found *b)
{
	const char *an, *bn;
	int ad = found_at(a, &an), bd = found_at(b, &bn);

	if ((a->st.st_mode & 07777) != (b->st.st_mode & 07777) || !same_owner(w, a, b))
		return 0;
	return tree_xattrs_same(ad, an, bd, bn, w->d->a->xattr);
}

static int emit(struct walk *w, enum change_kind kind, const struct found *a, const struct found *b,
	const struct merged *parent, bool content)
{
	const struct change change = { .kind = kind,
		.path = buf_cstr(&w->path),
		.before = b,
		.after = a,
		.parent = parent,
		.content = content };

	return w->d->change(&change, w->d->arg);
}

/* Everything in one merged directory, on the one side on which it is. */
static int whole(
	struct walk *w, const struct stack *stack, const struct merged *dir, bool added, int depth)
{
	static const struct found none = { .kind = FOUND_NONE, .dir = -1 };
	static const struct merged nowhere = { 0 };
	cleanup_names struct tree_names names = { 0 };
	size_t parent = w->path.n;
	int rc = depth > TREE_DEPTH_MAX ? -ELOOP : stack_list(dir, 0, dir->n, &names);

	tree_names_sort(&names);
	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		cleanup(found_close) struct found f = { .dir = -1 };

		buf_fmt(&w->path, "%s%s", parent > 0 ? "/" : "", names.names[i]);
		rc = buf_failed(&w->path) ? -ENAMETOOLONG
					  : stack_lookup(stack, dir, names.names[i], &f);
		if (rc == 0 && f.kind != FOUND_NONE && added)
			rc = emit(w, CHANGE_ADDED, &f, &none, dir, true);
		if (rc == 0 && f.kind == FOUND_DIR)
			rc = whole(w, stack, &f.merged, added, depth + 1);
		if (rc == 0 && f.kind != FOUND_NONE && !added)
			rc = emit(w, CHANGE_DELETED, &none, &f, &nowhere, true);
		if (rc == -ENOENT) /* a running sandbox removed it just now */
			rc = 0;
		if (rc == 0) {
			w->path.n = parent;
			w->path.p[parent] = '\0';
		}
	}
	return rc;
}

static int appeared(struct walk *w, const struct found *a, const struct found *b,
	const struct merged *parent, int depth)
{
	int rc = emit(w, CHANGE_ADDED, a, b, parent, true);

	return rc == 0 && a->kind == FOUND_DIR ? whole(w, w->d->a, &a->merged, true, depth + 1)
					       : rc;
}

static int vanished(struct walk *w, const struct found *a, const struct found *b,
	const struct merged *parent, int depth)
{
	int rc = b->kind == FOUND_DIR ? whole(w, w->d->b, &b->merged, false, depth + 1) : 0;

	return rc == 0 ? emit(w, CHANGE_DELETED, a, b, parent, true) : rc;
}

static int another_type(struct walk *w, const struct found *a, const struct found *b,
	const struct merged *parent, int depth)
{
	int rc = b->kind == FOUND_DIR ? whole(w, w->d->b, &b->merged, false, depth + 1) : 0;

	if (rc == 0)
		rc = emit(w, CHANGE_MODIFIED, a, b, parent, true);
	return rc == 0 && a->kind == FOUND_DIR ? whole(w, w->d->a, &a->merged, true, depth + 1)
					       : rc;
}

static int both(struct walk *w, const struct found *a, const struct found *b,
	const struct merged *parent, int depth)
{
	int same = 1, rc;

	if ((a->st.st_mode & S_IFMT) != (b->st.st_mode & S_IFMT))
		return another_type(w, a, b, parent, depth);
	if (a->st.st_dev != b->st.st_dev || a->st.st_ino != b->st.st_ino) {
		same = a->kind == FOUND_DIR ? 1 : same_content(w, a, b);
		if (same == 0)
			rc = emit(w, CHANGE_MODIFIED, a, b, parent, true);
		else
			rc = same < 0 ? same : same_attributes(w, a, b);
		if (same == 1 && rc == 0)
			rc = emit(w, CHANGE_METADATA, a, b, parent, false);
		else if (same == 1 && rc == 1)
			rc = 0;
		if (rc != 0)
			return rc;
	}
	return a->kind == FOUND_DIR ? pair(w, &a->merged, &b->merged, depth + 1) : 0;
}

static int one_name(struct walk *w, const struct merged *ma, const struct merged *mb,
	const char *name, int depth)
{
	cleanup(found_close) struct found a = { .dir = -1 }, b = { .dir = -1 };
	int rc = stack_lookup(w->d->a, ma, name, &a);

	if (rc == 0)
		rc = stack_lookup(w->d->b, mb, name, &b);
	if (rc < 0)
		return rc;
	if (a.kind == FOUND_NONE && b.kind == FOUND_NONE)
		return 0;
	if (b.kind == FOUND_NONE)
		return appeared(w, &a, &b, ma, depth);
	if (a.kind == FOUND_NONE)
		return vanished(w, &a, &b, ma, depth);
	return both(w, &a, &b, ma, depth);
}

/* How many parts at the top of @m come from layers that are not common? */
static size_t own_parts(const struct walk *w, const struct stack *stack, const struct merged *m)
{
	size_t n = 0;

	while (n < m->n && m->parts[n].layer < stack->n - w->common)
		n++;
	return n;
}

static bool same_common(const struct walk *w, const struct merged *a, size_t from_a,
	const struct merged *b, size_t from_b)
{
	if (a->n - from_a != b->n - from_b)
		return false;
	for (size_t i = 0; i < a->n - from_a; i++) {
		const struct merged_part *pa = &a->parts[from_a + i], *pb = &b->parts[from_b + i];
		struct stat one, two;

		if (w->d->a->n - pa->layer != w->d->b->n - pb->layer || fstat(pa->fd, &one) < 0 ||
			fstat(pb->fd, &two) < 0 || one.st_ino != two.st_ino ||
			one.st_dev != two.st_dev)
			return false;
	}
	return true;
}

static int pair(struct walk *w, const struct merged *a, const struct merged *b, int depth)
{
	cleanup_names struct tree_names names = { 0 };
	size_t own_a = own_parts(w, w->d->a, a), own_b = own_parts(w, w->d->b, b),
	       parent = w->path.n;
	bool same = same_common(w, a, own_a, b, own_b);
	int rc;

	if (same && own_a == 0 && own_b == 0)
		return 0;
	rc = depth > TREE_DEPTH_MAX ? -ELOOP : stack_list(a, 0, same ? own_a : a->n, &names);
	if (rc == 0)
		rc = stack_list(b, 0, same ? own_b : b->n, &names);
	tree_names_sort(&names);
	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		buf_fmt(&w->path, "%s%s", parent > 0 ? "/" : "", names.names[i]);
		rc = buf_failed(&w->path) ? -ENAMETOOLONG
					  : one_name(w, a, b, names.names[i], depth);
		if (rc == -ENOENT) /* a running sandbox removed it just now */
			rc = 0;
		if (rc == 0) {
			w->path.n = parent;
			w->path.p[parent] = '\0';
		}
	}
	return rc;
}

static size_t common_layers(const struct stack *a, const struct stack *b)
{
	size_t n = 0;

	while (n < a->n && n < b->n &&
		str_eq(a->layers[a->n - 1 - n].path, b->layers[b->n - 1 - n].path))
		n++;
	return n;
}

int diff_run(const struct diff *diff, struct err *err)
{
	struct walk w = { .d = diff,
		.common = common_layers(diff->a, diff->b),
		.one_id = importer_ids(store_is_rootless()) == 1,
		.path = BUF_INIT(PATH_LONG) };
	cleanup(merged_close) struct merged a = { 0 }, b = { 0 };
	int rc = stack_root(diff->a, &a);

	if (rc == 0)
		rc = stack_root(diff->b, &b);
	if (rc == 0) {
		buf_str(&w.path, "");
		rc = pair(&w, &a, &b, 0);
	}
	if (rc == -ELOOP)
		(void)err_raise(err, ERR_LIMIT, "'%.200s…' lies deeper than %d levels",
			buf_cstr(&w.path), TREE_DEPTH_MAX);
	else if (rc < 0)
		(void)err_raise_sys(err, rc, "compare '%s'", buf_cstr(&w.path));
	buf_free(&w.path);
	return rc;
}
