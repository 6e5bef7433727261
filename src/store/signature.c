/* SPDX-License-Identifier: Apache-2.0 */
#include "store/signature.h"
#include "base/str.h"
#include "store/digest.h"

static int sign(const struct store *store, const json_t *object, char text[DIGEST_TEXT_SIZE])
{
	unsigned char key[32], digest[DIGEST_SIZE];
	int rc = store_key(store, key);
	char *dump;

	if (rc < 0)
		return rc;
	dump = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
	if (dump == NULL)
		return -ENOMEM;
	digest_hmac(key, dump, strlen(dump), digest);
	digest_text(digest, text);
	free(dump);
	return 0;
}

int signature_add(const struct store *store, json_t *object)
{
	char hmac[DIGEST_TEXT_SIZE];
	int rc;

	(void)json_object_del(object, "hmac");
	rc = sign(store, object, hmac);
	if (rc == 0)
		(void)json_object_set_new(object, "hmac", json_string(hmac));
	return rc;
}

int signature_check(const struct store *store, json_t *object)
{
	const char *hmac = json_string_value(json_object_get(object, "hmac"));
	cleanup_free char *claimed = hmac != NULL ? str_dup(hmac) : NULL;
	char text[DIGEST_TEXT_SIZE];
	int rc;

	if (claimed == NULL)
		return -EBADMSG;
	(void)json_object_del(object, "hmac");
	rc = sign(store, object, text);
	return rc < 0 ? rc : str_eq(text, claimed) ? 0 : -EBADMSG;
}
