/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/bare.c - what the compiler may call. */
#include "prog/cay-template/bare.h"

void *memcpy(void *to, const void *from, size_t n)
{
	void *start = to;

	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
	return start;
}

void *memset(void *to, int value, size_t n)
{
	void *start = to;

	__asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(value) : "memory");
	return start;
}

int memcmp(const void *a, const void *b, size_t n)
{
	const unsigned char *x = a, *y = b;

	for (size_t i = 0; i < n; i++) {
		if (x[i] != y[i])
			return x[i] < y[i] ? -1 : 1;
	}
	return 0;
}
