/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: events/line.h - one line of the journal: its numbers and its hash. Pure. */
#ifndef CAY_EVENTS_LINE_H
#define CAY_EVENTS_LINE_H

#include "base/id.h"

#define LINE_HASH_SIZE 32

/** struct line_numbers - where a line belongs. */
struct line_numbers {
	uint64_t n, seq;
	char sandbox[ID_LEN + 1]; /* "" = the instance */
};

/** line_numbers() - read them without parsing all of the line (@size bytes, without its newline). Return: is it a line of ours? */
bool line_numbers(const char *line, size_t size, struct line_numbers *ret);

/** line_stated_hash() - the hash that the line itself gives. Return: does it give one? */
bool line_stated_hash(const char *line, size_t size, unsigned char ret[LINE_HASH_SIZE]);

/** line_has_type() - is the event of such a type? */
bool line_has_type(const char *line, size_t size, const char *type);

/** line_expected_hash() - the hash that a line which has one must have behind one with hash @before. @line: borrowed for a moment, changed and put back. */
void line_expected_hash(const unsigned char before[LINE_HASH_SIZE], char *line, size_t size,
	unsigned char ret[LINE_HASH_SIZE]);

/** line_hash() - SHA-256 over @before and the @size bytes of a line without its hash member. */
void line_hash(const unsigned char before[LINE_HASH_SIZE], const char *line, size_t size,
	unsigned char ret[LINE_HASH_SIZE]);

/** line_hash_text() - in hex; @out has room for 65 bytes. */
void line_hash_text(const unsigned char hash[LINE_HASH_SIZE], char *out);

/** line_hash_parse() - 64 hex digits. Return: were there as many? */
bool line_hash_parse(const char *digits, unsigned char ret[LINE_HASH_SIZE]);

#endif
