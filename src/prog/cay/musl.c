/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay/musl.c - what musl lacks of glibc: two functions that our code uses, and those that libjansson.a, which was compiled against glibc's headers with
 * _FORTIFY_SOURCE, calls in place of snprintf(), vsnprintf() and strncpy(): with the size of the destination, which must not be exceeded; and strtoll() of C23 (Debian 13).
 */
#include "prog/cay/musl.h"
#include "base/attr.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *strerrordesc_np(int number)
{
	return strerror(number);
}

const char *sigabbrev_np(int number)
{
#define NAME(s) [SIG##s] = #s
	static const char *const names[] = { NAME(HUP), NAME(INT), NAME(QUIT), NAME(ILL),
		NAME(TRAP), NAME(ABRT), NAME(BUS), NAME(FPE), NAME(KILL), NAME(USR1), NAME(SEGV),
		NAME(USR2), NAME(PIPE), NAME(ALRM), NAME(TERM), NAME(STKFLT), NAME(CHLD),
		NAME(CONT), NAME(STOP), NAME(TSTP), NAME(TTIN), NAME(TTOU), NAME(URG), NAME(XCPU),
		NAME(XFSZ), NAME(VTALRM), NAME(PROF), NAME(WINCH), NAME(POLL), NAME(PWR),
		NAME(SYS) };
#undef NAME

	return number > 0 && (size_t)number < ARRAY_SIZE(names) ? names[number] : NULL;
}

/* Names and arguments are glibc's (Linux Standard Base 5.0, "__snprintf_chk" and its neighbours); no header of musl has them. */
int __vsnprintf_chk(char *to, size_t max, int flag, size_t size, const char *format, va_list list)
	attr_printf(5, 0);
int __snprintf_chk(char *to, size_t max, int flag, size_t size, const char *format, ...)
	attr_printf(5, 6);
char *__strncpy_chk(char *to, const char *from, size_t n, size_t size);
long long __isoc23_strtoll(const char *s, char **end, int base);

int __vsnprintf_chk(
	char *to, size_t max, attr_unused int flag, size_t size, const char *format, va_list list)
{
	BUG_ON(max > size);
	return vsnprintf(to, max, format, list);
}

int __snprintf_chk(char *to, size_t max, int flag, size_t size, const char *format, ...)
{
	va_list list;
	int n;

	va_start(list, format);
	n = __vsnprintf_chk(to, max, flag, size, format, list);
	va_end(list);
	return n;
}

char *__strncpy_chk(char *to, const char *from, size_t n, size_t size)
{
	BUG_ON(n > size);
	memset(to, 0, n);
	memcpy(to, from, strnlen(from, n));
	return to;
}

long long __isoc23_strtoll(const char *s, char **end, int base)
{
	return strtoll(s, end, base);
}
