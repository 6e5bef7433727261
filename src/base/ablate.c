/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ablate.h"

#ifdef CAY_ABLATION
#include "base/str.h"
#include <stdlib.h>
#include <string.h>

bool ablated(const char *id)
{
	const char *p = getenv("CAY_ABLATE");
	size_t n = strlen(id);

	while (p != NULL && *p != '\0') {
		size_t len = strcspn(p, ",");

		if (len == n && memcmp(p, id, n) == 0)
			return true;
		p += len;
		p += *p == ',';
	}
	return false;
}

char *ablate_environment(void)
{
	const char *value = getenv("CAY_ABLATE");

	return value != NULL ? str_dupf("CAY_ABLATE=%s", value) : NULL;
}
#endif
