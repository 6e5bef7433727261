/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/apply_judge.c - what of an apply is a conflict, and what is dangerous; see the header.
 *
 * What "before" was is proved, not remembered: see docs/design/0002 "Apply".
 */
#include "store/apply_judge.h"
#include "base/str.h"
#include "store/acl.h"
#include "store/apply.h"
#include "store/danger.h"
#include "store/danger_links.h"
#include "store/follow.h"
#include "store/origin.h"
#include "sys/btrfs.h"

#include <sys/stat.h>

static uint64_t ctime_ns(const struct stat *st)
{
	return (uint64_t)st->st_ctim.tv_sec * NS_PER_S + (uint64_t)st->st_ctim.tv_nsec;
}

void plan_note(json_t *list, const struct plan *p, const char *path, const char *reason)
{
	json_t *o = json_object();

	changes_path(o, p->target, path);
	if (reason != NULL)
		(void)json_object_set_new(o, "reason", json_string(reason));
	(void)json_array_append_new(list, o);
}

/* Birth of the entry (@dir, @name) of a layer; @since_ns where births mean nothing. */
static uint64_t birth_ns(const struct plan *p, size_t layer, int dir, const char *name)
{
	struct statx st;

	if (!p->a.layers[layer].births ||
		statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, STATX_BTIME, &st) < 0 ||
		(st.stx_mask & STATX_BTIME) == 0)
		return p->since_ns;
	return (uint64_t)st.stx_btime.tv_sec * NS_PER_S + st.stx_btime.tv_nsec;
}

static const json_t *recorded(const struct plan *p, const char *path)
{
	json_t *key = apply_hex(path);
	const json_t *entry =
		json_object_get(json_object_get(p->applied, p->target), json_string_value(key));

	json_decref(key);
	return entry;
}

/* What an earlier apply of this sandbox put there, if that is still it; NULL when not. */
static const json_t *put_there(const struct plan *p, const struct change *c)
{
	const json_t *entry = recorded(p, c->path);

	return (ino_t)json_integer_value(json_array_get(entry, 0)) == c->before->st.st_ino ? entry
											   : NULL;
}

