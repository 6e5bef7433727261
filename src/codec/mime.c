/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/mime.h"
#include "base/buf.h"
#include "base/str.h"

#include <ctype.h>
#include <strings.h>

#define VALUE_MAX 16384 /* of one header */

struct text {
	const char *p;
	size_t n;
};

/* What a part says of itself; values as they came. */
struct part {
	struct buf type, encoding, disposition;
	struct text body;
	json_t *headers; /* of the message itself only */
};

/* lines */

/* The line at the beginning of @rest, without its end, which is CRLF or LF; @rest goes on behind it. */
static struct text next_line(struct text *rest)
{
	const char *lf = memchr(rest->p, '\n', rest->n);
	struct text line = { rest->p, lf != NULL ? (size_t)(lf - rest->p) : rest->n };
	size_t used = lf != NULL ? line.n + 1 : line.n;

	rest->p += used;
	rest->n -= used;
	if (line.n > 0 && line.p[line.n - 1] == '\r')
		line.n--;
	return line;
}

static struct text trimmed(struct text t)
{
	while (t.n > 0 && isspace((unsigned char)*t.p)) {
		t.p++;
		t.n--;
	}
	while (t.n > 0 && isspace((unsigned char)t.p[t.n - 1]))
		t.n--;
	return t;
}

/* encodings */

static int base64_digit(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = memchr(digits, c, 64);

	return at != NULL ? (int)(at - digits) : -1;
}

/* Everything that is no digit is skipped, as RFC 2045 section 6.8 has it. */
static void decode_base64(struct text in, struct buf *out)
{
	unsigned int bits = 0, n = 0;

	for (size_t i = 0; i < in.n && in.p[i] != '='; i++) {
		int digit = base64_digit(in.p[i]);

		if (digit < 0)
			continue;
		bits = bits << 6 | (unsigned int)digit;
		n += 6;
		if (n >= 8) {
			n -= 8;
			buf_char(out, (char)(bits >> n & 0xff));
		}
	}
}

/* @word: the form for headers (RFC 2047), where '_' is a space. */
static void decode_quoted(struct text in, bool word, struct buf *out)
{
	for (size_t i = 0; i < in.n; i++) {
		size_t left = in.n - i;
		bool hex = in.p[i] == '=' && left > 2 && str_hex_digit(in.p[i + 1]) >= 0 &&
			   str_hex_digit(in.p[i + 2]) >= 0;

		if (hex) {
			buf_char(out, (char)(str_hex_digit(in.p[i + 1]) << 4 |
					      str_hex_digit(in.p[i + 2])));
			i += 2;
		} else if (in.p[i] == '=' && !word && left > 1 && in.p[i + 1] == '\n') {
			i += 1; /* soft line break */
		} else if (in.p[i] == '=' && !word && left > 2 && in.p[i + 1] == '\r' &&
			   in.p[i + 2] == '\n') {
			i += 2;
		} else {
			buf_char(out, word && in.p[i] == '_' ? ' ' : in.p[i]);
		}
	}
}

