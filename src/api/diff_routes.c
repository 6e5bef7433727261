/* SPDX-License-Identifier: Apache-2.0 */
/* api/diff_routes.c - diff and apply: which stacks are compared; the comparing is done by jobs (docs/design/0002). */
#include "api/readings.h"
#include "api/steps.h"
#include "api_handlers.h"
#include "base/log.h"
#include "base/str.h"

#define SIDES 2

/* --- states that can be compared --- */

struct side {
	json_t *layers; /* ids, top first */
	json_t *mounts;
	const char *image;
	const char *live; /* sandbox whose upper lies on top, or NULL */
	const char *label;
};

static size_t cow_count(const json_t *mounts)
{
	size_t i, n = 0;
	const json_t *m;

	json_array_foreach (mounts, i, m)
		n += str_eq(json_string_value(json_object_get(m, "mode")), "cow");
	return n;
}

/* The tree-th cow mount, from 1. */
static const json_t *cow_mount(const json_t *mounts, size_t tree)
{
	size_t i, n = 0;
	const json_t *m;

	json_array_foreach (mounts, i, m) {
		if (str_eq(json_string_value(json_object_get(m, "mode")), "cow") && ++n == tree)
			return m;
	}
	return NULL;
}

static json_t *side_stack(struct server *srv, const struct side *s, size_t tree)
{
	const json_t *m = tree > 0 ? cow_mount(s->mounts, tree) : NULL;

	return stack_of(srv, s->layers, s->image,
		m != NULL ? json_string_value(json_object_get(m, "source")) : NULL, s->live, tree);
}

static json_t *trees_between(
	struct server *srv, const struct side *a, const struct side *b, size_t first)
{
	json_t *trees = json_array();

	for (size_t tree = first; tree <= cow_count(a->mounts); tree++) {
		const json_t *m = tree > 0 ? cow_mount(a->mounts, tree) : NULL;

		(void)json_array_append_new(trees,
			json_pack("{s:s,s:o,s:o}", "target",
				m != NULL ? json_string_value(json_object_get(m, "target")) : "/",
				"a", side_stack(srv, a, tree), "b", side_stack(srv, b, tree)));
	}
	return trees;
}

static struct side side_of_sandbox(struct sandbox *sb)
{
	return (struct side){ json_object_get(sb->doc, "layers"),
		json_object_get(sb->doc, "mounts"),
		json_string_value(json_object_get(sb->doc, "image")), sandbox_live(sb), sb->id };
}

static struct side side_of_snapshot(struct snapshot *s)
{
	json_t *config = json_object_get(s->doc, "config");

	return (struct side){ json_object_get(s->doc, "layers"), json_object_get(config, "mounts"),
		json_string_value(json_object_get(s->doc, "image")), NULL, s->id };
}

/* --- running the job --- */

/* Both are JSON already: of a hundred thousand changes the values take ten times as much, and half a second at once to be written. */
struct gather {
	struct buf changes, text;
	json_int_t n, added, deleted;
	json_t *lists;            /* what an apply tells besides, by name; NULL: not wanted */
	struct reading *readings; /* of both sides; NULL: nothing can happen to their files */
};

static const char *const apply_lists[] = { "conflicts", "executables", "programs", "skipped",
	"renamed" };

/* What stands between the first and the last character of @value as JSON: of a list its members, of a string its text. */
static void add_inside(struct buf *to, const json_t *value)
{
	cleanup_free char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

	if (text == NULL)
		abort();
	buf_add(to, text + 1, strlen(text) - 2);
}

static void gather_changes(struct gather *g, const json_t *changes)
{
	const json_t *c;
	size_t i;

	if (json_array_size(changes) == 0)
		return;
	buf_str(&g->changes, g->n > 0 ? "," : "");
	add_inside(&g->changes, changes);
	g->n += (json_int_t)json_array_size(changes);
	json_array_foreach (changes, i, c) {
		const char *kind = json_string_value(json_object_get(c, "kind"));

		g->added += kind != NULL && str_eq(kind, "added");
		g->deleted += kind != NULL && str_eq(kind, "deleted");
	}
}

