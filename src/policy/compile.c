/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A document becomes rules. Presets are documents too: their rules are appended after the document's own, in the order in which it names them.
 * Whatever is read goes into the policy at once, so that policy_unref() releases it also when something later is wrong.
 */
#include "policy/compile.h"
#include "base/str.h"
#include "policy/pattern.h"
#include "policy/reader.h"

#define OFFERED_MAX 16 /* secrets of all presets together */

#include <arpa/inet.h>

static int read_action(struct reader *r, const json_t *o, enum policy_action *ret)
{
	const char *words[POLICY_ACTION_COUNT];
	unsigned int action = POLICY_ACTION_COUNT;
	int rc;

	for (unsigned int i = 0; i < POLICY_ACTION_COUNT; i++)
		words[i] = policy_action_name((enum policy_action)i);
	rc = reader_choice(r, o, "action", words, POLICY_ACTION_COUNT, &action);
	if (rc == 0 && action == POLICY_ACTION_COUNT)
		rc = reader_fail(r, "needs an action");
	*ret = (enum policy_action)action;
	return rc;
}

/* "address:port", "[address]:port" */
static bool upstream_valid(const char *s)
{
	char host[INET6_ADDRSTRLEN];
	struct in6_addr address;
	const char *colon = strrchr(s, ':');
	size_t n = colon != NULL ? (size_t)(colon - s) : 0;
	bool six = *s == '[';
	uint64_t port;

	if (n < 3 || n >= sizeof(host) + 2 || str_to_u64(colon + 1, 1, UINT16_MAX, &port) < 0)
		return false;
	if (six && s[n - 1] != ']')
		return false;
	(void)snprintf(host, sizeof(host), "%.*s", (int)(six ? n - 2 : n), six ? s + 1 : s);
	return inet_pton(six ? AF_INET6 : AF_INET, host, &address) == 1;
}

static int read_upstream(struct reader *r, const json_t *o, struct policy_rule *ret)
{
	int rc = reader_string(r, o, "upstream", &ret->upstream);

	if (rc == 0 && ret->upstream != NULL && !upstream_valid(ret->upstream))
		rc = reader_fail(r, "upstream must be \"address:port\"");
	if (rc == 0)
		rc = reader_bool(r, o, "private", &ret->private_addresses);
	return rc;
}

/* What becomes of a secret's placeholder in a body, where it is not bound to: "stop" the request, or "pass" it as it is. */
static int read_placeholders(struct reader *r, const json_t *o, struct policy_rule *ret)
{
	static const char *const words[] = { "stop", "pass" };
	unsigned int chosen = 0;
	int rc = reader_choice(r, o, "placeholders", words, ARRAY_SIZE(words), &chosen);

	ret->passes_placeholders = rc == 0 && chosen == 1;
	return rc;
}

static int check_transport(struct reader *r, const struct policy_rule *rule)
{
	bool smtp = rule->match->transports == 1U << POLICY_SMTP;
	bool http = rule->match->transports == 1U << POLICY_HTTP;

	if (rule->action == POLICY_DENY)
		return 0;
	if (smtp != (rule->action == POLICY_MAILBOX))
		return reader_fail(r, "transport smtp and action mailbox go together");
	if (rule->match->transports == 1U << POLICY_DNS && rule->action != POLICY_ALLOW)
		return reader_fail(r, "transport dns is for allow and deny");
	if (!http && (rule->action == POLICY_FAULT || rule->action == POLICY_TRANSFORM))
		return reader_fail(r, "this action is for transport http");
	return 0;
}

static int read_budget(struct reader *r, const json_t *rule, struct policy_rule *ret)
{
	size_t mark = reader_enter(r, ".budget");
	const json_t *budget = json_object_get(rule, "budget");
	int rc = 0;

	if (budget != NULL)
		rc = compile_budget(r, budget, ret);
	if (rc == 0)
		reader_leave(r, mark);
	return rc;
}

static int read_rule(struct reader *r, const json_t *o, const char *preset, size_t number,
	struct policy_rule *ret)
{
	int rc = reader_object(r, o,
		KNOWN("name", "match", "action", "deny", "fault", "transform", "budget", "upstream",
			"private", "placeholders"));

	if (rc == 0)
		rc = read_action(r, o, &ret->action);
	if (rc == 0)
		rc = reader_string(r, o, "name", &ret->name);
	if (rc < 0)
		return rc;
	if (ret->name == NULL)
		ret->name = str_dupf("%s%srule-%zu", preset != NULL ? preset : "",
			preset != NULL ? "/" : "", number + 1);
	ret->preset = str_dup(preset);
	rc = compile_match(r, o, ret);
	if (rc == 0)
		rc = compile_action(r, o, ret);
	if (rc == 0)
		rc = check_transport(r, ret);
	if (rc == 0)
		rc = read_budget(r, o, ret);
	if (rc == 0)
		rc = read_upstream(r, o, ret);
	if (rc == 0)
		rc = read_placeholders(r, o, ret);
	return rc;
}

