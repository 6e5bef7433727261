/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/probe.h"
#include "sys/raw.h"
#include "t.h"

#include <dirent.h>

static int answer(void *arg)
{
	return *(int *)arg;
}

static int hang(void *arg)
{
	for (;;)
		(void)pause();
	return *(int *)arg;
}

static int die(attr_unused void *arg)
{
	(void)raise(SIGKILL);
	return 0;
}

static int change_memory(void *arg)
{
	*(int *)arg = 1;
	return 0;
}

static int open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir != NULL && readdir(dir) != NULL)
		n++;
	if (dir != NULL)
		(void)closedir(dir);
	return n;
}

TEST(a_probe_answers_with_its_result)
{
	int seven = 7, refused = -EPERM;

	check_int(probe_run(answer, &seven, PROBE_TIMEOUT_MS), 7);
	check_int(probe_run(answer, &refused, PROBE_TIMEOUT_MS), -EPERM);
}

TEST(a_probe_that_hangs_is_ended)
{
	int n = 0;

	check_int(probe_run(hang, &n, 20), -ETIMEDOUT);
}

TEST(a_probe_that_dies_is_told_from_one_that_answers)
{
	check_int(probe_run(die, NULL, PROBE_TIMEOUT_MS), -ECHILD);
}

TEST(a_probe_leaves_nothing)
{
	int n = 0, before = open_descriptors();

	check_int(probe_run(change_memory, &n, PROBE_TIMEOUT_MS), 0);
	check_int(n, 0);
	check_int(open_descriptors(), before);
	check_int(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
	check_int(errno, ECHILD);
}

TEST(the_path_of_the_cgroup_needs_room)
{
	char path[512], tiny[2];
	bool root;
	int rc = probe_cgroup(path, sizeof(path), &root);

	if (rc == -ENOENT)
		skip("no cgroup v2 tree");
	check_int(rc, 0);
	check(path[0] == '/');
	check_int(probe_cgroup(tiny, sizeof(tiny), &root), -ENAMETOOLONG);
}
