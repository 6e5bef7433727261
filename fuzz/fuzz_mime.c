/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/mime.h"
#include "fuzz/fuzz.h"

/* Everything is shown, as valid JSON: jansson refuses strings that are no UTF-8. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *copy = xalloc(size + 1), *dump = NULL;
	json_t *mail;

	memcpy(copy, data, size);
	mail = mime_parse(copy, size);
	MUST(json_is_object(mail) && json_is_array(json_object_get(mail, "attachments")));
	MUST(json_object_get(mail, "subject") != NULL && json_object_get(mail, "text") != NULL);
	dump = json_dumps(mail, 0);
	MUST(dump != NULL);
	json_decref(mail);
	return 0;
}
