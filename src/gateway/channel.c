/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/channel.h"

struct policy_text head_field(const struct head *h, const char *name)
{
	for (size_t i = 0; i < h->n_fields; i++) {
		if (text_is(h->fields[i].name, name))
			return h->fields[i].value;
	}
	return (struct policy_text){ 0 };
}

int head_add(struct head *h, const char *name, struct policy_text value)
{
	if (h->n_fields == HEAD_FIELDS_MAX)
		return -E2BIG;
	h->fields[h->n_fields++] = (struct policy_field){ text_of(name), value };
	return 0;
}

void head_remove(struct head *h, const char *name)
{
	size_t kept = 0;

	for (size_t i = 0; i < h->n_fields; i++) {
		if (!text_is(h->fields[i].name, name))
			h->fields[kept++] = h->fields[i];
	}
	h->n_fields = kept;
}

bool head_is_hop(struct policy_text name)
{
	/* alt-svc would send clients to UDP, which never leaves. */
	static const char *const names[] = { "connection", "content-length", "expect", "host",
		"http2-settings", "keep-alive", "proxy-authenticate", "proxy-authorization",
		"proxy-connection", "te", "transfer-encoding", "upgrade", "alt-svc" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (text_is(name, names[i]))
			return true;
	}
	return false;
}
