/* SPDX-License-Identifier: Apache-2.0 */
/* Policies as texts (checked, explained) and as what a running sandbox is held to. */
#include "api/credentials.h"
#include "api/server.h"
#include "api/telling.h"
#include "api_handlers.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "codec/authority.h"
#include "codec/urlpath.h"
#include "policy/body_type.h"

#include <strings.h>

#define PATH_SIZE 8192

int api_policy_presets(struct api_call *call, attr_unused struct err *err)
{
	json_t *list = json_array();
	const char *name;

	for (size_t i = 0; (name = policy_preset_name(i)) != NULL; i++)
		(void)json_array_append_new(
			list, json_pack("{s:s, s:o}", "name", name, "policy",
				      json_loads(policy_preset(name), 0, NULL)));
	return api_reply(call, 200, json_pack("{s:o}", "presets", list));
}

/* --- check --- */

static json_t *rules_json(const struct policy *p)
{
	size_t n;
	const struct policy_rule *rules = policy_rules(p, &n);
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		(void)json_array_append_new(list,
			json_pack("{s:s, s:s, s:s?}", "name", rules[i].name, "action",
				policy_action_name(rules[i].action), "preset", rules[i].preset));
	return list;
}

static json_t *ports_json(const struct policy *p)
{
	const struct policy_port_range *ranges;
	size_t n = policy_ports(p, &ranges);
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		(void)json_array_append_new(
			list, json_pack("[i, i]", ranges[i].first, ranges[i].last));
	return list;
}

static json_t *secrets_json(const struct policy *p)
{
	size_t n;
	const struct policy_secret *secrets = policy_secrets(p, &n);
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		(void)json_array_append_new(list, json_string(secrets[i].name));
	return list;
}

/* The document of a request ("policy" and "allow"), compiled. */
static int compiled(const json_t *request, struct policy **ret, struct err *err)
{
	json_t *document;
	int rc = gateway_policy_of(request, &document, err);

	if (rc < 0)
		return rc;
	if (!json_is_object(document)) {
		json_decref(document);
		document = json_pack("{s:i}", "version", 1);
	}
	rc = policy_compile(document, ret, err);
	json_decref(document);
	return rc;
}

int api_policy_check(struct api_call *call, struct err *err)
{
	struct policy *p;
	json_t *answer;
	int rc = compiled(call->body, &p, err);

	if (rc < 0)
		return rc;
	answer = json_pack("{s:o, s:o, s:o}", "rules", rules_json(p), "ports", ports_json(p),
		"secrets", secrets_json(p));
	policy_unref(p);
	return api_reply(call, 200, answer);
}

/* --- explain --- */

/* A URL as a request; text lives here. */
struct asked {
	struct policy_request rq;
	struct authority authority;
	char path[PATH_SIZE];
	bool tls; /* of HTTP */
};

static int take_scheme(const char *url, struct asked *a, const char **ret_rest, struct err *err)
{
	static const struct {
		const char *scheme;
		uint16_t port;
		enum policy_transport transport;
		bool tls, websocket;
	} schemes[] = { { "https://", 443, POLICY_HTTP, true, false },
		{ "http://", 80, POLICY_HTTP, false, false },
		{ "wss://", 443, POLICY_HTTP, true, true },
		{ "ws://", 80, POLICY_HTTP, false, true },
		{ "smtp://", 25, POLICY_SMTP, false, false },
		{ "tcp://", 0, POLICY_TCP, false, false },
		{ "tls://", 443, POLICY_TLS, false, false },
		{ "dns://", POLICY_DNS_PORT, POLICY_DNS, false, false } };

	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
		if (!str_starts(url, schemes[i].scheme))
			continue;
		a->rq.port = schemes[i].port;
		a->rq.transport = schemes[i].transport;
		a->rq.websocket = schemes[i].websocket;
		a->tls = schemes[i].tls;
		*ret_rest = url + strlen(schemes[i].scheme);
		return 0;
	}
	return err_raise(err, ERR_INVALID,
		"'%s': not a URL with https, http, wss, ws, smtp, tcp, tls or dns", url);
}

/* "dns://name?type=MX", the form of RFC 4501. */
static int take_record(const char *url, struct asked *a, struct err *err)
{
	char wanted[16];

	for (unsigned int i = 0; i < POLICY_RECORD_COUNT; i++) {
		a->rq.record = (enum policy_record)i;
		(void)snprintf(wanted, sizeof(wanted), "type=%s", policy_record_name(a->rq.record));
		if (a->rq.query.n == strlen(wanted) &&
			memcmp(a->rq.query.p, wanted, a->rq.query.n) == 0)
			return 0;
	}
	return err_raise(err, ERR_INVALID, "'%s': ?type=SRV, ?type=TXT or ?type=MX is wanted", url);
}

