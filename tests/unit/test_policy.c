/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "policy/policy.h"
#include "t.h"

static struct policy *compiled(const char *text)
{
	struct policy *p = NULL;
	json_t *document = NULL;
	struct err err = { 0 };

	if (policy_document(text, strlen(text), &document, &err) < 0 ||
		policy_compile(document, &p, &err) < 0)
		t_fail("%s", err.msg);
	json_decref(document);
	return p;
}

static const char *refusal(const char *text)
{
	static struct err err;
	struct policy *p;
	json_t *document = NULL;
	int rc;

	err = (struct err){ 0 };
	rc = policy_document(text, strlen(text), &document, &err);
	if (rc == 0) {
		rc = policy_compile(document, &p, &err);
		if (rc == 0)
			policy_unref(p);
	}
	json_decref(document);
	return rc < 0 ? err.msg : "taken";
}

#define TEXT(s) ((struct policy_text){ (s), strlen(s) })

static const struct policy_request plain = { .host = "a.example", .port = 443 };

/* "allow rule", "deny", "later http|tcp" */
static const char *asked(const struct policy *p, struct policy_request rq)
{
	static char out[200];
	struct policy_verdict v;

	policy_decide(p, &rq, &v);
	if (v.need_more) {
		(void)snprintf(out, sizeof(out), "later");
		for (unsigned int i = 0; i < POLICY_TRANSPORT_COUNT; i++)
			if ((v.transports & 1U << i) != 0)
				(void)snprintf(out + strlen(out), sizeof(out) - strlen(out), " %s",
					policy_transport_name((enum policy_transport)i));
	} else {
		(void)snprintf(out, sizeof(out), "%s%s%s", policy_action_name(v.action),
			v.rule != NULL ? " " : "", v.rule != NULL ? v.rule->name : "");
	}
	return out;
}

static struct policy_request request(const char *method, const char *path)
{
	struct policy_request rq = plain;

	rq.stage = POLICY_BODY;
	rq.method = TEXT(method);
	rq.path = TEXT(path);
	return rq;
}