/* An earlier apply of this sandbox put it there, and nobody touched it since. */
static bool is_ours(const struct plan *p, const struct change *c)
{
	const json_t *entry = put_there(p, c);

	return entry != NULL &&
	       (uint64_t)json_integer_value(json_array_get(entry, 1)) == ctime_ns(&c->before->st);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* @ns, or when a layer further down first had something at the path: what the sandbox changed there after it had been forked or sealed was not copied up from the host. */
static uint64_t first_at_path(const struct plan *p, const struct change *c, uint64_t ns)
{
	char name[NAME_MAX + 1];
	struct stat st;

	for (size_t i = c->after->layer + 1; i + 1 < p->a.n; i++) {
		cleanup_fd int parent = apply_parent(p->a.layers[i].root, c->path, name);

		if (parent >= 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			ns = earlier(ns, birth_ns(p, i, parent, name));
	}
	return ns;
}

/* @ns, or when the sandbox first had what (@dir, @name) of a layer was copied up from, layer by layer up to the host's: it may have had another path there. */
static uint64_t first_of_origin(const struct plan *p, int dir, const char *name, uint64_t ns)
{
	struct origin o;
	struct stat host, st;
	struct statx x;
	ssize_t n = btrfs_is(p->job->store.pool) && fstat(p->a.layers[p->a.n - 1].root, &host) == 0
			    ? origin_size(&o, origin_get(p->a.xattr, dir, name, &o))
			    : -ENODATA;

	for (size_t i = 0; n >= 0 && i < p->a.n; i++) {
		cleanup_fd int fd = origin_open(p->job->store.pool, &o, (size_t)n);

		if (fd < 0 || fstat(fd, &st) < 0 || st.st_dev == host.st_dev ||
			statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &x) < 0 ||
			(x.stx_mask & STATX_BTIME) == 0)
			break;
		ns = earlier(ns, (uint64_t)x.stx_btime.tv_sec * NS_PER_S + x.stx_btime.tv_nsec);
		n = origin_above(p->job->store.pool, p->a.xattr, &o, (size_t)n, &o);
	}
	return ns;
}

/*
 * When did the sandbox decide what is at this path? The base is the last layer. What was copied up is as old as its first change. What was made anew, in the place of a file, or as the directory that
 * lacks it, may stand for what the sandbox had changed or removed long before: editors and git write so. A file that was removed may have been changed before.
 */
static uint64_t decided_ns(const struct plan *p, const struct change *c)
{
	const struct found *a = c->after;
	size_t base = p->a.n - 1;
	struct origin o;
	const char *name;

	if ((a->kind != FOUND_NONE || a->whiteout) && a->layer != base) {
		int dir = a->kind == FOUND_NONE ? a->dir : found_at(a, &name);

		if (c->before->kind == FOUND_FILE &&
			(a->kind == FOUND_NONE ||
				(a->kind == FOUND_FILE &&
					origin_get(p->a.xattr, dir, name, &o) < 0)))
			return p->since_ns;
		if (a->kind == FOUND_NONE)
			name = a->name;
		return first_of_origin(
			p, dir, name, first_at_path(p, c, birth_ns(p, a->layer, dir, name)));
	}
	if (c->parent != NULL && c->parent->n > 0 && c->parent->parts[0].layer != base &&
		origin_get(p->a.xattr, c->parent->parts[0].fd, ".", &o) >= 0)
		return birth_ns(p, c->parent->parts[0].layer, c->parent->parts[0].fd, "");
	return p->since_ns;
}

static ssize_t origin_read(const struct plan *p, int dir, const char *name, struct origin *ret)
{
	return origin_first(p->job->store.pool, p->a.xattr, dir, name, p->a.n, ret);
}

static void find_successors(struct plan *p)
{
	json_t *there = json_object_get(p->applied, p->target), *entry;
	const char *path, *origin;

	p->successors = json_object();
	json_object_foreach (there, path, entry) {
		origin = json_string_value(json_array_get(entry, 2));
		if (origin == NULL || origin[0] == '\0')
			continue;
		if (json_object_get(p->successors, origin) == NULL)
			(void)json_object_set_new(p->successors, origin, json_array());
		(void)json_array_append_new(
			json_object_get(p->successors, origin), json_string(path));
	}
}

/* Is what an apply put at @path still there, untouched? */
static bool is_untouched(const struct plan *p, const char *path)
{
	const json_t *entry = recorded(p, path);
	char name[NAME_MAX + 1];
	cleanup_fd int parent = apply_parent(p->b.layers[0].root, path, name);
	struct stat st;

	return parent >= 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (ino_t)json_integer_value(json_array_get(entry, 0)) == st.st_ino &&
	       (uint64_t)json_integer_value(json_array_get(entry, 1)) == ctime_ns(&st);
}

/* The host's file that this entry was copied up from is gone: did an apply of this sandbox put the entry itself there since, which nobody touched? */
static bool was_succeeded(const struct plan *p, const struct origin *o, size_t n)
{
	cleanup_free char *origin = origin_text(o, n);
	const json_t *paths = json_object_get(p->successors, origin), *hex;
	size_t i;

	json_array_foreach (paths, i, hex) {
		cleanup_free char *path = apply_bytes(hex);

		if (path != NULL && is_untouched(p, path))
			return true;
	}
	return false;
}

/* Did an apply of a part, which did not bring this entry, take away what it was copied up from? */
static bool was_taken(const struct plan *p, const struct origin *o, size_t n)
{
	cleanup_free char *origin = origin_text(o, n);

	return json_object_get(json_object_get(p->applied, APPLY_TAKEN), origin) != NULL;
}

/* Did an earlier apply put something there, which the host has not any more? */
static bool took_away(const struct plan *p, const struct change *c)
{
	return c->before->kind == FOUND_NONE && c->after->layer != p->a.n - 1 &&
	       json_array_size(recorded(p, c->path)) > 2;
}

/* Is the host's file that this entry was copied up from still anywhere? true when it cannot be told. */
static bool origin_lives(const struct plan *p, const struct found *f)
{
	struct origin o;
	const char *name;
	int dir = found_at(f, &name);
	ssize_t n = origin_read(p, dir, name, &o);

	if (n < 0)
		return true;
	return origin_opens(
		       p->source >= 0 ? p->source : p->a.layers[p->a.n - 1].root, &o, (size_t)n) ||
	       origin_opens(p->job->store.pool, &o, (size_t)n) || was_succeeded(p, &o, (size_t)n) ||
	       was_taken(p, &o, (size_t)n);
}

/* Is it @st that an earlier apply of this sandbox left somewhere in this directory, put back when that was undone, say? */
static bool left_by_us(const struct plan *p, const struct stat *st)
{
	json_t *there = json_object_get(p->applied, p->target), *entry;
	const char *path;

	json_object_foreach (there, path, entry) {
		if ((ino_t)json_integer_value(json_array_get(entry, 0)) == st->st_ino &&
			(uint64_t)json_integer_value(json_array_get(entry, 1)) == ctime_ns(st))
			return true;
	}
	return false;
}

/* Was the host's file that this entry was copied up from moved, or changed, after the sandbox had decided? Directories get another ctime by what comes and goes in them, too, but with it their mtime. */
static bool origin_moved(const struct plan *p, const struct change *c)
{
	struct origin o;
	struct stat st;
	const char *name;
	int dir = found_at(c->after, &name);
	ssize_t n = p->elsewhere ? -ENODATA : origin_read(p, dir, name, &o);

	return n >= 0 && origin_stat(p->a.layers[p->a.n - 1].root, &o, (size_t)n, &st) == 1 &&
	       ctime_ns(&st) >= decided_ns(p, c) &&
	       !(S_ISDIR(st.st_mode) && (int64_t)ctime_ns(&st) == apply_mtime_ns(&st)) &&
	       !left_by_us(p, &st);
}

/*
 * Rootless an origin is empty: it says that a file was copied up, not from where. Of the layer on the host itself that is from the host; a new one was
 * either moved inside, which leaves the place of a host's file without it, or its place on the host is gone.
 */
static void count_copied(struct plan *p, const struct change *c, bool brought)
{
	const struct found *a = c->after, *b = c->before;
	const char *name;
	int dir = found_at(a, &name);
	bool copied;

	if (!p->job->store.rootless || p->elsewhere)
		return;
	copied = a->kind == FOUND_FILE && a->layer + 2 == p->a.n && a->st.st_nlink == 1 &&
		 origin_get(p->a.xattr, dir, name, &(struct origin){ 0 }) == 0;
	if (copied && b->kind == FOUND_NONE && brought)
		(void)json_array_append_new(p->copied, apply_hex(c->path));
	else if (copied && b->kind == FOUND_NONE)
		p->n_copied_left++;
	else if (!copied && b->kind == FOUND_FILE)
		++*(brought ? &p->n_vacant : &p->n_vacant_left);
}

static size_t vacated_before(const struct plan *p)
{
	return (size_t)json_integer_value(
		json_object_get(json_object_get(p->applied, APPLY_VACATED), p->target));
}

/* The places that this apply makes vacant count for what it leaves. */
static void keep_vacated(struct plan *p)
{
	size_t vacant = vacated_before(p) + p->n_vacant, copied = json_array_size(p->copied);
	size_t kept = vacant > copied ? vacant - copied : 0;

	if (kept > p->n_copied_left)
		kept = p->n_copied_left;
	if (kept > 0 || vacated_before(p) > 0)
		(void)json_object_set_new(p->vacated, p->target, json_integer((json_int_t)kept));
}

static void judge_copied(struct plan *p)
{
	size_t vacant = p->n_vacant + p->n_vacant_left + vacated_before(p), i;
	json_t *hex;

	if (json_array_size(p->copied) + p->n_copied_left <= vacant)
		return;
	json_array_foreach (p->copied, i, hex) {
		cleanup_free char *path = apply_bytes(hex);

		plan_note(p->conflicts, p, path,
			vacant == 0
				? "it was removed on the host after the sandbox had changed it"
				: "it, or another one of those with this reason, was removed on the host");
	}
}

static bool same_entry(int dir, const char *name, const struct stat *st, const struct found *f)
{
	char one[PATH_MAX], two[PATH_MAX];
	cleanup_fd int a = -1, b = -1;
	ssize_t n;

	if ((st->st_mode & S_IFMT) != (f->st.st_mode & S_IFMT) || st->st_size != f->st.st_size)
		return false;
	if (S_ISLNK(st->st_mode)) {
		n = readlinkat(dir, name, one, sizeof(one));
		return n >= 0 && n == readlinkat(f->dir, f->name, two, sizeof(two)) &&
		       memcmp(one, two, (size_t)n) == 0;
	}
	if (!S_ISREG(st->st_mode))
		return false;
	a = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	b = diff_open(f);
	return a >= 0 && b >= 0 && diff_same_bytes(a, b) == 1;
}

/*
 * Elsewhere than where the sandbox looked, times say nothing: a fresh copy is younger than every change. But what is there holds what the sandbox saw, if the
 * original does, and the original did not change since.
 */
static bool same_as_source(const struct plan *p, const struct change *c)
{
	char name[NAME_MAX + 1];
	cleanup_fd int parent = p->source < 0 ? -1 : apply_parent(p->source, c->path, name);
	struct stat st;

	return parent >= 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       ctime_ns(&st) < decided_ns(p, c) && same_entry(parent, name, &st, c->before);
}

static bool has_base(const struct plan *p, const struct merged *dir)
{
	return dir->n > 0 && dir->parts[dir->n - 1].layer == p->a.n - 1;
}

/* Is what the host has below @dir another directory than the one that the layer above it was copied up from? false when it cannot be told. */
static bool is_another(const struct plan *p, const struct merged *dir)
{
	struct stat was, is;
	struct origin o;
	ssize_t n;
	int there;

	if (dir->n < 2 || p->elsewhere)
		return false;
	n = origin_read(p, dir->parts[dir->n - 2].fd, ".", &o);
	if (n < 0 || fstat(dir->parts[dir->n - 1].fd, &is) < 0)
		return false;
	there = origin_stat(p->a.layers[p->a.n - 1].root, &o, (size_t)n, &was);
	return there == 0 || (there == 1 && (was.st_ino != is.st_ino || was.st_dev != is.st_dev));
}

/*
 * Was the host's directory moved to where it is since the sandbox deleted what was there? What is added to a directory or taken out of it gives both its times anew, and is judged by itself; a move, as a change of
 * mode, only the one. Elsewhere than where the sandbox looked times say nothing.
 */
static bool moved_since(const struct plan *p, const struct change *c)
{
	const struct stat *st = &c->before->st;

	return !p->elsewhere && (int64_t)ctime_ns(st) != apply_mtime_ns(st) &&
	       ctime_ns(st) >= decided_ns(p, c) && !is_ours(p, c);
}

/* Did the host make this directory after the sandbox had deleted what it is in? It may be empty, so that nothing in it tells. */
static bool born_since(const struct plan *p, const struct change *c)
{
	const char *name;
	int dir = found_at(c->before, &name);
	struct statx st;

	return !p->elsewhere && put_there(p, c) == NULL &&
	       statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, STATX_BTIME, &st) == 0 &&
	       (st.stx_mask & STATX_BTIME) != 0 &&
	       (uint64_t)st.stx_btime.tv_sec * NS_PER_S + st.stx_btime.tv_nsec >= decided_ns(p, c);
}