static bool is_latin(struct text charset)
{
	static const char *const names[] = { "iso-8859-1", "latin1", "windows-1252" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (charset.n == strlen(names[i]) &&
			strncasecmp(charset.p, names[i], charset.n) == 0)
			return true;
	return false;
}

/* Bytes in @charset -> UTF-8 appended to @out. NUL and what is no text become '?'. */
static void to_utf8(struct text in, struct text charset, struct buf *out)
{
	size_t start = out->n;
	bool latin = is_latin(charset);

	for (size_t i = 0; i < in.n; i++) {
		unsigned char c = (unsigned char)in.p[i];

		if (latin && c >= 0x80) {
			buf_char(out, (char)(0xc0 | c >> 6));
			buf_char(out, (char)(0x80 | (c & 0x3f)));
		} else {
			buf_char(out, c != 0 ? (char)c : '?');
		}
	}
	if (!buf_failed(out) && out->n > start)
		str_utf8_tidy(out->p + start);
}

/* headers */

/* "=?charset?B?text?=" at the beginning of @in. Return: its length, 0 when it is none. */
static size_t encoded_word(struct text in, struct buf *out)
{
	struct buf raw = BUF_INIT(VALUE_MAX);
	const char *end = in.p + in.n, *charset = in.p + 2, *mode, *text, *close;

	if (in.n < 8 || in.p[0] != '=' || in.p[1] != '?')
		return 0;
	mode = memchr(charset, '?', (size_t)(end - charset));
	if (mode == NULL || end - mode < 5 || mode[2] != '?')
		return 0;
	text = mode + 3;
	close = memmem(text, (size_t)(end - text), "?=", 2);
	if (close == NULL || memchr("bBqQ", mode[1], 4) == NULL)
		return 0;
	if (tolower((unsigned char)mode[1]) == 'b')
		decode_base64((struct text){ text, (size_t)(close - text) }, &raw);
	else
		decode_quoted((struct text){ text, (size_t)(close - text) }, true, &raw);
	to_utf8((struct text){ raw.p, raw.n }, (struct text){ charset, (size_t)(mode - charset) },
		out);
	buf_free(&raw);
	return (size_t)(close + 2 - in.p);
}

/* Spaces between two encoded words are no part of the text (RFC 2047 section 6.2). */
static json_t *header_text(struct text value)
{
	struct buf out = BUF_INIT(VALUE_MAX);
	bool after_word = false;
	json_t *ret;

	for (size_t i = 0; i < value.n;) {
		size_t spaces = 0, used;

		while (after_word && i + spaces < value.n &&
			isspace((unsigned char)value.p[i + spaces]))
			spaces++;
		used = encoded_word(
			(struct text){ value.p + i + spaces, value.n - i - spaces }, &out);
		after_word = used > 0;
		if (after_word) {
			i += spaces + used;
		} else {
			buf_char(&out, value.p[i] != '\0' ? value.p[i] : '?');
			i++;
		}
	}
	if (out.n > 0)
		str_utf8_tidy(out.p);
	ret = json_string(buf_cstr(&out));
	buf_free(&out);
	return ret;
}

static bool is_name(struct text name, const char *want)
{
	return name.n == strlen(want) && strncasecmp(name.p, want, name.n) == 0;
}

static void take_header(struct part *part, struct text name, struct text value)
{
	static const char *const kept[] = { "Content-Type", "Content-Transfer-Encoding",
		"Content-Disposition" };
	struct buf *const places[] = { &part->type, &part->encoding, &part->disposition };

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		if (is_name(name, kept[i]) && places[i]->n == 0) {
			buf_add(places[i], value.p, value.n);
			buf_char(places[i], '\0');
		}
	}
	if (part->headers != NULL && json_array_size(part->headers) < MIME_HEADERS_MAX)
		json_array_append_new(
			part->headers, json_pack("[o, o]", header_text(name), header_text(value)));
}

/* One header with the lines that go on with it. */
static void read_header(struct part *part, struct text line, struct text *rest)
{
	const char *colon = memchr(line.p, ':', line.n);
	struct text name = { line.p, colon != NULL ? (size_t)(colon - line.p) : line.n };
	struct buf value = BUF_INIT(VALUE_MAX);

	if (colon != NULL)
		buf_add(&value, colon + 1, line.n - name.n - 1);
	while (rest->n > 0 && (*rest->p == ' ' || *rest->p == '\t')) {
		struct text more = trimmed(next_line(rest));

		buf_char(&value, ' ');
		buf_add(&value, more.p, more.n);
	}
	if (colon != NULL && value.n > 0)
		take_header(part, trimmed(name), trimmed((struct text){ value.p, value.n }));
	buf_free(&value);
}

static void part_open(struct part *part, struct text in, json_t *headers)
{
	*part = (struct part){ .type.max = VALUE_MAX,
		.encoding.max = VALUE_MAX,
		.disposition.max = VALUE_MAX,
		.headers = headers };
	while (in.n > 0) {
		struct text line = next_line(&in);

		if (line.n == 0)
			break;
		read_header(part, line, &in);
	}
	part->body = in;
}

static void part_close(struct part *part)
{
	buf_free(&part->type);
	buf_free(&part->encoding);
	buf_free(&part->disposition);
}

/* The parameter @name of a header value ("text/plain; charset=x; name=\"y\""). */
static struct text parameter(const char *value, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = strchr(value, ';'); at != NULL; at = strchr(at, ';')) {
		at += 1 + strspn(at + 1, " \t");
		if (strncasecmp(at, name, n) != 0 || at[n] != '=')
			continue;
		at += n + 1;
		if (*at == '"')
			return (struct text){ at + 1, strcspn(at + 1, "\"") };
		return (struct text){ at, strcspn(at, "; \t") };
	}
	return (struct text){ NULL, 0 };
}

static bool is_type(const struct part *part, const char *type)
{
	return strncasecmp(part->type.n > 0 ? part->type.p : "text/plain", type, strlen(type)) == 0;
}

/* bodies */

static void decode_body(const struct part *part, struct buf *out)
{
	const char *encoding = buf_cstr(&part->encoding);

	if (strcasecmp(encoding, "base64") == 0)
		decode_base64(part->body, out);
	else if (strcasecmp(encoding, "quoted-printable") == 0)
		decode_quoted(part->body, false, out);
	else
		buf_add(out, part->body.p, part->body.n);
}

