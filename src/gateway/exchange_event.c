/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exchange as JSON text, written as it stands: every request makes one. It is bounded by what it is made of: heads of HTTPHEAD_BYTES_MAX, of each body
 * BODY_TEXT_MAX characters; so it fits into PROXY_EVENT_MAX.
 */
#include "base/clock.h"
#include "base/str.h"
#include "codec/base64.h"
#include "codec/jsontext.h"
#include "gateway/body.h"
#include "gateway/exchange.h"

#define PLAIN_MAX (PROXY_CAPTURE_MAX * 2) /* of a body in an event, decoded */
#define BODY_TEXT_MAX \
	(PLAIN_MAX * 2) /* with escapes; what would be longer as text is told in base64 */

/* What is not UTF-8 is shown with a question mark for every byte that is not ASCII. */
static void add_text(struct buf *b, const char *key, struct policy_text text)
{
	cleanup_free char *copy = NULL;

	if (key != NULL)
		jsontext_key(b, key);
	if (text.n == 0 || str_utf8_valid(text.p, text.n)) {
		jsontext_string(b, text.p, text.n);
		return;
	}
	copy = xalloc(text.n);
	for (size_t i = 0; i < text.n; i++)
		copy[i] = (unsigned char)text.p[i] < 0x80 ? text.p[i] : '?';
	jsontext_string(b, copy, text.n);
}

static void add_fields(struct buf *b, const struct head *h)
{
	jsontext_key(b, "headers");
	jsontext_open(b, '[');
	for (size_t i = 0; i < h->n_fields; i++) {
		jsontext_open(b, '[');
		add_text(b, NULL, h->fields[i].name);
		add_text(b, NULL, h->fields[i].value);
		jsontext_close(b, ']');
	}
	jsontext_close(b, ']');
}

/* Appends the body as text where it is text, and not much longer for its escapes. */
static bool add_plain_body(struct buf *b, const struct buf *bytes)
{
	struct buf text = BUF_INIT(BODY_TEXT_MAX);
	bool fits;

	if (!str_text_valid(bytes->p, bytes->n))
		return false;
	jsontext_string(&text, bytes->p, bytes->n);
	fits = !buf_failed(&text);
	if (fits) {
		jsontext_key(b, "body");
		buf_add(b, text.p, text.n);
	}
	buf_free(&text);
	return fits;
}

/* The beginning of a body, decoded where its coding is known. */
static void add_body(struct buf *b, const struct head *h, const struct capture *c)
{
	struct buf plain = BUF_INIT(PLAIN_MAX);
	struct policy_text coding = head_field(h, "content-encoding");
	const struct buf *bytes = &c->bytes;

	if (bytes->n == 0)
		return;
	if (coding.n > 0) {
		int rc = body_decode(coding, bytes->p, bytes->n, true, &plain);

		jsontext_member_bool(b, "decoded", rc == 0 || rc == -EMSGSIZE);
		if (rc == 0 || rc == -EMSGSIZE)
			bytes = &plain;
	}
	if (!add_plain_body(b, bytes)) {
		cleanup_free char *text = base64_encode(buf_cstr(bytes), bytes->n);

		jsontext_member_string(b, "body_base64", text);
	}
	if (c->cut)
		jsontext_member_bool(b, "body_cut", true);
	buf_free(&plain);
}

static void add_side(struct buf *b, const char *key, const struct head *h, const struct capture *c,
	uint64_t bytes)
{
	jsontext_key(b, key);
	jsontext_open(b, '{');
	add_fields(b, h);
	jsontext_member_integer(b, "bytes", (int64_t)bytes);
	add_body(b, h, c);
	jsontext_close(b, '}');
}

static void add_timing(struct buf *b, const struct exchange *x)
{
	static const char *const names[EXCHANGE_PHASES] = { NULL, "decided_us", "connected_us",
		"sent_us", "answered_us", "ended_us" };
	char began[CLOCK_TEXT_SIZE];

	clock_text(x->began_wall_ns, began);
	jsontext_member_string(b, "began", began);
	jsontext_key(b, "timing");
	jsontext_open(b, '{');
	for (size_t i = 1; i < EXCHANGE_PHASES; i++) {
		if (x->at[i] != 0)
			jsontext_member_integer(
				b, names[i], (int64_t)((x->at[i] - x->at[EXCHANGE_BEGAN]) / 1000));
	}
	jsontext_close(b, '}');
}

