/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/smtp.h"
#include "t.h"

/* A whole conversation, @piece bytes at a time; messages are shown as {…}, other steps as <…>. */
static const char *talk_in(const char *input, size_t n, size_t piece)
{
	static struct buf out = { .max = 1 << 20 };
	struct smtp s;
	size_t at = 0;

	smtp_init(&s, "mx", true, false);
	buf_reset(&out);
	while (at < n) {
		size_t used, size = n - at < piece ? n - at : piece;
		enum smtp_step step = smtp_feed(&s, input + at, size, &used, &out);

		at += used;
		if (step == SMTP_MESSAGE) {
			buf_fmt(&out, "{%s|%zu|%s}", s.sender, s.n_recipients,
				buf_cstr(&s.message));
			smtp_accept(&s, "m1", &out);
		} else if (step == SMTP_STARTTLS) {
			buf_str(&out, "<tls>");
			smtp_secured(&s);
		} else if (step == SMTP_QUIT) {
			buf_str(&out, "<quit>");
			break;
		}
	}
	smtp_fini(&s);
	return buf_cstr(&out);
}

static void check_talk(const char *input, const char *want)
{
	check_str(talk_in(input, strlen(input), strlen(input)), want);
	check_str(talk_in(input, strlen(input), 1), want);
	check_str(talk_in(input, strlen(input), 7), want);
}

TEST(out_of_order_is_refused)
{
	check_talk("MAIL FROM:<a@b>\r\n", "503 5.5.1 Not now\r\n");
	check_talk("HELO x\r\nRCPT TO:<a@b>\r\nDATA\r\n",
		"250 mx\r\n503 5.5.1 MAIL FROM comes first\r\n503 5.5.1 RCPT TO comes first\r\n");
	check_talk("HELO\r\nEXPN\r\nMAILX\r\n",
		"501 5.5.4 A name is needed\r\n500 5.5.2 No such command\r\n500 5.5.2 No such command\r\n");
	check_talk("HELO x\r\nMAIL FROM:a@b\r\nMAIL FROM:<a@b\r\nMAIL FROM:<a b>\r\n",
		"250 mx\r\n501 5.1.7 MAIL FROM:<address> is needed\r\n501 5.1.7 MAIL FROM:<address> is needed\r\n501 5.1.7 MAIL FROM:<address> is needed\r\n");
	check_talk("HELO x\r\nMAIL FROM:<a@b> SIZE=99999999999\r\n",
		"250 mx\r\n552 5.3.4 The message is too large\r\n");
}

TEST(a_bare_line_feed_ends_nothing)
{
	check_talk("NOOP\nNOOP\r\n", "500 5.5.2 Lines are UTF-8 and end with CR LF\r\n");
	check_talk(
		"HELO x\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\none\n.\nMAIL FROM:<evil@x>\n\r\n.\n\r\n\r.\r\n.\r\n",
		"250 mx\r\n250 2.1.0 Ok\r\n250 2.1.5 Ok\r\n354 End with a line that holds only a dot\r\n"
		"{a@b|1|one\n.\nMAIL FROM:<evil@x>\n\r\n\n\r\n\r.\r\n}250 2.0.0 Kept as m1\r\n");
}

TEST(too_many_errors_end_the_connection)
{
	char input[SMTP_ERRORS_MAX * 3 + 20] = "";
	const char *said;

	for (int i = 0; i < SMTP_ERRORS_MAX + 3; i++)
		strcat(input, "X\r\n");
	said = talk_in(input, strlen(input), 100);
	check(strstr(said, "421 4.7.0 Too many errors\r\n<quit>") != NULL);
}

TEST(messages_are_unstuffed)
{
	check_talk(
		"EHLO x\r\nMAIL FROM:<> BODY=8BITMIME\r\nRCPT TO:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n..\r\n.x\r\n\r\n.\r\nQUIT\r\nNOOP\r\n",
		"250-mx\r\n250-PIPELINING\r\n250-SIZE 26214400\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-ENHANCEDSTATUSCODES\r\n250-STARTTLS\r\n250 AUTH PLAIN LOGIN\r\n"
		"250 2.1.0 Ok\r\n250 2.1.5 Ok\r\n250 2.1.5 Ok\r\n354 End with a line that holds only a dot\r\n{|2|.\r\nx\r\n\r\n}250 2.0.0 Kept as m1\r\n221 2.0.0 Bye\r\n<quit>");
}

