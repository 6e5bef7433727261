/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/danger_links.c - see the header.
 *
 * Only the host is looked at: a link that the sandbox makes or changes is a change with a dangerous name itself. Looked at are the directories in which a change lies, the checkouts above, and in them
 * only what rules name: a whole tree may have millions of files. How far a link leads is found by its names alone; nothing is opened on the way.
 */
#include "store/danger_links.h"
#include "base/gitdir.h"
#include "base/str.h"
#include "store/apply.h"
#include "store/danger.h"
#include "sys/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#define NAMES_MAX  1000000
#define LINKS_MAX  40
#define DEPTH_MAX  8
#define CONFIG_MAX (256U << 10)

static void look_in(struct danger_links *l, const char *dir, const char *as, int depth);

/* @path, absolute, is executed or obeyed for the reason @why, as the link @link. */
static void add(struct danger_links *l, const char *path, const char *why, const char *link)
{
	size_t n = strlen(l->top);
	cleanup_free char *text = str_dupf("%s: '%s' leads here", why, link);
	json_t *key;

	if (strncmp(path, l->top, n) != 0 || path[n] != '/' || path[n + 1] == '\0')
		return;
	str_utf8_tidy(text); /* names may be any bytes */
	key = apply_hex(path + n + 1);
	if (json_object_get(l->led, json_string_value(key)) == NULL)
		(void)json_object_set_new(l->led, json_string_value(key), json_string(text));
	json_decref(key);
}

/* Take the last name off @at ("/a/b" -> "/a", "/a" -> ""). */
static void up(char *at)
{
	char *slash = strrchr(at, '/');

	if (slash != NULL)
		*slash = '\0';
}

/* Where does @text lead, as the text of a link in directory @dir? All that it passes counts. What is not there is taken by its name. */
static void follow(struct danger_links *l, const char *dir, const char *text, const char *why,
	const char *link)
{
	char at[PATH_MAX], rest[2 * PATH_MAX], target[PATH_MAX];

	if (str_copy(at, sizeof(at), text[0] == '/' ? "" : dir) < 0 ||
		str_copy(rest, sizeof(rest), text) < 0)
		return;
	for (size_t links = 0, n; links < LINKS_MAX;) {
		char *p = rest + strspn(rest, "/");
		size_t had = strlen(at);
		ssize_t to;

		n = strcspn(p, "/");
		if (n == 0) {
			add(l, at, why, link);
			return;
		}
		if (n == 2 && p[0] == '.' && p[1] == '.')
			up(at);
		else if (!(n == 1 && p[0] == '.') &&
			 (had + n + 2 > sizeof(at) ||
				 snprintf(at + had, sizeof(at) - had, "/%.*s", (int)n, p) < 0))
			return;
		memmove(rest, p + n, strlen(p + n) + 1);
		to = strlen(at) > had ? readlink(at, target, sizeof(target) - 1) : -1;
		if (to < 0)
			continue;
		target[to] = '\0';
		add(l, at, why, link);
		links++;
		if ((size_t)to + strlen(rest) + 1 > sizeof(rest))
			return;
		memmove(rest + to, rest, strlen(rest) + 1);
		memcpy(rest, target, (size_t)to);
		if (target[0] == '/')
			at[0] = '\0';
		else
			up(at);
	}
}

/* As it is called in the directory, where it lies in that. */
static const char *shown(const struct danger_links *l, const char *path)
{
	size_t n = strlen(l->top);

	return strncmp(path, l->top, n) == 0 && path[n] == '/' ? path + n + 1 : path;
}

/* One name @name in @dir; rules know it as @as. */
static void look_at(
	struct danger_links *l, const char *dir, const char *name, const char *as, int depth)
{
	cleanup_free char *path = str_dupf("%s/%s", dir, name);
	char target[PATH_MAX];
	struct stat st;
	const char *why;
	ssize_t n;

	if (lstat(path, &st) < 0)
		return;
	if (S_ISDIR(st.st_mode)) {
		bool named = danger_path(as) != NULL || danger_below(as) != NULL;

		/* what is changed there is seen by its own name; what git stores there leads nowhere */
		if (named && depth < DEPTH_MAX && !str_eq(name, "objects"))
			look_in(l, path, as, depth + 1);
		return;
	}
	if (!S_ISLNK(st.st_mode))
		return;
	why = danger_path(as);
	if (why == NULL)
		why = danger_below(as);
	n = why == NULL ? -1 : readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return;
	target[n] = '\0';
	follow(l, dir, target, why, shown(l, path));
}

