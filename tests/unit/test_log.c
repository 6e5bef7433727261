/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/str.h"
#include "t.h"

/* What a line looks like on stderr, into @got. */
static void capture(char *got, size_t size, const char *text)
{
	int ends[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	check_int(pipe(ends), 0);
	(void)dup2(ends[1], STDERR_FILENO);
	log_line(LOG_WARN, "part", "%s", text);
	(void)dup2(saved, STDERR_FILENO);
	(void)close(saved);
	(void)close(ends[1]);
	n = read(ends[0], got, size - 1);
	(void)close(ends[0]);
	got[n > 0 ? n : 0] = '\0';
}

TEST(control_bytes_cannot_forge_a_line)
{
	char got[4096];

	capture(got, sizeof(got), "a\nb\rc\x1B[31md\x7F");
	check(str_ends(got, " a?b?c?[31md?\n"));
	check(strchr(got, '\n') == got + strlen(got) - 1);
}

TEST(a_long_line_is_cut_and_ends_in_a_newline)
{
	char got[8192], text[6000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	capture(got, sizeof(got), text);
	check(strlen(got) <= 2048);
	check(str_ends(got, "x\n"));
}

TEST(names_level_program_and_component)
{
	char got[4096];

	log_init("prog");
	capture(got, sizeof(got), "text");
	check(str_ends(got, "Z warn prog/part text\n"));
}

TEST(debug_is_on_only_for_what_was_named)
{
	(void)unsetenv("CAY_DEBUG");
	log_init("prog");
	check(!log_debug_on("store"));
	(void)setenv("CAY_DEBUG", "keeper,store", 1);
	log_init("prog");
	check(log_debug_on("store"));
	check(log_debug_on("keeper"));
	check(!log_debug_on("stor"));
	check(!log_debug_on("stores"));
	check(!log_debug_on(""));
	(void)setenv("CAY_DEBUG", "all", 1);
	log_init("prog");
	check(log_debug_on("anything"));
}
