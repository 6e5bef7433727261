/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "codec/jsontext.h"
#include "gateway/secrets_internal.h"

/* Placeholders where they do not belong. */

/* Is a placeholder let through there, as it is? */
static bool passes(const struct exchange *x, const char *where)
{
	return x->rule != NULL && x->rule->passes_placeholders && str_eq(where, "body");
}

/* @field: the header's name, if it is in one. */
static int misplaced(struct exchange *x, const struct secret *secret, const char *where,
	struct policy_text field)
{
	bool passed = passes(x, where);
	struct buf data = BUF_INIT(PROXY_EVENT_MAX);

	jsontext_open(&data, '{');
	jsontext_member_string(&data, "name", secret->binding->name);
	jsontext_member_string(&data, "host", x->host.host);
	jsontext_member_string(&data, "where", where);
	jsontext_member_integer(&data, "exchange", (int64_t)x->number);
	jsontext_member_bool(&data, "passed", passed);
	jsontext_close(&data, '}');
	x->proxy->hooks.event(x->proxy->hooks.ctx, x->conn, "secret.misplaced", &data);
	buf_free(&data);
	if (passed)
		return 0;
	if (field.n > 0)
		exchange_because(x, "denied",
			"the placeholder of secret '%s' may not go into the header '%.*s' of a request to %s",
			secret->binding->name, field.n < 64 ? (int)field.n : 64, field.p,
			x->host.host);
	else
		exchange_because(x, "denied",
			"the placeholder of secret '%s' may not go into the %s of a request to %s%s",
			secret->binding->name, where, x->host.host,
			str_eq(where, "body")
				? " (a rule with placeholders: pass lets it, as it is)"
				: "");
	return -EACCES;
}

static int check_found(
	struct exchange *x, const struct scrub *search, const char *where, struct policy_text field)
{
	int rc = 0;

	for (size_t i = 0; i < x->secrets->n && rc == 0; i++)
		if (scrub_found(search, i) > 0)
			rc = misplaced(x, &x->secrets->list[i], where, field);
	return rc;
}

static int check_text(
	struct exchange *x, struct policy_text text, const char *where, struct policy_text field)
{
	struct scrub *search = scrub_new(x->secrets->find);
	struct buf out = BUF_INIT(SIZE_MAX / 2);
	int rc;

	scrub_write(search, text.p, text.n, &out);
	scrub_end(search, &out);
	rc = check_found(x, search, where, field);
	buf_free(&out);
	scrub_free(search);
	return rc;
}

static int check_body(struct exchange *x)
{
	struct scrub *search = scrub_new(x->secrets->find);
	struct buf out = BUF_INIT(SIZE_MAX / 2);
	struct held_piece *at = NULL;
	size_t n, done = 0;
	const char *p;
	int rc;

	while ((p = held_next(&x->body, &at, &n)) != NULL) {
		scrub_write(search, p, n, &out);
		buf_reset(&out);
		exchange_turn(&done, n);
	}
	scrub_end(search, &out);
	rc = check_found(x, search, "body", (struct policy_text){ 0 });
	buf_free(&out);
	scrub_free(search);
	return rc;
}

int secrets_check_fields(struct exchange *x, const struct policy_field *fields, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0 && x->secrets != NULL && x->secrets->n > 0; i++) {
		rc = check_text(x, fields[i].name, "headers", (struct policy_text){ 0 });
		if (rc == 0)
			rc = check_text(x, fields[i].value, "headers", fields[i].name);
	}
	return rc;
}

int secrets_check(struct exchange *x)
{
	const struct head *rq = &x->request;
	const struct policy_text no_field = { 0 };
	int rc = check_text(x, rq->path, "path", no_field);

	if (rc == 0 && rq->has_query)
		rc = check_text(x, rq->query, "query", no_field);
	if (rc == 0)
		rc = secrets_check_fields(x, rq->fields, rq->n_fields);
	if (rc == 0 && x->body.n > 0)
		rc = check_body(x);
	return rc;
}

struct scrub *secrets_watch(struct exchange *x)
{
	return x->secrets != NULL && x->secrets->n > 0 ? scrub_new(x->secrets->find) : NULL;
}

int secrets_watched(struct exchange *x, const struct scrub *watch, const char *where, bool ended)
{
	if (watch == NULL || (passes(x, where) && !ended))
		return 0;
	return check_found(x, watch, where, (struct policy_text){ 0 });
}
