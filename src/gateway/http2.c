/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of HTTP/2: nghttp2 reads and writes the frames, this file the wire; limits are set here. */
#include "base/clock.h"
#include "gateway/http2_internal.h"

#define OUT_MAX (1U << 20)

/* ---- limits ----------------------------------------------------------------------------------------------------------------- */

static bool allow(struct allowance *a)
{
	uint64_t more = (clock_now_ns() - a->at_ns) * HTTP2_REFILL_PER_S / NS_PER_S;

	a->at_ns += more * NS_PER_S / HTTP2_REFILL_PER_S;
	a->left = a->left + more < a->burst ? a->left + more : a->burst;
	if (a->left == 0)
		return false;
	a->left--;
	return true;
}

/* What moves something pays for one that moves nothing: gRPC measures its way with a PING for what it gets. */
static void earn(struct allowance *a)
{
	if (a->left < a->burst)
		a->left++;
}

static int too_much(struct http2 *h, const char *why)
{
	h->why = why;
	(void)nghttp2_session_terminate_session(h->session, NGHTTP2_ENHANCE_YOUR_CALM);
	return 0;
}

/* Frames that move nothing: a peer may send some, not a flood. */
static bool is_idle_work(const nghttp2_frame *f)
{
	switch (f->hd.type) {
	case NGHTTP2_DATA:
		return f->hd.length == 0 && (f->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0;
	case NGHTTP2_SETTINGS:
	case NGHTTP2_PING:
		return (f->hd.flags & NGHTTP2_FLAG_ACK) == 0;
	case NGHTTP2_PRIORITY:
	case NGHTTP2_GOAWAY:
		return true;
	default:
		return false;
	}
}

/* ---- what nghttp2 tells ----------------------------------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *f, void *ctx)
{
	struct http2 *h = ctx;

	if (h->server == NULL || f->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	if (h->ending || h->n_streams >= 2 * HTTP2_STREAMS_MAX)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	if (stream2_served() >= HTTP2_SERVED_MAX) {
		h->server->refused(h->server->ctx);
		return nghttp2_submit_rst_stream(
			session, NGHTTP2_FLAG_NONE, f->hd.stream_id, NGHTTP2_REFUSED_STREAM);
	}
	return nghttp2_session_set_stream_user_data(
		session, f->hd.stream_id, stream2_new(h, f->hd.stream_id));
}

static int on_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
	size_t name_n, const uint8_t *value, size_t value_n, attr_unused uint8_t flags,
	attr_unused void *ctx)
{
	struct stream2 *s = nghttp2_session_get_stream_user_data(session, f->hd.stream_id);

	if (s == NULL || s->too_large)
		return 0;
	s->too_large = stream2_field(s, name, name_n, value, value_n) < 0;
	return 0;
}

static void serve_stream(void *arg)
{
	struct stream2 *s = arg;

	s->h->server->serve(s->h->server->ctx, &s->ch);
	stream2_release(s);
}

static void headers_whole(struct http2 *h, struct stream2 *s, const nghttp2_frame *f)
{
	stream2_fields_whole(s, (f->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0);
	if (f->headers.cat == NGHTTP2_HCAT_REQUEST) {
		stream2_hold(s);
		fiber_start(serve_stream, s);
	} else if (h->server == NULL && s->too_large) {
		(void)nghttp2_submit_rst_stream(
			h->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_ENHANCE_YOUR_CALM);
	}
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *f, void *ctx)
{
	struct http2 *h = ctx;
	struct stream2 *s = f->hd.stream_id > 0
				    ? nghttp2_session_get_stream_user_data(session, f->hd.stream_id)
				    : NULL;

	if (is_idle_work(f) && !allow(&h->frames))
		return too_much(h, "a flood of control frames");
	if (f->hd.type == NGHTTP2_RST_STREAM && h->server != NULL && !allow(&h->resets))
		return too_much(h, "a flood of resets");
	if (f->hd.type == NGHTTP2_GOAWAY)
		h->ending = true;
	if (s == NULL)
		return 0;
	if ((f->hd.type == NGHTTP2_DATA || f->hd.type == NGHTTP2_HEADERS) &&
		(f->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
		s->end_received = true;
	if (f->hd.type == NGHTTP2_HEADERS)
		headers_whole(h, s, f);
	waiters_wake(&s->readable);
	return 0;
}

/* When a request is on its way what is granted beyond the usual goes along with it. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *f, void *ctx)
{
	struct http2 *h = ctx;
	struct stream2 *s;

	if (f->hd.type == NGHTTP2_HEADERS || (f->hd.type == NGHTTP2_DATA && f->hd.length > 0))
		earn(&h->frames);
	if (f->hd.type != NGHTTP2_HEADERS && f->hd.type != NGHTTP2_DATA)
		return 0;
	s = nghttp2_session_get_stream_user_data(session, f->hd.stream_id);
	if (s != NULL && (f->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
		stream2_end_sent(s);
	if (s != NULL && h->server == NULL && f->hd.type == NGHTTP2_HEADERS)
		stream2_widen(s);
	return 0;
}

static int on_data(nghttp2_session *session, attr_unused uint8_t flags, int32_t id,
	const uint8_t *p, size_t n, attr_unused void *ctx)
{
	struct stream2 *s = nghttp2_session_get_stream_user_data(session, id);

	if (s == NULL || !s->held || s->stopped) {
		(void)nghttp2_session_consume(session, id, n);
		return 0;
	}
	return stream2_data(s, p, n) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, attr_unused void *ctx)
{
	struct stream2 *s = nghttp2_session_get_stream_user_data(session, id);

	if (s == NULL)
		return 0;
	(void)nghttp2_session_set_stream_user_data(session, id, NULL);
	stream2_closed(s, code);
	return 0;
}

/* ---- the wire --------------------------------------------------------------------------------------------------------------- */

/* Moves what is to be sent into @h->out, about a TLS record of it. Return: bytes, or -EPIPE. */
static ssize_t collect(struct http2 *h)
{
	while (h->out.n < CHANNEL_PIECE) {
		const uint8_t *p;
		ssize_t n = nghttp2_session_mem_send(h->session, &p);

		if (n < 0)
			return -EPIPE;
		if (n == 0)
			break;
		buf_add(&h->out, p, (size_t)n);
	}
	return buf_failed(&h->out) ? -EPIPE : (ssize_t)h->out.n;
}

static void die(struct http2 *h)
{
	if (h->dead)
		return;
	h->dead = true;
	wire_stop_reading(h->w);
	list_for_each (&h->streams, node, next_node)
		stream2_wake(list_entry(node, struct stream2, node));
}

int http2_pump(struct http2 *h)
{
	ssize_t n = 0;

	if (h->dead)
		return -EPIPE;
	if (h->sending)
		return 0;
	h->sending = true;
	while (!h->dead && (n = collect(h)) > 0) {
		n = wire_write(h->w, h->out.p, h->out.n, clock_now_ns() + h->write_deadline_ns);
		buf_reset(&h->out);
		if (n < 0)
			break;
	}
	h->sending = false;
	if (h->out.cap > CHANNEL_PIECE)
		buf_free(&h->out);
	if (n < 0)
		die(h);
	return h->dead ? -EPIPE : 0;
}

static bool finished(const struct http2 *h)
{
	return h->dead ||
	       (!nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session));
}

