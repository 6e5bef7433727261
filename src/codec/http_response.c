/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/http_response.h"
#include "base/str.h"

#include <string.h>
#include <strings.h>

enum {
	CHUNK_SIZE,
	CHUNK_EXTENSION,
	CHUNK_SIZE_LF,
	CHUNK_DATA,
	CHUNK_DATA_CR,
	CHUNK_DATA_LF,
	CHUNK_TRAILER_BEGIN,
	CHUNK_TRAILER,
	CHUNK_TRAILER_LF,
	CHUNK_END_LF
};

/* "HTTP/1.1 200 …" */
static int parse_status_line(const char *p, size_t n, struct http_response *r)
{
	int status = 0;

	if (n < 12 || memcmp(p, "HTTP/1.", 7) != 0 || (p[7] != '1' && p[7] != '0') || p[8] != ' ' ||
		(n > 12 && p[12] != ' '))
		return -EBADMSG;
	for (size_t i = 12; i < n; i++) {
		if (((unsigned char)p[i] < 0x20 && p[i] != '\t') || p[i] == 0x7F)
			return -EBADMSG;
	}
	for (size_t i = 9; i < 12; i++) {
		if (p[i] < '0' || p[i] > '9')
			return -EBADMSG;
		status = status * 10 + (p[i] - '0');
	}
	if (status < 100)
		return -EBADMSG;
	r->status = status;
	r->minor = p[7] == '1';
	r->close = r->minor == 0;
	return 0;
}

static bool is_token(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* Name and value of a header line; -EBADMSG when it is none. */
static int parse_line(
	const char *p, size_t n, size_t *ret_name, const char **ret_value, size_t *ret_value_n)
{
	size_t name = 0, from, to = n;

	while (name < n && is_token(p[name]))
		name++;
	if (name == 0 || name == n || p[name] != ':')
		return -EBADMSG;
	for (size_t i = name; i < n; i++) {
		if (((unsigned char)p[i] < 0x20 && p[i] != '\t') || p[i] == 0x7F)
			return -EBADMSG;
	}
	for (from = name + 1; from < n && (p[from] == ' ' || p[from] == '\t');)
		from++;
	while (to > from && (p[to - 1] == ' ' || p[to - 1] == '\t'))
		to--;
	*ret_name = name;
	*ret_value = p + from;
	*ret_value_n = to - from;
	return 0;
}

static int parse_length(const char *p, size_t n, uint64_t *ret)
{
	uint64_t v = 0;

	if (n == 0 || n > 18)
		return -EBADMSG;
	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return -EBADMSG;
		v = v * 10 + (uint64_t)(p[i] - '0');
	}
	*ret = v;
	return 0;
}

static bool same(const char *p, size_t n, const char *word)
{
	return strlen(word) == n && strncasecmp(p, word, n) == 0;
}

/* Is @word in the list @p? Apache says "Upgrade, close". */
static bool lists(const char *p, size_t n, const char *word)
{
	for (size_t i = 0; i < n;) {
		size_t from = i, to;

		while (i < n && p[i] != ',')
			i++;
		for (to = i; from < to && (p[from] == ' ' || p[from] == '\t');)
			from++;
		while (to > from && (p[to - 1] == ' ' || p[to - 1] == '\t'))
			to--;
		if (same(p + from, to - from, word))
			return true;
		i++;
	}
	return false;
}

/* Takes one header into account. */
static int note_header(struct http_response *r, bool *framed, const char *line, size_t name,
	const char *value, size_t n)
{
	bool length = same(line, name, "content-length");

	if (same(line, name, "connection")) {
		if (lists(value, n, "close"))
			r->close = true;
		else if (lists(value, n, "keep-alive"))
			r->close = false;
		return 0;
	}
	if (!length && !same(line, name, "transfer-encoding"))
		return 0;
	if (*framed)
		return -EBADMSG;
	*framed = true;
	if (length) {
		r->body = HTTP_BODY_LENGTH;
		return parse_length(value, n, &r->length);
	}
	r->body = HTTP_BODY_CHUNKED;
	return r->minor == 1 && same(value, n, "chunked") ? 0 : -EBADMSG;
}

