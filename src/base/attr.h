/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: base/attr.h - compiler attributes, scope-bound cleanup and hand-over of ownership. */
#ifndef CAY_BASE_ATTR_H
#define CAY_BASE_ATTR_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define attr_must_use     __attribute__((warn_unused_result))
#define attr_noreturn     __attribute__((noreturn))
#define attr_unused       __attribute__((unused))
#define attr_printf(f, a) __attribute__((format(printf, f, a)))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/** container_of() - the struct that holds @member at @ptr. */
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/** TAKE_PTR() - move a pointer out of a cleanup variable, leaving NULL behind. */
#define TAKE_PTR(p) \
	({ \
		__typeof__(p) taken_ = (p); \
		(p) = NULL; \
		taken_; \
	})

/** TAKE_FD() - move a descriptor out of a cleanup variable, leaving -1 behind. */
#define TAKE_FD(fd) \
	({ \
		int taken_ = (fd); \
		(fd) = -1; \
		taken_; \
	})

/** bug_found() - what BUG_ON() does: say where, and abort. */
static inline attr_noreturn void bug_found(const char *what, const char *file, int line)
{
	(void)fprintf(stderr, "%s:%d: BUG_ON(%s)\n", file, line, what);
	abort();
}

/** BUG_ON() - programmer error: ends the process where @cond holds, in every build (NDEBUG is of assert() alone). @cond has no effect. */
#define BUG_ON(cond) ((cond) ? bug_found(#cond, __FILE__, __LINE__) : (void)0)

static inline void cleanup_freep(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_closep(const int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

static inline void cleanup_fclosep(FILE **f)
{
	if (*f != NULL)
		(void)fclose(*f);
}

#define cleanup(fn)    __attribute__((cleanup(fn)))
#define cleanup_free   cleanup(cleanup_freep)
#define cleanup_fd     cleanup(cleanup_closep)
#define cleanup_fclose cleanup(cleanup_fclosep)

/** fd_close() - close *@fd if open and set it to -1. */
static inline void fd_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

/** xalloc() - zeroed memory of a small fixed size; aborts when there is none. Free with free(). */
static inline void *xalloc(size_t size)
{
	void *p = calloc(1, size);

	if (p == NULL)
		abort();
	return p;
}

#define xnew(type) ((type *)xalloc(sizeof(type)))

#endif