/* Does the host's own entry stay, or leave its access list to what replaces it? */
static bool keeps_acl(const struct change *c)
{
	return c->kind == CHANGE_METADATA ||
	       (c->after->kind == FOUND_FILE && c->before->kind == FOUND_FILE);
}

/* The list that what @c brings will have; what is new gets one from the directory that it comes into. */
static int acl_on_host(const struct plan *p, const struct change *c, struct acl *ret)
{
	cleanup_fd int parent = -1;
	const char *name;
	int dir;

	if (keeps_acl(c)) {
		dir = found_at(c->before, &name);
		return acl_get(dir, name, ACL_ACCESS, ret);
	}
	parent = apply_nearest(p->b.layers[0].root, c->path);
	return parent < 0 ? parent : acl_get(parent, ".", ACL_DEFAULT, ret);
}

mode_t plan_mode(const struct plan *p, const struct change *c, bool *left_out)
{
	const struct found *a = c->after;
	mode_t mode = a->kind == FOUND_NONE ? 0 : a->st.st_mode & 07777;
	struct acl inside = { 0 }, host = { 0 };
	const char *name;
	int dir;

	*left_out = false;
	if (a->kind == FOUND_NONE || S_ISLNK(a->st.st_mode))
		return mode;
	dir = found_at(a, &name);
	if (acl_get(dir, name, ACL_ACCESS, &inside) < 0 || acl_on_host(p, c, &host) < 0) {
		*left_out = true; /* nobody knows what the group may */
		return mode & ~(mode_t)S_IRWXG;
	}
	if (inside.n == 0 || acl_alike(&inside, &host))
		return mode;
	*left_out = true;
	if (host.n > 0 && keeps_acl(c))
		return (mode & ~(mode_t)S_IRWXG) | (c->before->st.st_mode & S_IRWXG);
	return acl_group_mode(&inside, mode);
}