static int check_names(struct reader *r, const struct policy *p)
{
	for (size_t i = 0; i < p->n_rules; i++)
		for (size_t k = i + 1; k < p->n_rules; k++)
			if (str_eq(p->rules[i].name, p->rules[k].name))
				return reader_fail(
					r, "two rules are called '%s'", p->rules[i].name);
	return 0;
}

static int read_rules(
	struct reader *r, const json_t *document, const char *preset, struct policy *p)
{
	const json_t *rules = json_object_get(document, "rules");
	size_t n = json_array_size(rules);

	if (rules != NULL && !json_is_array(rules))
		return reader_fail(r, "rules must be a list");
	if (p->n_rules + n > POLICY_RULES_MAX)
		return reader_fail(r, "more than %d rules", POLICY_RULES_MAX);
	for (size_t i = 0; i < n; i++) {
		size_t mark = reader_enter(r, ".rules[%zu]", i);
		int rc = read_rule(r, json_array_get(rules, i), preset, i, &p->rules[p->n_rules++]);

		if (rc < 0)
			return rc;
		reader_leave(r, mark);
	}
	return 0;
}

static int read_place(struct reader *r, const json_t *o, struct policy_place *ret)
{
	static const char *const members[] = { [POLICY_IN_HEADER] = "header",
		[POLICY_IN_QUERY] = "query",
		[POLICY_IN_BODY] = "json",
		[POLICY_IN_FORM] = "form",
		[POLICY_IN_SIGV4] = "sigv4" };
	int rc = reader_object(r, o, members, ARRAY_SIZE(members));

	if (rc == 0 && json_object_size(o) != 1)
		rc = reader_fail(r, "names one of header, query, json, form, sigv4");
	for (unsigned int i = 0; rc == 0 && i < ARRAY_SIZE(members); i++) {
		if (json_object_get(o, members[i]) == NULL)
			continue;
		ret->surface = (enum policy_surface)i;
		rc = reader_string(r, o, members[i], &ret->name);
	}
	if (rc == 0 && ret->surface == POLICY_IN_BODY && !pointer_valid(ret->name))
		rc = reader_fail(r, "json must be a member name or a JSON pointer");
	return rc;
}

static int read_secret(struct reader *r, const json_t *o, struct policy_secret *ret)
{
	const json_t *places = json_object_get(o, "in");
	int rc = reader_object(r, o, KNOWN("name", "hosts", "in"));

	if (rc == 0)
		rc = reader_string(r, o, "name", &ret->name);
	if (rc == 0 && (ret->name == NULL || *ret->name == '\0'))
		rc = reader_fail(r, "needs a name");
	if (rc == 0)
		rc = reader_list(r, o, "hosts", compile_host, &ret->hosts, &ret->n_hosts);
	if (rc == 0 && (ret->n_hosts == 0 || json_array_size(places) == 0))
		rc = reader_fail(r, "needs hosts and places (in)");
	if (rc == 0 && json_array_size(places) > POLICY_PATTERNS_MAX)
		rc = reader_fail(r, "has more than %d places", POLICY_PATTERNS_MAX);
	if (rc < 0)
		return rc;
	ret->places = xalloc(json_array_size(places) * sizeof(*ret->places));
	for (size_t i = 0; rc == 0 && i < json_array_size(places); i++) {
		(void)reader_enter(r, ".in[%zu]", i);
		rc = read_place(r, json_array_get(places, i), &ret->places[ret->n_places++]);
		if (rc == 0)
			*strrchr(r->where, '.') = '\0';
	}
	return rc;
}

static bool binds(const struct policy *p, const char *name)
{
	for (size_t i = 0; i < p->n_secrets; i++)
		if (str_eq(p->secrets[i].name, name))
			return true;
	return false;
}

static int read_secrets(struct reader *r, const json_t *document, struct policy *p)
{
	const json_t *secrets = json_object_get(document, "secrets");
	size_t n = json_array_size(secrets);

	if (secrets != NULL && (!json_is_array(secrets) || n > POLICY_SECRETS_MAX))
		return reader_fail(r, "secrets must be a list of at most %d", POLICY_SECRETS_MAX);
	for (size_t i = 0; i < n; i++) {
		size_t mark = reader_enter(r, ".secrets[%zu]", i);
		int rc = read_secret(r, json_array_get(secrets, i), &p->secrets[p->n_secrets++]);

		if (rc < 0)
			return rc;
		reader_leave(r, mark);
	}
	return 0;
}

/* What the document says of a secret of this name goes before. */
static int read_offered(struct reader *r, const json_t *preset, struct policy *p)
{
	const json_t *secrets = json_object_get(preset, "secrets");
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < json_array_size(secrets); i++) {
		const json_t *o = json_array_get(secrets, i);

		if (binds(p, json_string_value(json_object_get(o, "name"))))
			continue;
		p->secrets[p->n_secrets].offered = true;
		rc = read_secret(r, o, &p->secrets[p->n_secrets++]);
	}
	return rc;
}

