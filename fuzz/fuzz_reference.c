/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/reference.h"
#include "fuzz/fuzz.h"

static void check_same(const struct reference *ref, const char *text)
{
	struct reference again;

	MUST(reference_parse(text, &again, NULL) == 0);
	MUST(strcmp(ref->registry, again.registry) == 0 && strcmp(ref->path, again.path) == 0);
	MUST(strcmp(ref->tag, again.tag) == 0 && strcmp(ref->digest, again.digest) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *text = fuzz_text(data, size);
	char out[REFERENCE_TEXT_SIZE];
	const char *reason = NULL;
	struct reference ref;

	(void)digest_valid(text);
	if (reference_parse(text, &ref, &reason) < 0) {
		MUST(reason != NULL);
		return 0;
	}
	reference_text(&ref, out);
	check_same(&ref, out);
	reference_short(&ref, out);
	check_same(&ref, out);
	return 0;
}
