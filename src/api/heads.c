/* SPDX-License-Identifier: Apache-2.0 */
#include "api/heads.h"
#include "api/telling.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "events/line.h"
#include "sys/boot.h"

#define WHOLE \
	"." /* row of the journal as a whole: its last event, and in which run of the machine that was */
#define LINE_BYTES_MAX (4U << 20)

struct heads {
	struct server *srv;
	int rc; /* of the first that was not taken */
};

static int put(struct server *srv, const char *id, const char *doc)
{
	return catalogue_put(srv->catalogue, CATALOGUE_HEADS, id, NULL, NULL, doc, false, NULL);
}

static void write_head(void *ctx, const char *sandbox, const struct journal_head *head)
{
	struct heads *h = ctx;
	char doc[160], digits[2 * LINE_HASH_SIZE + 1];

	line_hash_text(head->hash, digits);
	(void)snprintf(doc, sizeof(doc), "{\"seq\":%lu,\"hash\":\"%s\"}", head->seq, digits);
	if (h->rc == 0)
		h->rc = put(h->srv, sandbox[0] != '\0' ? sandbox : "-", doc);
}

static int write_whole(struct server *srv)
{
	cleanup_buf struct buf boot = BUF_INIT(4096);
	char doc[160];

	(void)snprintf(doc, sizeof(doc), "{\"n\":%lu,\"boot\":\"%.64s\"}",
		journal_written(srv->journal), boot_id(&boot));
	return put(srv, WHOLE, doc);
}

/* What they lead past is in the rows of execs: execs_tell_again(). */
void heads_write(struct server *srv)
{
	struct heads h = { .srv = srv };

	if (!srv->recovered)
		return;
	if (journal_flush(srv->journal) < 0 || catalogue_begin(srv->catalogue, false, NULL) < 0)
		return; /* a full disk, most of the time: it is tried again, here and below */
	h.rc = execs_save_again(srv);
	if (h.rc == 0)
		journal_dirty_heads(srv->journal, write_head, &h);
	if (h.rc == 0)
		h.rc = write_whole(srv);
	if (h.rc == 0)
		h.rc = telling_sweep(srv);
	if (h.rc < 0) {
		catalogue_abort(srv->catalogue);
	} else if (catalogue_commit(srv->catalogue, NULL) == 0) {
		journal_heads_written(srv->journal);
		execs_saved_again(srv);
		telling_swept(srv);
	}
}

/* --- after a start --- */

struct settling {
	struct server *srv;
	bool restarted; /* the machine, since the heads were written; or nobody can say */
	json_t *cut;    /* chains that end before their heads: id → head */
};

static int on_head(void *ctx, const char *id, const char *text)
{
	struct settling *s = ctx;
	json_t *head = json_loads(text, 0, NULL);
	json_int_t seq = json_integer_value(json_object_get(head, "seq"));

	if (seq > 0 && (uint64_t)seq > journal_last_seq(s->srv->journal, str_eq(id, "-") ? "" : id))
		(void)json_object_set(s->cut, id, head);
	json_decref(head);
	return 0;
}

/* A server that was killed before its catalogue knew it has told it already. */
static bool is_told(struct server *srv, const char *chain, const json_t *head)
{
	cleanup_buf struct buf line = BUF_INIT(LINE_BYTES_MAX);
	const char *hash = json_string_value(json_object_get(head, "hash"));

	return hash != NULL &&
	       journal_read(srv->journal, chain, journal_last_seq(srv->journal, chain), &line) ==
		       0 &&
	       line_has_type(line.p, line.n - 1, event_type_name(EVENT_EVENTS_CUT)) &&
	       strstr(buf_cstr(&line), hash) != NULL;
}

static void tell_cut(struct settling *s, const char *id, const json_t *head)
{
	const char *chain = str_eq(id, "-") ? "" : id;
	const struct sandbox *sb = sandbox_by_id(s->srv, chain);
	uint64_t last = journal_last_seq(s->srv->journal, chain);
	json_int_t seq = json_integer_value(json_object_get(head, "seq"));

	if (is_told(s->srv, chain, head))
		return;
	log_error("events", "%lu events of %s%s are missing at the end of the journal%s",
		(uint64_t)seq - last, chain[0] != '\0' ? "sandbox " : "the server's own", chain,
		s->restarted ? "" : ", which was cut while the machine went on");
	(void)journal_add(s->srv->journal,
		&(struct event){ .type = EVENT_EVENTS_CUT,
			.sandbox = chain[0] != '\0' ? chain : NULL,
			.epoch = sb != NULL ? sandbox_epoch(sb) : 0,
			.data = json_pack("{s:I,s:I,s:O,s:b}", "n", seq - (json_int_t)last, "seq",
				seq, "hash", json_object_get(head, "hash"), "restarted",
				(int)s->restarted) });
}

/* Their heads are what was told. Return: 0, or an error: the next heads that are written have them. */
static int write_cut(struct server *srv, json_t *cut)
{
	struct heads h = { .srv = srv };
	struct journal_head head;
	const char *id;
	json_t *unused;

	if (journal_flush(srv->journal) < 0 || fault("events.cut.flushed") < 0 ||
		catalogue_begin(srv->catalogue, false, NULL) < 0)
		return -EIO;
	json_object_foreach (cut, id, unused) {
		const char *chain = str_eq(id, "-") ? "" : id;

		if (journal_chain_last(srv->journal, chain, &head))
			write_head(&h, chain, &head);
	}
	if (h.rc == 0)
		h.rc = write_whole(srv);
	if (h.rc == 0)
		return catalogue_commit(srv->catalogue, NULL);
	catalogue_abort(srv->catalogue);
	return h.rc;
}

/* @whole: that row; NULL: a server that did not write it was the last one. */
static bool may_be_cut(const struct server *srv, const json_t *whole)
{
	return whole == NULL || json_integer_value(json_object_get(whole, "n")) >
					(json_int_t)journal_last(srv->journal);
}

void heads_settle(struct server *srv)
{
	cleanup_buf struct buf boot = BUF_INIT(4096);
	cleanup_free char *text = NULL;
	int rc = catalogue_get(srv->catalogue, CATALOGUE_HEADS, WHOLE, &text, NULL);
	json_t *whole = text != NULL ? json_loads(text, 0, NULL) : NULL, *head;
	const char *was = json_string_value(json_object_get(whole, "boot")), *id;
	struct settling s = { .srv = srv,
		.restarted = was == NULL || !str_eq(was, boot_id(&boot)),
		.cut = json_object() };

	if (rc == 0 && may_be_cut(srv, whole))
		rc = catalogue_each(srv->catalogue, CATALOGUE_HEADS, on_head, &s, NULL);
	json_object_foreach (s.cut, id, head)
		tell_cut(&s, id, head);
	if (rc == 0 && json_object_size(s.cut) > 0)
		rc = write_cut(srv, s.cut);
	if (rc < 0)
		log_warn("events", "the heads of the journal's chains cannot be read or written");
	json_decref(s.cut);
	json_decref(whole);
}
