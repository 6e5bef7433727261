/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/steps.c - see the header, and docs/design/0010.
 *
 *   exec ends -> its number is due -> a fiber per sandbox: lock, snapshot (in the catalogue, `steps` in it), unlock -> those who wait to start an exec go on
 *             -> its memory goes to disk, the template ends -> older ones are thinned out
 *
 * Invariants
 *  (1) `steps_due` of a sandbox holds a number until the snapshot behind it is committed or given up; no exec is started through the API before it is empty;
 *  (2) at most one template per sandbox is held by this: the next snapshot waits until the memory of the last one is on disk;
 *  (3) a server that dies in between leaves `checkpointed` behind the numbers: the next one takes the snapshot (steps_recover).
 */
#include "api/steps.h"
#include "api/exec_past.h"
#include "api/memories.h"
#include "api/snapshot_parts.h"
#include "api_handlers.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "store/thinning.h"

/* --- numbers --- */

static uint64_t number_in(const json_t *doc, const char *member)
{
	return (uint64_t)json_integer_value(json_object_get(doc, member));
}

static void set_number(json_t *doc, const char *member, uint64_t n)
{
	(void)json_object_set_new(doc, member, json_integer((json_int_t)n));
}

void step_number(struct exec *e)
{
	uint64_t n = number_in(e->sandbox->doc, "steps") + 1;

	set_number(e->sandbox->doc, "steps", n);
	set_number(e->doc, "step", n);
}

void step_reached(struct sandbox *sb, uint64_t n)
{
	if (n > number_in(sb->doc, "steps"))
		set_number(sb->doc, "steps", n);
}

void step_loaded(const struct exec *e)
{
	step_reached(e->sandbox, number_in(e->doc, "step"));
}

static bool holds(const json_t *numbers, uint64_t n)
{
	size_t i;
	json_t *v;

	json_array_foreach ((json_t *)(uintptr_t)numbers, i, v) {
		if ((uint64_t)json_integer_value(v) == n)
			return true;
	}
	return false;
}

static uint64_t largest(const json_t *numbers)
{
	uint64_t max = 0;
	size_t i;
	json_t *v;

	json_array_foreach ((json_t *)(uintptr_t)numbers, i, v) {
		if ((uint64_t)json_integer_value(v) > max)
			max = (uint64_t)json_integer_value(v);
	}
	return max;
}

static bool is_of(const struct snapshot *s, const char *sandbox)
{
	return str_eq(json_string_value(json_object_get(s->doc, "sandbox")), sandbox);
}

static struct snapshot *behind(struct server *srv, const char *sandbox, uint64_t step)
{
	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);

		if (is_of(s, sandbox) && holds(json_object_get(s->doc, "steps"), step))
			return s;
	}
	return NULL;
}

/* --- thinning --- */

/* Dropping waits, and the list may change meanwhile: ids. */
static void drop_all(struct server *srv, const json_t *ids)
{
	size_t i;
	json_t *id;

	json_array_foreach ((json_t *)(uintptr_t)ids, i, id) {
		const char *what = json_string_value(id);
		struct snapshot *s;
		struct err err;

		while ((s = snapshot_find(srv, what, NULL)) != NULL && s->settling)
			(void)waiters_wait(&srv->settled, 0);
		if (s != NULL && s->users == 0 && snapshot_drop(srv, s, &err) < 0)
			log_warn("store", "remove snapshot: %s", err.msg);
	}
}

static bool may_go(struct server *srv, const struct snapshot *s)
{
	return json_object_get(s->doc, "steps") != NULL && !snapshot_is_base(srv, s);
}

static bool is_behind_step(const struct snapshot *s, const char *sandbox)
{
	return json_object_get(s->doc, "steps") != NULL && is_of(s, sandbox);
}

static size_t count_of(const struct sandbox *sb)
{
	size_t n = 0;

	list_for_each (&sb->srv->snapshots, node, next)
		n += is_behind_step(list_entry(node, struct snapshot, node), sb->id);
	return n;
}

