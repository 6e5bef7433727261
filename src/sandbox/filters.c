/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/filters.h"
#include "base/ablate.h"
#include "filters_gen.h"

#ifdef CAY_ABLATION
/* The default filter without one of its rules, to prove that the attack tests notice. */
static const struct filter *filter_ablated(void)
{
	static const struct filter any_socket = { filter_any_socket,
		ARRAY_SIZE(filter_any_socket) };
	static const struct filter any_ioctl = { filter_any_ioctl, ARRAY_SIZE(filter_any_ioctl) };
	static const struct filter any_clone = { filter_any_clone, ARRAY_SIZE(filter_any_clone) };

	if (ablated("seccomp_socket_families"))
		return &any_socket;
	if (ablated("seccomp_ioctl"))
		return &any_ioctl;
	return ablated("seccomp_clone_flags") ? &any_clone : NULL;
}
#else
static const struct filter *filter_ablated(void)
{
	return NULL;
}
#endif

const struct filter *filter_for(enum spec_profile profile)
{
	static const struct filter filters[PROFILE_COUNT] = {
		[PROFILE_DEFAULT] = { filter_default, ARRAY_SIZE(filter_default) },
		[PROFILE_STRICT] = { filter_strict, ARRAY_SIZE(filter_strict) },
		[PROFILE_DEBUG] = { filter_debug, ARRAY_SIZE(filter_debug) },
	};

	const struct filter *other = filter_ablated();

	return other != NULL ? other : &filters[profile];
}
