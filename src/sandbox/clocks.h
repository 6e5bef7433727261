/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/clocks.h - CLOCK_MONOTONIC and CLOCK_BOOTTIME as the programs of a sandbox see them (docs/design/0009).
 *
 * The machine's begin at zero with each of its starts. Processes that are brought back must see neither go back, so theirs may be ahead of the machine's. While a sandbox is
 * suspended its CLOCK_MONOTONIC stands still, as a machine's does that is suspended itself, so it may be behind. "The machine" is what the caller sees, in whatever time namespace
 * it is itself.
 */
#ifndef CAY_SANDBOX_CLOCKS_H
#define CAY_SANDBOX_CLOCKS_H

#include "base/attr.h"
#include <jansson.h>

/** struct clocks - how far a sandbox's clocks are ahead of the machine's; all 0 = they are the machine's. */
struct clocks {
	int64_t monotonic_ns; /* below 0 = it is behind */
	int64_t boottime_ns;  /* never below 0 */
};

/** clocks_save() - what a sandbox's clocks, @ahead of the machine's, say now; and during which run of the machine. New reference. */
json_t *clocks_save(const struct clocks *ahead);

/**
 * clocks_load() - how far ahead they have to be to go on from @then, of clocks_save(). Within one run of the machine as far as they were: they have gone on with it.
 * Otherwise just so far that they do not step back.
 * @then: NULL, or without the members: none of it is known. @stood: CLOCK_MONOTONIC has stood still since: it goes on from where it stood in any case. @ret: filled; all 0
 * where nothing is known.
 */
void clocks_load(const json_t *then, bool stood, struct clocks *ret);

/** clocks_back_ns() - by how much the one that is farthest ahead would step back, were they the machine's. */
uint64_t clocks_back_ns(const json_t *then);

#endif
