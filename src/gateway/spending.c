/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/spending.h"
#include "gateway/body.h"
#include "policy/pattern.h"

#include <strings.h>

#define MEMBERS_MAX 256 /* of an object of a stream; what says more says nothing */

bool spending_wanted(const struct policy_rule *rule)
{
	for (size_t i = 0; rule != NULL && i < rule->n_budgets; i++)
		if (rule->budgets[i].measure == POLICY_RESPONSE_FIELD)
			return true;
	return false;
}

bool spending_lacks(const struct policy_rule *rule, const json_t *said)
{
	for (size_t i = 0; i < rule->n_budgets; i++)
		if (rule->budgets[i].measure == POLICY_RESPONSE_FIELD &&
			(said == NULL ||
				pointer_walk(said, rule->budgets[i].field, NULL, NULL) == 0))
			return true;
	return false;
}

void spending_begin(struct spending *m, const struct policy_rule *rule, const struct head *head)
{
	static const char type[] = "text/event-stream";
	struct policy_text given = head_field(head, "content-type");

	spending_fini(m);
	*m = (struct spending){ .on = true, .rule = rule, .text = BUF_INIT(SPENDING_MAX) };
	m->stream =
		given.n >= sizeof(type) - 1 && strncasecmp(given.p, type, sizeof(type) - 1) == 0;
}

/* Lays @value over @onto. null says nothing: OpenAI sends it until the last event. */
static void lay_over(json_t *onto, const char *key, json_t *value)
{
	json_t *there = json_object_get(onto, key), *member;
	const char *name;

	if (json_is_null(value) || (there == NULL && json_object_size(onto) >= MEMBERS_MAX))
		return;
	if (!json_is_object(value) || !json_is_object(there)) {
		(void)json_object_set(onto, key, value);
		return;
	}
	json_object_foreach (value, name, member)
		lay_over(there, name, member);
}

/* The member that the pointer @field begins with. */
static void first_part(const char *field, char part[PATTERN_GLOB_MAX + 1])
{
	const char *p = field + (*field == '/');

	(void)snprintf(
		part, PATTERN_GLOB_MAX + 1, "%.*s", (int)strcspn(p, *field == '/' ? "/" : ""), p);
}

static void take_event(struct spending *m, json_t *event)
{
	static const char *const envelopes[] = { "message", "response" };
	char part[PATTERN_GLOB_MAX + 1];

	for (size_t i = 0; i < m->rule->n_budgets; i++) {
		json_t *value;

		if (m->rule->budgets[i].measure != POLICY_RESPONSE_FIELD)
			continue;
		first_part(m->rule->budgets[i].field, part);
		value = json_object_get(event, part);
		for (size_t k = 0; k < ARRAY_SIZE(envelopes) && value == NULL; k++)
			value = json_object_get(json_object_get(event, envelopes[k]), part);
		if (value != NULL)
			lay_over(m->said, part, value);
	}
}

/* One line of a stream: "data: {…}" counts. */
static void take_line(struct spending *m, const char *p, size_t n)
{
	json_t *value;

	if (n < 5 || memcmp(p, "data:", 5) != 0)
		return;
	value = json_loadb(p + 5, n - 5, JSON_REJECT_DUPLICATES, NULL);
	if (m->said == NULL)
		m->said = json_object();
	take_event(m, value);
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
