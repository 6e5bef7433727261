/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: base/err.h - the one error value.
 *
 * Leaf calls return 0 or -errno. Calls whose failure a user can see take a struct err * last and fill it exactly when they
 * fail. A layer that knows a new noun adds it once with err_context(); nobody both returns and logs an error.
 */
#ifndef CAY_BASE_ERR_H
#define CAY_BASE_ERR_H

#include "base/attr.h"

enum err_code {
	ERR_NONE = 0,
#define ERR(name, wire, http, status, meaning) ERR_##name,
#include "errors.def"
#undef ERR
	ERR_CODE_COUNT
};

/** struct err - a plain value, no allocation; crosses a pipe atomically (smaller than PIPE_BUF). */
struct err {
	enum err_code code; /* public and stable; ERR_NONE when nothing failed */
	int sys;            /* positive errno, or 0 */
	char msg[1000]; /* names the object and the reason; outermost context first; valid UTF-8 */
	char hint[500]; /* what to do about it; may be empty */
	char member
		[200]; /* of a request, that was refused: "limits.pids"; empty when it was none */
};

/**
 * err_raise() - fill @err and return a negative errno that fits @code.
 * @err:  filled; may be NULL (then only the return value tells).
 * @code: public code.
 * @fmt:  message, a sentence without a full stop that names the object.
 *
 * Return: a negative errno, never 0.
 */
int err_raise(struct err *err, enum err_code code, const char *fmt, ...) attr_printf(3, 4);

/**
 * err_raise_sys() - fill @err from a failed system call and return @rc.
 * @err: filled; may be NULL.
 * @rc:  negative errno; ENOSPC/EDQUOT become %ERR_DISK_FULL, ENOENT %ERR_NOT_FOUND, EEXIST %ERR_EXISTS, all else %ERR_INTERNAL.
 * @fmt: what was being done, e.g. "mount tmpfs on '%s'"; ": <reason>" is appended.
 *
 * Return: @rc.
 */
int err_raise_sys(struct err *err, int rc, const char *fmt, ...) attr_printf(3, 4);

/** err_context() - put "<context>: " before the message of a filled @err. Keeps the code. */
void err_context(struct err *err, const char *fmt, ...) attr_printf(2, 3);

/** err_hint() - say what the reader can do about it. Return: @rc, for use in a return statement. */
int err_hint(struct err *err, int rc, const char *fmt, ...) attr_printf(3, 4);

/** err_member() - say which member of a request, or parameter, was refused. Return: @rc, for use in a return statement. */
int err_member(struct err *err, int rc, const char *fmt, ...) attr_printf(3, 4);

/** err_code_name() - wire name of @code ("not_found"); static. */
const char *err_code_name(enum err_code code);

/** err_code_parse() - code of a wire name; %ERR_INTERNAL when unknown. */
enum err_code err_code_parse(const char *name);

/** err_code_http() - HTTP status of @code. */
int err_code_http(enum err_code code);

/** err_code_exit() - exit status of the `cay` command for @code. */
int err_code_exit(enum err_code code);

/** err_code_meaning() - one sentence; static. */
const char *err_code_meaning(enum err_code code);

#endif
