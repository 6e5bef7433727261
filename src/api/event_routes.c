/* SPDX-License-Identifier: Apache-2.0 */
#include "api/past_sandboxes.h"
#include "api/server.h"
#include "api_handlers.h"
#include "base/str.h"
#include "events/line.h"

#define BATCH_BYTES  (256U << 10)
#define KEEPALIVE_NS (15 * NS_PER_S)

struct follower {
	struct api_call *call;
	const char *sandbox; /* NULL: all */
	uint64_t next;       /* seq or n */
	bool sse;
};

/* As many events as fit into a batch, or as can be read. Return: 0, or -errno when there is none. */
static int collect(struct follower *f, struct buf *out)
{
	cleanup_buf struct buf line = BUF_INIT(4U << 20);

	while (out->n < BATCH_BYTES) {
		int rc;

		buf_reset(&line);
		rc = journal_read(f->call->srv->journal, f->sandbox, f->next, &line);
		if (rc < 0)
			return rc == -ENOENT || out->n > 0 ? 0 : rc;
		if (f->sse)
			buf_fmt(out, "id: %lu\ndata: ", f->next);
		buf_add(out, line.p, line.n);
		if (f->sse)
			buf_char(out, '\n');
		f->next++;
	}
	return 0;
}

static bool accepts_sse(const struct http_conn *conn)
{
	struct httphead_text accept = httphead_get(http_head(conn), "Accept");

	return accept.n > 0 && memmem(accept.p, accept.n, "text/event-stream", 17) != NULL;
}

/* What the client has seen wins over what it asked for first. */
static int start_at(struct api_call *call, uint64_t *ret, struct err *err)
{
	struct httphead_text last = httphead_get(http_head(call->conn), "Last-Event-ID");
	cleanup_free char *text = str_dupf("%.*s", (int)last.n, last.n > 0 ? last.p : "");
	uint64_t seen;

	*ret = api_number(call, "from");
	if (last.n == 0)
		return 0;
	if (str_to_u64(text, 0, INT64_MAX, &seen) < 0)
		return err_member(err,
			err_raise(err, ERR_INVALID,
				"'Last-Event-ID' must be the number of an event, not '%.60s'",
				text),
			"Last-Event-ID");
	*ret = seen + 1;
	return 0;
}

/* Begin where the client said, else with the oldest that is kept. A cursor to what was retired is an error: what is missing there must not look like nothing. */
static int begin_at(struct follower *f, struct err *err)
{
	uint64_t first = journal_first(f->call->srv->journal, f->sandbox);

	if (start_at(f->call, &f->next, err) < 0)
		return -EINVAL;
	if (f->next == 0)
		f->next = first > 0 ? first : 1;
	if (f->next >= first)
		return 0;
	(void)err_raise(
		err, ERR_RETIRED, "event %lu is no longer kept: the oldest is %lu", f->next, first);
	return err_hint(err, -ESTALE, "begin there: --from %lu", first);
}

static int stream_events(struct follower *f, bool follow, struct err *err)
{
	struct http_conn *conn = f->call->conn;
	cleanup_buf struct buf out = BUF_INIT(8U << 20);
	uint64_t from = f->next;
	int rc = collect(f, &out);
	char first[64];

	if (rc < 0)
		return err_raise_sys(err, rc, "read the event log");
	(void)snprintf(first, sizeof(first), "Cay-Events-From: %lu\r\n", from);
	http_begin(conn, 200, f->sse ? "text/event-stream" : "application/x-ndjson", first);
	for (; rc == 0; rc = collect(f, &out)) {
		if (out.n > 0) {
			if (http_write(conn, out.p, out.n) < 0)
				return 0;
			buf_free(&out);
			continue;
		}
		if (!follow || f->call->srv->stopping) {
			http_end(conn);
			return 0;
		}
		if (stream_has_left(http_stream(conn)))
			return 0;
		if (waiters_wait(&f->call->srv->events_changed, clock_now_ns() + KEEPALIVE_NS) <
				0 &&
			f->sse && http_write(conn, ":\n\n", 3) < 0)
			return 0;
	}
	return 0; /* the connection breaks off: the client sees that it is not the end */
}

