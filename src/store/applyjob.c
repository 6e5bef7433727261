/* SPDX-License-Identifier: Apache-2.0 */
/* store/applyjob.c - the jobs `apply`, `check_apply` and `undo_apply`: the changes of cow mounts are judged (apply_judge.c), staged (apply_stage.c), run (apply.c). */
#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "store/apply.h"
#include "store/apply_judge.h"
#include "store/apply_stage.h"
#include "store/danger.h"
#include "store/follow.h"
#include "store/source.h"
#include "store/verbs.h"

#include <sys/stat.h>

/* @old is what the step takes away or changes, @new what it puts there, with @mode. The times of directories move with what is in them. */
static void add_step(struct plan *p, const char *op, const char *path, const struct found *old,
	const struct found *new, mode_t mode)
{
	bool there = old->kind != FOUND_NONE;
	cleanup_free char *origin = plan_origin(p, new);

	(void)json_array_append_new(p->steps,
		json_pack("{s:I, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:I}", "tree",
			(json_int_t)p->tree, "origin", origin, "op", op, "path", apply_hex(path),
			"old", there ? (json_int_t)old->st.st_ino : 0, "mtime",
			old->kind == FOUND_FILE ? (json_int_t)apply_mtime_ns(&old->st) : 0, "new",
			(json_int_t)0, "mode", (json_int_t)mode, "was",
			there ? (json_int_t)(old->st.st_mode & 07777) : 0));
}

static json_t *mode_step(
	const struct plan *p, const char *path, const struct found *old, mode_t was, mode_t mode)
{
	return json_pack("{s:I, s:s, s:o, s:I, s:i, s:i}", "tree", (json_int_t)p->tree, "op",
		"mode", "path", apply_hex(path), "old", (json_int_t)old->st.st_ino, "mode",
		(int)mode, "was", (int)was);
}

/* Must the directory @old of the caller's own be opened before what is in it is changed? */
static bool is_shut(const struct plan *p, const struct found *old)
{
	return old->kind == FOUND_DIR && old->st.st_uid == p->who.uid &&
	       apply_closes(&p->who, old->st.st_mode & 07777);
}

/* A directory that is taken away comes behind what is in it: those above it are opened first nevertheless. */
static void open_removed(struct plan *p, const char *path, const struct found *old)
{
	mode_t was = old->st.st_mode & 07777;

	if (is_shut(p, old))
		(void)json_array_insert_new(
			p->opened, p->n_kept, mode_step(p, path, old, was, was | S_IRWXU));
}

/* A directory that stays comes before what is in it, and is never in one that is taken away: it is opened before those, and closed behind all else. */
static void set_dir_mode(struct plan *p, const char *path, const struct found *old,
	const struct found *new, mode_t mode)
{
	mode_t was = old->st.st_mode & 07777;
	cleanup_free char *origin = plan_origin(p, new);
	json_t *step;

	if (is_shut(p, old)) {
		(void)json_array_insert_new(
			p->opened, p->n_kept++, mode_step(p, path, old, was, was | S_IRWXU));
		was |= S_IRWXU;
	}
	step = mode_step(p, path, old, was, mode);
	(void)json_object_set_new(step, "origin", json_string(origin));
	if (apply_closes(&p->who, mode))
		(void)json_array_insert_new(p->closed, 0, step);
	else
		(void)json_array_append_new(p->steps, step);
}

/* Rootless what is staged gets the group that its directory, or the process, gives. */
static bool keeps_group(const struct plan *p, const struct found *old)
{
	bool rootless = p->job->store.rootless;
	struct stat dir;

	return fstat(rootless ? p->b.layers[0].root : old->dir, &dir) < 0 ||
	       apply_group(&p->who, &dir, rootless ? NULL : &old->st) == old->st.st_gid;
}

