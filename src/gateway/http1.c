/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads are read by the strict codecs (codec/httphead, codec/http_response), bodies by http_body_reader: what two readers could understand differently is refused, and
 * what is sent is written anew from the parsed values. A message's framing is chosen here and nowhere else, so no field of a peer can contradict it.
 */
#include "gateway/http1.h"
#include "base/clock.h"

#include <strings.h>

#define IN_MAX    65536U
#define IN_IDLE   4095U /* and a NUL */
#define OUT_MAX   (256U << 10)
#define OUT_FLUSH CHANNEL_PIECE

static struct http1 *of(struct channel *c)
{
	return container_of(c, struct http1, ch);
}

/* ---- receiving -------------------------------------------------------------------------------------------------------------- */

/* Return: > 0, 0 at the end, -errno. */
static ssize_t fill(struct http1 *h, uint64_t deadline_ns)
{
	size_t room;
	ssize_t n;
	char *p;

	buf_consume(&h->in, h->at);
	h->at = 0;
	room = h->reader.done ? IN_IDLE : CHANNEL_PIECE; /* heads are short, bodies are not */
	if (h->in.cap > h->in.n + room)
		room = h->in.cap - h->in.n - 1;
	p = buf_room(&h->in, room);
	if (p == NULL)
		return -EMSGSIZE;
	n = wire_read(h->w, p, room, deadline_ns);
	if (n > 0)
		buf_grown(&h->in, (size_t)n);
	h->ch.begun = h->ch.begun || n > 0;
	return n;
}

int http1_wait(struct http1 *h, uint64_t deadline_ns)
{
	ssize_t n;

	if (h->at < h->in.n)
		return 1;
	h->at = 0;
	buf_reset(&h->in);
	if (h->in.cap > IN_IDLE + 1)
		buf_free(&h->in);
	if (h->out.cap > IN_IDLE)
		buf_free(&h->out);
	n = fill(h, deadline_ns);
	return n > 0 ? 1 : (int)n;
}

static void lower(char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] >= 'A' && p[i] <= 'Z')
			p[i] = (char)(p[i] - 'A' + 'a');
	}
}

static struct policy_text view(struct httphead_text t)
{
	return (struct policy_text){ t.p != NULL ? t.p : "", t.n };
}

/* Does the Connection field @value name @name? */
static bool names(struct policy_text value, struct policy_text name)
{
	const char *p = value.p, *end = value.p + value.n;

	while (p < end) {
		size_t n = 0;

		while (p < end && (*p == ' ' || *p == '\t' || *p == ','))
			p++;
		while (p + n < end && p[n] != ',' && p[n] != ' ' && p[n] != '\t')
			n++;
		if (n == name.n && strncasecmp(p, name.p, n) == 0)
			return true;
		p += n;
	}
	return false;
}

/* Takes the fields of @all that concern both ends. Names are made lower case in place: they lie in the arena. */
static void keep_fields(struct head *ret, const struct policy_field *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		lower((char *)(uintptr_t)all[i].name.p, all[i].name.n);
	for (size_t i = 0; i < n; i++) {
		bool hop = head_is_hop(all[i].name);

		if (text_is(all[i].name, "te"))
			ret->te_trailers = text_is_word(all[i].value, "trailers");
		for (size_t k = 0; k < n && !hop; k++)
			hop = text_is(all[k].name, "connection") &&
			      names(all[k].value, all[i].name);
		if (!hop)
			ret->fields[ret->n_fields++] = all[i];
	}
}

/* The one field @name (lower case) of @all; {NULL, 0} when it is missing or there twice. */
static struct policy_text only_field(const struct policy_field *all, size_t n, const char *name)
{
	struct policy_text found = { 0 };

	for (size_t i = 0; i < n; i++) {
		if (!text_is_word(all[i].name, name))
			continue;
		if (found.p != NULL)
			return (struct policy_text){ 0 };
		found = all[i].value;
	}
	return found;
}

/* An upgrade that a server could overlook, or take for one to something else, would make a request of what follows it (RFC 6455 4.1). */
static bool asks_for_websocket(const struct head *rq, const struct policy_field *all, size_t n)
{
	return text_is(rq->method, "GET") && rq->body == HTTP_BODY_NONE &&
	       text_is_word(only_field(all, n, "upgrade"), "websocket") &&
	       text_is(only_field(all, n, "sec-websocket-version"), "13") &&
	       only_field(all, n, "sec-websocket-key").n == WEBSOCKET_KEY_SIZE;
}

