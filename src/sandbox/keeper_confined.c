/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper_confined.c - Landlock domains that programs enter. Nothing shows one afterwards, and a fork would not have it; so the kernel tells of each call (filter_told()), and
 * all in the control group of that command who have given up privileges may be in it.
 */
#include "base/str.h"
#include "sandbox/keeper.h"
#include "sys/file.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>

#define TEXT_MAX 65536

static bool leaf_of(uint32_t pid, char ret[DUMP_LEAF_SIZE])
{
	cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);
	const char *group, *leaf;
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%u/cgroup", pid);
	if (file_read_at(AT_FDCWD, path, &text) < 0 || text.n == 0)
		return false;
	group = cgroup_v2_path(text.p);
	leaf = group != NULL ? strrchr(group, '/') : NULL;
	return leaf != NULL && str_copy(ret, DUMP_LEAF_SIZE, leaf + 1) == 0;
}

bool keeper_confined(const struct keeper *k, const char *leaf)
{
	const struct keeper_confined *c = &k->confined;

	for (size_t i = 0; i < c->n; i++) {
		if (str_eq(c->leaves[i], leaf))
			return true;
	}
	return c->forgot;
}

static void forget(struct keeper_confined *c, size_t at)
{
	if (at != --c->n)
		memcpy(c->leaves[at], c->leaves[c->n], DUMP_LEAF_SIZE);
}

void keeper_unconfined(struct keeper *k, const char *leaf)
{
	struct keeper_confined *c = &k->confined;

	for (size_t i = c->n; i-- > 0;) {
		if (str_eq(c->leaves[i], leaf))
			forget(c, i);
	}
}

/* Groups stay as long as their command is remembered; who was in them may have ended long before. */
static void forget_empty(struct keeper *k)
{
	struct keeper_confined *c = &k->confined;

	for (size_t i = c->n; i-- > 0;) {
		if (!cgroup_leaf_populated(&k->box.cgroup, c->leaves[i]))
			forget(c, i);
	}
}

void keeper_note_confined(struct keeper *k, int listener, const struct seccomp_notif *notice)
{
	struct keeper_confined *c = &k->confined;
	char leaf[DUMP_LEAF_SIZE];
	bool found = leaf_of(notice->pid, leaf);

	/* was it still that one? Who is gone enters none */
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &notice->id) < 0)
		return;
	if (found && keeper_confined(k, leaf))
		return;
	if (c->n == ARRAY_SIZE(c->leaves))
		forget_empty(k);
	if (!found || c->n == ARRAY_SIZE(c->leaves))
		c->forgot = true;
	else
		(void)!str_copy(c->leaves[c->n++], DUMP_LEAF_SIZE, leaf);
}
