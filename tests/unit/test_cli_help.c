/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cli_help.h"
#include "t.h"

TEST(every_verb_has_a_summary_help_and_an_example)
{
	for (unsigned int v = 0; v < VERB_COUNT_; v++) {
		const struct cli_verb_row *row = &cli_verbs[v];
		cleanup_free char *call = str_dupf("cay %s", row->words);
		struct buf help = BUF_INIT(1 << 16);

		cli_help_verb(&help, (enum cli_verb)v);
		check(!buf_failed(&help));
		if (row->words == NULL || row->summary == NULL || *row->summary == '\0')
			t_fail("%s has no summary", row->id);
		if (strstr(row->examples, call) == NULL)
			t_fail("%s has no example that calls it", row->words);
		if (strstr(buf_cstr(&help), "examples:") == NULL ||
			strstr(buf_cstr(&help), call) == NULL)
			t_fail("the help of %s shows no example", row->words);
		if (row->min > row->max)
			t_fail("%s: min > max", row->words);
		buf_free(&help);
	}
}

TEST(every_flag_is_taken_by_some_verb_and_has_help)
{
	for (unsigned int f = 0; f < FLAG_COUNT_; f++) {
		bool taken = false;

		for (unsigned int v = 0; v < VERB_COUNT_; v++)
			taken = taken || cli_takes((enum cli_verb)v, (enum cli_flag)f);
		if (!taken || cli_flags[f].help == NULL || *cli_flags[f].help == '\0')
			t_fail("--%s", cli_flags[f].name);
	}
}

TEST(no_verb_takes_two_flags_of_one_letter_or_name)
{
	for (unsigned int v = 0; v < VERB_COUNT_; v++) {
		for (unsigned int f = 0; f < FLAG_COUNT_; f++) {
			for (unsigned int g = f + 1; g < FLAG_COUNT_; g++) {
				if (!cli_takes((enum cli_verb)v, (enum cli_flag)f) ||
					!cli_takes((enum cli_verb)v, (enum cli_flag)g))
					continue;
				if (str_eq(cli_flags[f].name, cli_flags[g].name) ||
					(cli_flags[f].letter != 0 &&
						cli_flags[f].letter == cli_flags[g].letter))
					t_fail("%s: --%s and --%s", cli_verbs[v].words,
						cli_flags[f].name, cli_flags[g].name);
			}
		}
	}
}

TEST(lines_of_help_fit_a_terminal)
{
	struct buf out = BUF_INIT(1 << 20);

	for (unsigned int v = 0; v < VERB_COUNT_; v++)
		cli_help_verb(&out, (enum cli_verb)v);
	for (const char *p = buf_cstr(&out); *p != '\0';) {
		size_t n = strcspn(p, "\n"), columns = 0;

		for (size_t i = 0; i < n; i++)
			columns += (p[i] & 0xC0) != 0x80;
		if (columns > 130)
			t_fail("%zu columns: %.*s", columns, (int)n, p);
		p += n;
		p += *p == '\n';
	}
	buf_free(&out);
}

TEST(the_reference_and_the_completions_name_every_verb_and_flag)
{
	static const char *const shells[] = { "bash", "zsh", "fish" };
	struct buf page = BUF_INIT(1 << 20);

	cli_help_markdown(&page);
	for (unsigned int v = 0; v < VERB_COUNT_; v++) {
		cleanup_free char *title = str_dupf("\n## cay %s\n", cli_verbs[v].words);

		if (strstr(buf_cstr(&page), title) == NULL)
			t_fail("no chapter %s", cli_verbs[v].words);
	}
	for (size_t i = 0; i < ARRAY_SIZE(shells); i++) {
		struct buf script = BUF_INIT(1 << 20);

		check_int(cli_completion(&script, shells[i]), 0);
		for (unsigned int f = 0; f < FLAG_COUNT_; f++) {
			if (strstr(buf_cstr(&script), cli_flags[f].name) == NULL)
				t_fail("%s does not complete --%s", shells[i], cli_flags[f].name);
		}
		buf_free(&script);
	}
	check_int(cli_completion(&page, "tcsh"), -EINVAL);
	buf_free(&page);
}
