/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/http_response.h - HTTP/1.1 responses, read strictly: the head as a whole, the body piece by piece.
 *
 * Pure. Refuses what two readers could understand differently: bare LF in the head, folded lines, both Content-Length and
 * Transfer-Encoding, codings other than one `chunked`, bare CR or LF around chunks. Extensions of chunks are skipped, trailers are kept when asked for.
 * The body reader serves requests too. Source: RFC 9112 sections 4 to 7.
 */
#ifndef CAY_CODEC_HTTP_RESPONSE_H
#define CAY_CODEC_HTTP_RESPONSE_H

#include "base/buf.h"

#define HTTP_RESPONSE_HEAD_MAX 32768
#define HTTP_TRAILERS_MAX      8192
#define HTTP_EXTENSION_MAX     256 /* of one chunk */

enum http_body { HTTP_BODY_NONE, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED, HTTP_BODY_UNTIL_CLOSE };

/** struct http_response - a head; @head points into the bytes that were parsed. */
struct http_response {
	int status;
	enum http_body body;
	uint64_t length;    /* of %HTTP_BODY_LENGTH */
	unsigned int minor; /* version: HTTP/1.minor */
	bool close;         /* the server closes the connection afterwards */
	const char *head;
	size_t head_size;
};

/** http_status_bodiless() - does an answer with @status never have a body, whatever its head says (RFC 9112 6.3)? */
bool http_status_bodiless(int status);

/**
 * http_response_parse() - read the head of a response.
 * @p: bytes received so far. @n: how many. @ret: set when the head is whole.
 *
 * Return: size of the head; 0 when more bytes are needed; -EBADMSG; -EMSGSIZE when it is larger than %HTTP_RESPONSE_HEAD_MAX.
 */
ssize_t http_response_parse(const char *p, size_t n, struct http_response *ret) attr_must_use;

/** http_response_header() - value of header @name (compared without case), its size in @ret_n; NULL when it is missing. */
const char *http_response_header(const struct http_response *r, const char *name, size_t *ret_n);

/**
 * http_lines_next() - walk the header lines of a head that was parsed, or of trailers.
 * @at: 0 at first; in a head, behind the first line. Names and values point into @p.
 * Return: true, or false after the last.
 */
bool http_lines_next(const char *p, size_t n, size_t *at, const char **ret_name, size_t *ret_name_n,
	const char **ret_value, size_t *ret_value_n);

/** struct http_body_reader - where in a body the reader stands. */
struct http_body_reader {
	enum http_body kind;
	uint64_t left; /* bytes of the body or of the present chunk */
	unsigned char state;
	unsigned char digits;
	uint16_t extension; /* bytes of the present chunk's */
	struct buf *
		trailers; /* receives the trailer lines, each with its CR LF; NULL: trailers are refused */
	bool done;
};

/** http_body_begin() - stand at the beginning of the body of @r. */
void http_body_begin(struct http_body_reader *b, const struct http_response *r);

/** http_body_begin_as() - the same for any message. @length: of %HTTP_BODY_LENGTH. @trailers: see struct http_body_reader; must outlive @b. */
void http_body_begin_as(
	struct http_body_reader *b, enum http_body kind, uint64_t length, struct buf *trailers);

/**
 * http_body_next() - find the next piece of the body in the bytes received.
 * @p: bytes after what was used so far. @n: how many.
 * @ret_piece, @ret_size: the piece; @ret_size is 0 when these bytes hold none. Points into @p.
 *
 * After it @b->done says whether the body has ended.
 * Return: bytes used (the piece is among them), 0 when more are needed, -EBADMSG.
 */
ssize_t http_body_next(struct http_body_reader *b, const char *p, size_t n, const char **ret_piece,
	size_t *ret_size) attr_must_use;

#endif