static void take_text(const struct part *part, const struct buf *raw, const char *key, json_t *ret)
{
	size_t n = raw->n < MIME_TEXT_MAX ? raw->n : MIME_TEXT_MAX;
	struct buf text = BUF_INIT(2 * (size_t)MIME_TEXT_MAX + 1);

	to_utf8((struct text){ raw->p, n }, parameter(buf_cstr(&part->type), "charset"), &text);
	json_object_set_new(ret, key, json_string(buf_cstr(&text)));
	buf_free(&text);
}

static void take_attachment(const struct part *part, size_t bytes, json_t *ret)
{
	struct text name = parameter(buf_cstr(&part->disposition), "filename");
	const char *type = part->type.n > 0 ? part->type.p : "text/plain";

	if (name.p == NULL)
		name = parameter(buf_cstr(&part->type), "name");
	json_array_append_new(json_object_get(ret, "attachments"),
		json_pack("{s:o, s:o, s:I}", "name",
			name.p != NULL ? header_text(name) : json_null(), "type",
			header_text((struct text){ type, strcspn(type, "; \t") }), "bytes",
			(json_int_t)bytes));
}

static void take_leaf(const struct part *part, json_t *ret)
{
	struct buf raw = BUF_INIT(part->body.n + 1);
	bool attached = strncasecmp(buf_cstr(&part->disposition), "attachment", 10) == 0;
	const char *key = is_type(part, "text/plain")  ? "text"
			  : is_type(part, "text/html") ? "html"
						       : NULL;

	decode_body(part, &raw);
	if (key != NULL && !attached && json_is_null(json_object_get(ret, key)))
		take_text(part, &raw, key, ret);
	else
		take_attachment(part, raw.n, ret);
	buf_free(&raw);
}

static void take_part(
	struct text in, unsigned int depth, unsigned int *left, json_t *headers, json_t *ret);

/* Is @line the delimiter of @boundary? 1: the next part begins; 2: the last one has ended. */
static int delimiter(struct text line, struct text boundary)
{
	line = trimmed(line);
	if (line.n < boundary.n + 2 || memcmp(line.p, "--", 2) != 0 ||
		memcmp(line.p + 2, boundary.p, boundary.n) != 0)
		return 0;
	if (line.n == boundary.n + 2)
		return 1;
	return line.n == boundary.n + 4 && memcmp(line.p + boundary.n + 2, "--", 2) == 0 ? 2 : 0;
}

/* The end of the line before a delimiter belongs to the delimiter (RFC 2046 section 5.1.1). */
static void drop_line_end(struct text *t)
{
	t->n -= t->n > 0 && t->p[t->n - 1] == '\n';
	t->n -= t->n > 0 && t->p[t->n - 1] == '\r';
}

static void take_multipart(const struct part *part, struct text boundary, unsigned int depth,
	unsigned int *left, json_t *ret)
{
	struct text rest = part->body, open = { NULL, 0 };

	for (;;) {
		const char *at = rest.p;
		bool end = rest.n == 0;
		struct text line = next_line(&rest);
		int kind = end ? 2 : delimiter(line, boundary);

		if (kind == 0)
			continue;
		if (open.p != NULL) {
			open.n = (size_t)(at - open.p);
			drop_line_end(&open);
			take_part(open, depth + 1, left, NULL, ret);
		}
		if (kind == 2)
			return;
		open = rest;
	}
}

static void take_part(
	struct text in, unsigned int depth, unsigned int *left, json_t *headers, json_t *ret)
{
	struct text boundary;
	struct part part;

	if (*left == 0)
		return;
	--*left;
	part_open(&part, in, headers);
	boundary = parameter(buf_cstr(&part.type), "boundary");
	if (is_type(&part, "multipart/") && boundary.n > 0 && depth < MIME_DEPTH)
		take_multipart(&part, boundary, depth, left, ret);
	else
		take_leaf(&part, ret);
	part_close(&part);
}

/* The first header of that name, or null. */
static json_t *first(const json_t *headers, const char *name)
{
	size_t i;
	const json_t *h;

	json_array_foreach ((json_t *)(uintptr_t)headers, i, h)
		if (strcasecmp(json_string_value(json_array_get(h, 0)), name) == 0)
			return json_incref(json_array_get(h, 1));
	return json_null();
}

json_t *mime_parse(const char *p, size_t n)
{
	static const char *const names[][2] = { { "from", "From" }, { "to", "To" }, { "cc", "Cc" },
		{ "reply_to", "Reply-To" }, { "subject", "Subject" }, { "date", "Date" },
		{ "message_id", "Message-ID" } };
	unsigned int left = MIME_PARTS_MAX;
	json_t *headers = json_array();
	json_t *ret = json_pack(
		"{s:O, s:n, s:n, s:[]}", "headers", headers, "text", "html", "attachments");

	take_part((struct text){ p, n }, 0, &left, headers, ret);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		json_object_set_new(ret, names[i][0], first(headers, names[i][1]));
	json_decref(headers);
	return ret;
}
