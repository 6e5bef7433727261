/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: io/unix_http_client.h - an HTTP/1.1 client on a unix socket, one request at a time, blocking with deadlines by poll(2).
 *
 * A connection is kept for the next request while the server keeps it. An upgraded connection becomes a stream of bytes: its
 * descriptor and what was already received are taken over.
 */
#ifndef CAY_IO_UNIX_HTTP_CLIENT_H
#define CAY_IO_UNIX_HTTP_CLIENT_H

#include "base/buf.h"
#include "base/err.h"
#include "codec/http_response.h"

struct http_client {
	char *path;    /* of the socket; owned */
	int fd;        /* -1 when not connected */
	struct buf in; /* received, not used yet */
	size_t used;   /* of @in */
	struct http_response response;
	struct buf head; /* copy of the head that @response points into */
	struct http_body_reader body;
};

/** http_client_init() - @path: of the socket, copied. Connects to nothing yet. */
void http_client_init(struct http_client *c, const char *path);

/** http_client_fini() - close and free. */
void http_client_fini(struct http_client *c);

/** http_client_close() - close the connection, whatever was under way; the next request opens a new one. */
void http_client_close(struct http_client *c);

/** http_client_connect() - connect unless connected. Return: 0, -ENOENT, -ECONNREFUSED, another -errno. */
int http_client_connect(struct http_client *c) attr_must_use;

/** http_client_send() - write all bytes; -EPIPE when the server has closed. Blocks. */
int http_client_send(struct http_client *c, const void *p, size_t n) attr_must_use;

/**
 * http_client_request() - send a request with its whole body.
 * @method, @target: as on the wire (@target percent-encoded).
 * @headers: further header lines, each with CRLF; NULL for none.
 * @type: Content-Type of the body; NULL when there is no body.
 * @body, @n: the body.
 *
 * Return: 0 or -errno.
 */
int http_client_request(struct http_client *c, const char *method, const char *target,
	const char *headers, const char *type, const void *body, size_t n) attr_must_use;

/** http_client_response() - wait for the head of the response (@c->response). @timeout_ms: negative waits for ever. Return: 0, -ETIMEDOUT, -ECONNRESET, -EBADMSG. */
int http_client_response(struct http_client *c, int timeout_ms) attr_must_use;

/**
 * http_client_body() - the next piece of the response's body; blocks.
 * @ret: points into the client's buffer, good until the next call.
 * Return: its size; 0 at the end of the body; -ECONNRESET when the connection ended first; -EBADMSG.
 */
ssize_t http_client_body(struct http_client *c, const char **ret) attr_must_use;

/** http_client_body_all() - append the rest of the body to @out (bounded by its maximum: -EMSGSIZE). */
int http_client_body_all(struct http_client *c, struct buf *out) attr_must_use;

/** http_client_upgraded() - after 101: take the descriptor and append what was received after the head to @rest. */
int http_client_upgraded(struct http_client *c, struct buf *rest) attr_must_use;

/** http_target_escape() - append a path segment or query value, percent-encoded. */
void http_target_escape(struct buf *out, const char *s);

#endif
