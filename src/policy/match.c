/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/match.h"
#include "base/str.h"
#include "codec/httphead.h"
#include "codec/urlpath.h"
#include "policy/parameter.h"
#include "policy/pattern.h"

#include <strings.h>

/*
 * A name may come several times (headers, query, elements of an array), and some readers take another name for it ('_' for '-', capitals, ';' for '&'). A rule that
 * lets something through wants all of them to match and the very name among them, one that denies is content with one: else a second value, or one
 * that only the upstream finds, would smuggle the first one past.
 */
struct tally {
	bool closes;
	size_t exact; /* under the very name */
	size_t seen, matched;
};

static void count(struct tally *t, bool exact, bool matched)
{
	t->exact += exact;
	t->seen++;
	t->matched += matched;
}

static bool tally_holds(const struct tally *t, bool absent)
{
	if (absent)
		return (t->closes ? t->exact : t->seen) == 0;
	return t->closes ? t->matched > 0 : t->exact > 0 && t->matched == t->seen;
}

/* Is @name the field @want for whom '_' is '-'? Both are so in the variables of CGI. */
static bool field_is(struct policy_text name, const char *want)
{
	if (name.n != strlen(want))
		return false;
	for (size_t i = 0; i < name.n; i++) {
		char a = name.p[i] == '_' ? '-' : name.p[i], b = want[i] == '_' ? '-' : want[i];

		if (strncasecmp(&a, &b, 1) != 0)
			return false;
	}
	return true;
}

/* ---- host and port ---------------------------------------------------------------------------------------------------------- */

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

/* One reading of one parameter of a query. @exact: the one that every reader has. @p is not NUL-terminated. */
typedef void parameter_fn(const char *p, size_t n, bool exact, void *ctx);

/* "name=value" parted by '&', and once more by ';' as some readers do. */
static void query_each(const struct policy_request *rq, parameter_fn *each, void *ctx)
{
	const char *p = rq->query.p, *end = p + rq->query.n;

	while (p < end) {
		const char *next = memchr(p, '&', (size_t)(end - p)), *semicolon;

		if (next == NULL)
			next = end;
		each(p, (size_t)(next - p), true, ctx);
		while ((semicolon = memchr(p, ';', (size_t)(next - p))) != NULL) {
			each(p, (size_t)(semicolon - p), false, ctx);
			p = semicolon + 1;
			if (memchr(p, ';', (size_t)(next - p)) == NULL)
				each(p, (size_t)(next - p), false, ctx);
		}
		p = next + 1;
	}
}

/* "name=value" in two, not decoded yet. */
static void parameter_split(
	const char *p, size_t n, struct policy_text *ret_name, struct policy_text *ret_value)
{
	const char *equals = n > 0 ? memchr(p, '=', n) : NULL;
	size_t name_n = equals != NULL ? (size_t)(equals - p) : n;
	size_t value_n = equals != NULL ? n - name_n - 1 : 0;

	*ret_name = (struct policy_text){ p, name_n };
	*ret_value = (struct policy_text){ p + n - value_n, value_n };
}

/* A name or a value decoded into %HTTPHEAD_TARGET_MAX bytes. Return: false when it cannot be. */
static bool text_decode(struct policy_text text, char *out)
{
	return httphead_decode(text.p, text.n, true, out, HTTPHEAD_TARGET_MAX) == 0;
}

/* ---- method ----------------------------------------------------------------------------------------------------------------- */

static bool method_listed(const struct policy_match *m, struct policy_text method, bool exactly)
{
	for (size_t i = 0; i < m->n_methods; i++)
		if (strlen(m->methods[i]) == method.n &&
			(exactly ? memcmp(m->methods[i], method.p, method.n)
				 : strncasecmp(m->methods[i], method.p, method.n)) == 0)
			return true;
	return false;
}

struct methods {
	const struct policy_match *m;
	struct tally tally;
};

