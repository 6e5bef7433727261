/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/probe.h"
#include "base/str.h"
#include "sys/cgroup.h"
#include "sys/file.h"
#include "sys/mountinfo.h"
#include "sys/raw.h"

#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static void attr_noreturn run_child(int (*fn)(void *arg), void *arg, int out, pid_t parent)
{
	int rc = prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ? -errno : 0;

	if (rc == 0 && getppid() != parent)
		rc = -EOWNERDEAD;
	if (rc == 0)
		rc = fn(arg);
	(void)!write(out, &rc, sizeof(rc));
	_exit(0);
}

int probe_run(int (*fn)(void *arg), void *arg, int timeout_ms)
{
	cleanup_fd int in = -1, out = -1;
	pid_t child, self = getpid();
	struct pollfd p;
	int rc, ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	in = ends[0];
	out = ends[1];
	child = fork();
	if (child < 0)
		return -errno;
	if (child == 0)
		run_child(fn, arg, out, self);
	fd_close(&out);
	p = (struct pollfd){ .fd = in, .events = POLLIN };
	rc = poll(&p, 1, timeout_ms);
	if (rc > 0 && read(in, &rc, sizeof(rc)) != sizeof(rc))
		rc = -ECHILD;
	else if (p.revents == 0)
		rc = rc < 0 ? -errno : -ETIMEDOUT;
	(void)kill(child, SIGKILL); /* ours and not yet reaped, so the number still names it */
	(void)waitpid(child, NULL, 0);
	return rc;
}

/* A capability that is shown but not honoured (AppArmor) fails only when it is used. */
static int use_capability(void)
{
	if (unshare(CLONE_NEWUTS) < 0)
		return -errno;
	return sethostname("probe", 5) < 0 ? -errno : 0;
}

int probe_enter_userns(int flags)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int rc = raw_result(unshare(CLONE_NEWUSER | flags));

	if (rc == 0)
		rc = file_write_at(AT_FDCWD, "/proc/self/setgroups", "deny");
	if (rc == 0)
		rc = file_write_fmt_at(AT_FDCWD, "/proc/self/uid_map", "0 %u 1", uid);
	if (rc == 0)
		rc = file_write_fmt_at(AT_FDCWD, "/proc/self/gid_map", "0 %u 1", gid);
	return rc == 0 ? use_capability() : rc;
}

struct cgroup2 {
	char point[256];
};

static int find_cgroup2(void *ctx, const struct mountinfo *m)
{
	struct cgroup2 *found = ctx;

	return str_eq(m->type, "cgroup2") &&
	       str_copy(found->point, sizeof(found->point), m->point) == 0;
}

int probe_cgroup(char *path, size_t size, bool *ret_is_root)
{
	cleanup_buf struct buf own = BUF_INIT(1 << 16);
	struct cgroup2 mounted = { "" };
	char *rest;

	if (mountinfo_each("/proc/self/mountinfo", find_cgroup2, &mounted) < 0 ||
		file_read_at(AT_FDCWD, "/proc/self/cgroup", &own) < 0 || own.n == 0)
		return -ENOENT;
	rest = cgroup_v2_path(own.p);
	if (mounted.point[0] == '\0' || rest == NULL)
		return -ENOENT;
	if (str_ends(rest, "/server"))
		rest[strlen(rest) - strlen("/server")] = '\0';
	*ret_is_root = geteuid() == 0 || rest[0] == '\0' || str_eq(rest, "/");
	return (size_t)snprintf(path, size, "%s%s", mounted.point, *ret_is_root ? "" : rest) >= size
		       ? -ENAMETOOLONG
		       : 0;
}
