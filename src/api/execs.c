/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/execs.c - commands run in sandboxes: their objects, and what is known of them after a restart.
 *
 * An exec is in the catalogue before the keeper hears of it; that of a run before it may execute anything (runs.c). Its final status comes from the keeper (exec.ended), or, when no keeper can say it any more, is
 * `lost` or `killed` with the reason: never an invented exit code. It is told once: where the row was not taken it is written again before the chain's head is.
 */
#include "api/credentials.h"
#include "api/exec_past.h"
#include "api/identity.h"
#include "api/idle.h"
#include "api/moments.h"
#include "api/server.h"
#include "api/steps.h"
#include "api/telling.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

#define EVENT_BYTES_MAX (4U << 20)

static struct exec *exec_alloc(void)
{
	struct exec *e = xnew(struct exec);

	list_init(&e->unsaved);
	list_init(&e->turns);
	return e;
}

struct exec *exec_ref(struct exec *e)
{
	e->refs++;
	return e;
}

void exec_unref(struct exec *e)
{
	if (e == NULL || --e->refs > 0)
		return;
	json_decref(e->doc);
	json_decref(e->env);
	free(e->refused);
	free(e);
}

/* Once its keeper knows it no more another one may have its channel. */
static bool has_channel(const struct exec *e)
{
	return e->channel != 0 && !(e->ended && e->archived);
}

struct exec *exec_by_channel(struct sandbox *sb, uint16_t channel)
{
	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);

		if (e->channel == channel && has_channel(e))
			return e;
	}
	return NULL;
}

struct exec *exec_by_id(struct sandbox *sb, const char *id)
{
	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);

		if (str_eq(e->id, id))
			return e;
	}
	return NULL;
}

struct exec *exec_find(struct sandbox *sb, const char *what, struct err *err)
{
	struct exec *found = exec_by_id(sb, what), *past = NULL;
	bool past_wanted = found == NULL && strlen(what) >= ID_BEGIN_MIN;
	int n = past_wanted ? exec_past_find(sb, what, &past, err) : 0;

	if (found != NULL)
		return exec_ref(found);
	if (n < 0 || (past != NULL && str_eq(past->id, what)))
		return past;
	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);

		if (!id_begins(e->id, what))
			continue;
		found = e;
		n++;
	}
	if (n == 1)
		return past != NULL ? past : exec_ref(found);
	exec_unref(past);
	if (n > 1)
		(void)err_raise(err, ERR_AMBIGUOUS,
			"'%s' is the beginning of more than one exec's id", what);
	else
		(void)err_raise(
			err, ERR_NOT_FOUND, "sandbox '%s' has no exec '%s'", sb->name, what);
	return NULL;
}

/* An exec that a live fork carried over has the id of its source: as a row it needs another. */
const char *exec_row(const struct exec *e)
{
	const char *row = json_string_value(json_object_get(e->doc, "row"));

	return row != NULL ? row : e->id;
}

uint64_t exec_step(const struct exec *e)
{
	return (uint64_t)json_integer_value(json_object_get(e->doc, "step"));
}

static int exec_save(struct exec *e, struct err *err)
{
	cleanup_free char *text = json_dumps(e->doc, JSON_COMPACT);

	/* its rows are gone, and nobody would take this one away */
	if (e->sandbox->state == SANDBOX_REMOVING)
		return 0;
	return catalogue_put(e->sandbox->srv->catalogue, CATALOGUE_EXECS, exec_row(e), NULL,
		e->sandbox->id, text, false, err);
}

/* --- the request --- */

static void env_set(json_t *env, const json_t *from)
{
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)from, name, value)
		(void)json_object_set(env, name, value);
}

int env_check(const json_t *env, struct err *err)
{
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)env, name, value) {
		if (name[0] == '\0' || strchr(name, '=') != NULL)
			return err_raise(err, ERR_INVALID,
				"'%s' is not a name for an environment variable", name);
	}
	return 0;
}