static int take_request(struct http1 *h, const char *text, size_t n, struct head *ret)
{
	struct httphead head;
	struct policy_field all[HEAD_FIELDS_MAX];
	int rc = httphead_parse_any(text, n, &head, &h->ch.reason);

	if (rc < 0)
		return -EBADMSG;
	for (size_t i = 0; i < head.n_fields; i++)
		all[i] = (struct policy_field){ view(head.fields[i].name),
			view(head.fields[i].value) };
	ret->method = view(head.method);
	ret->scheme = view(head.scheme);
	ret->authority = view(head.form == HTTPHEAD_ORIGIN || head.form == HTTPHEAD_ASTERISK
				      ? httphead_get(&head, "host")
				      : head.authority);
	ret->path = view(head.path);
	ret->query = view(head.query);
	ret->has_query = head.query.p != NULL;
	ret->minor = head.minor;
	if (head.form == HTTPHEAD_ASTERISK)
		ret->path = text_of("*");
	if (head.form == HTTPHEAD_ABSOLUTE) {
		struct policy_text host = view(httphead_get(&head, "host"));

		if (host.n != ret->authority.n ||
			strncasecmp(host.p, ret->authority.p, host.n) != 0) {
			h->ch.reason = "the target and the Host header name different hosts";
			return -EBADMSG;
		}
		if (ret->path.n == 0)
			ret->path = text_of("/");
	}
	ret->body = head.chunked                         ? HTTP_BODY_CHUNKED
		    : head.has_length && head.length > 0 ? HTTP_BODY_LENGTH
							 : HTTP_BODY_NONE;
	ret->has_length = head.has_length;
	ret->length = head.length;
	ret->expect_continue = head.expect_continue && ret->body != HTTP_BODY_NONE;
	ret->websocket = httphead_has_word(&head, "Connection", "upgrade") &&
			 httphead_has_word(&head, "Upgrade", "websocket") && head.minor == 1;
	if (ret->websocket && !asks_for_websocket(ret, all, head.n_fields)) {
		h->ch.reason = "the WebSocket upgrade is malformed";
		return -EBADMSG;
	}
	keep_fields(ret, all, head.n_fields);
	h->peer_closes = head.close || head.minor == 0;
	h->old_client = head.minor == 0;
	h->asked_head = text_is(ret->method, "HEAD");
	h->asked_upgrade = ret->websocket;
	return 0;
}

static bool says_upgrade(const struct policy_field *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (text_is_word(all[i].name, "connection") &&
			names(all[i].value, text_of("upgrade")))
			return true;
	return false;
}

static int take_answer(struct http1 *h, const char *text, size_t n, struct head *ret)
{
	struct http_response r;
	struct policy_field all[HEAD_FIELDS_MAX];
	size_t count = 0, at = 0;
	struct policy_field f;

	h->ch.reason = "the answer's head is malformed";
	if (http_response_parse(text, n, &r) <= 0)
		return -EBADMSG;
	at = (size_t)((const char *)memchr(text, '\n', n) - text) + 1;
	while (http_lines_next(text, n, &at, &f.name.p, &f.name.n, &f.value.p, &f.value.n)) {
		if (count == HEAD_FIELDS_MAX) {
			h->ch.reason = "the answer has too many headers";
			return -EBADMSG;
		}
		all[count++] = f;
	}
	ret->status = r.status;
	ret->minor = r.minor;
	ret->body = h->asked_head ? HTTP_BODY_NONE : r.body;
	ret->has_length = r.body == HTTP_BODY_LENGTH;
	ret->length = r.length;
	ret->websocket = r.status == 101 && h->asked_upgrade;
	if (r.status == 101 && !h->asked_upgrade) {
		h->ch.reason = "the answer switches protocols unasked";
		return -EBADMSG;
	}
	if (ret->websocket && (!text_is_word(only_field(all, count, "upgrade"), "websocket") ||
				      !says_upgrade(all, count))) {
		h->ch.reason = "the answer switches to another protocol";
		return -EBADMSG;
	}
	keep_fields(ret, all, count);
	if (r.status >= 200)
		h->peer_closes = r.close || r.body == HTTP_BODY_UNTIL_CLOSE;
	return 0;
}

/* Size of the head that the buffer begins with; 0 when it is not whole yet. */
static ssize_t whole_head(const struct http1 *h)
{
	const char *p = h->in.p + h->at;
	size_t n = h->in.n - h->at;
	struct http_response r;

	return h->server ? httphead_size(p, n) : http_response_parse(p, n, &r);
}