bool http_status_bodiless(int status)
{
	return status < 200 || status == 204 || status == 304;
}

static int parse_lines(struct http_response *r, const char *p, size_t n)
{
	bool first = true, framed = false;

	r->body = HTTP_BODY_UNTIL_CLOSE;
	for (size_t i = 0; i < n;) {
		const char *cr = memchr(p + i, '\r', n - i), *value;
		size_t len, name, value_n;
		int rc;

		if (cr == NULL || cr[1] != '\n' ||
			memchr(p + i, '\n', (size_t)(cr - p) - i) != NULL)
			return -EBADMSG;
		len = (size_t)(cr - p) - i;
		if (len == 0)
			break;
		rc = first ? parse_status_line(p + i, len, r)
			   : parse_line(p + i, len, &name, &value, &value_n);
		if (rc == 0 && !first)
			rc = note_header(r, &framed, p + i, name, value, value_n);
		if (rc < 0)
			return rc;
		first = false;
		i += len + 2;
	}
	if (first)
		return -EBADMSG;
	if (http_status_bodiless(r->status))
		r->body = HTTP_BODY_NONE;
	return 0;
}

ssize_t http_response_parse(const char *p, size_t n, struct http_response *ret)
{
	const char *end = memmem(p, n, "\r\n\r\n", 4);
	int rc;

	if (end == NULL)
		return n >= HTTP_RESPONSE_HEAD_MAX ? -EMSGSIZE : 0;
	n = (size_t)(end - p) + 4;
	if (n > HTTP_RESPONSE_HEAD_MAX)
		return -EMSGSIZE;
	*ret = (struct http_response){ .head = p, .head_size = n };
	rc = parse_lines(ret, p, n);
	return rc < 0 ? rc : (ssize_t)n;
}

bool http_lines_next(const char *p, size_t n, size_t *at, const char **ret_name, size_t *ret_name_n,
	const char **ret_value, size_t *ret_value_n)
{
	const char *line = p + *at, *cr = *at < n ? memchr(line, '\r', n - *at) : NULL;

	if (cr == NULL || cr == line ||
		parse_line(line, (size_t)(cr - line), ret_name_n, ret_value, ret_value_n) < 0)
		return false;
	*ret_name = line;
	*at += (size_t)(cr - line) + 2;
	return true;
}

const char *http_response_header(const struct http_response *r, const char *name, size_t *ret_n)
{
	const char *p = memchr(r->head, '\n', r->head_size), *end = r->head + r->head_size;

	for (p = p != NULL ? p + 1 : end; p < end;) {
		const char *cr = memchr(p, '\r', (size_t)(end - p)), *value;
		size_t n;

		if (cr == NULL || cr == p)
			return NULL;
		if (parse_line(p, (size_t)(cr - p), &n, &value, ret_n) == 0 && same(p, n, name))
			return value;
		p = cr + 2;
	}
	return NULL;
}

void http_body_begin_as(
	struct http_body_reader *b, enum http_body kind, uint64_t length, struct buf *trailers)
{
	*b = (struct http_body_reader){ .kind = kind, .state = CHUNK_SIZE, .trailers = trailers };
	if (kind == HTTP_BODY_LENGTH)
		b->left = length;
	b->done = kind == HTTP_BODY_NONE || (kind == HTTP_BODY_LENGTH && length == 0);
}

void http_body_begin(struct http_body_reader *b, const struct http_response *r)
{
	http_body_begin_as(b, r->body, r->length, NULL);
}

static int size_byte(struct http_body_reader *b, char c)
{
	if (c == '\r' && b->digits > 0) {
		b->state = CHUNK_SIZE_LF;
		return 0;
	}
	if (c == ';' && b->digits > 0) {
		b->state = CHUNK_EXTENSION;
		b->extension = 0;
		return 0;
	}
	if (str_hex_digit(c) < 0 || b->digits == 15)
		return -EBADMSG;
	b->left = b->left * 16 + (uint64_t)str_hex_digit(c);
	b->digits++;
	return 0;
}