/* The whole environment: defaults, the sandbox's, the exec's. HOME is added by the keeper, which knows the user's. */
static int env_list(
	const struct sandbox *sb, const json_t *own, bool tty, json_t **ret, struct err *err)
{
	json_t *env = json_pack("{s:s,s:s,s:s}", "PATH",
		"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG", "C.UTF-8",
		"TERM", tty ? "xterm-256color" : "dumb");
	int rc = credentials_env(sb, env, err);
	const char *name;
	json_t *value;

	env_set(env, json_object_get(sb->doc, "env"));
	env_set(env, own);
	*ret = json_array();
	json_object_foreach (env, name, value)
		(void)json_array_append_new(
			*ret, json_sprintf("%s=%s", name, json_string_value(value)));
	json_decref(env);
	return rc;
}

/* Where nearly all are taken, each of them is looked at once, and not the whole list for each. */
static uint16_t free_channel(struct sandbox *sb)
{
	static unsigned char taken[(UINT16_MAX + 1) / 8];

	memset(taken, 0, sizeof(taken));
	list_for_each (&sb->execs, node, next) {
		const struct exec *e = list_entry(node, struct exec, node);

		if (has_channel(e))
			taken[e->channel / 8] |= (unsigned char)(1U << e->channel % 8);
	}
	for (unsigned int i = 0; i <= UINT16_MAX; i++) {
		uint16_t c = sb->next_channel++;

		if (c != 0 && (taken[c / 8] & 1U << c % 8) == 0)
			return c;
	}
	return 0;
}

struct exec *exec_new(struct sandbox *sb, const json_t *request, struct err *err)
{
	json_t *tty = json_object_get(request, "tty"), *v;
	uint16_t channel = free_channel(sb);
	char when[CLOCK_TEXT_SIZE];
	struct exec *e;

	if (channel == 0) {
		(void)err_raise(err, ERR_LIMIT,
			"sandbox '%s' has %d commands that have not ended, or whose groups have not: it can have no more at once",
			sb->name, UINT16_MAX);
		(void)err_hint(err, 0, "end some of them, or go on in a fork of it (cay fork)");
		return NULL;
	}
	if (env_check(json_object_get(request, "env"), err) < 0 ||
		env_check(json_object_get(sb->doc, "env"), err) < 0)
		return NULL;
	e = exec_alloc();
	e->refs = 2; /* the list's and the caller's */
	e->sandbox = sb;
	e->channel = channel;
	waiters_init(&e->changed);
	(void)!str_copy(e->id, sizeof(e->id), id_new().s);
	clock_text(clock_wall_ns(), when);
	e->doc = json_pack("{s:s,s:s,s:O,s:s,s:i,s:s,s:n,s:n}", "id", e->id, "sandbox", sb->id,
		"argv", json_object_get(request, "argv"), "state", "starting", "channel", channel,
		"created", when, "pid", "status");
	v = json_object_get(request, "cwd");
	(void)json_object_set(e->doc, "cwd", v != NULL ? v : json_null());
	v = json_object_get(request, "user");
	(void)json_object_set_new(e->doc, "user", v != NULL ? json_incref(v) : json_string("root"));
	(void)json_object_set_new(e->doc, "tty", json_boolean(json_is_object(tty)));
	(void)json_object_set_new(
		e->doc, "stdin", json_boolean(json_is_true(json_object_get(request, "stdin"))));
	v = json_object_get(request, "timeout_ms");
	(void)json_object_set(e->doc, "timeout_ms", v != NULL ? v : json_null());
	step_number(e);
	if (identity_note(sb, e->doc, request, err) < 0 ||
		env_list(sb, json_object_get(request, "env"), json_is_object(tty), &e->env, err) <
			0) {
		e->refs = 1;
		exec_unref(e);
		return NULL;
	}
	list_append(&sb->execs, &e->node);
	return e;
}

json_t *exec_request(struct exec *e, const json_t *request)
{
	static const char *const same[] = { "argv", "cwd", "user", "tty", "stdin", "timeout_ms",
		"ring_bytes", "spill_bytes", "hold" };
	json_t *r =
		json_pack("{s:s,s:s,s:i}", "verb", "exec", "exec", e->id, "channel", e->channel);

	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		json_t *v = json_object_get(request, same[i]);

		if (v != NULL)
			(void)json_object_set(r, same[i], v);
	}
	if (json_is_object(json_object_get(r, "tty")))
		(void)json_object_set_new(r, "tty",
			json_pack("{s:O,s:O}", "rows",
				json_object_get(json_object_get(r, "tty"), "rows"), "cols",
				json_object_get(json_object_get(r, "tty"), "columns")));
	if (json_object_get(r, "user") == NULL)
		(void)json_object_set_new(r, "user", json_string("root"));
	(void)json_object_set_new(r, "env", TAKE_PTR(e->env));
	return r;
}