static void add_method(struct methods *all, struct policy_text method, bool exact)
{
	count(&all->tally, exact, method_listed(all->m, method, exact && !all->m->closes));
}

/* What cannot be decoded is a method that nobody knows. */
static void parameter_method(const char *p, size_t n, attr_unused bool exact, void *ctx)
{
	char name[HTTPHEAD_TARGET_MAX + 1], value[HTTPHEAD_TARGET_MAX];
	struct policy_text raw_name, raw_value;
	struct methods *all = ctx;

	parameter_split(p, n, &raw_name, &raw_value);
	if (raw_name.n <= HTTPHEAD_TARGET_MAX) {
		parameter_name(p, raw_name.n, name);
		if (!parameter_is(name, "_method"))
			return;
	}
	if (text_decode(raw_name, name) && text_decode(raw_value, value))
		add_method(all, (struct policy_text){ value, strlen(value) }, false);
	else
		count(&all->tally, false, all->m->closes);
}

/* Frameworks let a request say another method than its own, and in a WebSocket anything can be said. */
static bool method_holds(const struct policy_match *m, const struct policy_request *rq)
{
	static const char *const others[] = { "x-http-method-override", "x-http-method",
		"x-method-override" };
	struct methods all = { m, { .closes = m->closes } };

	add_method(&all, rq->method, true);
	for (size_t i = 0; i < rq->n_headers; i++)
		for (size_t k = 0; k < ARRAY_SIZE(others); k++)
			if (field_is(rq->headers[i].name, others[k]))
				add_method(&all, rq->headers[i].value, false);
	query_each(rq, parameter_method, &all);
	if (rq->form_says_method && rq->form_method.n > 0)
		add_method(&all, rq->form_method, false);
	else if (rq->form_says_method || (rq->websocket && !m->websocket))
		count(&all.tally, false, m->closes);
	return tally_holds(&all.tally, false);
}

/* ---- path ------------------------------------------------------------------------------------------------------------------- */

static bool path_listed(const struct policy_match *m, const char *p, size_t n)
{
	for (size_t i = 0; i < m->n_paths; i++)
		if (glob_match(m->paths[i], GLOB_PATH, p, n))
			return true;
	return false;
}

static void make_small(char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] >= 'A' && p[i] <= 'Z')
			p[i] = (char)(p[i] - 'A' + 'a');
}

/* What Windows reads: capitals are small letters, dots and spaces at the end of a name are none. In place. Return: its size. */
static size_t path_folded(char *p, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i <= n; i++) {
		while ((i == n || p[i] == '/') && kept > 0 &&
			(p[kept - 1] == '.' || p[kept - 1] == ' '))
			kept--;
		if (i < n)
			p[kept++] = p[i];
	}
	make_small(p, kept);
	return kept;
}

static bool path_listed_folded(const struct policy_match *m, char *p, size_t n)
{
	char glob[PATTERN_GLOB_MAX + 1];

	n = path_folded(p, n);
	for (size_t i = 0; i < m->n_paths; i++) {
		(void)snprintf(glob, sizeof(glob), "%s", m->paths[i]);
		make_small(glob, strlen(glob));
		if (glob_match(glob, GLOB_PATH, p, n))
			return true;
	}
	return false;
}

/* Does a denial mean the path, read in one of the ways in which an upstream might? */
static bool path_closed(const struct policy_match *m, const struct policy_request *rq, char *other)
{
	static const unsigned int ways[] = { 0, URLPATH_CUT, URLPATH_DECODED,
		URLPATH_CUT | URLPATH_DECODED };

	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		size_t n = urlpath_otherwise(rq->path.p, rq->path.n, ways[i], other);
		bool slash = n > 1 && other[n - 1] == '/';

		if (path_listed(m, other, n) || (slash && path_listed(m, other, n - 1)) ||
			path_listed_folded(m, other, n - slash))
			return true;
	}
	return false;
}

