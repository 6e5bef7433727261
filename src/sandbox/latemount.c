/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of the mounts are made while paths are the host's, the namespace is joined, targets are looked up as the payload would. A process is known by its
 * directory in /proc, which dies with it, and by its ids, which no other process but the sandbox's own has: a pid that means another one by now is refused.
 */
#include "sandbox/latemount.h"
#include "base/str.h"
#include "sys/file.h"
#include "sys/mount.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>

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

static int take_source(struct late *l, const json_t *mount, struct err *err)
{
	const char *source = json_string_value(json_object_get(mount, "source"));
	const char *target = json_string_value(json_object_get(mount, "target"));
	int fd, rc;

	if (source == NULL || target == NULL || *target != '/' || l->n == MOUNTS_MAX)
		return err_raise(err, ERR_INVALID, "member 'mounts' is malformed");
	fd = mount_clone(AT_FDCWD, source, false);
	if (fd < 0)
		return err_raise_sys(err, fd, "mount '%s'", source);
	l->source[l->n] = fd;
	l->target[l->n++] = target;
	rc = mount_set(fd, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, false);
	return rc < 0 ? err_raise_sys(err, rc, "mount '%s'", source) : 0;
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

static int enter(const json_t *request, struct err *err)
{
	cleanup_fd int dir = -1, namespace = -1;
	uint64_t pid, base;
	char path[32];
	int rc = job_number(request, "pid", 0, &pid, err);

	if (rc == 0)
		rc = job_number(request, "uid_base", 0, &base, err);
	if (rc < 0)
		return rc;
	(void)snprintf(path, sizeof(path), "/proc/%llu", (unsigned long long)pid);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (pid == 0 || dir < 0 || !is_of_sandbox(dir, base))
		return err_raise(err, ERR_STATE, "the sandbox has ended");
	namespace = openat(dir, "ns/mnt", O_RDONLY | O_CLOEXEC);
	if (namespace < 0 || setns(namespace, CLONE_NEWNS) < 0)
		return err_raise_sys(err, -errno, "join the mounts of the sandbox");
	return 0;
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
	json_t *laid = json_array(), *mount;
	size_t i;
	int rc = 0;

	json_array_foreach (json_object_get(job->request, "mounts"), i, mount) {
		if (rc == 0)
			rc = take_source(&late, mount, err);
	}
	if (rc == 0)
		rc = enter(job->request, err);
	if (rc == 0)
		rc = lay(&late, laid, err);
	if (rc < 0) {
		json_decref(laid);
		return rc;
	}
	*ok = json_pack("{s:o}", "laid", laid);
	return 0;
}
