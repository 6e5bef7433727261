/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay-spawn/groups.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"
#include "sys/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define DEPTH_MAX     4
#define BASE_ATTEMPTS 8
#define LEFT_ATTEMPTS 250
#define LEFT_MS       2
#define LOCK_NS       (10 * NS_PER_S) /* what is done under it takes milliseconds */
#define GATEWAY       ".gateway" /* behind ID: beside it in hierarchies of version 1 (sys/cgroup.h) */
#define SERVER_GROUP \
	"/server" /* the leaf of a delegated group that the server itself is in; systemd's DelegateSubgroup= */

static char text[1 << 20]; /* mountinfo, read once */

static bool read_text(const char *path)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t n = 0;

	while (fd >= 0 && n < sizeof(text) - 1) {
		ssize_t got = read(fd, text + n, sizeof(text) - 1 - n);

		if (got <= 0)
			break;
		n += (size_t)got;
	}
	text[n] = '\0';
	return n > 0;
}

static int write_file(const char *dir, const char *name, const char *value)
{
	char path[GROUPS_PATH_SIZE + 32];
	cleanup_fd int fd = -1;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 || write(fd, value, strlen(value)) < 0 ? -errno : 0;
}

static const char *const controllers[] = { "memory", "pids", "cpu" };

/* One by one: a controller that is missing must not cost the others. */
static void enable_controllers(const char *dir)
{
	char path[GROUPS_PATH_SIZE + 32], name[16];
	cleanup_fd int fd = -1;

	(void)snprintf(path, sizeof(path), "%s/cgroup.subtree_control", dir);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	for (size_t i = 0; fd >= 0 && i < ARRAY_SIZE(controllers); i++) {
		int n = snprintf(name, sizeof(name), "+%s", controllers[i]);

		(void)!write(fd, name, (size_t)n);
	}
}

static bool offers_controllers(const char *dir)
{
	char path[GROUPS_PATH_SIZE + 32];
	bool any = false;

	(void)snprintf(path, sizeof(path), "%s/cgroup.controllers", dir);
	for (size_t i = 0; i < ARRAY_SIZE(controllers) && read_text(path); i++)
		any |= strstr(text, controllers[i]) != NULL;
	return any;
}

/*
 * A group with controllers for its children holds no process itself, so those of a delegated group (the server, us, and whoever started the server there) go
 * into a leaf of it. Whoever of them starts processes meanwhile makes another round necessary. Before any controller is asked for: `pids` and `cpu` would be given
 * all the same, and make it the root of a threaded subtree (Documentation/admin-guide/cgroup-v2.rst, "Threads"), below which no process can be put any more.
 * Return: none is left in @dir.
 */
static bool step_aside(const char *dir)
{
	char leaf[GROUPS_PATH_SIZE + sizeof(SERVER_GROUP)], path[GROUPS_PATH_SIZE + 32];
	char *save = NULL;

	(void)snprintf(leaf, sizeof(leaf), "%s" SERVER_GROUP, dir);
	(void)snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
	if (mkdir(leaf, 0755) < 0 && errno != EEXIST)
		return false;
	for (int i = 0; i < BASE_ATTEMPTS && read_text(path); i++) {
		for (const char *pid = strtok_r(text, "\n", &save); pid != NULL;
			pid = strtok_r(NULL, "\n", &save))
			(void)write_file(leaf, "cgroup.procs", pid);
	}
	return !read_text(path);
}

/* Fifth field of a mountinfo line is the mount point; behind " - " comes the type. */
static bool mount_of(char *line, char **point, char **type)
{
	char *tail = strstr(line, " - ");
	char *save = NULL, *field = NULL;

	if (tail == NULL)
		return false;
	*tail = '\0';
	for (int i = 0; i < 5; i++)
		field = strtok_r(i == 0 ? line : NULL, " ", &save);
	*point = field;
	*type = strtok_r(tail + 3, " ", &save);
	return field != NULL && *type != NULL;
}

/* Rootless: the group this process is in, or the one above when it has stepped aside in it; if it may be written. */
static void find_own(struct groups *g, const char *mount)
{
	char own[GROUPS_PATH_SIZE];
	char *path;

	if (!read_text("/proc/self/cgroup"))
		return;
	path = cgroup_v2_path(text);
	if (path == NULL)
		return;
	if (str_ends(path, SERVER_GROUP))
		path[strlen(path) - strlen(SERVER_GROUP)] = '\0';
	if (snprintf(own, sizeof(own), "%s%s", mount, str_eq(path, "/") ? "" : path) >=
		(int)sizeof(own))
		return;
	if (access(own, W_OK) == 0)
		(void)!str_copy(g->base, sizeof(g->base), own);
}

