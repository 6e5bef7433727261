/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sandbox/filters.h - the compiled system call filters; their text is in defs/seccomp/. */
#ifndef CAY_SANDBOX_FILTERS_H
#define CAY_SANDBOX_FILTERS_H

#include "sandbox/spec.h"
#include <linux/filter.h>

/** struct filter - one BPF program. */
struct filter {
	const struct sock_filter *code;
	unsigned short n;
};

/** filter_for() - the filter of a profile; static. */
const struct filter *filter_for(enum spec_profile profile);

#endif
