/* SPDX-License-Identifier: Apache-2.0 */
/* The member `match` of a rule. */
#include "base/str.h"
#include "codec/httphead.h"
#include "policy/compile.h"
#include "policy/pattern.h"

const char *compile_host(const char *s)
{
	return host_pattern_valid(s)
		       ? host_pattern_flaw(s)
		       : "is no host (\"a.example\", \"*.a.example\", \".a.example\", \"*\", an address or network; lower case)";
}

static const char *check_method(const char *s)
{
	return *s != '\0' && strlen(s) <= POLICY_METHOD_MAX &&
			       strspn(s, POLICY_METHOD_CHARACTERS) == strlen(s)
		       ? NULL
		       : "is no method in capitals";
}

static const char *check_path(const char *s)
{
	return glob_valid(s, GLOB_PATH) ? glob_path_flaw(s)
					: "is no path (begins with '/' or '**')";
}

static const char *check_text(const char *s)
{
	return glob_valid(s, GLOB_TEXT) ? NULL : "is too long";
}

static int add_port(struct reader *r, const json_t *v, struct policy_match *m)
{
	struct policy_port_range *range = &m->ports[m->n_ports];
	const char *text = json_string_value(v);
	uint64_t first = 0, last = 0;
	char low[8];
	const char *dash = text != NULL ? strchr(text, '-') : NULL;

	if (json_is_integer(v)) {
		first = last = json_integer_value(v) > 0 ? (uint64_t)json_integer_value(v) : 0;
	} else if (text != NULL && str_eq(text, "any")) {
		first = 1;
		last = UINT16_MAX;
	} else if (dash != NULL && (size_t)(dash - text) < sizeof(low)) {
		(void)snprintf(low, sizeof(low), "%.*s", (int)(dash - text), text);
		if (str_to_u64(low, 1, UINT16_MAX, &first) < 0 ||
			str_to_u64(dash + 1, 1, UINT16_MAX, &last) < 0)
			first = 0;
	}
	if (first == 0 || last > UINT16_MAX || first > last)
		return reader_fail(r, "must be a port, a range (\"8000-8999\") or \"any\"");
	*range = (struct policy_port_range){ (uint16_t)first, (uint16_t)last };
	m->n_ports++;
	return 0;
}

static int read_ports(struct reader *r, const json_t *o, struct policy_match *m)
{
	const json_t *v = json_object_get(o, "port");
	size_t n = json_is_array(v) ? json_array_size(v) : 1;
	size_t mark = reader_enter(r, ".port");
	int rc = 0;

	if (v != NULL && (n == 0 || n > POLICY_PATTERNS_MAX))
		return reader_fail(r, "must hold 1 to %d ports", POLICY_PATTERNS_MAX);
	m->ports = xalloc((n + 4) * sizeof(*m->ports)); /* room for the usual ones */
	for (size_t i = 0; v != NULL && rc == 0 && i < n; i++)
		rc = add_port(r, json_is_array(v) ? json_array_get(v, i) : v, m);
	if (rc == 0)
		reader_leave(r, mark);
	return rc;
}

/* A value that a header or query parameter must have: true (any), null (must be missing), a glob or a list of them. */
static int read_name(
	struct reader *r, const json_t *o, const char *key, bool headers, struct name_pattern *p)
{
	const json_t *v = json_object_get(o, key);

	p->name = str_dup(key);
	if (headers && httphead_is_hop(key, strlen(key)))
		return reader_fail(r,
			"'%s' concerns the connection alone: the gateway writes it anew, no rule sees it",
			key);
	p->absent = json_is_null(v);
	if (p->absent || json_is_true(v))
		return 0;
	return reader_list(r, o, key, check_text, &p->globs, &p->n_globs);
}

static int read_names(struct reader *r, const json_t *o, const char *member,
	struct name_pattern **ret, size_t *ret_n)
{
	const json_t *names = json_object_get(o, member), *value;
	size_t mark = reader_enter(r, ".%s", member);
	const char *key;

	if (names != NULL &&
		(!json_is_object(names) || json_object_size(names) > POLICY_PATTERNS_MAX))
		return reader_fail(r, "must be an object of at most %d names", POLICY_PATTERNS_MAX);
	*ret = xalloc((json_object_size(names) + 1) * sizeof(**ret));
	json_object_foreach ((json_t *)(uintptr_t)names, key, value) {
		int rc = read_name(r, names, key, str_eq(member, "headers"), &(*ret)[(*ret_n)++]);

		if (rc < 0)
			return rc;
	}
	reader_leave(r, mark);
	return 0;
}

static int read_range(struct reader *r, const json_t *v, struct field_pattern *p)
{
	const json_t *min = json_object_get(v, "min"), *max = json_object_get(v, "max");

	p->ranged = min != NULL || max != NULL;
	p->min = min != NULL ? json_number_value(min) : -1e308;
	p->max = max != NULL ? json_number_value(max) : 1e308;
	if ((min != NULL && !json_is_number(min)) || (max != NULL && !json_is_number(max)) ||
		p->min > p->max)
		return reader_fail(r, "min and max must be numbers, min not above max");
	return 0;
}

