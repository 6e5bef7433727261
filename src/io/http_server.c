/* SPDX-License-Identifier: Apache-2.0 */
#include "io/http_server.h"
#include "base/ablate.h"
#include "base/log.h"
#include "base/str.h"

#include <llhttp.h>
#include <poll.h>
#include <strings.h>

#define CONNS_MAX       4096
#define RESERVE         16 /* descriptors for what is done for those who are connected */
#define HEAD_TIMEOUT_NS (30 * NS_PER_S)
#define LINGER_NS       (2 * NS_PER_S)
#define WRITE_HIGH      (1U << 20)
#define BODY_STEP       65536U

struct http_conn {
	struct stream s;
	struct http_server *srv;
	uid_t uid;
	gid_t gid;
	pid_t pid;
	llhttp_t parser;
	char *head_bytes; /* the head's own copy: @head points into it */
	struct httphead head;
	struct buf body; /* decoded, not taken yet */
	bool body_done;
	bool body_failed;
	bool expect_continue;
	bool replied, chunked, ended, upgraded, close_after;
};

static int on_body(llhttp_t *p, const char *at, size_t n)
{
	struct http_conn *c = p->data;

	buf_add(&c->body, at, n);
	return buf_failed(&c->body) ? HPE_USER : 0;
}

static int on_message_complete(llhttp_t *p)
{
	struct http_conn *c = p->data;

	c->body_done = true;
	return HPE_PAUSED;
}

static const llhttp_settings_t *parser_settings(void)
{
	static llhttp_settings_t settings;

	if (settings.on_body == NULL) {
		llhttp_settings_init(&settings);
		settings.on_body = on_body;
		settings.on_message_complete = on_message_complete;
	}
	return &settings;
}

const struct httphead *http_head(const struct http_conn *conn)
{
	return &conn->head;
}

struct stream *http_stream(struct http_conn *conn)
{
	return &conn->s;
}

uid_t http_peer_uid(const struct http_conn *conn)
{
	return conn->uid;
}

pid_t http_peer_pid(const struct http_conn *conn)
{
	return conn->pid;
}

gid_t http_peer_gid(const struct http_conn *conn)
{
	return conn->gid;
}

bool http_replied(const struct http_conn *conn)
{
	return conn->replied;
}

static const char *reason_phrase(int status)
{
	static const struct {
		int status;
		const char *text;
	} phrases[] = { { 101, "Switching Protocols" }, { 200, "OK" }, { 201, "Created" },
		{ 204, "No Content" }, { 400, "Bad Request" }, { 401, "Unauthorized" },
		{ 403, "Forbidden" }, { 404, "Not Found" }, { 405, "Method Not Allowed" },
		{ 409, "Conflict" }, { 410, "Gone" }, { 413, "Content Too Large" },
		{ 422, "Unprocessable Content" }, { 429, "Too Many Requests" },
		{ 500, "Internal Server Error" }, { 501, "Not Implemented" },
		{ 503, "Service Unavailable" }, { 504, "Gateway Timeout" },
		{ 507, "Insufficient Storage" } };

	for (size_t i = 0; i < ARRAY_SIZE(phrases); i++) {
		if (phrases[i].status == status)
			return phrases[i].text;
	}
	return "Unknown";
}

static void head_begin(
	struct http_conn *c, struct buf *out, int status, const char *type, const char *headers)
{
	BUG_ON(c->replied);
	c->replied = true;
	buf_fmt(out, "HTTP/1.1 %d %s\r\n", status, reason_phrase(status));
	if (type != NULL)
		buf_fmt(out, "Content-Type: %s\r\n", type);
	if (headers != NULL)
		buf_str(out, headers);
	if (c->close_after && status != 101)
		buf_str(out, "Connection: close\r\n");
	if (!ablated("answer_headers"))
		buf_str(out, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
}

/* Its answer says how long it would be, and is not that long: what came behind would be read as the next one. */
static bool is_head(const struct http_conn *c)
{
	return c->head.method.n == 4 && memcmp(c->head.method.p, "HEAD", 4) == 0;
}

void http_reply(struct http_conn *conn, int status, const char *type, const char *headers,
	const void *body, size_t n)
{
	cleanup_buf struct buf out = BUF_INIT(SIZE_MAX / 2);

	if (!conn->body_done)
		conn->close_after = true; /* what is left of the body is not read */
	head_begin(conn, &out, status, type, headers);
	if (status != 204)
		buf_fmt(&out, "Content-Length: %zu\r\n", n);
	buf_str(&out, "\r\n");
	if (!is_head(conn))
		buf_add(&out, body, n);
	stream_write(&conn->s, out.p, out.n);
	conn->ended = true;
}

void http_begin(struct http_conn *conn, int status, const char *type, const char *headers)
{
	cleanup_buf struct buf out = BUF_INIT(65536);

	head_begin(conn, &out, status, type, headers);
	buf_str(&out, "Transfer-Encoding: chunked\r\n\r\n");
	conn->chunked = true;
	stream_write(&conn->s, out.p, out.n);
}

static enum stream_patience patience(const void *ctx)
{
	const struct http_conn *c = ctx;

