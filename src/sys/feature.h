/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sys/feature.h - what this kernel can do, found out by trying it.
 *
 * Version numbers lie (distributions backport, containers forbid), so every row of defs/kernel.def has a probe that uses the feature. Results are
 * kept for the life of the process. CAY_WITHOUT=id,id,… pretends that features are missing; "all" means every one that is newer than
 * Linux 6.1, the floor. Probes see what the caller's privilege and namespaces allow: ask where the feature will be used.
 */
#ifndef CAY_SYS_FEATURE_H
#define CAY_SYS_FEATURE_H

#include "base/attr.h"

enum feature {
#define FEATURE(NAME, id, probe, cost, since, level, what, lost, fix) FEATURE_##NAME,
#include "kernel.def"
#undef FEATURE
	FEATURE_COUNT
};

enum feature_level { FEATURE_LEVEL_REQUIRED, FEATURE_LEVEL_RECOMMENDED, FEATURE_LEVEL_INFO };

/** struct feature_info - one row of defs/kernel.def; all text is static and never empty. */
struct feature_info {
	const char *id;
	unsigned int since; /* kernel release, 608 = 6.8 */
	enum feature_level level;
	const char *what, *lost, *fix;
};

/**
 * feature_has() - does @feature work here?
 *
 * The first call of a process probes: microseconds for cheap ones, up to %PROBE_TIMEOUT_MS for costly ones (which fork).
 * Return: false too when CAY_WITHOUT names it.
 * Context: one thread; costly features only from single-threaded programs.
 */
bool feature_has(enum feature feature);

/** feature_withheld() - is @feature switched off by CAY_WITHOUT? */
bool feature_withheld(enum feature feature);

/** feature_info() - the row of @feature; static. */
const struct feature_info *feature_info(enum feature feature);

/** feature_find() - the feature with this id, or %FEATURE_COUNT. */
enum feature feature_find(const char *id);

/** feature_landlock_abi() - the Landlock ABI to use: 0 = none; never above 2, that of Linux 6.1, when landlock_scope is withheld. */
int feature_landlock_abi(void);

/**
 * feature_idmap_works() - can a mount of the file system that holds @path be id-mapped?
 *
 * Not cached. Return: 1, 0 (this file system cannot), or -errno when it could not be tried (-EPERM: privilege is missing).
 * Context: needs CAP_SYS_ADMIN over the file system; forks; single-threaded programs only.
 */
int feature_idmap_works(const char *path);

/** feature_forget() - drop all cached results and read CAY_WITHOUT again; for tests and for a child that entered other namespaces. */
void feature_forget(void);

#endif