static json_t *created_data(const struct exec *e)
{
	static const char *const members[] = { "argv", "cwd", "user", "tty", "timeout_ms", "step" };
	json_t *data = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		(void)json_object_set(data, members[i], json_object_get(e->doc, members[i]));
	return data;
}

/* Its data are in the row anyway. */
static void announce_created(struct exec *e)
{
	telling_announce(e->sandbox->srv, e->doc,
		&(struct telling){ .type = EVENT_EXEC_CREATED,
			.sandbox = e->sandbox->id,
			.epoch = sandbox_epoch(e->sandbox),
			.exec = e->id,
			.after = e->created_seq > 0 ? e->created_seq - 1 : 0 });
}

int exec_created(struct exec *e, struct err *err)
{
	int rc;

	announce_created(e);
	rc = exec_save(e, err);
	(void)telling_done(e->doc);
	if (rc == 0) {
		e->created_n = server_event(
			e->sandbox->srv, e->sandbox, EVENT_EXEC_CREATED, e->id, created_data(e));
		e->created_seq = journal_last_seq(e->sandbox->srv->journal, e->sandbox->id);
	}
	(void)fault("exec.create.committed");
	return rc;
}

void exec_drop(struct exec *e)
{
	list_remove(&e->unsaved);
	list_remove(&e->node);
	exec_unref(e);
}

/* Nothing is left of it but that. */
static void exec_failed(struct exec *e, const struct err *err)
{
	struct server *srv = e->sandbox->srv;
	const struct telling failed = { .type = EVENT_EXEC_FAILED,
		.sandbox = e->sandbox->id,
		.epoch = sandbox_epoch(e->sandbox),
		.exec = e->id,
		.data = json_pack("{s:o}", "error", err_to_json(err)) };

	if (e->sandbox->state != SANDBOX_REMOVING) {
		/* a row that the catalogue does not take now goes with the next heads all the same, and until then the journal says it: take_told() */
		if (fault("exec.fail.before") == 0)
			(void)!telling_bury(srv, CATALOGUE_EXECS, exec_row(e), &failed, NULL);
		telling_buried(srv, CATALOGUE_EXECS, exec_row(e), NULL);
	}
	(void)fault("exec.fail.committed");
	(void)server_event(srv, e->sandbox, failed.type, e->id, failed.data);
}

void exec_has_started(struct exec *e, const json_t *data)
{
	e->started = true;
	(void)json_object_set(e->doc, "pid", json_object_get(data, "pid"));
	/* not written: after a restart the keeper says both */
	if (!e->ended) /* it was not that quick */
		(void)json_object_set_new(e->doc, "state", json_string("running"));
}

void exec_answered(struct exec *e, int rc, const json_t *ok, const struct err *err)
{
	if (rc < 0) {
		exec_failed(e, err);
		e->refused = xnew(struct err);
		*e->refused = *err;
		e->ended = true;
		waiters_wake(&e->changed);
		exec_stdin_wake(e);
		waiters_wake(&e->sandbox->changed);
		exec_drop(e);
		return;
	}
	exec_has_started(e, ok);
}

void exec_was_refused(struct exec *e, const json_t *error)
{
	struct err err;
	int rc = err_from_json(error, &err);

	exec_answered(e, rc, NULL, &err);
}

int exec_refused(const struct exec *e, struct err *err)
{
	if (e->refused == NULL)
		return 0;
	*err = *e->refused;
	return -ECANCELED;
}

void exec_announce_end(struct exec *e, uint64_t time_ns, json_t *status)
{
	/* where the journal cannot be written (a full disk) its row is all that tells of its beginning, too */
	if (e->created_n > journal_written(e->sandbox->srv->journal))
		announce_created(e);
	telling_announce(e->sandbox->srv, e->doc,
		&(struct telling){ .type = EVENT_EXEC_ENDED,
			.sandbox = e->sandbox->id,
			.epoch = sandbox_epoch(e->sandbox),
			.exec = e->id,
			.time_ns = time_ns,
			.data = status });
}

