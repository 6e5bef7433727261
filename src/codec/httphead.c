/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/httphead.h"
#include "base/ablate.h"
#include "base/str.h"

#include <strings.h>

static bool is_token(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

ssize_t httphead_size(const char *p, size_t n)
{
	size_t seen = n < HTTPHEAD_BYTES_MAX ? n : HTTPHEAD_BYTES_MAX;
	const char *end = seen >= 4 ? memmem(p, seen, "\r\n\r\n", 4) : NULL;

	if (end != NULL)
		return end - p + 4;
	return n >= HTTPHEAD_BYTES_MAX ? -EMSGSIZE : 0;
}

static int refuse(const char **reason, const char *why)
{
	*reason = why;
	return -EBADMSG;
}

/* Every control byte but HTAB is refused; CR and LF only as the pair at a line's end. */
static bool bytes_clean(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)p[i];

		if (c == '\r') {
			if (i + 1 == n || p[i + 1] != '\n')
				return false;
			i++;
		} else if ((c < 0x20 && c != '\t') || c == 0x7F) {
			return false;
		}
	}
	return true;
}

static int check_target(struct httphead_text t, const char **reason)
{
	if (t.n > HTTPHEAD_TARGET_MAX) {
		*reason = "the request target is too long";
		return -EMSGSIZE;
	}
	for (size_t i = 0; i < t.n; i++) {
		unsigned char c = (unsigned char)t.p[i];

		if (c < 0x21 || c > 0x7E || c == '#')
			return refuse(reason,
				"the request target holds a byte that URLs write as an escape (%20, %C3%A4)");
	}
	return t.n > 0 ? 0 : refuse(reason, "the request target is missing");
}

static void split_query(struct httphead *h, const char *p, size_t n)
{
	const char *mark = n > 0 ? memchr(p, '?', n) : NULL;

	h->path = (struct httphead_text){ p, mark != NULL ? (size_t)(mark - p) : n };
	if (mark != NULL)
		h->query = (struct httphead_text){ mark + 1, n - h->path.n - 1 };
}

/* scheme "://" authority [path] */
static int parse_absolute(struct httphead *h, struct httphead_text t, const char **reason)
{
	const char *mark = memmem(t.p, t.n, "://", 3), *p, *end = t.p + t.n;

	if (mark == NULL || mark == t.p)
		return refuse(reason, "the request target is not a path");
	h->form = HTTPHEAD_ABSOLUTE;
	h->scheme = (struct httphead_text){ t.p, (size_t)(mark - t.p) };
	for (p = mark + 3; p < end && *p != '/' && *p != '?'; p++)
		;
	h->authority = (struct httphead_text){ mark + 3, (size_t)(p - mark) - 3 };
	split_query(h, p, (size_t)(end - p));
	return 0;
}

static int parse_target(struct httphead *h, struct httphead_text t, bool any, const char **reason)
{
	bool connect = h->method.n == 7 && memcmp(h->method.p, "CONNECT", 7) == 0;
	int rc = check_target(t, reason);

	if (rc < 0)
		return rc;
	if (connect && !any)
		return refuse(reason, "CONNECT names a host, no path");
	if (connect) {
		h->form = HTTPHEAD_AUTHORITY;
		h->authority = t;
	} else if (t.p[0] == '/') {
		split_query(h, t.p, t.n);
	} else if (any && t.n == 1 && t.p[0] == '*') {
		h->form = HTTPHEAD_ASTERISK;
	} else if (any) {
		return parse_absolute(h, t, reason);
	} else {
		return refuse(reason, "the request target is not a path");
	}
	return 0;
}

static int parse_method(struct httphead *h, const char *p, size_t n, bool any, const char **reason)
{
	h->method = (struct httphead_text){ p, n };
	for (size_t i = 0; i < n; i++) {
		if (any ? !is_token((unsigned char)p[i]) : p[i] < 'A' || p[i] > 'Z')
			return refuse(reason, "the method is malformed");
	}
	return n > 0 && n <= 32 ? 0 : refuse(reason, "the method is malformed");
}

