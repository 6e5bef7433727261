/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/httphead.h"
#include "t.h"

#define HOST "Host: cay\r\n"

/* An exact copy on the heap, so that a sanitizer sees one byte too many. */
static int parse(const char *text, struct httphead *h, char **kept)
{
	const char *reason = NULL;
	size_t n = strlen(text);
	int rc;

	*kept = xalloc(n + (n == 0));
	memcpy(*kept, text, n);
	rc = httphead_parse(*kept, n, h, &reason);
	check((rc < 0) == (reason != NULL));
	return rc;
}

static int result(const char *text)
{
	cleanup_free char *kept = NULL;
	struct httphead h;

	return parse(text, &h, &kept);
}

TEST(what_two_parsers_could_read_differently_is_refused)
{
	static const char *const bad[] = {
		"GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "Content-Length: +1\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "Content-Length: 1, 1\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "Content-Length: 0x1\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "Content-Length: 9999999999999999\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST HOST "\r\n",
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "X: a\r\n b\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "X : a\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST ": a\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "X\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "X:\rTransfer-Encoding: chunked\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "X: a\nY: b\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "X: \x01\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "X: \x7f\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "Expect: 200-ok\r\n\r\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (result(bad[i]) != -EBADMSG)
			t_fail("accepted: %s", bad[i]);
	}
}

TEST(nul_is_refused)
{
	static const char text[] = "GET / HTTP/1.1\r\n" HOST "X: a\0b\r\n\r\n";
	const char *reason;
	struct httphead h;

	check_int(httphead_parse(text, sizeof(text) - 1, &h, &reason), -EBADMSG);
}

TEST(request_lines_that_are_refused)
{
	static const char *const bad[] = { "GET / HTTP/1.0", "GET / HTTP/1.1 ", "GET  / HTTP/1.1",
		"GET /", "GET HTTP/1.1", " GET / HTTP/1.1", "get / HTTP/1.1",
		"GET http://cay/ HTTP/1.1", "GET * HTTP/1.1", "CONNECT / HTTP/1.1",
		"GET /a b HTTP/1.1", "GET /#x HTTP/1.1", "GET /\xc3\xa9 HTTP/1.1", "",
		"/ HTTP/1.1" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		cleanup_free char *text = xalloc(200);

		(void)snprintf(text, 200, "%s\r\n" HOST "\r\n", bad[i]);
		if (result(text) != -EBADMSG)
			t_fail("accepted: %s", bad[i]);
	}
}

TEST(sizes_are_bounded)
{
	cleanup_free char *big = xalloc(HTTPHEAD_BYTES_MAX + 10),
			  *line = xalloc(HTTPHEAD_TARGET_MAX + 200),
			  *many = xalloc(HTTPHEAD_BYTES_MAX);
	size_t n;

	memset(big, 'a', HTTPHEAD_BYTES_MAX);
	check_int(httphead_size(big, HTTPHEAD_BYTES_MAX), -EMSGSIZE);
	check_int(httphead_size(big, HTTPHEAD_BYTES_MAX - 1), 0);
	n = (size_t)snprintf(line, HTTPHEAD_TARGET_MAX + 200, "GET /");
	memset(line + n, 'a', HTTPHEAD_TARGET_MAX);
	(void)snprintf(line + n + HTTPHEAD_TARGET_MAX, 100, " HTTP/1.1\r\n" HOST "\r\n");
	check_int(result(line), -EMSGSIZE);
	n = (size_t)snprintf(many, HTTPHEAD_BYTES_MAX, "GET / HTTP/1.1\r\n" HOST);
	for (int i = 0; i < HTTPHEAD_HEADERS_MAX; i++)
		n += (size_t)snprintf(many + n, HTTPHEAD_BYTES_MAX - n, "X: y\r\n");
	(void)snprintf(many + n, HTTPHEAD_BYTES_MAX - n, "\r\n");
	check_int(result(many), -EMSGSIZE);
}

TEST(an_incomplete_head_waits_for_more)
{
	check_int(httphead_size("", 0), 0);
	check_int(httphead_size("GET / HTTP/1.1\r\n\r", 17), 0);
	check_int(httphead_size("A\r\n\r\nrest", 9), 5);
}

TEST(a_good_request_is_read)
{
	cleanup_free char *kept = NULL;
	struct httphead h;

	check_int(
		parse("POST /v1/x?a=1&b=%20 HTTP/1.1\r\nhOsT: cay\r\nCONTENT-length: 12\r\nConnection: keep-alive, Upgrade\r\n"
		      "Upgrade: cay-frames\r\nX:   spaced \t \r\nEmpty:\r\n\r\n",
			&h, &kept),
		0);
	check(h.method.n == 4 && memcmp(h.method.p, "POST", 4) == 0);
	check(h.path.n == 5 && memcmp(h.path.p, "/v1/x", 5) == 0);
	check(h.query.n == 9 && memcmp(h.query.p, "a=1&b=%20", 9) == 0);
	check(h.has_length && h.length == 12 && !h.chunked && !h.close);
	check(httphead_has_word(&h, "connection", "upgrade"));
	check(!httphead_has_word(&h, "connection", "upgrad"));
	check(httphead_has_word(&h, "upgrade", "cay-frames"));
	check(httphead_get(&h, "x").n == 6 && memcmp(httphead_get(&h, "x").p, "spaced", 6) == 0);
	check(httphead_get(&h, "empty").p != NULL && httphead_get(&h, "empty").n == 0);
	check(httphead_get(&h, "missing").p == NULL);
}

TEST(percent_encoding)
{
	char out[16];

	check_int(httphead_decode("%", 1, false, out, sizeof(out)), -EBADMSG);
	check_int(httphead_decode("%4", 2, false, out, sizeof(out)), -EBADMSG);
	check_int(httphead_decode("%4g", 3, false, out, sizeof(out)), -EBADMSG);
	check_int(httphead_decode("a%00b", 5, false, out, sizeof(out)), -EBADMSG);
	check_int(httphead_decode("%ff", 3, false, out, sizeof(out)), -EBADMSG);
	check_int(httphead_decode("0123456789abcdef", 16, false, out, sizeof(out)), -EMSGSIZE);
	check_int(httphead_decode("0123456789abcde", 15, false, out, sizeof(out)), 0);
	check_int(httphead_decode("a%2Fb+c", 7, false, out, sizeof(out)), 0);
	check_str(out, "a/b+c");
	check_int(httphead_decode("a%c3%a9+c", 9, true, out, sizeof(out)), 0);
	check_str(out, "a\xc3\xa9 c");
	check_int(httphead_decode("%41", 3, false, out, sizeof(out)), 0);
	check_str(out, "A");
}
