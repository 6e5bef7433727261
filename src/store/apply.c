/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/apply.c - see the header.
 *
 * Invariants
 *  (1) before the first step the journal, everything staged and the directories that hold them are on disk; before it is marked done, all steps are;
 *  (2) every step is one rename(2) or chmod(2), and tells by inode numbers whether it was done: undoing twice does nothing, nor does it matter which of them
 *      a crash of the machine has kept;
 *  (3) nothing that the host had is deleted before the journal is marked done.
 */
#include "store/apply.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "store/source.h"
#include "store/tree.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <sys/fsuid.h>

#define JOURNAL_NEW    ".new"
#define JOURNAL_FAILED ".failed" /* nobody undoes it any more: a person has to look */
#define INSIDE         (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV)

int apply_as(uid_t uid, gid_t gid, const json_t *groups)
{
	int rc;

	if (geteuid() != 0)
		return 0;
	/* setfsuid() drops the capabilities over files on the way from 0, and gives them back on the way to it */
	(void)setfsuid(0);
	rc = job_set_groups(uid == 0 ? NULL : groups);
	if (rc < 0 && rc != -EPERM)
		return rc;
	(void)setfsgid(gid);
	(void)setfsuid(uid);
	return (uid_t)setfsuid((uid_t)-1) == uid ? 0 : -EPERM;
}

int apply_parent(int target, const char *path, char name[NAME_MAX + 1])
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *dir =
		slash == NULL ? str_dup(".") : strndup(path, (size_t)(slash - path));

	if (dir == NULL || str_copy(name, NAME_MAX + 1, slash == NULL ? path : slash + 1) < 0)
		return -ENAMETOOLONG;
	return raw_openat2(target, dir, O_RDONLY | O_DIRECTORY, 0, INSIDE);
}

int apply_staging(int target, const char *id, bool make)
{
	cleanup_free char *name = str_dupf(APPLY_STAGING "%s", id);

	if (make && mkdirat(target, name, 0700) < 0)
		return -errno;
	return raw_openat2(target, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, INSIDE);
}