bool plan_sets_mode(const struct plan *p, const struct change *c)
{
	bool left_out;

	return c->kind == CHANGE_METADATA &&
	       plan_mode(p, c, &left_out) != (c->before->st.st_mode & 07777);
}

/* A directory that the sandbox renamed shows what the host has at its old name: is there nothing any more, or something else? What was in it is then in no layer of the sandbox. */
static bool dangles(const struct plan *p, const struct merged *parent, const struct found *f)
{
	if (f->kind != FOUND_DIR || f->redirect == NULL)
		return false;
	if (has_base(p, &f->merged))
		return is_another(p, &f->merged);
	return !f->last && (f->redirect[0] == '/' || has_base(p, parent));
}

/* What is @path below? */
static void look_above(struct plan *p, const char *path)
{
	cleanup(merged_close) struct merged at = { 0 };
	bool on = stack_root(&p->a, &at) == 0;

	p->above_dangles = p->above_renamed = false;
	for (size_t n; on && path[n = strcspn(path, "/")] == '/'; path += n + 1) {
		cleanup(found_close) struct found f = { .dir = -1 };
		char name[NAME_MAX + 1];

		(void)snprintf(name, sizeof(name), "%.*s", (int)n, path);
		on = stack_lookup(&p->a, &at, name, &f) == 0 && f.kind == FOUND_DIR;
		if (!on)
			break;
		/* what the sandbox made itself shows nothing of the host: what is missing in there, it deleted */
		if (f.last && !has_base(p, &f.merged))
			p->above_dangles = p->above_renamed = false;
		p->above_dangles |= dangles(p, &at, &f);
		p->above_renamed |= f.redirect != NULL;
		merged_close(&at);
		at = f.merged;
		f.merged = (struct merged){ 0 };
	}
}

