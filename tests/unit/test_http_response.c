/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "codec/http_response.h"
#include "t.h"

static ssize_t parse(const char *s, struct http_response *r)
{
	return http_response_parse(s, strlen(s), r);
}

TEST(a_head_in_pieces_needs_more)
{
	const char *head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
	struct http_response r;

	for (size_t n = 0; n < strlen(head); n++)
		check_int(http_response_parse(head, n, &r), 0);
	check_int(parse(head, &r), (intmax_t)strlen(head));
	check_int(r.status, 200);
	check_int(r.body, HTTP_BODY_LENGTH);
	check_int(r.length, 5);
}

TEST(what_two_readers_could_understand_differently_is_refused)
{
	static const char *const bad[] = {
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
		"HTTP/1.1 200 OK\nA: b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\x01\r\n\r\n",
		"HTTP/1.2 200 OK\r\n\r\n",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 20 OK\r\n\r\n",
		"HTTP/1.1 2000\r\n\r\n",
		"SSH-2.0-OpenSSH_9\r\n\r\n",
	};
	struct http_response r;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (parse(bad[i], &r) != -EBADMSG)
			t_fail("accepted: %s", bad[i]);
	}
}

TEST(whether_a_connection_ends_is_a_word_of_a_list)
{
	static const struct {
		const char *head;
		bool close;
	} cases[] = { { "HTTP/1.1 200 OK\r\n\r\n", false },
		{ "HTTP/1.1 200 OK\r\nConnection: Close\r\n\r\n", true },
		{ "HTTP/1.1 200 OK\r\nConnection: Upgrade, close\r\n\r\n", true },
		{ "HTTP/1.1 200 OK\r\nConnection: ,close\t , x\r\n\r\n", true },
		{ "HTTP/1.1 200 OK\r\nConnection: Upgrade, Keep-Alive\r\n\r\n", false },
		{ "HTTP/1.1 200 OK\r\nConnection: closed, x-close\r\n\r\n", false },
		{ "HTTP/1.1 200 OK\r\nConnection:\r\n\r\n", false },
		{ "HTTP/1.0 200 OK\r\n\r\n", true },
		{ "HTTP/1.0 200 OK\r\nConnection: Upgrade, keep-alive\r\n\r\n", false } };
	struct http_response r;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		check(parse(cases[i].head, &r) > 0);
		if (r.close != cases[i].close)
			t_fail("%s", cases[i].head);
	}
}

TEST(a_head_has_a_largest_size)
{
	struct buf b = BUF_INIT(1 << 20);
	struct http_response r;

	buf_str(&b, "HTTP/1.1 200 OK\r\nX: ");
	while (b.n < HTTP_RESPONSE_HEAD_MAX)
		buf_char(&b, 'x');
	check_int(http_response_parse(b.p, b.n, &r), -EMSGSIZE);
	buf_free(&b);
}

TEST(headers_are_found_without_case)
{
	struct http_response r;
	const char *v;
	size_t n;

	check(parse("HTTP/1.1 200 OK\r\nCay-Mode:  0644 \r\nX: \r\n\r\n", &r) > 0);
	v = http_response_header(&r, "cay-mode", &n);
	check(v != NULL && n == 4 && memcmp(v, "0644", 4) == 0);
	v = http_response_header(&r, "x", &n);
	check(v != NULL && n == 0);
	check(http_response_header(&r, "cay", &n) == NULL);
}

/* The body of @s, given in pieces of @step; NULL when it is refused, "…" appended when it has not ended. */
static char *body(const char *s, size_t step)
{
	struct http_response r;
	struct http_body_reader b;
	struct buf out = BUF_INIT(1 << 16);
	size_t used = (size_t)parse(s, &r), n = strlen(s);

	http_body_begin(&b, &r);
	while (!b.done && used < n) {
		const char *piece;
		size_t size;
		ssize_t k = http_body_next(
			&b, s + used, n - used < step ? n - used : step, &piece, &size);

		if (k < 0) {
			buf_free(&out);
			return NULL;
		}
		buf_add(&out, piece, size);
		used += (size_t)k;
	}
	if (!b.done)
		buf_str(&out, "…");
	buf_str(&out, "");
	return buf_take(&out);
}

