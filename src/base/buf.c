/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdarg.h>
#include <string.h>

void buf_free(struct buf *b)
{
	if (b == NULL)
		return;
	free(b->p);
	*b = (struct buf){ .max = b->max };
}

void buf_reset(struct buf *b)
{
	b->n = 0;
	b->failed = false;
	if (b->p != NULL)
		b->p[0] = '\0';
}

char *buf_room(struct buf *b, size_t n)
{
	size_t cap;
	char *p;

	if (b->failed || n > b->max - b->n) {
		b->failed = true;
		return NULL;
	}
	if (b->n + n + 1 <= b->cap)
		return b->p + b->n;
	cap = b->cap != 0 ? b->cap : 64;
	while (cap < b->n + n + 1)
		cap *= 2;
	p = realloc(b->p, cap);
	if (p == NULL)
		abort();
	b->p = p;
	b->cap = cap;
	return b->p + b->n;
}

void buf_grown(struct buf *b, size_t n)
{
	BUG_ON(n >= b->cap - b->n);
	b->n += n;
	b->p[b->n] = '\0';
}

void buf_add(struct buf *b, const void *p, size_t n)
{
	char *to = buf_room(b, n);

	if (to == NULL)
		return;
	if (n != 0)
		memcpy(to, p, n);
	buf_grown(b, n);
}

void buf_str(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_char(struct buf *b, char c)
{
	buf_add(b, &c, 1);
}

void buf_fmt(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	char *to;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	BUG_ON(n < 0);
	to = buf_room(b, (size_t)n);
	if (to == NULL)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(to, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->n += (size_t)n;
}

void buf_consume(struct buf *b, size_t n)
{
	BUG_ON(n > b->n);
	if (n == 0)
		return;
	memmove(b->p, b->p + n, b->n - n);
	b->n -= n;
	b->p[b->n] = '\0';
}

char *buf_take(struct buf *b)
{
	char *p;

	if (b->failed)
		return NULL;
	if (buf_room(b, 0) == NULL)
		return NULL;
	b->p[b->n] = '\0';
	p = b->p;
	*b = (struct buf){ .max = b->max };
	return p;
}
