/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "policy/policy.h"
#include "presets_gen.h" /* from defs/presets/ by tools/gen_presets.py */

const char *policy_preset(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(presets); i++)
		if (str_eq(presets[i].name, name))
			return presets[i].json;
	return NULL;
}

const char *policy_preset_name(size_t i)
{
	return i < ARRAY_SIZE(presets) ? presets[i].name : NULL;
}
