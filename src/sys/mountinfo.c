/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/mountinfo.h"
#include "base/str.h"
#include "sys/file.h"

#include <fcntl.h>

#define TABLE_MAX (4U << 20)

/* Blanks, line ends and backslashes are three octal digits behind a backslash. In place. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *at = text; *at != '\0'; at++, to++) {
		if (at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' && at[2] <= '7' &&
			at[3] >= '0' && at[3] <= '7') {
			*to = (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0'));
			at += 3;
		} else {
			*to = *at;
		}
	}
	*to = '\0';
}

/* The fields point into @line. */
static bool parse(char *line, struct mountinfo *m)
{
	char *field[5], *tail = strstr(line, " - "), *save = NULL;

	if (tail == NULL)
		return false;
	*tail = '\0';
	tail += 3;
	for (size_t i = 0; i < ARRAY_SIZE(field); i++) {
		field[i] = strtok_r(i == 0 ? line : NULL, " ", &save);
		if (field[i] == NULL)
			return false;
	}
	unescape(field[4]);
	m->point = field[4];
	m->type = strtok_r(tail, " ", &save);
	if (m->type == NULL || strtok_r(NULL, " ", &save) == NULL)
		return false;
	m->options = strtok_r(NULL, " ", &save);
	return m->options != NULL;
}

int mountinfo_each(const char *path, int (*fn)(void *ctx, const struct mountinfo *m), void *ctx)
{
	cleanup_buf struct buf text = BUF_INIT(TABLE_MAX);
	int rc = file_read_at(AT_FDCWD, path, &text);
	char *save = NULL;

	if (rc < 0 || text.n == 0)
		return rc;
	for (char *line = strtok_r((char *)(uintptr_t)buf_cstr(&text), "\n", &save);
		rc == 0 && line != NULL; line = strtok_r(NULL, "\n", &save)) {
		struct mountinfo m;

		if (parse(line, &m))
			rc = fn(ctx, &m);
	}
	return rc;
}
