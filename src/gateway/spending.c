/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/spending.h"
#include "gateway/body.h"

#include <strings.h>

bool spending_wanted(const struct policy_rule *rule)
{
	for (size_t i = 0; rule != NULL && i < rule->n_budgets; i++)
		if (rule->budgets[i].measure == POLICY_RESPONSE_FIELD)
			return true;
	return false;
}

void spending_begin(struct spending *m, const struct head *head)
{
	static const char type[] = "text/event-stream";
	struct policy_text given = head_field(head, "content-type");

	spending_fini(m);
	*m = (struct spending){ .on = true, .text = BUF_INIT(SPENDING_MAX) };
	m->stream =
		given.n >= sizeof(type) - 1 && strncasecmp(given.p, type, sizeof(type) - 1) == 0;
}

/* One line of a stream: "data: {…}" counts. */
static void take_line(struct spending *m, const char *p, size_t n)
{
	json_t *value;

	if (n < 5 || memcmp(p, "data:", 5) != 0)
		return;
	value = json_loadb(p + 5, n - 5, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(value)) {
		if (m->said == NULL)
			m->said = json_object();
		(void)json_object_update(m->said, value);
	}
	json_decref(value);
}

void spending_feed(struct spending *m, const char *p, size_t n)
{
	size_t used = 0;
	const char *end;

	if (!m->on)
		return;
	buf_add(&m->text, p, n);
	if (buf_failed(&m->text))
		m->on = false; /* larger than any account of what was used */
	while (m->on && m->stream &&
		(end = memchr(m->text.p + used, '\n', m->text.n - used)) != NULL) {
		size_t at = (size_t)(end - m->text.p);

		take_line(m, m->text.p + used, at - used);
		used = at + 1;
	}
	buf_consume(&m->text, used);
}

json_t *spending_end(struct spending *m, const struct head *head)
{
	if (!m->on)
		return NULL;
	if (!m->stream)
		return body_json(head_field(head, "content-encoding"), buf_cstr(&m->text),
			m->text.n, SPENDING_MAX);
	take_line(m, buf_cstr(&m->text), m->text.n);
	return json_incref(m->said);
}

void spending_fini(struct spending *m)
{
	buf_free(&m->text);
	json_decref(m->said);
	*m = (struct spending){ 0 };
}
