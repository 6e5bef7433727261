/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/get.c - the job `get`: one file, or a tree as tar, out of a sandbox.
 *
 * A running sandbox is read through /proc/<pid>/root, a stopped one through its layers; both are a stack, and every step is (directory, name) without following
 * links in the kernel: links are resolved here, inside that root. Nothing but regular files is ever opened for reading.
 *
 * A stopped sandbox has no mounts: its cow mounts are stacks of their own (`places`), into which the way leads where they would be mounted, also where the root has no such
 * directory.
 */
#include "base/ablate.h"
#include "base/str.h"
#include "store/stack.h"
#include "store/tarout.h"
#include "store/verbs.h"

#define LINKS_MAX   40
#define CHUNK       (256U << 10)
#define PATH_LONG   (1U << 20)
#define DEFAULT_MAX (1ULL << 40)
#define PLACES_MAX  64

/* What would be mounted at @target of a stopped sandbox. */
struct place {
	const char *target; /* borrowed from the request */
	struct stack stack;
	bool host; /* a directory of the host as it is: none of the sandbox's files */
};

struct getter {
	struct job *job;
	struct stack stack;
	struct place places[PLACES_MAX];
	size_t n_places;
	const struct stack *within; /* the one in which what was asked for was found */
	uint64_t sent, max, base;
	json_t *seen; /* "dev:ino" -> path in the archive, of files with several names */
	struct buf path;
};

/* The directories from the root down to where we are. */
struct trail {
	struct step {
		struct merged dir; /* without parts: there is none, but a place is below it */
		const struct stack *of;
		size_t path_n; /* length of its path */
	} * steps;
	size_t n;
	struct buf path; /* of the last, "" = the root */
};

static void trail_free(struct trail *t)
{
	while (t->n > 0)
		merged_close(&t->steps[--t->n].dir);
	free(t->steps);
	buf_free(&t->path);
}

static const struct step *trail_top(const struct trail *t)
{
	return &t->steps[t->n - 1];
}

/* @dir, of @of, is where we are now: path @t->path. Stolen. */
static void trail_push(struct trail *t, struct merged *dir, const struct stack *of)
{
	t->steps = reallocarray(t->steps, t->n + 1, sizeof(*t->steps));
	if (t->steps == NULL)
		abort();
	t->steps[t->n++] = (struct step){ *dir, of, t->path.n };
	*dir = (struct merged){ 0 };
}

/* Forget what @t->path has behind the directory where we are. */
static void trail_here(struct trail *t)
{
	t->path.n = trail_top(t)->path_n;
	if (t->path.p != NULL)
		t->path.p[t->path.n] = '\0';
}

static void trail_up(struct trail *t)
{
	if (t->n > 1)
		merged_close(&t->steps[--t->n].dir);
	trail_here(t);
}