static int parse_request_line(
	struct httphead *h, const char *p, size_t n, bool any, const char **reason)
{
	static const char version[] = " HTTP/1.";
	const size_t version_size = sizeof(version) - 1;
	const char *space = memchr(p, ' ', n);
	int rc;

	if (n <= version_size || memcmp(p + n - version_size - 1, version, version_size) != 0 ||
		(p[n - 1] != '1' && !(any && p[n - 1] == '0')))
		return refuse(reason, "not an HTTP/1.1 request");
	h->minor = p[n - 1] == '1';
	n -= version_size + 1;
	if (space == NULL || (size_t)(space - p) >= n)
		return refuse(reason, "the request line is malformed");
	rc = parse_method(h, p, (size_t)(space - p), any, reason);
	if (rc < 0)
		return rc;
	return parse_target(
		h, (struct httphead_text){ space + 1, n - h->method.n - 1 }, any, reason);
}

static bool name_is(const struct httphead_field *f, const char *name)
{
	return f->name.n == strlen(name) && strncasecmp(f->name.p, name, f->name.n) == 0;
}

static bool value_is(const struct httphead_field *f, const char *value)
{
	return f->value.n == strlen(value) && strncasecmp(f->value.p, value, f->value.n) == 0;
}

static int parse_field(struct httphead *h, const char *p, size_t n, const char **reason)
{
	struct httphead_field *f = &h->fields[h->n_fields];
	const char *colon = memchr(p, ':', n);

	if ((p[0] == ' ' || p[0] == '\t') && ablated("strict_head"))
		return 0;
	if (p[0] == ' ' || p[0] == '\t')
		return refuse(reason, "folded header lines are not allowed");
	if (colon == NULL || colon == p)
		return refuse(reason, "a header line has no name");
	if (h->n_fields == HTTPHEAD_HEADERS_MAX) {
		*reason = "too many headers";
		return -EMSGSIZE;
	}
	f->name = (struct httphead_text){ p, (size_t)(colon - p) };
	for (size_t i = 0; i < f->name.n; i++) {
		if (!is_token((unsigned char)p[i]))
			return refuse(reason, "a header name holds a byte that is not allowed");
	}
	f->value = (struct httphead_text){ colon + 1, n - f->name.n - 1 };
	while (f->value.n > 0 && (f->value.p[0] == ' ' || f->value.p[0] == '\t')) {
		f->value.p++;
		f->value.n--;
	}
	while (f->value.n > 0 &&
		(f->value.p[f->value.n - 1] == ' ' || f->value.p[f->value.n - 1] == '\t'))
		f->value.n--;
	h->n_fields++;
	return 0;
}

static int take_length(struct httphead *h, const struct httphead_field *f, const char **reason)
{
	char digits[20];

	if (h->has_length)
		return refuse(reason, "Content-Length is there twice");
	if (f->value.n == 0 || f->value.n > 15)
		return refuse(reason, "Content-Length is not a number");
	memcpy(digits, f->value.p, f->value.n);
	digits[f->value.n] = '\0';
	if (str_to_u64(digits, 0, UINT64_MAX, &h->length) < 0)
		return refuse(reason, "Content-Length is not a number");
	h->has_length = true;
	return 0;
}

static int check_fields(struct httphead *h, const char **reason)
{
	size_t hosts = 0;
	int rc = 0;

	for (size_t i = 0; i < h->n_fields && rc == 0; i++) {
		const struct httphead_field *f = &h->fields[i];

		if (name_is(f, "Host")) {
			hosts++;
		} else if (name_is(f, "Content-Length")) {
			rc = take_length(h, f, reason);
		} else if (name_is(f, "Transfer-Encoding")) {
			if (h->chunked || !value_is(f, "chunked"))
				return refuse(
					reason, "only one Transfer-Encoding, chunked, is allowed");
			h->chunked = true;
		} else if (name_is(f, "Expect")) {
			if (!value_is(f, "100-continue"))
				return refuse(reason, "unknown expectation");
			h->expect_continue = true;
		}
	}
	if (rc < 0)
		return rc;
	if (hosts != 1)
		return refuse(reason, "exactly one Host header is needed");
	if (h->chunked && h->has_length)
		return refuse(reason, "Content-Length and Transfer-Encoding exclude each other");
	if (h->chunked && h->minor == 0)
		return refuse(reason, "HTTP/1.0 has no Transfer-Encoding");
	h->close = httphead_has_word(h, "Connection", "close") ||
		   (h->minor == 0 && !httphead_has_word(h, "Connection", "keep-alive"));
	return 0;
}

