/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/exec_past.c - execs that ended long ago: no objects in memory any more, but rows of the catalogue that are looked up (docs/design/0003, *Past execs*).
 *
 *   ended, known to its keeper  ->  forgotten by that, or it is gone (`archived`)  ->  past: the row is in a table of its own, the object is freed
 *
 * Invariants
 *  (1) an exec is in memory or in that table, never in both; who asks for a past one gets an object of his own, which nobody else finds;
 *  (2) what its keeper still holds stays in memory, and so is its channel taken; so does what somebody uses, what its row does not say yet, and what a snapshot is still due for;
 *  (3) a past exec never changes, but for one that a rewind brings back (exec_carried()).
 */
#include "api/exec_past.h"
#include "api/keys.h"
#include "api/steps.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

#define TIDY_EVERY     64 /* ended execs */
#define STAY           16 /* in memory, whatever they are */
#define BATCH          32 /* rows that are moved, or deleted, while everybody waits */
#define CLEAR_PAUSE_NS NS_PER_MS

/* --- from memory into the table --- */

/* The first of a run's sandbox is its command (runs.c). */
static bool may_pass(const struct exec *e)
{
	const struct sandbox *sb = e->sandbox;

	return e->ended && e->archived && !e->comes_back && e->refs == 1 && e->sink == NULL &&
	       list_empty(&e->unsaved) && exec_step(e) > 0 && !steps_need(e) &&
	       !(json_object_get(sb->doc, "run") != NULL && sb->execs.next == &e->node);
}

static int put_past(struct exec *e, struct err *err)
{
	json_t *doc = json_copy(e->doc);
	cleanup_free char *text = NULL;

	(void)json_object_del(doc, "telling");
	(void)json_object_del(doc, "channel");
	(void)json_object_del(doc, "row");
	text = json_dumps(doc, JSON_COMPACT);
	json_decref(doc);
	return catalogue_past_put(e->sandbox->srv->catalogue, exec_row(e),
		&(struct past_exec){ .owner = e->sandbox->id,
			.step = exec_step(e),
			.id = e->id,
			.key = json_string_value(json_object_get(e->doc, "key")),
			.doc = text },
		err);
}

static size_t count(const struct sandbox *sb)
{
	size_t n = 0;

	list_for_each (&sb->execs, node, next)
		n++;
	return n;
}

static bool any_may_pass(const struct sandbox *sb)
{
	list_for_each (&sb->execs, node, next) {
		if (may_pass(list_entry(node, struct exec, node)))
			return true;
	}
	return false;
}

/* The oldest that may. Return: how many; 0 when there is none, or none was taken: it is tried again later. */
static size_t pass_some(struct sandbox *sb)
{
	struct catalogue *c = sb->srv->catalogue;
	size_t listed = count(sb), n = 0;
	struct exec *passed[BATCH];
	int rc = 0;

	/* what their rows announce is told */
	if (listed <= STAY || !any_may_pass(sb) || journal_flush(sb->srv->journal) < 0 ||
		fault("exec.past.before") < 0 || catalogue_begin(c, false, NULL) < 0)
		return 0;
	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);

		if (rc < 0 || n == BATCH || listed - n <= STAY)
			break;
		if (!may_pass(e))
			continue;
		rc = put_past(e, NULL);
		passed[n++] = e;
	}
	if (rc < 0 || n == 0) {
		catalogue_abort(c);
		return 0;
	}
	if (catalogue_commit(c, NULL) < 0)
		return 0;
	(void)fault("exec.past.committed");
	sb->has_past = true;
	for (size_t i = 0; i < n; i++)
		exec_drop(passed[i]);
	return n;
}

/* Which of those that have ended its keeper has forgotten: each that it does not name. */
static void ask_keeper(struct sandbox *sb)
{
	struct keeper *k = sb->keeper;
	json_t *held = NULL;

	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);

		e->asked = e->ended && !e->archived;
	}
	if (keeper_holds(k, clock_now_ns() + CALL_NS, &held) == 0 && sb->keeper == k) {
		list_for_each (&sb->execs, node, next) {
			struct exec *e = list_entry(node, struct exec, node);

			if (e->asked && e->ended && json_object_get(held, e->id) == NULL)
				e->archived = true;
		}
	}
	json_decref(held);
}

