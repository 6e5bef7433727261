/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"
#include "t.h"

TEST(raise_always_returns_a_negative_errno)
{
	for (int code = ERR_NONE; code < ERR_CODE_COUNT; code++) {
		struct err err = { 0 };

		check(err_raise(&err, (enum err_code)code, "x") < 0);
		check_int(err.code, code);
		check(err_raise(NULL, (enum err_code)code, "x") < 0);
	}
}

TEST(every_code_has_all_its_parts)
{
	for (int i = ERR_NONE + 1; i < ERR_CODE_COUNT; i++) {
		enum err_code code = (enum err_code)i;

		check(err_code_http(code) >= 400 && err_code_http(code) < 600);
		check(err_code_exit(code) > 0 && err_code_exit(code) < 256);
		check(err_code_name(code)[0] != '\0' && err_code_meaning(code)[0] != '\0');
		check_int(err_code_parse(err_code_name(code)), code);
	}
	check_int(err_code_parse("no such code"), ERR_INTERNAL);
	check_int(err_code_parse(""), ERR_INTERNAL);
	check_aborts((void)err_code_name(ERR_CODE_COUNT));
}

TEST(system_errors_keep_their_number)
{
	struct err err = { 0 };

	check_int(err_raise_sys(&err, -ENOSPC, "write '%s'", "/x"), -ENOSPC);
	check_int(err.code, ERR_DISK_FULL);
	check_int(err.sys, ENOSPC);
	check_str(err.msg, "write '/x': No space left on device");
	check_int(err_raise_sys(&err, -EDQUOT, "x"), -EDQUOT);
	check_int(err.code, ERR_DISK_FULL);
	(void)err_raise_sys(&err, -ENOENT, "x");
	check_int(err.code, ERR_NOT_FOUND);
	(void)err_raise_sys(&err, -EEXIST, "x");
	check_int(err.code, ERR_EXISTS);
	(void)err_raise_sys(&err, -EPERM, "x");
	check_int(err.code, ERR_INTERNAL);
	check_int(err_raise_sys(NULL, -EPERM, "x"), -EPERM);
}

TEST(an_unknown_errno_is_no_crash)
{
	struct err err = { 0 };

	check_int(err_raise_sys(&err, -4095, "x"), -4095);
	check(str_starts(err.msg, "x: "));
}

TEST(context_goes_in_front_and_keeps_the_code)
{
	struct err err = { 0 };

	(void)err_raise(&err, ERR_BUSY, "inner");
	err_context(&err, "outer '%d'", 1);
	check_str(err.msg, "outer '1': inner");
	check_int(err.code, ERR_BUSY);
	err_context(NULL, "nothing");
}

TEST(long_texts_are_cut_not_overrun)
{
	struct err err = { 0 };
	char text[4000];

	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)err_raise(&err, ERR_BUSY, "%s", text);
	check_int(strlen(err.msg), sizeof(err.msg) - 1);
	err_context(&err, "%s", text);
	check_int(strlen(err.msg), sizeof(err.msg) - 1);
	(void)err_raise_sys(&err, -EIO, "%s", text);
	check_int(strlen(err.msg), sizeof(err.msg) - 1);
	check_int(err_hint(&err, -EIO, "%s", text), -EIO);
	check_int(strlen(err.hint), sizeof(err.hint) - 1);
}

TEST(a_cut_message_is_still_utf8)
{
	struct err err = { 0 };
	char text[2100] = "";

	for (size_t i = 0; i + 3 < sizeof(text); i += 3)
		memcpy(text + i, "\xE2\x82\xAC", 4);
	(void)err_raise(&err, ERR_BUSY, "%s", text);
	check(str_utf8_valid(err.msg, strlen(err.msg)));
	(void)err_raise(&err, ERR_BUSY, "a%s", text);
	check(str_utf8_valid(err.msg, strlen(err.msg)));
	err_context(&err, "b");
	check(str_utf8_valid(err.msg, strlen(err.msg)));
	(void)err_raise_sys(&err, -EIO, "ab%s", text);
	check(str_utf8_valid(err.msg, strlen(err.msg)));
	(void)err_hint(&err, -EIO, "ab%s", text);
	check(str_utf8_valid(err.hint, strlen(err.hint)));
}

TEST(bytes_that_are_no_utf8_do_not_get_through)
{
	struct err err = { 0 };

	(void)err_raise(&err, ERR_NOT_FOUND, "no file '%s'",
		"a\xFF"
		"b");
	check(str_utf8_valid(err.msg, strlen(err.msg)));
	check_str(err.msg, "no file 'a?b'");
}

TEST(fits_a_pipe_whole)
{
	check(sizeof(struct err) <= 4096);
}