/* The list of snapshots is in the order of their making, and so are their steps. */
static void thin(struct sandbox *sb)
{
	size_t n = count_of(sb), i = 0;
	cleanup_free uint64_t *steps = xalloc(n * sizeof(*steps) + 1);
	cleanup_free bool *keep = xalloc(n + 1);
	json_t *ids = json_array();

	list_for_each (&sb->srv->snapshots, node, next) {
		const struct snapshot *s = list_entry(node, struct snapshot, node);

		if (is_behind_step(s, sb->id))
			steps[i++] = largest(json_object_get(s->doc, "steps"));
	}
	thinning_choose(steps, n, n > 0 ? steps[n - 1] : 0, keep);
	i = 0;
	list_for_each (&sb->srv->snapshots, node, next) {
		const struct snapshot *s = list_entry(node, struct snapshot, node);

		if (is_behind_step(s, sb->id) && !keep[i++] && may_go(sb->srv, s))
			(void)json_array_append_new(ids, json_string(s->id));
	}
	drop_all(sb->srv, ids);
	json_decref(ids);
}

void steps_sweep(struct server *srv)
{
	json_t *ids = json_array();

	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);
		const char *of = json_string_value(json_object_get(s->doc, "sandbox"));

		if (sandbox_by_id(srv, of) == NULL && may_go(srv, s))
			(void)json_array_append_new(ids, json_string(s->id));
	}
	drop_all(srv, ids);
	json_decref(ids);
}

/* --- taking them --- */

/* Without a process there is nothing to keep but files. What cannot be counted is taken for some. */
static bool has_processes(struct sandbox *sb)
{
	json_t *usage, *n;
	bool any;

	if (sb->state != SANDBOX_RUNNING)
		return sb->state == SANDBOX_PAUSED || sb->state == SANDBOX_SUSPENDED;
	usage = sandbox_usage_now(sb, NULL);
	n = json_object_get(usage, "processes");
	any = !json_is_integer(n) || json_integer_value(n) > 0;
	json_decref(usage);
	return any;
}

/* A program that ends long after it began has a smaller number than others that are settled. */
static void settled(struct sandbox *sb, uint64_t n)
{
	if (n > number_in(sb->doc, "checkpointed"))
		set_number(sb->doc, "checkpointed", n);
}

void steps_done(struct sandbox *sb, const json_t *steps)
{
	settled(sb, largest(steps));
}

void steps_give_up(struct sandbox *sb)
{
	settled(sb, number_in(sb->doc, "steps"));
}

void steps_undone(struct sandbox *sb)
{
	(void)json_array_clear(sb->steps_due);
	waiters_wake(&sb->changed);
}

static void tell_failure(struct sandbox *sb, json_t *steps, const struct err *why)
{
	if (sb->gone || sb->state == SANDBOX_REMOVING)
		return;
	steps_done(sb, steps);
	(void)server_event(sb->srv, sb, EVENT_CHECKPOINT_FAILED, NULL,
		json_pack("{s:O,s:o}", "steps", steps, "error", err_to_json(why)));
	(void)!sandbox_save(sb, false, NULL);
}

/* Beside a run's command, but not behind it: then its sandbox is to stop, or to go. */
static int lock(struct sandbox *sb, struct err *err)
{
	return run_goes_on(sb) ? sandbox_lock_beside(sb, err) : sandbox_lock(sb, err);
}

/* A rewind may have taken them away already, and others may have come. */
static void no_more_due(struct sandbox *sb, const json_t *steps)
{
	json_t *due = sb->steps_due;

	for (size_t i = json_array_size(due); i > 0; i--) {
		if (holds(steps, (uint64_t)json_integer_value(json_array_get(due, i - 1))))
			(void)json_array_remove(due, i - 1);
	}
	waiters_wake(&sb->changed);
}

/* Of all that are due when the sandbox is ours: none may be left, where it was rewound meanwhile. */
static struct snapshot *take(struct sandbox *sb)
{
	struct snapshot_wish wish = { 0 };
	struct err err = { 0 };
	struct snapshot *s = NULL;
	int rc = lock(sb, &err);

