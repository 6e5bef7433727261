/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "codec/jsontext.h"

TEST(commas_come_by_themselves)
{
	struct buf b = BUF_INIT(1024);

	jsontext_open(&b, '{');
	jsontext_member_string(&b, "a", "{[:");
	jsontext_key(&b, "b");
	jsontext_open(&b, '[');
	jsontext_integer(&b, 0);
	jsontext_integer(&b, INT64_MIN);
	jsontext_open(&b, '[');
	jsontext_close(&b, ']');
	jsontext_word(&b, "null");
	jsontext_close(&b, ']');
	jsontext_member_bool(&b, "c", false);
	jsontext_member_integer(&b, "d", INT64_MAX);
	jsontext_close(&b, '}');
	check_str(buf_cstr(&b), "{\"a\":\"{[:\",\"b\":[0,-9223372036854775808,[],null],\"c\":false,"
				"\"d\":9223372036854775807}");
	buf_free(&b);
}

TEST(strings_are_escaped_as_by_jansson)
{
	struct buf b = BUF_INIT(1024);

	jsontext_string(&b, "\0\x1f\x7f\"\\/\b\f\n\r\t\xc3\xa9", 13);
	check_str(buf_cstr(&b), "\"\\u0000\\u001F\x7f\\\"\\\\/\\b\\f\\n\\r\\t\xc3\xa9\"");
	jsontext_string(&b, NULL, 0);
	check(b.n > 3 && strcmp(b.p + b.n - 3, ",\"\"") == 0);
	buf_free(&b);
}
