/* SPDX-License-Identifier: Apache-2.0 */
#include "store/danger.h"
#include "base/gitdir.h"
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool matches(const char *path, const char *pattern)
{
	for (const char *p = path; p != NULL;) {
		bool may = *pattern == '*' || tolower(*pattern) == tolower(*p);

		if (may && fnmatch(pattern, p, FNM_CASEFOLD | FNM_NOESCAPE) == 0)
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

/* Would @pattern name something in @path, if that were a directory? */
static bool names_below(const char *path, const char *pattern)
{
	for (const char *end = strchr(pattern, '/'); end != NULL; end = strchr(end + 1, '/')) {
		char top[256];

		(void)snprintf(top, sizeof(top), "%.*s", (int)(end - pattern), pattern);
		if (matches(path, top))
			return true;
	}
	return false;
}

const char *danger_below(const char *path)
{
#define DANGER(pattern, why) \
	if (names_below(path, pattern)) \
		return why;
#include "dangerous.def"
#undef DANGER
	return NULL;
}

/* Does @path lie in the directory of a repository, whatever that is called? */
static bool in_gitdir(char *path, char ret[PATH_MAX])
{
	for (char *slash = strrchr(path, '/'); slash != NULL && slash > path;) {
		cleanup_fd int fd = -1;
		char *next;

		*slash = '\0';
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		next = strrchr(path, '/');
		*slash = '/';
		if (fd >= 0 && gitdir_is(fd)) {
			(void)snprintf(ret, PATH_MAX, ".git%s/", slash);
			return true;
		}
		slash = next;
	}
	return false;
}

int danger_place(int dir, char ret[PATH_MAX])
{
	char link[32], path[PATH_MAX - sizeof(".git")];
	const char *from;
	ssize_t n;

	ret[0] = '\0';
	if (gitdir_is(dir)) {
		(void)snprintf(ret, PATH_MAX, ".git/");
		return 0;
	}
	if (faccessat(dir, ".git", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
	n = readlink(link, path, sizeof(path));
	if (n < 0)
		return -errno;
	if ((size_t)n + 1 >= sizeof(path))
		return -ENAMETOOLONG;
	path[n] = '\0';
	if (in_gitdir(path, ret))
		return 0;
	from = strstr(path, "/.");
	if (from != NULL)
		(void)snprintf(ret, PATH_MAX, "%s/", from + 1);
	return 0;
}

/* Does a link at @path lead out of the directory, or may it? Judged by its text alone: what it names may be a link, too, and lead up as far as the directory goes. */
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
			depth = 0;
		if (depth < 0)
			return true;
		p += n;
		p += strspn(p, "/");
	}
	return false;
}

static bool is_in(const struct stack *stack, const struct merged *dir, const char *name)
{
	cleanup(found_close) struct found f = { .dir = -1 };

	return stack_lookup(stack, dir, name, &f) == 0 && f.kind != FOUND_NONE;
}

/* Would git take @dir for a repository (setup.c: is_git_directory())? */
static bool is_repository(const struct stack *stack, const struct merged *dir)
{
	return is_in(stack, dir, "HEAD") &&
	       (is_in(stack, dir, "commondir") ||
		       (is_in(stack, dir, "objects") && is_in(stack, dir, "refs")));
}

/* Is the last part of @path something that matters in a repository? */
static bool may_be_of_repository(const char *path)
{
	static const char *const names[] = { "HEAD", "objects", "refs", "commondir", "config",
		"config.worktree", "info/attributes", "hooks/*" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (matches(path, names[i]))
			return true;
	}
	return false;
}

/* @path, which is new if @added, in a repository. */
static const char *in_repository(const char *path, bool added)
{
	cleanup_free char *whole = str_dupf(".git/%s", path);

	if (added && (str_eq(path, "HEAD") || str_eq(path, "objects") || str_eq(path, "refs")))
		return "git would take the directory that it is in for a repository";
	return danger_path(whole);
}

const char *danger_repository(const struct change *change, const struct stack *stack)
{
	cleanup(merged_close) struct merged at = { 0 };
	const char *path = change->path, *why = NULL;
	int rc;

	if (change->after->kind == FOUND_NONE || !may_be_of_repository(path))
		return NULL;
	rc = stack_root(stack, &at);
	while (rc == 0 && why == NULL) {
		cleanup(found_close) struct found f = { .dir = -1 };
		size_t n = strcspn(path, "/");
		char name[NAME_MAX + 1];

		if (is_repository(stack, &at))
			why = in_repository(path, change->before->kind == FOUND_NONE);
		if (path[n] == '\0' || n > NAME_MAX)
			break;
		(void)snprintf(name, sizeof(name), "%.*s", (int)n, path);
		rc = stack_lookup(stack, &at, name, &f);
		merged_close(&at);
		at = f.merged;
		f.merged = (struct merged){ 0 };
		path += n + 1;
	}
	return why;
}

static bool was_executable(const struct found *before)
{
	return before->kind == FOUND_FILE && S_ISREG(before->st.st_mode) &&
	       (before->st.st_mode & 0111) != 0;
}

const char *danger_change(const struct change *change, const char *place)
{
	const struct found *a = change->after;
	cleanup_free char *path = str_dupf("%s%s", place, change->path);
	const char *why;

	if (a->kind == FOUND_NONE)
		return NULL;
	if (S_ISREG(a->st.st_mode) && (a->st.st_mode & (S_ISUID | S_ISGID)) != 0)
		return "it would run with the rights of its owner or group";
	if (a->kind == FOUND_FILE || change->kind == CHANGE_MODIFIED) {
		why = danger_path(path);
		if (why == NULL && S_ISLNK(a->st.st_mode))
			why = danger_below(path);
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
