/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of HTTP/2 as a channel. */
#include "base/clock.h"
#include "gateway/http2_internal.h"

#define OUT_HIGH    (2 * CHANNEL_PIECE)            /* bytes that may wait to be sent */
#define OUT_MAX     (OUT_HIGH + 2 * CHANNEL_PIECE) /* and be there, sent or not */
#define INTERIM_MAX 64U

static size_t n_served; /* streams of servers */
static size_t all_wide; /* bytes that wide windows may hold */

static struct stream2 *of(struct channel *c)
{
	return container_of(c, struct stream2, ch);
}

/* ---- receiving -------------------------------------------------------------------------------------------------------------- */

int stream2_field(
	struct stream2 *s, const uint8_t *name, size_t name_n, const uint8_t *value, size_t value_n)
{
	uint32_t sizes[2] = { (uint32_t)name_n, (uint32_t)value_n };
	struct buf *block = s->head_whole ? &s->trailer_block : &s->block;

	s->ch.begun = true;
	/* as a whole or not at all: next_field() goes by the sizes */
	if (s->n_fields == HEAD_FIELDS_MAX ||
		sizeof(sizes) + name_n + value_n > block->max - block->n)
		return -EMSGSIZE;
	buf_add(block, sizes, sizeof(sizes));
	buf_add(block, name, name_n);
	buf_add(block, value, value_n);
	s->n_fields++;
	return buf_failed(block) ? -EMSGSIZE : 0;
}

/* Walks the fields of a block that lies in the arena. */
static bool next_field(const char *block, size_t n, size_t *at, struct policy_field *ret)
{
	uint32_t sizes[2];

	if (*at == n)
		return false;
	memcpy(sizes, block + *at, sizeof(sizes));
	ret->name = (struct policy_text){ block + *at + sizeof(sizes), sizes[0] };
	ret->value = (struct policy_text){ ret->name.p + sizes[0], sizes[1] };
	*at += sizeof(sizes) + sizes[0] + sizes[1];
	return true;
}

/* nghttp2 has looked already; but what is written as a line of HTTP/1 is looked at here too. */
static bool is_line(const struct policy_field *f)
{
	for (size_t i = 0; i < f->name.n; i++) {
		char c = f->name.p[i];

		if (c <= 0x20 || c == 0x7f || (c == ':' && i > 0) || (c >= 'A' && c <= 'Z'))
			return false;
	}
	for (size_t i = 0; i < f->value.n; i++) {
		if (((unsigned char)f->value.p[i] < 0x20 && f->value.p[i] != '\t') ||
			f->value.p[i] == 0x7f)
			return false;
	}
	return f->name.n > 0;
}

static int take_status(struct head *ret, struct policy_text value)
{
	int status = 0;

	for (size_t i = 0; i < value.n; i++)
		status = status * 10 + (value.p[i] - '0');
	ret->status = status;
	return value.n == 3 && status >= 100 && status <= 999 ? 0 : -EBADMSG;
}

static int take_path(struct head *ret, struct policy_text value)
{
	const char *mark = memchr(value.p, '?', value.n);

	ret->path =
		(struct policy_text){ value.p, mark != NULL ? (size_t)(mark - value.p) : value.n };
	ret->has_query = mark != NULL;
	if (mark != NULL)
		ret->query = (struct policy_text){ mark + 1, value.n - ret->path.n - 1 };
	return 0;
}

static int take_pseudo(struct head *ret, const struct policy_field *f)
{
	if (text_is(f->name, ":status"))
		return take_status(ret, f->value);
	if (text_is(f->name, ":path"))
		return take_path(ret, f->value);
	if (text_is(f->name, ":method"))
		ret->method = f->value;
	else if (text_is(f->name, ":scheme"))
		ret->scheme = f->value;
	else if (text_is(f->name, ":authority"))
		ret->authority = f->value;
	else
		return -EBADMSG;
	return 0;
}