/* Its final status is known. Idempotent. */
static void exec_finish(struct exec *e, const json_t *status)
{
	struct sandbox *sb = e->sandbox;

	if (e->ended)
		return;
	e->ended = true;
	(void)json_object_set_new(e->doc, "state", json_string("ended"));
	(void)json_object_set_new(e->doc, "status", json_deep_copy(status));
	if ((e->fleeting && e->unchanged) || fault("exec.end.before") < 0 || exec_save(e, NULL) < 0)
		list_append(&sb->srv->unsaved, &e->unsaved);
	(void)fault("exec.end.committed");
	(void)telling_done(e->doc);
	/* who waits for its end may remove both */
	(void)sandbox_ref(sb);
	waiters_wake(&e->changed);
	exec_stdin_wake(e);
	waiters_wake(&sb->changed);
	sandbox_unref(sb);
}

void exec_has_ended(struct exec *e, const json_t *status)
{
	struct sandbox *sb = sandbox_ref(e->sandbox);

	if (!e->ended) {
		(void)exec_ref(e);
		exec_finish(e, status);
		step_ended(e);
		sandbox_stir(sb);
		execs_tidy_soon(sb);
		exec_unref(e);
	}
	sandbox_unref(sb);
}

/* After a suspension, and a rewind of its sandbox while it ran, it is the same one, and whoever waits for it goes on waiting. */
static int exec_resumed(struct exec *e, const json_t *said, pid_t pid, struct err *err)
{
	e->archived = false;
	if (e->comes_back) {
		e->comes_back = false;
		e->rewinds++;
		e->rewound_to = (uint64_t)json_integer_value(json_object_get(said, "end"));
	}
	exec_has_started(e, said);
	process_source_bind(e->sandbox->srv->processes, e->sandbox->id, pid, e->id);
	return exec_save(e, err);
}

/* Does another one than @e have its number, in memory or past? */
static int is_number_taken(const struct exec *e, bool *ret, struct err *err)
{
	uint64_t largest = (uint64_t)json_integer_value(json_object_get(e->sandbox->doc, "steps"));
	struct exec *past;
	int rc;

	*ret = false;
	/* beyond the largest it is free: what a fork carries over comes in order, and is not compared each with all before it */
	list_for_each (&e->sandbox->execs, node, next) {
		const struct exec *other = list_entry(node, struct exec, node);

		if (exec_step(e) > largest)
			break;
		*ret |= exec_step(other) == exec_step(e) && !str_eq(other->id, e->id);
	}
	rc = exec_past_numbered(e->sandbox, exec_step(e), &past, err);
	*ret |= past != NULL && !str_eq(past->id, e->id);
	exec_unref(past);
	return rc;
}

/*
 * The number that it has here: what a rewind has brought back keeps it. Of a relative's snapshot, a fork's or that of what this one was forked from, one may run that was never of this sandbox, and
 * whose number there is another one's here. @old: as it is here in memory, or NULL.
 */
static int number_carried(struct exec *e, const struct exec *old, struct err *err)
{
	struct exec *past = NULL;
	bool taken = false;
	int rc = old == NULL ? exec_past_find(e->sandbox, e->id, &past, err) : 0;

	if (past != NULL)
		old = past;
	if (old != NULL)
		(void)json_object_set(e->doc, "step", json_object_get(old->doc, "step"));
	else if (rc == 0)
		rc = is_number_taken(e, &taken, err);
	if (taken)
		step_number(e);
	else
		step_loaded(e);
	exec_unref(past);
	return rc < 0 ? rc : 0;
}

/* It may be a past one that is none any more: only a rewind brings one back, and that is one transaction (sandbox_start.c). */
static int save_carried(struct exec *e, struct err *err)
{
	int rc = exec_save(e, err);

	if (rc == 0 && e->sandbox->has_past)
		rc = catalogue_past_drop(
			e->sandbox->srv->catalogue, e->sandbox->id, exec_step(e), err);
	return rc;
}

