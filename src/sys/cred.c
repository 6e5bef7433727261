/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/cred.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define MEMBER_STACK 16384 /* bytes */

/* The highest number that this kernel knows. */
static unsigned int last_cap(void)
{
	static unsigned int last;

	if (last != 0)
		return last;
	for (last = CAP_LAST_CAP; prctl(PR_CAPBSET_READ, (unsigned long)last + 1, 0, 0, 0) >= 0;)
		last++;
	return last;
}

int cred_bound(uint64_t keep)
{
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return -errno;
	for (unsigned int cap = 0; cap <= last_cap(); cap++) {
		if ((keep & CAP_BIT(cap)) == 0 &&
			prctl(PR_CAPBSET_DROP, (unsigned long)cap, 0, 0, 0) < 0)
			return -errno;
	}
	return 0;
}

int cred_set_caps(uint64_t caps)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {
		{ .effective = (uint32_t)caps, .permitted = (uint32_t)caps },
		{ .effective = (uint32_t)(caps >> 32), .permitted = (uint32_t)(caps >> 32) },
	};

	return raw_result(syscall(SYS_capset, &header, data));
}

int cred_set_effective(uint64_t caps, uint64_t *before)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data) < 0)
		return -errno;
	if (before != NULL)
		*before = data[0].effective | (uint64_t)data[1].effective << 32;
	data[0].effective = (uint32_t)caps & data[0].permitted;
	data[1].effective = (uint32_t)(caps >> 32) & data[1].permitted;
	return raw_result(syscall(SYS_capset, &header, data));
}

int cred_map_user_ns(int proc_fd, pid_t pid, uint32_t inside, uint32_t outside, uint32_t count)
{
	char path[64], map[64];
	int rc;

	(void)snprintf(map, sizeof(map), "%u %u %u", inside, outside, count);
	(void)snprintf(path, sizeof(path), "%d/uid_map", pid);
	rc = file_write_at(proc_fd, path, map);
	if (rc < 0)
		return rc;
	(void)snprintf(path, sizeof(path), "%d/gid_map", pid);
	return file_write_at(proc_fd, path, map);
}

static int map_identity(int proc_fd, pid_t pid, const char *which)
{
	cleanup_buf struct buf ours = BUF_INIT(8192), theirs = BUF_INIT(8192);
	char path[64], *save = NULL;
	int rc;

	(void)snprintf(path, sizeof(path), "self/%s", which);
	rc = file_read_at(proc_fd, path, &ours);
	if (rc < 0)
		return rc;
	for (char *line = ours.n > 0 ? strtok_r(ours.p, "\n", &save) : NULL; line != NULL;
		line = strtok_r(NULL, "\n", &save)) {
		unsigned int inside, outside, count;

		if (sscanf(line, "%u %u %u", &inside, &outside, &count) != 3)
			return -EBADMSG;
		buf_fmt(&theirs, "%u %u %u\n", inside, inside, count);
	}
	if (buf_failed(&theirs))
		return -EMSGSIZE;
	(void)snprintf(path, sizeof(path), "%d/%s", pid, which);
	return file_write_at(proc_fd, path, buf_cstr(&theirs));
}

int cred_map_identity(int proc_fd, pid_t pid)
{
	int rc = map_identity(proc_fd, pid, "uid_map");

	return rc < 0 ? rc : map_identity(proc_fd, pid, "gid_map");
}

/* The only one in the namespace: it ends when whoever made it closes its end of the pipe, or ends. It is in the memory of its maker, errno included: it makes no call that can fail. */
static int be_member(void *arg)
{
	const int *ends = arg;
	char byte;

	(void)close(ends[1]);
	(void)!read(ends[0], &byte, 1);
	return 0;
}

int cred_make_userns(
	int proc_fd, int (*map)(int proc_fd, pid_t pid, const void *arg), const void *arg)
{
	_Alignas(16) char stack[MEMBER_STACK];
	char path[64];
	int ends[2], pid, rc;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid = raw_result(
		clone(be_member, stack + sizeof(stack), CLONE_NEWUSER | CLONE_VM | SIGCHLD, ends));
	rc = pid < 0 ? pid : map(proc_fd, pid, arg);
	if (rc == 0) {
		(void)snprintf(path, sizeof(path), "%d/ns/user", pid);
		rc = raw_result(openat(proc_fd, path, O_RDONLY | O_CLOEXEC));
	}
	(void)close(ends[0]);
	(void)close(ends[1]);
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
	return rc;
}

int cred_set_fsids(uid_t uid, gid_t gid)
{
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
		return -errno;
	(void)setfsgid(gid);
	(void)setfsuid(uid);
	/* these calls report nothing; asking again with an invalid id answers what is in force */
	if ((uid_t)setfsuid((uid_t)-1) != uid || (gid_t)setfsgid((gid_t)-1) != gid)
		return -EPERM;
	return 0;
}
