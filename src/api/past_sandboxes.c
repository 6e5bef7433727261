/* SPDX-License-Identifier: Apache-2.0 */
#include "api/past_sandboxes.h"
#include "base/str.h"
#include "events/line.h"

#define LINE_BYTES_MAX (4U << 20)
#define LAST_EVENTS    64 /* behind sandbox.removed come ends of its processes */
#define TOLD_MAX       3  /* ids that an ambiguous name is told with */

struct search {
	struct server *srv;
	const char *what;
	json_t *chains; /* ids of removed sandboxes */
	json_t *found;  /* those that are meant: id → when it began (or ended), or null */
};

static void note_chain(void *ctx, const char *id)
{
	struct search *s = ctx;

	if (id[0] != '\0' && sandbox_by_id(s->srv, id) == NULL)
		(void)json_object_set_new(s->chains, id, json_true());
}

/* Event @seq of sandbox @id, if it is of @type; else, and when it is not there, NULL. A new reference. */
static json_t *read_event(struct server *srv, const char *id, uint64_t seq, enum event_type type)
{
	cleanup_buf struct buf line = BUF_INIT(LINE_BYTES_MAX);

	if (journal_read(srv->journal, id, seq, &line) < 0 ||
		!line_has_type(line.p, line.n - 1, event_type_name(type)))
		return NULL;
	return json_loadb(line.p, line.n, 0, NULL);
}

/* An event of sandbox @id that has its name: of its beginning, or, where that was retired, of its end. A new reference; NULL when neither is there. */
static json_t *read_named(struct server *srv, const char *id)
{
	uint64_t last = journal_last_seq(srv->journal, id);
	json_t *e = read_event(srv, id, 1, EVENT_SANDBOX_CREATED);

	for (uint64_t seq = last; e == NULL && seq > 0 && last - seq < LAST_EVENTS; seq--)
		e = read_event(srv, id, seq, EVENT_SANDBOX_REMOVED);
	return e;
}

static void look_at(struct search *s, const char *id)
{
	json_t *e = read_named(s->srv, id);
	const char *name = json_string_value(json_object_get(json_object_get(e, "data"), "name"));

	if (name != NULL && str_eq(name, s->what))
		(void)json_object_set(s->found, id, json_object_get(e, "time"));
	json_decref(e);
}

static void find_names(struct search *s)
{
	const char *id;
	json_t *unused;

	json_object_foreach (s->chains, id, unused) {
		look_at(s, id);
		fiber_yield();
	}
}

static void find_ids(struct search *s)
{
	const char *id;
	json_t *unused;

	json_object_foreach (s->chains, id, unused) {
		if (id_begins(id, s->what))
			(void)json_object_set_new(s->found, id, json_null());
	}
}

/* The latest of several of one name come first. */
static const char *take_latest(json_t *found)
{
	const char *id, *best = NULL, *best_time = "";
	json_t *time;

	json_object_foreach (found, id, time) {
		const char *text = json_is_string(time) ? json_string_value(time) : "";

		if (best == NULL || strcmp(text, best_time) > 0) {
			best = id;
			best_time = text;
		}
	}
	return best;
}

static int refuse_several(struct search *s, struct err *err)
{
	cleanup_buf struct buf ids = BUF_INIT(1024);
	size_t n = json_object_size(s->found);

	for (size_t i = 0; i < TOLD_MAX && json_object_size(s->found) > 0; i++) {
		const char *id = take_latest(s->found);
		const char *time = json_string_value(json_object_get(s->found, id));

		buf_fmt(&ids, "%s%s", i > 0 ? ", " : "", id);
		if (time != NULL)
			buf_fmt(&ids, " (%.19s)", time);
		(void)json_object_del(s->found, id);
	}
	return err_hint(err,
		err_raise(err, ERR_AMBIGUOUS, "'%s' is %zu removed sandboxes", s->what, n),
		"take the id: %s%s", buf_cstr(&ids), n > TOLD_MAX ? ", …" : "");
}

int past_sandbox_find(struct server *srv, const char *what, char id[ID_LEN + 1], struct err *err)
{
	struct search s = {
		.srv = srv, .what = what, .chains = json_object(), .found = json_object()
	};
	int rc;

	journal_each_chain(srv->journal, note_chain, &s);
	if (json_object_get(s.chains, what) != NULL) {
		(void)json_object_set_new(s.found, what, json_null());
	} else {
		find_names(&s);
		if (json_object_size(s.found) == 0)
			find_ids(&s);
	}
	if (json_object_size(s.found) == 1)
		rc = str_copy(id, ID_LEN + 1, take_latest(s.found));
	else if (json_object_size(s.found) == 0)
		rc = err_raise(err, ERR_NOT_FOUND, "no sandbox '%s'", what);
	else
		rc = refuse_several(&s, err);
	json_decref(s.chains);
	json_decref(s.found);
	return rc < 0 ? -ENOENT : 0;
}