TEST(bad_documents_are_refused_by_name)
{
	static const struct {
		const char *text, *message;
	} bad[] = {
		{ "[]", "policy: must be an object" },
		{ "rulez: []",
			"rulez: there is no such member; known: version, preset, body_max, rules, budgets, secrets" },
		{ "version: 2", "version: must be a whole number from 1 to 1" },
		{ "preset: nope", "preset: 'nope' is no preset" },
		{ "preset: llm-anthropic\nbudgets: {llm-openai/uploads: {requests: {max: 1}}}",
			"budgets[\"llm-openai/uploads\"]: is no rule of a preset that is used here" },
		{ "preset: llm-openai\nbudgets: {llm-openai/uploads: {requests: {per: 1h}}}",
			"budgets[\"llm-openai/uploads\"].requests: needs a max" },
		{ "rules: [{action: deny, match: {host: a, json: {a: {not: x, glob: y}}}}]",
			"rules[0].match.json[\"a\"]: not stands alone" },
		{ "rules: [{action: deny, match: {host: a, json: {a: {present: false, min: 1000}}}}]",
			"rules[0].match.json[\"a\"]: present: false stands alone" },
		{ "rules: [{action: allow, match: {host: a, json: {a: {present: false, glob: x}}}}]",
			"rules[0].match.json[\"a\"]: present: false stands alone" },
		{ "rules: [{action: allow, match: {host: a, json: {a: {glob: 'ok-*', max: 5000}}}}]",
			"rules[0].match.json[\"a\"]: glob, of text, stands without min and max, of numbers" },
		{ "rules: {}", "policy: rules must be a list" },
		{ "rules: [{match: {host: a}}]", "rules[0]: needs an action" },
		{ "rules: [{action: allow}]", "rules[0].match: must be an object" },
		{ "rules: [{action: allow, match: {}}]",
			"rules[0].match: needs a host (\"*\" for every one)" },
		{ "rules: [{action: allow, match: {host: A}}]",
			"rules[0].match.host: 'A' is no host (\"a.example\", \"*.a.example\", \".a.example\", \"*\", an address or network; lower case)" },
		{ "rules: [{action: allow, match: {host: a, port: 0}}]",
			"rules[0].match.port: must be a port, a range (\"8000-8999\") or \"any\"" },
		{ "rules: [{action: allow, match: {host: a, port: 9-1}}]",
			"rules[0].match.port: must be a port, a range (\"8000-8999\") or \"any\"" },
		{ "rules: [{action: allow, match: {host: a, path: x}}]",
			"rules[0].match.path: 'x' is no path (begins with '/' or '**')" },
		{ "rules: [{action: allow, match: {host: a, path: [/x, /a/../b]}}]",
			"rules[0].match.path[1]: '/a/../b' has a segment of dots, which are removed from a request before it is judged" },
		{ "rules: [{action: allow, match: {host: a, path: /a//b}}]",
			"rules[0].match.path: '/a//b' has an empty segment, which are removed from a request before it is judged" },
		{ "rules: [{action: allow, match: {host: a, path: /%61}}]",
			"rules[0].match.path: '/%61' holds an escape that no request is judged with: letters, digits and \"-._~\" stand for themselves, other bytes as %2F, with capital digits" },
		{ "rules: [{action: allow, match: {host: a, path: /a b}}]",
			"rules[0].match.path: '/a b' holds a byte that requests write as an escape, as %20 or %C3%A4" },
		{ "rules: [{action: allow, match: {host: a, headers: {Host: b}}}]",
			"rules[0].match.headers: 'Host' concerns the connection alone: the gateway writes it anew, no rule sees it" },
		{ "rules: [{action: allow, match: {host: a, transport: tcp}}]",
			"rules[0].match: transport tcp needs a port" },
		{ "rules: [{action: allow, match: {host: a, transport: tcp, port: 1, path: /}}]",
			"rules[0].match: method, path, query, headers, json and upgrade are for transport http" },
		{ "rules: [{action: allow, match: {host: a, upgrade: h2c}}]",
			"rules[0].match.upgrade: must be one of websocket" },
		{ "rules: [{action: allow, match: {host: a, upgrade: websocket, method: GET}}]",
			"rules[0].match: upgrade stands without method and json: a WebSocket is asked for by GET, and what is said in it no rule reads" },
		{ "rules: [{action: deny, match: {host: a, upgrade: websocket, json: {a: 1}}}]",
			"rules[0].match: upgrade stands without method and json: a WebSocket is asked for by GET, and what is said in it no rule reads" },
		{ "rules: [{action: allow, match: {host: a, upgrade: websocket, transport: tcp, port: 1}}]",
			"rules[0].match: method, path, query, headers, json and upgrade are for transport http" },
		{ "rules: [{action: allow, match: {host: a, upgrade: websocket}, budget: {sum: {max: 1, field: x}}}]",
			"rules[0].budget: sum is not for rules with upgrade: what is said in a WebSocket is not read" },
		{ "rules: [{action: transform, match: {host: a, upgrade: websocket}, transform: {json: {remove: [/x]}}}]",
			"rules[0].transform: json is not for rules with upgrade: what is said in a WebSocket is not read" },
		{ "rules: [{action: allow, match: {host: a, type: TXT}}]",
			"rules[0].match: type is for transport dns" },
		{ "rules: [{action: allow, match: {host: a, transport: dns, type: A}}]",
			"rules[0].match.type: 'A' is none of SRV, TXT, MX" },
		{ "rules: [{action: allow, match: {host: a, transport: dns, port: 53}}]",
			"rules[0].match: transport dns has no port" },
		{ "rules: [{action: allow, match: {host: '*', transport: dns}}]",
			"rules[0].match: transport dns needs names: with \"*\" any name would be asked outside" },
		{ "rules: [{action: mailbox, match: {host: a, transport: dns}}]",
			"rules[0]: transport smtp and action mailbox go together" },
		{ "rules: [{action: allow, match: {host: a, json: {a/b: 1}}}]",
			"rules[0].match.json[\"a/b\"]: is neither a member name nor a JSON pointer" },
		{ "rules: [{action: allow, match: {host: a}, deny: {}}]",
			"rules[0]: 'deny' belongs to another action" },
		{ "rules: [{action: fault, match: {host: a}}]", "rules[0]: needs 'fault'" },
		{ "rules: [{action: mailbox, match: {host: a}}]",
			"rules[0]: transport smtp and action mailbox go together" },
		{ "rules: [{action: allow, match: {host: a}, budget: {requests: {per: 1h}}}]",
			"rules[0].budget.requests: needs a max" },
		{ "rules: [{action: allow, match: {host: a, port: 1, transport: tcp}, budget: {sum: {max: 1, field: x}}}]",
			"rules[0].budget: sum is for transport http" },
		{ "rules: [{action: deny, match: {host: a}, budget: {requests: {max: 1}}}]",
			"rules[0].budget: is of a denial, which spends nothing" },
		{ "rules: [{action: allow, match: {host: a}, budget: {sum: {max: 1, field: x, missing: 1}}}]",
			"rules[0].budget.sum: missing is for fields of the response" },
		{ "rules: [{action: allow, match: {host: a}, budget: {sum: {max: 1, field: x, each: 1}}}]",
			"rules[0].budget.sum: each is for fields of the response" },
		{ "rules: [{action: allow, match: {host: a}, upstream: localhost:80}]",
			"rules[0]: upstream must be \"address:port\"" },
		{ "rules: [{action: allow, name: x, match: {host: a}}, {action: allow, name: x, match: {host: a}}]",
			"policy: two rules are called 'x'" },
		{ "rules: [{action: transform, match: {host: a}, transform: {headers: {set: {x: \"a\\nb\"}}}}]",
			"rules[0].transform.headers: 'x' must be a string of one line" },
		{ "rules: [{action: transform, match: {host: a}, transform: {headers: {remove: cookie}}}]",
			"rules[0].transform.headers: remove must be a list of names" },
		{ "rules: [{action: transform, match: {host: a}, transform: {json: {set: [a]}}}]",
			"rules[0].transform.json: set must be an object of names and values" },
		{ "rules: [{action: transform, match: {host: a}, transform: {headers: {remove: [x(y]}}}]",
			"rules[0].transform.headers: 'x(y' is no name" },
		{ "rules: [{action: transform, match: {host: a}, transform: {headers: {set: {Host: b}}}}]",
			"rules[0].transform.headers: 'host' concerns the connection alone: the gateway writes it anew" },
		{ "{\"rules\": [{\"action\": \"transform\", \"match\": {\"host\": \"a\"}, \"transform\": {\"headers\": {\"set\": {\"x\": \"a\\u0001b\"}}}}]}",
			"rules[0].transform.headers: 'x' must be a string of one line" },
		{ "secrets: [{name: K, hosts: a}]", "secrets[0]: needs hosts and places (in)" },
		{ "secrets: [{name: K, hosts: a, in: [{header: x, query: y}]}]",
			"secrets[0].in[0]: names one of header, query, json, form, sigv4" },
		{ "a: [1", "policy: line 2: did not find expected ',' or ']'" },
		{ "{\"version\": 1, \"version\": 1}",
			"policy: line 1: duplicate object key near '\"version\"'" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		check_str(refusal(bad[i].text), bad[i].message);
}

TEST(what_nothing_matches_is_denied)
{
	struct policy *p = compiled("preset: none");
	struct policy_request rq = plain;

	check_str(asked(p, rq), "deny");
	check_str(asked(p, request("GET", "/")), "deny");
	policy_unref(p);
}

TEST(the_first_match_decides)
{
	struct policy *p =
		compiled("rules:\n"
			 "- {name: one, match: {host: a.example, method: GET}, action: deny}\n"
			 "- {name: two, match: {host: .example}, action: allow}\n");
	struct policy_request rq = request("GET", "/");

	check_str(asked(p, rq), "deny one");
	check_str(asked(p, request("POST", "/")), "allow two");
	rq.host = "b.example";
	check_str(asked(p, rq), "allow two");
	rq.port = 8443;
	check_str(asked(p, rq), "deny");
	policy_unref(p);
}

TEST(the_first_rule_for_tls_or_http_says_whether_tls_is_opened)
{
	struct policy *p = compiled(
		"rules:\n"
		"- {name: early, match: {host: early.example, transport: tls}, action: allow}\n"
		"- {name: no, match: {host: api.example, path: /admin/**}, action: deny}\n"
		"- {name: db, match: {host: .example, transport: tcp, port: any}, action: allow}\n"
		"- {name: closed, match: {host: closed.example, transport: tls}, action: deny}\n"
		"- {name: late, match: {host: .example, transport: tls, port: [443, 8443]}, action: allow}\n"
		"- {name: web, match: {host: '*'}, action: allow}\n");

	check_str(policy_passes_tls(p, "early.example", 443)->name, "early");
	check(policy_passes_tls(p, "api.example", 443) == NULL);
	check(policy_passes_tls(p, "closed.example", 443) == NULL);
	check_str(policy_passes_tls(p, "b.example", 8443)->name, "late");
	check(policy_passes_tls(p, "b.example", 444) == NULL);
	check(policy_passes_tls(p, "elsewhere", 443) == NULL);
	policy_unref(p);
}

TEST(a_name_is_possible_or_not_before_the_port_is_known)
{
	struct policy *p = compiled(
		"rules:\n"
		"- {name: no, match: {host: bad.example}, action: deny}\n"
		"- {name: db, match: {host: db.example, transport: tcp, port: 5432}, action: allow}\n"
		"- {name: web, match: {host: .example, method: GET}, action: allow}\n");
	struct policy_request rq = plain;

	check_str(asked(p, rq), "later http");
	rq.host = "bad.example";
	check_str(asked(p, rq), "deny no");
	rq.host = "db.example";
	check_str(asked(p, rq), "later http tcp");
	rq.stage = POLICY_CONNECT;
	rq.port = 5432;
	check_str(asked(p, rq), "later tcp");
	rq.stage = POLICY_BODY;
	rq.transport = POLICY_TCP;
	check_str(asked(p, rq), "allow db");
	rq.transport = POLICY_HTTP;
	check_str(asked(p, rq), "deny");
	rq.host = "example.org";
	rq.stage = POLICY_NAME;
	check_str(asked(p, rq), "deny");
	policy_unref(p);
}

TEST(records_are_looked_up_by_type)
{
	struct policy *p = compiled(
		"rules:\n"
		"- {match: {host: no.b.example, transport: dns}, action: deny}\n"
		"- {match: {host: .b.example, transport: dns, type: [MX, TXT]}, action: allow}\n"
		"- {match: {host: c.example, transport: dns}, action: allow}\n"
		"- {match: {host: w.b.example}, action: allow}\n");
	static const struct {
		const char *host;
		const char *allowed; /* of SRV, TXT, MX */
	} cases[] = { { "b.example", "-++" }, { "x.b.example", "-++" }, { "no.b.example", "---" },
		{ "c.example", "+++" }, { "d.example", "---" } };
	struct policy_request rq = {
		.stage = POLICY_BODY, .port = POLICY_DNS_PORT, .transport = POLICY_DNS
	};
	const struct policy_port_range *ports;
	struct policy_verdict v;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		rq.host = cases[i].host;
		for (rq.record = 0; rq.record < POLICY_RECORD_COUNT; rq.record++) {
			policy_decide(p, &rq, &v);
			check_int(v.action,
				cases[i].allowed[rq.record] == '+' ? POLICY_ALLOW : POLICY_DENY);
		}
	}
	/* the name is known, nothing can connect to it */
	rq = (struct policy_request){ .stage = POLICY_CONNECT, .host = "c.example", .port = 443 };
	policy_decide(p, &rq, &v);
	check_int(v.transports, 0);
	rq.stage = POLICY_NAME;
	policy_decide(p, &rq, &v);
	check_int(v.transports, 1U << POLICY_DNS);
	check_int(policy_ports(p, &ports), 2); /* 80 and 443 of the web */
	policy_unref(p);
}

TEST(a_body_that_cannot_be_read_is_denied_by_who_denies_and_not_allowed_by_who_allows)
{
	struct policy *p = compiled(
		"rules:\n"
		"- {name: no, match: {host: '*', path: /x, json: {/a/*/t: evil}}, action: deny}\n"
		"- {name: yes, match: {host: '*', path: [/x, /y], json: {n: {max: 5}}}, action: allow}\n");
	json_t *fine = json_loads("{\"n\":5,\"a\":[{\"t\":\"good\"}]}", 0, NULL);
	json_t *evil = json_loads("{\"n\":5,\"a\":[{\"t\":\"good\"},{\"t\":\"evil\"}]}", 0, NULL);
	json_t *much = json_loads("{\"n\":6}", 0, NULL);
	struct policy_request rq = request("POST", "/x");

	rq.stage = POLICY_HEAD;
	check_str(asked(p, rq), "later http");
	rq.stage = POLICY_BODY;
	check_str(asked(p, rq), "deny");
	rq.has_body = true;
	check_str(asked(p, rq), "deny no");
	rq.body = fine;
	check_str(asked(p, rq), "allow yes");
	rq.body = evil;
	check_str(asked(p, rq), "deny no");
	rq.body = much;
	check_str(asked(p, rq), "deny");
	rq.path = TEXT("/y");
	rq.body = NULL;
	check_str(asked(p, rq), "deny");
	json_decref(fine);
	json_decref(evil);
	json_decref(much);
	policy_unref(p);
}

TEST(a_second_value_does_not_smuggle_the_first_one_past)
{
	struct policy *p = compiled(
		"rules:\n"
		"- {name: no, match: {host: '*', query: {mode: danger}}, action: deny}\n"
		"- {name: yes, match: {host: '*', query: {user: me}, headers: {x-k: 'v*'}}, action: allow}\n");
	struct policy_field headers[] = { { TEXT("X-K"), TEXT("v1") }, { TEXT("x-k"), TEXT("w") } };
	struct policy_request rq = request("GET", "/");

	rq.headers = headers;
	rq.n_headers = 1;
	rq.query = TEXT("user=me&mode=fine");
	check_str(asked(p, rq), "allow yes");
	rq.query = TEXT("user=%6de&mode=fine");
	check_str(asked(p, rq), "allow yes");
	rq.query = TEXT("user=me&user=you");
	check_str(asked(p, rq), "deny");
	rq.query = TEXT("user=me&mode=fine&mode=d%61nger");
	check_str(asked(p, rq), "deny no");
	rq.query = TEXT("user=me&mode=%zz");
	check_str(asked(p, rq), "deny no");
	rq.query = TEXT("user=me");
	rq.n_headers = 2;
	check_str(asked(p, rq), "deny");
	policy_unref(p);
}

TEST(null_wants_a_name_to_be_missing)
{
	struct policy *p = compiled(
		"rules: [{name: yes, match: {host: '*', query: {a: null}, headers: {x: true}, json: {b: null}}, action: allow}]");
	struct policy_field header = { TEXT("x"), TEXT("") };
	struct policy_request rq = request("GET", "/");

	check_str(asked(p, rq), "deny");
	rq.headers = &header;
	rq.n_headers = 1;
	check_str(asked(p, rq), "allow yes");
	rq.query = TEXT("b=1&a");
	check_str(asked(p, rq), "deny");
	policy_unref(p);
}

TEST(what_nobody_can_read_is_not_the_parameter_that_has_to_be_there)
{
	static const struct {
		const char *query, *said;
	} cases[] = { { "", "deny no" }, { "a=1", "deny no" }, { "%ff", "deny no" },
		{ "a=%00", "deny no" }, { "a=1&%ff", "deny no" }, { "%63onfirm%00=1", "deny no" },
		{ "a;confirm", "deny no" }, { "Confirm=1", "deny no" }, { "confirm", "allow yes" },
		{ "c%6fnfirm=1&%ff", "allow yes" }, { "confirm=%ff", "allow yes" } };
	struct policy *p = compiled(
		"rules: [{name: no, match: {host: '*', query: {confirm: null}}, action: deny}, {name: yes, match: {host: '*'}, action: allow}]");
	struct policy_request rq = request("GET", "/");

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		rq.query = TEXT(cases[i].query);
		check_str(asked(p, rq), cases[i].said);
	}
	policy_unref(p);
}