static void make_base(struct groups *g, const char *mount, const char *tag, bool root)
{
	char parent[GROUPS_PATH_SIZE];

	if (!root)
		find_own(g, mount);
	else
		(void)!str_copy(g->base, sizeof(g->base), mount);
	if (g->base[0] == '\0')
		return;
	memcpy(parent, g->base, sizeof(parent));
	if (snprintf(g->base, sizeof(g->base), "%.400s/cay-%s", parent, tag) >=
			(int)sizeof(g->base) ||
		(mkdir(g->base, 0755) < 0 && errno != EEXIST)) {
		g->base[0] = '\0';
		return;
	}
	if (root || (offers_controllers(parent) && step_aside(parent)))
		enable_controllers(parent);
	enable_controllers(g->base);
}

void groups_find(struct groups *g, const char *tag, bool root)
{
	char v2[GROUPS_PATH_SIZE] = "", *save = NULL;

	*g = (struct groups){ 0 };
	if (!read_text("/proc/self/mountinfo"))
		return;
	for (char *line = strtok_r(text, "\n", &save); line != NULL;
		line = strtok_r(NULL, "\n", &save)) {
		char *point, *type;

		if (strstr(line, " - cgroup") == NULL || !mount_of(line, &point, &type))
			continue;
		if (str_eq(type, "cgroup2") && v2[0] == '\0')
			(void)!str_copy(v2, sizeof(v2), point);
		if (str_eq(type, "cgroup") && g->n_v1 < GROUPS_V1_MAX && strlen(point) < 400)
			(void)snprintf(
				g->v1[g->n_v1++], GROUPS_PATH_SIZE, "%.400s/cay-%s", point, tag);
	}
	if (v2[0] != '\0')
		make_base(g, v2, tag, root);
}

