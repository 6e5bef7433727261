/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/fuzz.h"
#include "policy/policy.h"

/* Records are asked outside by name alone: what is allowed of one type was possible when only the name was known. */
static void ask_records(const struct policy *p)
{
	struct policy_request rq = {
		.host = "a.example", .port = POLICY_DNS_PORT, .transport = POLICY_DNS
	};
	struct policy_verdict early, late;

	policy_decide(p, &rq, &early);
	rq.stage = POLICY_BODY;
	for (rq.record = 0; rq.record < POLICY_RECORD_COUNT; rq.record++) {
		policy_decide(p, &rq, &late);
		MUST(late.action == POLICY_DENY || late.action == POLICY_ALLOW);
		MUST(late.action == POLICY_DENY || (early.transports & 1U << POLICY_DNS) != 0);
		json_decref(policy_explain(p, &rq));
	}
}

/* The verdict never gets better with less knowledge: what is allowed in the end was possible at every stage before. */
static void ask(const struct policy *p)
{
	static const struct policy_field headers[] = { { { "x-a", 3 }, { "b", 1 } } };
	json_t *body = json_pack("{s:i, s:[{s:s}]}", "amount", 5, "tools", "type", "x");
	struct policy_request rq = { .host = "a.example",
		.port = 443,
		.method = { "GET", 3 },
		.path = { "/v1/a", 5 },
		.query = { "q=1&r=%41", 9 },
		.headers = headers,
		.n_headers = 1,
		.has_body = true,
		.body = body };
	struct policy_verdict v[POLICY_BODY + 1];

	for (rq.stage = POLICY_NAME; rq.stage <= POLICY_BODY; rq.stage++) {
		policy_decide(p, &rq, &v[rq.stage]);
		json_decref(policy_explain(p, &rq));
	}
	MUST(!v[POLICY_BODY].need_more);
	ask_records(p);
	for (unsigned int i = 0; v[POLICY_BODY].action != POLICY_DENY && i < POLICY_BODY; i++)
		MUST((v[i].transports & 1U << POLICY_HTTP) != 0);
	json_decref(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *copy = xalloc(size + 1);
	json_t *document = NULL;
	struct policy *p = NULL;
	struct err err = { 0 };

	memcpy(copy, data, size);
	if (policy_document(copy, size, &document, &err) < 0) {
		MUST(err.code != ERR_NONE);
		return 0;
	}
	if (policy_compile(document, &p, &err) == 0)
		ask(p);
	else
		MUST(err.code == ERR_INVALID && *err.msg != '\0');
	policy_unref(p);
	json_decref(document);
	return 0;
}
