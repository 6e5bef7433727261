/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/calm.h - when is it worth while to prepare sandboxes that go stale when something happens? Pure; times are of CLOCK_MONOTONIC.
 *
 * What happens all the time makes everything stale before it is used. So after a change it has to be quiet for a while first. That while doubles
 * with each batch that was lost, as far as %CALM_MAX_NS, and each prepared one that was of use takes a quarter off it: a batch of four pays when
 * three of them are used.
 */
#ifndef CAY_API_CALM_H
#define CAY_API_CALM_H

#include "base/clock.h"

#define CALM_MIN_NS (50 * NS_PER_MS) /* after the first batch that was lost */
#define CALM_MAX_NS (400 * NS_PER_MS)

/** struct calm - all zero: nothing was lost yet, so nothing is waited for. */
struct calm {
	uint64_t
		quiet_ns; /* so long it has to be quiet; below %CALM_MIN_NS not at all, but the next batch that is lost doubles it */
	uint64_t changed_ns; /* when it was found to have changed last; 0 = never */
};

/** calm_changed() - it was found changed at @now_ns. @lost: and a batch is stale because of it. */
void calm_changed(struct calm *c, uint64_t now_ns, bool lost);

/** calm_used() - one that was prepared was of use. */
void calm_used(struct calm *c);

/** calm_left_ns() - how long it has to stay quiet from @now_ns on; 0 = go ahead. */
uint64_t calm_left_ns(const struct calm *c, uint64_t now_ns);

#endif
