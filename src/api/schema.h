/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/schema.h - the part of JSON Schema that defs/openapi.yaml uses, as tables, and the check of a value against them. */
#ifndef CAY_API_SCHEMA_H
#define CAY_API_SCHEMA_H

#include "base/err.h"

#include <jansson.h>

enum schema_kind {
	SCHEMA_OBJECT,
	SCHEMA_ARRAY,
	SCHEMA_STRING,
	SCHEMA_INTEGER,
	SCHEMA_BOOLEAN,
};

enum schema_format { FORMAT_NONE, FORMAT_NAME, FORMAT_PATH, FORMAT_HOSTNAME, FORMAT_NONUL };

struct schema_member;

struct schema {
	enum schema_kind kind;
	enum schema_format format;
	bool nullable;
	int64_t min,
		max; /* of an integer; bytes of a string; items of an array; members of an object */
	const char *pattern;
	const char *const *values;  /* allowed strings, NULL-terminated, or NULL */
	const struct schema *items; /* of an array; of the free members of an object */
	const struct schema *keys;  /* what names of free members must be, or NULL */
	const struct schema_member *members;
	size_t n_members;
};

struct schema_member {
	const char *name;
	bool required;
	const struct schema *schema;
};

/**
 * schema_check() - check @value against @schema. Numbers in it that are whole and are to be integers become them.
 * @where: what the value is called in messages, e.g. "argv".
 *
 * Return: 0, or -errno with @err set (%ERR_INVALID or %ERR_TOO_LARGE), naming the member.
 */
int schema_check(
	const struct schema *schema, const json_t *value, const char *where, struct err *err);

/** schema_check_text() - the same for a query parameter, given as text. */
int schema_check_text(
	const struct schema *schema, const char *text, const char *where, struct err *err);

/**
 * schema_parse() - read a JSON text: an object, valid UTF-8, no duplicate members, at most 32 levels deep.
 * Return: 0 with a new reference in @ret, or -errno with @err set.
 */
int schema_parse(const char *text, size_t n, json_t **ret, struct err *err);

#endif
