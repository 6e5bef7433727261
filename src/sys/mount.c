/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/mount.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>

static int fs_option(int fs, const char *option)
{
	const char *eq = strchr(option, '=');
	char key[64];
	size_t n;

	if (eq == NULL)
		return raw_result(fsconfig(fs, FSCONFIG_SET_FLAG, option, NULL, 0));
	n = (size_t)(eq - option);
	if (n >= sizeof(key))
		return -EINVAL;
	memcpy(key, option, n);
	key[n] = '\0';
	return raw_result(fsconfig(fs, FSCONFIG_SET_STRING, key, eq + 1, 0));
}

int mount_fs_new(const char *type, const char *const *options, unsigned int attrs)
{
	cleanup_fd int fs = fsopen(type, FSOPEN_CLOEXEC);

	if (fs < 0)
		return -errno;
	for (; *options != NULL; options++) {
		int rc = fs_option(fs, *options);

		if (rc < 0)
			return rc;
	}
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	return raw_result(fsmount(fs, FSMOUNT_CLOEXEC, attrs));
}

int mount_clone(int dirfd, const char *path, bool recursive)
{
	unsigned int flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;

	if (recursive)
		flags |= AT_RECURSIVE;
	return raw_result(open_tree(dirfd, path, flags));
}

int mount_clone_fd(int fd, bool recursive)
{
	unsigned int flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH;

	if (recursive)
		flags |= AT_RECURSIVE;
	return raw_result(open_tree(fd, "", flags));
}

int mount_attach(int mount, int target_fd)
{
	return raw_result(move_mount(
		mount, "", target_fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
}

int mount_attach_at(int mount, int dirfd, const char *path)
{
	return raw_result(move_mount(mount, "", dirfd, path, MOVE_MOUNT_F_EMPTY_PATH));
}

int mount_move_at(int from_dir, const char *from, int to_dir, const char *to)
{
	return raw_result(move_mount(from_dir, from, to_dir, to, 0));
}

int mount_set(int mount, uint64_t set, bool recursive)
{
	struct mount_attr attr = { .attr_set = set };

	return raw_result(mount_setattr(
		mount, "", AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0), &attr, sizeof(attr)));
}

int mount_clear(int mount, uint64_t clear)
{
	struct mount_attr attr = { .attr_clr = clear };

	return raw_result(mount_setattr(mount, "", AT_EMPTY_PATH, &attr, sizeof(attr)));
}

int mount_set_idmap(int mount, int userns_fd)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP,
		.userns_fd = (unsigned int)userns_fd };

	return raw_result(mount_setattr(mount, "", AT_EMPTY_PATH, &attr, sizeof(attr)));
}

/* Any reconfiguration begins with that. */
int mount_forget(int mount)
{
	cleanup_fd int fs = fspick(mount, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);

	if (fs < 0)
		return -errno;
	return raw_result(fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0));
}

int mount_watch(void)
{
	return raw_result(open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
}

bool mount_changed(int watch)
{
	struct pollfd p = { .fd = watch, .events = POLLPRI };

	return poll(&p, 1, 0) == 1 && (p.revents & (POLLPRI | POLLERR)) != 0;
}

int mount_propagation(uint64_t propagation)
{
	struct mount_attr attr = { .propagation = propagation };

	return raw_result(mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &attr, sizeof(attr)));
}
