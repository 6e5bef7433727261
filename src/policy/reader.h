/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: policy/reader.h - reading a document with errors that name the member ("rules[3].match.port: …"); only for src/policy. */
#ifndef CAY_POLICY_READER_H
#define CAY_POLICY_READER_H

#include "base/err.h"

#include <jansson.h>

/** struct reader - where we are in the document. */
struct reader {
	char where[240]; /* "rules[3].match" */
	struct err *err;
};

/** reader_enter() - go into a member (".name") or element ("[3]"). Return: for reader_leave(). */
size_t reader_enter(struct reader *r, const char *fmt, ...) attr_printf(2, 3);

/** reader_leave() - back to where @mark was taken. */
void reader_leave(struct reader *r, size_t mark);

/** reader_fail() - "<where>: <message>" as %ERR_INVALID. Return: -EINVAL. */
int reader_fail(struct reader *r, const char *fmt, ...) attr_printf(2, 3);

/** reader_object() - is @o an object with no other members than the @n @known ones? Return: 0 or -EINVAL. */
int reader_object(
	struct reader *r, const json_t *o, const char *const *known, size_t n) attr_must_use;

/** reader_string() - member @key into @ret (a copy), which stays as it is when the member is missing. Return: 0 or -EINVAL. */
int reader_string(struct reader *r, const json_t *o, const char *key, char **ret) attr_must_use;

/** reader_number() - whole number @min..@max, or missing. Return: 0 or -EINVAL. */
int reader_number(struct reader *r, const json_t *o, const char *key, uint64_t min, uint64_t max,
	uint64_t *ret) attr_must_use;

/** reader_bool() - true or false, or missing. Return: 0 or -EINVAL. */
int reader_bool(struct reader *r, const json_t *o, const char *key, bool *ret) attr_must_use;

/** reader_duration() - "200ms", "1h", a number of seconds, or missing; in milliseconds. Return: 0 or -EINVAL. */
int reader_duration(
	struct reader *r, const json_t *o, const char *key, uint64_t *ret_ms) attr_must_use;

/** reader_size() - "10M", a number of bytes, or missing. Return: 0 or -EINVAL. */
int reader_size(
	struct reader *r, const json_t *o, const char *key, uint64_t *ret_bytes) attr_must_use;

/** reader_choice() - one of @n words, or missing; its index. Return: 0 or -EINVAL. */
int reader_choice(struct reader *r, const json_t *o, const char *key, const char *const *words,
	size_t n, unsigned int *ret) attr_must_use;

/**
 * reader_list() - member @key, one string or a list of at most %POLICY_PATTERNS_MAX, or missing.
 * @valid: says what is wrong with one (a static phrase), or NULL when it is right.
 * @ret, @ret_n: owned by the caller, also after a failure.
 *
 * Return: 0 or -EINVAL.
 */
int reader_list(struct reader *r, const json_t *o, const char *key,
	const char *(*valid)(const char *s), char ***ret, size_t *ret_n) attr_must_use;

#endif
