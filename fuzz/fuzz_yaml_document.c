/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/yaml_document.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *copy = xalloc(size + 1), *dump = NULL;
	char reason[YAML_REASON_SIZE] = "";
	json_t *value = NULL, *again;

	memcpy(copy, data, size);
	if (yaml_parse(copy, size, &value, reason) < 0) {
		MUST(*reason != '\0' && value == NULL);
		return 0;
	}
	/* what was read can be written as JSON and read again: no value that JSON does not have */
	dump = json_dumps(value, JSON_ENCODE_ANY);
	MUST(dump != NULL);
	again = json_loads(dump, JSON_DECODE_ANY, NULL);
	MUST(again != NULL && json_equal(value, again));
	json_decref(again);
	json_decref(value);
	return 0;
}
