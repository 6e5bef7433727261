/* SPDX-License-Identifier: Apache-2.0 */
#include "store/danger.h"
#include "base/str.h"

#include <fnmatch.h>

static bool matches(const char *path, const char *pattern)
{
	for (const char *p = path; p != NULL;) {
		if (fnmatch(pattern, p, FNM_CASEFOLD | FNM_NOESCAPE) == 0)
			return true;
		p = strchr(p, '/');
		if (p != NULL)
			p++;
	}
	return false;
}

const char *danger_path(const char *path)
{
#define DANGER(pattern, why) \
	if (matches(path, pattern)) \
		return why;
#include "dangerous.def"
#undef DANGER
	return NULL;
}

/* Does a link at @path lead out of the directory? Judged by its text alone: every ".." counts, whatever lies on the way. */
static bool leads_out(const char *path, const char *target)
{
	int depth = 0;

	if (target[0] == '/')
		return true;
	for (const char *p = strchr(path, '/'); p != NULL; p = strchr(p + 1, '/'))
		depth++;
	for (const char *p = target; *p != '\0';) {
		size_t n = strcspn(p, "/");

		if (n == 2 && p[0] == '.' && p[1] == '.')
			depth--;
		else if (n > 0 && !(n == 1 && p[0] == '.'))
			depth++;
		if (depth < 0)
			return true;
		p += n;
		p += strspn(p, "/");
	}
	return false;
}

static bool was_executable(const struct found *before)
{
	return before->kind == FOUND_FILE && S_ISREG(before->st.st_mode) &&
	       (before->st.st_mode & 0111) != 0;
}

const char *danger_change(const struct change *change)
{
	const struct found *a = change->after;
	const char *why;

	if (a->kind == FOUND_NONE)
		return NULL;
	if (S_ISREG(a->st.st_mode) && (a->st.st_mode & (S_ISUID | S_ISGID)) != 0)
		return "it would run with the rights of its owner or group";
	if (a->kind == FOUND_FILE || change->kind == CHANGE_MODIFIED) {
		why = danger_path(change->path);
		if (why != NULL)
			return why;
	}
	if (S_ISREG(a->st.st_mode) && (a->st.st_mode & 0111) != 0 &&
		!was_executable(change->before))
		return "it is a new executable";
	if (S_ISLNK(a->st.st_mode)) {
		char target[PATH_MAX];
		ssize_t n = readlinkat(a->dir, a->name, target, sizeof(target) - 1);

		if (n < 0)
			return "it is a link that cannot be read";
		target[n] = '\0';
		if (leads_out(change->path, target))
			return "it is a link that leads out of the directory";
	}
	return NULL;
}