static void gather_frame(void *ctx, const struct frame *f)
{
	struct gather *g = ctx;
	json_t *o = f->type == FRAME_OBJECT ? frame_json(f) : NULL;
	json_t *changes = json_object_get(o, "changes");
	json_t *text = json_object_get(o, "text");

	if (json_is_array(changes))
		gather_changes(g, changes);
	else if (json_is_string(text))
		add_inside(&g->text, text);
	else if (g->readings != NULL && json_is_true(json_object_get(o, "opened")))
		for (size_t i = 0; i < SIDES; i++)
			reading_opened(&g->readings[i]);
	for (size_t i = 0; g->lists != NULL && i < ARRAY_SIZE(apply_lists); i++)
		(void)json_array_extend(json_object_get(g->lists, apply_lists[i]),
			json_object_get(o, apply_lists[i]));
	json_decref(o);
}

static void gather_begin(struct gather *g)
{
	/* the job bounds both: a number of changes, and bytes of text */
	*g = (struct gather){ .changes = BUF_INIT(SIZE_MAX), .text = BUF_INIT(SIZE_MAX) };
	buf_char(&g->changes, '[');
	buf_char(&g->text, '"');
}

static void gather_end(struct gather *g)
{
	buf_char(&g->changes, ']');
	buf_char(&g->text, '"');
}

static void gather_free(struct gather *g)
{
	buf_free(&g->changes);
	buf_free(&g->text);
	json_decref(g->lists);
}

/* {"truncated"} for the client of @call; NULL with @err set. What was found is in @g. @trees: as the diff job wants, stolen. */
static json_t *diff_run(struct api_call *call, json_t *trees, struct gather *g,
	struct reading readings[SIDES], struct err *err)
{
	json_t *request = json_pack("{s:s,s:o,s:b,s:b}", "verb", "diff", "trees", trees, "text",
		       (int)api_flag(call, "text"), "opened", 1),
	       *ok = NULL, *out = NULL;
	struct job *job;
	int rc;

	g->readings = readings;
	rc = job_start(call->srv, NULL, request, gather_frame, g, &job, err);
	if (rc == 0) {
		for (size_t i = 0; i < SIDES; i++)
			reading_started(&readings[i], job);
		rc = job_end_for(job, http_stream(call->conn), &ok, err);
	}
	gather_end(g);
	if (rc == 0)
		out = json_pack(
			"{s:b}", "truncated", (int)json_is_true(json_object_get(ok, "truncated")));
	json_decref(ok);
	return out;
}

/* @trees: stolen. What the job counts ends at its limit: never at none where there are some. @ret_applicable: of them those that an apply would bring; NULL: not wanted. */
static int number_of_changes(
	struct server *srv, json_t *trees, int64_t *ret, int64_t *ret_applicable, struct err *err)
{
	json_t *request = json_pack("{s:s,s:o,s:b}", "verb", "diff", "trees", trees, "hash", 0);
	json_t *ok = NULL;
	int rc = job_run(srv, request, NULL, NULL, &ok, err);

	*ret = json_integer_value(json_object_get(ok, "n"));
	if (ret_applicable != NULL)
		*ret_applicable = json_integer_value(json_object_get(ok, "applicable"));
	json_decref(ok);
	return rc;
}

/* Mounts first, and by themselves: what a sandbox does elsewhere must not hide what it did there. */
int sandbox_changes(struct sandbox *sb, bool all, struct change_counts *ret, struct err *err)
{
	struct side a = side_of_sandbox(sb), b = a;
	json_t *trees, *root;
	struct err none;
	int rc = 0;

	*ret = (struct change_counts){ 0 };
	b.layers = json_object_get(sb->doc, "base_layers");
	b.live = NULL;
	trees = trees_between(sb->srv, &a, &b, 0);
	root = json_incref(json_array_get(trees, 0));
	(void)json_array_remove(trees, 0);
	if (json_array_size(trees) > 0)
		rc = number_of_changes(
			sb->srv, json_incref(trees), &ret->mounted, &ret->applicable, err);
	if (rc == 0 && ret->mounted > 0)
		(void)number_of_changes(
			sb->srv, json_pack("[O]", root), &ret->elsewhere, NULL, &none);
	else if (rc == 0 && all)
		rc = number_of_changes(sb->srv, json_pack("[O]", root), &ret->elsewhere, NULL, err);
	json_decref(trees);
	json_decref(root);
	return rc;
}

/* --- GET /v1/diff --- */