static void plan_steps(struct plan *p, const struct change *c)
{
	static const struct found none = { .kind = FOUND_NONE, .dir = -1 };
	const struct found *a = c->after, *b = c->before;
	bool left_out;
	mode_t mode;

	if (a->kind != FOUND_NONE && !plan_can_apply(a)) {
		plan_note(p->skipped, p, c->path, "devices, FIFOs and sockets are not applied");
		return;
	}
	if (c->kind == CHANGE_METADATA && !plan_sets_mode(p, c)) {
		plan_note(p->skipped, p, c->path, "owners and attributes alone are not applied");
		return;
	}
	mode = plan_mode(p, c, &left_out);
	if (left_out)
		plan_note(p->skipped, p, c->path, "its access list is not applied");
	if (c->kind == CHANGE_METADATA) {
		if (b->kind == FOUND_DIR)
			set_dir_mode(p, c->path, b, a, mode);
		else
			add_step(p, "mode", c->path, b, a, mode);
	} else if (a->kind == FOUND_FILE && b->kind == FOUND_FILE) {
		add_step(p, "replace", c->path, b, a, mode);
		if (!keeps_group(p, b))
			plan_note(p->skipped, p, c->path, "its group on the host is not kept");
	} else {
		if (b->kind != FOUND_NONE) {
			open_removed(p, c->path, b);
			add_step(p, "remove", c->path, b, &none, 0);
		}
		if (a->kind != FOUND_NONE)
			add_step(p, "add", c->path, &none, a, mode);
	}
}

static int on_change(const struct change *c, void *arg)
{
	struct plan *p = arg;
	int rc;

	if (!apply_part_has(&p->part, c)) {
		plan_leave(p, c);
		return 0;
	}
	rc = changes_add(&p->changes, c, p->target, &p->a, &p->b);
	if (rc != 0)
		return rc;
	plan_judge(p, c);
	plan_steps(p, c);
	return 0;
}

static int open_tree_stacks(struct plan *p, size_t tree, struct err *err)
{
	const json_t *t = json_array_get(json_object_get(p->job->request, "trees"), tree);
	const json_t *a = json_object_get(t, "a");
	const char *last = json_string_value(json_array_get(a, json_array_size(a) - 1));
	const char *source = json_string_value(json_object_get(t, "source"));
	const char *at = json_string_value(json_object_get(t, "at"));
	json_t *b;
	int rc;

	p->tree = tree;
	p->target = job_text(t, "target", err);
	if (p->target == NULL)
		return -EINVAL;
	if (!str_path_clean(p->target) || last == NULL || !str_eq(last, p->target))
		return err_raise(
			err, ERR_INVALID, "the stack of '%s' does not end with it", p->target);
	apply_part_begin(&p->part, at != NULL ? at : p->target);
	p->elsewhere = source != NULL && !str_eq(source, p->target);
	if (p->elsewhere)
		p->source = source_open(source);
	b = json_pack("[s]", p->target);
	rc = stack_open(&p->a, &p->job->store, a, err);
	if (rc == 0)
		rc = stack_open(&p->b, &p->job->store, b, err);
	json_decref(b);
	if (rc == 0) {
		rc = danger_place(p->b.layers[0].root, p->place);
		if (rc < 0)
			rc = err_raise_sys(err, rc, "find the place of '%s'", p->target);
	}
	return rc;
}

static void close_tree_stacks(struct plan *p)
{
	stack_close(&p->a);
	stack_close(&p->b);
	fd_close(&p->source);
}

static int plan_tree(struct plan *p, size_t tree, struct err *err)
{
	const struct diff diff = { .a = &p->a, .b = &p->b, .change = on_change, .arg = p };
	int rc = open_tree_stacks(p, tree, err), judged;

	if (rc == 0) {
		(void)json_array_append_new(p->targets, json_string(p->target));
		plan_judge_begin(p);
		rc = diff_run(&diff, err);
		if (rc == 0)
			apply_part_end(p);
		judged = plan_judge_end(p, rc == 0, err);
		rc = rc == 0 ? judged : rc;
	}
	close_tree_stacks(p);
	if (rc > 0)
		rc = err_raise(err, ERR_LIMIT, "there are more than %llu changes",
			(unsigned long long)p->changes.limit);
	return rc;
}