/*
 * Is what is missing inside missing only because a renamed directory lost what it had? So it is where that is gone on the host, and where an apply of this sandbox took it from
 * the old place, which is still there, to this one. Changes of one directory come one after the other: what is above is kept.
 */
static bool lost_by_rename(struct plan *p, const struct change *c)
{
	const char *slash = strrchr(c->path, '/');
	size_t n = slash != NULL ? (size_t)(slash - c->path) : 0;

	if (n == 0)
		return false;
	if (strlen(p->above) != n || memcmp(p->above, c->path, n) != 0) {
		(void)snprintf(p->above, sizeof(p->above), "%.*s", (int)n, c->path);
		look_above(p, c->path);
	}
	return p->above_dangles || (p->above_renamed && is_ours(p, c));
}

bool change_can_apply(const struct change *c)
{
	if (c->after->kind != FOUND_NONE && !plan_can_apply(c->after))
		return false;
	return c->kind != CHANGE_METADATA ||
	       (c->after->st.st_mode & 07777) != (c->before->st.st_mode & 07777);
}

bool plan_can_apply(const struct found *f)
{
	return S_ISREG(f->st.st_mode) || S_ISLNK(f->st.st_mode) || S_ISDIR(f->st.st_mode);
}

static void judge(struct plan *p, const struct change *c)
{
	const struct found *a = c->after, *b = c->before;
	const char *why = danger_change(c, p->place);
	bool lost = a->kind == FOUND_NONE ? !a->whiteout && lost_by_rename(p, c)
					  : c->parent != NULL && dangles(p, c->parent, a);

	if (lost)
		plan_note(p->conflicts, p, c->path,
			"a directory that the sandbox renamed is gone on the host, or an earlier apply renamed it there: what was in it is no longer in the sandbox");
	else if (b->kind != FOUND_NONE && !(b->kind == FOUND_DIR && (a->kind != FOUND_FILE)) &&
		 ctime_ns(&b->st) >= decided_ns(p, c) && !is_ours(p, c) && !same_as_source(p, c))
		plan_note(p->conflicts, p, c->path,
			"it changed on the host after the sandbox had changed it");
	else if (b->kind == FOUND_DIR && a->kind == FOUND_NONE && born_since(p, c))
		plan_note(p->conflicts, p, c->path,
			"it was made on the host after the sandbox had deleted what was there");
	else if (b->kind == FOUND_DIR && a->kind == FOUND_NONE && moved_since(p, c))
		plan_note(p->conflicts, p, c->path,
			"it was replaced on the host, or got another mode, after the sandbox had deleted it");
	else if (plan_sets_mode(p, c) && b->kind == FOUND_DIR && !p->elsewhere &&
		 ctime_ns(&b->st) >= decided_ns(p, c) && !is_ours(p, c))
		plan_note(p->conflicts, p, c->path,
			"it got another mode on the host, or something in it changed there, after the sandbox had changed it");
	else if (b->kind != FOUND_NONE && c->parent != NULL && has_base(p, c->parent) &&
		 is_another(p, c->parent))
		plan_note(p->conflicts, p, c->path,
			"the directory that it is in was replaced on the host after the sandbox had changed it");
	else if (took_away(p, c))
		plan_note(p->conflicts, p, c->path,
			"an earlier apply put it there, and it was removed or moved on the host since");
	else if (b->kind == FOUND_NONE && a->layer != p->a.n - 1 && !origin_lives(p, a))
		plan_note(p->conflicts, p, c->path,
			"it was removed or replaced on the host after the sandbox had changed it");
	else if (b->kind == FOUND_NONE && a->layer != p->a.n - 1 && origin_moved(p, c))
		plan_note(p->conflicts, p, c->path,
			"it was moved or changed on the host after the sandbox had changed it");
	if (why == NULL)
		why = danger_repository(c, &p->a);
	if (why != NULL)
		plan_note(p->executables, p, c->path, why);
	else if (a->kind != FOUND_NONE && c->content && plan_can_apply(a))
		(void)json_array_append_new(
			p->untold, json_pack("[o, b, b]", apply_hex(c->path), a->kind == FOUND_DIR,
					   S_ISREG(a->st.st_mode) && (a->st.st_mode & 0111) != 0));
}