	return c->srv->ending ? STREAM_WAITS_TAKEN : STREAM_WAITS;
}

/* Until the peer has taken enough. */
static int write_drain(struct http_conn *c, size_t limit)
{
	int rc = stream_drain_slowly(&c->s, limit, patience, c);

	if (rc == -ETIMEDOUT)
		c->s.error = rc; /* nor does anybody wait for the rest */
	return rc;
}

int http_taken(struct http_conn *conn)
{
	return write_drain(conn, 0);
}

int http_write(struct http_conn *conn, const void *p, size_t n)
{
	char size[24];

	if (n == 0)
		return conn->s.error;
	(void)snprintf(size, sizeof(size), "%zx\r\n", n);
	stream_write(&conn->s, size, strlen(size));
	stream_write(&conn->s, p, n);
	stream_write(&conn->s, "\r\n", 2);
	return write_drain(conn, WRITE_HIGH);
}

void http_end(struct http_conn *conn)
{
	stream_write(&conn->s, "0\r\n\r\n", 5);
	conn->ended = true;
}

void http_upgrade(struct http_conn *conn, const char *protocol)
{
	cleanup_buf struct buf out = BUF_INIT(65536);

	head_begin(conn, &out, 101, NULL, NULL);
	buf_fmt(&out, "Connection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol);
	conn->upgraded = true;
	stream_write(&conn->s, out.p, out.n);
}

/* Feed what was received to llhttp, at most a step at a time. */
static int body_feed(struct http_conn *c)
{
	size_t n = c->s.in.n < BODY_STEP ? c->s.in.n : BODY_STEP;
	llhttp_errno_t rc = llhttp_execute(&c->parser, c->s.in.p, n);

	if (rc == HPE_OK) {
		stream_consume(&c->s, n);
		return 0;
	}
	if ((rc == HPE_PAUSED || rc == HPE_PAUSED_UPGRADE) && c->body_done) {
		stream_consume(&c->s, (size_t)(llhttp_get_error_pos(&c->parser) - c->s.in.p));
		return 0;
	}
	c->body_failed = true;
	return -EBADMSG;
}

/* Some send nothing of a body before they have heard that it is wanted. */
static void say_continue(struct http_conn *c)
{
	if (c->expect_continue && !c->body_done)
		stream_write(&c->s, "HTTP/1.1 100 Continue\r\n\r\n", 25);
	c->expect_continue = false;
}

bool http_body_waits(struct http_conn *conn)
{
	say_continue(conn);
	return conn->body.n == 0 && !conn->body_done && !conn->body_failed && conn->s.in.n == 0 &&
	       !conn->s.eof;
}

/* Until more has come; of a server that ends, only while anything comes. */
static int fill(struct http_conn *c)
{
	uint64_t deadline = clock_now_ns() + HTTP_IDLE_NS;
	bool late = false;
	int rc;

	while ((rc = stream_fill(&c->s, clock_now_ns() + STREAM_STALL_NS)) == -ETIMEDOUT &&
		clock_now_ns() < deadline) {
		if (late)
			return -ESHUTDOWN;
		late = c->srv->ending;
	}
	return rc > 0 ? 0 : -EPIPE;
}

ssize_t http_body_read(struct http_conn *conn, struct buf *out)
{
	size_t n;
	int rc;

	say_continue(conn);
	while (conn->body.n == 0 && !conn->body_done) {
		if (conn->body_failed)
			return -EBADMSG;
		if (conn->s.in.n == 0) {
			rc = fill(conn);
			if (rc < 0)
				return rc;
		}
		rc = body_feed(conn);
		if (rc < 0)
			return rc;
	}
	n = conn->body.n;
	buf_add(out, conn->body.p, n);
	buf_reset(&conn->body);
	return buf_failed(out) ? -EMSGSIZE : (ssize_t)n;
}

int http_body_all(struct http_conn *conn, struct buf *out)
{
	ssize_t n;

	if (conn->head.has_length && conn->head.length > out->max)
		return -EMSGSIZE;
	do
		n = http_body_read(conn, out);
	while (n > 0);
	return (int)n;
}

static void refuse(struct http_conn *c, enum err_code code, const char *reason)
{
	cleanup_buf struct buf body = BUF_INIT(4096);

	c->close_after = true;
	buf_fmt(&body, "{\"error\":{\"code\":\"%s\",\"message\":\"%s\",\"hint\":\"\"}}\n",
		err_code_name(code), reason);
	http_reply(c, err_code_http(code), "application/json", NULL, body.p, body.n);
}

/* Wait for a whole head. Return: its size, 0 when the peer left, -errno. */
static ssize_t wait_head(struct http_conn *c)
{
	uint64_t deadline = clock_now_ns() + HTTP_IDLE_NS;
	bool begun = false;

	for (;;) {
		ssize_t n = httphead_size(c->s.in.p, c->s.in.n);

		if (n != 0)
			return n;
		if (c->s.in.n > 0 && !begun) {
			begun = true;
			deadline = clock_now_ns() + HEAD_TIMEOUT_NS;
		}
		if (stream_fill(&c->s, deadline) <= 0)
			return 0;
	}
}

static bool host_is_ours(struct httphead_text host)
{
	static const char *const ours[] = { "cay", "localhost", "127.0.0.1", "[::1]" };

	for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
		size_t n = strlen(ours[i]);

		if (host.n < n || strncasecmp(host.p, ours[i], n) != 0)
			continue;
		if (host.n == n)
			return true;
		/* a port */
		if (host.p[n] == ':' && host.n - n <= 6 &&
			strspn(host.p + n + 1, "0123456789") >= host.n - n - 1)
			return true;
	}
	return false;
}

/* A web page whose name was made to lead here still sends that name, and says where it came from. Return: the reason, or NULL. */
static const char *why_foreign(const struct httphead *h)
{
	if (ablated("host_header"))
		return NULL;
	if (!host_is_ours(httphead_get(h, "Host")))
		return "the Host header must be 'cay' or 'localhost', as in http://localhost/v1/version";
	if (httphead_get(h, "Origin").p != NULL)
		return "requests of web pages are not served";
	return NULL;
}

static bool request_read(struct http_conn *c, size_t n)
{
	const char *reason = "malformed request";
	llhttp_errno_t rc;
	int parsed;

	free(c->head_bytes);
	c->head_bytes = malloc(n + 1);
	if (c->head_bytes == NULL)
		abort();
	memcpy(c->head_bytes, c->s.in.p, n);
	c->head = (struct httphead){ 0 };
	stream_consume(&c->s, n);
	buf_reset(&c->body);
	c->body_done = c->body_failed = c->replied = c->chunked = c->ended = false;
	parsed = httphead_parse(c->head_bytes, n, &c->head, &reason);
	if (parsed < 0) {
		refuse(c, parsed == -EMSGSIZE ? ERR_TOO_LARGE : ERR_INVALID, reason);
		return false;
	}
	reason = why_foreign(&c->head);
	if (reason != NULL) {
		refuse(c, ERR_DENIED, reason);
		return false;
	}
	llhttp_init(&c->parser, HTTP_REQUEST, parser_settings());
	c->parser.data = c;
	rc = llhttp_execute(&c->parser, c->head_bytes, n);
	if (rc == HPE_INVALID_METHOD) {
		/* well-formed, and one that no route has: the handler says so. Nobody knows what a body behind it means */
		c->close_after = c->body_done = true;
		return true;
	}
	if (rc != HPE_OK && !((rc == HPE_PAUSED || rc == HPE_PAUSED_UPGRADE) && c->body_done)) {
		refuse(c, ERR_INVALID, "malformed request");
		return false;
	}
	c->close_after = c->head.close;
	c->expect_continue = c->head.expect_continue;
	return true;
}

static void conn_closed(struct stream *s)
{
	struct http_conn *c = container_of(s, struct http_conn, s);

	c->srv->n_conns--;
	buf_free(&c->body);
	free(c->head_bytes);
	free(c);
}

static void conn_main(void *arg)
{
	struct http_conn *c = arg;

	for (;;) {
		ssize_t n = wait_head(c);

		if (n == -EMSGSIZE) {
			c->replied = false;
			refuse(c, ERR_TOO_LARGE, "the request head is too large");
		}
		if (n <= 0 || !request_read(c, (size_t)n))
			break;
		c->srv->handler(c, c->srv->ctx);
		/* who still reads is not idle, and nothing is closed under him; who asks on and on and reads no answer would have them all kept here */
		if (http_taken(c) < 0 || !c->ended || c->upgraded || c->close_after ||
			!c->body_done)
			break;
	}
	if (c->upgraded || c->close_after)
		stream_finish(&c->s, clock_now_ns() + LINGER_NS);
	stream_close(&c->s, conn_closed);
}

/* The kernel gives the lowest number that is free. */
static bool is_among_the_last(const struct http_conn *c)
{
	uv_os_fd_t fd = -1;

	(void)uv_fileno((const uv_handle_t *)&c->s.pipe, &fd);
	return (rlim_t)fd + RESERVE >= c->srv->descriptors;
}

/* libuv closes without a word whom it has no descriptor for; so nobody has the last ones for longer than it takes to say so. */
static bool refuse_crowd(struct http_conn *c)
{
	bool scarce = is_among_the_last(c);

	if (!scarce && c->srv->n_conns <= CONNS_MAX)
		return false;
	if (scarce && !c->srv->told)
		log_warn("http",
			"connections are refused: the server may have only %llu descriptors (ulimit -n, LimitNOFILE)",
			(unsigned long long)c->srv->descriptors);
	c->srv->told |= scarce;
	refuse(c, ERR_LIMIT,
		scarce ? "the server has no descriptors left for more connections"
		       : "too many connections");
	if (c->srv->crowded != NULL)
		c->srv->crowded(c->srv->ctx);
	return true;
}

static void on_connection(uv_stream_t *listener, int status)
{
	struct http_server *srv = listener->data;
	struct http_conn *c;

	if (status < 0)
		return;
	c = xnew(struct http_conn);
	c->srv = srv;
	c->body = (struct buf)BUF_INIT(BODY_STEP * 2);
	srv->n_conns++;
	if (stream_accept(&c->s, listener) < 0 ||
		stream_peer(&c->s, &c->uid, &c->gid, &c->pid) < 0) {
		stream_close(&c->s, conn_closed);
		return;
	}
	if (srv->admit != NULL && !ablated("peer_credentials") && !srv->admit(srv->ctx, c)) {
		refuse(c, ERR_DENIED, "this user may not use this server");
		stream_close(&c->s, conn_closed);
		return;
	}
	if (refuse_crowd(c)) {
		stream_close(&c->s, conn_closed);
		return;
	}
	fiber_start(conn_main, c);
}

int http_listen(struct http_server *srv, uv_loop_t *loop, int fd)
{
	struct rlimit limit = { .rlim_cur = RLIM_INFINITY };
	int rc;

	(void)getrlimit(RLIMIT_NOFILE, &limit);
	srv->descriptors = limit.rlim_cur;
	srv->loop = loop;
	(void)uv_pipe_init(loop, &srv->listener, 0);
	srv->listener.data = srv;
	rc = uv_pipe_open(&srv->listener, fd);
	if (rc < 0)
		return rc;
	return uv_listen((uv_stream_t *)&srv->listener, 512, on_connection);
}

bool http_backlog(const struct http_server *srv)
{
	struct pollfd p = { .events = POLLIN };

	return uv_fileno((const uv_handle_t *)&srv->listener, &p.fd) == 0 && poll(&p, 1, 0) > 0;
}

void http_listen_end(struct http_server *srv)
{
	srv->ending = true;
	uv_close((uv_handle_t *)&srv->listener, NULL);
}