static int stage(struct plan *p, const char *id, struct err *err)
{
	int rc = 0;

	for (size_t tree = 0; rc == 0 && tree < json_array_size(p->targets); tree++) {
		rc = open_tree_stacks(p, tree, err);
		if (rc == 0)
			rc = apply_stage(&(struct apply_stage){ .a = &p->a,
						 .steps = p->steps,
						 .tree = p->tree,
						 .target = p->target,
						 .who = p->who,
						 .rootless = p->job->store.rootless },
				id, err);
		close_tree_stacks(p);
	}
	if (rc == 0 && fault("store.apply.staged") < 0)
		rc = err_raise_sys(err, -EIO, "stage the changes");
	return rc;
}

static bool is_whole(void *arg, const char *path)
{
	return apply_part_is_whole(arg, path);
}

/* What was renamed is found where it is now. Where that fails the sandbox lacks it, and another apply says so. */
static void follow(struct plan *p)
{
	struct err err;

	for (size_t tree = 0; tree < json_array_size(p->targets); tree++) {
		int rc = open_tree_stacks(p, tree, &err);

		if (rc == 0 && !p->elsewhere && follow_can(&p->a)) {
			rc = fault("store.apply.follow");
			if (rc == 0)
				rc = follow_renames(&p->a, is_whole, &p->part);
			if (rc < 0)
				log_warn("store", "renamed directories below '%s': %s", p->target,
					strerrordesc_np(-rc));
		}
		close_tree_stacks(p);
	}
}

/* What neither the host nor the sandbox has any more may come again: of what was applied both are the same. */
static void forget_gone(struct plan *p, size_t tree, json_t *entries)
{
	const json_t *t = json_array_get(json_object_get(p->job->request, "trees"), tree);
	const char *target = json_string_value(json_object_get(t, "target"));
	const char *at = json_string_value(json_object_get(t, "at"));
	cleanup_fd int root = source_open(target);
	const char *key;
	json_t *entry;
	void *next;

	apply_part_begin(&p->part, at != NULL ? at : target);
	json_object_foreach_safe(entries, next, key, entry)
	{
		json_t *hex = json_string(key);
		cleanup_free char *path = apply_bytes(hex);
		char name[NAME_MAX + 1];
		cleanup_fd int parent =
			root < 0 || path == NULL ? -1 : apply_parent(root, path, name);
		struct stat st;

		json_decref(hex);
		if (root >= 0 && (path == NULL || apply_part_names(&p->part, path)) &&
			(parent < 0 || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0))
			(void)json_object_del(entries, key);
	}
}

/* What an apply of a part took from the rest, for which that is no change of the host's. */
static void remember_taken(const struct plan *p, json_t *known)
{
	json_t *taken = json_object_get(known, APPLY_TAKEN), *handle;
	size_t i;

	if (taken == NULL && json_array_size(p->part.taken) > 0) {
		taken = json_object();
		(void)json_object_set_new(known, APPLY_TAKEN, taken);
	}
	json_array_foreach (p->part.taken, i, handle)
		(void)json_object_set_new(taken, json_string_value(handle), json_true());
	if (json_object_get(known, APPLY_VACATED) != NULL)
		(void)json_object_update(json_object_get(known, APPLY_VACATED), p->vacated);
	else if (json_object_size(p->vacated) > 0)
		(void)json_object_set(known, APPLY_VACATED, p->vacated);
}