/* Sandboxes come first: their names are what people type most. @s and @side are borrowed, not beyond the next wait. */
static int side_find(struct server *srv, const char *what, struct sandbox **sb, struct snapshot **s,
	struct side *side, struct err *err)
{
	*s = NULL;
	*sb = sandbox_find(srv, what, err);
	if (*sb != NULL) {
		*side = side_of_sandbox(*sb);
		return 0;
	}
	if (err->code == ERR_AMBIGUOUS)
		return -EINVAL;
	*s = snapshot_find(srv, what, err);
	if (*s == NULL)
		return err->code == ERR_NOT_FOUND && strchr(what, '@') == NULL
			       ? err_raise(err, ERR_NOT_FOUND, "no sandbox or snapshot '%s'", what)
			       : -EINVAL;
	*side = side_of_snapshot(*s);
	return 0;
}

static int check_lineage(const struct side *a, const struct side *b, struct err *err)
{
	if (!str_eq(a->image, b->image) || !json_equal(a->mounts, b->mounts))
		return err_raise(err, ERR_INVALID,
			"the two states cannot be compared: their images or mounts differ");
	return 0;
}

static void count_changes(struct server *srv, struct sandbox *sb, const struct gather *g)
{
	(void)server_event(srv, sb, EVENT_FILES_CHANGED, NULL,
		json_pack("{s:I,s:I,s:I,s:I}", "changes", g->n, "added", g->added, "modified",
			g->n - g->added - g->deleted, "deleted", g->deleted));
}

static json_t *diff_sides(struct api_call *call, const struct side *a, const struct side *b,
	struct sandbox *sb, struct gather *g, struct reading readings[SIDES], struct err *err)
{
	json_t *out;

	if (check_lineage(a, b, err) < 0)
		return NULL;
	out = diff_run(call, trees_between(call->srv, a, b, 0), g, readings, err);
	if (out == NULL)
		return NULL;
	(void)json_object_set_new(out, "a", json_string(a->label));
	(void)json_object_set_new(out, "b", b->label != NULL ? json_string(b->label) : json_null());
	if (sb != NULL && b->label == NULL && !sb->gone)
		count_changes(call->srv, sb, g);
	return out;
}

/* The files of @what may be read, when it is a sandbox. */
static int side_begin(struct server *srv, const char *what, struct reading *r, struct err *err)
{
	struct sandbox *sb = sandbox_find(srv, what, err);
	int rc = 0;

	if (sb != NULL)
		rc = reading_begin(r, sb, err);
	else if (err->code != ERR_NOT_FOUND && err->code != ERR_AMBIGUOUS)
		rc = -EBUSY;
	sandbox_unref(sb);
	return rc;
}

/* What can be done for both sides before they are looked at: afterwards nobody waits. */
static int sides_begin(struct server *srv, const char *a, const char *b,
	struct reading readings[SIDES], struct err *err)
{
	int rc;

	step_await(srv, a);
	if (b != NULL)
		step_await(srv, b);
	rc = side_begin(srv, a, &readings[0], err);
	return rc == 0 && b != NULL ? side_begin(srv, b, &readings[1], err) : rc;
}

static int compare(struct api_call *call, struct gather *g, struct reading readings[SIDES],
	json_t **ret, struct err *err)
{
	const char *other = api_text(call, "b");
	struct sandbox *sb, *sb_b = NULL;
	struct snapshot *s, *s_b = NULL;
	struct side a, b;
	int rc = side_find(call->srv, api_text(call, "a"), &sb, &s, &a, err);

	if (rc < 0)
		return rc;
	b = a;
	b.layers = json_object_get(sb != NULL ? sb->doc : s->doc, "base_layers");
	b.live = NULL;
	b.label = NULL;
	if (other != NULL)
		rc = side_find(call->srv, other, &sb_b, &s_b, &b, err);
	if (rc == 0) {
		if (s != NULL)
			snapshot_hold(s);
		if (s_b != NULL)
			snapshot_hold(s_b);
		*ret = diff_sides(call, &a, &b, sb, g, readings, err);
		rc = *ret != NULL ? 0 : -EIO;
		if (s != NULL)
			snapshot_release(call->srv, s);
		if (s_b != NULL)
			snapshot_release(call->srv, s_b);
	}
	sandbox_unref(sb);
	sandbox_unref(sb_b);
	return rc;
}