TEST(bodies_are_the_same_in_any_pieces)
{
	static const char *const cases[][2] = {
		{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhellomore", "hello" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "hel…" },
		{ "HTTP/1.1 204 OK\r\n\r\nx", "" },
		{ "HTTP/1.1 200 OK\r\n\r\nall of it", "all of it…" },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nB\r\n, beautiful\r\n0\r\n\r\nx",
			"hello, beautiful" },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "hello…" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		for (size_t step = 1; step < 100; step++) {
			cleanup_free char *got = body(cases[i][0], step);

			check_str(got, cases[i][1]);
		}
	}
}

TEST(chunks_are_read_strictly)
{
	static const char *const bad[] = { "5;x=\n1\r\nhello\r\n0\r\n\r\n", ";x\r\nhello",
		"\r\nhello", "5\nhello", "5\r\nhellox\r\n", "g\r\n", " 5\r\nhello\r\n",
		"1234567890123456\r\n", "0\r\nTrailer: x\r\n\r\n", "-1\r\n" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct buf s = BUF_INIT(4096);
		char *got;

		buf_fmt(&s, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s", bad[i]);
		got = body(buf_cstr(&s), 4096);
		if (got != NULL)
			t_fail("accepted: %s", bad[i]);
		free(got);
		buf_free(&s);
	}
}

TEST(trailers_are_kept_when_asked_for)
{
	static const char good[] = "3;a=b\r\nabc\r\n0\r\nGrpc-Status: 0\r\nX: y\r\n\r\n";
	static const char *const bad[] = { "0\r\nA : b\r\n\r\n", "0\r\n folded\r\n\r\n",
		"0\r\nA: b\n\r\n", "0\r\nA: b\rX\r\n\r\n", "0\r\nno colon\r\n\r\n",
		"0\r\nA: \x01\r\n\r\n" };
	struct buf trailers = BUF_INIT(HTTP_TRAILERS_MAX + 2);
	const char *piece, *name, *value;
	size_t size, at = 0, used = 0, name_n, value_n;
	struct http_body_reader b;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		ssize_t k = 1;

		buf_reset(&trailers);
		http_body_begin_as(&b, HTTP_BODY_CHUNKED, 0, &trailers);
		for (used = 0; k > 0 && !b.done; used += k > 0 ? (size_t)k : 0)
			k = http_body_next(&b, bad[i] + used, strlen(bad[i]) - used, &piece, &size);
		check_int(k, -EBADMSG);
	}
	buf_reset(&trailers);
	http_body_begin_as(&b, HTTP_BODY_CHUNKED, 0, &trailers);
	for (used = 0; !b.done;)
		used += (size_t)http_body_next(
			&b, good + used, sizeof(good) - 1 - used, &piece, &size);
	check_int(used, sizeof(good) - 1);
	check(http_lines_next(trailers.p, trailers.n, &at, &name, &name_n, &value, &value_n));
	check(name_n == 11 && value_n == 1 && value[0] == '0');
	check(http_lines_next(trailers.p, trailers.n, &at, &name, &name_n, &value, &value_n));
	check(!http_lines_next(trailers.p, trailers.n, &at, &name, &name_n, &value, &value_n));
	buf_free(&trailers);
}

/* Whatever the length of a line, its last byte may be the one for which the buffer moves. */
TEST(trailer_lines_of_any_length)
{
	for (size_t length = 1; length < 300; length++) {
		struct buf body = BUF_INIT(1024), trailers = BUF_INIT(HTTP_TRAILERS_MAX + 2);
		const char *piece, *name, *value;
		size_t size, at = 0, used = 0, name_n, value_n = 0;
		struct http_body_reader b;

		buf_str(&body, "0\r\nX:");
		for (size_t i = 0; i < length; i++)
			buf_char(&body, 'v');
		buf_str(&body, "\r\n\r\n");
		http_body_begin_as(&b, HTTP_BODY_CHUNKED, 0, &trailers);
		while (!b.done && used < body.n) {
			ssize_t k = http_body_next(&b, body.p + used, body.n - used, &piece, &size);

			check(k > 0);
			used += k > 0 ? (size_t)k : body.n;
		}
		check(b.done && http_lines_next(trailers.p, trailers.n, &at, &name, &name_n, &value,
					&value_n));
		check_int(value_n, length);
		buf_free(&body);
		buf_free(&trailers);
	}
}
