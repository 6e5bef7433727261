/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/authority.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct authority a;
	char again[AUTHORITY_HOST_SIZE];
	bool is_address;

	if (authority_parse((const char *)data, size, &a) < 0)
		return 0;
	MUST(strlen(a.host) > 0 && strlen(a.host) < sizeof(a.host));
	MUST(strpbrk(a.host, "/@\\%#? \t") == NULL);
	/* canonical: reading it again changes nothing */
	MUST(authority_host(a.host, strlen(a.host), again, &is_address) == 0);
	MUST(strcmp(again, a.host) == 0 && is_address == a.is_address);
	return 0;
}
