/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/placer.h - puts the mounts of a sandbox in place, from inside its mount namespace.
 *
 * Runs in the placer (sandbox/starter.h), before the first program. Steps, so that what can be is done ahead of time: placer_root() makes a root mount the root of the
 * namespace, with the builder's parts on it; placer_ahead() does what the specification will probably say; placer_finish() adds or changes what it does say. A root may be
 * replaced by another one as long as no program runs: every process of the namespace, init too, moves with it.
 */
#ifndef CAY_SANDBOX_PLACER_H
#define CAY_SANDBOX_PLACER_H

#include "base/err.h"
#include "sandbox/spec.h"
#include "sandbox/synth.h"

/** struct finish - what the specification says besides mounts; compared byte by byte. */
struct finish {
	struct synth_view view; /* what the synthetic files show */
	uint8_t strict;         /* no set-uid on any mount */
	uint8_t debug;          /* debuggers may write to /proc */
	char hostname[NAME_MAX_LEN + 1];
};

/** struct placement - what to place; comes with one descriptor of a detached mount for each target. */
struct placement {
	struct finish finish; /* not for placer_root() */
	uint32_t n_targets;
	char targets
		[65536]; /* NUL-terminated paths inside, one after the other; the first of placer_root() is "/" */
};

/** struct placer - descriptors into the sandbox. */
struct placer {
	int parts;               /* directory that has proc, dev and sys mounted on it */
	int synth, sys;          /* writable views of the synthetic files and of /sys */
	struct synth_view shown; /* what the synthetic files show now */
	struct finish done;      /* by placer_ahead(), if it has been here */
	bool ahead;
};

/** placer_open() - find what the builder left. @shown: the limits that it was told. Context: after joining the mount namespace. Return: 0 or -errno. */
int placer_open(struct placer *p, const struct cgroup_limits *shown) attr_must_use;

/** placer_close() - close its descriptors. */
void placer_close(struct placer *p);

/** placer_root() - make @mounts[0] the root, attach the others to it, leave the root that was there. @mounts: borrowed. Return: 0 or an error. */
int placer_root(struct placer *p, const struct placement *order, const int *mounts,
	struct err *err) attr_must_use;

/**
 * placer_ahead() - do what placer_finish() would for @order without mounts: not strict, every processor shown. Behind the builder's last word: /proc is closed.
 * Return: 0 or an error.
 */
int placer_ahead(struct placer *p, const struct placement *order, struct err *err) attr_must_use;

/** placer_finish() - attach @mounts (borrowed), set the host name and what limits change. Return: 0 or an error. */
int placer_finish(struct placer *p, const struct placement *order, const int *mounts,
	struct err *err) attr_must_use;

#endif