static bool has_file(const char *dir, const char *name)
{
	char path[GROUPS_PATH_SIZE + 32];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

/* As keepers see it in what they make below (cgroup_prepare()). */
bool groups_hold_limits(const struct groups *g, bool root)
{
	return (root && g->n_v1 > 0) || (g->base[0] != '\0' && has_file(g->base, "memory.max") &&
						has_file(g->base, "pids.max"));
}

static bool locked_by_other(int fd)
{
	return flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

/* Not the base group: that one comes and goes. */
int groups_lock(bool wait)
{
	uint64_t deadline = clock_now_ns() + (wait ? LOCK_NS : 0);
	const char *run = getenv("CAY_RUN");
	char path[4200];
	cleanup_fd int fd = -1;

	if (run == NULL || snprintf(path, sizeof(path), "%s/keepers", run) >= (int)sizeof(path))
		return -ENOENT;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (locked_by_other(fd)) {
		if (clock_now_ns() >= deadline)
			return -EWOULDBLOCK;
		(void)poll(NULL, 0, LEFT_MS);
	}
	return TAKE_FD(fd);
}

uint64_t groups_number(const struct groups *g, const char *id)
{
	char path[GROUPS_PATH_SIZE + 64];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/%s", g->base, id);
	return g->base[0] != '\0' && stat(path, &st) == 0 ? st.st_ino : 0;
}

/* Return: 0 when BASE/ID is new. A cay-spawn that is leaving may remove the base at any time, because it is empty. */
static int make_new(const struct groups *g, const char *path)
{
	for (int i = 0; mkdir(path, 0755) < 0; i++) {
		if (errno != ENOENT || i == BASE_ATTEMPTS)
			return -errno;
		if (mkdir(g->base, 0755) == 0)
			enable_controllers(g->base);
	}
	return 0;
}

int groups_make(const struct groups *g, const char *id, uint64_t *ret_number)
{
	char path[GROUPS_PATH_SIZE + 64];
	int fd, rc;

	*ret_number = 0;
	if (g->base[0] == '\0')
		return -ENOENT;
	(void)snprintf(path, sizeof(path), "%s/%s", g->base, id);
	for (int i = 0; (rc = make_new(g, path)) == -EEXIST; i++) {
		if (groups_remove(g, id) == 0)
			continue;
		if (i == LEFT_ATTEMPTS)
			return -EBUSY;
		(void)poll(NULL, 0, LEFT_MS); /* what was killed has not ended yet */
	}
	if (rc < 0)
		return rc;
	*ret_number = groups_number(g, id);
	enable_controllers(path);
	(void)snprintf(path, sizeof(path), "%s/%s/keeper", g->base, id);
	if (mkdir(path, 0755) < 0)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static void kill_all(const struct groups *g, const char *id)
{
	char path[GROUPS_PATH_SIZE + 64];

	if (g->base[0] == '\0')
		return;
	(void)snprintf(path, sizeof(path), "%s/%s", g->base, id);
	(void)write_file(path, "cgroup.kill", "1");
}

struct entry {
	uint64_t ino;
	int64_t off;
	unsigned short reclen;
	unsigned char type;
	char name[];
};

/* rmdir a group and everything below it; files in it are the kernel's. Most have nothing below, or are not there: these are not listed. */
static int remove_tree(int dirfd, const char *name, int depth)
{
	_Alignas(struct entry) char bytes[4096];
	cleanup_fd int fd = -1;
	int rc = 0;
	long n;

	if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (depth > DEPTH_MAX)
		return -ELOOP;
	while ((n = syscall(SYS_getdents64, fd, bytes, sizeof(bytes))) > 0) {
		for (long at = 0; at < n;) {
			const struct entry *e = (const struct entry *)(const void *)(bytes + at);

			at += e->reclen;
			if (e->type != DT_DIR || str_eq(e->name, ".") || str_eq(e->name, ".."))
				continue;
			if (remove_tree(fd, e->name, depth + 1) < 0)
				rc = -EBUSY;
		}
	}
	if (rc == 0 && unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		rc = -errno;
	return rc;
}

static int remove_below(const char *base, const char *id)
{
	char path[GROUPS_PATH_SIZE + 64];

	(void)snprintf(path, sizeof(path), "%s/%s", base, id);
	return remove_tree(AT_FDCWD, path, 0);
}

/* Is a process in BASE/ID or below? What cannot be read counts as one, what does not exist does not. */
static bool inhabited(const struct groups *g, const char *id)
{
	char path[GROUPS_PATH_SIZE + 64], events[128] = "";
	cleanup_fd int fd = -1;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%s/%s/cgroup.events", g->base, id);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno != ENOENT;
	n = read(fd, events, sizeof(events) - 1);
	return n <= 0 || strstr(events, "populated 0") == NULL;
}

bool groups_kill(const struct groups *g, const char *id)
{
	kill_all(g, id);
	return g->base[0] == '\0' || !inhabited(g, id);
}

int groups_remove(const struct groups *g, const char *id)
{
	char beside[64];
	int rc = 0;

	(void)snprintf(beside, sizeof(beside), "%s" GATEWAY, id);
	kill_all(g, id);
	for (size_t i = 0; i < g->n_v1; i++) {
		int one = remove_below(g->v1[i], id), gateway = remove_below(g->v1[i], beside);

		if (one < 0 || gateway < 0)
			rc = one < 0 ? one : gateway;
	}
	if (rc == 0 && g->base[0] != '\0')
		rc = remove_below(g->base, id);
	return rc;
}

/* Whose group it is. */
static bool id_of(const char *name, char ret[ID_LEN + 1])
{
	size_t n = strcspn(name, ".");

	if (n != ID_LEN || (name[n] != '\0' && !str_eq(name + n, GATEWAY)))
		return false;
	memcpy(ret, name, n);
	ret[n] = '\0';
	return id_valid(ret);
}

static void sweep(const struct groups *g, const char *base)
{
	_Alignas(struct entry) char bytes[4096];
	cleanup_fd int fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long n;

	while (fd >= 0 && (n = syscall(SYS_getdents64, fd, bytes, sizeof(bytes))) > 0) {
		for (long at = 0; at < n;) {
			const struct entry *e = (const struct entry *)(const void *)(bytes + at);

			char id[ID_LEN + 1];

			at += e->reclen;
			if (e->type == DT_DIR && id_of(e->name, id) && !inhabited(g, id))
				(void)remove_tree(fd, e->name, 0);
		}
	}
}

void groups_sweep(const struct groups *g)
{
	cleanup_fd int lock = groups_lock(false);

	if (lock < 0)
		return;
	for (size_t i = 0; i < g->n_v1; i++)
		sweep(g, g->v1[i]);
	sweep(g, g->base);
}

void groups_fini(const struct groups *g)
{
	if (g->base[0] != '\0')
		(void)rmdir(g->base);
	for (size_t i = 0; i < g->n_v1; i++)
		(void)rmdir(g->v1[i]);
}