/* Forms of a condition that only one of could be heeded. */
static int check_forms(struct reader *r, const json_t *v, const struct field_pattern *p)
{
	if (p->negated && json_object_size(v) != 1)
		return reader_fail(r, "not stands alone");
	if (p->absent && json_object_size(v) != 1)
		return reader_fail(r, "present: false stands alone");
	if (p->ranged && p->n_globs > 0)
		return reader_fail(r, "glob, of text, stands without min and max, of numbers");
	return 0;
}

static int read_condition(struct reader *r, const json_t *v, struct field_pattern *p)
{
	bool present = true;
	int rc = reader_object(r, v, KNOWN("glob", "not", "min", "max", "present"));

	p->negated = json_object_get(v, "not") != NULL;
	if (rc == 0)
		rc = reader_list(
			r, v, p->negated ? "not" : "glob", check_text, &p->globs, &p->n_globs);
	if (rc == 0)
		rc = reader_bool(r, v, "present", &present);
	p->absent = !present;
	if (rc == 0)
		rc = read_range(r, v, p);
	return rc == 0 ? check_forms(r, v, p) : rc;
}

/* The condition on one body field: true, null, a scalar, a list of scalars, {"glob": …}, {"not": …}, {"min": …, "max": …}, {"present": …}. */
static int read_field(struct reader *r, const json_t *v, struct field_pattern *p)
{
	const json_t *one;
	size_t i;

	if (json_is_object(v))
		return read_condition(r, v, p);
	p->absent = json_is_null(v);
	if (p->absent)
		return 0;
	p->values = json_is_array(v) ? json_deep_copy(v) : json_pack("[O]", v);
	if (json_array_size(p->values) > POLICY_PATTERNS_MAX)
		return reader_fail(r, "must hold at most %d values", POLICY_PATTERNS_MAX);
	json_array_foreach (p->values, i, one)
		if (json_is_object(one) || json_is_array(one))
			return reader_fail(r, "must be a scalar or a list of them");
	return 0;
}

/* How much of a string decides: as far as the globs look, one byte more than the values have, or a number. */
static size_t field_reads(const struct field_pattern *p)
{
	const json_t *one;
	size_t most = 0, i;

	for (i = 0; i < p->n_globs; i++) {
		size_t reads = glob_reads(p->globs[i]);

		most = reads > most ? reads : most;
	}
	json_array_foreach (p->values, i, one) {
		size_t reads = json_string_length(one) + 1;

		if (reads <= POLICY_AMOUNT_MAX) /* as far as it may be a number for some reader */
			reads = POLICY_AMOUNT_MAX + 1;
		most = reads > most ? reads : most;
	}
	return most;
}

static int read_fields(struct reader *r, const json_t *o, struct policy_match *m)
{
	const json_t *fields = json_object_get(o, "json"), *value;
	size_t mark = reader_enter(r, ".json");
	const char *key;

	if (fields != NULL &&
		(!json_is_object(fields) || json_object_size(fields) > POLICY_PATTERNS_MAX))
		return reader_fail(
			r, "must be an object of at most %d fields", POLICY_PATTERNS_MAX);
	m->fields = xalloc((json_object_size(fields) + 1) * sizeof(*m->fields));
	json_object_foreach ((json_t *)(uintptr_t)fields, key, value) {
		struct field_pattern *p = &m->fields[m->n_fields++];
		size_t at = reader_enter(r, "[\"%s\"]", key);
		int rc;

		p->pointer = str_dup(key);
		if (!pointer_valid(key))
			return reader_fail(r, "is neither a member name nor a JSON pointer");
		rc = read_field(r, value, p);
		if (rc < 0)
			return rc;
		p->reads = field_reads(p);
		reader_leave(r, at);
	}
	reader_leave(r, mark);
	return 0;
}

static int read_transport(struct reader *r, const json_t *o, struct policy_match *m)
{
	const char *words[POLICY_TRANSPORT_COUNT];
	unsigned int transport = POLICY_HTTP;
	int rc;

	for (unsigned int i = 0; i < POLICY_TRANSPORT_COUNT; i++)
		words[i] = policy_transport_name((enum policy_transport)i);
	rc = reader_choice(r, o, "transport", words, POLICY_TRANSPORT_COUNT, &transport);
	m->transports = 1U << transport;
	return rc;
}

/* Whoever overlooks what a request for a WebSocket asks for has a GET, and nothing else may be read into it. */
static int read_upgrade(struct reader *r, const json_t *o, struct policy_match *m)
{
	static const char *const words[] = { "websocket" };
	unsigned int chosen = ARRAY_SIZE(words);
	int rc = reader_choice(r, o, "upgrade", words, ARRAY_SIZE(words), &chosen);

	m->websocket = chosen == 0;
	if (rc < 0 || !m->websocket)
		return rc;
	if (m->n_methods + m->n_fields > 0)
		return reader_fail(r,
			"upgrade stands without method and json: a WebSocket is asked for by GET, and what is said in it no rule reads");
	m->methods = xalloc(sizeof(*m->methods));
	m->methods[m->n_methods++] = str_dup("GET");
	return 0;
}

