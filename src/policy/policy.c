/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions; how a document becomes rules is compile.c. */
#include "base/str.h"
#include "policy/compile.h"
#include "policy/pattern.h"

static const char *const action_names[POLICY_ACTION_COUNT] = { "deny", "allow", "fault",
	"transform", "mailbox" };
static const char *const transport_names[POLICY_TRANSPORT_COUNT] = { "http", "tcp", "tls", "smtp",
	"dns" };
static const char *const record_names[POLICY_RECORD_COUNT] = { "SRV", "TXT", "MX" };

const char *policy_action_name(enum policy_action action)
{
	return action_names[action];
}

const char *policy_transport_name(enum policy_transport transport)
{
	return transport_names[transport];
}

const char *policy_record_name(enum policy_record record)
{
	return record_names[record];
}

void policy_decide(
	const struct policy *p, const struct policy_request *rq, struct policy_verdict *ret)
{
	*ret = (struct policy_verdict){ .action = POLICY_DENY };
	for (size_t i = 0; i < p->n_rules; i++) {
		const struct policy_rule *rule = &p->rules[i];
		const char *because;
		enum match_result result = match_test(rule->match, rq, &because);

		if (result == MATCH_NO)
			continue;
		if (rule->action != POLICY_DENY)
			ret->transports |= rule->match->transports;
		if (result == MATCH_LATER) {
			ret->need_more = true;
			continue;
		}
		if (ret->need_more)
			return;
		ret->action = rule->action;
		ret->rule = rule;
		ret->rule_index = i;
		return;
	}
}

const struct policy_rule *policy_passes_tls(const struct policy *p, const char *host, uint16_t port)
{
	const struct policy_request rq = { .stage = POLICY_CONNECT, .host = host, .port = port };
	const unsigned int tls = 1U << POLICY_TLS, either = tls | 1U << POLICY_HTTP;

	for (size_t i = 0; i < p->n_rules; i++) {
		const struct policy_rule *rule = &p->rules[i];
		const char *because;

		if ((rule->match->transports & either) == 0 ||
			match_test(rule->match, &rq, &because) == MATCH_NO)
			continue;
		return rule->match->transports == tls && rule->action == POLICY_ALLOW ? rule : NULL;
	}
	return NULL;
}

json_t *policy_explain(const struct policy *p, const struct policy_request *rq)
{
	static const char *const words[] = {
		[MATCH_NO] = "no", [MATCH_YES] = "match", [MATCH_LATER] = "later"
	};
	json_t *list = json_array();

	for (size_t i = 0; i < p->n_rules; i++) {
		const struct policy_rule *rule = &p->rules[i];
		const char *because;
		enum match_result result = match_test(rule->match, rq, &because);

		json_array_append_new(
			list, json_pack("{s:s, s:s?, s:s, s:s, s:s}", "rule", rule->name, "preset",
				      rule->preset, "action", action_names[rule->action], "result",
				      words[result], "because", because));
	}
	return list;
}

bool policy_reads_header(const struct policy *p, struct policy_text name)
{
	for (size_t i = 0; p != NULL && i < p->n_rules; i++)
		if (match_reads_header(p->rules[i].match, name))
			return true;
	return false;
}

static void reads_rule(const struct policy_rule *rule, policy_path_fn *each, void *ctx)
{
	for (size_t i = 0; i < rule->match->n_fields; i++)
		each(rule->match->fields[i].pointer, rule->match->fields[i].reads, ctx);
	for (size_t i = 0; i < rule->n_budgets; i++)
		if (rule->budgets[i].measure == POLICY_REQUEST_FIELD)
			each(rule->budgets[i].field, POLICY_AMOUNT_MAX + 1, ctx);
}

void policy_reads_body(
	const struct policy *p, const struct policy_request *rq, policy_path_fn *each, void *ctx)
{
	for (size_t i = 0; i < p->n_rules; i++) {
		const char *because;
		enum match_result result = match_test(p->rules[i].match, rq, &because);

		if (result != MATCH_NO)
			reads_rule(&p->rules[i], each, ctx);
		if (result == MATCH_YES)
			return;
	}
}

size_t policy_body_max(const struct policy *p)
{
	return p->body_max;
}

const struct policy_rule *policy_rules(const struct policy *p, size_t *ret_n)
{
	*ret_n = p->n_rules;
	return p->rules;
}

const struct policy_secret *policy_secrets(const struct policy *p, size_t *ret_n)
{
	*ret_n = p->n_secrets;
	return p->secrets;
}

bool policy_secret_bound(const struct policy_secret *secret, const char *host)
{
	for (size_t i = 0; i < secret->n_hosts; i++)
		if (host_pattern_match(secret->hosts[i], host))
			return true;
	return false;
}

size_t policy_ports(const struct policy *p, const struct policy_port_range **ret)
{
	*ret = p->ports;
	return p->n_ports;
}

static void rule_free(struct policy_rule *rule)
{
	free(rule->name);
	free(rule->preset);
	free(rule->deny.message);
	free(rule->upstream);
	match_free(rule->match);
	for (size_t i = 0; i < rule->n_changes; i++) {
		free(rule->changes[i].name);
		json_decref(rule->changes[i].value);
	}
	free(rule->changes);
	for (size_t i = 0; i < rule->n_budgets; i++)
		free(rule->budgets[i].field);
}

static void secret_free(struct policy_secret *secret)
{
	free(secret->name);
	for (size_t i = 0; i < secret->n_hosts; i++)
		free(secret->hosts[i]);
	free(secret->hosts);
	for (size_t i = 0; i < secret->n_places; i++)
		free(secret->places[i].name);
	free(secret->places);
}

struct policy *policy_ref(struct policy *p)
{
	if (p != NULL)
		p->refs++;
	return p;
}

void policy_unref(struct policy *p)
{
	if (p == NULL || --p->refs > 0)
		return;
	for (size_t i = 0; i < p->n_rules; i++)
		rule_free(&p->rules[i]);
	for (size_t i = 0; i < p->n_secrets; i++)
		secret_free(&p->secrets[i]);
	free(p->rules);
	free(p->secrets);
	free(p->ports);
	free(p);
}
