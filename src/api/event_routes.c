/* SPDX-License-Identifier: Apache-2.0 */
#include "api/server.h"
#include "api_handlers.h"
#include "base/str.h"

#define BATCH_BYTES  (256U << 10)
#define KEEPALIVE_NS (15 * NS_PER_S)

struct follower {
	struct api_call *call;
	const char *sandbox; /* NULL: all */
	uint64_t next;       /* seq or n */
	bool sse;
};

/* As many events as fit into a batch. Return: 0 or -errno. */
static int collect(struct follower *f, struct buf *out)
{
	cleanup_buf struct buf line = BUF_INIT(4U << 20);

	while (out->n < BATCH_BYTES) {
		int rc;

		buf_reset(&line);
		rc = journal_read(f->call->srv->journal, f->sandbox, f->next, &line);
		if (rc == -ENOENT)
			return 0;
		if (rc < 0)
			return rc;
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

static uint64_t start_at(struct api_call *call)
{
	struct httphead_text last = httphead_get(http_head(call->conn), "Last-Event-ID");
	uint64_t from = api_number(call, "from"), seen;
	char text[24];

	if (last.n > 0 && last.n < sizeof(text)) {
		memcpy(text, last.p, last.n);
		text[last.n] = '\0';
		if (str_to_u64(text, 0, INT64_MAX, &seen) == 0)
			from = seen + 1;
	}
	return from > 0 ? from : 1;
}

static int stream_events(struct follower *f, bool follow)
{
	struct http_conn *conn = f->call->conn;

	http_begin(conn, 200, f->sse ? "text/event-stream" : "application/x-ndjson", NULL);
	for (;;) {
		cleanup_buf struct buf out = BUF_INIT(8U << 20);

		if (collect(f, &out) < 0)
			return 0; /* the connection breaks off: the client sees that it is not the end */
		if (out.n > 0) {
			if (http_write(conn, out.p, out.n) < 0)
				return 0;
			continue;
		}
		if (!follow || f->call->srv->stopping)
			break;
		if (http_stream(conn)->eof)
			return 0;
		if (waiters_wait(&f->call->srv->events_changed, clock_now_ns() + KEEPALIVE_NS) <
				0 &&
			f->sse && http_write(conn, ":\n\n", 3) < 0)
			return 0;
	}
	http_end(conn);
	return 0;
}

int api_event_list(struct api_call *call, attr_unused struct err *err)
{
	struct follower f = {
		.call = call, .next = start_at(call), .sse = accepts_sse(call->conn)
	};

	return stream_events(&f, api_flag(call, "follow"));
}

/* A sandbox by any of its names, or the whole id of one that is gone: its events stay. */
static int events_owner(struct api_call *call, char id[ID_LEN + 1], struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);

	if (sb == NULL) {
		if (err->code != ERR_NOT_FOUND || !id_valid(call->segments[0]) ||
			journal_last_seq(call->srv->journal, call->segments[0]) == 0)
			return -ENOENT;
		return str_copy(id, ID_LEN + 1, call->segments[0]);
	}
	(void)!str_copy(id, ID_LEN + 1, sb->id);
	sandbox_unref(sb);
	return 0;
}

int api_sandbox_events(struct api_call *call, struct err *err)
{
	struct follower f = {
		.call = call, .next = start_at(call), .sse = accepts_sse(call->conn)
	};
	char id[ID_LEN + 1];
	int rc = events_owner(call, id, err);

	if (rc < 0)
		return rc;
	f.sandbox = id;
	return stream_events(&f, api_flag(call, "follow"));
}

static bool read_head(struct server *srv, const char *id, struct journal_head *head)
{
	cleanup_free char *text = catalogue_get(srv->catalogue, CATALOGUE_HEADS, id);
	json_t *doc = text != NULL ? json_loads(text, 0, NULL) : NULL;
	const char *hash = json_string_value(json_object_get(doc, "hash"));
	bool ok = hash != NULL && strlen(hash) == 64;

	head->seq = (uint64_t)json_integer_value(json_object_get(doc, "seq"));
	for (size_t i = 0; ok && i < 32; i++) {
		unsigned int byte;

		ok = sscanf(hash + 2 * i, "%2x", &byte) == 1;
		head->hash[i] = (unsigned char)byte;
	}
	json_decref(doc);
	return ok;
}

int api_events_verify(struct api_call *call, struct err *err)
{
	struct journal_head head;
	struct journal_check check;
	char id[ID_LEN + 1], digits[65] = "";
	int rc = events_owner(call, id, err);
	json_t *bad;
	bool known;

	if (rc < 0)
		return rc;
	known = read_head(call->srv, id, &head);
	rc = journal_verify(call->srv->journal, id, known ? &head : NULL, &check, err);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < 32; i++)
		(void)snprintf(digits + 2 * i, 3, "%02x", check.head.hash[i]);
	bad = check.reason[0] != '\0'
		      ? json_pack("{s:I,s:I,s:s}", "n", (json_int_t)check.bad_n, "seq",
				(json_int_t)check.bad_seq, "reason", check.reason)
		      : json_null();
	return api_reply(call, 200,
		json_pack("{s:b,s:I,s:s,s:o}", "ok", (int)(check.reason[0] == '\0'), "events",
			(json_int_t)check.events, "head", digits, "bad", bad));
}
