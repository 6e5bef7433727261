/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/filters.h"
#include "base/ablate.h"
#include "filters_gen.h"
#include "sys/confine.h"
#include "sys/feature.h"

struct filters {
	struct filter own, told, learned;
};

#define FILTERS(name) \
	{ \
		{ filter_##name, ARRAY_SIZE(filter_##name) }, \
			{ told_##name, ARRAY_SIZE(told_##name) }, \
		{ \
			learn_##name, ARRAY_SIZE(learn_##name) \
		} \
	}

#ifdef CAY_ABLATION
/* The default filter without one of its rules, to prove that the attack tests notice. */
static const struct filters *filters_ablated(void)
{
	static const struct filters any_socket = FILTERS(any_socket),
				    any_ioctl = FILTERS(any_ioctl), any_clone = FILTERS(any_clone);

	if (ablated("seccomp_socket_families"))
		return &any_socket;
	if (ablated("seccomp_ioctl"))
		return &any_ioctl;
	return ablated("seccomp_clone_flags") ? &any_clone : NULL;
}
#else
static const struct filters *filters_ablated(void)
{
	return NULL;
}
#endif

static const struct filters *filters_of(enum spec_profile profile)
{
	static const struct filters all[PROFILE_COUNT] = {
		[PROFILE_DEFAULT] = FILTERS(default),
		[PROFILE_STRICT] = FILTERS(strict),
		[PROFILE_DEBUG] = FILTERS(debug),
	};
	const struct filters *other = filters_ablated();

	return other != NULL ? other : &all[profile];
}

const struct filter *filter_for(enum spec_profile profile)
{
	return &filters_of(profile)->own;
}

const struct filter *filter_told(enum spec_profile profile, bool learns)
{
	const struct filters *f = filters_of(profile);

	return learns ? &f->learned : &f->told;
}

int filter_told_error(void)
{
	return FILTER_TOLD_ERROR;
}

bool filter_tells(void)
{
	return !feature_withheld(FEATURE_SECCOMP_LISTENER);
}

uint32_t filter_inherited(void)
{
	static uint32_t n;
	static bool counted;

	if (!counted)
		n = confine_filters();
	counted = true;
	return n;
}

bool filter_learns(bool rootless)
{
	return filter_tells() &&
	       (rootless || feature_withheld(FEATURE_PROGRAM_FILTERS) || filter_inherited() > 0);
}