static int read_preset(struct reader *r, const char *name, struct policy *p)
{
	json_t *document = json_loads(policy_preset(name), 0, NULL);
	int rc = read_rules(r, document, name, p);

	if (rc == 0)
		rc = read_offered(r, document, p);
	json_decref(document);
	return rc;
}

static const char *check_preset(const char *s)
{
	return policy_preset(s) != NULL ? NULL : "is no preset";
}

static int read_presets(struct reader *r, const json_t *document, struct policy *p)
{
	char **names = NULL;
	size_t n = 0;
	int rc = reader_list(r, document, "preset", check_preset, &names, &n);

	for (size_t i = 0; i < n; i++) {
		if (rc == 0)
			rc = read_preset(r, names[i], p);
		free(names[i]);
	}
	free(names);
	return rc;
}

/* Return: the rule of a preset that is called @name, or NULL. */
static struct policy_rule *preset_rule(struct policy *p, const char *name)
{
	for (size_t i = 0; i < p->n_rules; i++)
		if (p->rules[i].preset != NULL && str_eq(p->rules[i].name, name))
			return &p->rules[i];
	return NULL;
}

/* Budgets of rules that come from presets, by their names. */
static int read_budgets(struct reader *r, const json_t *document, struct policy *p)
{
	const json_t *budgets = json_object_get(document, "budgets"), *one;
	const char *name;

	if (budgets != NULL && !json_is_object(budgets))
		return reader_fail(r, "budgets must be an object");
	json_object_foreach ((json_t *)(uintptr_t)budgets, name, one) {
		size_t mark = reader_enter(r, ".budgets[\"%s\"]", name);
		struct policy_rule *rule = preset_rule(p, name);
		int rc;

		if (rule == NULL)
			return reader_fail(r, "is no rule of a preset that is used here");
		rc = compile_budget(r, one, rule);
		if (rc < 0)
			return rc;
		reader_leave(r, mark);
	}
	return 0;
}

static int by_first(const void *a, const void *b)
{
	return ((const struct policy_port_range *)a)->first -
	       ((const struct policy_port_range *)b)->first;
}

static void join_ports(struct policy *p)
{
	size_t n = 0;

	qsort(p->ports, p->n_ports, sizeof(*p->ports), by_first);
	for (size_t i = 0; i < p->n_ports; i++) {
		struct policy_port_range *last = n > 0 ? &p->ports[n - 1] : NULL;

		if (last != NULL && p->ports[i].first <= last->last + 1) {
			if (p->ports[i].last > last->last)
				last->last = p->ports[i].last;
		} else {
			p->ports[n++] = p->ports[i];
		}
	}
	p->n_ports = n;
}

/* The gateway answers on its own port; nobody connects to that of a rule. */
static bool opens_ports(const struct policy_match *m)
{
	return !m->closes && m->transports != 1U << POLICY_DNS;
}

static void collect_ports(struct policy *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n_rules; i++)
		n += p->rules[i].match->n_ports;
	p->ports = xalloc((n + 1) * sizeof(*p->ports));
	for (size_t i = 0; i < p->n_rules; i++) {
		const struct policy_match *m = p->rules[i].match;

		for (size_t k = 0; k < m->n_ports && opens_ports(m); k++)
			p->ports[p->n_ports++] = m->ports[k];
	}
	join_ports(p);
}

int policy_compile(const json_t *document, struct policy **ret, struct err *err)
{
	struct reader r = { .err = err };
	struct policy *p = xnew(struct policy);
	uint64_t version = 1;
	int rc = reader_object(&r, document,
		KNOWN("version", "preset", "body_max", "rules", "budgets", "secrets"));

	p->refs = 1;
	p->rules = xalloc(POLICY_RULES_MAX * sizeof(*p->rules));
	p->secrets = xalloc((POLICY_SECRETS_MAX + OFFERED_MAX) * sizeof(*p->secrets));
	p->body_max = POLICY_BODY_MAX;
	if (rc == 0)
		rc = reader_number(&r, document, "version", 1, 1, &version);
	if (rc == 0)
		rc = reader_size(&r, document, "body_max", &p->body_max);
	if (rc == 0 && p->body_max > POLICY_BODY_TOP)
		rc = reader_fail(&r, "body_max is at most %uM", POLICY_BODY_TOP >> 20);
	if (rc == 0)
		rc = read_rules(&r, document, NULL, p);
	if (rc == 0)
		rc = read_secrets(&r, document, p);
	if (rc == 0)
		rc = read_presets(&r, document, p);
	if (rc == 0)
		rc = check_names(&r, p);
	if (rc == 0)
		rc = read_budgets(&r, document, p);
	if (rc == 0)
		collect_ports(p);
	if (rc == 0 && p->n_ports > POLICY_PORTS_MAX)
		rc = reader_fail(&r, "the rules name more than %d ranges of ports together",
			POLICY_PORTS_MAX);
	if (rc < 0) {
		policy_unref(p);
		return rc;
	}
	*ret = p;
	return 0;
}