/* Escaped slashes stay within their segment for rules that let something through: names of packages and projects are written so. */
static bool path_holds(const struct policy_match *m, const struct policy_request *rq)
{
	const char *p = rq->path.p;
	size_t n = rq->path.n;
	bool holds = path_listed(m, p, n);
	cleanup_free char *other = NULL;

	if (holds == m->closes || *p != '/')
		return holds;
	if (!m->closes && memchr(p, ';', n) == NULL)
		return holds; /* there is one reading */
	other = xalloc(n + 1);
	if (m->closes)
		return path_closed(m, rq, other);
	return memchr(p, ';', n) == NULL ||
	       path_listed(m, other, urlpath_otherwise(p, n, URLPATH_CUT, other));
}

/* ---- headers ---------------------------------------------------------------------------------------------------------------- */

static bool header_holds(
	const struct name_pattern *want, const struct policy_request *rq, bool closes)
{
	struct tally t = { .closes = closes };

	for (size_t i = 0; i < rq->n_headers; i++) {
		const struct policy_field *f = &rq->headers[i];

		if (field_is(f->name, want->name))
			count(&t, strncasecmp(f->name.p, want->name, f->name.n) == 0,
				one_of_globs(want->globs, want->n_globs, f->value.p, f->value.n));
	}
	return tally_holds(&t, want->absent);
}

bool match_reads_header(const struct policy_match *m, struct policy_text name)
{
	for (size_t i = 0; i < m->n_headers; i++)
		if (field_is(name, m->headers[i].name))
			return true;
	return false;
}

static bool headers_hold(const struct policy_match *m, const struct policy_request *rq)
{
	for (size_t i = 0; i < m->n_headers; i++)
		if (!header_holds(&m->headers[i], rq, m->closes))
			return false;
	return true;
}

/* ---- query ------------------------------------------------------------------------------------------------------------------ */

struct query_walk {
	const struct name_pattern *want;
	struct tally tally;
};

/* Text that cannot be decoded counts as seen, and as matched by a rule that denies; never as the very name that a denial wants to be missing. */
static void count_parameter(const char *p, size_t n, bool exact, void *ctx)
{
	char name[HTTPHEAD_TARGET_MAX], value[HTTPHEAD_TARGET_MAX];
	struct query_walk *walk = ctx;
	const struct name_pattern *want = walk->want;
	struct policy_text raw_name, raw_value;

	parameter_split(p, n, &raw_name, &raw_value);
	if (!text_decode(raw_name, name))
		count(&walk->tally, false, walk->tally.closes);
	else if (!text_decode(raw_value, value))
		count(&walk->tally, exact && str_eq(name, want->name), walk->tally.closes);
	else if (parameter_is(name, want->name))
		count(&walk->tally, exact && str_eq(name, want->name),
			one_of_globs(want->globs, want->n_globs, value, strlen(value)));
}

static bool query_holds(
	const struct name_pattern *want, const struct policy_request *rq, bool closes)
{
	struct query_walk walk = { want, { .closes = closes } };

	query_each(rq, count_parameter, &walk);
	return tally_holds(&walk.tally, want->absent);
}

static bool queries_hold(const struct policy_match *m, const struct policy_request *rq)
{
	for (size_t i = 0; i < m->n_query; i++)
		if (!query_holds(&m->query[i], rq, m->closes))
			return false;
	return true;
}

/* ---- body ------------------------------------------------------------------------------------------------------------------- */

/*
 * The number that readers may find in @v, of any kind that is no list and no object. Text that is longer than was kept of it (field_pattern.reads) may be any number if it begins like
 * one: @ret_any. Return: is there one?
 */
static bool number_in(const json_t *v, double *ret, bool *ret_any)
{
	const char *text = json_string_value(v);
	char *end;

	*ret_any = false;
	if (json_is_number(v)) {
		*ret = json_number_value(v);
		return true;
	}
	if (text == NULL || *text == '\0')
		return false;
	*ret_any = json_string_length(v) > POLICY_AMOUNT_MAX &&
		   strspn(text, " \t\r\n+-.0123456789eE") == json_string_length(v);
	*ret = strtod(text, &end);
	end += strspn(end, " \t\r\n");
	return *ret_any || (end > text && *end == '\0' && strlen(text) == json_string_length(v));
}

