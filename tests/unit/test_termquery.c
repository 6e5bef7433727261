/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "codec/termquery.h"
#include "t.h"

static const char *stripped_in(const char *text, size_t piece)
{
	static struct buf out = { .max = 1 << 20 };
	struct termquery t = { 0 };

	buf_reset(&out);
	for (size_t i = 0, n = strlen(text); i < n; i += piece)
		termquery_strip(&t, text + i, n - i < piece ? n - i : piece, &out);
	termquery_end(&t, &out);
	return buf_cstr(&out);
}

/* However the text is cut, the result is the same. */
static void check_stripped(const char *text, const char *want)
{
	for (size_t piece = 1; piece <= strlen(text) + 1; piece++)
		check_str(stripped_in(text, piece), want);
}

TEST(what_a_terminal_answers_is_not_there)
{
	static const char *const questions[] = { "\033[c", "\033[0c", "\033[>c", "\033[>0c",
		"\033[=c", "\033[5n", "\033[6n", "\033[?6n", "\033[?2026$p", "\033[4$p", "\033[>q",
		"\033[>0q", "\033[?u", "\033[?4m", "\033[?2;1;0S", "\033[x", "\033[1x", "\033[14t",
		"\033[18t", "\033[1$w", "\033[1;1;1;1;2;2*y", "\033]10;?\a", "\033]11;?\033\\",
		"\033]4;1;?;2;?\a", "\033]52;c;?\a", "\033]21;foreground=?\033\\",
		"\033P+q544e\033\\", "\033P$qm\033\\", "\033_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\033\\",
		"\033_Ga=q\033\\", "\033Z", "\005" };

	for (size_t i = 0; i < ARRAY_SIZE(questions); i++) {
		cleanup_free char *text = str_dupf("a%sb\033[1mc", questions[i]);

		check_stripped(text, "ab\033[1mc");
	}
}

TEST(what_only_shows_stays_as_it_is)
{
	static const char *const shown[] = { "plain \303\244\n", "\033[?25l", "\033[?1;2c",
		"\033[>4;1n", "\033[>4;2m", "\033[31m", "\033[2 q", "\033[!p", "\033[u", "\033[>1u",
		"\033[<u", "\033[8;24;80t", "\033[22;0t", "\033[3;1;1;2;2$x", "\033[2*x", "\033[1S",
		"\033]0;why?\a", "\033]2;a;?\a", "\033]8;;http://x/?\033\\",
		"\033]4;1;rgb:00/00/00\a", "\033]52;c;YQ==\a", "\033P0;1;0q\"1;1;2;2#0\033\\",
		"\033PtmuX\033\\", "\033_Ga=T,f=24,s=1,v=1;AAAA\033\\", "\033_other a=q\033\\",
		"\033(B", "\0337", "\033=", "\033\033(B", "\033[3\n4m" };

	for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
		check_stripped(shown[i], shown[i]);
}

TEST(what_is_broken_off_hides_nothing_behind_it)
{
	check_stripped("\033[3\033[cx", "\033[3x");
	check_stripped("\033]0;t\033[cx", "\033]0;tx");
	check_stripped("\033P+q54\033[31mx", "\033[31mx");
	check_stripped("\033P+q54\030x", "x");
	check_stripped("\033Pq\033[cx", "\033Pqx");
	check_stripped("\033_Ga=T\033[cx", "\033_Ga=Tx");
	check_stripped("x\033[", "x\033[");
	check_stripped("x\033]11;?", "x\033]11;?");
}

TEST(a_sequence_that_is_too_long_is_no_question)
{
	struct buf text = BUF_INIT(1 << 16), out = BUF_INIT(1 << 16);
	struct termquery t = { 0 };

	buf_str(&text, "\033]11;");
	for (size_t i = 0; i < TERMQUERY_MAX; i++)
		buf_char(&text, ' ');
	buf_str(&text, ";?\a");
	termquery_strip(&t, text.p, text.n, &out);
	termquery_strip(&t, "\033[cx", 4, &out);
	check(out.n == text.n + 1 && memcmp(out.p, text.p, text.n) == 0);
	buf_free(&text);
	buf_free(&out);
}
