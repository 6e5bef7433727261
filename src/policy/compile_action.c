/* SPDX-License-Identifier: Apache-2.0 */
/* What a rule does: deny, fault, transform, and its budgets. */
#include "base/str.h"
#include "codec/httphead.h"
#include "policy/compile.h"
#include "policy/pattern.h"

#define NOT_READ " is not for rules with upgrade: what is said in a WebSocket is not read"

static int read_status(struct reader *r, const json_t *o, uint16_t *ret)
{
	uint64_t status = *ret;
	int rc = reader_number(r, o, "status", 400, 599, &status);

	*ret = (uint16_t)status;
	return rc;
}

static int read_deny(struct reader *r, const json_t *rule, struct policy_rule *ret)
{
	static const char *const words[] = { "status", "reset" };
	const json_t *o = json_object_get(rule, "deny");
	size_t mark = reader_enter(r, ".deny");
	unsigned int how = 0;
	int rc;

	ret->deny.status = 403;
	if (o == NULL) {
		reader_leave(r, mark);
		return 0;
	}
	rc = reader_object(r, o, KNOWN("status", "with", "message"));
	if (rc == 0)
		rc = read_status(r, o, &ret->deny.status);
	if (rc == 0)
		rc = reader_choice(r, o, "with", words, ARRAY_SIZE(words), &how);
	if (rc == 0)
		rc = reader_string(r, o, "message", &ret->deny.message);
	if (rc < 0)
		return rc;
	if (how == 1)
		ret->deny.status = 0;
	reader_leave(r, mark);
	return 0;
}

static int read_chance(struct reader *r, const json_t *o, double *ret)
{
	const json_t *v = json_object_get(o, "chance");

	*ret = 1;
	if (v == NULL)
		return 0;
	*ret = json_number_value(v);
	if (!json_is_number(v) || *ret < 0 || *ret > 1)
		return reader_fail(r, "chance must be a number from 0 to 1");
	return 0;
}

static int read_fault(struct reader *r, const json_t *rule, struct policy_rule *ret)
{
	const json_t *o = json_object_get(rule, "fault");
	struct policy_fault *f = &ret->fault;
	uint64_t latency = 0, jitter = 0, status = 0;
	size_t mark = reader_enter(r, ".fault");
	int rc = reader_object(r, o,
		KNOWN("chance", "seed", "latency", "jitter", "status", "reset", "truncate",
			"rate"));

	if (rc == 0)
		rc = read_chance(r, o, &f->chance);
	if (rc == 0)
		rc = reader_number(r, o, "seed", 0, INT64_MAX, &f->seed);
	if (rc == 0)
		rc = reader_duration(r, o, "latency", &latency);
	if (rc == 0)
		rc = reader_duration(r, o, "jitter", &jitter);
	if (rc == 0)
		rc = reader_number(r, o, "status", 200, 599, &status);
	if (rc == 0)
		rc = reader_bool(r, o, "reset", &f->reset);
	if (rc == 0)
		rc = reader_size(r, o, "truncate", &f->truncate_bytes);
	if (rc == 0)
		rc = reader_size(r, o, "rate", &f->rate_bytes);
	if (rc == 0 && (latency > 3600000 || jitter > 3600000))
		rc = reader_fail(r, "latency and jitter are at most an hour");
	if (rc < 0)
		return rc;
	f->latency_ms = (uint32_t)latency;
	f->jitter_ms = (uint32_t)jitter;
	f->status = (uint16_t)status;
	f->truncates = json_object_get(o, "truncate") != NULL;
	reader_leave(r, mark);
	return 0;
}

#define TOKEN "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"

/* Names of headers have no case; heads have them in small letters. */
static char *small(const char *name)
{
	char *copy = str_dup(name);

	for (char *p = copy; *p != '\0'; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p - 'A' + 'a');
	return copy;
}

static bool one_line(const json_t *value)
{
	const char *p = json_string_value(value);

	for (size_t i = 0; p != NULL && i < json_string_length(value); i++)
		if (((unsigned char)p[i] < 0x20 && p[i] != '\t') || p[i] == 0x7f)
			return false;
	return p != NULL;
}

