/* SPDX-License-Identifier: Apache-2.0 */
#include "api/keys.h"
#include "api/server.h"
#include "base/ablate.h"
#include "base/clock.h"
#include "base/str.h"

#include <openssl/sha.h>

#define KEY_MAX     255
#define KEY_LIFE_NS (24ULL * 3600 * NS_PER_S)
#define SWEEP_EVERY 16  /* rows that are written */
#define SWEPT       64  /* that are deleted then, at most */
#define LOOKED_AT   256 /* of the oldest */

/* When it was used; NULL: its row is damaged. */
static const json_t *used(const json_t *doc)
{
	const json_t *time = json_object_get(doc, "time");

	return json_is_integer(time) ? time : NULL;
}

/* Not one of the future: the clock was set back. */
static bool is_over(const json_t *doc)
{
	uint64_t now = clock_wall_ns(), then = (uint64_t)json_integer_value(used(doc));

	return used(doc) != NULL && now > then && now - then > KEY_LIFE_NS;
}

bool keys_counts(const json_t *doc)
{
	const char *created = json_string_value(json_object_get(doc, "created"));
	char since[CLOCK_TEXT_SIZE];

	clock_text(clock_wall_ns() - KEY_LIFE_NS, since);
	return created == NULL || strcmp(created, since) >= 0;
}

/* --- what nobody can use any more --- */

struct sweep {
	char *ids[SWEPT];
	size_t n, seen;
};

/* Of a damaged row nobody knows how old it is. */
static int look(void *ctx, const char *id, const char *doc)
{
	struct sweep *s = ctx;
	json_t *row = json_loads(doc, 0, NULL);
	bool over = is_over(row), young = !over && used(row) != NULL;

	json_decref(row);
	if (over)
		s->ids[s->n++] = str_dup(id);
	return young || s->n == SWEPT || ++s->seen == LOOKED_AT ? -ECANCELED : 0;
}

/* The oldest come first: a key that is used again gets a new row. What fails is tried again with the next key. */
static void sweep(struct catalogue *c)
{
	struct sweep s = { 0 };

	(void)!catalogue_each(c, CATALOGUE_KEYS, look, &s, NULL);
	for (size_t i = 0; i < s.n; i++) {
		(void)!catalogue_delete(c, CATALOGUE_KEYS, s.ids[i], NULL);
		free(s.ids[i]);
	}
}

/* --- keys --- */

/* @doc: stolen. */
static int write_row(struct api_call *call, json_t *doc, struct err *err)
{
	cleanup_free char *text = NULL;

	(void)json_object_set_new(doc, "hash", json_string(call->key_hash));
	(void)json_object_set_new(doc, "time", json_integer((json_int_t)clock_wall_ns()));
	text = json_dumps(doc, JSON_COMPACT);
	json_decref(doc);
	return catalogue_put(
		call->srv->catalogue, CATALOGUE_KEYS, call->key, NULL, NULL, text, false, err);
}

int keys_note(struct api_call *call, json_t *made, struct err *err)
{
	if (call != NULL && call->key != NULL)
		return write_row(call, json_pack("{s:o}", "made", made), err);
	json_decref(made);
	return 0;
}

const json_t *keys_begun(const struct api_call *call, const struct sandbox *sb)
{
	const char *id = json_string_value(json_object_get(call->made, "sandbox"));

	return id != NULL && str_eq(id, sb->id) ? call->made : NULL;
}

int keys_answer(struct api_call *call, int status, const char *text, struct err *err)
{
	int rc;

	if (call->key == NULL)
		return 0;
	rc = write_row(call, json_pack("{s:i,s:s}", "status", status, "body", text), err);
	call->remembered = rc == 0;
	return rc;
}

void keys_store(struct api_call *call, int status, const char *text)
{
	if (!call->remembered)
		(void)!keys_answer(call, status, text, NULL);
	if (call->srv->keys_stored++ % SWEEP_EVERY == 0)
		sweep(call->srv->catalogue);
}

