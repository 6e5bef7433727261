/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: policy/policy.h - what may leave a sandbox: rules -> decisions.
 *
 * Pure: no input or output, no clock, no randomness. A policy is compiled once from a document (defs/policy.schema.json) and never changes; the gateway asks it
 * up to four times about one exchange, each time knowing more (enum policy_stage). Rules are tried in order, the first that matches decides, and what
 * nothing matches is denied. Rules of presets come after the document's own.
 *
 * A rule that looks at something not known yet is neither a match nor a miss. policy_decide() then says %need_more unless an earlier rule decided,
 * and whether anything but a denial is still possible, so that a name or a port that nothing could allow is refused at once.
 *
 * Fail closed: a rule that denies (or holds) by a body field matches when the body is there but could not be read; a rule that allows does not. A request for a
 * WebSocket has any method and a body that cannot be read, unless a rule is for such requests.
 */
#ifndef CAY_POLICY_POLICY_H
#define CAY_POLICY_POLICY_H

#include "base/err.h"

#include <jansson.h>

#define POLICY_RULES_MAX         1000
#define POLICY_PATTERNS_MAX      256 /* of one list in a rule */
#define POLICY_SECRETS_MAX       256
#define POLICY_PORTS_MAX         1024 /* ranges, of all rules together */
#define POLICY_DNS_PORT          53
#define POLICY_METHOD_MAX        32 /* characters of a method, each of these: */
#define POLICY_METHOD_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ-"
#define POLICY_HOST_MAX          253          /* bytes of a name, without the final dot */
#define POLICY_TEXT_MAX          (256U << 10) /* bytes of a document */
#define POLICY_BODY_MAX \
	(32U << 20) /* bytes of a request's body that rules read, unless the document says it */
#define POLICY_BODY_TOP (64U << 20) /* the most that it may say */
#define POLICY_AMOUNT_MAX \
	64 /* characters of an amount that is written as text; a longer one is none */

enum policy_transport {
	POLICY_HTTP,
	POLICY_TCP,
	POLICY_TLS,
	POLICY_SMTP,
	POLICY_DNS, /* records other than addresses: enum policy_record */
	POLICY_TRANSPORT_COUNT
};

enum policy_record { POLICY_SRV, POLICY_TXT, POLICY_MX, POLICY_RECORD_COUNT };

enum policy_action {
	POLICY_DENY,      /* answer with a status, or break the connection */
	POLICY_ALLOW,     /* send it on */
	POLICY_FAULT,     /* misbehave as told, then send on or answer */
	POLICY_TRANSFORM, /* change headers or body fields, then send on */
	POLICY_MAILBOX,   /* smtp: keep every message, send none */
	POLICY_ACTION_COUNT
};

/** enum policy_stage - how much of an exchange is known. */
enum policy_stage {
	POLICY_NAME,    /* a name was looked up: host */
	POLICY_CONNECT, /* a connection was opened: and port */
	POLICY_HEAD,    /* a request's head was read: and transport, method, path, query, headers */
	POLICY_BODY     /* and its body, or the knowledge that it has none */
};

/** struct policy_text - a view. */
struct policy_text {
	const char *p;
	size_t n;
};

struct policy_field {
	struct policy_text name, value;
};

/** struct policy_request - what is known; views into the caller's memory. */
struct policy_request {
	enum policy_stage stage;
	const char *
		host; /* lower case, without final dot; an address in its canonical text form when no name is known */
	uint16_t port;
	enum policy_transport
		transport; /* from %POLICY_HEAD on; only HTTP has head and body: ask about the others at %POLICY_BODY */
	enum policy_record record; /* for %POLICY_DNS, whose port is %POLICY_DNS_PORT */
	struct policy_text method;
	bool websocket; /* it asks for one: what is said in it then may be anything, and nobody sees it */
	bool form_says_method;          /* the body is a form that says another one */
	struct policy_text form_method; /* this; empty: nobody can tell which */
	struct policy_text
		path; /* canonical: unreserved characters decoded, dot segments removed */
	struct policy_text query; /* as it came, without '?' */
	const struct policy_field *headers;
	size_t n_headers;
	bool has_body;
	const json_t *
		body; /* parsed; NULL when there is none or it is no JSON, too large or could not be decoded */
};

