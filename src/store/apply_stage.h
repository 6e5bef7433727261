/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/apply_stage.h - the new files of an apply, in staging directories beside their places. */
#ifndef CAY_STORE_APPLY_STAGE_H
#define CAY_STORE_APPLY_STAGE_H

#include "base/err.h"
#include "store/stack.h"
#include <jansson.h>

/** struct apply_caller - who may write there, and whose the new files are. */
struct apply_caller {
	uid_t uid;
	gid_t gid;
	const json_t *groups; /* that he has beside it; NULL = none. Borrowed */
};

/** apply_group() - the group of what @who brings into directory @dir, in the place of @was (NULL: of nothing), in root mode. */
gid_t apply_group(const struct apply_caller *who, const struct stat *dir, const struct stat *was);

/** struct apply_stage - the steps of one directory of the host; all borrowed. */
struct apply_stage {
	const struct stack *a; /* what the sandbox has */
	json_t *steps; /* of all directories: each that brings something gets "new", its inode */
	size_t tree;   /* those of this one */
	const char *target;
	struct apply_caller who;
	bool rootless;
};

/** apply_nearest() - the directory on the host that @path of directory @target will lie in; where that is new, too, the one that it will lie in. Return: a descriptor or -errno. */
int apply_nearest(int target, const char *path) attr_must_use;

/** apply_closes() - must a directory with @mode, of whose content the caller @who puts something in, takes something out, or which he moves itself, be opened for that, and closed behind it? Only capabilities go by its owner's rights. */
static inline bool apply_closes(const struct apply_caller *who, mode_t mode)
{
	return who->uid != 0 && (mode & S_IRWXU) != S_IRWXU;
}

/**
 * apply_stage() - make what the steps bring, in the staging directory of the apply @id in @p->target, and write it to the disk. Directories are open to their owner (apply_closes()).
 * Return: 0, or negative with @err set; what was made stays: the caller removes it. Context: as root, who reads what only root can.
 */
int apply_stage(const struct apply_stage *p, const char *id, struct err *err) attr_must_use;

#endif
