/* SPDX-License-Identifier: Apache-2.0 */
#include "api/schema.h"
#include "base/ablate.h"
#include "base/id.h"
#include "base/str.h"
#include "codec/nesting.h"

#include <regex.h>

#define DEPTH_MAX 32
#define WHOLE_MAX 9007199254740992.0 /* 2^53: beyond it a double leaves numbers out */

static bool hostname_valid(const char *s)
{
	size_t n = strlen(s);

	return n > 0 && n <= 63 && s[0] != '-' && s[n - 1] != '-' &&
	       strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") == n;
}

static int check_format(
	const struct schema *s, const char *text, const char *where, struct err *err)
{
	switch (s->format) {
	case FORMAT_NONE:
	case FORMAT_NONUL: /* jansson refuses NUL in strings */
		return 0;
	case FORMAT_NAME:
		if (name_valid(text) || ablated("name_format"))
			return 0;
		return err_raise(err, ERR_INVALID,
			"'%s' must be a name: a-z, 0-9, '.', '_', '-', beginning with a letter or digit, and not shaped like an id",
			where);
	case FORMAT_PATH:
		if (str_path_clean(text))
			return 0;
		return err_raise(err, ERR_INVALID,
			"'%s' must be an absolute path without '.', '..', empty parts and control bytes",
			where);
	case FORMAT_HOSTNAME:
		if (hostname_valid(text))
			return 0;
		return err_raise(err, ERR_INVALID, "'%s' must be a host name", where);
	}
	return 0;
}

/* Compiled once, which takes as long as all else that is checked of a request. They are few, from the tables, and stay. */
static const regex_t *compiled(const char *pattern)
{
	static struct known {
		const struct known *next;
		const char *pattern;
		regex_t re;
	} * first;
	struct known *k;

	for (const struct known *old = first; old != NULL; old = old->next) {
		if (old->pattern == pattern)
			return &old->re;
	}
	k = xnew(struct known);
	if (regcomp(&k->re, pattern, REG_EXTENDED | REG_NOSUB) != 0)
		abort(); /* a table of ours */
	k->pattern = pattern;
	k->next = first;
	first = k;
	return &k->re;
}

static int check_pattern(
	const struct schema *s, const char *text, const char *where, struct err *err)
{
	if (s->pattern == NULL || regexec(compiled(s->pattern), text, 0, NULL, 0) == 0)
		return 0;
	return err_raise(err, ERR_INVALID, "'%s' must match %s", where, s->pattern);
}

static int check_string(
	const struct schema *s, const char *text, const char *where, struct err *err)
{
	size_t n = strlen(text);
	int rc;

	if ((int64_t)n > s->max)
		return err_raise(
			err, ERR_TOO_LARGE, "'%s' is longer than %ld bytes", where, s->max);
	if ((int64_t)n < s->min)
		return err_raise(
			err, ERR_INVALID, "'%s' must not be shorter than %ld bytes", where, s->min);
	if (s->values != NULL) {
		for (const char *const *v = s->values; *v != NULL; v++) {
			if (str_eq(*v, text))
				return 0;
		}
		return err_raise(err, ERR_INVALID, "'%s' has no value '%.60s'", where, text);
	}
	rc = check_format(s, text, where, err);
	return rc < 0 ? rc : check_pattern(s, text, where, err);
}

static int check_integer(const struct schema *s, int64_t value, const char *where, struct err *err)
{
	if (value < s->min || value > s->max)
		return err_raise(err, ERR_INVALID, "'%s' must be from %ld to %ld, not %ld", where,
			s->min, s->max, value);
	return 0;
}

/* JSON has one kind of number: one that is whole is an integer, however it is written (100.0, 1e6). NULL: it is none, or is one already. */
static json_t *whole(const struct schema *s, const json_t *value)
{
	double real = json_real_value(value);

	if (s->kind != SCHEMA_INTEGER || !json_is_real(value) || real <= -WHOLE_MAX ||
		real >= WHOLE_MAX || real < (double)(json_int_t)real ||
		real > (double)(json_int_t)real)
		return NULL;
	return json_integer((json_int_t)real);
}