static int take_length(struct head *ret, struct policy_text value)
{
	uint64_t length = 0;

	for (size_t i = 0; i < value.n; i++) {
		if (value.p[i] < '0' || value.p[i] > '9')
			return -EBADMSG;
		length = length * 10 + (uint64_t)(value.p[i] - '0');
	}
	ret->has_length = true;
	ret->length = length;
	return value.n > 0 && value.n <= 15 ? 0 : -EBADMSG;
}

static struct policy_field *cookie_of(struct head *h)
{
	for (size_t i = 0; i < h->n_fields; i++)
		if (text_is(h->fields[i].name, "cookie"))
			return &h->fields[i];
	return NULL;
}

/* HTTP/1 knows one Cookie field only (RFC 9113 8.2.3): the first one gets what is in all of them. */
static int join_cookies(struct stream2 *s, struct head *ret, const char *block, size_t n)
{
	struct policy_field *cookie = cookie_of(ret), f;
	size_t room = 0, used = 0;
	char *joined;

	if (cookie == NULL)
		return 0;
	for (size_t at = 0; next_field(block, n, &at, &f);)
		room += text_is(f.name, "cookie") ? f.value.n + 2 : 0;
	joined = arena_alloc(s->ch.arena, room);
	if (joined == NULL)
		return -ENOMEM;
	for (size_t at = 0; next_field(block, n, &at, &f);) {
		if (!text_is(f.name, "cookie"))
			continue;
		memcpy(joined + used, f.value.p, f.value.n);
		memcpy(joined + used + f.value.n, "; ", 2);
		used += f.value.n + 2;
	}
	cookie->value = (struct policy_text){ joined, used - 2 };
	return 0;
}

static int take_field(struct head *ret, const struct policy_field *f)
{
	if (!is_line(f))
		return -EBADMSG;
	if (f->name.p[0] == ':')
		return take_pseudo(ret, f);
	if (text_is(f->name, "content-length"))
		return take_length(ret, f->value);
	if (text_is(f->name, "host")) {
		if (ret->authority.n == 0)
			ret->authority = f->value;
		return ret->authority.n == f->value.n &&
				       memcmp(ret->authority.p, f->value.p, f->value.n) == 0
			       ? 0
			       : -EBADMSG;
	}
	if (text_is(f->name, "te"))
		ret->te_trailers = text_is_word(f->value, "trailers");
	if (text_is(f->name, "cookie") && cookie_of(ret) != NULL)
		return 0;
	if (text_is(f->name, "expect"))
		ret->expect_continue = text_is_word(f->value, "100-continue");
	if (!head_is_hop(f->name))
		ret->fields[ret->n_fields++] = *f;
	return 0;
}

/* ":status" comes first; see nghttp2_session_mem_recv(). */
static bool is_interim(const struct stream2 *s)
{
	size_t at = 0;
	struct policy_field f;

	return next_field(buf_cstr(&s->block), s->block.n, &at, &f) && text_is(f.name, ":status") &&
	       f.value.n == 3 && f.value.p[0] == '1';
}

void stream2_fields_whole(struct stream2 *s, bool end)
{
	s->n_fields = 0;
	if (s->head_whole)
		return;
	if (is_interim(s) && !end) {
		buf_reset(&s->block);
		s->too_large = ++s->n_interim > INTERIM_MAX;
		return;
	}
	s->head_whole = true;
	s->bare = end;
}

/* An answer that cannot have a body has none, whatever frame its end comes in: behind its head HTTP/1 has the next answer. */
static bool has_no_body(const struct stream2 *s, const struct head *head)
{
	return s->bare || s->asked_head ||
	       (head->status >= 200 && http_status_bodiless(head->status));
}