static void remember(struct plan *p)
{
	json_t *known = json_deep_copy(p->applied), *step, *target;
	size_t i;

	json_array_foreach (p->targets, i, target)
		forget_gone(p, i, json_object_get(known, json_string_value(target)));
	remember_taken(p, known);

	json_array_foreach (p->steps, i, step)
		apply_record(known,
			json_string_value(json_array_get(p->targets,
				(size_t)json_integer_value(json_object_get(step, "tree")))),
			json_string_value(json_object_get(step, "path")),
			json_string_value(json_object_get(step, "origin")));
	apply_keep(&p->job->store, p->sandbox, known);
	json_decref(known);
}

/* What opens directories comes first. */
static void order_steps(struct plan *p)
{
	json_t *steps = p->steps;

	(void)json_array_extend(p->opened, steps);
	p->steps = p->opened;
	p->opened = steps;
}

static bool has_steps(const struct plan *p)
{
	return json_array_size(p->steps) + json_array_size(p->opened) + json_array_size(p->closed) >
	       0;
}

static int carry_out(struct plan *p, const char *id, struct err *err)
{
	json_t *journal = json_pack("{s:s, s:s?, s:I, s:I, s:O*, s:O, s:[]}", "id", id, "sandbox",
		p->sandbox, "uid", (json_int_t)p->who.uid, "gid", (json_int_t)p->who.gid, "groups",
		p->who.groups, "targets", p->targets, "steps");
	int rc = apply_begin(&p->job->store, journal, err);

	order_steps(p);
	if (rc == 0) {
		rc = stage(p, id, err);
		/* behind what closes new directories, which may lie in these */
		(void)json_array_extend(p->steps, p->closed);
		(void)json_object_set(journal, "steps", p->steps);
		if (rc < 0)
			apply_abandon(&p->job->store, journal);
		else
			rc = apply_run(&p->job->store, journal, err);
	}
	if (rc == 0) {
		remember(p);
		follow(p);
		(void)fault("store.apply.over");
	}
	json_decref(journal);
	return rc;
}

/* Conflicts and dangers refuse the apply; the client has seen the lists by then. */
static int refuse(struct plan *p, struct err *err)
{
	size_t conflicts = json_array_size(p->conflicts),
	       executables = json_array_size(p->executables);
	const json_t *first = json_array_get(conflicts > 0 ? p->conflicts : p->executables, 0);
	const char *path = json_string_value(json_object_get(first, "path"));
	const char *reason = json_string_value(json_object_get(first, "reason"));

	if (conflicts > 0)
		return err_raise(err, ERR_CONFLICT,
			"nothing was applied: %zu conflict%s, first '%s': %s", conflicts,
			conflicts == 1 ? "" : "s", path, reason);
	if (executables > 0 && !job_flag(p->job->request, "allow_exec", false))
		return err_raise(err, ERR_NEEDS_ALLOW_EXEC,
			"nothing was applied: %zu change%s that something outside would execute or obey, first '%s': %s",
			executables, executables == 1 ? "" : "s", path, reason);
	return 0;
}

/* What a person has to know. There may be more of it than goes into one frame. */
static int send_lists(struct plan *p)
{
	const struct {
		const char *name;
		const json_t *list;
	} lists[] = { { "conflicts", p->conflicts }, { "executables", p->executables },
		{ "programs", p->programs }, { "skipped", p->skipped }, { "renamed", p->renamed } };
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(lists); i++) {
		json_int_t n;

		rc = changes_send_list(p->job, lists[i].name, lists[i].list, &n);
	}
	return rc;
}

