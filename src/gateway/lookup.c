/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/lookup.h"
#include "base/clock.h"
#include "base/str.h"
#include "gateway/budgets.h"
#include "gateway/owner.h"
#include "gateway/resolver.h"
#include "gateway/serve.h"

#include <ares.h>
#include <string.h>

#define TTL_S       60
#define QUESTION    18 /* bytes of a question beside the text of its name */
#define AT_ONCE_MAX 64 /* look-ups under way; more are told to come again */
#define TOLD_MAX    16 /* records in an event */
#define TEXT_MAX    65000U

/* What becomes of one look-up. */
struct records {
	struct dns_answer *answer;
	json_t *told;
	size_t n;
};

static const struct record_type {
	enum dns_type type;
	enum policy_record record;
} types[] = { { DNS_SRV, POLICY_SRV }, { DNS_TXT, POLICY_TXT }, { DNS_MX, POLICY_MX } };

static const char *const code_names[] = { [DNS_NOERROR] = "noerror",
	[DNS_SERVFAIL] = "servfail",
	[DNS_NXDOMAIN] = "nxdomain",
	[DNS_REFUSED] = "refused" };

static size_t under_way;

static const struct record_type *type_of(uint16_t type)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (types[i].type == type)
			return &types[i];
	return NULL;
}

const char *lookup_record(uint16_t type)
{
	const struct record_type *found = type_of(type);

	return found != NULL ? policy_record_name(found->record) : NULL;
}

bool lookup_decide(const struct gateway *gw, const struct dns_query *q, struct policy_verdict *ret)
{
	const struct record_type *type = type_of(q->type);
	struct policy_request rq = { .stage = POLICY_BODY,
		.host = q->name,
		.port = POLICY_DNS_PORT,
		.transport = POLICY_DNS };

	if (type == NULL || gw->policy == NULL || !q->plain || q->name[0] == '\0')
		return false;
	rq.record = type->record;
	policy_decide(gw->policy, &rq, ret);
	return ret->action == POLICY_ALLOW;
}

/* ---- records ---------------------------------------------------------------------------------------------------------------- */

static void tell_record(struct records *r, const char *text, size_t n)
{
	json_t *value = json_stringn(text, n < 255 ? n : 255);

	r->n++;
	if (json_array_size(r->told) < TOLD_MAX)
		(void)json_array_append_new(
			r->told, value != NULL ? value : json_string("(no text)"));
	else
		json_decref(value);
}

static void put_u16(unsigned char *p, unsigned int value)
{
	p[0] = (unsigned char)(value >> 8);
	p[1] = (unsigned char)value;
}

/* A record that ends in a name: numbers, then where it points. */
static void add_pointing(struct records *r, enum dns_type type, const unsigned int *numbers,
	size_t n, const char *name)
{
	unsigned char prefix[6];
	char text[DNS_NAME_MAX + 32];
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		put_u16(prefix + 2 * i, numbers[i]);
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%u ", numbers[i]);
	}
	if (dns_answer_add_name(r->answer, (uint16_t)type, TTL_S, prefix, 2 * n, name) < 0)
		return;
	(void)snprintf(text + at, sizeof(text) - at, "%s", *name != '\0' ? name : ".");
	tell_record(r, text, strlen(text));
}

static void add_srv(struct records *r, const unsigned char *p, int n)
{
	struct ares_srv_reply *list = NULL;

	if (ares_parse_srv_reply(p, n, &list) != ARES_SUCCESS)
		return;
	for (const struct ares_srv_reply *one = list; one != NULL; one = one->next)
		add_pointing(r, DNS_SRV, (unsigned int[]){ one->priority, one->weight, one->port },
			3, one->host);
	ares_free_data(list);
}

static void add_mx(struct records *r, const unsigned char *p, int n)
{
	struct ares_mx_reply *list = NULL;

	if (ares_parse_mx_reply(p, n, &list) != ARES_SUCCESS)
		return;
	for (const struct ares_mx_reply *one = list; one != NULL; one = one->next)
		add_pointing(r, DNS_MX, (unsigned int[]){ one->priority }, 1, one->host);
	ares_free_data(list);
}

static void end_text(struct records *r, struct buf *data, struct buf *text)
{
	if (data->n > 0 && !buf_failed(data)) {
		dns_answer_add(r->answer, DNS_TXT, TTL_S, data->p, data->n);
		tell_record(r, buf_cstr(text), text->n);
	}
	buf_reset(data);
	buf_reset(text);
}