int exec_carried(struct sandbox *sb, const json_t *doc, const json_t *said, struct err *err)
{
	/* after a rewind: one that had ended since goes on */
	struct exec *old = exec_by_id(sb, json_string_value(json_object_get(doc, "id"))), *e;
	pid_t pid = (pid_t)json_integer_value(json_object_get(said, "pid"));
	int rc;

	if (old != NULL && !old->ended)
		return exec_resumed(old, said, pid, err);
	e = exec_alloc();
	e->refs = 1; /* the list's */
	e->sandbox = sb;
	e->doc = json_deep_copy(doc);
	(void)!str_copy(e->id, sizeof(e->id), json_string_value(json_object_get(doc, "id")));
	rc = number_carried(e, old, err);
	exec_has_started(e, said);
	(void)json_object_set_new(
		e->doc, "row", json_string(old != NULL ? exec_row(old) : id_new().s));
	if (old != NULL)
		exec_drop(old);
	waiters_init(&e->changed);
	e->channel = (uint16_t)json_integer_value(json_object_get(doc, "channel"));
	if (e->channel >= sb->next_channel)
		sb->next_channel = (uint16_t)(e->channel + 1);
	(void)json_object_set_new(e->doc, "sandbox", json_string(sb->id));
	list_append(&sb->execs, &e->node);
	process_source_bind(sb->srv->processes, sb->id, pid, e->id);
	return rc < 0 ? rc : save_carried(e, err);
}

json_t *exec_object(const struct exec *e)
{
	json_t *o = json_copy(e->doc);

	(void)json_object_del(o, "telling");
	(void)json_object_del(o, "channel");
	(void)json_object_del(o, "key");
	(void)json_object_del(o, "row");
	(void)json_object_del(o, "key_hash");
	if (e->sandbox->state == SANDBOX_SUSPENDED && !e->ended)
		(void)json_object_set_new(o, "state", json_string("suspended"));
	return o;
}

bool exec_is_away(const struct exec *e)
{
	const struct sandbox *sb = e->sandbox;

	return !e->ended && (e->comes_back || sb->state == SANDBOX_SUSPENDED ||
				    json_object_get(sb->doc, "suspending") != NULL);
}

/* --- ends that nobody saw --- */

static json_t *unseen(const char *status, const char *reason)
{
	char when[CLOCK_TEXT_SIZE];

	clock_text(clock_wall_ns(), when);
	return json_pack(
		"{s:s,s:{s:s},s:s}", "status", status, "evidence", "reason", reason, "ended", when);
}

static void finish_unseen(struct exec *e, const char *status, const char *reason)
{
	json_t *s;

	if (e->ended || e->comes_back)
		return;
	s = unseen(status, reason);
	exec_announce_end(e, 0, s);
	(void)server_event(e->sandbox->srv, e->sandbox, EVENT_EXEC_ENDED, e->id, json_incref(s));
	exec_finish(e, s);
	json_decref(s);
}

int execs_save_again(struct server *srv)
{
	int rc = 0;

	list_for_each (&srv->unsaved, node, next) {
		if (rc == 0)
			rc = exec_save(list_entry(node, struct exec, unsaved), NULL);
	}
	return rc;
}

void execs_saved_again(struct server *srv)
{
	list_for_each (&srv->unsaved, node, next)
		list_remove(node);
}

/* @event is behind the head of its chain. */
static void take_told(struct sandbox *sb, const json_t *event)
{
	const char *name = json_string_value(json_object_get(event, "type"));
	enum event_type type = name != NULL ? event_type_parse(name) : EVENT_KEEPER;
	const char *id = json_string_value(json_object_get(event, "exec"));
	struct exec *e = id != NULL ? exec_by_id(sb, id) : NULL;
	json_t *data = json_object_get(event, "data");

	/* what ended in a time that a rewind took back may have been carried over it, and goes on */
	if (e == NULL || e->ended || moment_is_undone(json_object_get(sb->doc, "undone"), event))
		return;
	if (type == EVENT_EXEC_FAILED) {
		telling_buried(sb->srv, CATALOGUE_EXECS, exec_row(e), NULL);
		exec_drop(e);
	} else if (type == EVENT_EXEC_ENDED && json_is_object(data)) {
		e->archived = true;
		exec_finish(e, data);
	}
}

static bool any_goes_on(const struct sandbox *sb)
{
	list_for_each (&sb->execs, node, next) {
		if (!list_entry(node, struct exec, node)->ended)
			return true;
	}
	return false;
}

/*
 * Ends that the journal has and the rows have not: the catalogue did not take them, or a power cut took them. They were told, and nobody knows better. The catalogue's head of the chain
 * leads past none of them (heads_write()), so what is behind it is all that has to be read.
 */
