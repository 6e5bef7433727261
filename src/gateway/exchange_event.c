/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/str.h"
#include "codec/base64.h"
#include "gateway/body.h"
#include "gateway/exchange.h"

#define PLAIN_MAX (PROXY_CAPTURE_MAX * 2) /* of a body in an event, decoded */

static json_t *text_json(const char *p, size_t n)
{
	json_t *value = n > 0 ? json_stringn(p, n) : json_string("");
	char *copy;

	if (value != NULL)
		return value;
	copy = xalloc(n + 1); /* not UTF-8: every byte as the character of that number */
	memcpy(copy, p, n);
	for (size_t i = 0; i < n; i++)
		copy[i] = (unsigned char)copy[i] < 0x80 ? copy[i] : '?';
	value = json_stringn(copy, n);
	free(copy);
	return value;
}

static json_t *fields_json(const struct head *h)
{
	json_t *list = json_array();

	for (size_t i = 0; i < h->n_fields; i++) {
		json_t *pair = json_array();

		(void)json_array_append_new(
			pair, text_json(h->fields[i].name.p, h->fields[i].name.n));
		(void)json_array_append_new(
			pair, text_json(h->fields[i].value.p, h->fields[i].value.n));
		(void)json_array_append_new(list, pair);
	}
	return list;
}

/* The beginning of a body as text where it is text, decoded where its coding is known. */
static void add_body(json_t *side, const struct head *h, const struct capture *c)
{
	struct buf plain = BUF_INIT(PLAIN_MAX);
	struct policy_text coding = head_field(h, "content-encoding");
	const struct buf *bytes = &c->bytes;

	if (bytes->n == 0)
		return;
	if (coding.n > 0) {
		int rc = body_decode(coding, bytes->p, bytes->n, true, &plain);

		(void)json_object_set_new(
			side, "decoded", json_boolean(rc == 0 || rc == -EMSGSIZE));
		if (rc == 0 || rc == -EMSGSIZE)
			bytes = &plain;
	}
	if (str_text_valid(bytes->p, bytes->n)) {
		(void)json_object_set_new(
			side, "body", json_stringn_nocheck(buf_cstr(bytes), bytes->n));
	} else {
		cleanup_free char *text = base64_encode(buf_cstr(bytes), bytes->n);

		(void)json_object_set_new(side, "body_base64", json_string(text));
	}
	if (c->cut)
		(void)json_object_set_new(side, "body_cut", json_true());
	buf_free(&plain);
}

static json_t *side_json(const struct head *h, const struct capture *c, uint64_t bytes)
{
	json_t *side = json_object();

	(void)json_object_set_new(side, "headers", fields_json(h));
	(void)json_object_set_new(side, "bytes", json_integer((json_int_t)bytes));
	add_body(side, h, c);
	return side;
}

static void add_timing(json_t *data, const struct exchange *x)
{
	static const char *const names[EXCHANGE_PHASES] = { NULL, "decided_us", "connected_us",
		"sent_us", "answered_us", "ended_us" };
	json_t *timing = json_object();
	char began[CLOCK_TEXT_SIZE];

	clock_text(x->began_wall_ns, began);
	(void)json_object_set_new(data, "began", json_string(began));
	for (size_t i = 1; i < EXCHANGE_PHASES; i++) {
		if (x->at[i] != 0)
			(void)json_object_set_new(timing, names[i],
				json_integer(
					(json_int_t)((x->at[i] - x->at[EXCHANGE_BEGAN]) / 1000)));
	}
	(void)json_object_set_new(data, "timing", timing);
}

static void add_verdict(json_t *data, const struct exchange *x)
{
	(void)json_object_set_new(data, "outcome", json_string(x->outcome));
	if (x->at[EXCHANGE_DECIDED] != 0) {
		(void)json_object_set_new(
			data, "action", json_string(policy_action_name(x->verdict.action)));
		(void)json_object_set_new(
			data, "rule", x->rule != NULL ? json_string(x->rule->name) : json_null());
	}
	if (x->reason[0] != '\0')
		(void)json_object_set_new(data, "reason", text_json(x->reason, strlen(x->reason)));
}

static void add_target(json_t *data, const struct exchange *x)
{
	const struct head *rq = &x->request;
	struct policy_text path = x->path.n > 0 ? x->path : rq->path;

	(void)json_object_set_new(data, "method", text_json(rq->method.p, rq->method.n));
	(void)json_object_set_new(data, "scheme", json_string(x->conn->tls ? "https" : "http"));
	(void)json_object_set_new(data, "host",
		x->host.host[0] != '\0' ? json_string(x->host.host)
					: text_json(rq->authority.p, rq->authority.n));
	(void)json_object_set_new(data, "port", json_integer(x->conn->port));
	(void)json_object_set_new(data, "path", text_json(path.p, path.n));
	if (rq->has_query)
		(void)json_object_set_new(data, "query", text_json(rq->query.p, rq->query.n));
	(void)json_object_set_new(
		data, "protocol", json_string(x->front->version == 2 ? "h2" : "http/1.1"));
}

static void add_upstream(json_t *data, const struct exchange *x)
{
	json_t *up;

	if (x->upstream[0] == '\0')
		return;
	up = json_pack("{s:s, s:b, s:s}", "address", x->upstream, "reused", x->reused, "protocol",
		x->back_version == 2 ? "h2" : "http/1.1");
	(void)json_object_set_new(data, "upstream", up);
}

static void add_websocket(json_t *data, const struct exchange *x)
{
	if (!x->answer.websocket)
		return;
	(void)json_object_set_new(data, "websocket",
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "sent_messages",
			(json_int_t)x->ws_messages[0], "sent_frames", (json_int_t)x->ws_frames[0],
			"sent_bytes", (json_int_t)x->ws_bytes[0], "received_messages",
			(json_int_t)x->ws_messages[1], "received_frames",
			(json_int_t)x->ws_frames[1], "received_bytes", (json_int_t)x->ws_bytes[1]));
}

void exchange_tell(struct exchange *x)
{
	json_t *data = json_object();

	(void)json_object_set_new(data, "exchange", json_integer((json_int_t)x->number));
	(void)json_object_set_new(data, "connection", json_integer((json_int_t)x->conn->number));
	add_target(data, x);
	add_verdict(data, x);
	if (x->answered)
		(void)json_object_set_new(data, "status", json_integer(x->answer.status));
	(void)json_object_set_new(
		data, "request", side_json(&x->request, &x->sent, x->front->received));
	if (x->answered)
		(void)json_object_set_new(
			data, "response", side_json(&x->answer, &x->came, x->front->sent));
	add_upstream(data, x);
	add_websocket(data, x);
	add_timing(data, x);
	data = secrets_scrub_json(x->secrets, data);
	x->proxy->hooks.event(x->proxy->hooks.ctx, x->conn, "net.exchange", data);
}