/* The value of line @line when it sets @name; NULL when it does not. It ends where @line does. */
static char *value_of(char *line, const char *name)
{
	size_t n = strlen(name);
	char *end;

	line += strspn(line, " \t");
	if (strncasecmp(line, name, n) != 0)
		return NULL;
	line += n + strspn(line + n, " \t");
	if (*line++ != '=')
		return NULL;
	line += strspn(line, " \t\"");
	for (end = line + strlen(line); end > line && strchr(" \t\r\"", end[-1]) != NULL; end--)
		;
	*end = '\0';
	return line;
}

/* The text of file @name in @dir; empty when there is none. */
static void read_config(const char *dir, const char *name, struct buf *text)
{
	cleanup_free char *path = str_dupf("%s/%s", dir, name);
	cleanup_fd int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || file_read_again(fd, text) < 0)
		buf_reset(text);
}

/* The tree that git works in with repository @dir: paths of hooks are relative to it. A bare one has none but itself. */
static void find_tree(const char *dir, char ret[PATH_MAX])
{
	cleanup_buf struct buf text = BUF_INIT(CONFIG_MAX);
	cleanup_free char *lines = NULL, *tree = NULL;
	char *save = NULL;

	read_config(dir, "config", &text);
	lines = str_dup(buf_cstr(&text));
	for (char *line = strtok_r(lines, "\n", &save); line != NULL && tree == NULL;
		line = strtok_r(NULL, "\n", &save)) {
		const char *to = value_of(line, "worktree");

		if (to != NULL)
			tree = to[0] == '/' ? str_dup(to) : str_dupf("%s/%s", dir, to);
	}
	if (tree != NULL && realpath(tree, ret) != NULL)
		return;
	(void)snprintf(ret, PATH_MAX, "%s", dir);
	if (str_ends(ret, "/.git"))
		up(ret);
}

/* A repository says itself where its hooks are (core.hooksPath, of the tree @top), and what else it obeys (include.path): in file @name of its directory @dir. */
static void look_config(struct danger_links *l, const char *dir, const char *name, const char *top)
{
	cleanup_free char *path = str_dupf("%s/%s", dir, name), *lines = NULL;
	cleanup_buf struct buf text = BUF_INIT(CONFIG_MAX);
	char *save = NULL;
	bool including = false;

	read_config(dir, name, &text);
	lines = str_dup(buf_cstr(&text));
	for (char *line = strtok_r(lines, "\n", &save); line != NULL;
		line = strtok_r(NULL, "\n", &save)) {
		char *to = value_of(line, "hooksPath");

		if (to != NULL && to[0] != '~')
			follow(l, top, to, "git runs it", shown(l, path));
		if (line[strspn(line, " \t")] == '[')
			including = strncasecmp(line + strspn(line, " \t"), "[include", 8) == 0;
		to = including ? value_of(line, "path") : NULL;
		if (to != NULL && to[0] != '~')
			follow(l, dir, to, "git obeys it: it can name programs to run",
				shown(l, path));
	}
}

static void look_repository(struct danger_links *l, const char *dir)
{
	char tree[PATH_MAX];

	find_tree(dir, tree);
	look_config(l, dir, "config", tree);
	look_config(l, dir, "config.worktree", tree);
}

/* Of a linked worktree or submodule the repository lies elsewhere: its ".git" is a file. What another worktree obeys too is obeyed here, of this tree. */
static void look_checkout(struct danger_links *l, const char *dir, int depth)
{
	cleanup_free char *git = str_dupf("%s/.git", dir);
	char own[PATH_MAX], common[PATH_MAX];
	struct stat st;

	if (depth >= DEPTH_MAX || lstat(git, &st) < 0 || S_ISDIR(st.st_mode) ||
		!gitdir_of(dir, own, common))
		return;
	look_config(l, common, "config", dir);
	look_config(l, own, "config.worktree", dir);
	look_in(l, common, ".git", depth + 1);
}