/* Return: was something read? */
static bool step(struct http2 *h, uint8_t *bytes, size_t size, uint64_t idle_ns)
{
	ssize_t n = wire_read(h->w, bytes, size, clock_now_ns() + idle_ns);

	if (n == -ETIMEDOUT && h->n_held > 0)
		return true; /* their exchanges have deadlines of their own */
	if (n <= 0)
		return false;
	n = nghttp2_session_mem_recv(h->session, bytes, (size_t)n);
	if (n < 0 && h->why == NULL)
		h->why = "the frames break the protocol";
	/* what is to be said of its frames is written by a fiber that it may keep waiting */
	if (nghttp2_session_get_outbound_queue_size(h->session) > HTTP2_QUEUE_MAX)
		(void)too_much(h, "a flood of frames that want answers");
	return http2_pump(h) == 0 && n >= 0;
}

const char *http2_run(struct http2 *h, uint64_t idle_ns)
{
	uint8_t *bytes = xalloc(CHANNEL_PIECE);

	(void)!http2_pump(h); /* our settings */
	while (!finished(h) && !(h->ending && h->n_streams == 0) &&
		step(h, bytes, CHANNEL_PIECE, idle_ns))
		;
	free(bytes);
	if (!h->dead) {
		(void)nghttp2_session_terminate_session(h->session, NGHTTP2_NO_ERROR);
		(void)!http2_pump(h);
	}
	die(h);
	while (h->n_streams > 0 || h->sending) {
		list_for_each (&h->streams, node, next_node) { /* closed by nobody any more */
			struct stream2 *s = list_entry(node, struct stream2, node);

			if (!s->held)
				stream2_closed(s, NGHTTP2_NO_ERROR);
		}
		if (h->n_streams > 0 || h->sending)
			(void)!waiters_wait(&h->released, clock_now_ns() + NS_PER_S);
	}
	return h->why;
}

