/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"

#include <stdarg.h>
#include <string.h>

static const struct {
	const char *name;
	int http;
	int exit_status;
	const char *meaning;
} codes[ERR_CODE_COUNT] = {
	[ERR_NONE] = { "none", 200, 0, "nothing failed" },
#define ERR(name, wire, http, status, meaning) [ERR_##name] = { wire, http, status, meaning },
#include "errors.def"
#undef ERR
};

static int errno_for(enum err_code code)
{
	switch (code) {
	case ERR_NOT_FOUND:
	case ERR_CMD_NOT_FOUND:
	case ERR_CMD_HIDDEN:
	case ERR_BAD_CWD:
		return ENOENT;
	case ERR_EXISTS:
		return EEXIST;
	case ERR_BUSY:
	case ERR_STATE:
	case ERR_CONFLICT:
		return EBUSY;
	case ERR_DISK_FULL:
		return ENOSPC;
	case ERR_DENIED:
	case ERR_UNAUTHENTICATED:
		return EPERM;
	case ERR_TOO_LARGE:
	case ERR_LIMIT:
		return E2BIG;
	case ERR_RETIRED:
		return ESTALE;
	case ERR_TIMEOUT:
		return ETIMEDOUT;
	case ERR_UNSUPPORTED:
	case ERR_HOST:
		return EOPNOTSUPP;
	case ERR_UNAVAILABLE:
	case ERR_SHUTTING_DOWN:
		return ECONNREFUSED;
	case ERR_NONE:
	case ERR_INTERNAL:
		return EIO;
	case ERR_INVALID:
	case ERR_AMBIGUOUS:
	case ERR_NEEDS_ALLOW_EXEC:
	case ERR_CHECK_FAILED:
	case ERR_IDEMPOTENCY:
	case ERR_METHOD:
	case ERR_CORRUPT:
	case ERR_HOSTILE_ARCHIVE:
	case ERR_CMD_NOT_EXECUTABLE:
	case ERR_BAD_USER:
	case ERR_USAGE:
	case ERR_CODE_COUNT:
		break;
	}
	return EINVAL;
}

static enum err_code code_for(int sys)
{
	switch (sys) {
	case ENOSPC:
	case EDQUOT:
		return ERR_DISK_FULL;
	case ENOENT:
		return ERR_NOT_FOUND;
	case EEXIST:
		return ERR_EXISTS;
	default:
		return ERR_INTERNAL;
	}
}

int err_raise(struct err *err, enum err_code code, const char *fmt, ...)
{
	if (err != NULL) {
		va_list ap;

		*err = (struct err){ .code = code };
		va_start(ap, fmt);
		(void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
		va_end(ap);
		str_utf8_tidy(err->msg);
	}
	return -errno_for(code);
}

int err_raise_sys(struct err *err, int rc, const char *fmt, ...)
{
	if (err != NULL) {
		const char *reason = strerrordesc_np(-rc);
		va_list ap;
		size_t n;

		*err = (struct err){ .code = code_for(-rc), .sys = -rc };
		va_start(ap, fmt);
		(void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
		va_end(ap);
		n = strlen(err->msg);
		(void)snprintf(err->msg + n, sizeof(err->msg) - n, ": %s",
			reason != NULL ? reason : "unknown error");
		str_utf8_tidy(err->msg);
	}
	return rc;
}

void err_context(struct err *err, const char *fmt, ...)
{
	char tail[sizeof(err->msg)];
	va_list ap;
	size_t n;

	if (err == NULL)
		return;
	memcpy(tail, err->msg, sizeof(tail));
	va_start(ap, fmt);
	(void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	n = strlen(err->msg);
	(void)snprintf(err->msg + n, sizeof(err->msg) - n, ": %s", tail);
	str_utf8_tidy(err->msg);
}

int err_hint(struct err *err, int rc, const char *fmt, ...)
{
	if (err != NULL) {
		va_list ap;

		va_start(ap, fmt);
		(void)vsnprintf(err->hint, sizeof(err->hint), fmt, ap);
		va_end(ap);
		str_utf8_tidy(err->hint);
	}
	return rc;
}

int err_member(struct err *err, int rc, const char *fmt, ...)
{
	if (err != NULL) {
		va_list ap;

		va_start(ap, fmt);
		(void)vsnprintf(err->member, sizeof(err->member), fmt, ap);
		va_end(ap);
		str_utf8_tidy(err->member);
	}
	return rc;
}

const char *err_code_name(enum err_code code)
{
	BUG_ON(code >= ERR_CODE_COUNT);
	return codes[code].name;
}

enum err_code err_code_parse(const char *name)
{
	for (unsigned int i = 0; name != NULL && i < ERR_CODE_COUNT; i++) {
		if (strcmp(codes[i].name, name) == 0)
			return (enum err_code)i;
	}
	return ERR_INTERNAL;
}

int err_code_http(enum err_code code)
{
	BUG_ON(code >= ERR_CODE_COUNT);
	return codes[code].http;
}

int err_code_exit(enum err_code code)
{
	BUG_ON(code >= ERR_CODE_COUNT);
	return codes[code].exit_status;
}

const char *err_code_meaning(enum err_code code)
{
	BUG_ON(code >= ERR_CODE_COUNT);
	return codes[code].meaning;
}
