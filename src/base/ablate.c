/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ablate.h"

#ifdef CAY_ABLATION
#include "base/str.h"
#include <stdlib.h>

bool ablated(const char *id)
{
	return str_list_has(getenv("CAY_ABLATE"), id);
}

char *ablate_environment(void)
{
	const char *value = getenv("CAY_ABLATE");

	return value != NULL ? str_dupf("CAY_ABLATE=%s", value) : NULL;
}
#endif
