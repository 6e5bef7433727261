/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/scrub.h"
#include "t.h"

static const struct scrub_pair pairs[] = {
	{ "sk_live_Ab3/x+Yz09QwErTy", "sk_live_Zz9/q+Aa11XxXxXx" },
	{ "hunter2hunter2", "aaaaaa3bbbbbb4" },
};

static struct scrub_set *set;

static const char *scrubbed_in(const char *text, size_t piece)
{
	static struct buf out = { .max = 1 << 20 };
	struct scrub *s = scrub_new(set);

	buf_reset(&out);
	for (size_t i = 0, n = strlen(text); i < n; i += piece)
		scrub_write(s, text + i, n - i < piece ? n - i : piece, &out);
	scrub_end(s, &out);
	scrub_free(s);
	return buf_cstr(&out);
}

/* However the text is cut, the result is the same. */
static void check_scrubbed(const char *text, const char *want)
{
	for (size_t piece = 1; piece <= strlen(text) + 1; piece++)
		check_str(scrubbed_in(text, piece), want);
}

static void prepare(void)
{
	if (set == NULL)
		set = scrub_set_new(pairs, ARRAY_SIZE(pairs));
	check(set != NULL);
}

TEST(what_cannot_be_a_secret)
{
	struct scrub_pair bad[] = { { "short1", "short2" }, { "with a space", "with a place" },
		{ "abcdefgh", "abcdefg" }, { "abc/defgh", "abc-defgh" }, { "--------", "--------" },
		{ "caf\xc3\xa9"
		  "abcdef",
			"caf\xc3\xa9"
			"abcdef" } };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		check(scrub_set_new(&bad[i], 1) == NULL);
}

TEST(a_placeholder_has_the_shape_and_not_the_letters)
{
	unsigned char random[64];
	char *s;

	memset(random, 7, sizeof(random));
	s = scrub_placeholder("sk_live_Ab3/x+Yz09QwErTy", random);
	check_str(s, "sk_live_Hh7/h+Hh77HhHhHh");
	free(s);
	s = scrub_placeholder("pass_word", random);
	check_str(s, "hhhh_hhhh");
	free(s);
	s = scrub_placeholder("ghp_0123456789abcdefghij-x", random);
	check_str(s, "ghp_7777777777hhhhhhhhhh-h");
	free(s);
}

TEST(the_bytes_themselves)
{
	prepare();
	check_scrubbed("", "");
	check_scrubbed("hunter2hunter2", "aaaaaa3bbbbbb4");
	check_scrubbed("xhunter2hunter2hunter2x", "xaaaaaa3aaaaaa3bbbbbb4x");
	check_scrubbed("hunter2hunter", "hunter2hunter");
	check_scrubbed("hunter2hunter1hunter2hunter2", "hunter2hunter1aaaaaa3bbbbbb4");
	check_scrubbed(
		"{\"k\":\"sk_live_Ab3/x+Yz09QwErTy\"}", "{\"k\":\"sk_live_Zz9/q+Aa11XxXxXx\"}");
}

TEST(percent_and_json_escapes_of_any_byte)
{
	prepare();
	check_scrubbed("k=sk_live_Ab3%2Fx%2bYz09QwErTy&", "k=sk_live_Zz9%2Fq%2bAa11XxXxXx&");
	check_scrubbed("%68unte%722hunter2", "%61aaaa%613bbbbbb4");
	check_scrubbed("sk_live_%41b3%2fx%2bYz09QwErTy", "sk_live_%5Az9%2fq%2bAa11XxXxXx");
	check_scrubbed("sk_live_Ab3\\/x+Yz09QwErTy", "sk_live_Zz9\\/q+Aa11XxXxXx");
	check_scrubbed("\\u0068unter2hunter2", "\\u0061aaaaa3bbbbbb4");
	check_scrubbed(
		"\\u006Aunter2hunter2 \\x\\\\%%6%zz%", "\\u006Aunter2hunter2 \\x\\\\%%6%zz%");
	check_scrubbed("%%68unter2hunter2", "%%61aaaaa3bbbbbb4");
	check_scrubbed("\\\\u0068unter2hunter2", "\\\\u0068unter2hunter2");
}

