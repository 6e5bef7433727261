/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sys/cgroup.h - the control groups of one sandbox.
 *
 * Below <v2 mount>/…/<sandbox>/ lie `keeper` (our processes), `gateway`, and `box` with one leaf per exec (`init`, `x-N`): freezing and killing
 * work on v2 with or without controllers. Limits are v2 files of `box` where controllers are delegated; on hybrid hosts they are v1 directories
 * <v1 mount>/cay-TAG/<sandbox> that the starter joined ahead of time and every process of the sandbox inherits, and of `cpu` alone <sandbox>.gateway.
 * Paths, not descriptors, are kept.
 */
#ifndef CAY_SYS_CGROUP_H
#define CAY_SYS_CGROUP_H

#include "base/attr.h"
#include <sys/types.h>

#define CGROUP_PATH_SIZE 400

enum cgroup_v1 { CGROUP_V1_MEMORY, CGROUP_V1_PIDS, CGROUP_V1_CPU, CGROUP_V1_COUNT };

/** struct cgroup - where the groups of one sandbox are; empty strings where there are none. */
struct cgroup {
	char box[CGROUP_PATH_SIZE]; /* v2 directory of the payload; "" = no v2 tree that we may write */
	bool controllers;           /* memory, pids and cpu work in @box */
	char v1[CGROUP_V1_COUNT][CGROUP_PATH_SIZE]; /* v1 directories; "" = not used */
	uint32_t level; /* of the programs' v2 groups, below the root that we see; 0 = unknown */
};

/** struct cgroup_limits - 0 means no limit. */
struct cgroup_limits {
	uint64_t memory_bytes;
	uint64_t pids;
	uint64_t cpu_millis; /* thousandths of a CPU */
};

/** struct cgroup_usage - counters since the sandbox began; UINT64_MAX where unknown. */
struct cgroup_usage {
	uint64_t cpu_us;
	uint64_t memory_bytes;
	uint64_t memory_peak_bytes;
	uint64_t pids;
	uint64_t oom_kills;
	uint64_t pids_refused; /* forks refused by the pids limit; see cgroup_leaf_refused() */
};

/** cgroup_v2_path() - path in the v2 hierarchy in @text, that of a /proc/PID/cgroup, which ends behind it from now on. Return: into @text; NULL when it has none. */
char *cgroup_v2_path(char *text);

/** cgroup_look_ahead() - find out where the hierarchies are mounted, once for this process and all that are cloned from it. */
void cgroup_look_ahead(void);

/**
 * cgroup_prepare() - find this process's v2 group (…/<sandbox>/keeper, made by cay-spawn), make `box`, and the v1 groups in root mode.
 * @tag: instance tag; @id: sandbox id; @use_v1: also make v1 groups where v2 has no controllers.
 *
 * Finding no writable tree is not an error: the fields stay empty. Return: 0 or -errno.
 */
int cgroup_prepare(struct cgroup *cg, const char *tag, const char *id, bool use_v1) attr_must_use;

/** cgroup_v1_join() - move the calling thread, which must be the only one of its process, into all v1 groups. Return: 0 or -errno. */
int cgroup_v1_join(const struct cgroup *cg) attr_must_use;

/** cgroup_v1_tasks() - open the `tasks` files that cgroup_v1_join() writes to; @fds: room for %CGROUP_V1_COUNT, owned by the caller. Return: how many, -errno. */
int cgroup_v1_tasks(const struct cgroup *cg, int fds[CGROUP_V1_COUNT]) attr_must_use;

/**
 * cgroup_loader_open() - descriptor of a v2 group, beside that of the programs and of our own processes, for who brings the memory of programs that run already (prog/cay-template/loader.c): what they make
 * it do costs no more processor time than they may have themselves, and little memory. Return: -ENOENT when there is no v2 tree; other -errno.
 */
int cgroup_loader_open(const struct cgroup *cg, uint64_t cpu_millis) attr_must_use;

/** cgroup_keeper_open() - descriptor of the v2 group of our own processes; -ENOENT when there is no v2 tree. */
int cgroup_keeper_open(const struct cgroup *cg) attr_must_use;

/**
 * cgroup_gateway_open() - descriptor of the v2 group of the gateway, beside these, whose sockets are not the sandbox's; what the programs make it do costs no more processor time than
 * they may have themselves, where controllers of version 2 hold that. Return: -ENOENT when there is no v2 tree; -EOPNOTSUPP, other -errno.
 */
int cgroup_gateway_open(const struct cgroup *cg, uint64_t cpu_millis) attr_must_use;

/** cgroup_gateway_tasks() - `tasks` of the v1 group that bounds it so, and nothing else of it; the gateway writes "0" there. Return: descriptor, -ENOENT where nothing is bounded by version 1, other -errno. */
int cgroup_gateway_tasks(const struct cgroup *cg, uint64_t cpu_millis) attr_must_use;

/** cgroup_leaf_fn - one leaf of `box` and the processes in it. Return: negative ends the walk. */
typedef int cgroup_leaf_fn(void *ctx, const char *name, const int32_t *pids, size_t n);

/** cgroup_each_leaf() - call @fn for each leaf of `box`. Return: 0, what @fn returned, -errno. */
int cgroup_each_leaf(const struct cgroup *cg, cgroup_leaf_fn *fn, void *ctx) attr_must_use;

