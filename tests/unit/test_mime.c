/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "codec/mime.h"
#include "t.h"

static json_t *parsed(const char *text)
{
	return mime_parse(text, strlen(text));
}

static const char *string(const json_t *mail, const char *key)
{
	const char *s = json_string_value(json_object_get(mail, key));

	return s != NULL ? s : "null";
}

TEST(anything_gives_a_mail)
{
	static const char *const odd[] = { "", "\r\n", "x", ":", "a:", "\xff\xfe: \xff\r\n\r\n\xff",
		"Content-Type: multipart/mixed; boundary=\"\"\r\n\r\n--\r\n", "Subject: =?utf-8?b?",
		"Subject: =?x?q?\?=", "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b" };

	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		json_t *mail = parsed(odd[i]);

		check(json_is_object(mail));
		json_decref(mail);
	}
}

TEST(a_plain_message)
{
	json_t *mail = parsed(
		"From: a@b\r\nTO: c@d,\r\n  e@f\r\nSubject: hi\r\nSubject: two\r\n\r\none\r\ntwo\r\n");

	check_str(string(mail, "from"), "a@b");
	check_str(string(mail, "to"), "c@d, e@f");
	check_str(string(mail, "subject"), "hi");
	check_str(string(mail, "cc"), "null");
	check_str(string(mail, "text"), "one\r\ntwo\r\n");
	check_int(json_array_size(json_object_get(mail, "headers")), 4);
	json_decref(mail);
}

TEST(encoded_words)
{
	json_t *mail = parsed("Subject: =?utf-8?B?w6Q=?= =?iso-8859-1?Q?=F6_x?= y =?bad\r\n\r\n");

	check_str(string(mail, "subject"), "\xc3\xa4\xc3\xb6 x y =?bad");
	json_decref(mail);
}

TEST(parts)
{
	json_t *mail = parsed(
		"Content-Type: multipart/mixed; boundary=\"o;u\"\r\n\r\nignored\r\n--o;u\r\n"
		"Content-Type: multipart/alternative; boundary=in\r\n\r\n--in\r\n\r\nplain\r\n--in\r\n"
		"Content-Type: text/html; charset=ISO-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n<p>=E4=\r\n</p>\r\n--in--\r\n--o;u\r\n"
		"Content-Type: application/pdf; name=x\r\nContent-Disposition: attachment; filename=\"a b.pdf\"\r\nContent-Transfer-Encoding: base64\r\n\r\nAAEC\r\nAw==\r\n--o;u--\r\nalso ignored");
	const json_t *attachment = json_array_get(json_object_get(mail, "attachments"), 0);

	check_str(string(mail, "text"), "plain");
	check_str(string(mail, "html"), "<p>\xc3\xa4</p>");
	check_str(string(attachment, "name"), "a b.pdf");
	check_str(string(attachment, "type"), "application/pdf");
	check_int(json_integer_value(json_object_get(attachment, "bytes")), 4);
	check_int(json_array_size(json_object_get(mail, "attachments")), 1);
	json_decref(mail);
}

TEST(a_bomb_of_parts_ends)
{
	struct buf text = BUF_INIT(1 << 20);
	json_t *mail;

	buf_str(&text, "Content-Type: multipart/mixed; boundary=b\r\n\r\n");
	for (int i = 0; i < 10000; i++)
		buf_str(&text, "--b\r\n\r\nx\r\n");
	mail = mime_parse(text.p, text.n);
	check_int(json_array_size(json_object_get(mail, "attachments")), MIME_PARTS_MAX - 2);
	json_decref(mail);
	buf_free(&text);
}