/* Nobody sees what is said in one: it has every method, and a body that cannot be read. */
TEST(a_websocket_is_let_through_by_who_says_nothing_of_methods_and_bodies_or_means_it)
{
	static const struct {
		const char *match, *action, *websocket, *get;
	} cases[] = {
		{ "host: '*'", "allow", "allow x", "allow x" },
		{ "host: '*', path: /x", "allow", "allow x", "allow x" },
		{ "host: '*', method: [GET, HEAD]", "allow", "deny", "allow x" },
		{ "host: '*', json: {a: null}", "allow", "deny", "allow x" },
		{ "host: '*', upgrade: websocket", "allow", "allow x", "deny" },
		{ "host: '*', upgrade: websocket", "deny", "deny x", "deny" },
		{ "host: '*', method: GET", "deny", "deny x", "deny x" },
		{ "host: '*', method: DELETE", "deny", "deny x", "deny" },
		{ "host: '*', method: DELETE, path: /y", "deny", "deny", "deny" },
		{ "host: '*', json: {a: 1}", "deny", "deny x", "deny" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct policy_request rq = request("GET", "/x");
		struct policy *p;
		char text[200];

		(void)snprintf(text, sizeof(text), "rules: [{name: x, match: {%s}, action: %s}]",
			cases[i].match, cases[i].action);
		p = compiled(text);
		check_str(asked(p, rq), cases[i].get);
		rq.websocket = true;
		check_str(asked(p, rq), cases[i].websocket);
		policy_unref(p);
	}
}

TEST(a_rule_for_websockets_means_no_other_method)
{
	struct policy *p = compiled(
		"rules: [{name: x, match: {host: '*', upgrade: websocket}, action: allow}]");
	struct policy_field header = { TEXT("x-http-method-override"), TEXT("DELETE") };
	struct policy_request rq = request("GET", "/x");

	rq.websocket = true;
	rq.query = TEXT("_method=GET");
	check_str(asked(p, rq), "allow x");
	rq.query = TEXT("_method=PUT");
	check_str(asked(p, rq), "deny");
	rq.query = TEXT("");
	rq.headers = &header;
	rq.n_headers = 1;
	check_str(asked(p, rq), "deny");
	policy_unref(p);
}

TEST(ports_of_all_rules_are_joined)
{
	struct policy *p = compiled(
		"rules:\n"
		"- {match: {host: a}, action: allow}\n"
		"- {match: {host: a, transport: tcp, port: [81-90, 22, 444]}, action: allow}\n"
		"- {match: {host: a, transport: tcp, port: 9000}, action: deny}\n");
	const struct policy_port_range *ports;

	check_int(policy_ports(p, &ports), 3);
	check_int(ports[0].first, 22);
	check_int(ports[0].last, 22);
	check_int(ports[1].first, 80);
	check_int(ports[1].last, 90);
	check_int(ports[2].first, 443);
	check_int(ports[2].last, 444);
	policy_unref(p);
}

/* Each a range of its own: 200 to a rule. */
static char *rules_of_ports(int ports)
{
	struct buf text = BUF_INIT(1U << 20);

	buf_str(&text, "rules:\n");
	for (int i = 0; i < ports; i++)
		buf_fmt(&text, "%s%d%s",
			i % 200 == 0 ? "- {match: {host: a, transport: tcp, port: [" : ", ",
			1 + 2 * i, i % 200 == 199 || i == ports - 1 ? "]}, action: allow}\n" : "");
	return buf_take(&text);
}

TEST(as_many_ports_as_a_sandbox_has_rules_for)
{
	cleanup_free char *most = rules_of_ports(POLICY_PORTS_MAX),
			  *more = rules_of_ports(POLICY_PORTS_MAX + 1);
	struct policy *p = compiled(most);
	const struct policy_port_range *ports;

	check_int(policy_ports(p, &ports), POLICY_PORTS_MAX);
	policy_unref(p);
	check(strstr(refusal(more), "1024 ranges of ports") != NULL);
}

TEST(details_of_a_rule_are_read)
{
	struct policy *p = compiled(
		"rules:\n"
		"- name: pay\n"
		"  match: {host: a}\n"
		"  action: allow\n"
		"  budget: {requests: {max: 10, per: 1h}, bytes: {max: 1M}, sum: [{field: amount, max: 100, per: 1d}, {field: /usage/n, of: response, max: 5, per: total}]}\n"
		"  upstream: '[::1]:8443'\n"
		"  private: true\n"
		"- {match: {host: b}, action: fault, fault: {chance: 0.5, latency: 200ms, status: 503, truncate: 0}}\n"
		"- {match: {host: c}, action: transform, transform: {headers: {set: {x: y}, remove: [z]}, json: {set: {/a: 1}}}}\n"
		"- {match: {host: d}, action: deny, deny: {with: reset}}\n");
	size_t n;
	const struct policy_rule *rules = policy_rules(p, &n);

	check_int(n, 4);
	check_int(rules[0].n_budgets, 4);
	check_int(rules[0].budgets[0].per_ms, 3600000);
	check_int(rules[0].budgets[1].max, 1 << 20);
	check_int(rules[0].budgets[1].per_ms, 0);
	check_int(rules[0].budgets[2].measure, POLICY_REQUEST_FIELD);
	check_int(rules[0].budgets[3].measure, POLICY_RESPONSE_FIELD);
	check_str(rules[0].upstream, "[::1]:8443");
	check(rules[0].private_addresses);
	check_str(rules[1].name, "rule-2");
	check_int(rules[1].fault.latency_ms, 200);
	check_int(rules[1].fault.status, 503);
	check(rules[1].fault.truncates);
	check_int(rules[2].n_changes, 3);
	check_str(rules[2].changes[0].name, "x");
	check(rules[2].changes[1].value == NULL);
	check(rules[2].changes[2].in_body);
	check_int(rules[3].deny.status, 0);
	policy_unref(p);
}

static const char *asked_with(const struct policy *p, const char *path, const char *body)
{
	struct policy_request rq = request("POST", path);
	json_t *tree = json_loads(body, 0, NULL);
	const char *said;

	check(tree != NULL);
	rq.has_body = true;
	rq.body = tree;
	said = asked(p, rq);
	json_decref(tree);
	return said;
}

TEST(a_denial_of_a_value_means_what_readers_take_for_it)
{
	struct policy *p = compiled(
		"rules:\n"
		"- {name: no, match: {host: '*', path: /number, json: {n: 5}}, action: deny}\n"
		"- {name: no-text, match: {host: '*', path: /text, json: {n: ['5', '']}}, action: deny}\n"
		"- {name: no-truth, match: {host: '*', path: /truth, json: {n: true}}, action: deny}\n"
		"- {name: no-glob, match: {host: '*', path: /glob, json: {n: {glob: ['5*', 't*']}}}, action: deny}\n"
		"- {name: no-long, match: {host: '*', path: /long, json: {n: {glob: '9007199254740993'}}}, action: deny}\n"
		"- {name: yes, match: {host: '*', path: /exact, json: {n: 5}}, action: allow}\n"
		"- {name: id, match: {host: '*', path: /id, json: {n: 9007199254740992}}, action: allow}\n"
		"- {name: no-id, match: {host: '*', path: /no-id, json: {n: 9007199254740992}}, action: deny}\n"
		"- {name: rest, match: {host: '*', path: [/no-id, /number, /text, /truth, /glob, /long]}, action: allow}\n");
	static const struct {
		const char *path, *value, *said;
	} cases[] = { { "/number", "5", "deny no" }, { "/number", "5.0", "deny no" },
		{ "/number", "\"5\"", "deny no" }, { "/number", "\"5.0e0\"", "deny no" },
		{ "/number", "\" 5 \"", "deny no" }, { "/number", "\"6\"", "allow rest" },
		{ "/number", "\"5x\"", "allow rest" }, { "/number", "\"\"", "allow rest" },
		{ "/number",
			"\"0000000000000000000000000000000000000000000000000000000000000000000005\"",
			"deny no" },
		{ "/text", "5", "deny no-text" }, { "/text", "5.0", "deny no-text" },
		{ "/text", "\"05\"", "deny no-text" }, { "/text", "6", "allow rest" },
		{ "/text", "null", "allow rest" }, { "/truth", "true", "deny no-truth" },
		{ "/truth", "\"True\"", "deny no-truth" }, { "/truth", "\"no\"", "allow rest" },
		{ "/truth", "1", "allow rest" }, { "/glob", "57", "deny no-glob" },
		{ "/glob", "true", "deny no-glob" }, { "/glob", "6", "allow rest" },
		{ "/glob", "0.5", "deny no-glob" }, /* it may have been written 5e-1 */
		{ "/long", "9007199254740993", "deny no-long" },
		{ "/long", "9007199254740992", "allow rest" }, { "/exact", "5", "allow yes" },
		{ "/exact", "5.0", "allow yes" }, { "/exact", "0.5e1", "allow yes" },
		{ "/exact", "true", "deny" }, { "/id", "9007199254740992", "allow id" },
		{ "/id", "9007199254740993", "deny" }, { "/id", "9007199254740993.0", "deny" },
		{ "/no-id", "9007199254740993", "deny no-id" },
		{ "/no-id", "9007199254740995", "allow rest" }, { "/exact", "\"5\"", "deny" } };
	char body[120];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		(void)snprintf(body, sizeof(body), "{\"n\":%s}", cases[i].value);
		check_str(asked_with(p, cases[i].path, body), cases[i].said);
	}
	policy_unref(p);
}

