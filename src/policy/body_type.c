/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/body_type.h"

#include <string.h>
#include <strings.h>

/* Is @word in @text, capitals or not? Return: what follows it, or NULL. */
static const char *behind(struct policy_text text, const char *word)
{
	for (size_t i = 0; i + strlen(word) <= text.n; i++)
		if (strncasecmp(text.p + i, word, strlen(word)) == 0)
			return text.p + i + strlen(word);
	return NULL;
}

/* Does @type name no other charset than UTF-8? */
static bool is_utf8(struct policy_text type)
{
	const char *const end = type.p + type.n;
	const char *p;

	while ((p = behind(type, "charset")) != NULL) {
		size_t n = 0;

		while (p < end && strchr("= \t\"", *p) != NULL)
			p++;
		while (p + n < end && strchr(" \t\";", p[n]) == NULL)
			n++;
		if (!(n == 5 && strncasecmp(p, "utf-8", n) == 0) &&
			!(n == 4 && strncasecmp(p, "utf8", n) == 0))
			return false;
		type = (struct policy_text){ p + n, (size_t)(end - p) - n };
	}
	return true;
}

bool body_may_be_json(struct policy_text type)
{
	return behind(type, "multipart/") == NULL && behind(type, "form-urlencoded") == NULL &&
	       is_utf8(type);
}
