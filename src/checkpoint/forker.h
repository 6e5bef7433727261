/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/forker.h - a fork's keeper towards the template: send what the new sandbox is made of, get its processes.
 *
 * The returned socket leads to T', the parent of the new roots, for the rest of the sandbox's life: it reports ends and waits for leave to reap. T' ends with it.
 */
#ifndef CAY_CHECKPOINT_FORKER_H
#define CAY_CHECKPOINT_FORKER_H

#include "base/err.h"
#include "checkpoint/template_wire.h"
#include <linux/filter.h>

/**
 * struct fork_listening - who answers the calls that are told (@told of struct fork_place) while the fork is waited for: its threads install filters, of which that tells. @hear is
 * called when something waits at *@listener, and may close it; @complete once, when all that is restored has been made, before any of it is let go; @going once, before the first of
 * the programs runs, and before any call of theirs is heard.
 */
struct fork_listening {
	void (*hear)(void *ctx, int *listener);
	void (*complete)(void *ctx);
	void (*going)(void *ctx);
	void *ctx;
};

/** struct fork_place - the new sandbox; descriptors are borrowed, -1 = there is none. */
struct fork_place {
	const char *template_path;
	int init_pidfd, pids, cgroups, u1, u2, timens, keeper_cgroup, loader_cgroup;
	int starter; /* socket of the starter of what is started later */
	const int *tasks, *leaves, *slots;
	size_t n_tasks, n_leaves, n_slots;
	const struct sock_filter *filter,
		*told; /* of each process; below it, once for all: filter_told() */
	size_t n_filter, n_told;
	int told_error;
	bool listen;
	bool learns; /* @told tells of filters that programs install, and these count while they are: nobody is here who could suspend them */
	bool landlock, single_id;
	bool hold; /* they wait for forker_go() */
	bool wipe; /* what fork(2) would wipe (MADV_WIPEONFORK) is empty */
	struct fork_listening listening;
};

/** struct fork_root - a process whose parent is outside. */
struct fork_root {
	int32_t host, inside;
};

/** struct forked - what has come of it. */
struct forked {
	struct fork_root roots[TEMPLATE_SLOTS_MAX];
	size_t n_roots;
	int parent;   /* pidfd of T', the caller's */
	int32_t pid;  /* of T' */
	int listener; /* of @told, the caller's; -1 = nobody may listen */
};

/**
 * forker_fork() - fork the template into @place; its processes run when this returns, or, to be held, are complete and wait for forker_go().
 * Return: the socket to T', owned by the caller, or an error; then some may have run, unless they were to be held, and @ret holds no descriptor.
 */
int forker_fork(const struct fork_place *place, struct forked *ret, struct err *err) attr_must_use;

/**
 * forker_go() - let the processes behind @sock run. @parent: from forker_fork(), borrowed; @listener: the same, the keeper's. @ret_loading: whether some of their memory is still to come, of which forker_hear() will tell.
 * Return: 0 when all of them run, or an error; then some may.
 */
int forker_go(int sock, int parent, const struct fork_listening *listening, int *listener,
	bool *ret_loading, struct err *err) attr_must_use;

/** forker_hear() - receive what T' says of those that run: %TEMPLATE_ENDED of a root, %TEMPLATE_TOUCHED, once %TEMPLATE_LOADED or %TEMPLATE_LOST. Return: 1, 0 when T' is gone, -errno. */
int forker_hear(int sock, struct template_message *ret) attr_must_use;

/** forker_reap() - the end of @pid was taken note of. */
void forker_reap(int sock, int32_t pid);

#endif
