/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/filters.h"
#include "filters_gen.h"

const struct filter *filter_for(enum spec_profile profile)
{
	static const struct filter filters[PROFILE_COUNT] = {
		[PROFILE_DEFAULT] = { filter_default, ARRAY_SIZE(filter_default) },
		[PROFILE_STRICT] = { filter_strict, ARRAY_SIZE(filter_strict) },
		[PROFILE_DEBUG] = { filter_debug, ARRAY_SIZE(filter_debug) },
	};

	return &filters[profile];
}