/* What is dangerous only under another name that it has, and programs that would be other ones. */
static int judge_untold(struct plan *p, struct err *err)
{
	cleanup(danger_links_free) struct danger_links links = { 0 };
	json_t *one;
	size_t i;
	int rc = json_array_size(p->untold) == 0
			 ? 0
			 : danger_links_init(&links, p->b.layers[0].root, p->place);

	if (rc < 0)
		return err_raise_sys(err, rc, "find what leads into '%s'", p->target);
	json_array_foreach (p->untold, i, one) {
		cleanup_free char *path = apply_bytes(json_array_get(one, 0));

		danger_links_beside(&links, path);
	}
	json_array_foreach (p->untold, i, one) {
		cleanup_free char *path = apply_bytes(json_array_get(one, 0));
		const char *why =
			danger_links_at(&links, path, json_is_true(json_array_get(one, 1)));

		if (why != NULL)
			plan_note(p->executables, p, path, why);
		else if (json_is_true(json_array_get(one, 2)))
			plan_note(p->programs, p, path, NULL);
	}
	return 0;
}

char *plan_origin(const struct plan *p, const struct found *f)
{
	struct origin o;
	ssize_t n = f->kind == FOUND_FILE && f->layer != p->a.n - 1
			    ? origin_read(p, f->dir, f->name, &o)
			    : -ENODATA;

	return n < 0 ? str_dup("") : origin_text(&o, (size_t)n);
}

static void note_renamed(struct plan *p, const struct change *c)
{
	const struct found *a = c->after;

	if (a->kind == FOUND_DIR && a->redirect != NULL && has_base(p, &a->merged) &&
		!p->elsewhere && !follow_can(&p->a))
		plan_note(p->renamed, p, c->path,
			"what it had not changed in there is on this machine only");
}

void plan_judge_begin(struct plan *p)
{
	p->copied = json_array();
	p->n_vacant = p->n_vacant_left = p->n_copied_left = 0;
	p->above[0] = '\0';
	p->untold = json_array();
	find_successors(p);
}

void plan_judge(struct plan *p, const struct change *c)
{
	judge(p, c);
	note_renamed(p, c);
	count_copied(p, c, true);
}

void plan_leave(struct plan *p, const struct change *c)
{
	apply_part_leave(p, c);
	count_copied(p, c, false);
}

int plan_judge_end(struct plan *p, bool whole, struct err *err)
{
	int rc = 0;

	if (whole) {
		judge_copied(p);
		keep_vacated(p);
		rc = judge_untold(p, err);
	}
	json_decref(p->untold);
	json_decref(p->copied);
	json_decref(p->successors);
	return rc;
}