json_t *apply_hex(const char *bytes)
{
	cleanup_buf struct buf out = BUF_INIT(1U << 22);

	for (const char *p = bytes; *p != '\0'; p++)
		buf_fmt(&out, "%02x", (unsigned char)*p);
	return json_string(buf_cstr(&out));
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

char *apply_bytes(const json_t *hex)
{
	const char *s = json_string_value(hex);
	size_t n = s == NULL ? 0 : strlen(s);
	char *out;

	if (n == 0 || n % 2 != 0)
		return NULL;
	out = xalloc(n / 2 + 1);
	for (size_t i = 0; i < n; i += 2) {
		int high = digit(s[i]), low = digit(s[i + 1]);

		if (high < 0 || low < 0 || high + low == 0) {
			free(out);
			return NULL;
		}
		out[i / 2] = (char)(16 * high + low);
	}
	return out;
}

/* One step with all that it acts on opened. */
struct step {
	const char *op;
	char *path;
	char name[NAME_MAX + 1], old_name[24], new_name[24];
	int target, parent, staging;
	ino_t old_ino, new_ino;
	int64_t mtime_ns, new_mtime_ns; /* of the old entry and the new one; 0 = not compared */
	mode_t mode, was;
};

static void step_close(struct step *s)
{
	fd_close(&s->target);
	fd_close(&s->parent);
	fd_close(&s->staging);
	free(s->path);
}

static int64_t number(const json_t *from, const char *name)
{
	return json_integer_value(json_object_get(from, name));
}

static int step_open(const json_t *journal, size_t i, struct step *s)
{
	const json_t *j = json_array_get(json_object_get(journal, "steps"), i);
	const char *id = json_string_value(json_object_get(journal, "id"));
	const char *target = json_string_value(
		json_array_get(json_object_get(journal, "targets"), (size_t)number(j, "tree")));

	*s = (struct step){ .target = -1, .parent = -1, .staging = -1 };
	s->op = json_string_value(json_object_get(j, "op"));
	s->path = apply_bytes(json_object_get(j, "path"));
	if (s->op == NULL || s->path == NULL || target == NULL || id == NULL || !id_valid(id))
		return -EBADMSG;
	s->old_ino = (ino_t)number(j, "old");
	s->new_ino = (ino_t)number(j, "new");
	s->mtime_ns = number(j, "mtime");
	s->new_mtime_ns = number(j, "new_mtime");
	s->mode = (mode_t)number(j, "mode");
	s->was = (mode_t)number(j, "was");
	(void)snprintf(s->old_name, sizeof(s->old_name), "o%zu", i);
	(void)snprintf(s->new_name, sizeof(s->new_name), "n%zu", i);
	s->target = source_open(target);
	if (s->target < 0)
		return s->target;
	s->staging = apply_staging(s->target, id, false);
	if (s->staging < 0)
		return s->staging;
	s->parent = apply_parent(s->target, s->path, s->name);
	return s->parent < 0 ? s->parent : 0;
}

/* 0 when there is no such entry. */
static ino_t inode_at(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_ino;
}

static int move(int from, const char *name, int to, const char *as, unsigned int flags)
{
	return renameat2(from, name, to, as, flags) < 0 ? -errno : 0;
}

/* A directory that is removed must be empty by now: what it held was removed before. */
static bool holds_something(int dir, const char *name)
{
	cleanup_fd int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_names struct tree_names names = { 0 };

	return fd >= 0 && (tree_names(fd, &names) < 0 || names.n > 0);
}

/* Is what was taken away what the check had seen? */
static int is_expected(const struct step *s, const char *name)
{
	struct stat st;

	if (fstatat(s->staging, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_ino != s->old_ino)
		return -ESTALE;
	if (s->mtime_ns != 0 && s->mtime_ns != apply_mtime_ns(&st))
		return -ESTALE;
	return holds_something(s->staging, name) ? -ESTALE : 0;
}

/* What is at the step's place, of which everything is done by this descriptor (O_PATH): the name may mean another thing by then. Return: it, or -errno. */
static int find_there(const struct step *s, struct stat *st)
{
	cleanup_fd int fd = openat(s->parent, s->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	int rc = fd < 0 || fstat(fd, st) < 0 ? -errno : fault("store.apply.mode");

	return rc < 0 ? rc : TAKE_FD(fd);
}

static int do_mode(const struct step *s)
{
	struct stat st;
	cleanup_fd int fd = find_there(s, &st);

	if (fd < 0)
		return fd;
	return st.st_ino != s->old_ino || S_ISLNK(st.st_mode) ? -ESTALE
							      : file_set_mode(fd, s->mode);
}

static int step_do(const struct step *s)
{
	int rc = -EBADMSG;

	if (str_eq(s->op, "remove")) {
		rc = move(s->parent, s->name, s->staging, s->old_name, RENAME_NOREPLACE);
		if (rc == 0)
			rc = is_expected(s, s->old_name);
	} else if (str_eq(s->op, "replace")) {
		rc = move(s->staging, s->new_name, s->parent, s->name, RENAME_EXCHANGE);
		if (rc == 0)
			rc = is_expected(s, s->new_name);
	} else if (str_eq(s->op, "add")) {
		rc = move(s->staging, s->new_name, s->parent, s->name, RENAME_NOREPLACE);
	} else if (str_eq(s->op, "mode") || str_eq(s->op, "close")) {
		rc = do_mode(s);
	}
	return rc;
}

static int undo_remove(const struct step *s)
{
	if (inode_at(s->staging, s->old_name) == 0)
		return 0;
	return move(s->staging, s->old_name, s->parent, s->name, RENAME_NOREPLACE);
}

/* Is what the step put there as it was put there? If not the host went on from there, and it stays: it may be written to, and a directory be filled, by then. */
static bool is_untouched(const struct step *s)
{
	struct stat st;

	return fstatat(s->parent, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_ino == s->new_ino &&
	       (s->new_mtime_ns == 0 || s->new_mtime_ns == apply_mtime_ns(&st)) &&
	       !holds_something(s->parent, s->name);
}

/* Where the host went on from what is new, what it had before is in the staging directory alone: that has to stay, and be told of. */
static int undo_replace(const struct step *s)
{
	ino_t kept = inode_at(s->staging, s->new_name);

	if (kept == 0 || kept == s->new_ino)
		return 0;
	if (!is_untouched(s))
		return -EEXIST;
	return move(s->staging, s->new_name, s->parent, s->name, RENAME_EXCHANGE);
}

static int undo_add(const struct step *s)
{
	if (inode_at(s->staging, s->new_name) != 0 || !is_untouched(s))
		return 0;
	return move(s->parent, s->name, s->staging, s->new_name, RENAME_NOREPLACE);
}

static int undo_mode(const struct step *s)
{
	struct stat st;
	cleanup_fd int fd = find_there(s, &st);

	/* who is not in its group cannot set that bit */
	if (fd < 0 || st.st_ino != s->old_ino || S_ISLNK(st.st_mode) ||
		((st.st_mode ^ s->mode) & (07777 & ~S_ISGID)) != 0)
		return 0;
	return file_set_mode(fd, s->was);
}

static int step_undo(const struct step *s)
{
	if (str_eq(s->op, "remove"))
		return undo_remove(s);
	if (str_eq(s->op, "replace"))
		return undo_replace(s);
	return str_eq(s->op, "add") ? undo_add(s) : undo_mode(s);
}

static bool is_as_before(const struct step *s)
{
	struct stat st;

	if (s->old_ino == 0)
		return inode_at(s->parent, s->name) == 0;
	return fstatat(s->parent, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_ino == s->old_ino && (s->mtime_ns == 0 || s->mtime_ns == apply_mtime_ns(&st));
}

/* Until a journal is settled what it took away is there, in every directory that it speaks of. A disk that is not mounted has neither, and a directory that was moved. */
static int find_staging(const json_t *journal)
{
	const json_t *targets = json_object_get(journal, "targets"), *t;
	const char *id = json_string_value(json_object_get(journal, "id"));
	size_t i;

	json_array_foreach (targets, i, t) {
		cleanup_fd int target = source_open(json_string_value(t));
		cleanup_fd int staging = target < 0 ? target : apply_staging(target, id, false);

		if (staging < 0)
			return staging;
	}
	return 0;
}

/*
 * Backwards from step @n - 1; goes on after a failure, for the rest can still be put back. The renames gave what is put back, and where it is, a new ctime, which must not look like
 * a change of the host's own to the next apply: @known remembers it.
 */
static int undo(const json_t *journal, size_t n, json_t *known)
{
	int result = n > 0 ? find_staging(journal) : 0;

	while (n-- > 0) {
		cleanup(step_close) struct step s;
		const json_t *j = json_array_get(json_object_get(journal, "steps"), n);
		bool was_away;
		int rc = step_open(journal, n, &s);

		was_away = rc == 0 && (!is_as_before(&s) || str_eq(s.op, "mode"));
		/* a parent that this apply would have made is not there, or nobody can get there: nor is the step */
		if (rc == 0)
			rc = step_undo(&s);
		if (rc == 0 && was_away && is_as_before(&s))
			apply_record(known,
				json_string_value(
					json_array_get(json_object_get(journal, "targets"),
						(size_t)number(j, "tree"))),
				json_string_value(json_object_get(j, "path")), NULL);
		if (rc < 0 && rc != -ENOENT && rc != -ENAMETOOLONG && result == 0)
			result = rc;
	}
	return result;
}

/* Remove the staging directories of @journal. */
static void apply_discard(const json_t *journal)
{
	const json_t *targets = json_object_get(journal, "targets"), *t;
	const char *id = json_string_value(json_object_get(journal, "id"));
	cleanup_free char *name = str_dupf(APPLY_STAGING "%s", id != NULL ? id : "");
	size_t i;

	if (id == NULL || !id_valid(id))
		return;
	json_array_foreach (targets, i, t) {
		cleanup_fd int target = source_open(json_string_value(t));

		if (target >= 0)
			(void)!tree_remove(target, name);
	}
}

static int open_journals(const struct store *store)
{
	int fd;

	if (mkdirat(store->state, "apply", 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(store->state, "apply", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

json_t *apply_recall(const struct store *store, const char *sandbox)
{
	cleanup_free char *path = str_dupf("apply/%s.applied", sandbox != NULL ? sandbox : "");
	cleanup_buf struct buf text = BUF_INIT(64U << 20);
	json_t *known = NULL;

	if (sandbox != NULL && file_read_at(store->state, path, &text) == 0)
		known = json_loadb(buf_cstr(&text), text.n, 0, NULL);
	if (json_is_object(known))
		return known;
	json_decref(known);
	return json_object();
}

/* What it came from stays known as long as it is the same file: that it is recorded again may be for what comes and goes beside it. */
static void record_one(
	json_t *entries, const char *hex_path, const struct stat *st, const char *origin)
{
	const json_t *was = json_object_get(entries, hex_path);

	if (origin == NULL && (ino_t)json_integer_value(json_array_get(was, 0)) == st->st_ino)
		origin = json_string_value(json_array_get(was, 2));
	(void)json_object_set_new(entries, hex_path,
		json_pack("[I, I, s]", (json_int_t)st->st_ino,
			(json_int_t)st->st_ctim.tv_sec * (json_int_t)NS_PER_S + st->st_ctim.tv_nsec,
			origin != NULL ? origin : ""));
}

void apply_record(json_t *known, const char *target, const char *hex_path, const char *origin)
{
	json_t *hex = json_string(hex_path), *entries;
	cleanup_free char *path = apply_bytes(hex);
	cleanup_fd int dir = source_open(target), parent = -1;
	char name[NAME_MAX + 1];
	struct stat st;

	json_decref(hex);
	if (dir < 0 || path == NULL)
		return;
	if (json_object_get(known, target) == NULL)
		(void)json_object_set_new(known, target, json_object());
	entries = json_object_get(known, target);
	parent = apply_parent(dir, path, name);
	if (parent >= 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		record_one(entries, hex_path, &st, origin);
	else
		(void)json_object_del(entries, hex_path);
	if (parent >= 0 && strchr(path, '/') != NULL && fstat(parent, &st) == 0) {
		cleanup_free char *above =
			str_dupf("%.*s", (int)(2 * (strrchr(path, '/') - path)), hex_path);

		record_one(entries, above, &st, NULL);
	}
}

void apply_keep(const struct store *store, const char *sandbox, const json_t *known)
{
	cleanup_free char *path = str_dupf("apply/%s.applied", sandbox != NULL ? sandbox : "");
	char *text = json_dumps(known, JSON_COMPACT);

	if (text != NULL && sandbox != NULL && json_object_size(known) > 0)
		(void)!file_create_at(store->state, path, 0600, text, strlen(text));
	free(text);
}

void apply_forget(const struct store *store, const json_t *keep, uint64_t until_ns)
{
	cleanup_fd int dir = open_journals(store);
	cleanup_names struct tree_names names = { 0 };

	if (dir < 0 || tree_names(dir, &names) < 0)
		return;
	for (size_t i = 0; i < names.n; i++) {
		char id[ID_LEN + 1];
		struct stat st;

		(void)snprintf(id, sizeof(id), "%s", names.names[i]);
		if (str_ends(names.names[i], ".applied") && json_object_get(keep, id) == NULL &&
			fstatat(dir, names.names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			(uint64_t)st.st_mtim.tv_sec * NS_PER_S < until_ns)
			(void)unlinkat(dir, names.names[i], 0);
	}
}

void apply_forget_one(const struct store *store, const char *sandbox)
{
	cleanup_free char *path = str_dupf("apply/%s.applied", sandbox);

	(void)unlinkat(store->state, path, 0);
}

/* Under a name of its own until it is whole: applies of other sandboxes write theirs at the same time. */
static int write_journal(int dir, const char *name, const json_t *journal)
{
	char *text = json_dumps(journal, JSON_COMPACT);
	cleanup_free char *new = str_dupf("%s" JOURNAL_NEW, name);
	cleanup_fd int fd =
		openat(dir, new, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	int rc = fd < 0 || text == NULL ? -errno : file_write_all(fd, text, strlen(text));

	free(text);
	if (rc == 0)
		rc = fault("store.apply.written");
	if (rc == 0 && (fsync(fd) < 0 || renameat(dir, new, dir, name) < 0 || fsync(dir) < 0))
		rc = -errno;
	if (rc < 0)
		(void)unlinkat(dir, new, 0);
	return rc;
}

/* What the steps did is on disk when this is over, with one barrier for each file system. */
static int sync_targets(const json_t *journal)
{
	const json_t *targets = json_object_get(journal, "targets"), *t;
	size_t i;

	json_array_foreach (targets, i, t) {
		cleanup_fd int target = source_open(json_string_value(t));

		if (target < 0 || syncfs(target) < 0)
			return -errno;
	}
	return 0;
}

static int refuse_step(const struct step *s, int rc, struct err *err)
{
	if (rc == -ESTALE || rc == -EEXIST || rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP)
		(void)err_raise(err, ERR_CONFLICT,
			"'%s' changed on the host while the changes were applied", s->path);
	else if (rc == -EACCES || rc == -EPERM)
		(void)err_raise(err, ERR_DENIED, "you may not change '%s' on the host", s->path);
	else if (rc == -EBUSY)
		(void)err_raise(err, ERR_UNSUPPORTED, "a file system is mounted on '%s'", s->path);
	else if (rc == -EXDEV)
		(void)err_raise(err, ERR_UNSUPPORTED,
			"'%s' lies on another file system than its directory", s->path);
	else
		(void)err_raise_sys(err, rc, "apply '%s'", s->path);
	return rc;
}

/* Return: 0; else -errno, and @done is how many steps have to be undone. */
static int do_steps(const json_t *journal, size_t *done, struct err *err)
{
	size_t n = json_array_size(json_object_get(journal, "steps"));

	for (*done = 0; *done < n;) {
		cleanup(step_close) struct step s;
		int rc = step_open(journal, *done, &s);

		if (rc == 0) {
			++*done; /* from here on it may have been done */
			rc = fault("store.apply.step");
			if (rc == 0)
				rc = step_do(&s);
		}
		if (rc < 0)
			return refuse_step(&s, rc, err);
	}
	return 0;
}

/* Before the reason in @err: that may be long. */
static void tell_rest(const json_t *journal, bool stuck, struct err *err)
{
	const char *id = json_string_value(json_object_get(journal, "id"));

	if (stuck)
		err_context(err,
			"not everything could be put back, what is missing lies in '" APPLY_STAGING
			"%s' (the steps: 'apply/%s.json" JOURNAL_FAILED "')",
			id, id);
	else
		err_context(err, "nothing was applied");
}

/* @stuck: not all of it could be undone. */
static int do_all(const json_t *journal, json_t *known, bool *stuck, struct err *err)
{
	size_t done;
	int rc = do_steps(journal, &done, err);

	if (rc == 0) {
		rc = sync_targets(journal);
		if (rc == 0)
			rc = fault("store.apply.synced");
		if (rc == 0)
			return 0;
		(void)err_raise_sys(err, rc, "write the changes to disk");
	}
	*stuck = undo(journal, done, known) < 0;
	tell_rest(journal, *stuck, err);
	return rc;
}

int apply_begin(const struct store *store, const json_t *journal, struct err *err)
{
	cleanup_fd int dir = open_journals(store);
	cleanup_free char *name =
		str_dupf("%s.json", json_string_value(json_object_get(journal, "id")));
	int rc = dir < 0 ? dir : write_journal(dir, name, journal);

	return rc < 0 ? err_raise_sys(err, rc, "begin the journal of the apply") : 0;
}

/* Nothing of @journal, called @name, is to be undone any more: what is left of it is cleared up, by recovery when not here. */
static int settle(int dir, const char *name, const json_t *journal)
{
	cleanup_free char *undone =
		str_dupf("%s.undone", json_string_value(json_object_get(journal, "id")));

	if (renameat(dir, name, dir, undone) < 0)
		return -errno;
	apply_discard(journal);
	return unlinkat(dir, undone, 0) < 0 ? -errno : 0;
}

/* A journal that cannot be undone must not keep the server from starting, nor be undone when nobody expects it any more. */
static int set_aside(int dir, const char *name)
{
	cleanup_free char *failed = str_dupf("%s" JOURNAL_FAILED, name);

	return renameat(dir, name, dir, failed) < 0 ? -errno : 0;
}

void apply_abandon(const struct store *store, const json_t *journal)
{
	cleanup_fd int dir = open_journals(store);
	cleanup_free char *name =
		str_dupf("%s.json", json_string_value(json_object_get(journal, "id")));

	(void)settle(dir, name, journal);
}

/* It says no more than that the apply was done: who was not answered asks for that (apply_recover()). */
static void empty(int dir, const char *name)
{
	cleanup_fd int fd = openat(dir, name, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		log_warn("store", "empty the journal '%s': %s", name, strerror(errno));
}

int apply_run(const struct store *store, const json_t *journal, struct err *err)
{
	cleanup_fd int dir = open_journals(store);
	const char *id = json_string_value(json_object_get(journal, "id"));
	cleanup_free char *name = str_dupf("%s.json", id), *done = str_dupf("%s.done", id);
	const char *sandbox = json_string_value(json_object_get(journal, "sandbox"));
	uid_t uid = (uid_t)number(journal, "uid");
	bool stuck = false;
	json_t *known;
	int rc = dir < 0 ? dir : write_journal(dir, name, journal);

	if (rc == 0)
		rc = fault("store.apply.journal");
	if (rc < 0) {
		apply_abandon(store, journal);
		return err_raise_sys(err, rc, "write the journal of the apply");
	}
	known = apply_recall(store, sandbox);
	rc = apply_as(uid, (gid_t)number(journal, "gid"), json_object_get(journal, "groups"));
	if (rc < 0)
		(void)err_raise_sys(err, rc, "act as user %u", uid);
	else
		rc = do_all(journal, known, &stuck, err);
	if (apply_as(0, 0, NULL) < 0)
		rc = err_raise_sys(err, -EPERM, "act as root again");
	if (rc < 0)
		apply_keep(store, sandbox, known);
	json_decref(known);
	if (rc < 0) {
		/* staging that still holds something of the host is kept, and what says whose it is */
		(void)(stuck ? set_aside(dir, name) : settle(dir, name, journal));
		return rc;
	}
	if (renameat(dir, name, dir, done) < 0 || fsync(dir) < 0)
		rc = err_raise_sys(err, -errno, "finish the journal of the apply");
	else if (fault("store.apply.done") < 0)
		rc = err_raise_sys(err, -EIO, "finish the apply");
	apply_discard(journal);
	(void)unlinkat(dir, name, 0);
	if (rc < 0)
		(void)unlinkat(dir, done, 0);
	else
		empty(dir, done);
	return rc;
}

static int give_up(int dir, const char *name, const char *id, int why, struct err *err)
{
	(void)set_aside(dir, name);
	return err_raise_sys(err, why,
		"undo the apply '%s', which was broken off: what it took away lies in '" APPLY_STAGING
		"%s' of its directories (the steps: 'apply/%s" JOURNAL_FAILED "')",
		id, id, name);
}

static int undo_journal(
	const struct store *store, int dir, const char *name, json_t *journal, struct err *err)
{
	const char *sandbox = json_string_value(json_object_get(journal, "sandbox"));
	json_t *known = apply_recall(store, sandbox);
	int rc = undo(journal, json_array_size(json_object_get(journal, "steps")), known);

	apply_keep(store, sandbox, known);
	json_decref(known);
	if (rc < 0)
		return give_up(
			dir, name, json_string_value(json_object_get(journal, "id")), rc, err);
	rc = settle(dir, name, journal);
	return rc < 0 ? err_raise_sys(err, rc, "clear up behind the apply '%s'", name) : 0;
}

static int recover_one(const struct store *store, int dir, const char *name, int *undone,
	int *finished, struct err *err)
{
	cleanup_buf struct buf text = BUF_INIT(1U << 30);
	json_t *journal;
	int rc = file_read_at(dir, name, &text);

	if (rc < 0)
		return err_raise_sys(err, rc, "read the journal '%s'", name);
	journal = json_loadb(buf_cstr(&text), text.n, 0, NULL);
	++*(str_ends(name, ".done") ? finished : undone);
	if (journal != NULL && str_ends(name, ".json")) {
		rc = undo_journal(store, dir, name, journal, err);
	} else {
		if (journal != NULL)
			apply_discard(journal);
		if (unlinkat(dir, name, 0) < 0)
			rc = err_raise_sys(err, -errno, "remove the journal '%s'", name);
	}
	json_decref(journal);
	return rc;
}

/* Of the apply @id, or of any. */
static bool is_journal(const char *name, const char *id)
{
	return (id == NULL || str_starts(name, id)) &&
	       (str_ends(name, ".json") || str_ends(name, ".done") || str_ends(name, ".undone"));
}

int apply_recover(
	const struct store *store, const char *id, int *undone, int *finished, struct err *err)
{
	cleanup_fd int dir = open_journals(store);
	cleanup_names struct tree_names names = { 0 };
	int first = dir < 0 ? dir : tree_names(dir, &names);

	if (first < 0)
		return err_raise_sys(err, first, "list the journals of applies");
	for (size_t i = 0; i < names.n; i++) {
		struct err why = { 0 };
		int rc = 0;

		if (is_journal(names.names[i], id))
			rc = recover_one(store, dir, names.names[i], undone, finished, &why);
		else if (id == NULL && str_ends(names.names[i], JOURNAL_NEW))
			(void)unlinkat(dir, names.names[i], 0);
		if (rc < 0 && first == 0) {
			first = rc;
			*err = why;
		}
	}
	return first;
}
