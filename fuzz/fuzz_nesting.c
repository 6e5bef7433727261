/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/nesting.h"
#include "fuzz/fuzz.h"

#include <jansson.h>

static size_t depth_of(const json_t *value)
{
	size_t most = 0, i;
	const json_t *one;
	const char *key;

	json_array_foreach ((json_t *)(uintptr_t)value, i, one) {
		size_t depth = depth_of(one);

		most = depth > most ? depth : most;
	}
	json_object_foreach ((json_t *)(uintptr_t)value, key, one) {
		size_t depth = depth_of(one);

		most = depth > most ? depth : most;
	}
	return json_is_array(value) || json_is_object(value) ? most + 1 : 0;
}

/* Of what is JSON it says how deep that is, exactly; of anything else only that it reads nothing behind the end. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *text = xalloc(size + (size == 0));
	json_t *value;
	size_t depth;

	if (size > 0)
		memcpy(text, data, size);
	value = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
	depth = depth_of(value);
	MUST(!nesting_exceeds(text, size, size));
	if (value != NULL) {
		MUST(!nesting_exceeds(text, size, depth));
		MUST(depth == 0 || nesting_exceeds(text, size, depth - 1));
	}
	json_decref(value);
	return 0;
}