static void take_ends_told(struct sandbox *sb)
{
	struct journal *j = sb->srv->journal;
	uint64_t seq, last = journal_last_seq(j, sb->id), first = journal_first(j, sb->id);
	struct journal_head head;

	if (!any_goes_on(sb))
		return;
	(void)!server_chain_head(sb->srv, sb->id, &head, NULL); /* not known: all of it is read */
	for (seq = head.seq + 1 > first ? head.seq + 1 : first; seq != 0 && seq <= last; seq++) {
		cleanup_buf struct buf line = BUF_INIT(EVENT_BYTES_MAX);
		json_t *event;

		if (journal_read(j, sb->id, seq, &line) < 0 ||
			strstr(buf_cstr(&line), "\"exec.") == NULL)
			continue;
		event = json_loads(buf_cstr(&line), 0, NULL);
		take_told(sb, event);
		json_decref(event);
	}
}

static bool tell_one_again(struct exec *e)
{
	if (json_object_get(e->doc, "telling") == NULL)
		return false;
	telling_fill(e->doc, EVENT_EXEC_CREATED, created_data(e));
	return telling_again(e->sandbox->srv, e->doc);
}

void execs_tell_again(struct sandbox *sb)
{
	struct catalogue *c = sb->srv->catalogue;
	bool any = false;

	take_ends_told(sb);
	list_for_each (&sb->execs, node, next)
		any |= tell_one_again(list_entry(node, struct exec, node));
	if (!any || journal_flush(sb->srv->journal) < 0 || fault("exec.tell.flushed") < 0 ||
		catalogue_begin(c, false, NULL) < 0)
		return;
	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);

		if (telling_done(e->doc))
			(void)exec_save(e, NULL);
	}
	(void)!catalogue_commit(c, NULL); /* else the next start looks again */
}

/* No row is left to write to, and its sandbox's removal is told: only who waits for it hears of its own end. */
static void finish_removed(struct exec *e, const char *status, const char *reason)
{
	if (!e->ended) {
		(void)json_object_set_new(e->doc, "state", json_string("ended"));
		(void)json_object_set_new(e->doc, "status", unseen(status, reason));
	}
	e->ended = true;
	waiters_wake(&e->changed);
	exec_stdin_wake(e);
}

void execs_lost(struct sandbox *sb, const char *status, const char *reason)
{
	if (sb->state == SANDBOX_REMOVING) {
		list_for_each (&sb->execs, node, next)
			finish_removed(list_entry(node, struct exec, node), status, reason);
		return;
	}
	list_for_each (&sb->execs, node, next)
		finish_unseen(list_entry(node, struct exec, node), status, reason);
}

void execs_come_back(struct sandbox *sb, const json_t *docs)
{
	size_t i;
	json_t *doc;

	list_for_each (&sb->execs, node, next)
		list_entry(node, struct exec, node)->comes_back = false;
	json_array_foreach ((json_t *)(uintptr_t)docs, i, doc) {
		struct exec *e = exec_by_id(sb, json_string_value(json_object_get(doc, "id")));

		if (e != NULL)
			e->comes_back = !e->ended;
	}
}

json_t *execs_attended(struct sandbox *sb)
{
	json_t *channels = json_array();

	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);

		if ((e->clients > 0 || e->expected) && !e->ended)
			(void)json_array_append_new(channels, json_integer(e->channel));
		e->expected = false; /* once: who has gone would have it wait each time */
	}
	return channels;
}

void execs_came_back(struct sandbox *sb)
{
	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);

		if (!e->comes_back)
			continue;
		e->comes_back = false;
		finish_unseen(e, "killed", "the sandbox was stopped");
	}
	waiters_wake(&sb->changed);
}

void execs_forget(struct sandbox *sb)
{
	list_for_each (&sb->execs, node, next)
		exec_drop(list_entry(node, struct exec, node));
}

/* --- after a start of cayd --- */

struct exec *exec_loaded(struct sandbox *sb, json_t *doc)
{
	const char *state = json_string_value(json_object_get(doc, "state"));
	const char *id = json_string_value(json_object_get(doc, "id"));
	struct exec *e;

	if (state == NULL || id == NULL || !id_valid(id)) {
		json_decref(doc);
		return NULL;
	}
	e = exec_alloc();
	e->refs = 1;
	e->sandbox = sb;
	e->doc = doc;
	e->channel = (uint16_t)json_integer_value(json_object_get(doc, "channel"));
	e->ended = str_eq(state, "ended");
	e->archived = e->ended; /* until a keeper says that it still has it */
	e->started = true;
	waiters_init(&e->changed);
	(void)!str_copy(e->id, sizeof(e->id), id);
	return e;
}