/* Pages show what they were asked for, and URLs hold URLs: letters and digits stay as they are there, the rest does not. */
TEST(what_is_special_in_html_and_in_urls_within_urls)
{
	prepare();
	check_scrubbed("sk_live_Ab3&#x2F;x&#43;Yz09QwErTy", "sk_live_Zz9&#x2F;q&#43;Aa11XxXxXx");
	check_scrubbed(
		"sk_live_Ab3&#x002f;x&#043;Yz09QwErTy", "sk_live_Zz9&#x002f;q&#043;Aa11XxXxXx");
	check_scrubbed(
		"&&#&sk_live_Ab3&#47;x+Yz09QwErTy&amp;&", "&&#&sk_live_Zz9&#47;q+Aa11XxXxXx&amp;&");
	check_scrubbed("u=%253Fk%253Dsk_live_Ab3%252Fx%252bYz09QwErTy%2526",
		"u=%253Fk%253Dsk_live_Zz9%252Fq%252bAa11XxXxXx%2526");
	check_scrubbed(
		"%252sk_live_%2541b3%252Fx%2BYz09QwErTy", "%252sk_live_%2541b3%252Fx%2BYz09QwErTy");
	check_scrubbed(
		"%252sk_live_%2541b3%252Fx+Yz09QwErTy", "%252sk_live_%255Az9%252Fq+Aa11XxXxXx");
	check_scrubbed("sk_live_Ab3&#x2Fx+Yz09QwErTy", "sk_live_Ab3&#x2Fx+Yz09QwErTy");
	check_scrubbed("sk_live_Ab3&sol;x+Yz09QwErTy", "sk_live_Ab3&sol;x+Yz09QwErTy");
}

TEST(hexadecimal)
{
	prepare();
	check_scrubbed("68756e7465723268756e74657232", "6161616161613362626262626234");
	check_scrubbed("68756E7465723268756E74657232", "6161616161613362626262626234");
}

TEST(base64_at_any_offset)
{
	prepare();
	/* user:hunter2hunter2, :hunter2hunter2, xxhunter2hunter2: the digits that are the secret alone change; of a last, shared one four bits stay */
	check_scrubbed("dXNlcjpodW50ZXIyaHVudGVyMg==", "dXNlcjphYWFhYWEzYmJiYmJiNg==");
	check_scrubbed("Omh1bnRlcjJodW50ZXIy", "OmFhYWFhYTNiYmJiYmI0");
	check_scrubbed("eHhodW50ZXIyaHVudGVyMg==", "eHhhYWFhYWEzYmJiYmJiNg==");
}

static uint64_t count(const char *text)
{
	struct buf out = BUF_INIT(1000);
	uint64_t n = scrub_whole(set, text, strlen(text), &out);

	buf_free(&out);
	return n;
}

TEST(each_is_counted_once)
{
	prepare();
	check_int(count("nothing"), 0);
	check_int(count("hunter2hunter2"), 1);
	check_int(count("hunter2hunter2 hunter2hunter%32 sk_live_Ab3/x+Yz09QwErTy"), 3);
}

TEST(lengths_never_change)
{
	static const char *const texts[] = { "hunter2hunter2", "%68unter2hunter2",
		"dXNlcjpodW50ZXIyaHVudGVyMg==" };

	prepare();
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		check_int(strlen(scrubbed_in(texts[i], 3)), strlen(texts[i]));
}

/* @text in pieces of @n bytes, each given out at once. */
static const char *flushed_in(const char *text, size_t n)
{
	static struct buf out = BUF_INIT(1000);
	struct scrub *s = scrub_new(set);
	size_t size = strlen(text);

	buf_reset(&out);
	for (size_t i = 0; i < size; i += n) {
		scrub_write(s, text + i, size - i < n ? size - i : n, &out);
		scrub_flush(s, &out);
		check_int(out.n, size - i < n ? size : i + n);
	}
	scrub_free(s);
	return buf_cstr(&out);
}

/* What comes of @text, flushed, for who has said @said before. */
static const char *flushed_for(const char *said, const char *text)
{
	static struct buf out = BUF_INIT(1000);
	struct scrub *up = scrub_new(set), *down = scrub_new(set);
	struct scrub_heard *heard = scrub_heard_new(up);

	scrub_note(up, heard);
	scrub_spare(down, heard);
	scrub_write(up, said, strlen(said), &out);
	buf_reset(&out);
	scrub_write(down, text, strlen(text), &out);
	scrub_flush(down, &out);
	scrub_free(up);
	scrub_free(down);
	free(heard);
	return buf_cstr(&out);
}

