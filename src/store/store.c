/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store.h"
#include "base/str.h"
#include "store/tree.h"
#include "sys/btrfs.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <sys/random.h>
#include <sys/statvfs.h>

#define INSIDE (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

bool store_is_rootless(void)
{
	cleanup_buf struct buf map = BUF_INIT(256);
	unsigned long inside, outside, count;

	if (file_read_at(AT_FDCWD, "/proc/self/uid_map", &map) < 0)
		return true;
	if (sscanf(buf_cstr(&map), "%lu %lu %lu", &inside, &outside, &count) != 3)
		return true;
	return inside != 0 || outside != 0 || count != UINT32_MAX;
}

int store_open(struct store *store, const char *state, struct err *err)
{
	if (!str_path_clean(state))
		return err_raise(
			err, ERR_INVALID, "state '%s' is not a clean absolute path", state);
	store->rootless = store_is_rootless();
	if (str_copy(store->path, sizeof(store->path), state) < 0)
		return err_raise(err, ERR_INVALID, "state '%s' is too long", state);
	store->state = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->state < 0)
		return err_raise_sys(err, -errno, "open state directory '%s'", state);
	return 0;
}

int store_open_pool(struct store *store, struct err *err)
{
	store->pool = openat(store->state, "pool", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (store->pool < 0 || faccessat(store->pool, "layers", F_OK, 0) < 0)
		return err_hint(err,
			err_raise(err, ERR_HOST, "the pool '%s/pool' is not there", store->path),
			"run 'cay storage init', or start the server, which does it");
	store->btrfs = !store->rootless && btrfs_is(store->pool);
	return 0;
}

int store_lock(const struct store *store, bool alone, unsigned int wait_ms, struct err *err)
{
	int rc = file_lock(store->state, alone, wait_ms);

	if (rc == 0)
		return 0;
	if (rc != -ETIMEDOUT)
		return err_raise_sys(err, rc, "lock the state directory '%s'", store->path);
	return err_hint(err,
		err_raise(err, ERR_BUSY, "another job is still at work in the state directory '%s'",
			store->path),
		"it may belong to a server that was killed: 'cay-keeper job' in the process list, holder of the lock in /proc/locks");
}

bool store_is_broken(const struct store *store)
{
	struct statvfs fs;

	return store->pool >= 0 && fstatvfs(store->pool, &fs) == 0 && (fs.f_flag & ST_RDONLY) != 0;
}

void store_close(struct store *store)
{
	if (store == NULL)
		return;
	fd_close(&store->pool);
	fd_close(&store->state);
}

int store_dir(const struct store *store, const char *path)
{
	return raw_openat2(store->pool, path, O_RDONLY | O_DIRECTORY, 0, INSIDE);
}

/* What is there was signed with one: with another it would count as changed, all of it. */
static bool has_signed(const struct store *store)
{
	static const char *const places[] = { "layers", "sealing", "memory" };

	for (size_t i = 0; store->pool >= 0 && i < ARRAY_SIZE(places); i++) {
		cleanup_fd int dir = store_dir(store, places[i]);
		cleanup_names struct tree_names names = { 0 };

		if (dir >= 0 && (tree_names(dir, &names) < 0 || names.n > 0))
			return true;
	}
	return false;
}

static int make_key(const struct store *store)
{
	unsigned char key[32];
	cleanup_fd int fd = -1;
	int rc;

	if (getrandom(key, sizeof(key), 0) != sizeof(key))
		return -EIO;
	fd = openat(store->state, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	rc = file_write_all(fd, key, sizeof(key));
	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	if (rc == 0) {
		char self[40];

		(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
		/* a link never replaces: the first of two makers wins */
		if (linkat(AT_FDCWD, self, store->state, "key", AT_SYMLINK_FOLLOW) < 0 &&
			errno != EEXIST)
			rc = -errno;
	}
	if (rc == 0 && fsync(store->state) < 0)
		rc = -errno;
	return rc;
}

int store_key(const struct store *store, unsigned char key[32])
{
	cleanup_buf struct buf b = BUF_INIT(33);
	int rc = file_read_at(store->state, "key", &b);

	if (rc == -ENOENT) {
		rc = has_signed(store) ? -ENOKEY : make_key(store);
		if (rc == 0)
			rc = file_read_at(store->state, "key", &b);
	}
	if (rc < 0)
		return rc;
	if (b.n != 32)
		return -ENOKEY;
	memcpy(key, b.p, 32);
	return 0;
}

int store_key_failed(const struct store *store, int rc, struct err *err)
{
	if (rc != -ENOKEY)
		return err_raise_sys(err, rc, "read the key '%s/key'", store->path);
	(void)err_raise(err, ERR_HOST,
		"the key '%s/key' is gone or damaged, and nobody can say any more what of the pool was changed",
		store->path);
	return err_hint(err, rc,
		"put it back from a copy, then run 'cay storage init'; if it is lost, any 32 bytes (head -c 32 /dev/urandom) are a new one, with which every snapshot counts as changed");
}
