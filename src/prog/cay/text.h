/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/text.h - text for people: what others wrote made harmless, sizes, times, tables. Pure. */
#ifndef CAY_PROG_TEXT_H
#define CAY_PROG_TEXT_H

#include "base/buf.h"

/**
 * text_escape() - append @s with everything escaped that could move a cursor, hide or reorder text: control bytes, bytes that are no
 * UTF-8, C1 controls, bidirectional and zero-width characters. Newlines are escaped too; printable text stays as it is.
 */
void text_escape(struct buf *out, const char *s);

/** text_escape_lines() - text_escape() that leaves newlines and tabs. */
void text_escape_lines(struct buf *out, const char *s);

/** text_escape_json() - append the JSON text @s for a terminal: what text_escape() would escape within its strings stands as \u there, for the same values. */
void text_escape_json(struct buf *out, const char *s);

/** text_host() - text_escape() of a host as URLs have it: an address of IPv6 stands in brackets. */
void text_host(struct buf *out, const char *host);

/** text_quote() - append @s as a word that a shell takes back: plain when it needs no quotes. Escaped as text_escape(). */
void text_quote(struct buf *out, const char *s);

/** text_size() - append "512 B", "1.5 KiB", "20 MiB". */
void text_size(struct buf *out, uint64_t bytes);

/** text_age() - append how long ago the RFC 3339 time @when was, seen from @now_s (seconds since 1970): "5 s", "3 min", "2 h", "9 d". */
void text_age(struct buf *out, const char *when, int64_t now_s);

/** text_mode() - append file permissions as "rwxr-sr-x". */
void text_mode(struct buf *out, unsigned int mode);

/** text_columns() - columns that escaped text takes on a terminal; wide characters count two. */
size_t text_columns(const char *s);

#define TABLE_COLUMNS_MAX 10

/** struct table - rows of cells, laid out in columns when printed. */
struct table {
	struct buf cells; /* NUL-terminated cells, row by row */
	size_t columns, n;
	bool right[TABLE_COLUMNS_MAX]; /* numbers: set to the right */
	struct buf paint; /* a byte for each row: digit of an SGR colour 31..37, or 0 */
	bool colour;      /* rows are painted */
};

/** table_init() - @header: names of columns separated by '|'; a name that begins with '>' is set to the right. */
void table_init(struct table *t, const char *header);

/** table_cell() - add the next cell; escapes it. NULL is "-". */
void table_cell(struct table *t, const char *s);

/** table_buf() - add the text of @b as the next cell, and empty @b. */
void table_buf(struct table *t, struct buf *b);

/** table_paint() - the row that is being filled is shown in SGR colour 30 + @colour ('1' red … '7' white). */
void table_paint(struct table *t, char colour);

/** table_print() - append the table to @out; nothing but the header when there is no row. Frees the cells. */
void table_print(struct table *t, struct buf *out);

/** table_rows() - rows without the header. */
size_t table_rows(const struct table *t);

#endif