/* A record is a row of strings of up to 255 bytes. */
static void add_txt(struct records *r, const unsigned char *p, int n)
{
	cleanup_buf struct buf data = BUF_INIT(TEXT_MAX), text = BUF_INIT(TEXT_MAX);
	struct ares_txt_ext *list = NULL;

	if (ares_parse_txt_reply_ext(p, n, &list) != ARES_SUCCESS)
		return;
	for (const struct ares_txt_ext *one = list; one != NULL; one = one->next) {
		if (one->record_start)
			end_text(r, &data, &text);
		if (one->length > 255)
			continue;
		buf_char(&data, (char)one->length);
		buf_add(&data, one->txt, one->length);
		buf_add(&text, one->txt, one->length);
	}
	end_text(r, &data, &text);
	ares_free_data(list);
}

static void add_records(struct records *r, uint16_t type, const struct buf *reply)
{
	const unsigned char *p = (const unsigned char *)reply->p;

	switch (type) {
	case DNS_SRV:
		add_srv(r, p, (int)reply->n);
		break;
	case DNS_TXT:
		add_txt(r, p, (int)reply->n);
		break;
	case DNS_MX:
		add_mx(r, p, (int)reply->n);
		break;
	default:
		break;
	}
}

/* ---- the whole of it -------------------------------------------------------------------------------------------------------- */

/* A budget of bytes counts what is said to the name server and what that says. Return: 0; -EACCES, or -EBUSY when nobody can say now. */
static int within_budget(struct gateway *gw, const struct dns_query *q, const struct policy *policy,
	const struct policy_verdict *v)
{
	const struct ledger_amounts amounts = { .bytes = strlen(q->name) + QUESTION };
	struct ledger_result refusal;
	enum ledger_answer answer = LEDGER_OK;

	if (v->rule->n_budgets > 0)
		answer = budgets_reserve(gw, policy, v->rule_index, &amounts, &refusal);
	if (answer == LEDGER_BUSY || answer == LEDGER_LATER)
		return -EBUSY;
	return answer == LEDGER_OK ? 0 : -EACCES;
}

/* An answer that does not fit any more is not shown. Return: 0 or -EACCES. */
static int pay_reply(struct gateway *gw, const struct policy *policy,
	const struct policy_verdict *v, struct buf *reply)
{
	if (v->rule->n_budgets == 0 || reply->n == 0 ||
		budgets_take(gw, policy, v->rule_index, reply->n) == reply->n)
		return 0;
	buf_reset(reply);
	return -EACCES;
}

/* Return: the code of the answer; @reply holds a message when it is %DNS_NOERROR and there are records. */
static enum dns_code ask(struct gateway *gw, const struct dns_query *q, const struct policy *policy,
	const struct policy_verdict *v, struct buf *reply)
{
	int rc;

	if (under_way == AT_ONCE_MAX)
		return DNS_SERVFAIL;
	under_way++;
	rc = within_budget(gw, q, policy, v);
	if (rc == 0)
		rc = resolver_ask(gw, q->name, q->type, v->rule->upstream, reply);
	if (rc == 0)
		rc = pay_reply(gw, policy, v, reply);
	under_way--;
	if (rc == -EACCES)
		return DNS_REFUSED;
	if (rc == -ENOENT)
		return DNS_NXDOMAIN;
	return rc == 0 || rc == -ENODATA ? DNS_NOERROR : DNS_SERVFAIL;
}

void lookup_answer(struct gateway *gw, const struct dns_query *q, const struct policy *policy,
	const struct policy_verdict *v, struct owner_search *whose, size_t limit, struct buf *out)
{
	cleanup_buf struct buf reply = BUF_INIT(DNS_MESSAGE_MAX);
	uint64_t began = clock_now_ns();
	enum dns_code code = ask(gw, q, policy, v, &reply);
	struct dns_answer answer;
	struct records r = { &answer, json_array(), 0 };

	dns_answer_begin(&answer, out, q, code);
	if (reply.n > 0 && !buf_failed(&reply))
		add_records(&r, q->type, &reply);
	dns_answer_end(&answer, limit);
	gateway_event(gw, "net.lookup", owner_search_exec(whose),
		serve_scrubbed(gw, json_pack("{s:s, s:s, s:s, s:s, s:o, s:I}", "name", q->name,
					   "type", lookup_record(q->type), "rule", v->rule->name,
					   "code", code_names[code], "records", r.told, "us",
					   (json_int_t)((clock_now_ns() - began) / 1000))));
}