static int key_hash(struct api_call *call, struct httphead_text key, struct err *err)
{
	cleanup_free char *body = json_dumps(call->body, JSON_COMPACT | JSON_SORT_KEYS);
	cleanup_buf struct buf all = BUF_INIT(4U << 20);
	unsigned char digest[SHA256_DIGEST_LENGTH];

	if (key.n == 0 || key.n > KEY_MAX || !str_utf8_valid(key.p, key.n))
		return err_member(err,
			err_raise(err, ERR_INVALID, "'Idempotency-Key' must have 1 to %d bytes",
				KEY_MAX),
			"Idempotency-Key");
	buf_fmt(&all, "%s\n%.*s\n%s", call->route->operation, (int)http_head(call->conn)->path.n,
		http_head(call->conn)->path.p, body);
	(void)SHA256((const unsigned char *)all.p, all.n, digest);
	str_hex(call->key_hash, digest, sizeof(digest));
	/* keys of different users do not meet */
	call->key = str_dupf("%u:%.*s", http_peer_uid(call->conn), (int)key.n, key.p);
	return 0;
}

/* Nobody knows what was answered, nor when: the key is free again as long after this as if it had been used now. */
static int refuse_damaged(struct api_call *call, const json_t *doc, struct err *err)
{
	if (used(doc) == NULL) {
		json_t *mark =
			json_pack("{s:b,s:I}", "damaged", 1, "time", (json_int_t)clock_wall_ns());
		cleanup_free char *text = json_dumps(mark, JSON_COMPACT);

		json_decref(mark);
		(void)!catalogue_put(call->srv->catalogue, CATALOGUE_KEYS, call->key, NULL, NULL,
			text, false, NULL);
	}
	return err_hint(err,
		err_raise(err, ERR_INTERNAL, "the row of the idempotency key is damaged"),
		"see whether it was done, and use another key: this one is free again a day after its damage was found");
}

/* Return: 1 when the first answer was given again, 0 to go on, -errno. What was done without an answer is in @call->made then. */
static int key_replay(struct api_call *call, struct err *err)
{
	cleanup_free char *text = NULL;
	int rc = catalogue_get(call->srv->catalogue, CATALOGUE_KEYS, call->key, &text, err);
	json_t *doc = text != NULL ? json_loads(text, 0, NULL) : NULL;
	const char *hash = json_string_value(json_object_get(doc, "hash"));
	const char *body = json_string_value(json_object_get(doc, "body"));
	bool over = is_over(doc);

	if (text != NULL && !over && (hash == NULL || used(doc) == NULL))
		rc = refuse_damaged(call, doc, err);
	if (rc < 0) {
		err_context(err,
			"nothing was done, since nobody knows whether the idempotency key was used before");
		json_decref(doc);
		return rc;
	}
	if (text == NULL || over) {
		json_decref(doc);
		return over ? catalogue_delete(call->srv->catalogue, CATALOGUE_KEYS, call->key, err)
			    : 0;
	}
	if (!str_eq(hash, call->key_hash) && !ablated("idempotency_hash")) {
		rc = err_raise(
			err, ERR_IDEMPOTENCY, "the idempotency key was used with another request");
	} else if (body == NULL && json_object_get(doc, "made") != NULL) {
		call->made = json_incref(json_object_get(doc, "made"));
		rc = 0;
	} else {
		http_reply(call->conn, (int)json_integer_value(json_object_get(doc, "status")),
			"application/json", "Idempotency-Replayed: true\r\n", body,
			body != NULL ? strlen(body) : 0);
		rc = 1;
	}
	json_decref(doc);
	return rc;
}

int keys_begin(struct api_call *call, struct err *err)
{
	const struct httphead *h = http_head(call->conn);
	struct httphead_text key = httphead_get(h, "Idempotency-Key");
	int rc;

	if (key.p == NULL || !call->route->keyed)
		return 0;
	if (httphead_count(h, "Idempotency-Key") > 1)
		return err_member(err,
			err_raise(err, ERR_INVALID, "'Idempotency-Key' is there twice"),
			"Idempotency-Key");
	rc = key_hash(call, key, err);
	if (rc < 0)
		return rc;
	while (json_object_get(call->srv->keys_busy, call->key) != NULL)
		(void)waiters_wait(&call->srv->keys_changed, 0);
	rc = key_replay(call, err);
	if (rc == 0)
		(void)json_object_set_new(call->srv->keys_busy, call->key, json_true());
	else
		free(TAKE_PTR(call->key));
	return rc;
}

void keys_end(struct api_call *call)
{
	if (call->key == NULL)
		return;
	(void)json_object_del(call->srv->keys_busy, call->key);
	waiters_wake(&call->srv->keys_changed);
}