static int take_head(struct stream2 *s, struct head *ret)
{
	char *block = arena_copy(s->ch.arena, buf_cstr(&s->block), s->block.n);
	size_t n = s->block.n, at = 0;
	struct policy_field f;
	int rc = block != NULL ? 0 : -ENOMEM;

	memset(ret, 0, sizeof(*ret));
	while (rc == 0 && next_field(block, n, &at, &f))
		rc = take_field(ret, &f);
	if (rc == 0)
		rc = join_cookies(s, ret, block, n);
	buf_free(&s->block);
	ret->body = has_no_body(s, ret) ? HTTP_BODY_NONE
		    : ret->has_length   ? HTTP_BODY_LENGTH
					: HTTP_BODY_CHUNKED;
	ret->expect_continue = ret->expect_continue && ret->body != HTTP_BODY_NONE;
	s->ch.body_ended = ret->body == HTTP_BODY_NONE;
	if (rc < 0) /* it came, whatever is wrong with it: it is answered, and told */
		s->ch.reason = rc == -ENOMEM ? "the head is too large" : "a header is malformed";
	return rc < 0 ? -EBADMSG : 0;
}

bool stream2_data(struct stream2 *s, const void *p, size_t n)
{
	buf_add(&s->in, p, n); /* fits: flow control bounds it */
	(void)nghttp2_session_consume_connection(s->h->session, n);
	return !buf_failed(&s->in);
}

void stream2_widen(struct stream2 *s)
{
	if (s->wide || s->h->server != NULL || all_wide + HTTP2_WINDOW_WIDE > HTTP2_WIDE_MAX)
		return;
	s->wide = true;
	all_wide += HTTP2_WINDOW_WIDE;
	(void)nghttp2_session_set_local_window_size(
		s->h->session, NGHTTP2_FLAG_NONE, s->id, HTTP2_WINDOW_WIDE);
}

/* The piece that was handed out is done with: the stream may hold as much again. */
static void give_back(struct stream2 *s)
{
	size_t n = s->taken.n;

	buf_reset(&s->taken);
	if (s->taken.cap > HTTP2_WINDOW + 1)
		buf_free(&s->taken);
	if (n == 0 || s->closed || s->h->dead)
		return;
	stream2_widen(s);
	(void)nghttp2_session_consume_stream(s->h->session, s->id, n);
	(void)!http2_pump(s->h);
}

static int wait_readable(struct stream2 *s, uint64_t deadline_ns)
{
	if (s->stopped)
		return -ECANCELED;
	if (s->closed || s->h->dead)
		return -EPIPE;
	return waiters_wait(&s->readable, deadline_ns);
}

static int recv_head(struct channel *c, struct head *ret, uint64_t deadline_ns)
{
	struct stream2 *s = of(c);
	int rc = 0;

	while (!s->head_whole && !s->too_large && rc == 0)
		rc = wait_readable(s, deadline_ns);
	if (s->too_large) {
		memset(ret, 0, sizeof(*ret));
		c->reason = s->n_interim > INTERIM_MAX ? "interim answers without end"
						       : "the head is too large";
		return -EBADMSG;
	}
	return rc < 0 ? rc : take_head(s, ret);
}

static void take_trailers(struct stream2 *s)
{
	char *block = arena_copy(s->ch.arena, buf_cstr(&s->trailer_block), s->trailer_block.n);
	size_t at = 0;
	struct policy_field f;

	while (block != NULL && s->ch.n_trailers < CHANNEL_TRAILERS_MAX &&
		next_field(block, s->trailer_block.n, &at, &f)) {
		if (is_line(&f) && f.name.p[0] != ':' && !head_is_hop(f.name))
			s->ch.trailers[s->ch.n_trailers++] = f;
	}
	buf_free(&s->trailer_block);
}

static ssize_t recv_piece(struct channel *c, const char **ret_piece, uint64_t deadline_ns)
{
	struct stream2 *s = of(c);
	struct buf swap;
	int rc = 0;

	give_back(s);
	while (s->in.n == 0 && !s->end_received && rc == 0)
		rc = wait_readable(s, deadline_ns);
	if (s->in.n == 0 && s->end_received && s->too_large) {
		c->reason = "the trailers are too large";
		return -EBADMSG;
	}
	if (s->in.n == 0 && s->end_received) {
		if (s->trailer_block.n > 0)
			take_trailers(s);
		return 0;
	}
	if (s->in.n == 0)
		return rc;
	swap = s->taken;
	s->taken = s->in;
	s->in = swap;
	*ret_piece = s->taken.p;
	return (ssize_t)s->taken.n;
}