int api_diff_get(struct api_call *call, struct err *err)
{
	struct reading readings[SIDES] = { 0 };
	struct gather g;
	const struct api_part parts[] = { { "changes", &g.changes }, { "text", &g.text } };
	json_t *out = NULL;
	int rc = sides_begin(call->srv, api_text(call, "a"), api_text(call, "b"), readings, err);

	gather_begin(&g);
	if (rc == 0)
		rc = compare(call, &g, readings, &out, err);
	for (size_t i = 0; i < SIDES; i++)
		rc = reading_end(&readings[i], rc, err);
	if (rc == 0)
		rc = api_reply_parts(call, 200, out, parts, api_flag(call, "text") ? 2 : 1);
	else
		json_decref(out);
	gather_free(&g);
	return rc;
}

/* --- apply --- */

struct apply {
	struct api_call *call;
	struct sandbox *sb;
	struct side from;          /* what is applied */
	struct snapshot *snapshot; /* made for this, or NULL */
	json_t *check;             /* status of --if */
	struct gather found;
};

static int apply_trees(struct apply *a, json_t **ret, struct err *err)
{
	const char *only = json_string_value(json_object_get(a->call->body, "mount"));
	const char *to = json_string_value(json_object_get(a->call->body, "to"));
	json_t *trees = json_array();

	for (size_t tree = 1; tree <= cow_count(a->from.mounts); tree++) {
		const json_t *m = cow_mount(a->from.mounts, tree);
		json_t *stack, *target = to != NULL ? json_string(to)
						    : json_incref(json_object_get(m, "source"));

		if (only != NULL &&
			!str_eq(json_string_value(json_object_get(m, "target")), only)) {
			json_decref(target);
			continue;
		}
		stack = side_stack(a->call->srv, &a->from, tree);
		(void)json_array_set(stack, json_array_size(stack) - 1, target);
		(void)json_array_append_new(
			trees, json_pack("{s:o,s:O,s:O,s:o}", "target", target, "at",
				       json_object_get(m, "target"), "source",
				       json_object_get(m, "source"), "a", stack));
	}
	*ret = trees;
	if (json_array_size(trees) == 0)
		return err_raise(err, ERR_INVALID, "sandbox '%s' has no cow mount%s%s", a->sb->name,
			only != NULL ? " at " : "", only != NULL ? only : "");
	if (to != NULL && json_array_size(trees) > 1)
		return err_hint(err,
			err_member(err,
				err_raise(err, ERR_INVALID,
					"'to' takes the changes of one cow mount, and sandbox '%s' has more",
					a->sb->name),
				"to"),
			"'mount' names one: cay apply --target DIR");
	return 0;
}

/* The job of the apply @id gave no answer: what it had begun is undone now, not with the next start of the server. It has ended, or with @ends does so when the kernel lets it. */
static int apply_undo(struct server *srv, const char *id, bool ends, struct err *err)
{
	json_t *ok = NULL;
	struct err why = { 0 };
	int rc = job_run(srv,
		json_pack("{s:s,s:s,s:b}", "verb", "undo_apply", "apply", id, "alone", (int)ends),
		NULL, NULL, &ok, &why);

	if (rc < 0)
		err_context(err,
			why.code == ERR_BUSY
				? "what it has begun is undone when the server starts the next time: %s"
				: "%s",
			why.msg);
	else if (json_integer_value(json_object_get(ok, "finished")) > 0)
		err_context(err, "all changes were applied");
	else
		err_context(err, "nothing was applied");
	json_decref(ok);
	return rc;
}

struct taken {
	struct server *srv;
	struct id id;
};

static void taken_main(void *arg)
{
	struct taken *t = arg;

	(void)!job_run(t->srv, json_pack("{s:s,s:s}", "verb", "undo_apply", "apply", t->id.s), NULL,
		NULL, NULL, NULL);
	free(t);
}

/*
 * Its answer is here: what said until now that it was done goes, and nobody waits for that, since nobody looks at it but for its own id and the next start. That one clears up, too, where the job
 * fails, or the server ends before.
 */
static void apply_taken(struct server *srv, struct id id)
{
	struct taken *t = xnew(struct taken);

	*t = (struct taken){ srv, id };
	fiber_start(taken_main, t);
}

