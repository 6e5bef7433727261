/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/mask_plan.h - what the mask layer holds: found by looking at the host now, with the rules of defs/host-image.def. Between mask_plan.c and mask.c. */
#ifndef CAY_STORE_MASK_PLAN_H
#define CAY_STORE_MASK_PLAN_H

#include "store/job.h"
#include "store/tree.h"

/* How paths of the host are opened. */
#define MASK_ON_HOST (RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

/* TAKE: a copy of a file or link that is not read before the layer is built. APART: a directory that rootfs_parts.c takes apart. */
enum mask_action { MASK_EMPTY, MASK_HIDE, MASK_DIR, MASK_COPY, MASK_TAKE, MASK_APART };

struct mask_step {
	enum mask_action action;
	char *path;
	struct buf text; /* of a copy */
};

/** struct mask - the plan, and what is built by it. */
struct mask {
	const struct store *store;
	int host; /* "/" */
	int out;  /* the layer under construction */
	struct mask_step *steps;
	size_t n, cap;
	uint64_t scanned;
	struct tree_names made; /* directories of the layer, in the order of making */
};

/** mask_plan() - fill @m->steps, in the order of building. @m: store and host are set. @request: of the job. Return: 0 or -errno with @err set. */
int mask_plan(struct mask *m, const json_t *request, struct err *err) attr_must_use;

/** mask_plan_free() - free the steps. */
void mask_plan_free(struct mask *m);

/** mask_host_stat() - what is at @path on the host, links not followed. Return: false when nothing is. */
bool mask_host_stat(const struct mask *m, const char *path, struct stat *st);

#endif