static void add_verdict(struct buf *b, const struct exchange *x)
{
	jsontext_member_string(b, "outcome", x->outcome);
	if (x->at[EXCHANGE_DECIDED] != 0) {
		jsontext_member_string(b, "action", policy_action_name(x->verdict.action));
		if (x->rule != NULL) {
			jsontext_member_string(b, "rule", x->rule->name);
		} else {
			jsontext_key(b, "rule");
			jsontext_word(b, "null");
		}
	}
	if (x->reason[0] != '\0')
		add_text(b, "reason", text_of(x->reason));
	if (x->uncounted)
		jsontext_member_bool(b, "uncounted", true);
}

static void add_target(struct buf *b, const struct exchange *x)
{
	const struct head *rq = &x->request;

	add_text(b, "method", rq->method);
	jsontext_member_string(b, "scheme", x->conn->tls ? "https" : "http");
	add_text(b, "host", x->host.host[0] != '\0' ? text_of(x->host.host) : rq->authority);
	jsontext_member_integer(b, "port", x->conn->port);
	add_text(b, "path", x->path.n > 0 ? x->path : rq->path);
	if (rq->has_query)
		add_text(b, "query", rq->query);
	jsontext_member_string(b, "protocol", x->front->version == 2 ? "h2" : "http/1.1");
}

static void add_upstream(struct buf *b, const struct exchange *x)
{
	if (x->upstream[0] == '\0')
		return;
	jsontext_key(b, "upstream");
	jsontext_open(b, '{');
	jsontext_member_string(b, "address", x->upstream);
	jsontext_member_bool(b, "reused", x->reused);
	if (x->repeated)
		jsontext_member_bool(b, "repeated", true);
	jsontext_member_string(b, "protocol", x->back_version == 2 ? "h2" : "http/1.1");
	jsontext_close(b, '}');
}

static void add_websocket(struct buf *b, const struct exchange *x)
{
	if (!x->answer.websocket)
		return;
	jsontext_key(b, "websocket");
	jsontext_open(b, '{');
	jsontext_member_integer(b, "sent_messages", (int64_t)x->ws_messages[0]);
	jsontext_member_integer(b, "sent_frames", (int64_t)x->ws_frames[0]);
	jsontext_member_integer(b, "sent_bytes", (int64_t)x->ws_bytes[0]);
	jsontext_member_integer(b, "received_messages", (int64_t)x->ws_messages[1]);
	jsontext_member_integer(b, "received_frames", (int64_t)x->ws_frames[1]);
	jsontext_member_integer(b, "received_bytes", (int64_t)x->ws_bytes[1]);
	jsontext_close(b, '}');
}

void exchange_tell(struct exchange *x)
{
	struct buf b = BUF_INIT(PROXY_EVENT_MAX);

	secrets_unsign(x);
	capture_end(&x->sent);
	jsontext_open(&b, '{');
	jsontext_member_integer(&b, "exchange", (int64_t)x->number);
	jsontext_member_integer(&b, "connection", (int64_t)x->conn->number);
	add_target(&b, x);
	add_verdict(&b, x);
	if (x->answered)
		jsontext_member_integer(&b, "status", x->answer.status);
	add_side(&b, "request", &x->request, &x->sent, x->front->received);
	if (x->answered)
		add_side(&b, "response", &x->answer, &x->came, x->front->sent);
	add_upstream(&b, x);
	add_websocket(&b, x);
	add_timing(&b, x);
	jsontext_close(&b, '}');
	BUG_ON(buf_failed(&b));
	secrets_scrub_text(x->secrets, &b);
	x->proxy->hooks.event(x->proxy->hooks.ctx, x->conn, "net.exchange", &b);
	buf_free(&b);
}