	wish.steps = json_copy(sb->steps_due);
	if (rc == 0 && json_array_size(wish.steps) > 0) {
		wish.live = has_processes(sb);
		(void)fault("step.before");
		s = snapshot_take(sb, &wish, &err);
		(void)fault("step.taken");
	}
	if (rc == 0)
		sandbox_unlock(sb);
	if (s == NULL && json_array_size(wish.steps) > 0)
		tell_failure(sb, wish.steps, &err);
	no_more_due(sb, wish.steps);
	json_decref(wish.steps);
	return s;
}

static void put_away(struct server *srv, struct snapshot *s)
{
	struct err err = { 0 };

	if (snapshot_memory(s) == NULL)
		return;
	snapshot_hold(s);
	if (snapshot_make_durable(srv, s, &err) < 0)
		log_warn("store", "snapshot '%s': %s", s->id, err.msg);
	snapshot_release(srv, s);
}

static void step_main(void *arg)
{
	struct sandbox *sb = arg;
	struct server *srv = sb->srv;

	while (!srv->ready)
		(void)waiters_wait(&srv->became_ready, 0);
	while (json_array_size(sb->steps_due) > 0 && !srv->stopping) {
		struct snapshot *s = take(sb);

		if (s != NULL)
			put_away(srv, s);
		if (s != NULL && !sb->gone)
			thin(sb);
	}
	/* the server ends: the next one finds what is missing */
	(void)json_array_clear(sb->steps_due);
	sb->checkpointing = false;
	waiters_wake(&sb->changed);
	sandbox_unref(sb);
	server_idle(srv);
}

static bool is_wanted(const struct sandbox *sb)
{
	const char *when = json_string_value(json_object_get(sb->doc, "checkpoint"));

	return when != NULL && str_eq(when, "each-exec") && !sb->gone &&
	       sb->state != SANDBOX_REMOVING;
}

bool steps_need(const struct exec *e)
{
	return is_wanted(e->sandbox) &&
	       number_in(e->doc, "step") > number_in(e->sandbox->doc, "checkpointed");
}

static void due(struct sandbox *sb, uint64_t step)
{
	(void)json_array_append_new(sb->steps_due, json_integer((json_int_t)step));
	if (sb->checkpointing)
		return;
	sb->checkpointing = true;
	server_busy(sb->srv);
	fiber_start(step_main, sandbox_ref(sb));
}

void step_ended(const struct exec *e)
{
	if (is_wanted(e->sandbox) && number_in(e->doc, "step") > 0)
		due(e->sandbox, number_in(e->doc, "step"));
}

void steps_recover(struct sandbox *sb)
{
	uint64_t done = number_in(sb->doc, "checkpointed");

	if (!is_wanted(sb))
		return;
	list_for_each (&sb->execs, node, next) {
		const struct exec *e = list_entry(node, struct exec, node);

		if (e->ended && number_in(e->doc, "step") > done)
			step_ended(e);
	}
}

void steps_wait(struct sandbox *sb)
{
	while (json_array_size(sb->steps_due) > 0 && !sb->gone)
		(void)waiters_wait(&sb->changed, 0);
}

/* --- addresses --- */

static bool is_exec(struct sandbox *sb, const char *id)
{
	struct exec *past = NULL;
	bool found = exec_by_id(sb, id) != NULL;

	if (!found && exec_past_find(sb, id, &past, NULL) > 0)
		found = str_eq(past->id, id);
	exec_unref(past);
	return found;
}

/* The number that @text says; 0 with @err set. @ret_exec: that exec, NULL when it is not known any more; borrowed. */
static uint64_t parse_step(
	struct sandbox *sb, const char *text, const struct exec **ret_exec, struct err *err)
{
	uint64_t n = 0, last = number_in(sb->doc, "steps");
	struct exec *e;

	*ret_exec = NULL;
	if (str_to_u64(text, 0, UINT32_MAX, &n) == 0 && !is_exec(sb, text)) {
		if (n == 0 || n > last) {
			(void)err_raise(err, ERR_NOT_FOUND,
				"sandbox '%s' has no step %s: its steps are 1 to %lu", sb->name,
				text, last);
			return 0;
		}
		list_for_each (&sb->execs, node, next) {
			e = list_entry(node, struct exec, node);
			if (number_in(e->doc, "step") == n)
				*ret_exec = e;
		}
		return n;
	}
	e = exec_find(sb, text, err);
	if (e == NULL)
		return 0;
	n = number_in(e->doc, "step");
	*ret_exec = exec_by_id(sb, e->id);
	exec_unref(e);
	return n;
}

