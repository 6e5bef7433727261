/* SPDX-License-Identifier: Apache-2.0 */
/* What is written into files of control groups, seen in directories of our own: this machine may have no such groups. */
#include "base/attr.h"
#include "sys/cgroup.h"
#include "sys/file.h"
#include "t.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMITS 2

static const char *const limits[LIMITS] = { "memory.max", "cpu.max" };

/* The groups of a sandbox below @top, as the kernel has them for who makes them: their files are there. */
static void make_groups(const char *top, struct cgroup *cg)
{
	char path[CGROUP_PATH_SIZE + 32];

	(void)snprintf(cg->box, sizeof(cg->box), "%s/box", top);
	(void)snprintf(path, sizeof(path), "%s/loader", top);
	check_int(mkdir(cg->box, 0700), 0);
	check_int(mkdir(path, 0700), 0);
	for (int i = 0; i < LIMITS; i++) {
		(void)snprintf(path, sizeof(path), "%s/loader/%s", top, limits[i]);
		check_int(file_create_at(AT_FDCWD, path, 0600, "-", 1), 0);
	}
}

static void drop_groups(const char *top, const struct cgroup *cg)
{
	char path[CGROUP_PATH_SIZE + 32];

	for (int i = 0; i < LIMITS; i++) {
		(void)snprintf(path, sizeof(path), "%s/loader/%s", top, limits[i]);
		check_int(unlink(path), 0);
	}
	(void)snprintf(path, sizeof(path), "%s/loader", top);
	check_int(rmdir(path), 0);
	check_int(rmdir(cg->box), 0);
	check_int(rmdir(top), 0);
}

/* Does the file @name of the group @fd begin with @want? */
static void says(int fd, const char *name, const char *want)
{
	char text[64] = "";
	cleanup_fd int file = openat(fd, name, O_RDONLY | O_CLOEXEC);

	check(file >= 0 && read(file, text, sizeof(text) - 1) > 0);
	check_str(text, want);
}

/* What who brings memory behind a resume may take (docs/design/0009, "Who dies"). */
static void loader(uint64_t cpu_millis, bool controllers, const char *memory, const char *cpu)
{
	char top[] = "/tmp/cayt-groups-XXXXXX";
	struct cgroup cg = { .controllers = controllers };
	int fd;

	check(mkdtemp(top) != NULL);
	make_groups(top, &cg);
	fd = cgroup_loader_open(&cg, cpu_millis);
	check(fd >= 0);
	says(fd, limits[0], memory);
	says(fd, limits[1], cpu);
	(void)close(fd);
	drop_groups(top, &cg);
}

TEST(a_loader_has_the_processor_time_of_its_sandbox_and_little_memory)
{
	loader(500, true, "536870912", "50000 100000");
	loader(2000, true, "536870912", "200000 100000");
}

TEST(a_gateway_has_the_processor_time_of_its_sandbox)
{
	char top[] = "/tmp/cayt-groups-XXXXXX", path[CGROUP_PATH_SIZE + 32];
	struct cgroup cg = { .controllers = true };
	int fd;

	check(mkdtemp(top) != NULL);
	(void)snprintf(cg.box, sizeof(cg.box), "%s/box", top);
	(void)snprintf(path, sizeof(path), "%s/gateway", top);
	check_int(mkdir(cg.box, 0700), 0);
	check_int(mkdir(path, 0700), 0);
	check_int(cgroup_gateway_open(&cg, 500), -EOPNOTSUPP);
	(void)snprintf(path, sizeof(path), "%s/gateway/cpu.max", top);
	check_int(file_create_at(AT_FDCWD, path, 0600, "-", 1), 0);
	fd = cgroup_gateway_open(&cg, 500);
	check(fd >= 0);
	says(fd, "cpu.max", "50000 100000");
	check_int(cgroup_gateway_tasks(&cg, 500), -ENOENT);
	check_int(unlinkat(fd, "cpu.max", 0), 0);
	check_int(unlinkat(fd, "../gateway", AT_REMOVEDIR), 0);
	check_int(unlinkat(fd, "../box", AT_REMOVEDIR), 0);
	check_int(rmdir(top), 0);
	(void)close(fd);
}

TEST(a_loader_of_a_sandbox_without_a_limit_of_time_has_none)
{
	loader(0, true, "536870912", "max");
}

