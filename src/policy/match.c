/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/match.h"
#include "base/str.h"
#include "codec/httphead.h"
#include "policy/pattern.h"

#include <strings.h>

/*
 * A name may come several times (headers, query, elements of an array). A rule that lets something through wants all of them to match,
 * one that denies is content with one: else a second value would smuggle the first one past.
 */
struct tally {
	bool closes;
	size_t seen, matched;
};

static bool tally_holds(const struct tally *t, bool absent)
{
	if (absent)
		return t->seen == 0;
	return t->closes ? t->matched > 0 : t->seen > 0 && t->matched == t->seen;
}

static bool one_of_globs(char *const *globs, size_t n, const char *p, size_t size)
{
	for (size_t i = 0; i < n; i++)
		if (glob_match(globs[i], GLOB_TEXT, p, size))
			return true;
	return n == 0;
}

static bool host_holds(const struct policy_match *m, const struct policy_request *rq)
{
	for (size_t i = 0; i < m->n_hosts; i++)
		if (host_pattern_match(m->hosts[i], rq->host))
			return true;
	return m->n_hosts == 0;
}

static bool port_holds(const struct policy_match *m, const struct policy_request *rq)
{
	for (size_t i = 0; i < m->n_ports; i++)
		if (rq->port >= m->ports[i].first && rq->port <= m->ports[i].last)
			return true;
	return m->n_ports == 0;
}

static bool method_holds(const struct policy_match *m, const struct policy_request *rq)
{
	for (size_t i = 0; i < m->n_methods; i++)
		if (strlen(m->methods[i]) == rq->method.n &&
			memcmp(m->methods[i], rq->method.p, rq->method.n) == 0)
			return true;
	return m->n_methods == 0;
}

static bool path_holds(const struct policy_match *m, const struct policy_request *rq)
{
	for (size_t i = 0; i < m->n_paths; i++)
		if (glob_match(m->paths[i], GLOB_PATH, rq->path.p, rq->path.n))
			return true;
	return m->n_paths == 0;
}

static bool header_holds(
	const struct name_pattern *want, const struct policy_request *rq, bool closes)
{
	struct tally t = { .closes = closes };

	for (size_t i = 0; i < rq->n_headers; i++) {
		const struct policy_field *f = &rq->headers[i];

		if (f->name.n != strlen(want->name) ||
			strncasecmp(f->name.p, want->name, f->name.n) != 0)
			continue;
		t.seen++;
		t.matched += one_of_globs(want->globs, want->n_globs, f->value.p, f->value.n);
	}
	return tally_holds(&t, want->absent);
}

static bool headers_hold(const struct policy_match *m, const struct policy_request *rq)
{
	for (size_t i = 0; i < m->n_headers; i++)
		if (!header_holds(&m->headers[i], rq, m->closes))
			return false;
	return true;
}

/* One "name=value" of a query. Text that cannot be decoded counts as seen, and as matched by a rule that denies. */
static void query_part(const struct name_pattern *want, const char *p, size_t n, struct tally *t)
{
	char name[HTTPHEAD_TARGET_MAX], value[HTTPHEAD_TARGET_MAX];
	const char *equals = memchr(p, '=', n);
	size_t name_n = equals != NULL ? (size_t)(equals - p) : n;
	size_t value_n = equals != NULL ? n - name_n - 1 : 0;

	if (httphead_decode(p, name_n, true, name, sizeof(name)) < 0 ||
		httphead_decode(p + n - value_n, value_n, true, value, sizeof(value)) < 0) {
		t->seen++;
		t->matched += t->closes;
		return;
	}
	if (!str_eq(name, want->name))
		return;
	t->seen++;
	t->matched += one_of_globs(want->globs, want->n_globs, value, strlen(value));
}

static bool query_holds(
	const struct name_pattern *want, const struct policy_request *rq, bool closes)
{
	struct tally t = { .closes = closes };
	const char *p = rq->query.p, *end = p + rq->query.n;

	while (p < end) {
		const char *next = memchr(p, '&', (size_t)(end - p));

		if (next == NULL)
			next = end;
		query_part(want, p, (size_t)(next - p), &t);
		p = next + 1;
	}
	return tally_holds(&t, want->absent);
}

static bool queries_hold(const struct policy_match *m, const struct policy_request *rq)
{
	for (size_t i = 0; i < m->n_query; i++)
		if (!query_holds(&m->query[i], rq, m->closes))
			return false;
	return true;
}

static bool value_listed(const json_t *list, const json_t *value)
{
	const json_t *one;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, one)
		if (json_is_number(one) && json_is_number(value)
				? json_number_value(one) == json_number_value(value)
				: json_equal(one, value))
			return true;
	return false;
}