/* @ok: `journal` says that one is left, which has to go when the answer has been taken (`undo_apply`). */
static int run(struct plan *p, bool only_check, json_t **ok, struct err *err)
{
	const json_t *trees = json_object_get(p->job->request, "trees");
	const char *id = job_id(p->job->request, "apply", err);
	uint64_t uid = 0, gid = 0;
	json_int_t n = 0;
	bool applied = false, journal = false;
	int rc = id == NULL ? -EINVAL
			    : job_number(p->job->request, "since_ns", 0, &p->since_ns, err);

	if (rc == 0)
		rc = apply_part_init(&p->part, json_object_get(p->job->request, "paths"), err);
	if (rc == 0)
		rc = job_number(p->job->request, "uid", 0, &uid, err);
	if (rc == 0)
		rc = job_number(p->job->request, "gid", 0, &gid, err);
	if (rc == 0)
		rc = job_groups(p->job->request, &p->who.groups, err);
	if (rc == 0 && (!json_is_array(trees) || json_array_size(trees) == 0 || uid > UINT32_MAX ||
			       gid > UINT32_MAX))
		rc = err_raise(err, ERR_INVALID,
			"member 'trees' is missing or empty, or 'uid' or 'gid' is no id");
	p->who.uid = p->job->store.rootless ? 0 : (uid_t)uid;
	p->who.gid = p->job->store.rootless ? 0 : (gid_t)gid;
	for (size_t i = 0; rc == 0 && i < json_array_size(trees); i++)
		rc = plan_tree(p, i, err);
	if (rc == 0)
		rc = apply_part_check(&p->part, err);
	if (rc < 0)
		return rc;
	changes_pair_renames(&p->changes);
	rc = changes_send(&p->changes, p->job, &n);
	if (rc == 0)
		rc = send_lists(p);
	if (rc < 0)
		return err_raise_sys(err, rc, "send the changes");
	if (!only_check) {
		rc = refuse(p, err);
		journal = has_steps(p);
		if (rc == 0 && journal)
			rc = carry_out(p, id, err);
		if (rc < 0)
			return rc;
		applied = true;
	}
	*ok = json_pack("{s:b, s:I, s:I, s:b}", "applied", (int)applied, "changes", n, "left",
		p->part.left, "journal", (int)journal);
	return 0;
}

static int apply(struct job *job, bool only_check, json_t **ok, struct err *err)
{
	struct plan p = { .job = job,
		.source = -1,
		.changes = CHANGES_INIT,
		.conflicts = json_array(),
		.executables = json_array(),
		.programs = json_array(),
		.skipped = json_array(),
		.renamed = json_array(),
		.steps = json_array(),
		.opened = json_array(),
		.closed = json_array(),
		.targets = json_array(),
		.vacated = json_object() };
	json_t *applied;
	int rc;

	p.sandbox = json_string_value(json_object_get(job->request, "sandbox"));
	if (p.sandbox != NULL && !id_valid(p.sandbox))
		p.sandbox = NULL;
	p.applied = applied = apply_recall(&job->store, p.sandbox);
	p.changes.want_text = job_flag(job->request, "text", false);
	rc = run(&p, only_check, ok, err);
	changes_free(&p.changes);
	json_decref(p.conflicts);
	json_decref(p.executables);
	json_decref(p.programs);
	json_decref(p.skipped);
	json_decref(p.renamed);
	json_decref(p.steps);
	json_decref(p.opened);
	json_decref(p.closed);
	json_decref(p.targets);
	json_decref(p.vacated);
	apply_part_free(&p.part);
	json_decref(applied);
	return rc;
}

int store_apply(struct job *job, json_t **ok, struct err *err)
{
	return apply(job, false, ok, err);
}

int store_check_apply(struct job *job, json_t **ok, struct err *err)
{
	return apply(job, true, ok, err);
}

int store_undo_apply(struct job *job, json_t **ok, struct err *err)
{
	const char *id = job_id(job->request, "apply", err);
	int undone = 0, finished = 0;
	int rc = id == NULL ? -EINVAL : 0;

	/* it has a lock, too, until it ends */
	if (rc == 0 && json_is_true(json_object_get(job->request, "alone")))
		rc = store_lock(&job->store, true, STORE_WAIT_MS, err);
	if (rc == 0)
		rc = apply_recover(&job->store, id, &undone, &finished, err);
	if (rc == 0)
		*ok = json_pack("{s:i, s:i}", "undone", undone, "finished", finished);
	return rc;
}