TEST(without_controllers_a_loader_has_a_group_alone)
{
	loader(500, false, "-", "-");
}

TEST(without_a_tree_there_is_no_group)
{
	const struct cgroup none = { .controllers = false };

	check_int(cgroup_loader_open(&none, 500), -ENOENT);
}

/* Version 1: what a sandbox may have in buffers of TCP and UDP goes with its memory, where the kernel knows it. */
static void sockets(const char *dir, uint64_t was, uint64_t now, const char *want)
{
	struct cgroup cg = { .controllers = false };
	struct cgroup_limits before = { .memory_bytes = was }, after = { .memory_bytes = now };
	cleanup_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)snprintf(cg.v1[CGROUP_V1_MEMORY], sizeof(cg.v1[CGROUP_V1_MEMORY]), "%s", dir);
	check_int(file_create_at(fd, "memory.limit_in_bytes", 0600, "-", 1), 0);
	if (want != NULL)
		check_int(file_create_at(fd, "memory.kmem.tcp.limit_in_bytes", 0600, "-", 1), 0);
	check_int(cgroup_set_limits(&cg, &before, &after), 0);
	check_int(unlinkat(fd, "memory.limit_in_bytes", 0), 0);
	if (want != NULL)
		says(fd, "memory.kmem.tcp.limit_in_bytes", want);
	check_int(unlinkat(fd, "memory.kmem.tcp.limit_in_bytes", 0), want != NULL ? 0 : -1);
}

TEST(buffers_of_sockets_have_a_share_of_the_memory)
{
	char top[] = "/tmp/cayt-groups-XXXXXX";

	check(mkdtemp(top) != NULL);
	sockets(top, 0, 2ULL << 30, "268435456");
	sockets(top, 2ULL << 30, 64U << 20, "16777216");
	sockets(top, 64U << 20, 8U << 20, "8388608");
	sockets(top, 8U << 20, 0, "-1");
	sockets(top, 0, 64U << 20, NULL);
	check_int(rmdir(top), 0);
}

static void said_of_sockets(const char *top, const char *group, const char *stat)
{
	char path[CGROUP_PATH_SIZE];

	(void)snprintf(path, sizeof(path), "%s/%s/memory.stat", top, group);
	check_int(stat != NULL ? file_create_at(AT_FDCWD, path, 0600, stat, strlen(stat))
			       : unlink(path),
		0);
}

/* Version 2 counts what is below a group with it. */
TEST(what_the_gateway_has_in_buffers_is_not_the_sandboxs)
{
	char top[] = "/tmp/cayt-groups-XXXXXX";
	struct cgroup cg = { .controllers = true };
	cleanup_fd int gateway = -1;

	check(mkdtemp(top) != NULL);
	(void)snprintf(cg.box, sizeof(cg.box), "%s/box", top);
	check_int(mkdir(cg.box, 0700), 0);
	check_int(cgroup_sockets(&cg), UINT64_MAX);
	said_of_sockets(top, ".", "anon 7\nsock 5000\nsocks 9\n");
	check_int(cgroup_sockets(&cg), 5000);
	gateway = cgroup_gateway_open(&cg, 0);
	check(gateway >= 0);
	said_of_sockets(top, "gateway", "anon 7\nsock 3000\n");
	check_int(cgroup_sockets(&cg), 2000);
	said_of_sockets(top, "gateway", NULL);
	said_of_sockets(top, "gateway", "sock 6000\n");
	check_int(cgroup_sockets(&cg), 0);
	said_of_sockets(top, "gateway", NULL);
	said_of_sockets(top, ".", NULL);
	check_int(unlinkat(gateway, "../box", AT_REMOVEDIR), 0);
	check_int(unlinkat(gateway, "../gateway", AT_REMOVEDIR), 0);
	check_int(rmdir(top), 0);
}

TEST(the_v2_path_is_that_of_its_own_line)
{
	char alone[] = "0::/a/keeper\n", behind[] = "1:name=systemd:/b0::/c\n0::/a\n",
	     root[] = "0::/", none[] = "10:memory:/b\n1:name=0::/c\n", nothing[] = "";

	check_str(cgroup_v2_path(alone), "/a/keeper");
	check_str(cgroup_v2_path(behind), "/a");
	check_str(cgroup_v2_path(root), "/");
	check(cgroup_v2_path(none) == NULL);
	check(cgroup_v2_path(nothing) == NULL);
}
