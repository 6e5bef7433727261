/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys/cgroup.c - see the header for the layout. Sources: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/ of the kernel.
 */
#include "sys/cgroup.h"
#include "base/clock.h"
#include "base/str.h"
#include "sys/file.h"
#include "sys/mountinfo.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>

#define GATEWAY "../gateway"
#define LOADER  "../loader"

static const char *const v1_names[CGROUP_V1_COUNT] = { "memory", "pids", "cpu" };

struct mounts {
	char v2[256];
	char v1[CGROUP_V1_COUNT][256];
};

static int find_mount(void *ctx, const struct mountinfo *mount)
{
	struct mounts *m = ctx;

	if (str_eq(mount->type, "cgroup2") && m->v2[0] == '\0')
		(void)!str_copy(m->v2, sizeof(m->v2), mount->point);
	for (size_t i = 0; str_eq(mount->type, "cgroup") && i < CGROUP_V1_COUNT; i++) {
		if (m->v1[i][0] == '\0' && str_list_has(mount->options, v1_names[i]))
			(void)!str_copy(m->v1[i], sizeof(m->v1[i]), mount->point);
	}
	return 0;
}

static int find_mounts(struct mounts *m)
{
	return mountinfo_each("/proc/self/mountinfo", find_mount, m);
}

char *cgroup_v2_path(char *text)
{
	char *line = str_starts(text, "0::") ? text : strstr(text, "\n0::");

	if (line == NULL)
		return NULL;
	line += strlen("0::") + (*line == '\n');
	line[strcspn(line, "\n")] = '\0';
	return line;
}

/* Path of this process in the v2 hierarchy, "" if none. */
static int own_v2_path(char *path, size_t size)
{
	cleanup_buf struct buf text = BUF_INIT(65536);
	int rc = file_read_at(AT_FDCWD, "/proc/self/cgroup", &text);
	const char *own = rc < 0 || text.n == 0 ? NULL : cgroup_v2_path(text.p);

	path[0] = '\0';
	return rc < 0 || own == NULL ? rc : str_copy(path, size, own);
}

static int join(char *out, const char *dir, const char *name)
{
	int n = snprintf(out, CGROUP_PATH_SIZE, "%s/%s", dir, name);

	if (n < 0 || n >= CGROUP_PATH_SIZE) {
		out[0] = '\0';
		return -ENAMETOOLONG;
	}
	return 0;
}