/* What other servers take for the end of a message is text in it: no second mail hides behind it. */
TEST(a_message_ends_with_crlf_dot_crlf_and_nothing_else)
{
	static const char *const ends[] = { "\n.\n", "\r.\r", "\n.\r\n", "\r\n.\n", "\r\n.\r",
		"\r.\r\n", "\r\n.\r\r\n" };
	char input[300], hidden[] = "MAIL FROM:<evil@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nhidden\r\n";

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		int n = snprintf(input, sizeof(input),
			"HELO x\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nfirst%s%s.\r\n",
			ends[i], hidden);
		const char *said = talk_in(input, (size_t)n, 7);

		check(strstr(said, "{a@b|1|first") != NULL);
		check(strstr(said, "hidden\r\n}250 2.0.0 Kept") != NULL);
		check(strstr(said, "{evil@b") == NULL);
	}
}

TEST(what_came_before_tls_is_forgotten)
{
	check_talk("HELO x\r\nMAIL FROM:<a@b>\r\nSTARTTLS\r\nRCPT TO:<c@d>\r\nSTARTTLS\r\n",
		"250 mx\r\n250 2.1.0 Ok\r\n220 2.0.0 Ready\r\n<tls>503 5.5.1 MAIL FROM comes first\r\n502 5.5.1 Not here\r\n");
}

TEST(every_password_is_right)
{
	check_talk("HELO x\r\nAUTH PLAIN AGEAYg==\r\n", "250 mx\r\n235 2.7.0 Accepted\r\n");
	check_talk(
		"HELO x\r\nAUTH plain\r\nAGEAYg==\r\n", "250 mx\r\n334 \r\n235 2.7.0 Accepted\r\n");
	check_talk("HELO x\r\nAUTH LOGIN\r\nYQ==\r\nYg==\r\n",
		"250 mx\r\n334 VXNlcm5hbWU6\r\n334 UGFzc3dvcmQ6\r\n235 2.7.0 Accepted\r\n");
	check_talk("HELO x\r\nAUTH LOGIN\r\n*\r\nAUTH CRAM-MD5\r\n",
		"250 mx\r\n334 VXNlcm5hbWU6\r\n501 5.7.0 Given up\r\n504 5.5.4 PLAIN or LOGIN\r\n");
}

TEST(long_lines_of_a_message_stay_whole)
{
	size_t n = 3 * SMTP_LINE_MAX;
	struct buf input = BUF_INIT(1 << 20), want = BUF_INIT(1 << 20);
	const char *begin = "HELO x\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n";

	buf_str(&input, begin);
	buf_char(&input, '.');
	for (size_t i = 0; i < n; i++)
		buf_char(&input, i % 3 == 0 ? '\r' : '.');
	buf_str(&want, input.p + strlen(begin) + 1);
	buf_str(&input, "\r\n.\r\n");
	buf_str(&want, "\r\n}");
	for (size_t piece = 1; piece <= n; piece = piece * 5 + 1)
		check(strstr(talk_in(input.p, input.n, piece), want.p) != NULL);
	buf_free(&input);
	buf_free(&want);
}

TEST(too_large_a_message_is_refused_and_the_next_one_taken)
{
	struct buf input = BUF_INIT(SMTP_MESSAGE_MAX + (1 << 20));
	char line[1000];

	memset(line, 'x', sizeof(line));
	memcpy(line + 998, "\r\n", 2);
	buf_str(&input, "HELO x\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n");
	while (input.n < SMTP_MESSAGE_MAX + 2000)
		buf_add(&input, line, sizeof(line));
	buf_str(&input, ".\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nok\r\n.\r\n");
	check(strstr(talk_in(input.p, input.n, 65536),
		      "552 5.3.4 The message is too large\r\n250 2.1.0 Ok\r\n250 2.1.5 Ok\r\n354 End with a line that holds only a dot\r\n{a@b|1|ok\r\n}") !=
		NULL);
	buf_free(&input);
}
