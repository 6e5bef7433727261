/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/foresight.h - what is made with the root before anybody asks for it. Only for sandboxes that have never run.
 *
 * A cow mount, because the last ones were of the same directory: it is put onto the root with the root itself, so whoever asks for it has it. It holds only while the directory is the
 * one that it was, with the same owner and mode: else, and where another mount or none is asked for, it is undone, and the root is made anew without it.
 * Or a point, on which a file will be mounted, the only mount of all: then nobody need forget that there was nothing. Where that is not what is asked for, the same.
 */
#ifndef CAY_SANDBOX_FORESIGHT_H
#define CAY_SANDBOX_FORESIGHT_H

#include "sandbox/rootfs.h"

#include <sys/stat.h>

/** struct foresight_place - which directory it is, and what its tree took over from it. */
struct foresight_place {
	uint64_t mount, inode;
	uint32_t major, minor;
	uint32_t uid, gid;
	uint32_t mode;
};

/** struct foresight - zero: nothing is foreseen. */
struct foresight {
	char *source, *target; /* NULL: nothing */
	struct foresight_place place;
	char staged[64];     /* where its directory is attached among the layers */
	struct timespec top; /* when the top of its tree last changed: it was made then */
	bool settled;        /* what changes it in the sandbox is stamped later */
	char *point;         /* NULL: none */
	bool wrong;          /* foresight_judge() said so */
};

/**
 * foresight_make() - make the first mount of @expect, its mount point and its tree; nothing unless it is a cow mount without layers.
 * @live: path of the live directory, @live_fd: the same. Nobody has looked into the root yet: it is mounted afterwards.
 * @ret_mount: detached mount, owned by the caller; -1 when nothing was made.
 * Return: 0, also when it could not be made and nothing is left of it; an error when something is.
 */
int foresight_make(struct foresight *f, struct rootfs *r, const struct spec *expect,
	const char *live, int live_fd, int *ret_mount, struct err *err) attr_must_use;

/** foresight_point() - make the point @target for the root of @expect, of which there is none yet. Return: 0 or an error. */
int foresight_point(struct foresight *f, const struct rootfs *r, const struct spec *expect,
	const char *target, const char *live, struct err *err) attr_must_use;

/** foresight_any() - is there anything that foresight_undo() would take away? */
bool foresight_any(const struct foresight *f);

/** foresight_judge() - is what was foreseen what @spec asks for first, and still so? Once: the answer stays. */
void foresight_judge(struct foresight *f, const struct spec *spec);

/**
 * foresight_untouched() - has nothing been changed in the mount since foresight_judge(), in the running sandbox with the live directory @live?
 * Its tree was empty, so whatever changes below its top makes an entry in it first, and that, as what changes the top itself, is seen in its ctime.
 * Return: true only where nothing has; false also when this cannot be told.
 */
bool foresight_untouched(const struct foresight *f, const char *live);

/** foresight_undo() - take away all that foresight_make() or foresight_point() left in the live directory @live and among the layers; the root that it is on is left next. Return: 0 or an error. */
int foresight_undo(struct foresight *f, const char *live, struct err *err) attr_must_use;

#endif
