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

bool head_names(struct policy_text name, const char *want)
{
	if (name.n != strlen(want))
		return false;
	for (size_t i = 0; i < name.n; i++)
		if ((name.p[i] == '_' ? '-' : name.p[i]) != (want[i] == '_' ? '-' : want[i]))
			return false;
	return true;
}

size_t head_count(const struct head *h, const char *name)
{
	size_t n = 0;

	for (size_t i = 0; i < h->n_fields; i++)
		n += head_names(h->fields[i].name, name);
	return n;
}

bool head_unclear(const struct head *h, const char *name)
{
	size_t n = head_count(h, name);

	return n > 1 || (n == 1 && head_field(h, name).p == NULL);
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
		if (!head_names(h->fields[i].name, name))
			h->fields[kept++] = h->fields[i];
	}
	h->n_fields = kept;
}

bool head_is_hop(struct policy_text name)
{
	return httphead_is_hop(name.p, name.n);
}

bool head_may_trail(struct policy_text name)
{
	static const char *const begins[] = { "content-", "x-http-method", "x-method-", "if-",
		"x-forwarded-", "x-original-", "x-rewrite-", "proxy-", "sec-" };
	static const char *const names[] = { "authorization", "cookie", "forwarded", "range",
		"accept-encoding", "max-forwards", "trailer", "transfer-encoding", "host" };

	for (size_t i = 0; i < ARRAY_SIZE(begins); i++)
		if (name.n >= strlen(begins[i]) &&
			head_names((struct policy_text){ name.p, strlen(begins[i]) }, begins[i]))
			return false;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (head_names(name, names[i]))
			return false;
	return true;
}
