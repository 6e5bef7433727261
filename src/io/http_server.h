/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: io/http_server.h - HTTP/1.1 on a unix socket, one fiber a connection.
 *
 * The head is read strictly (codec/httphead), then llhttp reads it again and the body: both must agree. One request at a time; a connection is kept alive
 * until the peer closes it, a request was malformed, or it was upgraded.
 */
#ifndef CAY_IO_HTTP_SERVER_H
#define CAY_IO_HTTP_SERVER_H

#include "base/clock.h"
#include "base/err.h"
#include "codec/httphead.h"
#include "io/stream.h"

#include <sys/resource.h>

/* A connection on which nothing comes for so long is closed. */
#define HTTP_IDLE_NS (600 * NS_PER_S)

struct http_conn;

/**
 * http_handler - answer one request: http_reply(), or http_begin() … http_end(), or http_upgrade().
 * Runs in the connection's fiber; @conn is valid until it returns.
 */
typedef void http_handler(struct http_conn *conn, void *ctx);

struct http_server {
	uv_pipe_t listener;
	uv_loop_t *loop;
	http_handler *handler;
	void *ctx;
	bool (*admit)(void *ctx, struct http_conn *conn); /* NULL = everybody */
	void (*crowded)(
		void *ctx); /* a connection was refused: let go of those whose peers have left; may be NULL */
	size_t n_conns;
	rlim_t descriptors; /* that this process may have */
	bool told;          /* that they are few */
	bool ending;        /* http_listen_end() */
};

/** http_listen() - serve on the listening socket @fd (taken over). Set handler, ctx and admit before. Return: 0 or -errno. */
int http_listen(struct http_server *srv, uv_loop_t *loop, int fd) attr_must_use;

/** http_backlog() - are there connections that were not accepted yet? */
bool http_backlog(const struct http_server *srv);

/** http_listen_end() - accept no more; connections that are there stay, but nobody waits any longer for a peer that takes, or brings, nothing for seconds. */
void http_listen_end(struct http_server *srv);

/** http_head() - the request's head; views into the connection's memory. */
const struct httphead *http_head(const struct http_conn *conn);

/** http_stream() - the stream below; for "has the peer gone" and after http_upgrade(). */
struct stream *http_stream(struct http_conn *conn);

/** http_peer_uid() - uid of the peer. */
uid_t http_peer_uid(const struct http_conn *conn);

/** http_peer_pid() - number of the process that connected, as this one sees it; 0: it cannot. */
pid_t http_peer_pid(const struct http_conn *conn);

/** http_peer_gid() - its gid. */
gid_t http_peer_gid(const struct http_conn *conn);

/**
 * http_body_all() - read the whole body into @out, whose maximum bounds it.
 * Return: 0; -EMSGSIZE too large; -EPIPE the peer left; -ESHUTDOWN the server ends, and nothing came for seconds; -EBADMSG malformed. Context: waits.
 */
int http_body_all(struct http_conn *conn, struct buf *out) attr_must_use;

/** http_body_waits() - would http_body_read() have to wait? Whoever waits in its place does so on the stream's `readable`, for %HTTP_IDLE_NS at most. */
bool http_body_waits(struct http_conn *conn);

/** http_body_read() - append the next part of the body to @out. Return: > 0 bytes, 0 at the end, -errno as above. Context: waits. */
ssize_t http_body_read(struct http_conn *conn, struct buf *out) attr_must_use;

/** http_reply() - the whole answer. @type NULL: no body. @headers: further "Name: value\r\n" lines, or NULL. */
void http_reply(struct http_conn *conn, int status, const char *type, const char *headers,
	const void *body, size_t n);

/** http_begin() - start an answer of unknown length. */
void http_begin(struct http_conn *conn, int status, const char *type, const char *headers);

/** http_write() - a part of it; waits while the peer does not read. Return: 0 or -errno (the peer has gone, or does not read and the server ends). Context: waits. */
int http_write(struct http_conn *conn, const void *p, size_t n) attr_must_use;

/** http_end() - the end of it. Not called after a failure in the middle: then the connection just closes. */
void http_end(struct http_conn *conn);

/** http_upgrade() - answer 101 and hand the stream over to the handler; the connection closes when it returns. */
void http_upgrade(struct http_conn *conn, const char *protocol);

/** http_taken() - wait until the peer has taken the answer, as http_write() does. Return: 0 or -errno. Context: waits. */
int http_taken(struct http_conn *conn) attr_must_use;

/** http_replied() - has an answer begun? */
bool http_replied(const struct http_conn *conn);

#endif