static int apply_job(struct apply *a, json_t **ret, struct err *err)
{
	struct gather *g = &a->found;
	bool dry = json_is_true(json_object_get(a->call->body, "dry_run"));
	json_t *request, *trees, *ok = NULL, *groups;
	struct id id = id_new();
	int rc = apply_trees(a, &trees, err);

	groups = rc == 0 ? api_caller_groups(a->call, err) : NULL;
	if (groups == NULL) {
		json_decref(trees);
		return rc < 0 ? rc : -EIO;
	}
	request = json_pack("{s:s,s:s,s:s,s:o,s:O,s:I,s:I,s:o,s:b}", "verb",
		dry ? "check_apply" : "apply", "apply", id.s, "sandbox", a->sb->id, "trees", trees,
		"since_ns", json_object_get(a->sb->doc, "since_ns"), "uid",
		(json_int_t)http_peer_uid(a->call->conn), "gid",
		(json_int_t)http_peer_gid(a->call->conn), "groups", groups, "allow_exec",
		(int)json_is_true(json_object_get(a->call->body, "allow_exec")));
	(void)json_object_set(request, "paths", json_object_get(a->call->body, "paths"));
	g->lists = json_pack("{s:[], s:[], s:[], s:[], s:[]}", apply_lists[0], apply_lists[1],
		apply_lists[2], apply_lists[3], apply_lists[4]);
	rc = job_run(a->call->srv, request, gather_frame, g, &ok, err);
	gather_end(g);
	if (rc == 0) {
		if (json_is_true(json_object_get(ok, "journal")))
			apply_taken(a->call->srv, id);
		(void)json_object_del(ok, "journal");
		(void)json_object_set_new(ok, "n", json_incref(json_object_get(ok, "changes")));
		(void)json_object_del(ok, "changes");
		(void)json_object_update(ok, g->lists);
		(void)json_object_set_new(ok, "dry_run", json_boolean(dry));
		if (a->check != NULL)
			(void)json_object_set(ok, "check", a->check);
		*ret = ok;
	} else if (err->code == ERR_CONFLICT || err->code == ERR_NEEDS_ALLOW_EXEC) {
		*ret = json_incref(g->lists); /* they go with the error */
	}
	if (rc < 0 && !dry && (err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT))
		(void)apply_undo(a->call->srv, id.s, err->code == ERR_TIMEOUT, err);
	return rc;
}

/* Run the command in @fork and wait for its end. */
static int check_exec(struct apply *a, struct sandbox *fork, struct err *err)
{
	const json_t *m = cow_mount(a->from.mounts, 1);
	json_t *request = json_pack("{s:O}", "argv", json_object_get(a->call->body, "if_argv"));
	struct exec *e;
	int rc;

	if (m != NULL)
		(void)json_object_set(request, "cwd", json_object_get(m, "target"));
	e = exec_new(fork, request, err);
	if (e == NULL) {
		json_decref(request);
		return -EINVAL;
	}
	rc = exec_begin(e, request, err);
	while (rc == 0 && !e->ended && !a->call->srv->stopping &&
		!stream_has_left(http_stream(a->call->conn)))
		(void)waiters_wait(&e->changed, clock_now_ns() + NS_PER_S);
	if (rc == 0 && !e->ended && a->call->srv->stopping)
		rc = err_raise(err, ERR_SHUTTING_DOWN,
			"the server ends while the command given with --if runs; nothing was applied");
	if (rc == 0)
		a->check = json_deep_copy(json_object_get(e->doc, "status"));
	if (rc == 0 && (!str_eq(json_string_value(json_object_get(a->check, "status")) != NULL
					? json_string_value(json_object_get(a->check, "status"))
					: "",
				"exited") ||
			       json_integer_value(json_object_get(a->check, "code")) != 0))
		rc = err_raise(err, ERR_CHECK_FAILED,
			"the command given with --if did not exit with 0 (%s %lld); nothing was applied",
			json_string_value(json_object_get(a->check, "status")) != NULL
				? json_string_value(json_object_get(a->check, "status"))
				: "not ended",
			(long long)json_integer_value(json_object_get(a->check, "code")));
	json_decref(request);
	exec_unref(e);
	return rc;
}