/** struct policy_budget - one bound; what counts against it is the caller's to keep, by (rule, budget) index. */
struct policy_budget {
	enum policy_measure {
		POLICY_REQUESTS,
		POLICY_BYTES,         /* of bodies, messages, raw connections, both directions */
		POLICY_REQUEST_FIELD, /* sum of a field of the request's body */
		POLICY_RESPONSE_FIELD /* sum of a field of the answers' bodies, counted when they have come */
	} measure;
	char *field; /* JSON pointer, or NULL */
	uint64_t max;
	uint64_t per_ms; /* 0 = for ever */
	uint64_t
		missing; /* of POLICY_RESPONSE_FIELD: what a good answer counts that has no such field */
	uint64_t each; /* of POLICY_RESPONSE_FIELD: what one answer brings at most; 0: not said */
};

#define POLICY_BUDGETS_MAX 8 /* of one rule */

/** struct policy_fault - how to misbehave; members that are 0 do nothing. Applied in this order, with probability @chance. */
struct policy_fault {
	double chance; /* 0..1 */
	uint64_t seed; /* of the rule's own sequence of random numbers */
	uint32_t latency_ms, jitter_ms;
	uint16_t status; /* answer this instead of asking the host */
	bool reset;      /* break the connection instead */
	bool truncates;
	uint64_t truncate_bytes; /* end the answer's body after so many bytes, then reset */
	uint64_t rate_bytes;     /* per second, of the answer's body */
};

/** struct policy_change - one header or body field of the request that a transform sets (value) or removes (NULL). */
struct policy_change {
	bool in_body;
	char *name;    /* header name in lower case, or JSON pointer */
	json_t *value; /* a string for headers */
};

/** struct policy_deny - how to refuse. */
struct policy_deny {
	uint16_t status; /* 0: reset the connection */
	char *message;   /* for people; may be NULL */
};

/** struct policy_rule - what a decided exchange needs to know of its rule; read only. */
struct policy_rule {
	char *name;   /* unique in the policy */
	char *preset; /* the preset it came from, or NULL */
	enum policy_action action;
	struct policy_match *match;
	struct policy_deny deny;
	struct policy_fault fault;
	struct policy_change *changes;
	size_t n_changes;
	struct policy_budget budgets[POLICY_BUDGETS_MAX];
	size_t n_budgets;
	char *upstream;         /* "address:port" to dial instead of the name's, or NULL */
	bool private_addresses; /* the name may resolve to private, loopback or link-local addresses */
	bool passes_placeholders; /* one of a secret in a body goes out as it is, wherever it stands there */
};

/** struct policy_secret - a secret that may be put into requests; its value lives elsewhere. */
struct policy_secret {
	char *name;
	bool offered; /* by a preset: bound where there is a secret of this name */
	char **hosts; /* patterns as in a rule's match */
	size_t n_hosts;
	struct policy_place {
		enum policy_surface {
			POLICY_IN_HEADER,
			POLICY_IN_QUERY,
			POLICY_IN_BODY,
			POLICY_IN_FORM,
			POLICY_IN_SIGV4 /* never sent: requests that are signed with it are signed anew */
		} surface;
		char *name; /* of a header, a parameter or a form field, or JSON pointer, or the access key's id ("*": any) */
	} * places;
	size_t n_places;
};

struct policy;

struct policy_verdict {
	bool need_more; /* not decided: ask again at the next stage. Only @transports is set beside it */
	unsigned int
		transports; /* bits 1 << enum policy_transport with which something else than a denial may come out */
	enum policy_action action;
	const struct policy_rule *rule; /* NULL when nothing matched */
	size_t rule_index;
};