static int parse(const char *p, size_t n, bool any, struct httphead *ret, const char **ret_reason)
{
	size_t at = 0;

	memset(ret, 0, offsetof(struct httphead, fields));
	memset(&ret->n_fields, 0, sizeof(*ret) - offsetof(struct httphead, n_fields));
	if (!bytes_clean(p, n) && !ablated("strict_head"))
		return refuse(ret_reason, "the head holds a control byte or a bare CR or LF");
	while (at + 2 < n) { /* the empty line is left */
		const char *end = memmem(p + at, n - at, "\r\n", 2);
		size_t size = (size_t)(end - (p + at));
		int rc = at == 0 ? parse_request_line(ret, p, size, any, ret_reason)
				 : parse_field(ret, p + at, size, ret_reason);

		if (rc < 0)
			return rc;
		at += size + 2;
	}
	return check_fields(ret, ret_reason);
}

int httphead_parse(const char *p, size_t n, struct httphead *ret, const char **ret_reason)
{
	return parse(p, n, false, ret, ret_reason);
}

int httphead_parse_any(const char *p, size_t n, struct httphead *ret, const char **ret_reason)
{
	return parse(p, n, true, ret, ret_reason);
}

struct httphead_text httphead_get(const struct httphead *h, const char *name)
{
	for (size_t i = 0; i < h->n_fields; i++) {
		if (name_is(&h->fields[i], name))
			return h->fields[i].value;
	}
	return (struct httphead_text){ 0 };
}

size_t httphead_count(const struct httphead *h, const char *name)
{
	size_t n = 0;

	for (size_t i = 0; i < h->n_fields; i++)
		n += name_is(&h->fields[i], name);
	return n;
}

bool httphead_has_word(const struct httphead *h, const char *name, const char *word)
{
	for (size_t i = 0; i < h->n_fields; i++) {
		const char *p = h->fields[i].value.p, *end = p + h->fields[i].value.n;

		if (!name_is(&h->fields[i], name))
			continue;
		while (p < end) {
			size_t n;

			while (p < end && (*p == ' ' || *p == '\t' || *p == ','))
				p++;
			for (n = 0; p + n < end && strchr(" \t,;", p[n]) == NULL; n++)
				;
			if (n == strlen(word) && strncasecmp(p, word, n) == 0)
				return true;
			p += n;
			while (p < end && *p != ',')
				p++;
		}
	}
	return false;
}

int httphead_decode(const char *p, size_t n, bool plus, char *out, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < n; i++) {
		char c = p[i];

		if (c == '%') {
			int high = i + 2 < n ? str_hex_digit(p[i + 1]) : -1;
			int low = i + 2 < n ? str_hex_digit(p[i + 2]) : -1;

			if (high < 0 || low < 0)
				return -EBADMSG;
			c = (char)(high << 4 | low);
			i += 2;
		} else if (c == '+' && plus) {
			c = ' ';
		}
		if (c == '\0')
			return -EBADMSG;
		if (used + 1 >= size)
			return -EMSGSIZE;
		out[used++] = c;
	}
	if (size == 0)
		return -EMSGSIZE;
	out[used] = '\0';
	return str_utf8_valid(out, used) ? 0 : -EBADMSG;
}

bool httphead_is_hop(const char *name, size_t n)
{
	/* alt-svc would send clients to UDP, which never leaves */
	static const char *const names[] = { "connection", "content-length", "expect", "host",
		"http2-settings", "keep-alive", "proxy-authenticate", "proxy-authorization",
		"proxy-connection", "te", "transfer-encoding", "upgrade", "alt-svc" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (n == strlen(names[i]) && strncasecmp(name, names[i], n) == 0)
			return true;
	return false;
}
