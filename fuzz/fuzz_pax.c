/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/pax.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *at = (const char *)data, *end = at + size, *before = at;
	struct pax_record r;
	int64_t seconds;
	uint32_t ns;
	uint64_t v;

	while (pax_next(&at, end, &r) > 0) {
		MUST(at > before && at <= end && at[-1] == '\n');
		MUST(r.key > before && r.key_size > 0 && r.key[r.key_size] == '=');
		MUST(r.value + r.value_size == at - 1);
		/* The length is what it says. */
		MUST(strtoull(before, NULL, 10) == (unsigned long long)(at - before));
		MUST(!pax_key_is(&r, ""));
		if (pax_u64(&r, 1000, &v) == 0)
			MUST(v <= 1000);
		if (pax_time(&r, &seconds, &ns) == 0)
			MUST(ns < 1000000000);
		before = at;
	}
	return 0;
}