TEST(what_is_not_in_a_list)
{
	struct policy *p = compiled(
		"rules:\n"
		"- {name: no, match: {host: '*', path: /x, json: {/t/*/type: {not: [own, 'o_*']}}}, action: deny}\n"
		"- {name: yes, match: {host: '*', path: /y, json: {/t/*/type: {not: [bad]}}}, action: allow}\n"
		"- {name: rest, match: {host: '*', path: /x}, action: allow}\n");

	check_str(asked_with(p, "/x", "{}"), "allow rest");
	check_str(asked_with(p, "/x", "{\"t\":[{}]}"), "allow rest");
	check_str(asked_with(p, "/x", "{\"t\":[{\"type\":\"own\"},{\"type\":\"o_1\"}]}"),
		"allow rest");
	check_str(
		asked_with(p, "/x", "{\"t\":[{\"type\":\"own\"},{\"type\":\"Own\"}]}"), "deny no");
	check_str(asked_with(p, "/x", "{\"t\":[{\"type\":5}]}"), "deny no");
	check_str(asked_with(p, "/x", "{\"t\":[{\"type\":null}]}"), "deny no");
	check_str(asked_with(p, "/x", "{\"t\":[{\"type\":[\"own\"]}]}"), "deny no");
	check_str(asked_with(p, "/y", "{\"t\":[{\"type\":\"good\"}]}"), "allow yes");
	check_str(asked_with(p, "/y", "{\"t\":[{\"type\":\"good\"},{\"type\":\"bad\"}]}"), "deny");
	check_str(asked_with(p, "/y", "{\"t\":[]}"), "deny");
	policy_unref(p);
}