/* Many readers take text for the number, or the truth, that it says, and the other way round. */
static bool read_alike(const json_t *a, const json_t *b)
{
	const json_t *truth = json_is_boolean(a) ? a : b, *text = json_is_boolean(a) ? b : a;
	bool any_a, any_b;
	double x, y;

	if (json_is_boolean(truth) && json_is_string(text))
		return strcasecmp(json_string_value(text),
			       json_is_true(truth) ? "true" : "false") == 0;
	return number_in(a, &x, &any_a) && number_in(b, &y, &any_b) && (any_a || any_b || x == y);
}

#define EXACT_MAX 0x1p53 /* beyond it a double stands for several whole numbers */

/* 1.0 is 1. Of large whole numbers each is another one. */
static bool same_value(const json_t *a, const json_t *b)
{
	double x = json_number_value(a), y = json_number_value(b);

	if (json_is_integer(a) == json_is_integer(b))
		return json_equal(a, b);
	return json_is_number(a) && json_is_number(b) && x == y && x > -EXACT_MAX && x < EXACT_MAX;
}

static bool value_listed(const json_t *list, const json_t *value, bool closes)
{
	const json_t *one;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, one)
		if (same_value(one, value) || (closes && read_alike(one, value)))
			return true;
	return false;
}

/* Does a glob match @value? For denials also where that is a truth or a whole number which readers may take as text; how another number was written nobody knows any more. */
static bool globs_hold(const struct field_pattern *want, const json_t *value, bool closes)
{
	char text[64];

	if (json_is_string(value))
		return one_of_globs(want->globs, want->n_globs, json_string_value(value),
			json_string_length(value));
	if (!closes)
		return false;
	if (json_is_boolean(value))
		(void)snprintf(text, sizeof(text), "%s", json_is_true(value) ? "true" : "false");
	else if (json_is_integer(value))
		(void)snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(value));
	else
		return json_is_real(value);
	return one_of_globs(want->globs, want->n_globs, text, strlen(text));
}

static bool value_holds(const struct field_pattern *want, const json_t *value, bool closes)
{
	if (want->ranged) {
		double number = json_number_value(value);

		if (closes && json_is_string(value)) /* many take text for the number in it */
			return true;

		return json_is_number(value) && number >= want->min && number <= want->max;
	}
	if (want->negated && !json_is_string(value)) /* nobody knows how that is read */
		return closes;
	if (want->n_globs > 0)
		return globs_hold(want, value, closes) != want->negated;
	return want->values == NULL || value_listed(want->values, value, closes);
}

struct field_walk {
	const struct field_pattern *want;
	struct tally tally;
};

static bool count_value(const json_t *value, void *ctx)
{
	struct field_walk *walk = ctx;
	bool closes = walk->tally.closes;

	/* to many null is as good as nothing */
	if (!(closes && walk->want->absent && json_is_null(value)))
		count(&walk->tally, true, value_holds(walk->want, value, closes));
	return true;
}

static bool fields_hold(const struct policy_match *m, const struct policy_request *rq)
{
	if (rq->websocket || (rq->has_body && rq->body == NULL))
		return m->closes || m->n_fields == 0;
	for (size_t i = 0; i < m->n_fields; i++) {
		struct field_walk walk = { &m->fields[i], { .closes = m->closes } };

		if (pointer_alike(
			    rq->body, m->fields[i].pointer)) { /* as if it could not be read */
			if (!m->closes)
				return false;
			continue;
		}
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

static bool upgrade_holds(const struct policy_match *m, const struct policy_request *rq)
{
	return rq->websocket == m->websocket;
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
	[MATCH_UPGRADE] = { "upgrade", POLICY_HEAD, upgrade_holds },
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
		[MATCH_UPGRADE] = m->websocket,
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