static int take_url(const char *url, struct asked *a, struct err *err)
{
	const char *rest = NULL, *path, *query;
	size_t host_n, path_n;
	int rc = take_scheme(url, a, &rest, err);

	if (rc < 0)
		return rc;
	host_n = strcspn(rest, "/?");
	if (authority_parse(rest, host_n, &a->authority) < 0)
		return err_raise(err, ERR_INVALID, "'%s': the host is not well formed", url);
	a->rq.host = a->authority.host;
	a->rq.port = a->authority.port != 0 ? a->authority.port : a->rq.port;
	path = rest + host_n;
	query = strchr(path, '?');
	path_n = query != NULL ? (size_t)(query - path) : strlen(path);
	if (path_n == 0) {
		(void)snprintf(a->path, sizeof(a->path), "/");
	} else if (path_n >= sizeof(a->path) || urlpath_canonical(path, path_n, a->path) < 0) {
		return err_raise(err, ERR_INVALID, "'%s': the path could be read in two ways", url);
	}
	a->rq.path = (struct policy_text){ a->path, strlen(a->path) };
	if (query != NULL)
		a->rq.query = (struct policy_text){ query + 1, strlen(query + 1) };
	return a->rq.transport == POLICY_DNS ? take_record(url, a, err) : 0;
}

static size_t take_headers(const json_t *headers, struct policy_field fields[HTTPHEAD_HEADERS_MAX])
{
	const char *name;
	json_t *value;
	size_t n = 0;

	json_object_foreach ((json_t *)(uintptr_t)headers, name, value) {
		if (n < HTTPHEAD_HEADERS_MAX)
			fields[n++] = (struct policy_field){ { name, strlen(name) },
				{ json_string_value(value), json_string_length(value) } };
	}
	return n;
}

/* As the gateway does of a request that says what it is. */
static bool may_be_json(const struct policy_field *fields, size_t n)
{
	bool may = true;

	for (size_t i = 0; i < n; i++) {
		if (fields[i].name.n == 12 &&
			strncasecmp(fields[i].name.p, "content-type", 12) == 0)
			may = may && body_may_be_json(fields[i].value);
		if (fields[i].name.n == 12 &&
			strncasecmp(fields[i].name.p, "content_type", 12) == 0)
			may = false;
	}
	return may;
}

static json_t *explained(const struct policy *p, struct asked *a, const json_t *body)
{
	const char *method = json_string_value(json_object_get(body, "method"));
	const char *text = json_string_value(json_object_get(body, "body"));
	struct policy_field fields[HTTPHEAD_HEADERS_MAX];
	struct policy_verdict v;
	json_t *json = NULL, *answer;

	a->rq.stage = POLICY_BODY;
	if (a->tls && policy_passes_tls(p, a->rq.host, a->rq.port) != NULL)
		a->rq.transport = POLICY_TLS; /* what is asked inside is not looked at */
	method = method != NULL ? method : "GET";
	a->rq.method = (struct policy_text){ method, strlen(method) };
	a->rq.headers = fields;
	a->rq.n_headers = take_headers(json_object_get(body, "headers"), fields);
	a->rq.has_body = text != NULL;
	if (text != NULL && may_be_json(fields, a->rq.n_headers))
		json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	a->rq.body = json;
	policy_decide(p, &a->rq, &v);
	answer = json_pack("{s:s, s:s?, s:o}", "action", policy_action_name(v.action), "rule",
		v.rule != NULL ? v.rule->name : NULL, "rules", policy_explain(p, &a->rq));
	json_decref(json);
	return answer;
}

/* The policy of the sandbox that the request names, or the text that it brings. */
static int policy_asked(struct api_call *call, struct policy **ret, struct err *err)
{
	const char *name = json_string_value(json_object_get(call->body, "sandbox"));
	struct sandbox *sb = name != NULL ? sandbox_find(call->srv, name, err) : NULL;
	int rc;

	if (name == NULL)
		return compiled(call->body, ret, err);
	if (sb == NULL)
		return -ENOENT;
	rc = compiled(sb->doc, ret, err);
	sandbox_unref(sb);
	return rc;
}