/**
 * policy_compile() - check a document and make it ready for decisions.
 * @document: borrowed.
 * @ret: a reference of the caller's, policy_unref().
 *
 * Return: 0; -EINVAL with @err naming the member ("rules[3].match.port: …").
 */
int policy_compile(const json_t *document, struct policy **ret, struct err *err) attr_must_use;

/**
 * policy_document() - read the text of a policy, YAML or JSON, into the document that policy_compile() takes.
 * @ret: a new reference.
 *
 * Return: 0; -EINVAL with @err naming the line; -EMSGSIZE over %POLICY_TEXT_MAX.
 */
int policy_document(const char *p, size_t n, json_t **ret, struct err *err) attr_must_use;

/** policy_ref() - one more user, so that what a verdict points to stays. NULL is allowed. Return: @p. */
struct policy *policy_ref(struct policy *p);

/** policy_unref() - one less; the last one frees. NULL is allowed. */
void policy_unref(struct policy *p);

/** policy_decide() - what to do with @rq at its stage. */
void policy_decide(
	const struct policy *p, const struct policy_request *rq, struct policy_verdict *ret);

/**
 * policy_passes_tls() - is TLS to @host and @port passed on unopened?
 * What is asked inside is known only when it is opened, so the first rule of transport http or tls that may match there decides.
 * Return: the rule that lets it pass; NULL: it is opened.
 */
const struct policy_rule *policy_passes_tls(
	const struct policy *p, const char *host, uint16_t port);

/** policy_explain() - every rule with what it says to @rq: [{"rule","action","result":"match|no|later","because"}]. A new reference. */
json_t *policy_explain(const struct policy *p, const struct policy_request *rq) attr_must_use;

/** policy_reads_header() - does some rule of @p look at the header @name, also written with '_' for '-'? NULL is allowed. */
bool policy_reads_header(const struct policy *p, struct policy_text name);

/** policy_path_fn - somebody looks at what the JSON @pointer leads to, and of a string there at its first @string_bytes (SIZE_MAX: all of it). */
typedef void policy_path_fn(const char *pointer, size_t string_bytes, void *ctx);

/** policy_reads_body() - call @each with all that the rules look at in the body which may still decide @rq, or count it. */
void policy_reads_body(
	const struct policy *p, const struct policy_request *rq, policy_path_fn *each, void *ctx);

/** policy_body_max() - bytes of a request's body that are read for rules, as they travel and decoded; a larger one cannot be read. */
size_t policy_body_max(const struct policy *p);

/** policy_rules() - all rules in order. */
const struct policy_rule *policy_rules(const struct policy *p, size_t *ret_n);

/** policy_secrets() - all bound secrets. */
const struct policy_secret *policy_secrets(const struct policy *p, size_t *ret_n);

/** policy_secret_bound() - may @secret go to @host? */
bool policy_secret_bound(const struct policy_secret *secret, const char *host);

/** struct policy_port_range - ports first..last that some rule other than a denial can match. */
struct policy_port_range {
	uint16_t first, last;
};

/** policy_ports() - the ports worth a connection, ascending, joined. @ret is owned by the policy. */
size_t policy_ports(const struct policy *p, const struct policy_port_range **ret);

/** policy_action_name() - "allow"; static. */
const char *policy_action_name(enum policy_action action);

/** policy_transport_name() - "http"; static. */
const char *policy_transport_name(enum policy_transport transport);

/** policy_record_name() - "SRV"; static. */
const char *policy_record_name(enum policy_record record);

/** policy_preset() - the document of a preset as JSON text; NULL when there is none of that name. Static. */
const char *policy_preset(const char *name);

/** policy_preset_name() - name of preset @i; NULL after the last. */
const char *policy_preset_name(size_t i);

#endif