static const char *check_record(const char *s)
{
	for (unsigned int i = 0; i < POLICY_RECORD_COUNT; i++)
		if (str_eq(s, policy_record_name((enum policy_record)i)))
			return NULL;
	return "is none of SRV, TXT, MX";
}

/* Which records; without `type` all of them. */
static int read_records(struct reader *r, const json_t *o, struct policy_match *m)
{
	bool dns = m->transports == 1U << POLICY_DNS;
	char **names = NULL;
	size_t n = 0;
	int rc = reader_list(r, o, "type", check_record, &names, &n);

	if (rc == 0 && n > 0 && !dns)
		rc = reader_fail(r, "type is for transport dns");
	for (unsigned int i = 0; i < POLICY_RECORD_COUNT; i++) {
		bool named = n == 0;

		for (size_t k = 0; k < n; k++)
			named |= str_eq(names[k], policy_record_name((enum policy_record)i));
		m->records |= dns && named ? 1U << i : 0;
	}
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	free(names);
	return rc;
}

/* A name is asked outside as it stands: a rule for every name would carry out whatever is written into one. */
static int check_names_asked(struct reader *r, const struct policy_match *m)
{
	if (m->transports != 1U << POLICY_DNS)
		return 0;
	if (m->n_ports > 0)
		return reader_fail(r, "transport dns has no port");
	for (size_t i = 0; i < m->n_hosts && !m->closes; i++)
		if (str_eq(m->hosts[i], "*"))
			return reader_fail(r,
				"transport dns needs names: with \"*\" any name would be asked outside");
	return 0;
}

/*
 * What a rule means that does not say it: http on its usual ports. A denial without transport or port means all of them, and so does a deny rule that
 * only names a host: its name is not even looked up.
 */
static int default_ports(struct reader *r, const json_t *o, struct policy_match *m)
{
	static const struct {
		enum policy_transport transport;
		uint16_t ports[4];
	} usual[] = { { POLICY_HTTP, { 80, 443 } }, { POLICY_TLS, { 443 } },
		{ POLICY_SMTP, { 25, 465, 587 } }, { POLICY_DNS, { POLICY_DNS_PORT } } };
	bool http_only = m->n_methods + m->n_paths + m->n_query + m->n_headers + m->n_fields > 0;

	if (http_only && m->transports != 1U << POLICY_HTTP)
		return reader_fail(
			r, "method, path, query, headers, json and upgrade are for transport http");
	if (m->closes && json_object_get(o, "transport") == NULL && !http_only)
		m->transports = POLICY_TRANSPORTS_ALL;
	if (m->closes || m->n_ports > 0)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
		for (size_t k = 0; m->transports == 1U << usual[i].transport && k < 4 &&
				   usual[i].ports[k] != 0;
			k++)
			m->ports[m->n_ports++] =
				(struct policy_port_range){ usual[i].ports[k], usual[i].ports[k] };
	if (m->n_ports == 0)
		return reader_fail(r, "transport tcp needs a port");
	return 0;
}

int compile_match(struct reader *r, const json_t *rule, struct policy_rule *ret)
{
	const json_t *o = json_object_get(rule, "match");
	struct policy_match *m = ret->match = xnew(struct policy_match);
	size_t mark = reader_enter(r, ".match");
	int rc = reader_object(r, o,
		KNOWN("host", "port", "transport", "method", "path", "query", "headers", "json",
			"type", "upgrade"));

	m->closes = ret->action == POLICY_DENY;
	if (rc == 0)
		rc = reader_list(r, o, "host", compile_host, &m->hosts, &m->n_hosts);
	if (rc == 0 && m->n_hosts == 0)
		rc = reader_fail(r, "needs a host (\"*\" for every one)");
	if (rc == 0)
		rc = read_ports(r, o, m);
	if (rc == 0)
		rc = read_transport(r, o, m);
	if (rc == 0)
		rc = read_records(r, o, m);
	if (rc == 0)
		rc = check_names_asked(r, m);
	if (rc == 0)
		rc = reader_list(r, o, "method", check_method, &m->methods, &m->n_methods);
	if (rc == 0)
		rc = reader_list(r, o, "path", check_path, &m->paths, &m->n_paths);
	if (rc == 0)
		rc = read_names(r, o, "query", &m->query, &m->n_query);
	if (rc == 0)
		rc = read_names(r, o, "headers", &m->headers, &m->n_headers);
	if (rc == 0)
		rc = read_fields(r, o, m);
	if (rc == 0)
		rc = read_upgrade(r, o, m);
	if (rc == 0)
		rc = default_ports(r, o, m);
	if (rc == 0)
		match_seal(m);
	reader_leave(r, rc == 0 ? mark : strlen(r->where));
	return rc;
}