/* ---- life ------------------------------------------------------------------------------------------------------------------- */

static nghttp2_session_callbacks *callbacks(void)
{
	static nghttp2_session_callbacks *cb;

	if (cb == NULL && nghttp2_session_callbacks_new(&cb) == 0) {
		nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
		nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
		nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
		nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_sent);
		nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
		nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
	}
	return cb;
}

static int session_new(struct http2 *h)
{
	nghttp2_option *options;
	int rc;

	if (nghttp2_option_new(&options) != 0)
		return -ENOMEM;
	nghttp2_option_set_no_auto_window_update(options, 1);
	nghttp2_option_set_no_closed_streams(options, 1);
	nghttp2_option_set_max_settings(options, 32);
	nghttp2_option_set_max_outbound_ack(options, HTTP2_BURST);
	nghttp2_option_set_max_send_header_block_length(options, 4 * HTTP2_HEADERS_MAX);
	nghttp2_option_set_peer_max_concurrent_streams(options, HTTP2_STREAMS_MAX);
	rc = h->server != NULL ? nghttp2_session_server_new2(&h->session, callbacks(), h, options)
			       : nghttp2_session_client_new2(&h->session, callbacks(), h, options);
	nghttp2_option_del(options);
	return rc == 0 ? 0 : -ENOMEM;
}

static int greet(struct http2 *h)
{
	const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
			h->server != NULL ? HTTP2_STREAMS_MAX : 0 },
		{ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, HTTP2_WINDOW },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP2_HEADERS_MAX },
		{ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
	};

	/* a server must not say ENABLE_PUSH */
	if (nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings,
		    ARRAY_SIZE(settings) - (h->server != NULL ? 1 : 0)) != 0)
		return -ENOMEM;
	return nghttp2_session_set_local_window_size(
		h->session, NGHTTP2_FLAG_NONE, 0, HTTP2_CONN_WINDOW);
}

struct http2 *http2_new(struct wire *w, const struct http2_server *server)
{
	struct http2 *h = xnew(struct http2);
	uint64_t now = clock_now_ns();

	*h = (struct http2){ .w = w,
		.server = server,
		.out = BUF_INIT(OUT_MAX),
		.frames = { HTTP2_BURST, HTTP2_BURST, now },
		.resets = { HTTP2_BURST_RESETS, HTTP2_BURST_RESETS, now },
		.write_deadline_ns = server != NULL && server->write_ns != 0 ? server->write_ns
									     : 60 * NS_PER_S };
	list_init(&h->streams);
	waiters_init(&h->released);
	if (session_new(h) < 0 || greet(h) != 0) {
		http2_free(h);
		return NULL;
	}
	return h;
}

void http2_free(struct http2 *h)
{
	BUG_ON(h->n_streams > 0);
	nghttp2_session_del(h->session);
	buf_free(&h->out);
	free(h);
}

/* What the host would not take yet would wait for one of the others to end. */
static size_t streams_max(const struct http2 *h)
{
	uint32_t takes = nghttp2_session_get_remote_settings(
		h->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);

	return takes < HTTP2_STREAMS_MAX ? takes : HTTP2_STREAMS_MAX;
}

bool http2_usable(const struct http2 *h)
{
	return !h->dead && !h->ending && h->n_streams < streams_max(h) &&
	       nghttp2_session_check_request_allowed(h->session) != 0;
}

size_t http2_streams(const struct http2 *h)
{
	return h->n_streams;
}

struct channel *http2_request(struct http2 *h)
{
	struct stream2 *s = stream2_new(h, -1);

	stream2_hold(s);
	return &s->ch;
}

void http2_release(struct channel *c)
{
	stream2_release(container_of(c, struct stream2, ch));
}

void http2_end(struct http2 *h)
{
	h->ending = true;
	if (h->n_streams == 0)
		wire_stop_reading(h->w);
}