/* What is wrong with a field that is set (@value), or removed (NULL). */
static int check_field(struct reader *r, const char *name, const json_t *value)
{
	if (*name == '\0' || strspn(name, TOKEN) != strlen(name))
		return reader_fail(r, "'%s' is no name", name);
	if (value != NULL && httphead_is_hop(name, strlen(name)))
		return reader_fail(
			r, "'%s' concerns the connection alone: the gateway writes it anew", name);
	if (value != NULL && !one_line(value))
		return reader_fail(r, "'%s' must be a string of one line", name);
	return 0;
}

/* One "name: value" (set) or name (remove) of a transform. */
static int add_change(
	struct reader *r, struct policy_rule *ret, bool in_body, const char *name, json_t *value)
{
	struct policy_change *c = &ret->changes[ret->n_changes++];

	c->in_body = in_body;
	c->name = in_body ? str_dup(name) : small(name);
	c->value = json_incref(value);
	if (!in_body)
		return check_field(r, c->name, value);
	if (!pointer_valid(name) || strstr(name, "/*") != NULL)
		return reader_fail(r, "'%s' is no name", name);
	return 0;
}

static int check_changes(
	struct reader *r, const json_t *part, const json_t *set, const json_t *remove)
{
	int rc = part != NULL ? reader_object(r, part, KNOWN("set", "remove")) : 0;

	if (rc == 0 && set != NULL && !json_is_object(set))
		rc = reader_fail(r, "set must be an object of names and values");
	if (rc == 0 && remove != NULL && !json_is_array(remove))
		rc = reader_fail(r, "remove must be a list of names");
	if (rc == 0 && json_object_size(set) + json_array_size(remove) > POLICY_PATTERNS_MAX)
		rc = reader_fail(r, "holds more than %d changes", POLICY_PATTERNS_MAX);
	return rc;
}

static int read_changes(struct reader *r, const json_t *o, const char *member, bool in_body,
	struct policy_rule *ret)
{
	const json_t *part = json_object_get(o, member);
	json_t *set = json_object_get(part, "set"), *remove = json_object_get(part, "remove"),
	       *value;
	size_t mark = reader_enter(r, ".%s", member), i;
	const char *name;
	int rc = check_changes(r, part, set, remove);

	json_object_foreach (set, name, value)
		if (rc == 0)
			rc = add_change(r, ret, in_body, name, value);
	json_array_foreach (remove, i, value)
		if (rc == 0)
			rc = json_is_string(value)
				     ? add_change(r, ret, in_body, json_string_value(value), NULL)
				     : reader_fail(r, "remove must be a list of names");
	if (rc == 0)
		reader_leave(r, mark);
	return rc;
}

static int read_transform(struct reader *r, const json_t *rule, struct policy_rule *ret)
{
	const json_t *o = json_object_get(rule, "transform");
	size_t mark = reader_enter(r, ".transform");
	int rc = reader_object(r, o, KNOWN("headers", "json"));

	ret->changes = xalloc(2 * POLICY_PATTERNS_MAX * sizeof(*ret->changes));
	if (rc == 0)
		rc = read_changes(r, o, "headers", false, ret);
	if (rc == 0)
		rc = read_changes(r, o, "json", true, ret);
	if (rc == 0 && ret->match->websocket && json_object_get(o, "json") != NULL)
		rc = reader_fail(r, "json" NOT_READ);
	if (rc == 0)
		reader_leave(r, mark);
	return rc;
}

static int read_per(struct reader *r, const json_t *o, struct policy_budget *b)
{
	const char *per = json_string_value(json_object_get(o, "per"));

	if (per != NULL && str_eq(per, "total"))
		return 0;
	return reader_duration(r, o, "per", &b->per_ms);
}

static int read_sum(struct reader *r, const json_t *o, struct policy_budget *b)
{
	static const char *const words[] = { "request", "response" };
	unsigned int of = 0;
	int rc = reader_string(r, o, "field", &b->field);

	if (rc == 0 && (b->field == NULL || !pointer_valid(b->field)))
		rc = reader_fail(r, "field must be a member name or a JSON pointer");
	if (rc == 0)
		rc = reader_choice(r, o, "of", words, ARRAY_SIZE(words), &of);
	if (rc == 0)
		rc = reader_number(r, o, "missing", 0, INT64_MAX, &b->missing);
	if (rc == 0)
		rc = reader_number(r, o, "each", 1, INT64_MAX, &b->each);
	if (rc == 0 && of == 0 && json_object_get(o, "missing") != NULL)
		rc = reader_fail(r, "missing is for fields of the response");
	if (rc == 0 && of == 0 && b->each != 0)
		rc = reader_fail(r, "each is for fields of the response");
	b->measure = of == 0 ? POLICY_REQUEST_FIELD : POLICY_RESPONSE_FIELD;
	return rc;
}

