/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/reserve.c - room in the state directory that nobody else can take when the disk is full.
 *
 * Two parts. The catalogue's log has blocks of its own beyond its end: a command in a sandbox is a few transactions, and it is the `rm` of a program inside that makes room most of the time. And
 * a file of nothing is given up by what makes room with our own commands (stop, remove, prune), because even forgetting a sandbox is a transaction, and the log may be used up by then. What
 * takes room (a new sandbox, a fork, a snapshot) is refused on a full disk, so that neither goes for it.
 */
#include "api/server.h"
#include "base/str.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define RESERVE_BYTES (4 << 20)
#define LOG_BYTES \
	(8 << 20) /* a hundred and more commands, also where nothing of the log can go into the file */
#define LITTLE_BYTES (2U << 20)  /* less is no room */
#define ROOM_BYTES   (64U << 20) /* with less nothing is set aside */

static int open_own(const struct server *srv, const char *name, int flags)
{
	cleanup_free char *path = str_dupf("%s/%s", srv->own_state, name);

	return open(path, flags | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static uint64_t room(const struct server *srv)
{
	struct statvfs fs;

	return fstatvfs(srv->state_fd, &fs) < 0 ? 0 : (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* A file system that cannot set room aside has none to give up either. */
static bool set_aside(int fd, int mode, off_t bytes)
{
	return fallocate(fd, mode, 0, bytes) == 0 || errno == EOPNOTSUPP;
}

static bool fill_reserve(const struct server *srv)
{
	cleanup_fd int fd = open_own(srv, "reserve", O_CREAT);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 &&
	       (st.st_size >= RESERVE_BYTES || set_aside(fd, 0, RESERVE_BYTES));
}

/* SQLite writes the log over from its beginning and never cuts it off (catalogue.c); its locks are those of other files, so that it may be opened beside it. */
static bool fill_log(const struct server *srv)
{
	cleanup_fd int fd = open_own(srv, "cay.db-wal", 0);

	return fd >= 0 && set_aside(fd, FALLOC_FL_KEEP_SIZE, LOG_BYTES);
}

void reserve_fill(struct server *srv)
{
	if (srv->reserve_missing && room(srv) >= ROOM_BYTES && fill_log(srv) && fill_reserve(srv))
		srv->reserve_missing = false;
}

void reserve_use(struct server *srv)
{
	cleanup_fd int fd = room(srv) < LITTLE_BYTES ? open_own(srv, "reserve", O_CREAT) : -1;

	/* what was freed can be used when the file system has written that down */
	if (fd >= 0 && ftruncate(fd, 0) == 0 && fsync(fd) == 0)
		srv->reserve_missing = true;
}

/* Its jobs say so, and what helps. */
static bool pool_is_broken(const struct server *srv)
{
	cleanup_free char *path = str_dupf("%s/pool", srv->own_state);
	struct statvfs fs;

	return statvfs(path, &fs) == 0 && (fs.f_flag & ST_RDONLY) != 0;
}

int reserve_check(const struct server *srv, struct err *err)
{
	if (room(srv) >= LITTLE_BYTES || pool_is_broken(srv))
		return 0;
	return err_hint(err,
		err_raise(err, ERR_DISK_FULL, "the disk of the state directory '%s' is full",
			srv->state),
		"make room there: remove files in a sandbox (cay exec), cay rm, cay prune, or remove other files on it");
}
