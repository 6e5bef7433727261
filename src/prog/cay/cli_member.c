/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/cli_member.h"
#include "base/str.h"

#define SHOWN_MAX 60 /* bytes of a value */

/* Of POST /v1/run, which takes two requests in one. */
static const char *own_part(const char *member)
{
	static const char *const parts[] = { "sandbox.", "exec." };

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (str_starts(member, parts[i]))
			return member + strlen(parts[i]);
	}
	return member;
}

/* The value of @flag that begins with @name and = or :. */
static const char *value_named(const struct cli_args *args, enum cli_flag flag, const char *name)
{
	size_t n = strlen(name);
	const char *text;

	for (size_t pos = 0; (text = cli_args_next(args, flag, &pos)) != NULL;) {
		if (strncmp(text, name, n) == 0 && (text[n] == '=' || text[n] == ':'))
			return text;
	}
	return NULL;
}

/* The value of @flag that was given as the @index-th, a number with what follows it. */
static const char *value_numbered(
	const struct cli_args *args, enum cli_flag flag, const char *index)
{
	unsigned long left = strtoul(index, NULL, 10);
	const char *text;

	for (size_t pos = 0; (text = cli_args_next(args, flag, &pos)) != NULL; left--) {
		if (left == 0)
			return text;
	}
	return NULL;
}

/* The value that became @member; NULL when @row is not of it, or its flag was not given. */
static const char *value_of(
	const struct cli_args *args, const struct cli_sets_row *row, const char *member)
{
	size_t n = strcspn(row->member, "[*");
	char next;

	if (strncmp(member, row->member, n) != 0)
		return NULL;
	next = member[n];
	if (row->member[n] == '*')
		return value_named(args, row->flag, member + n);
	if (row->member[n] == '[')
		return next == '[' ? value_numbered(args, row->flag, member + n + 1) : NULL;
	return next == '\0' || next == '[' ? cli_args_value(args, row->flag) : NULL;
}

/* What a number of the API counts, which the option may be given in other units. */
static const char *unit_of(const char *member)
{
	static const char *const units[][2] = { { "_bytes", "bytes" }, { "_ms", "milliseconds" },
		{ "_s", "seconds" }, { "_millis", "thousandths" } };

	if (str_eq(member, "bytes"))
		return member;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (str_ends(member, units[i][0]))
			return units[i][1];
	}
	return NULL;
}

bool cli_member_explain(
	const struct cli_args *args, const char *member, const char *message, struct buf *ret)
{
	cleanup_free char *quoted = str_dupf("'%s' ", member);
	const char *own = own_part(member), *unit = unit_of(own), *value = NULL;
	const struct cli_sets_row *row;

	for (size_t i = 0; value == NULL && (row = cli_sets_row(i)) != NULL; i++)
		value = value_of(args, row, own);
	if (value == NULL)
		return false;
	if (str_starts(message, quoted))
		message += strlen(quoted);
	buf_fmt(ret, "--%s '%.*s%s': %s", cli_flags[row->flag].name, SHOWN_MAX, value,
		strlen(value) > SHOWN_MAX ? "…" : "", message);
	if (unit != NULL && str_starts(message, "must be from "))
		buf_fmt(ret, " (%s)", unit);
	return true;
}