TEST(names_that_readers_take_for_each_other)
{
	struct policy *p = compiled(
		"rules:\n"
		"- {name: no, match: {host: '*', path: /x, json: {max_tokens: {min: 100}}}, action: deny}\n"
		"- {name: yes, match: {host: '*', path: /y, json: {/_id: 1}}, action: allow}\n"
		"- {name: rest, match: {host: '*', path: /x}, action: allow}\n");

	check_str(asked_with(p, "/x", "{\"max_tokens\":5}"), "allow rest");
	check_str(asked_with(p, "/x", "{\"maxTokens\":5}"), "deny no");
	check_str(asked_with(p, "/x", "{\"MAX__tokens_\":5}"), "deny no");
	check_str(asked_with(p, "/x", "{\"_max_tokens\":5,\"tokens\":1}"), "allow rest");
	check_str(asked_with(p, "/y", "{\"_id\":1,\"id\":2}"), "allow yes");
	policy_unref(p);
}

TEST(rules_of_presets_have_budgets)
{
	struct policy *p = compiled(
		"preset: [llm-openai, llm-anthropic]\n"
		"budgets: {llm-anthropic/messages: {requests: {max: 3, per: 1h}, sum: {field: /usage/output_tokens, of: response, max: 9}}}");
	const struct policy_rule *rules;
	size_t n, counted = 0;

	rules = policy_rules(p, &n);
	for (size_t i = 0; i < n; i++) {
		counted += rules[i].n_budgets;
		if (rules[i].n_budgets > 0)
			check_str(rules[i].name, "llm-anthropic/messages");
	}
	check_int(counted, 2);
	policy_unref(p);
}