static void tidy_main(void *arg)
{
	struct sandbox *sb = arg;
	struct server *srv = sb->srv;
	struct waiters turn;

	waiters_init(&turn);
	while (!srv->ready)
		(void)waiters_wait(&srv->became_ready, 0);
	if (sb->keeper != NULL && !sb->keeper->link.dead)
		ask_keeper(sb);
	while (!sb->gone && sb->state != SANDBOX_REMOVING && !srv->stopping && pass_some(sb) > 0)
		(void)waiters_wait(&turn, clock_now_ns() + CLEAR_PAUSE_NS);
	sb->tidying = false;
	sandbox_unref(sb);
}

void execs_tidy(struct sandbox *sb)
{
	sb->ended_since = 0;
	if (sb->tidying || sb->gone || sb->state == SANDBOX_REMOVING || count(sb) <= STAY)
		return;
	sb->tidying = true;
	fiber_start(tidy_main, sandbox_ref(sb));
}

void execs_tidy_soon(struct sandbox *sb)
{
	if (++sb->ended_since >= TIDY_EVERY)
		execs_tidy(sb);
}

/* --- looking them up --- */

struct found {
	struct sandbox *sb;
	const char *wanted;   /* id, or the beginning of one */
	struct exec *exec[2]; /* references */
	size_t n;
};

static int on_found(void *ctx, attr_unused const char *id, const char *text)
{
	struct found *f = ctx;
	struct exec *e = exec_loaded(f->sb, json_loads(text, 0, NULL));

	if (e != NULL && f->n < 2)
		f->exec[f->n++] = e;
	/* they come in order: the very one first */
	return e != NULL && f->wanted != NULL && str_eq(e->id, f->wanted) ? -ECANCELED : 0;
}

int exec_past_find(struct sandbox *sb, const char *begin, struct exec **ret, struct err *err)
{
	struct found f = { .sb = sb, .wanted = begin };
	int rc;

	*ret = NULL;
	if (!sb->has_past)
		return 0;
	rc = catalogue_past_begin(sb->srv->catalogue, sb->id, begin, on_found, &f, err);
	if (rc < 0 && rc != -ECANCELED) {
		exec_unref(f.exec[0]);
		exec_unref(f.exec[1]);
		return rc;
	}
	exec_unref(f.exec[1]);
	*ret = f.exec[0];
	return (int)f.n;
}

int exec_past_by_key(struct sandbox *sb, const char *key, struct exec **ret, struct err *err)
{
	struct found f = { .sb = sb };
	int rc = 0;

	if (sb->has_past)
		rc = catalogue_past_key(sb->srv->catalogue, sb->id, key, on_found, &f, err);
	if (f.exec[0] != NULL && !keys_counts(f.exec[0]->doc))
		exec_unref(TAKE_PTR(f.exec[0]));
	*ret = f.exec[0];
	return rc;
}

int exec_past_numbered(struct sandbox *sb, uint64_t step, struct exec **ret, struct err *err)
{
	const struct past_range just = { .after = step - 1, .before = step + 1, .max = 1 };
	struct found f = { .sb = sb };
	int rc = 0;

	if (sb->has_past && step > 0)
		rc = catalogue_past_each(sb->srv->catalogue, sb->id, &just, on_found, &f, err);
	*ret = f.exec[0];
	return rc;
}

/* --- lists --- */

struct page {
	struct sandbox *sb;
	struct past_range range;
	json_t *list; /* API objects */
};

static void page_add(struct page *p, const struct exec *e)
{
	if (exec_step(e) < p->range.before &&
		(exec_step(e) > p->range.after || p->range.after == 0))
		(void)json_array_append_new(p->list, exec_object(e));
}

static int on_row(void *ctx, attr_unused const char *id, const char *text)
{
	struct page *p = ctx;
	struct exec *e = exec_loaded(p->sb, json_loads(text, 0, NULL));

	if (e != NULL)
		page_add(p, e);
	exec_unref(e);
	return 0;
}

