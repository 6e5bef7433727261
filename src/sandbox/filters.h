/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sandbox/filters.h - the compiled system call filters; their text is in defs/seccomp/. */
#ifndef CAY_SANDBOX_FILTERS_H
#define CAY_SANDBOX_FILTERS_H

#include "sandbox/spec.h"
#include <linux/filter.h>

/** FILTERS_OURS - system call filters of ours on every program: filter_told() and filter_for(). */
#define FILTERS_OURS 2

/** struct filter - one BPF program. */
struct filter {
	const struct sock_filter *code;
	unsigned short n;
};

/** filter_for() - the filter of a profile; static. */
const struct filter *filter_for(enum spec_profile profile);

/**
 * filter_told() - the filter that stands below that one, once for all that one process has started: whoever listens is told of what it refuses (seccomp_unotify(2)),
 * and, if it @learns, of the filters that programs install themselves.
 * Return: static; the answer to a call that is told is to be filter_told_error(), but for one of those, which is to go on.
 */
const struct filter *filter_told(enum spec_profile profile, bool learns);

/** filter_told_error() - errno of the calls that are told. */
int filter_told_error(void);

/** filter_tells() - may somebody listen? false: it is switched off (CAY_WITHOUT=seccomp_listener). */
bool filter_tells(void);

/**
 * filter_inherited() - system call filters that the server began under (its service manager's, its container's): all that it starts is below them.
 * Return: those of this process when it was asked first.
 * Context: a keeper or a job; before it enters any of its own.
 */
uint32_t filter_inherited(void);

/** filter_learns() - must filters of programs be learned when they are installed, because nobody may read them afterwards, and may somebody listen? Who is under a filter may not read any. */
bool filter_learns(bool rootless);

#endif
