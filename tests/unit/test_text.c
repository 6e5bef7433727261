/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "prog/cay/text.h"

static struct buf out = BUF_INIT(1 << 16);

static const char *escaped(const char *s)
{
	buf_reset(&out);
	text_escape(&out, s);
	return buf_cstr(&out);
}

TEST(what_moves_the_cursor_or_deceives_is_escaped)
{
	check_str(escaped("plain ünïcode 猫"), "plain ünïcode 猫");
	check_str(escaped("\033[2Jx"), "\\x1b[2Jx");
	check_str(escaped("a\nb\tc\rd\x7f"), "a\\nb\\tc\\x0dd\\x7f");
	check_str(escaped("\xc2\x9b"
			  "1m"),
		"\\u{9b}1m");
	check_str(escaped("a\xe2\x80\xae"
			  "b"),
		"a\\u{202e}b");
	check_str(escaped("\xe2\x80\x8bx\xef\xbb\xbf"), "\\u{200b}x\\u{feff}");
	check_str(escaped("\xff\xc3("), "\\xff\\xc3(");
	check_str(escaped("\xe2\x80"), "\\xe2\\x80");
	buf_reset(&out);
	text_escape_lines(&out, "a\n\tb\033");
	check_str(buf_cstr(&out), "a\n\tb\\x1b");
}

TEST(json_for_a_terminal_has_the_same_values)
{
	buf_reset(&out);
	text_escape_json(&out, "{\n  \"ä\\n猫\": \"\x7f\xc2\x9b"
			       "2J\xe2\x80\xae\xf3\xa0\x81\x81\"\n}");
	check_str(buf_cstr(&out), "{\n  \"ä\\n猫\": \"\\u007f\\u009b2J\\u202e\\udb40\\udc41\"\n}");
}

TEST(words_are_quoted_for_a_shell)
{
	static const char *const cases[][2] = { { "plain", "plain" }, { "", "''" },
		{ "two words", "'two words'" }, { "it's", "'it'\\''s'" }, { "$x", "'$x'" } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		buf_reset(&out);
		text_quote(&out, cases[i][0]);
		check_str(buf_cstr(&out), cases[i][1]);
	}
}

static const char *size(uint64_t n)
{
	buf_reset(&out);
	text_size(&out, n);
	return buf_cstr(&out);
}

TEST(sizes)
{
	check_str(size(0), "0 B");
	check_str(size(1023), "1023 B");
	check_str(size(1536), "1.5 KiB");
	check_str(size(20 << 20), "20 MiB");
	check_str(size(UINT64_MAX), "15 EiB");
}

static const char *age(const char *when, int64_t now)
{
	buf_reset(&out);
	text_age(&out, when, now);
	return buf_cstr(&out);
}

TEST(ages)
{
	/* date -u -d 2026-11-21T08:00:00Z +%s */
	const int64_t then = 1795248000;

	check_str(age("2026-11-21T08:00:00.123456Z", then), "0 s");
	check_str(age("2026-11-21T08:00:00Z", then + 119), "119 s");
	check_str(age("2026-11-21T08:00:00Z", then + 600), "10 min");
	check_str(age("2026-11-21T08:00:00Z", then + 3 * 86400), "3 d");
	check_str(age("2026-11-21T08:00:00Z", then - 5), "0 s");
	check_str(age("yesterday", then), "?");
	check_str(age("2024-02-29T00:00:00Z", 1709164800 + 60), "60 s");
}

TEST(modes)
{
	buf_reset(&out);
	text_mode(&out, 06755);
	text_mode(&out, 01666);
	check_str(buf_cstr(&out), "rwsr-sr-xrw-rw-rwT");
}

TEST(columns_of_a_table_line_up)
{
	struct table t;

	table_init(&t, "NAME|>SIZE|WHAT");
	table_cell(&t, "ä");
	table_cell(&t, "5");
	table_cell(&t, "x");
	table_cell(&t, "猫");
	table_cell(&t, "12345");
	table_cell(&t, NULL);
	table_cell(&t, "a\nb");
	table_cell(&t, "");
	table_cell(&t, "y");
	check_int(table_rows(&t), 3);
	buf_reset(&out);
	table_print(&t, &out);
	check_str(buf_cstr(&out), "NAME   SIZE  WHAT\n"
				  "ä         5  x\n"
				  "猫    12345  -\n"
				  "a\\nb         y\n");
}

TEST(painted_rows)
{
	struct table t;

	table_init(&t, "A");
	t.colour = true;
	table_cell(&t, "plain");
	table_paint(&t, '1');
	table_cell(&t, "red");
	buf_reset(&out);
	table_print(&t, &out);
	check_str(buf_cstr(&out), "A\nplain\n\033[31mred\033[0m\n");
}
