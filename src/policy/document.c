/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "codec/yaml_document.h"
#include "policy/policy.h"

/* JSON is read as JSON: not every JSON text is YAML (tabs before a line's first word). */
static bool looks_like_json(const char *p, size_t n)
{
	size_t i = 0;

	while (i < n && strchr(" \t\r\n", p[i]) != NULL && p[i] != '\0')
		i++;
	return i < n && p[i] == '{';
}

static int from_json(const char *p, size_t n, json_t **ret, struct err *err)
{
	json_error_t e;

	*ret = json_loadb(p, n, JSON_REJECT_DUPLICATES, &e);
	if (*ret == NULL)
		return err_raise(err, ERR_INVALID, "policy: line %d: %s", e.line, e.text);
	return 0;
}

int policy_document(const char *p, size_t n, json_t **ret, struct err *err)
{
	char reason[YAML_REASON_SIZE];

	if (n > POLICY_TEXT_MAX) {
		(void)err_raise(
			err, ERR_TOO_LARGE, "policy: larger than %u bytes", POLICY_TEXT_MAX);
		return -EMSGSIZE;
	}
	if (looks_like_json(p, n))
		return from_json(p, n, ret, err);
	if (yaml_parse(p, n, ret, reason) < 0)
		return err_raise(err, ERR_INVALID, "policy: %s", reason);
	return 0;
}