static int read_one_budget(
	struct reader *r, const json_t *o, enum policy_measure measure, struct policy_rule *ret)
{
	struct policy_budget *b = &ret->budgets[ret->n_budgets];
	bool sum = measure == POLICY_REQUEST_FIELD;
	int rc = sum ? reader_object(r, o, KNOWN("max", "per", "field", "of", "missing", "each"))
		     : reader_object(r, o, KNOWN("max", "per"));

	if (ret->n_budgets == POLICY_BUDGETS_MAX)
		return reader_fail(r, "a rule has at most %d budgets", POLICY_BUDGETS_MAX);
	ret->n_budgets++;
	b->measure = measure;
	if (rc == 0 && json_object_get(o, "max") == NULL)
		rc = reader_fail(r, "needs a max");
	if (rc == 0)
		rc = measure == POLICY_BYTES ? reader_size(r, o, "max", &b->max)
					     : reader_number(r, o, "max", 0, INT64_MAX, &b->max);
	if (rc == 0)
		rc = read_per(r, o, b);
	if (rc == 0 && sum)
		rc = read_sum(r, o, b);
	return rc;
}

static int read_budget_member(struct reader *r, const json_t *o, const char *key,
	enum policy_measure measure, struct policy_rule *ret)
{
	const json_t *v = json_object_get(o, key);
	size_t n = json_is_array(v) ? json_array_size(v) : 1;
	size_t mark = reader_enter(r, ".%s", key);

	for (size_t i = 0; v != NULL && i < n; i++) {
		int rc = read_one_budget(
			r, json_is_array(v) ? json_array_get(v, i) : v, measure, ret);

		if (rc < 0)
			return rc;
	}
	reader_leave(r, mark);
	return 0;
}

int compile_budget(struct reader *r, const json_t *o, struct policy_rule *ret)
{
	int rc = reader_object(r, o, KNOWN("requests", "bytes", "sum"));

	if (rc == 0 && ret->action == POLICY_DENY)
		rc = reader_fail(r, "is of a denial, which spends nothing");
	if (rc == 0)
		rc = read_budget_member(r, o, "requests", POLICY_REQUESTS, ret);
	if (rc == 0)
		rc = read_budget_member(r, o, "bytes", POLICY_BYTES, ret);
	if (rc == 0)
		rc = read_budget_member(r, o, "sum", POLICY_REQUEST_FIELD, ret);
	if (rc == 0 && json_object_get(o, "sum") != NULL &&
		ret->match->transports != 1U << POLICY_HTTP)
		rc = reader_fail(r, "sum is for transport http");
	if (rc == 0 && json_object_get(o, "sum") != NULL && ret->match->websocket)
		rc = reader_fail(r, "sum" NOT_READ);
	return rc;
}

int compile_action(struct reader *r, const json_t *o, struct policy_rule *ret)
{
	static const struct {
		const char *member;
		enum policy_action action;
		bool needed;
		int (*read)(struct reader *r, const json_t *rule, struct policy_rule *ret);
	} details[] = { { "deny", POLICY_DENY, false, read_deny },
		{ "fault", POLICY_FAULT, true, read_fault },
		{ "transform", POLICY_TRANSFORM, true, read_transform } };

	for (size_t i = 0; i < ARRAY_SIZE(details); i++) {
		bool mine = details[i].action == ret->action;
		bool there = json_object_get(o, details[i].member) != NULL;
		int rc = 0;

		if (there && !mine)
			return reader_fail(r, "'%s' belongs to another action", details[i].member);
		if (mine && !there && details[i].needed)
			return reader_fail(r, "needs '%s'", details[i].member);
		if (mine)
			rc = details[i].read(r, o, ret);
		if (rc < 0)
			return rc;
	}
	return 0;
}