static int load_one(void *ctx, const char *id, const char *text)
{
	json_t *doc = json_loads(text, 0, NULL);
	const char *owner = json_string_value(json_object_get(doc, "sandbox"));
	struct sandbox *sb = owner != NULL ? sandbox_by_id(ctx, owner) : NULL;
	struct exec *e;

	if (telling_is_buried(doc))
		telling_buried(ctx, CATALOGUE_EXECS, id, doc);
	if (sb == NULL || !id_valid(id)) {
		json_decref(doc);
		return 0;
	}
	e = exec_loaded(sb, doc);
	if (e == NULL)
		return 0;
	if (e->channel >= sb->next_channel)
		sb->next_channel = (uint16_t)(e->channel + 1);
	list_append(&sb->execs, &e->node);
	step_loaded(e);
	return 0;
}

int execs_load(struct server *srv, struct err *err)
{
	return catalogue_each(srv->catalogue, CATALOGUE_EXECS, load_one, srv, err);
}

void execs_adopt(struct sandbox *sb, const json_t *list)
{
	size_t i;
	json_t *row;

	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);

		e->started = false;
		e->unheard = !e->ended;
	}
	json_array_foreach (list, i, row) {
		const char *id = json_string_value(json_object_get(row, "exec"));
		const char *state = json_string_value(json_object_get(row, "state"));
		struct exec *e = NULL;

		if (id == NULL)
			id = json_string_value(json_object_get(row, "id"));
		if (id != NULL)
			e = exec_by_id(sb, id);
		if (e == NULL)
			continue;
		e->archived = false;
		if (state != NULL && str_eq(state, "starting"))
			continue; /* exec_has_started() or exec_was_refused() comes */
		e->unheard = false;
		exec_has_started(e, row);
		e->reaped = state != NULL && str_eq(state, "ended");
		if (!e->reaped)
			process_source_bind(sb->srv->processes, sb->id,
				(pid_t)json_integer_value(json_object_get(row, "pid")),
				e->ended ? NULL : e->id);
	}
}

static bool any_unheard(const struct sandbox *sb)
{
	list_for_each (&sb->execs, node, next) {
		if (list_entry(node, struct exec, node)->unheard)
			return true;
	}
	return false;
}

/* @held: by their ids. */
static void lose_unheard(struct sandbox *sb, const json_t *held)
{
	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);

		if (!e->unheard)
			continue;
		e->unheard = false;
		if (json_object_get(held, e->id) != NULL)
			continue;
		e->archived = true;
		/* it never came to be: the server died between the catalogue and the keeper */
		finish_unseen(e, "lost", "the keeper does not know it");
	}
}

/* What the last server had asked for has been begun by now, and what it was to hear has come: whom the keeper does not name then it can say nothing of. One that does not answer may do so later. */
static void unheard_main(void *arg)
{
	struct sandbox *sb = arg;
	struct keeper *k = sb->keeper;
	json_t *held = NULL;
	int rc;

	if (k != NULL) {
		k->refs++;
		rc = keeper_holds(k, 0, &held);
		if (rc == 0 && sb->keeper == k && sb->state != SANDBOX_REMOVING)
			lose_unheard(sb, held);
		json_decref(held);
		keeper_unref(k);
		waiters_wake(&sb->changed);
	}
	sandbox_unref(sb);
}

void execs_heard(struct sandbox *sb, uint64_t deadline_ns)
{
	while (any_unheard(sb) && sb->keeper != NULL && !sb->keeper->link.dead &&
		waiters_wait(&sb->changed, deadline_ns) == 0)
		;
}

void execs_settle(struct sandbox *sb, const json_t *list)
{
	size_t i;
	json_t *row;

	json_array_foreach (list, i, row) {
		const char *id = json_string_value(json_object_get(row, "exec"));
		struct exec *e = id != NULL ? exec_by_id(sb, id) : NULL;

		if (e != NULL && json_is_object(json_object_get(row, "status")))
			exec_has_ended(e, json_object_get(row, "status"));
	}
	if (any_unheard(sb))
		fiber_start(unheard_main, sandbox_ref(sb));
}