static int read_head(struct channel *c, struct head *ret, uint64_t deadline_ns)
{
	struct http1 *h = of(c);
	ssize_t size;
	char *text;
	int rc;

	memset(ret, 0, sizeof(*ret));
	while ((size = h->at < h->in.n ? whole_head(h) : 0) == 0) {
		ssize_t n = fill(h, deadline_ns);

		if (n == 0)
			return -EPIPE;
		if (n < 0 && n != -EMSGSIZE)
			return (int)n;
		if (n == -EMSGSIZE)
			size = n;
	}
	if (size == -EMSGSIZE)
		c->reason = "the head is too large";
	else if (size < 0)
		c->reason = "the head is malformed";
	if (size < 0)
		return -EBADMSG;
	text = arena_copy(c->arena, h->in.p + h->at, (size_t)size);
	if (text == NULL)
		return -ENOMEM;
	h->at += (size_t)size;
	rc = h->server ? take_request(h, text, (size_t)size, ret)
		       : take_answer(h, text, (size_t)size, ret);
	if (rc == 0)
		http_body_begin_as(&h->reader, ret->body, ret->length, &h->trailer_text);
	c->body_ended = h->reader.done;
	return rc;
}

/* Behind a head that was not understood nothing can be. */
static int recv_head(struct channel *c, struct head *ret, uint64_t deadline_ns)
{
	int rc = read_head(c, ret, deadline_ns);

	if (rc < 0)
		of(c)->we_close = true;
	return rc;
}

static void take_trailers(struct http1 *h)
{
	char *text = arena_copy(h->ch.arena, buf_cstr(&h->trailer_text), h->trailer_text.n);
	size_t at = 0;
	struct policy_field f;

	while (text != NULL && h->ch.n_trailers < CHANNEL_TRAILERS_MAX &&
		http_lines_next(text, h->trailer_text.n, &at, &f.name.p, &f.name.n, &f.value.p,
			&f.value.n)) {
		lower((char *)(uintptr_t)f.name.p, f.name.n);
		if (!head_is_hop(f.name))
			h->ch.trailers[h->ch.n_trailers++] = f;
	}
	buf_reset(&h->trailer_text);
}

static ssize_t recv_piece(struct channel *c, const char **ret_piece, uint64_t deadline_ns)
{
	struct http1 *h = of(c);

	while (!h->reader.done) {
		size_t size = 0;
		ssize_t used = 0;

		if (h->at < h->in.n)
			used = http_body_next(
				&h->reader, h->in.p + h->at, h->in.n - h->at, ret_piece, &size);
		if (used < 0) {
			c->reason = "the body's framing is malformed";
			h->we_close = true;
			return -EBADMSG;
		}
		h->at += (size_t)used;
		if (size > 0)
			return (ssize_t)size;
		if (h->reader.done || used > 0)
			continue;
		used = fill(h, deadline_ns);
		if (used == 0 && h->reader.kind == HTTP_BODY_UNTIL_CLOSE)
			h->reader.done = true;
		else if (used <= 0)
			return used < 0 ? used : -EPIPE;
	}
	if (h->trailer_text.n > 0)
		take_trailers(h);
	return 0;
}

/* ---- sending ---------------------------------------------------------------------------------------------------------------- */

static uint64_t write_deadline(const struct channel *c)
{
	return c->write_deadline_ns != 0 ? clock_now_ns() + c->write_deadline_ns : 0;
}

static int flush(struct channel *c)
{
	struct http1 *h = of(c);
	int rc;

	if (buf_failed(&h->out))
		return -EMSGSIZE;
	if (h->out.n == 0)
		return 0;
	rc = wire_write(h->w, h->out.p, h->out.n, write_deadline(c));
	buf_reset(&h->out);
	return rc;
}

static void add_text(struct buf *out, struct policy_text t)
{
	buf_add(out, t.p, t.n);
}

static void add_fields(struct buf *out, const struct policy_field *fields, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		add_text(out, fields[i].name);
		buf_add(out, ": ", 2);
		add_text(out, fields[i].value);
		buf_add(out, "\r\n", 2);
	}
}

static void add_request_line(struct buf *out, const struct head *head)
{
	add_text(out, head->method);
	buf_char(out, ' ');
	add_text(out, head->path);
	if (head->has_query) {
		buf_char(out, '?');
		add_text(out, head->query);
	}
	buf_str(out, " HTTP/1.1\r\nhost: ");
	add_text(out, head->authority);
	buf_str(out, "\r\n");
}

static void add_length(struct buf *out, uint64_t length)
{
	buf_fmt(out, "content-length: %ju\r\n", (uintmax_t)length);
}

/* The one place where a body's framing is said. */
static void add_framing(struct http1 *h, const struct head *head)
{
	struct buf *out = &h->out;
	bool answer = h->server;

	h->chunks = false;
	if (head->body == HTTP_BODY_LENGTH) {
		add_length(out, head->length);
	} else if (head->body == HTTP_BODY_NONE) {
		bool may = answer ? head->status >= 200 && head->status != 204 : head->has_length;

		if (may && (head->has_length || (answer && head->status != 304 && !h->asked_head)))
			add_length(out, head->has_length ? head->length : 0);
	} else if (h->old_client) {
		h->we_close = true;
	} else {
		h->chunks = true;
		buf_str(out, "transfer-encoding: chunked\r\n");
	}
}