static struct sandbox *sandbox_of(
	struct server *srv, const char *what, const char **ret_step, struct err *err)
{
	const char *at = strchr(what, '@');
	cleanup_free char *name =
		at != NULL ? str_dupf("%.*s", (int)(at - what), what) : str_dup(what);

	*ret_step = at != NULL ? at + 1 : NULL;
	return at != NULL ? sandbox_look_up(srv, name, err) : NULL;
}

void step_await(struct server *srv, const char *what)
{
	const char *text;
	struct sandbox *sb = sandbox_of(srv, what, &text, NULL);
	const struct exec *e;
	uint64_t n = sb != NULL ? parse_step(sb, text, &e, NULL) : 0;

	/* which steps have ended is known behind its recovery, which has the snapshots taken that are due */
	if (n > 0 && behind(srv, sb->id, n) == NULL)
		(void)!sandbox_await(sb, NULL);
	while (n > 0 && holds(sb->steps_due, n) && !sb->gone)
		(void)waiters_wait(&sb->changed, 0);
	sandbox_unref(sb);
}

/* The nearest steps before and behind @step that have a snapshot; 0: none. */
static void look_around(const struct sandbox *sb, uint64_t step, uint64_t *before, uint64_t *after)
{
	*before = *after = 0;
	list_for_each (&sb->srv->snapshots, node, next) {
		const struct snapshot *s = list_entry(node, struct snapshot, node);
		json_t *steps = json_object_get(s->doc, "steps"), *v;
		size_t i;

		if (!is_of(s, sb->id))
			continue;
		json_array_foreach (steps, i, v) {
			uint64_t n = (uint64_t)json_integer_value(v);

			if (n < step && n > *before)
				*before = n;
			if (n > step && (*after == 0 || n < *after))
				*after = n;
		}
	}
}

static void no_snapshot(
	const struct sandbox *sb, uint64_t step, const struct exec *e, struct err *err)
{
	uint64_t before, after;
	char near[256] = "none of its steps has one";

	look_around(sb, step, &before, &after);
	if (before != 0 && after != 0)
		(void)snprintf(near, sizeof(near), "the nearest are %s@%lu and %s@%lu", sb->name,
			before, sb->name, after);
	else if (before != 0 || after != 0)
		(void)snprintf(near, sizeof(near), "the nearest is %s@%lu", sb->name,
			before != 0 ? before : after);
	(void)err_raise(err, ERR_NOT_FOUND, "step %lu of sandbox '%s' %s: %s", step, sb->name,
		e != NULL && !e->ended ? "has not ended" : "has no snapshot", near);
	if (before == 0 && after == 0 && !is_wanted(sb))
		(void)err_hint(
			err, 0, "cay set %s --checkpoint each-exec has them taken", sb->name);
}

struct snapshot *step_find(struct server *srv, const char *what, struct err *err)
{
	const struct exec *e = NULL;
	struct snapshot *s = NULL;
	const char *text;
	struct sandbox *sb = sandbox_of(srv, what, &text, err);
	uint64_t n = sb != NULL ? parse_step(sb, text, &e, err) : 0;

	if (n > 0) {
		s = behind(srv, sb->id, n);
		if (s == NULL && sb->awaited)
			(void)err_hint(err,
				err_raise(err, ERR_BUSY,
					"whether step %lu of sandbox '%s' has ended is not known until its keeper answers",
					n, sb->name),
				"try again: cay info %s says `awaited` until then", sb->name);
		else if (s == NULL)
			no_snapshot(sb, n, e, err);
	}
	sandbox_unref(sb);
	return s;
}

/* --- routes --- */