/* The links in @dir, absolute ("" is the root), and in what is dangerous below it. @as: what rules know it as, "" or with a slash at the end. */
static void look_in(struct danger_links *l, const char *dir, const char *as, int depth)
{
	cleanup_fd int fd =
		open(dir[0] != '\0' ? dir : "/", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *stream;
	struct dirent *e;
	int again;

	if (fd < 0)
		return;
	if (gitdir_is(fd)) {
		as = ".git";
		look_repository(l, dir);
	} else {
		look_checkout(l, dir, depth);
	}
	again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	stream = again < 0 ? NULL : fdopendir(again);
	if (stream == NULL)
		return;
	while (l->left > 0 && (e = readdir(stream)) != NULL) {
		cleanup_free char *name = NULL;

		l->left--;
		if (str_eq(e->d_name, ".") || str_eq(e->d_name, "..") ||
			(e->d_type != DT_LNK && e->d_type != DT_DIR && e->d_type != DT_UNKNOWN))
			continue;
		name = as[0] == '\0' ? str_dup(e->d_name) : str_dupf("%s/%s", as, e->d_name);
		look_at(l, dir, e->d_name, name, depth);
	}
	(void)closedir(stream);
}

/* A part of a checkout, or of a repository without one: its hooks may lead into it, and so may those of a project of which it is a submodule. */
static void look_above(struct danger_links *l)
{
	char at[PATH_MAX];

	(void)snprintf(at, sizeof(at), "%s", l->top);
	while (at[0] != '\0') {
		cleanup_fd int fd = -1;

		up(at);
		fd = open(at[0] != '\0' ? at : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0 && gitdir_is(fd))
			look_in(l, at, ".git", 0);
		else if (fd >= 0 && faccessat(fd, ".git", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			look_in(l, at, "", 0);
	}
}

int danger_links_init(struct danger_links *links, int dir, const char *place)
{
	char link[32], top[sizeof(links->top)];
	ssize_t n;

	*links = (struct danger_links){ .place = place, .left = NAMES_MAX };
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
	n = readlink(link, top, sizeof(top) - 1);
	if (n < 0)
		return -errno;
	top[n] = '\0';
	(void)!str_copy(links->top, sizeof(links->top), str_eq(top, "/") ? "" : top);
	links->led = json_object();
	links->seen = json_object();
	look_above(links);
	return 0;
}

void danger_links_beside(struct danger_links *links, const char *path)
{
	cleanup_free char *dir = str_dup(path);

	for (char *slash = dir; slash != NULL;) {
		cleanup_free char *whole = NULL, *as = NULL;
		json_t *key;

		slash = strrchr(dir, '/');
		if (slash != NULL)
			*slash = '\0';
		else
			dir[0] = '\0';
		key = apply_hex(dir);
		if (json_object_get(links->seen, json_string_value(key)) != NULL) {
			json_decref(key);
			return; /* and what is above it */
		}
		(void)json_object_set_new(links->seen, json_string_value(key), json_true());
		json_decref(key);
		whole = str_dupf("%s%s%s", links->top, dir[0] != '\0' ? "/" : "", dir);
		as = str_dupf("%s%s", links->place, dir);
		if (str_ends(as, "/"))
			as[strlen(as) - 1] = '\0';
		look_in(links, whole, as, 0);
	}
}

const char *danger_links_at(const struct danger_links *links, const char *path, bool is_dir)
{
	json_t *key = apply_hex(path);
	cleanup_free char *hex = str_dup(json_string_value(key));
	size_t n = strlen(hex);
	const json_t *why = NULL, *e;
	const char *led;

	json_decref(key);
	/* itself, or what it lies in: a slash is 2f */
	for (const char *p = path + strlen(path); why == NULL && p > path; p--) {
		if (*p != '\0' && *p != '/')
			continue;
		hex[2 * (size_t)(p - path)] = '\0';
		why = json_object_get(links->led, hex);
		hex[2 * (size_t)(p - path)] = *p == '\0' ? '\0' : '2';
	}
	if (why != NULL || is_dir)
		return json_string_value(why);
	json_object_foreach (links->led, led, e) {
		if (strncmp(led, hex, n) == 0 && strncmp(led + n, "2f", 2) == 0)
			return json_string_value(e);
	}
	return NULL;
}

void danger_links_free(struct danger_links *links)
{
	json_decref(links->led);
	json_decref(links->seen);
	*links = (struct danger_links){ 0 };
}