TEST(secrets_are_bound_to_hosts)
{
	struct policy *p = compiled(
		"secrets: [{name: K, hosts: [a.example, '*.b.example'], in: [{header: authorization}, {query: key}, {json: /k}]}]");
	size_t n;
	const struct policy_secret *s = policy_secrets(p, &n);

	check_int(n, 1);
	check_int(s->n_places, 3);
	check_int(s->places[2].surface, POLICY_IN_BODY);
	check(policy_secret_bound(s, "a.example"));
	check(policy_secret_bound(s, "x.b.example"));
	check(!policy_secret_bound(s, "b.example"));
	policy_unref(p);
}

TEST(presets_offer_secrets_and_the_document_goes_before_them)
{
	struct policy *p = compiled(
		"preset: [llm-openai, llm-anthropic]\n"
		"secrets: [{name: OPENAI_API_KEY, hosts: proxy.example, in: [{header: x-key}]}]");
	size_t n;
	const struct policy_secret *s = policy_secrets(p, &n);

	check_int(n, 3);
	check_str(s[0].name, "OPENAI_API_KEY");
	check(!s[0].offered);
	check(!policy_secret_bound(&s[0], "api.openai.com"));
	check_str(s[1].name, "ANTHROPIC_API_KEY");
	check(s[1].offered);
	check(policy_secret_bound(&s[1], "api.anthropic.com"));
	check(s[2].offered);
	policy_unref(p);
}