/* {step: its snapshot} of those that have one. A new reference. */
static json_t *all_behind(const struct sandbox *sb)
{
	json_t *found = json_object();

	list_for_each (&sb->srv->snapshots, node, next) {
		const struct snapshot *s = list_entry(node, struct snapshot, node);
		json_t *n;
		size_t i;

		if (!is_of(s, sb->id))
			continue;
		json_array_foreach (json_object_get(s->doc, "steps"), i, n) {
			char step[24];

			(void)snprintf(step, sizeof(step), "%lld", json_integer_value(n));
			if (json_object_get(found, step) == NULL)
				(void)json_object_set_new(found, step, json_string(s->id));
		}
	}
	return found;
}

static json_t *step_object(const json_t *exec, const json_t *snapshots)
{
	json_int_t n = json_integer_value(json_object_get(exec, "step"));
	const char *state = json_string_value(json_object_get(exec, "state"));
	char step[24];

	(void)snprintf(step, sizeof(step), "%lld", n);
	return json_pack("{s:I,s:O,s:O,s:b,s:O,s:s?}", "step", n, "exec",
		json_object_get(exec, "id"), "argv", json_object_get(exec, "argv"), "ended",
		(int)str_eq(state, "ended"), "status", json_object_get(exec, "status"), "snapshot",
		json_string_value(json_object_get(snapshots, step)));
}

int api_step_list(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	json_t *list = json_array(), *execs = NULL, *snapshots, *exec;
	bool more = false;
	size_t i;
	int rc;

	if (sb == NULL) {
		json_decref(list);
		return -ENOENT;
	}
	snapshots = all_behind(sb);
	rc = execs_page(call, sb, &execs, &more, err);
	json_array_foreach (execs, i, exec)
		(void)json_array_append_new(list, step_object(exec, snapshots));
	json_decref(execs);
	json_decref(snapshots);
	sandbox_unref(sb);
	if (rc == 0)
		return api_reply(
			call, 200, json_pack("{s:o,s:b}", "steps", list, "more", (int)more));
	json_decref(list);
	return rc;
}

/* The epoch that led to @epoch: what a rewind has undone is skipped. 0: the beginning. */
static uint64_t epoch_before(const struct sandbox *sb, uint64_t epoch)
{
	size_t i;
	json_t *range;

	json_array_foreach (json_object_get(sb->doc, "undone"), i, range) {
		if ((uint64_t)json_integer_value(json_array_get(range, 1)) + 1 == epoch)
			return (uint64_t)json_integer_value(json_array_get(range, 0)) - 1;
	}
	return epoch - 1;
}

static bool leads_to(const struct sandbox *sb, uint64_t epoch, uint64_t later)
{
	while (later > epoch)
		later = epoch_before(sb, later);
	return later == epoch;
}

/* Of those that can be used: the one that ends the latest epoch that led to @epoch, or the earliest that @epoch led to. */
static struct snapshot *nearest(const struct sandbox *sb, uint64_t epoch, bool after)
{
	struct snapshot *found = NULL;
	uint64_t best = 0;

	list_for_each (&sb->srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);
		uint64_t e = number_in(s->doc, "epoch");
		bool fits =
			after ? e >= epoch && (found == NULL || e < best) : e < epoch && e > best;

		if (!is_of(s, sb->id) || !fits ||
			str_eq(json_string_value(json_object_get(s->doc, "state")), "corrupt") ||
			!(after ? leads_to(sb, epoch, e) : leads_to(sb, e, epoch)))
			continue;
		found = s;
		best = e;
	}
	return found;
}

static json_t *object_or_null(struct snapshot *s)
{
	return s != NULL ? snapshot_object(s) : json_null();
}

int api_step_nearest(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	uint64_t epoch = api_number(call, "epoch");
	json_t *answer;

	if (sb == NULL)
		return -ENOENT;
	if (epoch > sandbox_epoch(sb)) {
		int rc = err_raise(err, ERR_INVALID, "sandbox '%s' has had %lu epochs", sb->name,
			sandbox_epoch(sb));

		sandbox_unref(sb);
		return rc;
	}
	answer = json_pack("{s:o,s:o}", "before", object_or_null(nearest(sb, epoch, false)),
		"after", object_or_null(nearest(sb, epoch, true)));
	sandbox_unref(sb);
	return api_reply(call, 200, answer);
}