/* How much comes of @text while more may follow, where bytes are held back evenly. */
static size_t given_out(const char *text)
{
	struct buf out = BUF_INIT(1000);
	struct scrub *s = scrub_new(set);
	size_t n;

	scrub_evenly(s);
	scrub_write(s, text, strlen(text), &out);
	n = out.n;
	check(scrub_holds(s) == (n < strlen(text)));
	scrub_end(s, &out);
	check_int(out.n, strlen(text));
	buf_free(&out);
	scrub_free(s);
	return n;
}

TEST(what_is_held_back_does_not_tell_what_a_secret_begins_with)
{
	static const char *const guesses[] = { "h", "x", "hunter2", "hunted2", "sk_live_A",
		"sk_live_B", "68756", "68757", "%68", "%69", "\\u0068", "\\u0069", "aHVu", "aHVv" };
	char text[100];

	prepare();
	for (size_t i = 0; i < ARRAY_SIZE(guesses); i++) {
		(void)snprintf(text, sizeof(text), "data: %s", guesses[i]);
		check_int(given_out(text), 6);
		(void)snprintf(text, sizeof(text), "data:%s\n", guesses[i]);
		check_int(given_out(text), strlen(text));
	}
}

/* @text, which pauses behind @n bytes. */
static const char *let_go_behind(const char *text, size_t n)
{
	static struct buf out = BUF_INIT(1000);
	struct scrub *s = scrub_new(set);

	buf_reset(&out);
	scrub_evenly(s);
	scrub_write(s, text, n, &out);
	scrub_let_go(s, &out);
	check_int(out.n, n);
	scrub_write(s, text + n, strlen(text + n), &out);
	scrub_end(s, &out);
	scrub_free(s);
	return buf_cstr(&out);
}

TEST(a_text_that_pauses)
{
	prepare();
	check_str(let_go_behind("hunter2hunter2", 11), "hunter2huntbb4");
	check_str(let_go_behind("hunter2hunter2", 12), "aaaaaa3bbbbbb4");
	check_str(let_go_behind("hunter2hunter2", 14), "aaaaaa3bbbbbb4");
	check_str(let_go_behind("hunter2hunter1", 13), "aaaaaa3bbbbbb1");
	check_str(let_go_behind("say hunter now", 10), "say hunter now");
}

TEST(who_has_said_it_gets_it_back)
{
	prepare();
	check_str(flushed_for("hunter", "hunter"), "hunter");
	check_str(flushed_for("hunted", "hunter"), "aaaaaa");
	check_str(flushed_for("hunter", "hunter2"), "aaaaaa3");
	check_str(flushed_for("a hunter2 and more", "hunter"), "hunter");
	check_str(flushed_for("hunter2hunter2", "hunter2hunter2"), "aaaaaa3bbbbbb4");
	check_str(flushed_for("hunter", "sk_live_Ab3/x+Yz0"), "sk_live_Zz9/q+Aa1");
	/* in another rendering; a half of a byte, too */
	check_str(flushed_for("%68unter", "68756e746572"), "68756e746572");
	check_str(flushed_for("68756e74657", "68756e74657"), "68756e74657");
	check_str(flushed_for("hunte", "68756e74657"), "61616161616");
	check_str(flushed_for("aHVudGVy", "aHVudGVy"), "aHVudGVy");
	check_str(flushed_for("eHhodW50ZXI", "hunter"), "hunter");
	check_str(flushed_for("eHhodW50ZX", "hunter"), "aaaaaa");
}

TEST(what_is_flushed_shows_less_than_what_is_certain)
{
	prepare();
	check_str(flushed_in("sk_live_Ab3/x+Yz09QwErTy", 100), "sk_live_Zz9/q+Aa11XxXxXx");
	check_str(flushed_in("sk_live_Ab3/x+Yz09QwErTy", 14), "sk_live_Ab3/x+Aa11XxXxXx");
	check_str(flushed_in("sk_live_Ab3/x+Yz09QwErTy", 15), "sk_live_Zz9/q+Aa11XxXxXx");
	check_str(flushed_in("sk_live_Ab3/x+Yz09QwErTy", 1), "sk_live_Ab3/x+Aa11XxXxXx");
	check_str(flushed_in("%68unter%32hunter2", 1), "%68untaa%33bbbbaa3");
	check_str(flushed_in("sk_live_Ab3/x+", 3), "sk_live_Ab3/x+");
	check_str(flushed_in("nothing at all", 4), "nothing at all");
}