/* ---- sending ---------------------------------------------------------------------------------------------------------------- */

static nghttp2_nv pair(struct policy_text name, struct policy_text value)
{
	return (nghttp2_nv){ (uint8_t *)(uintptr_t)name.p, (uint8_t *)(uintptr_t)value.p, name.n,
		value.n, NGHTTP2_NV_FLAG_NONE };
}

static int submit_trailers(struct stream2 *s)
{
	nghttp2_nv nv[CHANNEL_TRAILERS_MAX];

	for (size_t i = 0; i < s->n_trailers; i++)
		nv[i] = pair(s->trailers[i].name, s->trailers[i].value);
	return nghttp2_submit_trailer(s->h->session, s->id, nv, s->n_trailers);
}

static ssize_t on_want_data(attr_unused nghttp2_session *session, attr_unused int32_t id,
	uint8_t *p, size_t n, uint32_t *flags, nghttp2_data_source *source, attr_unused void *ctx)
{
	struct stream2 *s = source->ptr;
	size_t left = s->out.n - s->out_at;

	if (left == 0 && !s->out_ends)
		return NGHTTP2_ERR_DEFERRED;
	n = n < left ? n : left;
	if (n > 0)
		memcpy(p, s->out.p + s->out_at, n);
	s->out_at += n;
	if (s->out_at == s->out.n) {
		buf_reset(&s->out);
		s->out_at = 0;
		if (s->out_ends) {
			*flags |= NGHTTP2_DATA_FLAG_EOF;
			if (s->n_trailers > 0 && submit_trailers(s) == 0)
				*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
		}
	}
	waiters_wake(&s->writable);
	return (ssize_t)n;
}

static size_t put_fields(nghttp2_nv *nv, size_t n, const struct head *head, char length[24])
{
	for (size_t i = 0; i < head->n_fields; i++)
		nv[n++] = pair(head->fields[i].name, head->fields[i].value);
	if (head->te_trailers)
		nv[n++] = pair(text_of("te"), text_of("trailers"));
	if (head->has_length) {
		(void)snprintf(length, 24, "%ju", (uintmax_t)head->length);
		nv[n++] = pair(text_of("content-length"), text_of(length));
	}
	return n;
}

static int send_answer(struct stream2 *s, const struct head *head, bool end)
{
	nghttp2_nv nv[HEAD_FIELDS_MAX + 3];
	nghttp2_data_provider source = { { .ptr = s }, on_want_data };
	char status[12], length[24];
	size_t n;

	(void)snprintf(status, sizeof(status), "%d", head->status);
	nv[0] = pair(text_of(":status"), text_of(status));
	if (head->status < 200)
		return nghttp2_submit_headers(
			s->h->session, NGHTTP2_FLAG_NONE, s->id, NULL, nv, 1, NULL);
	n = put_fields(nv, 1, head, length);
	s->out_ends = end;
	return nghttp2_submit_response(s->h->session, s->id, nv, n, end ? NULL : &source);
}

static struct policy_text target(struct stream2 *s, const struct head *head)
{
	char *text;

	if (!head->has_query)
		return head->path;
	text = arena_alloc(s->ch.arena, head->path.n + head->query.n + 1);
	if (text == NULL)
		return (struct policy_text){ 0 };
	memcpy(text, head->path.p, head->path.n);
	text[head->path.n] = '?';
	memcpy(text + head->path.n + 1, head->query.p, head->query.n);
	return (struct policy_text){ text, head->path.n + head->query.n + 1 };
}