static int make_dir(const char *path)
{
	return mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

/* Ask for the controllers one by one: a missing one must not cost the others. */
static void enable_controllers(const char *dir)
{
	static const char *const wanted[] = { "+memory", "+pids", "+cpu" };
	char path[CGROUP_PATH_SIZE];
	cleanup_fd int fd = -1;

	if (join(path, dir, "cgroup.subtree_control") == 0)
		fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	for (size_t i = 0; fd >= 0 && i < ARRAY_SIZE(wanted); i++)
		(void)!write(fd, wanted[i], strlen(wanted[i]));
}

static bool readable(const char *dir, const char *name)
{
	char path[CGROUP_PATH_SIZE];

	return join(path, dir, name) == 0 && access(path, R_OK) == 0;
}

/* Of an absolute path: 0 for the root. */
static uint32_t depth(const char *path)
{
	uint32_t n = 0;

	for (const char *p = path; *p != '\0'; p++)
		n += *p == '/' && p[1] != '\0';
	return n;
}

static int prepare_v2(struct cgroup *cg, const char *mount)
{
	char own[256], base[CGROUP_PATH_SIZE];
	int rc = own_v2_path(own, sizeof(own));

	/* where no group can be made the programs are in ours */
	cg->level = rc < 0 ? 0 : depth(own);
	if (rc < 0 || mount[0] == '\0' || !str_ends(own, "/keeper"))
		return rc;
	own[strlen(own) - strlen("/keeper")] = '\0';
	rc = join(base, mount, own[0] == '/' ? own + 1 : own);
	if (rc < 0)
		return rc;
	rc = join(cg->box, base, "box");
	if (rc == 0)
		rc = make_dir(cg->box);
	/* cay-spawn has asked for the controllers; where it came too early, they can be had by now */
	if (rc == 0 && !readable(cg->box, "memory.max"))
		enable_controllers(base);
	if (rc < 0) {
		cg->box[0] = '\0';
		return rc == -EACCES || rc == -EPERM || rc == -EROFS ? 0 : rc;
	}
	cg->level++; /* …/box/LEAF beside …/keeper */
	enable_controllers(cg->box);
	cg->controllers = readable(cg->box, "memory.max") && readable(cg->box, "pids.max");
	return 0;
}

static int prepare_v1(struct cgroup *cg, const struct mounts *m, const char *tag, const char *id)
{
	for (size_t i = 0; i < CGROUP_V1_COUNT; i++) {
		char dir[CGROUP_PATH_SIZE], name[64];
		int rc;

		if (m->v1[i][0] == '\0')
			continue;
		(void)snprintf(name, sizeof(name), "cay-%s", tag);
		rc = join(dir, m->v1[i], name);
		if (rc == 0)
			rc = make_dir(dir);
		if (rc == 0)
			rc = join(cg->v1[i], dir, id);
		if (rc == 0)
			rc = make_dir(cg->v1[i]);
		if (rc < 0) {
			cg->v1[i][0] = '\0';
			return rc;
		}
	}
	return 0;
}

static struct mounts found; /* by cgroup_look_ahead() */
static bool looked;

void cgroup_look_ahead(void)
{
	found = (struct mounts){ 0 };
	looked = find_mounts(&found) == 0;
}

int cgroup_prepare(struct cgroup *cg, const char *tag, const char *id, bool use_v1)
{
	struct mounts m = found;
	int rc = looked ? 0 : find_mounts(&m);

	*cg = (struct cgroup){ 0 };
	if (rc == 0)
		rc = prepare_v2(cg, m.v2);
	if (rc == 0 && use_v1 && !cg->controllers)
		rc = prepare_v1(cg, &m, tag, id);
	return rc;
}

/*
 * "0" to `tasks` means the calling thread, and for that alone the kernel takes neither the lock that stops every fork on the machine nor
 * waits for all processors (cgroup_procs_write_start() of kernel/cgroup/cgroup.c); a pid written to `cgroup.procs` costs 5 to 20 ms in which no
 * other group can be made.
 */
int cgroup_v1_join(const struct cgroup *cg)
{
	for (size_t i = 0; i < CGROUP_V1_COUNT; i++) {
		char path[CGROUP_PATH_SIZE];
		int rc;

		if (cg->v1[i][0] == '\0')
			continue;
		rc = join(path, cg->v1[i], "tasks");
		if (rc == 0)
			rc = file_write_at(AT_FDCWD, path, "0");
		if (rc < 0)
			return rc;
	}
	return 0;
}

int cgroup_v1_tasks(const struct cgroup *cg, int fds[CGROUP_V1_COUNT])
{
	int n = 0, rc = 0;

	for (size_t i = 0; rc == 0 && i < CGROUP_V1_COUNT; i++) {
		char path[CGROUP_PATH_SIZE];

		if (cg->v1[i][0] == '\0')
			continue;
		rc = join(path, cg->v1[i], "tasks");
		fds[n] = rc < 0 ? rc : open(path, O_WRONLY | O_CLOEXEC);
		if (rc == 0 && fds[n] < 0)
			rc = -errno;
		else if (rc == 0)
			n++;
	}
	while (rc < 0 && n > 0)
		(void)close(fds[--n]);
	return rc < 0 ? rc : n;
}

/* "…/@name" beside `box`; made when @make. Return: a descriptor or -errno. */
static int open_beside(const struct cgroup *cg, const char *name, bool make)
{
	char path[CGROUP_PATH_SIZE];
	int fd, rc;

	if (cg->box[0] == '\0')
		return -ENOENT;
	rc = join(path, cg->box, name);
	if (rc == 0 && make)
		rc = make_dir(path);
	if (rc < 0)
		return rc;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int cgroup_keeper_open(const struct cgroup *cg)
{
	return open_beside(cg, "../keeper", false);
}

/* The numbers of cgroup.procs; owned by the caller. */
static int read_pids(int leaf, int32_t **ret, size_t *ret_n)
{
	cleanup_buf struct buf text = BUF_INIT(4U << 20);
	int rc = file_read_at(leaf, "cgroup.procs", &text);
	char *save = NULL;

	*ret_n = 0;
	*ret = NULL;
	if (rc < 0)
		return rc;
	*ret = xalloc((text.n / 2 + 1) * sizeof(**ret));
	for (char *line = text.n == 0 ? NULL : strtok_r(text.p, "\n", &save); line != NULL;
		line = strtok_r(NULL, "\n", &save)) {
		uint64_t pid;

		/* 0 = a process of another pid namespace: not possible here */
		if (str_to_u64(line, 1, INT32_MAX, &pid) == 0)
			(*ret)[(*ret_n)++] = (int32_t)pid;
	}
	return 0;
}

/* One read: of a group with very many processes the rest is not even listed. */
int cgroup_leaf_pids(const struct cgroup *cg, const char *name, int32_t *ret, size_t max)
{
	char path[CGROUP_PATH_SIZE + 64], text[4096], *save = NULL;
	cleanup_fd int fd = -1;
	ssize_t n_text;
	size_t n = 0;

	BUG_ON(max > 400);
	if (cg->box[0] == '\0')
		return -ENOENT;
	(void)snprintf(path, sizeof(path), "%s/%s/cgroup.procs", cg->box, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n_text = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n_text < 0)
		return -errno;
	text[n_text] = '\0';
	for (char *line = strtok_r(text, "\n", &save); line != NULL;
		line = strtok_r(NULL, "\n", &save)) {
		uint64_t pid;

		if (n == max)
			return -E2BIG;
		if (str_to_u64(line, 1, INT32_MAX, &pid) == 0)
			ret[n++] = (int32_t)pid;
	}
	return (int)n;
}

int cgroup_each_leaf(const struct cgroup *cg, cgroup_leaf_fn *fn, void *ctx)
{
	DIR *dir = cg->box[0] == '\0' ? NULL : opendir(cg->box);
	const struct dirent *e;
	int rc = 0;

	if (dir == NULL)
		return cg->box[0] == '\0' ? -ENOENT : -errno;
	while (rc == 0 && (e = readdir(dir)) != NULL) {
		cleanup_free int32_t *pids = NULL;
		cleanup_fd int leaf = -1;
		size_t n = 0;

		if (e->d_type != DT_DIR || e->d_name[0] == '.')
			continue;
		leaf = openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = leaf < 0 ? -errno : read_pids(leaf, &pids, &n);
		if (rc == 0)
			rc = fn(ctx, e->d_name, pids, n);
	}
	(void)closedir(dir);
	return rc;
}

static int write_number(const char *dir, const char *name, uint64_t value, const char *none)
{
	char path[CGROUP_PATH_SIZE];
	int rc = join(path, dir, name);

	if (rc < 0)
		return rc;
	if (value == 0)
		return file_write_at(AT_FDCWD, path, none);
	return file_write_fmt_at(AT_FDCWD, path, "%lu", value);
}

#define SOCKET_SHARE  8
#define SOCKET_LEAST  (16ULL << 20)
#define CPU_PERIOD_US 100000ULL
#define LOADER_MEMORY \
	(512ULL << 20) /* lists (CLAIMS_MOST of claims.c), and page tables of others */

static int set_cpu_v2(const char *dir, uint64_t cpu_millis)
{
	char path[CGROUP_PATH_SIZE];
	int rc = join(path, dir, "cpu.max");

	if (rc < 0 || access(path, R_OK) < 0)
		return rc < 0 || cpu_millis == 0 ? rc : -EOPNOTSUPP;
	if (cpu_millis == 0)
		return file_write_at(AT_FDCWD, path, "max");
	return file_write_fmt_at(
		AT_FDCWD, path, "%llu %llu", cpu_millis * CPU_PERIOD_US / 1000, CPU_PERIOD_US);
}

int cgroup_loader_open(const struct cgroup *cg, uint64_t cpu_millis)
{
	char path[CGROUP_PATH_SIZE];
	cleanup_fd int fd = open_beside(cg, LOADER, true);
	int rc = fd < 0 ? fd : join(path, cg->box, LOADER);

	if (rc == 0 && cg->controllers)
		rc = write_number(path, "memory.max", LOADER_MEMORY, "max");
	if (rc == 0 && cg->controllers)
		rc = set_cpu_v2(path, cpu_millis);
	return rc < 0 ? rc : TAKE_FD(fd);
}

int cgroup_gateway_open(const struct cgroup *cg, uint64_t cpu_millis)
{
	char path[CGROUP_PATH_SIZE];
	cleanup_fd int fd = open_beside(cg, GATEWAY, true);
	int rc = fd < 0 ? fd : join(path, cg->box, GATEWAY);

	if (rc == 0 && cg->controllers)
		rc = set_cpu_v2(path, cpu_millis);
	return rc < 0 ? rc : TAKE_FD(fd);
}

static int set_cpu_v1(const char *dir, uint64_t cpu_millis)
{
	return write_number(dir, "cpu.cfs_quota_us", cpu_millis * CPU_PERIOD_US / 1000, "-1");
}

/* Beside the programs' group, not below it: the gateway would have what they leave, and a capture that waits for it would wait for them. */
int cgroup_gateway_tasks(const struct cgroup *cg, uint64_t cpu_millis)
{
	const char *cpu = cg->v1[CGROUP_V1_CPU];
	char dir[CGROUP_PATH_SIZE + 16], path[CGROUP_PATH_SIZE];
	int fd, rc;

	if (cg->controllers || cpu[0] == '\0' || cpu_millis == 0)
		return -ENOENT;
	(void)snprintf(dir, sizeof(dir), "%s.gateway", cpu);
	rc = make_dir(dir);
	if (rc == 0)
		rc = set_cpu_v1(dir, cpu_millis);
	if (rc == 0)
		rc = join(path, dir, "tasks");
	if (rc < 0)
		return rc;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int set_limits_v2(
	const struct cgroup *cg, const struct cgroup_limits *was, const struct cgroup_limits *now)
{
	int rc = 0;

	if (now->memory_bytes != was->memory_bytes)
		rc = write_number(cg->box, "memory.max", now->memory_bytes, "max");
	if (rc == 0 && now->memory_bytes != 0 && was->memory_bytes == 0 &&
		readable(cg->box, "memory.swap.max"))
		rc = write_number(cg->box, "memory.swap.max", 0, "0");
	if (rc == 0 && now->pids != was->pids)
		rc = write_number(cg->box, "pids.max", now->pids, "max");
	return rc == 0 && now->cpu_millis != was->cpu_millis ? set_cpu_v2(cg->box, now->cpu_millis)
							     : rc;
}

/* What a sandbox with @memory_bytes may have in buffers of TCP and of UDP, apart from that; 0: as much as it likes. */
static uint64_t socket_share(uint64_t memory_bytes)
{
	uint64_t share = memory_bytes / SOCKET_SHARE;

	if (share >= SOCKET_LEAST)
		return share;
	return memory_bytes < SOCKET_LEAST ? memory_bytes : SOCKET_LEAST;
}

/* These buffers version 1 does not count as memory: they are the machine's (tcp_mem, udp_mem), of which one sandbox could take all, unless this limit is set. */
static int set_sockets_v1(const char *dir, uint64_t memory_bytes)
{
	static const char file[] = "memory.kmem.tcp.limit_in_bytes";

	return readable(dir, file) ? write_number(dir, file, socket_share(memory_bytes), "-1") : 0;
}

/* Memory and swap together may never be less than memory: which is written first depends on the direction. */
static int set_bytes_v1(const char *dir, uint64_t was, uint64_t now)
{
	static const char *const files[] = { "memory.limit_in_bytes",
		"memory.memsw.limit_in_bytes" };
	bool grows = was != 0 && (now == 0 || now > was);
	int rc = 0;

	if (dir[0] == '\0')
		return now == 0 ? 0 : -EOPNOTSUPP;
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(files); i++) {
		size_t which = grows ? 1 - i : i;

		if (which == 0 || readable(dir, files[which]))
			rc = write_number(dir, files[which], now, "-1");
	}
	return rc;
}

static int set_memory_v1(const char *dir, uint64_t was, uint64_t now)
{
	int rc = set_bytes_v1(dir, was, now);

	return rc == 0 && dir[0] != '\0' ? set_sockets_v1(dir, now) : rc;
}

static int set_limits_v1(
	const struct cgroup *cg, const struct cgroup_limits *was, const struct cgroup_limits *now)
{
	const char *cpu = cg->v1[CGROUP_V1_CPU], *pids = cg->v1[CGROUP_V1_PIDS];
	int rc = now->memory_bytes == was->memory_bytes
			 ? 0
			 : set_memory_v1(
				   cg->v1[CGROUP_V1_MEMORY], was->memory_bytes, now->memory_bytes);

	if (rc == 0 && now->pids != was->pids)
		rc = pids[0] == '\0' ? -EOPNOTSUPP
				     : write_number(pids, "pids.max", now->pids, "max");
	if (rc == 0 && now->cpu_millis != was->cpu_millis)
		rc = cpu[0] == '\0' ? -EOPNOTSUPP : set_cpu_v1(cpu, now->cpu_millis);
	return rc;
}

int cgroup_set_limits(
	const struct cgroup *cg, const struct cgroup_limits *was, const struct cgroup_limits *now)
{
	return cg->controllers ? set_limits_v2(cg, was, now) : set_limits_v1(cg, was, now);
}

int cgroup_pids_open(const struct cgroup *cg)
{
	const char *dir = cg->controllers ? cg->box : cg->v1[CGROUP_V1_PIDS];
	char path[CGROUP_PATH_SIZE];
	int fd, rc = dir[0] == '\0' ? -EOPNOTSUPP : join(path, dir, "pids.max");

	if (rc < 0)
		return rc;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int cgroup_lend_pids(int fd, uint64_t pids)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%lu", pids);

	return pwrite(fd, text, (size_t)n, 0) < 0 ? -errno : 0;
}

int cgroup_lend_memory(const struct cgroup *cg, uint64_t was, uint64_t now)
{
	return cg->controllers ? write_number(cg->box, "memory.max", now, "max")
			       : set_bytes_v1(cg->v1[CGROUP_V1_MEMORY], was, now);
}

static int open_leaf(const struct cgroup *cg, const char *name, bool unused)
{
	char path[CGROUP_PATH_SIZE];
	int rc, fd;

	if (cg->box[0] == '\0')
		return -ENOENT;
	rc = join(path, cg->box, name);
	if (rc == 0 && mkdir(path, 0755) < 0 && (unused || errno != EEXIST))
		rc = -errno;
	if (rc < 0)
		return rc;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int cgroup_leaf_new(const struct cgroup *cg, const char *name)
{
	return open_leaf(cg, name, false);
}

int cgroup_leaf_unused(const struct cgroup *cg, const char *name)
{
	return open_leaf(cg, name, true);
}

uint64_t cgroup_leaf_id(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

int cgroup_leaf_remove(const struct cgroup *cg, const char *name)
{
	char path[CGROUP_PATH_SIZE];
	int rc = join(path, cg->box, name);

	if (rc < 0)
		return rc;
	return rmdir(path) < 0 && errno != ENOENT ? -errno : 0;
}

/* "box/NAME/FILE", or "box/FILE" when @name is NULL. */
static int box_file(const struct cgroup *cg, const char *name, const char *file, char *path)
{
	int n;

	if (cg->box[0] == '\0')
		return -ENOENT;
	n = name == NULL ? snprintf(path, CGROUP_PATH_SIZE, "%s/%s", cg->box, file)
			 : snprintf(path, CGROUP_PATH_SIZE, "%s/%s/%s", cg->box, name, file);
	return n < 0 || n >= CGROUP_PATH_SIZE ? -ENAMETOOLONG : 0;
}

int cgroup_kill(const struct cgroup *cg, const char *name)
{
	char path[CGROUP_PATH_SIZE];
	int rc = box_file(cg, name, "cgroup.kill", path);

	return rc < 0 ? rc : file_write_at(AT_FDCWD, path, "1");
}

/*
 * Until @key of cgroup.events is @want. A change wakes POLLPRI, seen from the last read of the same descriptor on; the kernel puts a change off that
 * follows another within 10 ms (cgroup_file_notify()), so the file is read again before that too, at growing distances.
 */
static int wait_event(
	const struct cgroup *cg, const char *name, const char *key, uint64_t want, int timeout_ms)
{
	uint64_t deadline = clock_now_ns() + (unsigned int)timeout_ms * NS_PER_MS;
	char path[CGROUP_PATH_SIZE];
	cleanup_fd int fd = -1;
	int rc = box_file(cg, name, "cgroup.events", path);

	if (rc < 0)
		return rc;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (uint64_t pause_ns = NS_PER_MS / 10;; pause_ns *= 2) {
		struct pollfd p = { .fd = fd, .events = POLLPRI };
		struct timespec most;
		uint64_t value, now;

		rc = file_read_key(fd, key, &value);
		if (rc < 0 || value == want)
			return rc;
		now = clock_now_ns();
		if (now >= deadline)
			return -ETIMEDOUT;
		if (pause_ns > 50 * NS_PER_MS)
			pause_ns = 50 * NS_PER_MS;
		most.tv_sec = 0;
		most.tv_nsec = (long)(pause_ns < deadline - now ? pause_ns : deadline - now);
		(void)ppoll(&p, 1, &most, NULL);
	}
}

int cgroup_freeze(const struct cgroup *cg, bool freeze, int timeout_ms)
{
	char path[CGROUP_PATH_SIZE];
	int rc = box_file(cg, NULL, "cgroup.freeze", path);

	if (rc == 0)
		rc = file_write_at(AT_FDCWD, path, freeze ? "1" : "0");
	if (rc < 0)
		return rc;
	return wait_event(cg, NULL, "frozen", freeze ? 1 : 0, timeout_ms);
}

int cgroup_wait_empty(const struct cgroup *cg, int timeout_ms)
{
	return wait_event(cg, NULL, "populated", 0, timeout_ms);
}

int cgroup_leaf_wait_empty(const struct cgroup *cg, const char *name, int timeout_ms)
{
	return wait_event(cg, name, "populated", 0, timeout_ms);
}

bool cgroup_leaf_populated(const struct cgroup *cg, const char *name)
{
	char path[CGROUP_PATH_SIZE];
	uint64_t value;

	return box_file(cg, name, "cgroup.events", path) == 0 &&
	       file_read_key_at(AT_FDCWD, path, "populated", &value) == 0 && value != 0;
}

uint64_t cgroup_leaf_cpu_us(const struct cgroup *cg, const char *name)
{
	char path[CGROUP_PATH_SIZE];
	uint64_t value;

	if (box_file(cg, name, "cpu.stat", path) < 0 ||
		file_read_key_at(AT_FDCWD, path, "usage_usec", &value) < 0)
		return UINT64_MAX;
	return value;
}

static uint64_t key_or_zero(const char *dir, const char *name, const char *key)
{
	char path[CGROUP_PATH_SIZE];
	uint64_t value;

	if (dir[0] == '\0' || join(path, dir, name) < 0 ||
		file_read_key_at(AT_FDCWD, path, key, &value) < 0)
		return 0;
	return value;
}

static uint64_t number_or(const char *dir, const char *name, uint64_t otherwise)
{
	char path[CGROUP_PATH_SIZE];
	uint64_t value;

	if (dir[0] == '\0' || join(path, dir, name) < 0 ||
		file_read_u64_at(AT_FDCWD, path, &value) < 0)
		return otherwise;
	return value;
}

uint64_t cgroup_leaf_oom_kills(const struct cgroup *cg, const char *name)
{
	char path[CGROUP_PATH_SIZE];

	if (!cg->controllers)
		return key_or_zero(cg->v1[CGROUP_V1_MEMORY], "memory.oom_control", "oom_kill");
	if (join(path, cg->box, name) < 0)
		return 0;
	return key_or_zero(path, "memory.events", "oom_kill");
}

uint64_t cgroup_leaf_refused(const struct cgroup *cg, const char *name)
{
	char path[CGROUP_PATH_SIZE];

	return cg->controllers && name[0] != '\0' && join(path, cg->box, name) == 0
		       ? key_or_zero(path, "pids.events", "max")
		       : 0;
}

void cgroup_refusals(const struct cgroup *cg, struct cgroup_usage *ret)
{
	const char *memory = cg->controllers ? cg->box : cg->v1[CGROUP_V1_MEMORY];
	const char *pids = cg->controllers ? cg->box : cg->v1[CGROUP_V1_PIDS];

	ret->oom_kills = key_or_zero(
		memory, cg->controllers ? "memory.events" : "memory.oom_control", "oom_kill");
	ret->pids_refused = key_or_zero(pids, "pids.events", "max");
}

uint64_t cgroup_memory(const struct cgroup *cg)
{
	return cg->controllers
		       ? number_or(cg->box, "memory.current", UINT64_MAX)
		       : number_or(cg->v1[CGROUP_V1_MEMORY], "memory.usage_in_bytes", UINT64_MAX);
}

uint64_t cgroup_sockets(const struct cgroup *cg)
{
	char path[CGROUP_PATH_SIZE];
	uint64_t gateway, all;

	if (!cg->controllers)
		return number_or(
			cg->v1[CGROUP_V1_MEMORY], "memory.kmem.tcp.usage_in_bytes", UINT64_MAX);
	/* read first: what it takes meanwhile counts as the programs' */
	gateway = key_or_zero(cg->box, GATEWAY "/memory.stat", "sock");
	/* with our own processes: those who make the sockets of a fork are among them */
	if (join(path, cg->box, "../memory.stat") < 0 ||
		file_read_key_at(AT_FDCWD, path, "sock", &all) < 0)
		return UINT64_MAX;
	return all > gateway ? all - gateway : 0;
}

void cgroup_usage(const struct cgroup *cg, struct cgroup_usage *ret)
{
	const char *memory = cg->v1[CGROUP_V1_MEMORY], *pids = cg->v1[CGROUP_V1_PIDS];

	*ret = (struct cgroup_usage){ .cpu_us = cgroup_leaf_cpu_us(cg, NULL),
		.memory_bytes = cgroup_memory(cg) };
	cgroup_refusals(cg, ret);
	if (cg->controllers) {
		ret->memory_peak_bytes = number_or(cg->box, "memory.peak", UINT64_MAX);
		ret->pids = number_or(cg->box, "pids.current", UINT64_MAX);
		return;
	}
	ret->memory_peak_bytes = number_or(memory, "memory.max_usage_in_bytes", UINT64_MAX);
	ret->pids = number_or(pids, "pids.current", UINT64_MAX);
}
