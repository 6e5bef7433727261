/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/yaml_document.h"
#include "base/str.h"

#include <math.h>
#include <yaml.h>

struct reading {
	yaml_parser_t parser;
	yaml_event_t event;
	bool has_event;
	char *reason;
};

static int refuse(struct reading *r, const char *what)
{
	(void)snprintf(r->reason, YAML_REASON_SIZE, "line %zu: %s",
		(r->has_event ? r->event.start_mark.line : r->parser.problem_mark.line) + 1, what);
	return -EINVAL;
}

static int next(struct reading *r)
{
	if (r->has_event)
		yaml_event_delete(&r->event);
	r->has_event = yaml_parser_parse(&r->parser, &r->event) == 1;
	if (!r->has_event)
		return refuse(r, r->parser.problem != NULL ? r->parser.problem : "cannot be read");
	return 0;
}

static bool number(const char *s, json_t **ret)
{
	char *end;

	if (s[strspn(s, "0123456789+-.eE")] != '\0' || strpbrk(s, "0123456789") == NULL)
		return false;
	if (s[strspn(s, "0123456789+-")] == '\0') {
		errno = 0;
		*ret = json_integer(strtoll(s, &end, 10));
	} else {
		double d = strtod(s, &end);

		errno = 0;
		*ret = isfinite(d) ? json_real(d) : NULL;
	}
	if (*ret != NULL && *end == '\0' && errno == 0)
		return true;
	json_decref(*ret);
	return false;
}

/* The core schema of YAML 1.2, section 10.3.2, without octal, hexadecimal, infinity and not-a-number: those stay strings. */
static json_t *plain_scalar(const char *s)
{
	json_t *v;

	if (*s == '\0' || str_eq(s, "~") || str_eq(s, "null") || str_eq(s, "Null") ||
		str_eq(s, "NULL"))
		return json_null();
	if (str_eq(s, "true") || str_eq(s, "True") || str_eq(s, "TRUE"))
		return json_true();
	if (str_eq(s, "false") || str_eq(s, "False") || str_eq(s, "FALSE"))
		return json_false();
	return number(s, &v) ? v : json_string(s);
}

static int scalar(struct reading *r, json_t **ret)
{
	const char *s = (const char *)r->event.data.scalar.value;
	size_t n = r->event.data.scalar.length;

	if (r->event.data.scalar.anchor != NULL || r->event.data.scalar.tag != NULL)
		return refuse(r, "anchors and tags are not allowed");
	if (strlen(s) != n)
		return refuse(r, "NUL is not allowed");
	*ret = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? plain_scalar(s)
								     : json_stringn(s, n);
	return *ret != NULL ? 0 : refuse(r, "is not UTF-8");
}

static int node(struct reading *r, unsigned int depth, json_t **ret);

static int sequence(struct reading *r, unsigned int depth, json_t *list)
{
	for (;;) {
		json_t *item;
		int rc = next(r);

		if (rc < 0)
			return rc;
		if (r->event.type == YAML_SEQUENCE_END_EVENT)
			return 0;
		rc = node(r, depth + 1, &item);
		if (rc < 0)
			return rc;
		json_array_append_new(list, item);
	}
}

static int member(struct reading *r, unsigned int depth, json_t *object)
{
	cleanup_free char *key = NULL;
	json_t *value;
	int rc;

	if (r->event.type != YAML_SCALAR_EVENT || r->event.data.scalar.anchor != NULL ||
		r->event.data.scalar.tag != NULL)
		return refuse(r, "a key must be a string");
	key = str_dup((const char *)r->event.data.scalar.value);
	if (strlen(key) != r->event.data.scalar.length || !str_utf8_valid(key, strlen(key)))
		return refuse(r, "a key must be a string");
	if (json_object_get(object, key) != NULL)
		return refuse(r, "a key comes twice");
	rc = next(r);
	if (rc == 0)
		rc = node(r, depth + 1, &value);
	if (rc == 0)
		json_object_set_new(object, key, value);
	return rc;
}

static int mapping(struct reading *r, unsigned int depth, json_t *object)
{
	for (;;) {
		int rc = next(r);

		if (rc < 0)
			return rc;
		if (r->event.type == YAML_MAPPING_END_EVENT)
			return 0;
		rc = member(r, depth, object);
		if (rc < 0)
			return rc;
	}
}

/* The value whose first event is the current one. */
static int node(struct reading *r, unsigned int depth, json_t **ret)
{
	bool list = r->event.type == YAML_SEQUENCE_START_EVENT;
	bool object = r->event.type == YAML_MAPPING_START_EVENT;
	int rc;

	*ret = NULL;
	if (depth > YAML_DEPTH)
		return refuse(r, "nested too deeply");
	if (r->event.type == YAML_SCALAR_EVENT)
		return scalar(r, ret);
	if (!list && !object)
		return refuse(r, "aliases are not allowed");
	if (list ? r->event.data.sequence_start.anchor != NULL ||
				r->event.data.sequence_start.tag != NULL
		 : r->event.data.mapping_start.anchor != NULL ||
				r->event.data.mapping_start.tag != NULL)
		return refuse(r, "anchors and tags are not allowed");
	*ret = list ? json_array() : json_object();
	rc = list ? sequence(r, depth, *ret) : mapping(r, depth, *ret);
	if (rc < 0) {
		json_decref(*ret);
		*ret = NULL;
	}
	return rc;
}

static int document(struct reading *r, json_t **ret)
{
	int rc = next(r); /* stream start */

	if (rc == 0)
		rc = next(r);
	if (rc == 0 && r->event.type != YAML_DOCUMENT_START_EVENT)
		rc = refuse(r, "is empty");
	if (rc == 0)
		rc = next(r);
	if (rc == 0)
		rc = node(r, 0, ret);
	if (rc == 0)
		rc = next(r); /* document end */
	if (rc == 0)
		rc = next(r);
	if (rc == 0 && r->event.type != YAML_STREAM_END_EVENT)
		rc = refuse(r, "holds more than one document");
	return rc;
}

int yaml_parse(const char *p, size_t n, json_t **ret, char reason[YAML_REASON_SIZE])
{
	struct reading r = { .reason = reason };
	json_t *value = NULL;
	int rc;

	if (yaml_parser_initialize(&r.parser) != 1)
		abort();
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)p, n);
	rc = document(&r, &value);
	if (r.has_event)
		yaml_event_delete(&r.event);
	yaml_parser_delete(&r.parser);
	if (rc == 0)
		*ret = value;
	else
		json_decref(value);
	return rc;
}
