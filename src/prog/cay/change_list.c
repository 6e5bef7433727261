/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/change_list.h"
#include "base/str.h"

static const struct {
	const char *kind;
	char colour;
} kinds[] = { { "added", '2' }, { "modified", '3' }, { "deleted", '1' }, { "renamed", '6' },
	{ "metadata", '5' } };

static char type_letter(const json_t *state)
{
	static const struct {
		const char *type;
		char letter;
	} types[] = { { "file", '-' }, { "directory", 'd' }, { "symlink", 'l' }, { "fifo", 'p' },
		{ "socket", 's' }, { "char", 'c' }, { "block", 'b' } };
	const char *type = cli_string(state, "type", "");

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (str_eq(types[i].type, type))
			return types[i].letter;
	}
	return '?';
}

static void put_mode(struct buf *out, const json_t *state)
{
	buf_char(out, type_letter(state));
	text_mode(out, (unsigned int)cli_number(state, "mode"));
}

/* The mode of what is there now; both when a change changed it. */
static void mode_cell(struct table *t, const json_t *before, const json_t *after)
{
	struct buf cell = BUF_INIT(256), was = BUF_INIT(256);

	put_mode(&cell, json_is_object(after) ? after : before);
	if (json_is_object(before) && json_is_object(after)) {
		put_mode(&was, before);
		if (!str_eq(buf_cstr(&was), buf_cstr(&cell))) {
			buf_str(&was, " → ");
			buf_str(&was, buf_cstr(&cell));
			table_buf(t, &was);
			buf_free(&was);
			buf_free(&cell);
			return;
		}
	}
	table_buf(t, &cell);
	buf_free(&cell);
	buf_free(&was);
}

static bool has_size(const json_t *state)
{
	return json_is_object(state) && str_eq(cli_string(state, "type", ""), "file");
}

/* "1.2 KiB → 3.4 KiB", or "1.2 KiB (+11 B)" when both would read the same. */
static void put_sizes(struct buf *cell, uint64_t before, uint64_t after)
{
	struct buf was = BUF_INIT(64), is = BUF_INIT(64);

	text_size(&was, before);
	text_size(&is, after);
	if (str_eq(buf_cstr(&was), buf_cstr(&is)))
		buf_fmt(cell, "%s (%c%llu B)", buf_cstr(&is), after > before ? '+' : '-',
			(unsigned long long)(after > before ? after - before : before - after));
	else
		buf_fmt(cell, "%s → %s", buf_cstr(&was), buf_cstr(&is));
	buf_free(&was);
	buf_free(&is);
}

static void size_cell(struct table *t, const json_t *before, const json_t *after)
{
	struct buf cell = BUF_INIT(256);
	uint64_t a = cli_number(before, "size"), b = cli_number(after, "size");

	if (has_size(before) && has_size(after) && a != b)
		put_sizes(&cell, a, b);
	else if (has_size(before) || has_size(after))
		text_size(&cell, has_size(after) ? b : a);
	table_buf(t, &cell);
	buf_free(&cell);
}

/* Path, link target, and who owns it when that is what changed. */
static void path_cell(struct table *t, const json_t *change)
{
	const json_t *before = json_object_get(change, "before"),
		     *after = json_object_get(change, "after");
	const char *from = cli_string(change, "from", NULL),
		   *to = cli_string(after, "target", NULL);
	uint64_t u = cli_number(before, "uid"), g = cli_number(before, "gid"),
		 u2 = cli_number(after, "uid"), g2 = cli_number(after, "gid");
	struct buf cell = BUF_INIT(ANSWER_MAX);

	if (from != NULL)
		buf_fmt(&cell, "%s → ", from);
	buf_str(&cell, cli_string(change, "path", "?"));
	if (to != NULL)
		buf_fmt(&cell, " -> %s", to);
	if (json_is_object(before) && json_is_object(after) && (u != u2 || g != g2))
		buf_fmt(&cell, "  (owner %llu:%llu → %llu:%llu)", (unsigned long long)u,
			(unsigned long long)g, (unsigned long long)u2, (unsigned long long)g2);
	table_buf(t, &cell);
	buf_free(&cell);
}

/* "3 added, 1 modified"; "no changes" when there are none. */
static void change_list_summary(struct buf *out, const json_t *changes)
{
	size_t count[ARRAY_SIZE(kinds)] = { 0 }, i;
	const char *sep = "";
	json_t *c;

	json_array_foreach (changes, i, c) {
		for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
			count[k] += str_eq(cli_string(c, "kind", ""), kinds[k].kind);
	}
	if (json_array_size(changes) == 0)
		buf_str(out, "no changes");
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		if (count[k] == 0)
			continue;
		buf_fmt(out, "%s%zu %s%s", sep, count[k],
			k == ARRAY_SIZE(kinds) - 1 ? "with other " : "", kinds[k].kind);
		sep = ", ";
	}
}

void change_list_print(const struct cli *cli, struct buf *out, const json_t *changes)
{
	struct table t;
	json_t *c;
	size_t i;

	table_init(&t, "CHANGE|MODE|>SIZE|PATH");
	t.colour = cli->colour;
	json_array_foreach (changes, i, c) {
		const json_t *before = json_object_get(c, "before"),
			     *after = json_object_get(c, "after");

		for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
			if (str_eq(cli_string(c, "kind", ""), kinds[k].kind))
				table_paint(&t, kinds[k].colour);
		}
		table_cell(&t, cli_string(c, "kind", "?"));
		mode_cell(&t, before, after);
		size_cell(&t, before, after);
		path_cell(&t, c);
	}
	if (json_array_size(changes) > 0)
		table_print(&t, out);
	else
		buf_free(&t.cells);
	change_list_summary(out, changes);
	buf_char(out, '\n');
}
