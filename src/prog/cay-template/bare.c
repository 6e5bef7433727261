/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/bare.c - what the compiler may call, and a little more. */
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

char *bare_digits(char *to, uint64_t number, unsigned int base)
{
	char digits[20];
	int n = 0;

	do
		digits[n++] = "0123456789abcdef"[number % base];
	while ((number /= base) != 0);
	while (n > 0)
		*to++ = digits[--n];
	return to;
}

long bare_read_all(int fd, void *to, uint64_t n)
{
	for (uint64_t done = 0; done < n;) {
		long rc = CALL3(__NR_read, fd, (char *)to + done, n - done);

		if (rc <= 0)
			return rc < 0 ? rc : -EIO;
		done += (uint64_t)rc;
	}
	return 0;
}