static int by_step(const void *a, const void *b)
{
	json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "step")),
		   y = json_integer_value(json_object_get(*(json_t *const *)b, "step"));

	return x < y ? -1 : x > y;
}

/* In order, and of those that are too many the ones that were asked for. */
static json_t *page_cut(struct page *p, size_t max)
{
	size_t n = json_array_size(p->list), from = 0;
	cleanup_free json_t **all = xalloc((n + 1) * sizeof(*all));
	json_t *out = json_array();

	for (size_t i = 0; i < n; i++)
		all[i] = json_array_get(p->list, i);
	qsort(all, n, sizeof(*all), by_step);
	if (n > max)
		from = p->range.newest ? n - max : 0;
	for (size_t i = from; i < n && i < from + max; i++)
		(void)json_array_append(out, all[i]);
	return out;
}

int execs_page(
	struct api_call *call, struct sandbox *sb, json_t **ret, bool *ret_more, struct err *err)
{
	size_t max = (size_t)api_number(call, "limit");
	struct page p = { .sb = sb,
		.range = { .after = api_number(call, "after"),
			.before = api_text(call, "before") != NULL ? api_number(call, "before")
								   : UINT64_MAX,
			.max = (unsigned int)max + 1,
			.newest = api_text(call, "after") == NULL },
		.list = json_array() };
	int rc = 0;

	if (sb->has_past)
		rc = catalogue_past_each(sb->srv->catalogue, sb->id, &p.range, on_row, &p, err);
	list_for_each (&sb->execs, node, next)
		page_add(&p, list_entry(node, struct exec, node));
	*ret_more = json_array_size(p.list) > max;
	*ret = page_cut(&p, max);
	json_decref(p.list);
	return rc;
}

/* --- of sandboxes that are gone --- */

static bool clear_one(struct server *srv, const char *sandbox)
{
	struct waiters turn;
	int n;

	waiters_init(&turn);
	while ((n = catalogue_past_clear(srv->catalogue, sandbox, BATCH, NULL)) > 0 &&
		!srv->stopping)
		(void)waiters_wait(&turn, clock_now_ns() + CLEAR_PAUSE_NS);
	return n == 0;
}

/* Many rows, in pieces: others are served in between. What is left by a server that ends, or of a catalogue that takes nothing, the next start finds. */
static void clear_main(void *arg)
{
	struct server *srv = arg;

	while (json_array_size(srv->past_gone) > 0 && !srv->stopping) {
		cleanup_free char *id =
			str_dup(json_string_value(json_array_get(srv->past_gone, 0)));

		(void)json_array_remove(srv->past_gone, 0);
		(void)fault("exec.past.clear");
		if (!clear_one(srv, id) && !srv->stopping)
			log_warn("exec",
				"past commands of sandbox '%s' are still there: the next start clears up",
				id);
	}
	srv->past_clearing = false;
}

void execs_past_clear(struct server *srv)
{
	if (srv->past_clearing || json_array_size(srv->past_gone) == 0)
		return;
	srv->past_clearing = true;
	fiber_start(clear_main, srv);
}

void execs_past_forget(struct sandbox *sb)
{
	if (!sb->has_past)
		return;
	(void)json_array_append_new(sb->srv->past_gone, json_string(sb->id));
	execs_past_clear(sb->srv);
}

int execs_past_load(struct server *srv, struct err *err)
{
	cleanup_free char *owner = str_dup("");
	uint64_t step = 0;
	int rc = 0;

	while (rc == 0 && owner != NULL) {
		cleanup_free char *after = TAKE_PTR(owner);
		struct sandbox *sb;

		rc = catalogue_past_owner(srv->catalogue, after, &owner, &step, err);
		if (rc < 0 || owner == NULL)
			continue;
		sb = sandbox_by_id(srv, owner);
		if (sb == NULL) {
			(void)json_array_append_new(srv->past_gone, json_string(owner));
			continue;
		}
		sb->has_past = true;
		step_reached(sb, step);
	}
	return rc;
}
