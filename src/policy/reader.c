/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/reader.h"
#include "base/buf.h"
#include "base/str.h"
#include "policy/policy.h"

#include <stdarg.h>

size_t reader_enter(struct reader *r, const char *fmt, ...)
{
	size_t mark = strlen(r->where);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(r->where + mark, sizeof(r->where) - mark, fmt, ap);
	va_end(ap);
	return mark;
}

void reader_leave(struct reader *r, size_t mark)
{
	r->where[mark] = '\0';
}

int reader_fail(struct reader *r, const char *fmt, ...)
{
	const char *where = *r->where == '.' ? r->where + 1 : r->where;
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)err_raise(r->err, ERR_INVALID, "%s: %s", *where != '\0' ? where : "policy", text);
	return -EINVAL;
}

static int fail_member(struct reader *r, const char *key, const char *what)
{
	(void)reader_enter(r, ".%s", key);
	return reader_fail(r, "%s", what);
}

static int fail_unknown(struct reader *r, const char *key, const char *const *known, size_t n)
{
	struct buf text = BUF_INIT(512);
	int rc;

	buf_str(&text, "there is no such member; known:");
	for (size_t i = 0; i < n; i++)
		buf_fmt(&text, "%s %s", i > 0 ? "," : "", known[i]);
	rc = fail_member(r, key, buf_cstr(&text));
	buf_free(&text);
	return rc;
}

int reader_object(struct reader *r, const json_t *o, const char *const *known, size_t n)
{
	const json_t *value;
	const char *key;

	if (!json_is_object(o))
		return reader_fail(r, "must be an object");
	json_object_foreach ((json_t *)(uintptr_t)o, key, value) {
		size_t i = 0;

		while (i < n && !str_eq(key, known[i]))
			i++;
		if (i == n)
			return fail_unknown(r, key, known, n);
	}
	return 0;
}

int reader_string(struct reader *r, const json_t *o, const char *key, char **ret)
{
	const json_t *v = json_object_get(o, key);

	if (v == NULL)
		return 0;
	if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
		return fail_member(r, key, "must be a string");
	free(*ret);
	*ret = str_dup(json_string_value(v));
	return 0;
}

int reader_number(struct reader *r, const json_t *o, const char *key, uint64_t min, uint64_t max,
	uint64_t *ret)
{
	const json_t *v = json_object_get(o, key);

	if (v == NULL)
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < 0 ||
		(uint64_t)json_integer_value(v) < min || (uint64_t)json_integer_value(v) > max) {
		(void)reader_enter(r, ".%s", key);
		return reader_fail(r, "must be a whole number from %lu to %lu", min, max);
	}
	*ret = (uint64_t)json_integer_value(v);
	return 0;
}

int reader_bool(struct reader *r, const json_t *o, const char *key, bool *ret)
{
	const json_t *v = json_object_get(o, key);

	if (v == NULL)
		return 0;
	if (!json_is_boolean(v))
		return fail_member(r, key, "must be true or false");
	*ret = json_is_true(v);
	return 0;
}

/* A number, or a string that @parse takes. */
static int read_quantity(struct reader *r, const json_t *o, const char *key, uint64_t unit,
	int (*parse)(const char *s, uint64_t *ret), const char *what, uint64_t *ret)
{
	const json_t *v = json_object_get(o, key);

	if (v == NULL)
		return 0;
	if (json_is_integer(v) && json_integer_value(v) >= 0 &&
		(uint64_t)json_integer_value(v) <= INT64_MAX / unit) {
		*ret = (uint64_t)json_integer_value(v) * unit;
		return 0;
	}
	if (!json_is_string(v) || parse(json_string_value(v), ret) < 0)
		return fail_member(r, key, what);
	return 0;
}

int reader_duration(struct reader *r, const json_t *o, const char *key, uint64_t *ret_ms)
{
	return read_quantity(r, o, key, 1000, str_to_duration,
		"must be a duration (\"200ms\", \"30s\", \"1h\", \"1d\")", ret_ms);
}

int reader_size(struct reader *r, const json_t *o, const char *key, uint64_t *ret_bytes)
{
	return read_quantity(
		r, o, key, 1, str_to_size, "must be a size (\"64K\", \"10M\")", ret_bytes);
}

int reader_choice(struct reader *r, const json_t *o, const char *key, const char *const *words,
	size_t n, unsigned int *ret)
{
	const json_t *v = json_object_get(o, key);
	char list[200] = "";
	size_t used = 0;

	if (v == NULL)
		return 0;
	for (unsigned int i = 0; i < n; i++) {
		if (json_is_string(v) && str_eq(json_string_value(v), words[i])) {
			*ret = i;
			return 0;
		}
		if (used < sizeof(list))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
				i > 0 ? ", " : "", words[i]);
	}
	(void)reader_enter(r, ".%s", key);
	return reader_fail(r, "must be one of %s", list);
}

static int read_item(struct reader *r, const json_t *v, const char *(*valid)(const char *s),
	char **list, size_t *n)
{
	const char *s = json_string_value(v), *wrong;

	if (s == NULL || strlen(s) != json_string_length(v))
		return reader_fail(r, "must be a string");
	wrong = valid(s);
	if (wrong != NULL)
		return reader_fail(r, "'%s' %s", s, wrong);
	list[(*n)++] = str_dup(s);
	return 0;
}

int reader_list(struct reader *r, const json_t *o, const char *key,
	const char *(*valid)(const char *s), char ***ret, size_t *ret_n)
{
	const json_t *v = json_object_get(o, key);
	size_t n = json_is_array(v) ? json_array_size(v) : 1;
	size_t mark;

	if (v == NULL)
		return 0;
	mark = reader_enter(r, ".%s", key);
	if (n == 0 || n > POLICY_PATTERNS_MAX)
		return reader_fail(r, "must hold 1 to %d strings", POLICY_PATTERNS_MAX);
	*ret = xalloc(n * sizeof(char *));
	for (size_t i = 0; i < n; i++) {
		size_t at = json_is_array(v) ? reader_enter(r, "[%zu]", i) : strlen(r->where);
		int rc = read_item(
			r, json_is_array(v) ? json_array_get(v, i) : v, valid, *ret, ret_n);

		if (rc < 0)
			return rc;
		reader_leave(r, at);
	}
	reader_leave(r, mark);
	return 0;
}