static const char *phrase(int status)
{
	switch (status) {
	case 100:
		return "Continue";
	case 101:
		return "Switching Protocols";
	case 200:
		return "OK";
	case 204:
		return "No Content";
	case 304:
		return "Not Modified";
	case 400:
		return "Bad Request";
	case 403:
		return "Forbidden";
	case 404:
		return "Not Found";
	case 421:
		return "Misdirected Request";
	case 500:
		return "Internal Server Error";
	case 502:
		return "Bad Gateway";
	case 503:
		return "Service Unavailable";
	default:
		return "Answer";
	}
}

static int send_head(struct channel *c, const struct head *head, bool end)
{
	struct http1 *h = of(c);
	bool final = !h->server || head->status >= 200;

	if (h->server) {
		buf_fmt(&h->out, "HTTP/1.1 %d %s\r\n", head->status, phrase(head->status));
		h->we_close = h->we_close || (final && (h->peer_closes || !c->body_ended));
	} else {
		add_request_line(&h->out, head);
		h->asked_head = text_is(head->method, "HEAD");
		h->asked_upgrade = head->websocket;
	}
	add_fields(&h->out, head->fields, head->n_fields);
	if (head->websocket)
		buf_str(&h->out, "connection: Upgrade\r\nupgrade: websocket\r\n");
	else if (final)
		add_framing(h, head);
	if (final && h->we_close && !head->websocket)
		buf_str(&h->out, "connection: close\r\n");
	buf_str(&h->out, "\r\n");
	h->sending = final && !end;
	return buf_failed(&h->out) ? -EMSGSIZE : 0;
}

static int send_large(struct http1 *h, const void *p, size_t n)
{
	int rc = flush(&h->ch);

	return rc == 0 ? wire_write(h->w, p, n, write_deadline(&h->ch)) : rc;
}

static int send_piece(struct channel *c, const void *p, size_t n)
{
	struct http1 *h = of(c);
	int rc = 0;

	if (n == 0)
		return 0;
	if (h->chunks)
		buf_fmt(&h->out, "%zx\r\n", n);
	if (n >= OUT_FLUSH)
		rc = send_large(h, p, n);
	else
		buf_add(&h->out, p, n);
	if (h->chunks)
		buf_add(&h->out, "\r\n", 2);
	return rc == 0 && h->out.n >= OUT_FLUSH ? flush(c) : rc;
}

static int send_end(struct channel *c, const struct policy_field *trailers, size_t n)
{
	struct http1 *h = of(c);

	if (h->chunks) {
		buf_str(&h->out, "0\r\n");
		add_fields(&h->out, trailers, n);
		buf_str(&h->out, "\r\n");
	}
	h->sending = false;
	return flush(c);
}

/* ---- life ------------------------------------------------------------------------------------------------------------------- */

static void stop(struct channel *c)
{
	struct http1 *h = of(c);

	h->we_close = true;
	wire_stop_reading(h->w);
}

static void abort_connection(struct channel *c)
{
	struct http1 *h = of(c);

	h->we_close = h->broken = true;
}

static void watch(struct channel *c)
{
	wire_watch(of(c)->w, c->left, c->left_ctx);
}

static void next(struct channel *c)
{
	struct http1 *h = of(c);

	h->asked_head = h->asked_upgrade = h->chunks = false;
	h->reader.done = true;
}

static const struct channel_ops ops = {
	.next = next,
	.recv_head = recv_head,
	.recv = recv_piece,
	.send_head = send_head,
	.send = send_piece,
	.send_end = send_end,
	.flush = flush,
	.stop = stop,
	.abort = abort_connection,
	.watch = watch,
};

void http1_init(struct http1 *h, struct wire *w, bool server)
{
	*h = (struct http1){ .w = w,
		.server = server,
		.ch = { .ops = &ops, .version = 1 },
		.in = BUF_INIT(IN_MAX),
		.out = BUF_INIT(OUT_MAX),
		.trailer_text = BUF_INIT(HTTP_TRAILERS_MAX + 2) };
	h->reader.done = true;
}

void http1_fini(struct http1 *h)
{
	buf_free(&h->in);
	buf_free(&h->out);
	buf_free(&h->trailer_text);
}

bool http1_reusable(const struct http1 *h)
{
	/* what came behind an answer would be taken for the next one */
	return (h->server || h->at == h->in.n) && !h->we_close && !h->peer_closes && !h->sending &&
	       h->reader.done && h->ch.body_ended;
}

size_t http1_raw(struct http1 *h, char **ret)
{
	size_t n = h->in.n - h->at;

	*ret = h->in.p + h->at;
	h->at = h->in.n;
	return n;
}
