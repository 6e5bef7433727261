/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/reserve.c - a file of nothing in the state directory: when the disk is full it is given up, so that what makes room (stop, remove, prune) can be written
 * down. Without it a full disk could not be cleared with our own commands, because even forgetting a sandbox is a transaction.
 */
#include "api/server.h"
#include "base/str.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define RESERVE_BYTES (4 << 20)
#define LITTLE_BYTES  (2U << 20)  /* less is no room */
#define ROOM_BYTES    (64U << 20) /* with less nothing is set aside */

static int open_reserve(const struct server *srv)
{
	cleanup_free char *path = str_dupf("%s/reserve", srv->own_state);

	return open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static uint64_t room(const struct server *srv)
{
	struct statvfs fs;

	return statvfs(srv->own_state, &fs) < 0 ? 0 : (uint64_t)fs.f_bavail * fs.f_frsize;
}

void reserve_fill(struct server *srv)
{
	cleanup_fd int fd = -1;
	struct stat st;

	if (!srv->reserve_missing || room(srv) < ROOM_BYTES)
		return;
	fd = open_reserve(srv);
	if (fd < 0 || fstat(fd, &st) < 0)
		return;
	/* a file system that cannot set room aside has none to give up either */
	if (st.st_size < RESERVE_BYTES && fallocate(fd, 0, 0, RESERVE_BYTES) < 0 &&
		errno != EOPNOTSUPP)
		return;
	srv->reserve_missing = false;
}

void reserve_use(struct server *srv)
{
	cleanup_fd int fd = room(srv) < LITTLE_BYTES ? open_reserve(srv) : -1;

	/* what was freed can be used when the file system has written that down */
	if (fd >= 0 && ftruncate(fd, 0) == 0 && fsync(fd) == 0)
		srv->reserve_missing = true;
}
