/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/mail.h"
#include "base/clock.h"
#include "base/str.h"
#include "codec/base64.h"
#include "codec/mime.h"
#include "codec/smtp.h"
#include "gateway/budgets.h"
#include "gateway/proxy.h"
#include "gateway/serve.h"

#define READ_SIZE  16384
#define IDLE_NS    (300 * NS_PER_S) /* RFC 5321 section 4.5.3.2.7 */
#define WRITE_NS   (60 * NS_PER_S)
#define JOURNAL_NS (30 * NS_PER_S)
#define SMTPS_PORT 465
#define SHOWN_MAX  100U /* recipients in an event */
#define MAIL_JSON_MAX \
	(512U << 10) /* of a message as it was parsed; all of it travels in one frame */
#define DATA_JSON_MAX \
	(900U << 10) /* of all that is told of it, but for the subject, which is there twice */
#define RAW_MAX      (192U << 10) /* of its bytes as they came */
#define RAW_TEXT_MAX (256U << 10) /* the same written in an event */

struct session {
	struct conn *c;
	const struct policy_rule *rule;
	size_t index;
	struct wire *w;
	struct smtp smtp;
	struct tls_hello hello;
	struct buf out;
};

/* ---- a message -------------------------------------------------------------------------------------------------------------- */

static size_t size_of(const json_t *value)
{
	return json_dumpb(value, NULL, 0, JSON_COMPACT);
}

/* While @whole, which is @mail or has it, is larger than @max, @mail loses its parts in the order of what readers miss least. */
static void bound(json_t *mail, const json_t *whole, size_t max)
{
	static const char *const parts[] = { "html", "headers", "attachments", "text", "message_id",
		"reply_to", "cc", "date", "to", "from", "subject" };

	for (size_t i = 0; i < ARRAY_SIZE(parts) && size_of(whole) > max; i++) {
		(void)json_object_set_new(mail, parts[i], json_null());
		(void)json_object_set_new(mail, "cut", json_true());
	}
}

static json_t *recipients(const struct smtp *s)
{
	json_t *list = json_array();
	const char *p = s->recipients.p;

	for (size_t i = 0; i < s->n_recipients && i < SHOWN_MAX; i++, p += strlen(p) + 1)
		(void)json_array_append_new(list, json_string(p));
	return list;
}

/* The bytes as they came: as text where that is text and not much longer, else in base64. */
static void add_raw(json_t *mail, const struct buf *message)
{
	size_t n = message->n < RAW_MAX ? message->n : RAW_MAX;
	const char *p = buf_cstr(message);
	json_t *text = str_text_valid(p, n) ? json_stringn(p, n) : NULL;

	if (text != NULL && json_dumpb(text, NULL, 0, JSON_ENCODE_ANY) <= RAW_TEXT_MAX) {
		(void)json_object_set(mail, "raw", text);
	} else {
		cleanup_free char *encoded = base64_encode(p, n);

		(void)json_object_set_new(mail, "raw_base64", json_string(encoded));
	}
	json_decref(text);
	if (n < message->n)
		(void)json_object_set_new(mail, "raw_cut", json_true());
}

static json_t *mail_data(const struct session *m)
{
	const struct smtp *s = &m->smtp;
	json_t *mail = mime_parse(buf_cstr(&s->message), s->message.n);
	json_t *data = conn_peer_json(m->c);

	bound(mail, mail, MAIL_JSON_MAX);
	add_raw(mail, &s->message);
	(void)json_object_set_new(data, "rule", json_string(m->rule->name));
	(void)json_object_set_new(data, "from", json_string(s->sender));
	(void)json_object_set_new(data, "to", recipients(s));
	(void)json_object_set_new(data, "recipients", json_integer((json_int_t)s->n_recipients));
	(void)json_object_set_new(data, "bytes", json_integer((json_int_t)s->message.n));
	(void)json_object_set_new(data, "tls", json_boolean(s->secured));
	(void)json_object_set_new(data, "mail", mail);
	bound(mail, data, DATA_JSON_MAX);
	(void)json_object_set(data, "subject", json_object_get(mail, "subject"));
	return data;
}

static enum ledger_answer spend(const struct session *m)
{
	const struct ledger_amounts amounts = { .bytes = m->smtp.message.n };
	struct ledger_result refusal;

	if (m->rule->n_budgets == 0)
		return LEDGER_OK;
	return budgets_reserve(m->c->gw, m->c->policy, m->index, &amounts, &refusal);
}