static int link_target(const struct found *f, char target[PATH_MAX])
{
	ssize_t n = readlinkat(f->dir, f->name, target, PATH_MAX - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	return 0;
}

/* Put the target of a link in front of what is left to walk. */
static int follow_link(struct buf *rest, const char *target, struct trail *t)
{
	cleanup_free char *old = str_dup(buf_cstr(rest));

	while (target[0] == '/' && t->n > 1)
		trail_up(t);
	buf_reset(rest);
	buf_fmt(rest, "%s/", target);
	buf_str(rest, old);
	return buf_failed(rest) ? -ENAMETOOLONG : 0;
}

static size_t next_name(struct buf *rest, char name[NAME_MAX + 1])
{
	size_t skip = strspn(buf_cstr(rest), "/"), n = strcspn(buf_cstr(rest) + skip, "/");

	(void)snprintf(name, NAME_MAX + 1, "%.*s", (int)(n <= NAME_MAX ? n : NAME_MAX),
		buf_cstr(rest) + skip);
	buf_consume(rest, skip + n);
	return n;
}

static bool is_last(const struct buf *rest)
{
	return buf_cstr(rest)[strspn(buf_cstr(rest), "/")] == '\0';
}

static struct place *place_at(struct getter *g, const char *path)
{
	for (size_t i = 0; i < g->n_places; i++) {
		if (str_eq(g->places[i].target, path))
			return &g->places[i];
	}
	return NULL;
}

/* Is there a place below @path? */
static bool leads_on(const struct getter *g, const char *path)
{
	size_t n = strlen(path);

	for (size_t i = 0; i < g->n_places; i++) {
		if (strncmp(g->places[i].target, path, n) == 0 && g->places[i].target[n] == '/')
			return true;
	}
	return false;
}

/*
 * What is @name where we are? @trail->path becomes its path. Return: 0 with @ret, which is %FOUND_NONE when there is nothing but a place further down; or -errno. @ret_of: its stack.
 */
static int look_up(struct getter *g, struct trail *trail, const char *name,
	const struct stack **ret_of, struct found *ret)
{
	struct merged root = { 0 };
	struct place *place;
	int rc;

	trail_here(trail);
	buf_fmt(&trail->path, "/%s", name);
	if (buf_failed(&trail->path))
		return -ENAMETOOLONG;
	place = place_at(g, buf_cstr(&trail->path));
	if (place == NULL) {
		*ret_of = trail_top(trail)->of;
		rc = stack_lookup(*ret_of, &trail_top(trail)->dir, name, ret);
		return rc == 0 && ret->kind == FOUND_NONE && !leads_on(g, buf_cstr(&trail->path))
			       ? -ENOENT
			       : rc;
	}
	if (place->host)
		return -EXDEV;
	*ret_of = &place->stack;
	rc = stack_root(&place->stack, &root);
	if (rc == 0)
		rc = found_dir(&root, ret);
	merged_close(&root);
	return rc;
}

/*
 * Find absolute @path. @trail keeps open what @ret borrows. Links are followed, also at the end. The root itself is a directory without a name.
 */
static int resolve(struct getter *g, const char *path, struct trail *trail, struct found *ret)
{
	cleanup_buf struct buf rest = BUF_INIT(PATH_LONG);
	struct merged root = { 0 };
	int rc = stack_root(&g->stack, &root), links = 0;

	trail->path = (struct buf)BUF_INIT(PATH_LONG);
	trail_push(trail, &root, &g->stack);
	buf_str(&rest, path);
	while (rc == 0) {
		char name[NAME_MAX + 1], target[PATH_MAX];
		size_t n = next_name(&rest, name);
		const struct stack *of;

		found_close(ret);
		*ret = (struct found){ .dir = -1 };
		if (n == 0) { /* where we stand */
			ret->kind = FOUND_DIR;
			g->within = trail_top(trail)->of;
			return found_dir(&trail_top(trail)->dir, ret);
		}
		if (n > NAME_MAX)
			return -ENAMETOOLONG;
		if (str_eq(name, "."))
			continue;
		if (str_eq(name, "..")) {
			trail_up(trail);
			continue;
		}
		rc = look_up(g, trail, name, &of, ret);
		if (rc < 0)
			return rc;
		if (ret->kind == FOUND_FILE && S_ISLNK(ret->st.st_mode)) {
			rc = ++links > LINKS_MAX ? -ELOOP : link_target(ret, target);
			if (rc == 0)
				rc = follow_link(&rest, target, trail);
			continue;
		}
		g->within = of;
		if (is_last(&rest))
			return ret->kind == FOUND_NONE ? -ENOENT : 0;
		if (ret->kind == FOUND_FILE)
			return -ENOTDIR;
		trail_push(trail, &ret->merged, of);
	}
	return rc;
}

static int out(struct getter *g, const void *bytes, size_t n)
{
	for (size_t at = 0; at < n;) {
		size_t part = n - at < CHUNK ? n - at : CHUNK;
		int rc = g->sent + part > g->max
				 ? -EFBIG
				 : job_output(g->job, g->sent, (const char *)bytes + at, part);

		if (rc < 0)
			return rc;
		g->sent += part;
		at += part;
	}
	return 0;
}

/* What was a regular file a moment ago may be a FIFO now: look again at what was opened. */
static int open_regular(const struct found *f)
{
	cleanup_fd int fd =
		openat(f->dir, f->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) || ablated("regular_files_only") ? TAKE_FD(fd) : -ESTALE;
}

/* Exactly @size bytes: a file that shrank is filled up with zeros when @fill, for a header has promised them. */
static int send_bytes(struct getter *g, int fd, uint64_t size, bool fill)
{
	static char chunk[CHUNK];

	for (uint64_t at = 0; at < size;) {
		size_t want = size - at < sizeof(chunk) ? (size_t)(size - at) : sizeof(chunk);
		ssize_t n = pread(fd, chunk, want, (off_t)at);
		int rc;

		if (n < 0)
			return -errno;
		if (n == 0 && !fill)
			return 0;
		if (n == 0) {
			memset(chunk, 0, want);
			n = (ssize_t)want;
		}
		rc = out(g, chunk, (size_t)n);
		if (rc < 0)
			return rc;
		at += (uint64_t)n;
	}
	return 0;
}

static int get_file(struct getter *g, const struct found *f, const char *path, struct err *err)
{
	cleanup_fd int fd = -1;
	struct stat st;
	int rc;

	if (f->kind == FOUND_DIR)
		return err_hint(err,
			err_member(err, err_raise(err, ERR_INVALID, "'%s' is a directory", path),
				"format"),
			"ask for it as tar");
	if (!S_ISREG(f->st.st_mode) && !ablated("regular_files_only"))
		return err_raise(err, ERR_INVALID, "'%s' is not a regular file", path);
	fd = open_regular(f);
	if (fd < 0)
		return err_raise_sys(err, fd, "open '%s'", path);
	if (fstat(fd, &st) < 0)
		return err_raise_sys(err, -errno, "look at '%s'", path);
	if ((uint64_t)st.st_size > g->max)
		return err_raise(err, ERR_TOO_LARGE, "'%s' has %lld bytes, more than %llu", path,
			(long long)st.st_size, (unsigned long long)g->max);
	rc = job_send(g->job, json_pack("{s:s, s:i, s:I}", "type", "file", "mode",
				      st.st_mode & 07777, "size", (json_int_t)st.st_size));
	if (rc == 0)
		rc = send_bytes(g, fd, (uint64_t)st.st_size, false);
	return rc < 0 ? err_raise_sys(err, rc, "read '%s'", path) : 0;
}

/* Host id -> id inside. */
static uint32_t inside(const struct getter *g, uint32_t id)
{
	return id >= g->base && id - g->base < 65536 ? (uint32_t)(id - g->base) : id;
}

static const char *earlier_name(struct getter *g, const struct stat *st)
{
	cleanup_free char *key = NULL;
	const json_t *known;

	if (st->st_nlink < 2 || !S_ISREG(st->st_mode))
		return NULL;
	key = str_dupf("%llu:%llu", (unsigned long long)st->st_dev, (unsigned long long)st->st_ino);
	known = json_object_get(g->seen, key);
	if (known != NULL)
		return json_string_value(known);
	(void)json_object_set_new(
		g->seen, key, json_stringn_nocheck(buf_cstr(&g->path), g->path.n));
	return NULL;
}

/* It is not there any more, or nobody inside may read it (struct overlay: stranger). */
static bool is_gone(int rc)
{
	return rc == -ENOENT || rc == -ESTALE || rc == -EACCES;
}

static int tar_entry(struct getter *g, const struct found *f)
{
	cleanup(tree_xattrs_free) struct tree_xattrs xattrs = { 0 };
	cleanup_buf struct buf header = BUF_INIT(8U << 20);
	struct stat st = f->st;
	struct tarout_entry e = { .path = buf_cstr(&g->path), .st = &st, .xattrs = &xattrs };
	static const char zeros[TAROUT_BLOCK];
	char target[PATH_MAX];
	const char *name;
	cleanup_fd int fd = -1;
	int dir = found_at(f, &name), rc = tree_xattrs_read(dir, name, "trusted.", &xattrs);

	if (S_ISSOCK(st.st_mode) || rc < 0)
		return rc;
	if (S_ISREG(st.st_mode)) {
		fd = open_regular(f);
		if (fd < 0 || fstat(fd, &st) < 0)
			return fd < 0 ? fd : -errno;
	}
	if (S_ISLNK(st.st_mode)) {
		rc = link_target(f, target);
		if (rc < 0)
			return rc;
		e.link = target;
	}
	e.uid = inside(g, st.st_uid);
	e.gid = inside(g, st.st_gid);
	e.hard = fd >= 0 && (e.link = earlier_name(g, &st)) != NULL;
	tarout_header(&header, &e);
	rc = buf_failed(&header) ? -E2BIG : out(g, header.p, header.n);
	if (rc < 0 || fd < 0 || e.hard)
		return rc;
	rc = send_bytes(g, fd, (uint64_t)st.st_size, true);
	if (is_gone(rc))
		rc = -EIO; /* it cannot be left out any more: its header has promised bytes */
	return rc < 0 ? rc : out(g, zeros, tarout_padding((uint64_t)st.st_size));
}

static int tar_dir(struct getter *g, const struct merged *dir, int depth)
{
	cleanup_names struct tree_names names = { 0 };
	size_t parent = g->path.n;
	int rc = depth > TREE_DEPTH_MAX ? -ELOOP : stack_list(dir, 0, dir->n, &names);

	tree_names_sort(&names);
	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		cleanup(found_close) struct found f = { .dir = -1 };

		buf_fmt(&g->path, "%s%s", parent > 0 ? "/" : "", names.names[i]);
		rc = buf_failed(&g->path) ? -ENAMETOOLONG
					  : stack_lookup(g->within, dir, names.names[i], &f);
		if (rc == 0 && f.kind != FOUND_NONE)
			rc = tar_entry(g, &f);
		if (rc == 0 && f.kind == FOUND_DIR)
			rc = tar_dir(g, &f.merged, depth + 1);
		if (is_gone(rc))
			rc = 0; /* a running sandbox removed it just now, or it is not for us */
		if (rc == 0) {
			g->path.n = parent;
			g->path.p[parent] = '\0';
		}
	}
	return rc;
}