static int send_request(struct stream2 *s, const struct head *head, bool end)
{
	nghttp2_nv nv[HEAD_FIELDS_MAX + 6];
	nghttp2_data_provider source = { { .ptr = s }, on_want_data };
	struct policy_text path = target(s, head);
	char length[24];
	size_t n;

	if (path.p == NULL)
		return NGHTTP2_ERR_NOMEM;
	nv[0] = pair(text_of(":method"), head->method);
	nv[1] = pair(text_of(":scheme"), head->scheme);
	nv[2] = pair(text_of(":authority"), head->authority);
	nv[3] = pair(text_of(":path"), path);
	n = put_fields(nv, 4, head, length);
	s->asked_head = text_is(head->method, "HEAD");
	s->out_ends = end;
	s->id = nghttp2_submit_request(s->h->session, NULL, nv, n, end ? NULL : &source, s);
	return s->id < 0 ? s->id : 0;
}

static int send_head(struct channel *c, const struct head *head, bool end)
{
	struct stream2 *s = of(c);

	if (s->closed || s->h->dead)
		return -EPIPE;
	return (s->h->server != NULL ? send_answer(s, head, end) : send_request(s, head, end)) == 0
		       ? 0
		       : -EPIPE;
}

static uint64_t write_deadline(const struct channel *c)
{
	return c->write_deadline_ns != 0 ? clock_now_ns() + c->write_deadline_ns : 0;
}

/* While another stream is being written who reads that slowly makes room for this one, too. Return: 0 = look again; -errno. */
static int wait_writable(struct stream2 *s)
{
	const struct http2 *h = s->h;
	uint64_t delivered = wire_delivered(h->w);
	int rc = waiters_wait(&s->writable, write_deadline(&s->ch));

	return rc == -ETIMEDOUT && h->sending && wire_delivered(h->w) > delivered ? 0 : rc;
}

/* Is more there than @limit, or with @all anything? */
static bool lags(const struct stream2 *s, size_t limit, bool all)
{
	return s->out.n - s->out_at > limit || (all && !s->eof_sent);
}

/* Lets nghttp2 take what @s has and waits until at most @limit bytes are left, or all and the end with @all. */
static int push(struct stream2 *s, size_t limit, bool all)
{
	int rc;

	if (s->closed || s->h->dead)
		return s->eof_sent && all ? 0 : -EPIPE;
	(void)nghttp2_session_resume_data(s->h->session, s->id);
	rc = http2_pump(s->h);
	while (rc == 0 && lags(s, limit, all)) {
		if (s->closed || s->h->dead)
			return -EPIPE;
		rc = wait_writable(s);
	}
	return rc == -ETIMEDOUT && !lags(s, limit, all) ? 0 : rc;
}

void stream2_end_sent(struct stream2 *s)
{
	s->eof_sent = true;
	waiters_wake(&s->writable);
}

/* What was sent leaves its place to what comes: while something always waits the buffer would grow. */
static void make_room(struct stream2 *s, size_t n)
{
	if (s->out_at == 0 || s->out.n + n < OUT_MAX)
		return;
	s->out.n -= s->out_at;
	memmove(s->out.p, s->out.p + s->out_at, s->out.n);
	s->out_at = 0;
}

static int send_piece(struct channel *c, const void *p, size_t n)
{
	struct stream2 *s = of(c);
	const char *at = p;
	int rc = 0;

	while (n > 0 && rc == 0) {
		size_t part = n < CHANNEL_PIECE ? n : CHANNEL_PIECE;

		if (s->closed || s->h->dead)
			return -EPIPE;
		make_room(s, part);
		buf_add(&s->out, at, part);
		if (buf_failed(&s->out))
			return -EMSGSIZE;
		if (s->out.n - s->out_at > CHANNEL_PIECE)
			rc = push(s, OUT_HIGH, false);
		at += part;
		n -= part;
	}
	return rc;
}

