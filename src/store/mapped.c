/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mapped.h"
#include "base/str.h"
#include "sys/file.h"

#include <fcntl.h>
#include <sys/stat.h>

#define MAPS_MAX  (64U << 20)
#define PROCS_MAX (4U << 20)

/* The kernel writes a newline of a name as \012, and nothing else is changed: not a backslash, so that these four characters may be the name's own. */
static void unescape(char *path)
{
	char *to = path;

	for (const char *from = path; *from != '\0';) {
		if (strncmp(from, "\\012", 4) == 0) {
			*to++ = '\n';
			from += 4;
		} else {
			*to++ = *from++;
		}
	}
	*to = '\0';
}

/* Of a file whose name is gone nothing tells the others, if it has any. Memory that is shared and no file, and a file that was removed whole, have none. */
static bool has_other_names(uint64_t pid, const char *line)
{
	char path[96], *end;
	unsigned long long from = strtoull(line, &end, 16), to = strtoull(end + 1, NULL, 16);
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%llu/map_files/%llx-%llx",
		(unsigned long long)pid, from, to);
	if (stat(path, &st) < 0)
		return errno != ENOENT;
	return S_ISREG(st.st_mode) && st.st_nlink > 0;
}

/* "7f..-7f.. rw-s 00000000 fd:00 1234   /path" */
static void maps_line(uint64_t pid, char *line, struct tree_names *ret)
{
	char *perms = strchr(line, ' '), *path = strchr(line, '/');

	if (perms == NULL || path == NULL || strlen(perms) < 5 || perms[2] != 'w' ||
		perms[4] != 's')
		return;
	tree_names_add(ret, path);
	unescape(path);
	tree_names_add(ret, path);
	if (str_ends(path, " (deleted)") && has_other_names(pid, line))
		tree_names_add(ret, MAPPED_ALL);
}

static int maps_of(uint64_t pid, struct tree_names *ret)
{
	cleanup_buf struct buf text = BUF_INIT(MAPS_MAX);
	char path[64], *save = NULL;
	int rc;

	(void)snprintf(path, sizeof(path), "/proc/%llu/maps", (unsigned long long)pid);
	rc = file_read_at(AT_FDCWD, path, &text);
	if (rc == -EACCES || rc == -EPERM) {
		/* rootless jobs live in another user namespace than the sandbox: what we cannot see may be anything */
		tree_names_add(ret, MAPPED_ALL);
		return 0;
	}
	if (rc < 0)
		return rc == -ENOENT || rc == -ESRCH ? 0 : rc;
	/* who has just ended has no mappings */
	for (char *line = text.n == 0 ? NULL : strtok_r(text.p, "\n", &save); line != NULL;
		line = strtok_r(NULL, "\n", &save))
		maps_line(pid, line, ret);
	return 0;
}

static int group(int dirfd, const char *name, struct tree_names *ret, int depth)
{
	cleanup_buf struct buf procs = BUF_INIT(PROCS_MAX);
	cleanup_names struct tree_names children = { 0 };
	cleanup_fd int dir = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char *save = NULL;
	int rc;

	if (dir < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	rc = depth > 16 ? -ELOOP : file_read_at(dir, "cgroup.procs", &procs);
	if (rc == 0)
		rc = tree_names(dir, &children);
	for (char *line = procs.n == 0 ? NULL : strtok_r(procs.p, "\n", &save);
		rc == 0 && line != NULL; line = strtok_r(NULL, "\n", &save)) {
		uint64_t pid;

		rc = str_to_u64(line, 1, INT32_MAX, &pid);
		if (rc == 0)
			rc = maps_of(pid, ret);
	}
	for (size_t i = 0; rc == 0 && i < children.n; i++) {
		/* files of the interface have a dot in their names, our groups have none */
		if (strchr(children.names[i], '.') == NULL)
			rc = group(dir, children.names[i], ret, depth + 1);
	}
	/* an exec has ended and its group is gone: either is said then, by when it went */
	return rc == -ENODEV || rc == -ENOENT ? 0 : rc;
}

int mapped_files(const char *box, struct tree_names *ret)
{
	int rc = group(AT_FDCWD, box, ret, 0);

	tree_names_sort(ret);
	return rc;
}

static int compare(const void *a, const void *b)
{
	return strcmp(a, *(char *const *)b);
}

bool mapped_has(const struct tree_names *mapped, const char *path)
{
	if (mapped->n > 0 && str_eq(mapped->names[0], MAPPED_ALL))
		return true;
	return mapped->n > 0 &&
	       bsearch(path, mapped->names, mapped->n, sizeof(*mapped->names), compare) != NULL;
}