/**
 * cgroup_set_limits() - write the limits of @now that differ from @was, which are in force (all zero: none are).
 * Return: 0, -EOPNOTSUPP when a limit is asked for that nothing can enforce, other -errno.
 */
int cgroup_set_limits(const struct cgroup *cg, const struct cgroup_limits *was,
	const struct cgroup_limits *now) attr_must_use;

/** cgroup_pids_open() - descriptor for cgroup_lend_pids(), owned by the caller. Return: -EOPNOTSUPP where nothing limits processes; other -errno. */
int cgroup_pids_open(const struct cgroup *cg) attr_must_use;

/**
 * cgroup_lend_pids() - let there be @pids processes, more than 0, whatever cgroup_set_limits() has said. Those that are there already stay.
 * @fd: of cgroup_pids_open(): a write to it takes 1 µs, of which its opening would make 25. Return: 0 or -errno.
 */
int cgroup_lend_pids(int fd, uint64_t pids) attr_must_use;

/**
 * cgroup_lend_memory() - let the programs have @now bytes of memory, who may have @was; both more than 0. Their buffers of sockets do not become more.
 * Return: 0; -EBUSY when more is in use and the kernel does not free it (version 1; version 2 ends programs then); other -errno.
 */
int cgroup_lend_memory(const struct cgroup *cg, uint64_t was, uint64_t now) attr_must_use;

/** cgroup_leaf_new() - make `box/NAME` and return a descriptor for CLONE_INTO_CGROUP; -ENOENT when there is no v2 tree. */
int cgroup_leaf_new(const struct cgroup *cg, const char *name) attr_must_use;

/** cgroup_leaf_unused() - the same; -EEXIST when it is there already. */
int cgroup_leaf_unused(const struct cgroup *cg, const char *name) attr_must_use;

/** cgroup_leaf_id() - the kernel's id of an open group, as sockets carry it; 0 when unknown. */
uint64_t cgroup_leaf_id(int fd);

/** cgroup_leaf_pids() - the processes of `box/NAME` into @ret, of @max (at most 400). Return: how many, -E2BIG when they are more, -ENOENT when there is no v2 tree, -errno. Context: does not wait for other processors. */
int cgroup_leaf_pids(
	const struct cgroup *cg, const char *name, int32_t *ret, size_t max) attr_must_use;

/** cgroup_leaf_remove() - remove an empty leaf. Return: 0, -EBUSY while populated, -errno. */
int cgroup_leaf_remove(const struct cgroup *cg, const char *name) attr_must_use;

/** cgroup_kill() - SIGKILL everything in `box/NAME`, or in all of `box` when @name is NULL. Return: 0 or -errno. */
int cgroup_kill(const struct cgroup *cg, const char *name) attr_must_use;

/** cgroup_freeze() - freeze or thaw `box`; returns when the kernel reports it, -ETIMEDOUT after @timeout_ms. */
int cgroup_freeze(const struct cgroup *cg, bool freeze, int timeout_ms) attr_must_use;

/** cgroup_wait_empty() - wait until `box` holds no process. Return: 0, -ETIMEDOUT, -errno. */
int cgroup_wait_empty(const struct cgroup *cg, int timeout_ms) attr_must_use;

/** cgroup_leaf_wait_empty() - wait until `box/NAME` holds no process. Return: 0, -ETIMEDOUT, -errno. */
int cgroup_leaf_wait_empty(const struct cgroup *cg, const char *name, int timeout_ms) attr_must_use;

/** cgroup_leaf_populated() - does `box/NAME` hold a process? false when unknown. */
bool cgroup_leaf_populated(const struct cgroup *cg, const char *name);

/** cgroup_leaf_cpu_us() - CPU time used in `box/NAME`; UINT64_MAX when unknown. */
uint64_t cgroup_leaf_cpu_us(const struct cgroup *cg, const char *name);

/** cgroup_leaf_oom_kills() - OOM kills in `box/NAME` (v2 controllers) or in the whole sandbox (v1). */
uint64_t cgroup_leaf_oom_kills(const struct cgroup *cg, const char *name);

/** cgroup_leaf_refused() - forks that kernels before 6.11 count in `box/NAME`, where who wanted them was, and not in `box`, whose limit refused them. 0 elsewhere. */
uint64_t cgroup_leaf_refused(const struct cgroup *cg, const char *name);

/** cgroup_refusals() - only @oom_kills and @pids_refused of struct cgroup_usage: cheap enough for every exec. */
void cgroup_refusals(const struct cgroup *cg, struct cgroup_usage *ret);

/** cgroup_memory() - bytes that the kernel counts as the payload's now; UINT64_MAX when unknown. */
uint64_t cgroup_memory(const struct cgroup *cg);

/** cgroup_sockets() - bytes that the kernel counts for buffers of sockets, with those of our own processes but the gateway; version 1 counts them apart, without ours, and only where there is a limit of memory. UINT64_MAX when unknown. */
uint64_t cgroup_sockets(const struct cgroup *cg);

/** cgroup_usage() - read all counters. */
void cgroup_usage(const struct cgroup *cg, struct cgroup_usage *ret);

#endif