static int extension_byte(struct http_body_reader *b, char c)
{
	if (c == '\r')
		b->state = CHUNK_SIZE_LF;
	else if (((unsigned char)c < 0x20 && c != '\t') || c == 0x7F ||
		 ++b->extension > HTTP_EXTENSION_MAX)
		return -EBADMSG;
	return 0;
}

/* The lines are kept as they come; what they say is checked line by line. */
static int trailer_byte(struct http_body_reader *b, char c)
{
	if (b->trailers == NULL || b->trailers->n >= HTTP_TRAILERS_MAX || c == '\n' || c == '\0')
		return -EBADMSG;
	buf_char(b->trailers, c);
	b->state = c == '\r' ? CHUNK_TRAILER_LF : CHUNK_TRAILER;
	return buf_failed(b->trailers) ? -EBADMSG : 0;
}

static int trailer_line_end(struct http_body_reader *b, char c)
{
	const char *text, *value;
	size_t end = b->trailers->n - 1, from = end, name, value_n;

	buf_char(b->trailers, c);
	if (c != '\n' || buf_failed(b->trailers))
		return -EBADMSG;
	text = b->trailers->p; /* only now: appending may have moved it */
	while (from > 0 && text[from - 1] != '\n')
		from--;
	b->state = CHUNK_TRAILER_BEGIN;
	return parse_line(text + from, end - from, &name, &value, &value_n);
}

/* One byte between the data of chunks. */
static int chunk_byte(struct http_body_reader *b, char c)
{
	switch (b->state) {
	case CHUNK_SIZE:
		return size_byte(b, c);
	case CHUNK_EXTENSION:
		return extension_byte(b, c);
	case CHUNK_SIZE_LF:
		b->state = b->left > 0 ? CHUNK_DATA : CHUNK_TRAILER_BEGIN;
		return c == '\n' ? 0 : -EBADMSG;
	case CHUNK_DATA_CR:
		b->state = CHUNK_DATA_LF;
		return c == '\r' ? 0 : -EBADMSG;
	case CHUNK_DATA_LF:
		b->state = CHUNK_SIZE;
		b->digits = 0;
		return c == '\n' ? 0 : -EBADMSG;
	case CHUNK_TRAILER_BEGIN:
		if (c != '\r')
			return trailer_byte(b, c);
		b->state = CHUNK_END_LF;
		return 0;
	case CHUNK_TRAILER:
		return trailer_byte(b, c);
	case CHUNK_TRAILER_LF:
		return trailer_line_end(b, c);
	case CHUNK_END_LF:
		b->done = true;
		return c == '\n' ? 0 : -EBADMSG;
	default:
		return -EBADMSG;
	}
}

ssize_t http_body_next(struct http_body_reader *b, const char *p, size_t n, const char **ret_piece,
	size_t *ret_size)
{
	size_t used = 0;

	*ret_piece = p;
	*ret_size = 0;
	if (b->done || n == 0)
		return 0;
	if (b->kind == HTTP_BODY_UNTIL_CLOSE) {
		*ret_size = n;
		return (ssize_t)n;
	}
	while (b->kind == HTTP_BODY_CHUNKED && b->state != CHUNK_DATA && used < n && !b->done) {
		int rc = chunk_byte(b, p[used++]);

		if (rc < 0)
			return rc;
	}
	if (b->done || used == n)
		return (ssize_t)used;
	*ret_piece = p + used;
	*ret_size = n - used < b->left ? n - used : (size_t)b->left;
	b->left -= *ret_size;
	used += *ret_size;
	if (b->left == 0 && b->kind == HTTP_BODY_CHUNKED)
		b->state = CHUNK_DATA_CR;
	b->done = b->left == 0 && b->kind == HTTP_BODY_LENGTH;
	return (ssize_t)used;
}