static int check_array(const struct schema *s, json_t *value, const char *where, struct err *err)
{
	size_t n = json_array_size(value);
	char inner[200];

	if ((int64_t)n > s->max)
		return err_raise(err, ERR_TOO_LARGE, "'%s' has more than %ld items", where, s->max);
	if ((int64_t)n < s->min)
		return err_raise(err, ERR_INVALID, "'%s' needs at least %ld items", where, s->min);
	for (size_t i = 0; i < n; i++) {
		json_t *integer = whole(s->items, json_array_get(value, i));
		int rc;

		if (integer != NULL)
			(void)json_array_set_new(value, i, integer);
		(void)snprintf(inner, sizeof(inner), "%.150s[%zu]", where, i);
		rc = schema_check(s->items, json_array_get(value, i), inner, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static const struct schema_member *member_find(const struct schema *s, const char *name)
{
	for (size_t i = 0; i < s->n_members; i++) {
		if (str_eq(s->members[i].name, name))
			return &s->members[i];
	}
	return NULL;
}

/* The innermost one that was looked at is the one that was refused. */
static int name_refused(int rc, const char *where, struct err *err)
{
	return rc < 0 && err != NULL && err->member[0] == '\0' ? err_member(err, rc, "%s", where)
							       : rc;
}

/* Is @key a name for a free member of @where? */
static int check_key(const struct schema *s, const char *key, const char *where, const char *inner,
	struct err *err)
{
	int rc = s->keys != NULL ? check_string(s->keys, key, "key", err) : 0;

	if (rc < 0)
		err_context(err, "%s", where);
	return name_refused(rc, inner, err);
}

static int check_object(const struct schema *s, json_t *value, const char *where, struct err *err)
{
	const char *key;
	json_t *member;
	char inner[200];

	if ((int64_t)json_object_size(value) > s->max)
		return err_raise(
			err, ERR_TOO_LARGE, "'%s' has more than %ld members", where, s->max);
	json_object_foreach (value, key, member) {
		const struct schema_member *m = member_find(s, key);
		const struct schema *schema = m != NULL ? m->schema : s->items;
		json_t *integer = schema != NULL ? whole(schema, member) : NULL;
		int rc;

		if (integer != NULL) {
			(void)json_object_set_new(value, key, integer);
			member = integer;
		}

		(void)snprintf(inner, sizeof(inner), "%.100s%s%.90s", where,
			where[0] != '\0' ? "." : "", key);
		if (schema == NULL && ablated("unknown_members"))
			continue;
		if (schema == NULL)
			return err_member(err,
				err_raise(err, ERR_INVALID, "unknown member '%s'", inner), "%s",
				inner);
		rc = m == NULL ? check_key(s, key, where, inner, err) : 0;
		if (rc == 0)
			rc = schema_check(schema, member, inner, err);
		if (rc < 0)
			return rc;
	}
	for (size_t i = 0; i < s->n_members; i++) {
		if (!s->members[i].required || json_object_get(value, s->members[i].name) != NULL)
			continue;
		(void)snprintf(inner, sizeof(inner), "%.100s%s%.90s", where,
			where[0] != '\0' ? "." : "", s->members[i].name);
		return err_member(
			err, err_raise(err, ERR_INVALID, "'%s' is missing", inner), "%s", inner);
	}
	return 0;
}

static int wrong_kind(const char *where, const char *kind, struct err *err)
{
	return err_raise(
		err, ERR_INVALID, "'%s' must be %s", where[0] != '\0' ? where : "body", kind);
}

static int check_value(
	const struct schema *schema, const json_t *value, const char *where, struct err *err)
{
	if (json_is_null(value) && schema->nullable)
		return 0;
	switch (schema->kind) {
	case SCHEMA_OBJECT:
		if (!json_is_object(value))
			return wrong_kind(where, "an object", err);
		return check_object(schema, (json_t *)(uintptr_t)value, where, err);
	case SCHEMA_ARRAY:
		if (!json_is_array(value))
			return wrong_kind(where, "an array", err);
		return check_array(schema, (json_t *)(uintptr_t)value, where, err);
	case SCHEMA_STRING:
		if (!json_is_string(value))
			return wrong_kind(where, "a string", err);
		return check_string(schema, json_string_value(value), where, err);
	case SCHEMA_INTEGER:
		if (!json_is_integer(value))
			return wrong_kind(where, "an integer", err);
		return check_integer(schema, json_integer_value(value), where, err);
	case SCHEMA_BOOLEAN:
		return json_is_boolean(value) ? 0 : wrong_kind(where, "true or false", err);
	}
	return 0;
}

int schema_check(
	const struct schema *schema, const json_t *value, const char *where, struct err *err)
{
	return name_refused(check_value(schema, value, where, err), where, err);
}

static int check_text(
	const struct schema *schema, const char *text, const char *where, struct err *err)
{
	uint64_t value;

	switch (schema->kind) {
	case SCHEMA_STRING:
		return check_string(schema, text, where, err);
	case SCHEMA_INTEGER:
		if (str_to_u64(text, 0, INT64_MAX, &value) < 0)
			return wrong_kind(where, "a number", err);
		return check_integer(schema, (int64_t)value, where, err);
	case SCHEMA_BOOLEAN:
		return str_eq(text, "true") || str_eq(text, "false")
			       ? 0
			       : wrong_kind(where, "true or false", err);
	case SCHEMA_OBJECT:
	case SCHEMA_ARRAY:
		break;
	}
	return wrong_kind(where, "a simple value", err);
}

int schema_check_text(
	const struct schema *schema, const char *text, const char *where, struct err *err)
{
	return name_refused(check_text(schema, text, where, err), where, err);
}

int schema_parse(const char *text, size_t n, json_t **ret, struct err *err)
{
	json_error_t why;
	json_t *value;

	if (nesting_exceeds(text, n, DEPTH_MAX) && !ablated("json_depth"))
		return err_raise(
			err, ERR_INVALID, "the body is nested more than %d levels deep", DEPTH_MAX);
	value = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
	if (value == NULL && json_error_code(&why) == json_error_null_character)
		return err_raise(err, ERR_INVALID,
			"a text in the body holds \\u0000, which nothing here takes, near byte %d",
			why.position);
	if (value == NULL)
		return err_raise(err, ERR_INVALID, "the body is not valid JSON: %.100s at byte %d",
			why.text, why.position);
	*ret = value;
	return 0;
}
