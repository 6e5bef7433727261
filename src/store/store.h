/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/store.h - the opened state directory of one instance, and where things lie in it (docs/design/0001, 0002).
 */
#ifndef CAY_STORE_STORE_H
#define CAY_STORE_STORE_H

#include "base/buf.h"
#include "base/err.h"
#include <fcntl.h>
#include <limits.h>

/** struct store - zero-initialise descriptors to -1 with STORE_INIT; release with store_close(). */
struct store {
	int state;           /* STATE */
	int pool;            /* STATE/pool; -1 when it was not asked for */
	bool rootless;       /* user.overlay.* attributes, ids of a user namespace */
	bool btrfs;          /* live directories and layers are subvolumes */
	char path[PATH_MAX]; /* absolute path of STATE */
};

#define STORE_INIT \
	{ \
		.state = -1, .pool = -1 \
	}
#define cleanup_store cleanup(store_close)

/** store_open() - open STATE. */
int store_open(struct store *store, const char *state, struct err *err) attr_must_use;

/** store_open_pool() - open its mounted pool; %ERR_HOST when there is none. After store_lock(): the pool may be mounted while one waits. */
int store_open_pool(struct store *store, struct err *err) attr_must_use;

/** STORE_WAIT_MS - how long a job waits for those of a server that is gone; they end with their peer, so more means that one is stuck. */
#define STORE_WAIT_MS 30000

/**
 * store_lock() - hold the state directory until store_close() or the end of this process.
 * @alone: no other job may be at work on it (storage, recovery); else together with others (whatever makes or removes something).
 * @wait_ms: %ERR_BUSY after so long.
 */
int store_lock(
	const struct store *store, bool alone, unsigned int wait_ms, struct err *err) attr_must_use;

/** store_close() - release; NULL is fine. */
void store_close(struct store *store);

/** store_is_broken() - did the opened pool become read-only by itself, after an error of what lies below it? */
bool store_is_broken(const struct store *store);

/** store_is_rootless() - does this process live in a user namespace other than the initial one? */
bool store_is_rootless(void);

/** store_overlay_xattr() - "trusted.overlay." or "user.overlay.". */
static inline const char *store_overlay_xattr(const struct store *store)
{
	return store->rootless ? "user.overlay." : "trusted.overlay.";
}

/** store_dir() - open directory @path (relative, no symbolic links) below the pool for listing and as a base. Descriptor or -errno. */
int store_dir(const struct store *store, const char *path) attr_must_use;

/**
 * store_discard() - remove @where/@name of the pool; a directory goes from there at once, by a rename to trash/, and is deleted then. Return: 1 when it was there, 0 when it was not, -errno.
 * Context: a job, not two with one name.
 */
int store_discard(const struct store *store, const char *where, const char *name) attr_must_use;

/** store_key() - the instance's 32-byte key; made when there is none yet. 0 or -errno; -ENOKEY: it is damaged, or gone and the pool holds what was signed with it. */
int store_key(const struct store *store, unsigned char key[32]) attr_must_use;

/** store_key_failed() - say so of what store_key() returned. Return: @rc. */
int store_key_failed(const struct store *store, int rc, struct err *err);

#endif
