/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/loop.h"
#include "base/str.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>

#define DEVICE_XATTR "trusted.cay.loop"

/* Somebody else may take the free number between the two calls. */
#define ATTEMPTS 64

static int configure(int device, int file, const char *name, unsigned int flags)
{
	struct loop_config config = { .fd = (unsigned int)file, .info = { .lo_flags = flags } };

	if (str_copy((char *)config.info.lo_file_name, LOOP_NAME_SIZE, name) < 0)
		return -ENAMETOOLONG;
	return ioctl(device, LOOP_CONFIGURE, &config) < 0 ? -errno : 0;
}

static int attach(int file, const char *name, char path[LOOP_PATH_SIZE])
{
	cleanup_fd int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	if (control < 0)
		return -errno;
	for (int i = 0; i < ATTEMPTS; i++) {
		cleanup_fd int device = -1;
		int n = ioctl(control, LOOP_CTL_GET_FREE), rc;

		if (n < 0)
			return -errno;
		(void)snprintf(path, LOOP_PATH_SIZE, "/dev/loop%d", n);
		device = open(path, O_RDWR | O_CLOEXEC);
		if (device < 0)
			return -errno;
		rc = configure(device, file, name, LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO);
		if (rc == -EINVAL)
			rc = configure(device, file, name, LO_FLAGS_AUTOCLEAR);
		if (rc == 0)
			return TAKE_FD(device);
		if (rc != -EBUSY)
			return rc;
	}
	return -EBUSY;
}

static int open_named(const char *path, const char *name)
{
	cleanup_fd int device = open(path, O_RDWR | O_CLOEXEC);
	struct loop_info64 info;

	if (device < 0)
		return -errno;
	if (ioctl(device, LOOP_GET_STATUS64, &info) < 0 ||
		strncmp((const char *)info.lo_file_name, name, sizeof(info.lo_file_name)) != 0)
		return -ENODEV;
	return TAKE_FD(device);
}

int loop_attach_once(int file, const char *name, char path[LOOP_PATH_SIZE])
{
	ssize_t n = fgetxattr(file, DEVICE_XATTR, path, LOOP_PATH_SIZE - 1);
	cleanup_fd int device = -1;

	if (n > 0) {
		path[n] = '\0';
		device = open_named(path, name);
	}
	if (device < 0)
		device = attach(file, name, path);
	if (device >= 0 && fsetxattr(file, DEVICE_XATTR, path, strlen(path), 0) < 0)
		return -errno;
	return TAKE_FD(device);
}