TEST(every_preset_compiles_and_the_model_ones_deny_what_the_provider_would_fetch)
{
	struct policy *p;
	json_t *body = json_loads("{\"tools\":[{\"type\":\"custom\"}]}", 0, NULL);
	json_t *fetch = json_loads("{\"tools\":[{\"type\":\"web_fetch_20250910\"}]}", 0, NULL);
	struct policy_request rq = request("POST", "/v1/messages");
	char text[100];

	for (size_t i = 0; policy_preset_name(i) != NULL; i++) {
		(void)snprintf(text, sizeof(text), "preset: %s", policy_preset_name(i));
		policy_unref(compiled(text));
	}
	p = compiled("preset: [llm-anthropic]");
	rq.host = "api.anthropic.com";
	rq.has_body = true;
	rq.body = body;
	check_str(asked(p, rq), "allow llm-anthropic/messages");
	rq.body = fetch;
	check_str(asked(p, rq), "deny llm-anthropic/no-provider-tools");
	json_decref(fetch); /* of a type that nobody here has heard of */
	rq.body = fetch = json_loads(
		"{\"tools\":[{\"type\":\"custom\"},{\"type\":\"fetch_anything_2031\"}]}", 0, NULL);
	check_str(asked(p, rq), "deny llm-anthropic/no-provider-tools");
	rq.body = NULL;
	check_str(asked(p, rq), "deny llm-anthropic/no-provider-tools");
	rq.path = TEXT("/v1/files"); /* whatever it is: nobody is asked to fetch by it */
	check_str(asked(p, rq), "allow llm-anthropic/uploads");
	rq.path = TEXT("/v1/messages/batches");
	rq.body = body;
	check_str(asked(p, rq), "deny");
	json_decref(body);
	json_decref(fetch);
	policy_unref(p);
}

TEST(an_explanation_names_every_rule_and_why)
{
	struct policy *p =
		compiled("rules:\n"
			 "- {name: one, match: {host: b}, action: allow}\n"
			 "- {name: two, match: {host: a.example, json: {x: 1}}, action: allow}\n"
			 "- {name: three, match: {host: '*'}, action: allow}\n");
	struct policy_request rq = request("GET", "/");
	json_t *list;
	char *dump;

	rq.stage = POLICY_HEAD;
	list = policy_explain(p, &rq);
	dump = json_dumps(list, JSON_COMPACT | JSON_SORT_KEYS);
	check_str(dump,
		"[{\"action\":\"allow\",\"because\":\"host\",\"preset\":null,\"result\":\"no\",\"rule\":\"one\"},"
		"{\"action\":\"allow\",\"because\":\"json\",\"preset\":null,\"result\":\"later\",\"rule\":\"two\"},"
		"{\"action\":\"allow\",\"because\":\"\",\"preset\":null,\"result\":\"match\",\"rule\":\"three\"}]");
	free(dump);
	json_decref(list);
	policy_unref(p);
}
