/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/plan.h - from "who is whose child, in which session and group" to the order in which processes can be cloned so. Pure.
 *
 * Rules of the kernel that make it a puzzle: a session is made by its leader before its members are cloned; a process whose parent died is a child of PID 1
 * only if some parent of it dies, and of a subreaper (PR_SET_CHILD_SUBREAPER) only if that happens when that one is; a group must have its leader while others
 * join. So there are helpers: processes that end when their part is played, those whose children go to PID 1 first.
 */
#ifndef CAY_CHECKPOINT_PLAN_H
#define CAY_CHECKPOINT_PLAN_H

#include "base/err.h"
#include "checkpoint/image.h"

/** struct plan_input - a process as it is in the source; all numbers as seen inside. */
struct plan_input {
	int32_t pid;
	int32_t parent; /* 0 = outside, 1 = init */
	int32_t session, group;
	uint32_t leaf;
	bool zombie;
	int32_t status;
	uint32_t image;
	uint32_t terminal; /* these three as in struct plan_process */
	int32_t foreground;
	bool no_terminal;
	bool stopped;
	bool alone;      /* PLAN_ALONE */
	uint32_t signal; /* as at PLAN_SIGNAL */
	int32_t base;    /* as in struct plan_process */
	uint64_t stash_start, stash_end;
};

/**
 * plan_order() - order @n processes, with the helpers that they need.
 * @taken: sorted list of all @n_taken pids and tids in use; helpers get others. @ret: on success array of @ret_n, free().
 * @ret_free: two further pids that nothing uses.
 *
 * What comes out has been played on paper (plan_rehearsal.h): everybody gets to where it was.
 *
 * Return: 0, or %ERR_UNSUPPORTED naming the process whose place cannot be rebuilt.
 */
int plan_order(const struct plan_input *in, uint32_t n, const int32_t *taken, size_t n_taken,
	struct plan_process **ret, uint32_t *ret_n, int32_t ret_free[2],
	struct err *err) attr_must_use;

#endif
