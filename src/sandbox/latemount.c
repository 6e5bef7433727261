/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of the mounts are made while paths are the host's, the namespace is joined, targets are looked up as the payload would.
 *
 * A process is known by its directory in /proc, which dies with it, and by what no other process but the sandbox's own has: in root mode its ids, rootless a mount
 * namespace that belongs to the keeper's user namespace. A pid that means another one by now is refused.
 *
 * Rootless a copy of a mount takes a user namespace with a mount namespace, and in that of a sandbox none can be made any more: a child makes the copies in one of its own and sends
 * them. To attach them the job needs no more than to be the user who made the sandbox's namespace, and stands above it.
 */
#include "sandbox/latemount.h"
#include "base/str.h"
#include "sys/fdpass.h"
#include "sys/file.h"
#include "sys/mount.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MOUNTS_MAX 8

struct late {
	int source[MOUNTS_MAX]; /* detached mounts */
	const char *target[MOUNTS_MAX];
	size_t n;
};

static void late_fini(struct late *l)
{
	while (l->n > 0)
		(void)close(l->source[--l->n]);
}

static int take_targets(struct late *l, const json_t *mounts, struct err *err)
{
	const json_t *mount;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)mounts, i, mount) {
		const char *target = json_string_value(json_object_get(mount, "target"));

		if (target == NULL || *target != '/' || i == MOUNTS_MAX)
			return err_raise(err, ERR_INVALID, "member 'mounts' is malformed");
		l->target[i] = target;
	}
	return 0;
}

/* --- sources --- */

static int take_source(struct late *l, const json_t *mount, struct err *err)
{
	const char *source = json_string_value(json_object_get(mount, "source"));
	int fd, rc;

	if (source == NULL)
		return err_raise(err, ERR_INVALID, "member 'mounts' is malformed");
	fd = mount_clone(AT_FDCWD, source, false);
	if (fd < 0)
		return err_raise_sys(err, fd, "mount '%s'", source);
	l->source[l->n++] = fd;
	rc = mount_set(fd, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, false);
	return rc < 0 ? err_raise_sys(err, rc, "mount '%s'", source) : 0;
}

static int take_sources(struct late *l, const json_t *mounts, struct err *err)
{
	const json_t *mount;
	size_t i;
	int rc = 0;

	json_array_foreach ((json_t *)(uintptr_t)mounts, i, mount) {
		if (rc == 0)
			rc = take_source(l, mount, err);
	}
	return rc;
}

static attr_noreturn void sender(int sock, const json_t *mounts)
{
	struct late l = { .n = 0 };
	struct err err = { 0 };

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		(void)err_raise_sys(&err, -errno, "make a namespace to copy mounts in");
	else
		(void)!take_sources(&l, mounts, &err);
	(void)!fdpass_send(sock, &err, sizeof(err), l.source, l.n);
	_exit(0);
}

static int receive_sources(struct late *l, int sock, size_t wanted, struct err *err)
{
	struct err answer;
	ssize_t n = fdpass_recv(sock, &answer, sizeof(answer), l->source, MOUNTS_MAX, &l->n);

	if (n != sizeof(answer))
		return err_raise(
			err, ERR_INTERNAL, "whoever copies the mounts ended without a word");
	if (answer.code != ERR_NONE) {
		*err = answer;
		return -EIO;
	}
	return l->n == wanted ? 0 : err_raise(err, ERR_INTERNAL, "not all mounts were copied");
}

static int take_sources_of_child(struct late *l, const json_t *mounts, struct err *err)
{
	cleanup_fd int ours = -1, theirs = -1;
	int pair[2], rc;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_raise_sys(err, -errno, "make a socket pair");
	ours = pair[0];
	theirs = pair[1];
	pid = fork();
	if (pid == 0)
		sender(theirs, mounts);
	if (pid < 0)
		return err_raise_sys(err, -errno, "fork");
	fd_close(&theirs);
	rc = receive_sources(l, ours, json_array_size(mounts), err);
	(void)waitpid(pid, NULL, 0);
	return rc;
}