static bool value_holds(const struct field_pattern *want, const json_t *value)
{
	if (want->ranged) {
		double number = json_number_value(value);

		return json_is_number(value) && number >= want->min && number <= want->max;
	}
	if (want->n_globs > 0)
		return json_is_string(value) &&
		       one_of_globs(want->globs, want->n_globs, json_string_value(value),
			       json_string_length(value));
	return want->values == NULL || value_listed(want->values, value);
}

struct field_walk {
	const struct field_pattern *want;
	struct tally tally;
};

static bool count_value(const json_t *value, void *ctx)
{
	struct field_walk *walk = ctx;

	walk->tally.seen++;
	walk->tally.matched += value_holds(walk->want, value);
	return true;
}

static bool fields_hold(const struct policy_match *m, const struct policy_request *rq)
{
	if (rq->has_body && rq->body == NULL)
		return m->closes || m->n_fields == 0;
	for (size_t i = 0; i < m->n_fields; i++) {
		struct field_walk walk = { &m->fields[i], { .closes = m->closes } };

		(void)pointer_walk(rq->body, m->fields[i].pointer, count_value, &walk);
		if (!tally_holds(&walk.tally, m->fields[i].absent))
			return false;
	}
	return true;
}

static bool transport_holds(const struct policy_match *m, const struct policy_request *rq)
{
	return (m->transports & (1U << rq->transport)) != 0;
}

static bool record_holds(const struct policy_match *m, const struct policy_request *rq)
{
	return (m->records & (1U << rq->record)) != 0;
}

/* In the order of the stages at which they are known. */
static const struct condition {
	const char *name;
	enum policy_stage known;
	bool (*holds)(const struct policy_match *m, const struct policy_request *rq);
} conditions[MATCH_MEMBER_COUNT] = {
	[MATCH_HOST] = { "host", POLICY_NAME, host_holds },
	[MATCH_PORT] = { "port", POLICY_CONNECT, port_holds },
	[MATCH_TRANSPORT] = { "transport", POLICY_HEAD, transport_holds },
	[MATCH_RECORD] = { "type", POLICY_HEAD, record_holds },
	[MATCH_METHOD] = { "method", POLICY_HEAD, method_holds },
	[MATCH_PATH] = { "path", POLICY_HEAD, path_holds },
	[MATCH_QUERY] = { "query", POLICY_HEAD, queries_hold },
	[MATCH_HEADERS] = { "headers", POLICY_HEAD, headers_hold },
	[MATCH_JSON] = { "json", POLICY_BODY, fields_hold },
};

void match_seal(struct policy_match *m)
{
	const bool asked[MATCH_MEMBER_COUNT] = {
		[MATCH_HOST] = m->n_hosts > 0,
		[MATCH_PORT] = m->n_ports > 0,
		[MATCH_TRANSPORT] = m->transports != POLICY_TRANSPORTS_ALL,
		[MATCH_RECORD] = m->records != 0,
		[MATCH_METHOD] = m->n_methods > 0,
		[MATCH_PATH] = m->n_paths > 0,
		[MATCH_QUERY] = m->n_query > 0,
		[MATCH_HEADERS] = m->n_headers > 0,
		[MATCH_JSON] = m->n_fields > 0,
	};

	for (unsigned int i = 0; i < MATCH_MEMBER_COUNT; i++)
		m->asked |= asked[i] ? 1U << i : 0;
}

enum match_result match_test(
	const struct policy_match *m, const struct policy_request *rq, const char **ret_because)
{
	for (unsigned int i = 0; i < MATCH_MEMBER_COUNT; i++) {
		*ret_because = conditions[i].name;
		if ((m->asked & 1U << i) == 0)
			continue;
		if (rq->stage < conditions[i].known)
			return MATCH_LATER;
		if (!conditions[i].holds(m, rq))
			return MATCH_NO;
	}
	*ret_because = "";
	return MATCH_YES;
}

static void free_list(char **list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(list[i]);
	free(list);
}

static void free_names(struct name_pattern *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(list[i].name);
		free_list(list[i].globs, list[i].n_globs);
	}
	free(list);
}

void match_free(struct policy_match *m)
{
	if (m == NULL)
		return;
	free_list(m->hosts, m->n_hosts);
	free_list(m->methods, m->n_methods);
	free_list(m->paths, m->n_paths);
	free(m->ports);
	free_names(m->headers, m->n_headers);
	free_names(m->query, m->n_query);
	for (size_t i = 0; i < m->n_fields; i++) {
		free(m->fields[i].pointer);
		free_list(m->fields[i].globs, m->fields[i].n_globs);
		json_decref(m->fields[i].values);
	}
	free(m->fields);
	free(m);
}
