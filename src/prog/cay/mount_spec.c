/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/mount_spec.h"
#include "base/buf.h"
#include "base/str.h"

int path_absolute(const char *cwd, const char *path, char ret[PATH_MAX])
{
	cleanup_free char *joined = NULL;
	size_t n = 0;

	if (path[0] == '\0')
		return -EINVAL;
	if (path[0] != '/' && cwd == NULL)
		return -ENOENT;
	joined = path[0] == '/' ? str_dup(path) : str_dupf("%s/%s", cwd, path);
	for (const char *p = joined; *p != '\0';) {
		size_t len = strcspn(p, "/");

		if (len == 2 && memcmp(p, "..", 2) == 0) {
			while (n > 0 && ret[--n] != '/')
				;
		} else if (len > 0 && !(len == 1 && p[0] == '.')) {
			if (n + 1 + len >= PATH_MAX)
				return -ENAMETOOLONG;
			ret[n++] = '/';
			memcpy(ret + n, p, len);
			n += len;
		}
		p += len;
		p += *p == '/';
	}
	if (n == 0)
		ret[n++] = '/';
	ret[n] = '\0';
	return str_path_clean(ret) ? 0 : -EINVAL;
}

/* The part up to the next colon that is not "\:"; @p moves behind it. */
static char *next_part(const char **p)
{
	struct buf part = BUF_INIT(PATH_MAX);
	const char *c = *p;

	for (; *c != '\0' && *c != ':'; c++) {
		if (c[0] == '\\' && c[1] == ':')
			c++;
		buf_char(&part, *c);
	}
	*p = *c == ':' ? c + 1 : NULL;
	if (buf_failed(&part)) {
		buf_free(&part);
		return str_dup("");
	}
	return part.n > 0 ? buf_take(&part) : str_dup("");
}

static int refuse(struct err *err, const char *text, const char *why)
{
	return err_hint(err, err_raise(err, ERR_USAGE, "--mount '%s': %s", text, why),
		"--mount SRC[:DST[:cow|ro|rw]], for example --mount . or --mount .:/project");
}

int mount_spec_parse(const char *text, const char *cwd, struct mount_spec *ret, struct err *err)
{
	static const char *const modes[] = { "cow", "ro", "rw" };
	const char *p = text;
	cleanup_free char *source = next_part(&p), *target = NULL, *mode = NULL;

	if (source[0] == '\0' || path_absolute(cwd, source, ret->source) < 0)
		return refuse(err, text, "the source is no usable path");
	target = p != NULL ? next_part(&p) : str_dup(ret->source);
	mode = p != NULL ? next_part(&p) : str_dup("cow");
	if (p != NULL)
		return refuse(err, text, "too many colons");
	if (target[0] != '/')
		return refuse(err, text, "the place inside must be an absolute path");
	if (path_absolute("/", target, ret->target) < 0 || str_eq(ret->target, "/"))
		return refuse(err, text, "the place inside is no usable path");
	ret->mode = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		if (str_eq(mode, modes[i]))
			ret->mode = modes[i];
	}
	return ret->mode != NULL ? 0 : refuse(err, text, "the mode is cow, ro or rw");
}
