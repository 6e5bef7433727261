/* SPDX-License-Identifier: Apache-2.0 */
#include "api/telling.h"
#include "base/clock.h"
#include "base/str.h"

#define LINE_BYTES_MAX (4U << 20)
#define LOOK_BACK_MAX  100000U /* events; a second of reading, once */

/* --- announcing --- */

static const char *chain_of(const char *sandbox)
{
	return sandbox != NULL ? sandbox : "";
}

void telling_announce(struct server *srv, json_t *doc, const struct telling *t)
{
	json_t *before = json_object_get(doc, "telling");
	json_t *all = before != NULL ? json_copy(before) : json_array(), *one;

	one = json_pack("{s:I,s:s,s:I,s:I,s:s*,s:s*,s:O*}", "after",
		(json_int_t)(t->after != 0 ? t->after
					   : journal_last_seq(srv->journal, chain_of(t->sandbox))),
		"type", event_type_name(t->type), "epoch", (json_int_t)t->epoch, "time_ns",
		(json_int_t)(t->time_ns != 0 ? t->time_ns : clock_wall_ns()), "sandbox", t->sandbox,
		"exec", t->exec, "data", t->data);
	(void)json_array_append_new(all, one);
	(void)json_object_set_new(doc, "telling", all);
}

/* --- after a start --- */

/* Neither there, or null, or both alike. */
static bool is_same(const json_t *a, const json_t *b, const char *member)
{
	const json_t *x = json_object_get(a, member), *y = json_object_get(b, member);

	return json_equal(x, y) ||
	       ((x == NULL || json_is_null(x)) && (y == NULL || json_is_null(y)));
}

static bool is_it(const json_t *event, const json_t *announced)
{
	static const char *const members[] = { "snapshot", "children", "name", "version", "image" };
	const json_t *told = json_object_get(event, "data"),
		     *data = json_object_get(announced, "data");

	if (!is_same(event, announced, "type") || !is_same(event, announced, "exec"))
		return false;
	if (json_is_null(told)) /* they were more than a line holds */
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		if (!is_same(told, data, members[i]))
			return false;
	}
	return true;
}

/* Its row went behind a flush of the journal, which took along all that was told of it before. Its events may be retired since, and its chain be one that nobody knows. */
static bool is_long_gone(struct server *srv, const char *sandbox)
{
	const json_t *one;
	size_t i;

	if (sandbox == NULL || sandbox_by_id(srv, sandbox) != NULL)
		return false;
	json_array_foreach (srv->buried, i, one) {
		if (str_eq(json_string_value(json_object_get(one, "id")), sandbox))
			return false;
	}
	return true;
}

/* Event @seq of @chain, or NULL. */
static json_t *event_at(struct server *srv, const char *chain, uint64_t seq)
{
	cleanup_buf struct buf line = BUF_INIT(LINE_BYTES_MAX);

	return journal_read(srv->journal, chain, seq, &line) < 0
		       ? NULL
		       : json_loads(buf_cstr(&line), 0, NULL);
}

/* Behind its announcement. Most of the time it is the first that is looked at. What was retired had been told, and so has, as far as anybody can say, what cannot be read. */
static bool is_behind(struct server *srv, const char *chain, const json_t *announced)
{
	uint64_t seq = (uint64_t)json_integer_value(json_object_get(announced, "after")) + 1,
		 last = journal_last_seq(srv->journal, chain);
	bool found = false;

	for (; seq <= last && !found; seq++) {
		json_t *event = event_at(srv, chain, seq);

		found = event == NULL || is_it(event, announced);
		json_decref(event);
	}
	return found;
}

/* The line alone tells that most are another. */
static bool is_there(struct server *srv, const char *chain, uint64_t seq, const char *when,
	const json_t *announced)
{
	cleanup_buf struct buf line = BUF_INIT(LINE_BYTES_MAX);
	json_t *event = NULL;
	const char *time;
	bool it;

	if (journal_read(srv->journal, chain, seq, &line) == 0 &&
		strstr(buf_cstr(&line), when) != NULL)
		event = json_loads(buf_cstr(&line), 0, NULL);
	time = json_string_value(json_object_get(event, "time"));
	it = time != NULL && str_eq(time, when) && is_it(event, announced);
	json_decref(event);
	return it;
}