/* The check runs in a fork of exactly what would be applied, which is removed afterwards. */
static int apply_check(struct apply *a, struct err *err)
{
	struct sandbox_origin origin = { a->snapshot->id, a->sb->id,
		json_object_get(a->snapshot->doc, "layers"),
		(uint64_t)json_integer_value(json_object_get(a->sb->doc, "since_ns")) };
	json_t *config = json_copy(json_object_get(a->snapshot->doc, "config"));
	struct sandbox *fork;
	int rc;

	/* it lives for one command */
	(void)json_object_del(config, "checkpoint");
	(void)json_object_del(config, "idle_ms");
	fork = sandbox_new(a->call->srv, config, &origin, true, err);
	json_decref(config);
	if (fork == NULL)
		return -EIO;
	/* a server that is killed meanwhile leaves it to the next one, which removes it */
	(void)json_object_set_new(fork->doc, "for_check", json_true());
	rc = sandbox_start(fork, NULL, true, err);
	if (rc == 0) {
		rc = check_exec(a, fork, err);
		(void)sandbox_remove(fork, NULL);
	}
	sandbox_unlock(fork);
	sandbox_unref(fork);
	return rc;
}

static int apply_locked(struct apply *a, json_t **ret, struct err *err)
{
	bool check = json_object_get(a->call->body, "if_argv") != NULL;
	int rc = sandbox_settle_files(a->sb, err);

	if (rc < 0)
		return rc;
	a->from = side_of_sandbox(a->sb);
	/* something that changes under us is applied from a snapshot; so is what was checked */
	if (check || a->sb->keeper != NULL) {
		a->snapshot =
			snapshot_take(a->sb, &(struct snapshot_wish){ .for_fork = true }, err);
		if (a->snapshot == NULL)
			return -EIO;
		snapshot_hold(a->snapshot);
		a->from = side_of_snapshot(a->snapshot);
	}
	if (check)
		rc = apply_check(a, err);
	if (rc == 0)
		rc = apply_job(a, ret, err);
	if (a->snapshot != NULL) {
		snapshot_release(a->call->srv, a->snapshot);
		snapshot_forget(a->call->srv, a->snapshot);
	}
	return rc;
}

static void applied_event(const struct apply *a, const json_t *result)
{
	const char *to = json_string_value(json_object_get(a->call->body, "to"));

	(void)server_event(a->call->srv, a->sb, EVENT_FILES_APPLIED, NULL,
		json_pack("{s:s?,s:I,s:O,s:O}", "to", to, "changes", a->found.n, "left",
			json_object_get(result, "left"), "dry_run",
			json_object_get(result, "dry_run")));
}

static int check_wish(const json_t *body, struct err *err)
{
	if (json_object_get(body, "paths") == NULL || json_object_get(body, "if_argv") == NULL)
		return 0;
	return err_member(err,
		err_raise(err, ERR_INVALID,
			"'if_argv' checks all changes, and 'paths' applies a part of them: one or the other"),
		"paths");
}

int api_sandbox_apply(struct api_call *call, struct err *err)
{
	struct apply a = { .call = call };
	const struct api_part changes = { "changes", &a.found.changes };
	json_t *result = NULL;
	int rc;

	a.sb = sandbox_find(call->srv, call->segments[0], err);
	if (a.sb == NULL)
		return -ENOENT;
	gather_begin(&a.found);
	rc = check_wish(call->body, err);
	if (rc == 0)
		rc = sandbox_not_lent(a.sb, err);
	if (rc == 0)
		rc = sandbox_lock(a.sb, err);
	if (rc == 0) {
		rc = apply_locked(&a, &result, err);
		if (rc == 0)
			applied_event(&a, result);
		sandbox_unlock(a.sb);
	}
	if (rc == 0) {
		rc = api_reply_parts(call, 200, result, &changes, 1);
	} else if (result != NULL || a.check != NULL) {
		json_t *body = json_pack("{s:o}", "error", err_to_json(err));

		if (result != NULL)
			(void)json_object_update_new(body, result);
		if (a.check != NULL)
			(void)json_object_set(body, "check", a.check);
		rc = api_reply(call, err_code_http(err->code), body);
	}
	json_decref(a.check);
	gather_free(&a.found);
	sandbox_unref(a.sb);
	return rc;
}
