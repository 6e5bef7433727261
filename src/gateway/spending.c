/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/spending.h"
#include "gateway/body.h"
#include "policy/pattern.h"
#include "policy/sieve.h"

#include <strings.h>

static const char *const envelopes[] = { "message", "response" };

static bool counts(const struct policy_rule *rule, enum policy_measure measure)
{
	for (size_t i = 0; rule != NULL && i < rule->n_budgets; i++)
		if (rule->budgets[i].measure == measure)
			return true;
	return false;
}

bool spending_wanted(const struct policy_rule *rule)
{
	return counts(rule, POLICY_RESPONSE_FIELD);
}

bool spending_of_request(const struct policy_rule *rule)
{
	return counts(rule, POLICY_REQUEST_FIELD);
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

/* The pointer to @field of the member @name. Free with free(). */
static char *in_envelope(const char *name, const char *field)
{
	struct buf out = BUF_INIT(4 * PATTERN_GLOB_MAX);

	buf_fmt(&out, "/%s", name);
	if (*field == '/') {
		buf_str(&out, field);
		return buf_take(&out);
	}
	buf_char(&out, '/');
	for (; *field != '\0'; field++)
		buf_str(&out, *field == '~' ? "~0" : (char[]){ *field, '\0' });
	return buf_take(&out);
}

/* The budgets' fields, and for events of a stream the same within their envelopes. */
static struct sieve_paths *paths_of(const struct policy_rule *rule, bool stream)
{
	struct sieve_paths *paths = sieve_paths_new();

	for (size_t i = 0; i < rule->n_budgets; i++) {
		const char *field = rule->budgets[i].field;

		if (rule->budgets[i].measure != POLICY_RESPONSE_FIELD)
			continue;
		sieve_paths_add(paths, field, POLICY_AMOUNT_MAX + 1);
		for (size_t k = 0; k < ARRAY_SIZE(envelopes) && stream; k++) {
			cleanup_free char *within = in_envelope(envelopes[k], field);

			sieve_paths_add(paths, within, POLICY_AMOUNT_MAX + 1);
		}
	}
	return paths;
}

static int into_sieve(void *ctx, const char *p, size_t n)
{
	return sieve_feed(ctx, p, n);
}

void spending_begin(struct spending *m, const struct policy_rule *rule, const struct head *head)
{
	static const char type[] = "text/event-stream";
	struct policy_text given = head_field(head, "content-type");

	spending_fini(m);
	*m = (struct spending){ .on = true, .rule = rule, .line = BUF_INIT(SPENDING_LINE_MAX) };
	m->stream =
		given.n >= sizeof(type) - 1 && strncasecmp(given.p, type, sizeof(type) - 1) == 0;
	m->paths = paths_of(rule, m->stream);
	if (m->stream)
		return;
	m->sieve = sieve_new(m->paths, SPENDING_KEPT_MAX);
	m->decoder = body_decoder_new(
		head_field(head, "content-encoding"), SPENDING_DECODED_MAX, into_sieve, m->sieve);
	m->on = m->decoder != NULL;
}

/* What a member costs, roughly in hundreds of bytes. */
static size_t cost_of(const char *key, const json_t *value)
{
	const json_t *one;
	const char *name;
	size_t n = 1 + strlen(key) / 64, i;

	json_array_foreach ((json_t *)(uintptr_t)value, i, one)
		n += cost_of("", one);
	json_object_foreach ((json_t *)(uintptr_t)value, name, one)
		n += cost_of(name, one);
	return n;
}

/* Lays @value over @onto. null says nothing: OpenAI sends it until the last event. */
static void lay_over(struct spending *m, json_t *onto, const char *key, json_t *value)
{
	json_t *there = json_object_get(onto, key), *member;
	const char *name;

	if (json_is_null(value))
		return;
	if (json_is_object(value) && json_is_object(there)) {
		json_object_foreach (value, name, member)
			lay_over(m, there, name, member);
		return;
	}
	m->n_said += cost_of(key, value);
	m->n_said -= there != NULL ? cost_of(key, there) : 0;
	if (m->n_said <= SPENDING_SAID_MAX)
		(void)json_object_set(onto, key, value);
	else
		m->on = false; /* more than any account of what was used */
}

/* Lays what @event says over what was said, when it is at the place that @field leads to. */
static void take_field(struct spending *m, json_t *event, const char *field)
{
	char part[PATTERN_GLOB_MAX + 1];
	const char *name;
	json_t *value;

	(void)snprintf(part, sizeof(part), "%s", field);
	if (*field == '/')
		(void)pointer_part(field, part);
	if (*field == '/' && strcmp(part, "*") == 0)
		json_object_foreach (event, name, value)
			lay_over(m, m->said, name, value);
	else if ((value = json_object_get(event, part)) != NULL)
		lay_over(m, m->said, part, value);
}

static bool says(const json_t *event, const char *field)
{
	return pointer_walk(event, field, NULL, NULL) > 0;
}

static void take_event(struct spending *m, json_t *event)
{
	for (size_t i = 0; i < m->rule->n_budgets; i++) {
		const struct policy_budget *b = &m->rule->budgets[i];

		if (b->measure != POLICY_RESPONSE_FIELD)
			continue;
		if (says(event, b->field))
			take_field(m, event, b->field);
		for (size_t k = 0; k < ARRAY_SIZE(envelopes) && !says(event, b->field); k++)
			if (says(json_object_get(event, envelopes[k]), b->field))
				take_field(m, json_object_get(event, envelopes[k]), b->field);
	}
}

/* One line of a stream: "data: {…}" counts. */
static void take_line(struct spending *m)
{
	struct sieve *sieve;
	json_t *event = NULL;

	if (!m->skips && m->line.n >= 5 && memcmp(m->line.p, "data:", 5) == 0) {
		sieve = sieve_new(m->paths, SPENDING_KEPT_MAX);
		if (sieve_feed(sieve, m->line.p + 5, m->line.n - 5) == 0)
			event = sieve_end(sieve);
		sieve_free(sieve);
	}
	if (m->said == NULL)
		m->said = json_object();
	if (event != NULL)
		take_event(m, event);
	json_decref(event);
	buf_reset(&m->line);
	m->skips = false;
}

static void feed_stream(struct spending *m, const char *p, size_t n)
{
	while (m->on && n > 0) {
		const char *end = memchr(p, '\n', n);
		size_t part = end != NULL ? (size_t)(end - p) : n;

		m->skips = m->skips || part > SPENDING_LINE_MAX - m->line.n;
		if (!m->skips)
			buf_add(&m->line, p, part);
		if (end != NULL)
			take_line(m);
		part += end != NULL;
		p += part;
		n -= part;
	}
}

void spending_feed(struct spending *m, const char *p, size_t n)
{
	if (m->on && m->stream)
		feed_stream(m, p, n);
	else if (m->on)
		m->on = body_decoder_feed(m->decoder, p, n) == 0;
}

json_t *spending_end(struct spending *m)
{
	if (!m->on)
		return NULL;
	if (!m->stream)
		return body_decoder_end(m->decoder) == 0 ? sieve_end(m->sieve) : NULL;
	take_line(m);
	return m->on ? json_incref(m->said) : NULL;
}

void spending_fini(struct spending *m)
{
	body_decoder_free(m->decoder);
	sieve_free(m->sieve);
	sieve_paths_free(m->paths);
	buf_free(&m->line);
	json_decref(m->said);
	*m = (struct spending){ 0 };
}