/*
 * What was announced counted events that had not reached the disk. The next server began before them, told this one with the time that was announced, and was killed before the row said so, or the
 * catalogue did not take that (a full disk, where the head of the chain, which is written over, may have been taken all the same). So it is looked for as far back as what was lost can have been.
 */
static bool is_told_again(struct server *srv, const char *chain, const json_t *announced)
{
	uint64_t seq = (uint64_t)json_integer_value(json_object_get(announced, "after")),
		 last = journal_last_seq(srv->journal, chain),
		 first = journal_first(srv->journal, chain);
	char when[CLOCK_TEXT_SIZE];
	bool found = false;

	clock_text((uint64_t)json_integer_value(json_object_get(announced, "time_ns")), when);
	seq = seq < last ? seq : last;
	if (seq > LOOK_BACK_MAX && seq - LOOK_BACK_MAX > first)
		first = seq - LOOK_BACK_MAX;
	for (; seq >= first && seq > 0 && !found; seq--)
		found = is_there(srv, chain, seq, when, announced);
	return found;
}

static void tell_one(struct server *srv, const json_t *announced)
{
	const char *sandbox = json_string_value(json_object_get(announced, "sandbox")),
		   *chain = chain_of(sandbox);
	struct event e = { .type = event_type_parse(
				   json_string_value(json_object_get(announced, "type"))),
		.sandbox = sandbox,
		.epoch = (uint64_t)json_integer_value(json_object_get(announced, "epoch")),
		.time_ns = (uint64_t)json_integer_value(json_object_get(announced, "time_ns")),
		.exec = json_string_value(json_object_get(announced, "exec")) };

	if (e.type == EVENT_KEEPER || is_long_gone(srv, sandbox) ||
		is_behind(srv, chain, announced) || is_told_again(srv, chain, announced))
		return;
	e.data = json_incref(json_object_get(announced, "data"));
	(void)journal_add(srv->journal, &e);
}

bool telling_again(struct server *srv, const json_t *doc)
{
	const json_t *announced;
	size_t i;

	json_array_foreach (json_object_get(doc, "telling"), i, announced)
		tell_one(srv, announced);
	return i > 0;
}

bool telling_done(json_t *doc)
{
	return json_object_del(doc, "telling") == 0;
}

void telling_fill(json_t *doc, enum event_type type, json_t *data)
{
	json_t *announced;
	size_t i;

	json_array_foreach (json_object_get(doc, "telling"), i, announced) {
		if (json_object_get(announced, "data") == NULL &&
			event_type_parse(json_string_value(json_object_get(announced, "type"))) ==
				type)
			(void)json_object_set(announced, "data", data);
	}
	json_decref(data);
}

/* --- of what is removed --- */

int telling_bury(struct server *srv, enum catalogue_table table, const char *id,
	const struct telling *t, struct err *err)
{
	json_t *doc = json_pack("{s:b}", "removed", 1);
	cleanup_free char *text = NULL;

	telling_announce(srv, doc, t);
	text = json_dumps(doc, JSON_COMPACT);
	json_decref(doc);
	return catalogue_put(srv->catalogue, table, id, NULL, NULL, text, false, err);
}

void telling_buried(struct server *srv, enum catalogue_table table, const char *id, json_t *doc)
{
	(void)json_array_append_new(srv->buried,
		json_pack("{s:i,s:s,s:O*}", "table", (int)table, "id", id, "doc", doc));
}

bool telling_is_buried(const json_t *doc)
{
	return json_is_true(json_object_get(doc, "removed"));
}

void telling_settle(struct server *srv)
{
	const json_t *one;
	size_t i;

	json_array_foreach (srv->buried, i, one)
		(void)telling_again(srv, json_object_get(one, "doc"));
}

int telling_sweep(struct server *srv)
{
	const json_t *one;
	size_t i;
	int rc = 0;

	json_array_foreach (srv->buried, i, one)
		if (rc == 0)
			rc = catalogue_delete(srv->catalogue,
				(enum catalogue_table)json_integer_value(
					json_object_get(one, "table")),
				json_string_value(json_object_get(one, "id")), NULL);
	return rc;
}

void telling_swept(struct server *srv)
{
	(void)json_array_clear(srv->buried);
}