/* --- the sandbox --- */

static int open_process(const json_t *request, const char *member, struct err *err)
{
	char path[32];
	uint64_t pid;
	int fd, rc = job_number(request, member, 0, &pid, err);

	if (rc < 0)
		return rc;
	(void)snprintf(path, sizeof(path), "/proc/%llu", (unsigned long long)pid);
	fd = pid == 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_raise(err, ERR_STATE, "the sandbox has ended") : fd;
}

/* Does process @dir have the ids of the sandbox? */
static bool is_of_sandbox(int dir, uint64_t uid_base)
{
	cleanup_buf struct buf map = BUF_INIT(4096);
	unsigned long inside, outside;
	char *at;

	if (file_read_at(dir, "uid_map", &map) < 0)
		return false;
	inside = strtoul(buf_cstr(&map), &at, 10);
	outside = strtoul(at, NULL, 10);
	return inside == 0 && outside != 0 && outside == uid_base;
}

static bool same_file(int a, int b)
{
	struct stat one, other;

	return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
	       one.st_ino == other.st_ino;
}

/* Become root of the user namespace that @mounts belongs to, which must be the keeper's. */
static int enter_owner(const json_t *request, int mounts, struct err *err)
{
	cleanup_fd int keeper = open_process(request, "keeper", err), of_keeper = -1, owner = -1;

	if (keeper < 0)
		return keeper;
	of_keeper = openat(keeper, "ns/user", O_RDONLY | O_CLOEXEC);
	owner = ioctl(mounts, NS_GET_USERNS);
	if (of_keeper < 0 || owner < 0 || !same_file(of_keeper, owner))
		return err_raise(err, ERR_STATE, "the sandbox has ended");
	return setns(owner, CLONE_NEWUSER) < 0
		       ? err_raise_sys(err, -errno, "join the user namespace of the sandbox")
		       : 0;
}

static int enter(const json_t *request, bool rootless, struct err *err)
{
	cleanup_fd int dir = open_process(request, "pid", err), mounts = -1;
	uint64_t base;
	int rc = dir < 0 ? dir : job_number(request, "uid_base", 0, &base, err);

	if (rc < 0)
		return rc;
	if (!rootless && !is_of_sandbox(dir, base))
		return err_raise(err, ERR_STATE, "the sandbox has ended");
	mounts = openat(dir, "ns/mnt", O_RDONLY | O_CLOEXEC);
	if (mounts < 0)
		return err_raise(err, ERR_STATE, "the sandbox has ended");
	rc = rootless ? enter_owner(request, mounts, err) : 0;
	if (rc == 0 && setns(mounts, CLONE_NEWNS) < 0)
		rc = err_raise_sys(err, -errno, "join the mounts of the sandbox");
	return rc;
}

static int lay(const struct late *l, json_t *laid, struct err *err)
{
	cleanup_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	for (size_t i = 0; i < l->n; i++) {
		cleanup_fd int at = raw_openat2(
			root, l->target[i], O_PATH, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
		int rc = at < 0 ? at : mount_attach(l->source[i], at);

		if (at == -ENOENT || at == -ENOTDIR)
			continue;
		if (rc < 0)
			return err_raise_sys(err, rc, "mount at '%s'", l->target[i]);
		(void)json_array_append_new(laid, json_string(l->target[i]));
	}
	return 0;
}

int latemount_verb(struct job *job, json_t **ok, struct err *err)
{
	cleanup(late_fini) struct late late = { .n = 0 };
	const json_t *mounts = json_object_get(job->request, "mounts");
	bool rootless = job_flag(job->request, "rootless", false);
	json_t *laid;
	int rc = take_targets(&late, mounts, err);

	if (rc == 0)
		rc = rootless ? take_sources_of_child(&late, mounts, err)
			      : take_sources(&late, mounts, err);
	if (rc == 0)
		rc = enter(job->request, rootless, err);
	if (rc < 0)
		return rc;
	laid = json_array();
	rc = lay(&late, laid, err);
	*ok = json_pack("{s:o}", "laid", laid);
	return rc;
}