static int get_tar(struct getter *g, const struct found *f, const char *path, struct err *err)
{
	cleanup_buf struct buf end = BUF_INIT(4096);
	const char *slash = strrchr(path, '/');
	int rc = job_send(g->job, json_pack("{s:s}", "type", "tar"));

	buf_str(&g->path, slash == NULL || slash[1] == '\0' ? "." : slash + 1);
	if (rc == 0)
		rc = tar_entry(g, f);
	if (rc == 0 && f->kind == FOUND_DIR)
		rc = tar_dir(g, &f->merged, 0);
	tarout_end(&end);
	if (rc == 0)
		rc = out(g, end.p, end.n);
	if (rc == -EFBIG)
		return err_raise(err, ERR_TOO_LARGE, "'%s' as tar is larger than %llu bytes", path,
			(unsigned long long)g->max);
	if (rc == -ELOOP)
		return err_raise(
			err, ERR_LIMIT, "'%s' is deeper than %d levels", path, TREE_DEPTH_MAX);
	return rc < 0 ? err_raise_sys(err, rc, "read '%s'", buf_cstr(&g->path)) : 0;
}

static int open_places(struct getter *g, struct err *err)
{
	const json_t *e;
	size_t i;
	int rc = 0;

	json_array_foreach (json_object_get(g->job->request, "places"), i, e) {
		const json_t *stack = json_object_get(e, "stack");
		struct place *p = &g->places[g->n_places];

		if (g->n_places == PLACES_MAX)
			return err_raise(err, ERR_LIMIT, "more than %d places", PLACES_MAX);
		p->target = json_string_value(json_object_get(e, "target"));
		if (p->target == NULL || !str_path_clean(p->target))
			return err_raise(err, ERR_INVALID,
				"a place has no clean absolute path as its target");
		p->host = stack == NULL;
		g->n_places++;
		if (!p->host)
			rc = stack_open(&p->stack, &g->job->store, stack, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int open_place(struct getter *g, struct err *err)
{
	const json_t *request = g->job->request, *stack = json_object_get(request, "stack");
	uint64_t pid;
	json_t *one;
	int rc = job_number(request, "pid", 0, &pid, err);

	if (rc < 0)
		return rc;
	if (pid == 0) {
		rc = stack_open(&g->stack, &g->job->store, stack, err);
		return rc == 0 ? open_places(g, err) : rc;
	}
	one = json_pack("[o]", json_sprintf("/proc/%llu/root", (unsigned long long)pid));
	rc = stack_open(&g->stack, &g->job->store, one, err);
	json_decref(one);
	/* of a process that has ended; of its files that says nothing */
	if (rc == -ENOENT)
		rc = err_raise(err, ERR_BUSY,
			"the sandbox is being ended: its files can be read behind that");
	return rc;
}

int store_get(struct job *job, json_t **ok, struct err *err)
{
	struct getter g = { .job = job, .seen = json_object(), .path = BUF_INIT(PATH_LONG) };
	cleanup(trail_free) struct trail trail = { 0 };
	cleanup(found_close) struct found f = { .dir = -1 };
	const char *path = job_text(job->request, "path", err);
	const char *format = json_string_value(json_object_get(job->request, "format"));
	bool tar = format != NULL && str_eq(format, "tar");
	int rc = path == NULL ? -EINVAL
			      : job_number(job->request, "max_bytes", DEFAULT_MAX, &g.max, err);

	if (rc == 0)
		rc = job_number(job->request, "uid_base", 0, &g.base, err);
	if (rc == 0 && path[0] != '/')
		rc = err_raise(err, ERR_INVALID, "path '%s' is not absolute", path);
	if (rc == 0)
		rc = open_place(&g, err);
	if (rc == 0)
		rc = job_opened(job, err);
	if (rc == 0) {
		rc = resolve(&g, path, &trail, &f);
		if (rc == -EXDEV)
			(void)err_hint(err,
				err_raise(err, ERR_STATE,
					"'%s' is in a directory of the host that is mounted as it is: a stopped sandbox has no files there",
					path),
				"read it on the host, or start the sandbox");
		else if (rc == -ELOOP || rc == -ENOTDIR || rc == -ENAMETOOLONG)
			(void)err_raise(
				err, ERR_INVALID, "'%s' in the sandbox: %s", path, strerror(-rc));
		else if (rc < 0)
			(void)err_raise_sys(err, rc, "find '%s' in the sandbox", path);
	}
	if (rc == 0)
		rc = tar ? get_tar(&g, &f, path, err) : get_file(&g, &f, path, err);
	if (rc == 0)
		*ok = json_pack("{s:I}", "bytes", (json_int_t)g.sent);
	stack_close(&g.stack);
	for (size_t i = 0; i < g.n_places; i++)
		stack_close(&g.places[i].stack);
	json_decref(g.seen);
	buf_free(&g.path);
	return rc;
}