static void set_kept(json_t *data, bool kept)
{
	(void)json_object_set_new(data, "kept", json_boolean(kept));
	if (!kept)
		(void)json_object_del(data, "mail");
}

/* Whoever sent it hears that it is kept when it is; what he is told to send again is not kept when cayd comes to it later. */
static void keep(struct session *m, uint64_t number, json_t *data)
{
	struct gateway *gw = m->c->gw;
	char id[24];

	if (gateway_event_written(gw, number, clock_now_ns() + JOURNAL_NS) < 0) {
		set_kept(data, false);
		gateway_event_restate(gw, number, "net.mail", conn_owner(m->c), data);
		smtp_defer(&m->smtp, "it cannot be kept now", &m->out);
		return;
	}
	(void)snprintf(id, sizeof(id), "%llu", (unsigned long long)number);
	smtp_accept(&m->smtp, id, &m->out);
}

static void take_message(struct session *m)
{
	struct gateway *gw = m->c->gw;
	enum ledger_answer answer = spend(m);
	json_t *data = serve_scrubbed(gw, mail_data(m));
	uint64_t number;

	set_kept(data, answer == LEDGER_OK);
	number = gateway_event(gw, "net.mail", conn_owner(m->c), json_incref(data));
	if (answer == LEDGER_OK)
		keep(m, number, data);
	else if (answer == LEDGER_BUSY || answer == LEDGER_LATER)
		smtp_defer(&m->smtp, "a budget cannot be asked now", &m->out);
	else
		smtp_refuse(&m->smtp, "a budget is exhausted", &m->out);
	json_decref(data);
}

/* ---- the conversation ------------------------------------------------------------------------------------------------------- */

static int answer(struct session *m)
{
	int rc = m->out.n > 0 ? wire_write(m->w, m->out.p, m->out.n, clock_now_ns() + WRITE_NS) : 0;

	buf_reset(&m->out);
	return rc;
}

static int begin_tls(struct session *m)
{
	struct proxy *p = m->c->gw->proxy;
	SSL *ssl;

	m->hello.fallback = m->c->host;
	ssl = tls_server_new(&p->server, &m->hello);
	return ssl != NULL ? wire_accept_tls(m->w, ssl, clock_now_ns() + WRITE_NS) : -ENOMEM;
}

/* Deal with @n received bytes. Return: 0, or negative when the conversation is over. */
static int take(struct session *m, const char *p, size_t n)
{
	while (n > 0) {
		size_t used;
		enum smtp_step step = smtp_feed(&m->smtp, p, n, &used, &m->out);
		int rc = 0;

		p += used;
		n -= used;
		if (step == SMTP_MESSAGE)
			take_message(m);
		if (step != SMTP_MORE)
			rc = answer(m);
		if (rc == 0 && step == SMTP_STARTTLS) {
			n = 0; /* what came before TLS is not trusted behind it */
			rc = begin_tls(m);
			smtp_secured(&m->smtp);
		}
		if (rc < 0 || step == SMTP_QUIT)
			return -EPIPE;
	}
	return answer(m);
}

static void converse(struct session *m)
{
	static const size_t size = READ_SIZE;
	char *bytes = xalloc(size);
	int rc = m->c->port == SMTPS_PORT ? begin_tls(m) : 0;

	if (rc == 0) {
		smtp_greet(&m->smtp, &m->out);
		rc = answer(m);
	}
	while (rc == 0) {
		ssize_t n = wire_read(m->w, bytes, size, clock_now_ns() + IDLE_NS);

		rc = n > 0 ? take(m, bytes, (size_t)n) : -EPIPE;
	}
	free(bytes);
}

void mail_serve(struct conn *c, const struct policy_rule *rule, size_t index)
{
	struct session m = { .c = c, .rule = rule, .index = index, .out = BUF_INIT(1U << 20) };
	bool tls = c->gw->proxy != NULL;

	m.w = wire_new(c->gw->loop, c->fd, NULL, 0);
	c->fd = -1;
	if (m.w == NULL)
		return;
	smtp_init(&m.smtp, c->host, tls, tls && c->port == SMTPS_PORT);
	if (tls || c->port != SMTPS_PORT)
		converse(&m);
	smtp_fini(&m.smtp);
	buf_free(&m.out);
	wire_close(m.w);
}
