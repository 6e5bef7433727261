/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/body.h"
#include "t.h"

#include <zlib.h>

/* gzip of @n bytes @c. */
static size_t bomb(char *out, size_t size, char c, size_t n)
{
	z_stream z = { 0 };
	char *plain = xalloc(n);

	memset(plain, c, n);
	(void)deflateInit2(&z, 9, Z_DEFLATED, MAX_WBITS + 16, 9, Z_DEFAULT_STRATEGY);
	z.next_in = (Bytef *)plain;
	z.avail_in = (uInt)n;
	z.next_out = (Bytef *)out;
	z.avail_out = (uInt)size;
	check_int(deflate(&z, Z_FINISH), Z_STREAM_END);
	size -= z.avail_out;
	(void)deflateEnd(&z);
	free(plain);
	return size;
}

static int decode(const char *coding, const void *p, size_t n, bool partial, struct buf *out)
{
	return body_decode((struct policy_text){ coding, strlen(coding) }, p, n, partial, out);
}

TEST(a_bomb_stops_at_the_limit)
{
	struct buf out = BUF_INIT(100000);
	char packed[20000];
	size_t n = bomb(packed, sizeof(packed), 'x', 10 << 20);

	check_int(decode("gzip", packed, n, false, &out), -EMSGSIZE);
	check(out.n <= 100000);
	buf_free(&out);
	check(body_json((struct policy_text){ "gzip", 4 }, packed, n, 100000) == NULL);
}

TEST(what_is_broken_or_unknown)
{
	static const char *const codings[] = { "gzip", "deflate", "br", "zstd" };
	struct buf out = BUF_INIT(1000);
	char packed[1000];
	size_t n = bomb(packed, sizeof(packed), 'x', 100);

	for (size_t i = 0; i < ARRAY_SIZE(codings); i++)
		check_int(decode(codings[i], "no such thing", 13, false, &out), -EBADMSG);
	check_int(decode("gzip", packed, n - 5, false, &out), -EBADMSG);
	check_int(decode("compress", packed, n, false, &out), -EOPNOTSUPP);
	check_int(decode("gzip, odd", packed, n, false, &out), -EOPNOTSUPP);
	check_int(decode("br, br", packed, n, false, &out), -EOPNOTSUPP); /* a window each */
	check_int(decode("zstd, gzip, br", packed, n, false, &out), -EOPNOTSUPP);
	check_int(decode("identity,identity,identity,identity,identity", "x", 1, false, &out),
		-EOPNOTSUPP);
	buf_free(&out);
}

TEST(what_a_window_takes)
{
	check_int(body_window((struct policy_text){ 0 }), 0);
	check_int(body_window((struct policy_text){ "identity, identity", 18 }), 0);
	check(body_window((struct policy_text){ "gzip", 4 }) <
		body_window((struct policy_text){ "gzip, deflate", 13 }));
	check_int(body_window((struct policy_text){ "gzip, br", 8 }), BODY_WINDOW_MAX);
	check_int(body_window((struct policy_text){ "zstd", 4 }), BODY_WINDOW_MAX);
	check_int(body_window((struct policy_text){ "odd", 3 }), BODY_WINDOW_MAX);
}

TEST(what_is_there_of_a_part)
{
	struct buf out = BUF_INIT(1000);
	char packed[1000];
	size_t n = bomb(packed, sizeof(packed), 'x', 500);

	check_int(decode("gzip", packed, n - 9, true, &out), 0);
	check(out.n > 0);
	buf_free(&out);
	check_int(decode("", "plain", 5, false, &out), 0);
	check_str(out.p, "plain");
	buf_free(&out);
	check_int(decode("Identity", "plain", 5, false, &out), 0);
	check_str(out.p, "plain");
	buf_free(&out);
}

TEST(members_that_come_twice_are_no_json)
{
	static const char *const bad[] = { "{\"a\":1,\"a\":2}", "{\"a\":1} x", "", "{",
		"{\"a\":1}\xff" };
	json_t *value;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		check(body_json((struct policy_text){ "", 0 }, bad[i], strlen(bad[i]), 1000) ==
			NULL);
	value = body_json((struct policy_text){ "", 0 }, " {\"a\":1} \n", 10, 1000);
	check_int(json_integer_value(json_object_get(value, "a")), 1);
	json_decref(value);
}