int api_policy_explain(struct api_call *call, struct err *err)
{
	struct asked a = { 0 };
	struct policy *p;
	json_t *answer;
	int rc = take_url(json_string_value(json_object_get(call->body, "url")), &a, err);

	if (rc == 0)
		rc = policy_asked(call, &p, err);
	if (rc < 0)
		return rc;
	answer = explained(p, &a, call->body);
	policy_unref(p);
	return api_reply(call, 200, answer);
}

/* --- of a sandbox --- */

/* While it is being changed: the one before, which it is until all have the new one. */
static json_t *policy_object(const struct sandbox *sb)
{
	const json_t *before = json_object_get(sb->doc, "policy_before");
	json_t *version = json_object_get(sb->doc, "policy_version");
	json_t *policy = json_object_get(sb->doc, "policy");

	if (before != NULL) {
		version = json_object_get(before, "version");
		policy = json_object_get(before, "policy");
	}
	return json_pack("{s:O, s:O, s:s*}", "version", version, "policy", policy, "hint",
		credentials_hint(sb));
}

int api_sandbox_policy_get(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	json_t *answer;

	if (sb == NULL)
		return -ENOENT;
	answer = policy_object(sb);
	sandbox_unref(sb);
	return api_reply(call, 200, answer);
}

/* Write it down first: a gateway that starts meanwhile gets the new one. Until the second commit the row says how it was before, so that nothing has to be written for that to come back. */
static int begin_change(struct sandbox *sb, json_t *policy, struct err *err)
{
	json_t *before = json_pack("{s:O, s:O}", "policy", json_object_get(sb->doc, "policy"),
		"version", json_object_get(sb->doc, "policy_version"));
	json_int_t version = json_integer_value(json_object_get(sb->doc, "policy_version"));
	int rc;

	(void)json_object_set_new(sb->doc, "policy_before", before);
	(void)json_object_set(sb->doc, "policy", policy);
	(void)json_object_set_new(sb->doc, "policy_version", json_integer(version + 1));
	rc = credentials_prepare(sb, err);
	if (rc < 0)
		return rc;
	credentials_arrive(sb);
	rc = sandbox_save(sb, false, err);
	(void)fault("policy.change.written");
	return rc;
}

static int end_change(struct sandbox *sb, struct err *err)
{
	json_t *before = json_incref(json_object_get(sb->doc, "policy_before"));
	json_t *data = json_pack("{s:O, s:O, s:O}", "version",
		json_object_get(sb->doc, "policy_version"), "policy",
		json_object_get(sb->doc, "policy"), "before", json_object_get(before, "policy"));
	int rc = fault("policy.change.before");

	(void)json_object_del(sb->doc, "policy_before");
	sandbox_will_tell(sb, EVENT_POLICY_CHANGED, data);
	rc = rc < 0 ? err_raise_sys(err, rc, "write the policy") : sandbox_save(sb, false, err);
	(void)telling_done(sb->doc);
	(void)fault("policy.change.committed");
	if (rc == 0)
		(void)server_event(sb->srv, sb, EVENT_POLICY_CHANGED, NULL, json_incref(data));
	else
		(void)json_object_set(sb->doc, "policy_before", before);
	json_decref(data);
	json_decref(before);
	return rc;
}

/* On failure everything is as before. */
static int change_policy(struct sandbox *sb, json_t *policy, struct err *err)
{
	int rc = begin_change(sb, policy, err);

	if (rc == 0)
		rc = gateway_configure(sb, err);
	if (rc == 0)
		rc = end_change(sb, err);
	if (rc == 0)
		return 0;
	(void)sandbox_policy_back(sb->doc);
	(void)!sandbox_save(sb, false, NULL); /* else the next start takes it back */
	gateway_configure_surely(sb); /* one that appeared meanwhile has it, whoever failed */
	return rc;
}

int api_sandbox_policy_set(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	json_t *policy = NULL, *answer = NULL;
	json_int_t wanted = json_integer_value(json_object_get(call->body, "if_version"));
	int rc = sb != NULL ? sandbox_lock_beside(sb, err) : -ENOENT;

	if (rc == 0) {
		if (wanted != 0 &&
			wanted != json_integer_value(json_object_get(sb->doc, "policy_version")))
			rc = err_raise(err, ERR_CONFLICT,
				"the policy of '%s' is not version %lld any more", sb->name,
				wanted);
		if (rc == 0)
			rc = gateway_policy_of(call->body, &policy, err);
		if (rc == 0)
			rc = change_policy(sb, policy, err);
		if (rc == 0)
			answer = policy_object(sb);
		sandbox_unlock(sb);
	}
	json_decref(policy);
	sandbox_unref(sb);
	return rc < 0 ? rc : api_reply(call, 200, answer);
}