int api_event_list(struct api_call *call, struct err *err)
{
	struct follower f = { .call = call, .sse = accepts_sse(call->conn) };
	int rc = begin_at(&f, err);

	return rc < 0 ? rc : stream_events(&f, api_flag(call, "follow"), err);
}

/* A sandbox by any of its names, or one that is gone: its events stay. */
static int events_owner(struct api_call *call, char id[ID_LEN + 1], struct err *err)
{
	struct sandbox *sb = sandbox_look_up(call->srv, call->segments[0], err);

	if (sb == NULL)
		return err->code == ERR_NOT_FOUND
			       ? past_sandbox_find(call->srv, call->segments[0], id, err)
			       : -ENOENT;
	(void)!str_copy(id, ID_LEN + 1, sb->id);
	sandbox_unref(sb);
	return 0;
}

int api_sandbox_events(struct api_call *call, struct err *err)
{
	struct follower f = { .call = call, .sse = accepts_sse(call->conn) };
	char id[ID_LEN + 1];
	int rc = events_owner(call, id, err);

	if (rc < 0)
		return rc;
	f.sandbox = id;
	rc = begin_at(&f, err);
	return rc < 0 ? rc : stream_events(&f, api_flag(call, "follow"), err);
}

int server_chain_head(
	struct server *srv, const char *id, struct journal_head *head, struct err *err)
{
	cleanup_free char *text = NULL;
	int rc = catalogue_get(
		srv->catalogue, CATALOGUE_HEADS, id[0] != '\0' ? id : "-", &text, err);
	json_t *doc = text != NULL ? json_loads(text, 0, NULL) : NULL;
	const char *hash = json_string_value(json_object_get(doc, "hash"));
	bool ok = hash != NULL && line_hash_parse(hash, head->hash);

	head->seq = (uint64_t)json_integer_value(json_object_get(doc, "seq"));
	json_decref(doc);
	return rc < 0 ? rc : ok;
}

#define CHECK_STEP 50 /* events, before others may have their turn */

static int check_once(struct server *srv, const char *id, struct journal_check *c, struct err *err)
{
	struct journal_head head;
	int rc = server_chain_head(srv, id, &head, err);

	if (rc < 0)
		return rc;
	journal_check_begin(srv->journal, id, rc > 0 ? &head : NULL, c);
	while ((rc = journal_check_step(srv->journal, c, CHECK_STEP, err)) > 0)
		fiber_yield();
	return rc;
}

/* Check one chain to its end, once more where events of it were retired meanwhile: that is done about once a minute. Return: 0, or an error. Context: waits. */
static int check_chain(struct server *srv, const char *id, struct journal_check *c, struct err *err)
{
	int rc;

	fiber_yield(); /* chains are many, and most of them short */
	rc = check_once(srv, id, c, err);
	return rc < 0 && err->code == ERR_BUSY ? check_once(srv, id, c, err) : rc;
}

static json_t *bad_object(const struct journal_check *c)
{
	return c->reason[0] != '\0'
		       ? json_pack("{s:o,s:I,s:I,s:s}", "sandbox",
				 c->sandbox[0] != '\0' ? json_string(c->sandbox) : json_null(), "n",
				 (json_int_t)c->bad_n, "seq", (json_int_t)c->bad_seq, "reason",
				 c->reason)
		       : json_null();
}

static json_t *cut_object(const struct journal_check *c)
{
	return c->cut > 0 ? json_pack("{s:o,s:I,s:I}", "sandbox",
				    c->sandbox[0] != '\0' ? json_string(c->sandbox) : json_null(),
				    "seq", (json_int_t)c->cut_seq, "events", (json_int_t)c->cut)
			  : json_null();
}

static json_t *anchor_object(const struct journal_check *c)
{
	char digits[2 * sizeof(c->anchor.hash) + 1], when[CLOCK_TEXT_SIZE];

	if (!c->anchored)
		return json_null();
	line_hash_text(c->anchor.hash, digits);
	clock_text(c->anchor_time_ns, when);
	return json_pack(
		"{s:I,s:s,s:s}", "seq", (json_int_t)c->anchor.seq, "hash", digits, "retired", when);
}