static int send_end(struct channel *c, const struct policy_field *trailers, size_t n)
{
	struct stream2 *s = of(c);

	s->trailers = trailers;
	s->n_trailers = n;
	s->out_ends = true;
	return push(s, 0, true);
}

/* Behind the end of an answer its stream is released, and then nothing of it goes out any more. */
static int flush(struct channel *c)
{
	struct stream2 *s = of(c);

	if (s->h->dead)
		return -EPIPE;
	if (s->closed)
		return s->eof_sent ? 0 : -EPIPE;
	return push(s, OUT_HIGH, s->out_ends && s->h->server != NULL);
}

/* ---- life ------------------------------------------------------------------------------------------------------------------- */

static void next(attr_unused struct channel *c)
{
}

static void stop(struct channel *c)
{
	struct stream2 *s = of(c);

	s->stopped = true;
	waiters_wake(&s->readable);
}

static void abort_stream(struct channel *c)
{
	struct stream2 *s = of(c);

	if (s->closed || s->h->dead)
		return;
	(void)nghttp2_submit_rst_stream(
		s->h->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_INTERNAL_ERROR);
	(void)!http2_pump(s->h);
}

/* Closed before it had its end. */
static void watch(struct channel *c)
{
	struct stream2 *s = of(c);
	channel_left_fn *left = c->left;

	if (left == NULL || s->eof_sent || !(s->closed || s->h->dead))
		return;
	c->left = NULL;
	left(c->left_ctx, true);
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
	.abort = abort_stream,
	.watch = watch,
};

struct stream2 *stream2_new(struct http2 *h, int32_t id)
{
	struct stream2 *s = xnew(struct stream2);

	s->ch = (struct channel){
		.ops = &ops, .version = 2, .write_deadline_ns = h->write_deadline_ns
	};
	s->h = h;
	s->id = id;
	s->block = s->trailer_block = (struct buf)BUF_INIT(HTTP2_HEADERS_MAX);
	s->in = s->taken = (struct buf)BUF_INIT(2 * HTTP2_WINDOW_WIDE);
	s->out = (struct buf)BUF_INIT(OUT_MAX);
	waiters_init(&s->readable);
	waiters_init(&s->writable);
	list_append(&h->streams, &s->node);
	h->n_streams++;
	n_served += h->server != NULL;
	return s;
}

size_t stream2_served(void)
{
	return n_served;
}

static void stream2_free(struct stream2 *s)
{
	struct http2 *h = s->h;

	all_wide -= s->wide ? HTTP2_WINDOW_WIDE : 0;
	n_served -= h->server != NULL;
	list_remove(&s->node);
	h->n_streams--;
	buf_free(&s->block);
	buf_free(&s->trailer_block);
	buf_free(&s->in);
	buf_free(&s->taken);
	buf_free(&s->out);
	free(s);
	if (h->ending && h->n_streams == 0)
		wire_stop_reading(h->w); /* nothing more is awaited */
	waiters_wake(&h->released);
}

void stream2_wake(struct stream2 *s)
{
	waiters_wake(&s->readable);
	waiters_wake(&s->writable);
	watch(&s->ch);
}

void stream2_closed(struct stream2 *s, uint32_t code)
{
	s->closed = true;
	s->ch.untouched = code == NGHTTP2_REFUSED_STREAM;
	if (s->held)
		stream2_wake(s);
	else
		stream2_free(s);
}

void stream2_hold(struct stream2 *s)
{
	s->held = true;
	s->h->n_held++;
}

void stream2_release(struct stream2 *s)
{
	s->held = false;
	s->h->n_held--;
	if (s->closed || s->h->dead || s->id < 0) {
		stream2_free(s);
		return;
	}
	/* what the peer still sends is not wanted, what it still expects will not come */
	(void)nghttp2_submit_rst_stream(s->h->session, NGHTTP2_FLAG_NONE, s->id,
		s->eof_sent ? NGHTTP2_NO_ERROR : NGHTTP2_CANCEL);
	(void)!http2_pump(s->h);
}
