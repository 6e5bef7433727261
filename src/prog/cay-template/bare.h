/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-template/bare.h - system calls and a few helpers for a program without libc, heap or errno.
 *
 * Everything is usable by a process whose memory is being replaced: no global state but what main.c and become.c define in the program's own pages.
 */
#ifndef CAY_TEMPLATE_BARE_H
#define CAY_TEMPLATE_BARE_H

#include <asm-generic/errno.h>
#include <asm/unistd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__x86_64__)
#error "live fork knows only x86-64 yet"
#endif

#define BARE_PAGE     4096UL
#define BARE_CLOEXEC  02000000
#define BARE_NORETURN __attribute__((noreturn))

static inline long bare_call(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long rc;

	__asm__ volatile("syscall"
			 : "=a"(rc)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return rc;
}

#define CALL0(nr)             bare_call(nr, 0, 0, 0, 0, 0, 0)
#define CALL1(nr, a)          bare_call(nr, (long)(a), 0, 0, 0, 0, 0)
#define CALL2(nr, a, b)       bare_call(nr, (long)(a), (long)(b), 0, 0, 0, 0)
#define CALL3(nr, a, b, c)    bare_call(nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define CALL4(nr, a, b, c, d) bare_call(nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define CALL5(nr, a, b, c, d, e) \
	bare_call(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define CALL6(nr, a, b, c, d, e, f) \
	bare_call(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/** bare_exit() - end this process. */
static inline BARE_NORETURN void bare_exit(int status)
{
	for (;;)
		(void)CALL1(__NR_exit_group, status);
}

/** bare_map() - anonymous memory at exactly @at. Return: 0 or -errno; never replaces a mapping. */
static inline long bare_map(uint64_t at, uint64_t length, int prot, int flags)
{
	/* MAP_ANONYMOUS | MAP_FIXED_NOREPLACE */
	long rc = CALL6(__NR_mmap, at, length, prot, flags | 0x20 | 0x100000, -1, 0);

	return rc < 0 ? rc : 0;
}

/** bare_digits() - @number to base 10 or 16, without an end: at most 20 bytes. Return: behind the last. */
char *bare_digits(char *to, uint64_t number, unsigned int base);

/** bare_read_all() - @n bytes of @fd. Return: 0 or -errno, -EIO when it ends earlier. */
long bare_read_all(int fd, void *to, uint64_t n);

/** bare_fault_arm() - note CAY_FAULT and CAY_FAULT_LOG (base/fault.h), NULL where unset. The texts are copied. */
void bare_fault_arm(const char *spec, const char *log);

/** bare_fault() - a point at which a test may kill the process: base/fault.h, of whose actions only kill and hold are known here. */
void bare_fault(const char *name);

/** bare_fault_named() - does the setting name this point? Then something is otherwise than usual, without anybody being killed. */
bool bare_fault_named(const char *name);

/** memcpy() - as everywhere; the compiler calls it. */
void *memcpy(void *to, const void *from, size_t n);
/** memset() - as everywhere. */
void *memset(void *to, int value, size_t n);
/** memcmp() - as everywhere. */
int memcmp(const void *a, const void *b, size_t n);

#endif