int api_events_verify(struct api_call *call, struct err *err)
{
	char id[ID_LEN + 1], digits[2 * sizeof(((struct journal_head *)NULL)->hash) + 1];
	struct journal_check c;
	int rc = events_owner(call, id, err);

	if (rc == 0)
		rc = check_chain(call->srv, id, &c, err);
	if (rc < 0)
		return rc;
	line_hash_text(c.head.hash, digits);
	return api_reply(call, 200,
		json_pack("{s:b,s:I,s:s,s:o,s:o,s:o}", "ok", (int)(c.reason[0] == '\0'), "events",
			(json_int_t)c.events, "head", digits, "anchor", anchor_object(&c), "cut",
			cut_object(&c), "bad", bad_object(&c)));
}

static void note_chain(void *ctx, const char *sandbox)
{
	(void)json_object_set_new(ctx, sandbox, json_true());
}

/* The whole log: the instance's own chain, those of all sandboxes and of removed ones. */
int api_events_verify_all(struct api_call *call, struct err *err)
{
	json_t *chains = json_object(), *bad = json_array(), *cut = json_array(), *unused;
	json_int_t events = 0, anchored = 0;
	const char *id;
	int rc = 0;

	journal_each_chain(call->srv->journal, note_chain, chains);
	json_object_foreach (chains, id, unused) {
		struct journal_check c;

		rc = check_chain(call->srv, id, &c, err);
		if (rc < 0)
			break;
		events += (json_int_t)c.events;
		anchored += c.anchored;
		if (c.reason[0] != '\0')
			(void)json_array_append_new(bad, bad_object(&c));
		else if (c.cut > 0)
			(void)json_array_append_new(cut, cut_object(&c));
	}
	if (rc == 0)
		rc = api_reply(call, 200,
			json_pack("{s:b,s:I,s:I,s:I,s:I,s:O,s:O}", "ok", json_array_size(bad) == 0,
				"events", events, "chains", (json_int_t)json_object_size(chains),
				"anchored", anchored, "first_n",
				(json_int_t)journal_first(call->srv->journal, NULL), "cut", cut,
				"bad", bad));
	json_decref(chains);
	json_decref(cut);
	json_decref(bad);
	return rc;
}

/* --- how much is kept --- */

static json_t *keep_object(const struct journal *j)
{
	const struct journal_keep *keep = journal_keep(j);

	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "max_bytes", (json_int_t)keep->max_bytes,
		"max_age_s", (json_int_t)(keep->max_age_ns / NS_PER_S), "removed_age_s",
		(json_int_t)(keep->removed_age_ns / NS_PER_S), "segment_bytes",
		(json_int_t)keep->segment_bytes, "first_n", (json_int_t)journal_first(j, NULL),
		"last_n", (json_int_t)journal_last(j));
}

int api_retention_get(struct api_call *call, attr_unused struct err *err)
{
	return api_reply(call, 200, keep_object(call->srv->journal));
}

static uint64_t number_or(const json_t *body, const char *member, uint64_t otherwise)
{
	const json_t *v = json_object_get(body, member);

	return v != NULL ? (uint64_t)json_integer_value(v) : otherwise;
}

int api_retention_set(struct api_call *call, struct err *err)
{
	struct journal_keep keep = *journal_keep(call->srv->journal);
	int rc;

	keep.max_bytes = number_or(call->body, "max_bytes", keep.max_bytes);
	keep.max_age_ns = number_or(call->body, "max_age_s", keep.max_age_ns / NS_PER_S) * NS_PER_S;
	keep.removed_age_ns =
		number_or(call->body, "removed_age_s", keep.removed_age_ns / NS_PER_S) * NS_PER_S;
	keep.segment_bytes = number_or(call->body, "segment_bytes", keep.segment_bytes);
	rc = journal_keep_set(call->srv->journal, &keep);
	if (rc < 0)
		return err_raise_sys(err, rc, "keep the rules of the event log");
	server_retire_events(call->srv);
	return api_reply(call, 200, keep_object(call->srv->journal));
}
