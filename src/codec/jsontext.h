/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/jsontext.h - JSON written straight into a buffer, for what is written often: no tree is built.
 *
 * The text is byte for byte what json_dumps(…, JSON_COMPACT) makes of the same values in the same order. Commas come by themselves; that keys are not
 * repeated and that everything that is opened is closed is the caller's concern.
 */
#ifndef CAY_CODEC_JSONTEXT_H
#define CAY_CODEC_JSONTEXT_H

#include "base/buf.h"

/** jsontext_open() - begin an object or an array. @bracket: '{' or '['. */
void jsontext_open(struct buf *b, char bracket);

/** jsontext_close() - end it. @bracket: '}' or ']'. */
void jsontext_close(struct buf *b, char bracket);

/** jsontext_key() - a member's name, which must need no escapes; its value follows. */
void jsontext_key(struct buf *b, const char *key);

/** jsontext_string() - @n bytes of valid UTF-8, NULs allowed; @p may be NULL when @n is 0. */
void jsontext_string(struct buf *b, const char *p, size_t n);

/** jsontext_integer() - a number. */
void jsontext_integer(struct buf *b, int64_t value);

/** jsontext_word() - true, false or null. */
void jsontext_word(struct buf *b, const char *word);

/** jsontext_member_string() - a member with a NUL-terminated string of valid UTF-8. */
void jsontext_member_string(struct buf *b, const char *key, const char *value);

/** jsontext_member_integer() - a member with a number. */
void jsontext_member_integer(struct buf *b, const char *key, int64_t value);

/** jsontext_member_bool() - a member that is true or false. */
void jsontext_member_bool(struct buf *b, const char *key, bool value);

#endif
