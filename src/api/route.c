/* SPDX-License-Identifier: Apache-2.0 */
#include "api/route.h"
#include "api/keys.h"
#include "api/requester.h"
#include "api/server.h"
#include "base/ablate.h"
#include "base/str.h"

#include <strings.h>

#define BODY_MAX (1U << 20)

/* --- answers --- */

/* @headers: further lines, or NULL. */
static void reply_error(struct http_conn *conn, const struct err *err, const char *headers)
{
	json_t *body = json_pack("{s:o}", "error", err_to_json(err));
	cleanup_free char *text = json_dumps(body, JSON_COMPACT);

	json_decref(body);
	http_reply(conn, err_code_http(err->code), "application/json", headers, text, strlen(text));
}

void api_reply_error(struct http_conn *conn, const struct err *err)
{
	reply_error(conn, err, NULL);
}

/* @text: NULL: no body. */
static int reply(struct api_call *call, int status, const char *text, size_t n)
{
	if (call->key != NULL)
		keys_store(call, status, text != NULL ? text : "");
	server_flush(call->srv);
	http_reply(call->conn, status, text != NULL ? "application/json" : NULL, NULL, text, n);
	return 0;
}

/* Stolen. Only our own valid UTF-8 goes in. */
static char *object_text(json_t *object)
{
	char *text = json_dumps(object, JSON_COMPACT);

	if (text == NULL)
		abort();
	json_decref(object);
	return text;
}

int api_reply(struct api_call *call, int status, json_t *object)
{
	cleanup_free char *text = object != NULL ? object_text(object) : NULL;

	return reply(call, status, text, text != NULL ? strlen(text) : 0);
}

int api_reply_parts(
	struct api_call *call, int status, json_t *object, const struct api_part *parts, size_t n)
{
	cleanup_free char *first = object_text(object);
	cleanup_buf struct buf text = BUF_INIT(SIZE_MAX);

	buf_add(&text, first, strlen(first) - 1);
	for (size_t i = 0; i < n; i++) {
		buf_fmt(&text, ",\"%s\":", parts[i].member);
		buf_add(&text, parts[i].json->p, parts[i].json->n);
	}
	buf_char(&text, '}');
	return reply(call, status, buf_cstr(&text), text.n);
}

json_t *api_caller_groups(const struct api_call *call, struct err *err)
{
	cleanup_free gid_t *groups = NULL;
	size_t n = 0;
	int rc = stream_peer_groups(http_stream(call->conn), &groups, &n);
	json_t *list;

	if (rc < 0) {
		(void)err_raise_sys(err, rc, "ask for the groups of the caller");
		return NULL;
	}
	list = json_array();
	for (size_t i = 0; i < n; i++)
		(void)json_array_append_new(list, json_integer(groups[i]));
	return list;
}

const char *api_text(const struct api_call *call, const char *name)
{
	size_t pos = 0;

	return api_next_text(call, name, &pos);
}

const char *api_next_text(const struct api_call *call, const char *name, size_t *pos)
{
	while (*pos < call->n_values) {
		const struct api_value *v = &call->values[(*pos)++];

		if (str_eq(v->parameter->name, name))
			return v->text;
	}
	return NULL;
}

uint64_t api_number(const struct api_call *call, const char *name)
{
	const char *text = api_text(call, name);
	uint64_t value = 0;

	if (text == NULL || str_to_u64(text, 0, INT64_MAX, &value) < 0)
		return 0;
	return value;
}

bool api_flag(const struct api_call *call, const char *name)
{
	const char *text = api_text(call, name);

	return text != NULL && str_eq(text, "true");
}

/* --- finding the route --- */

/* Does @path match the template? Fills the {…} segments, still encoded. */
static bool path_matches(
	const char *template, struct httphead_text path, struct httphead_text *segments)
{
	const char *p = path.p, *end = path.p + path.n;
	size_t n = 0;

	memset(segments, 0, API_SEGMENTS_MAX * sizeof(*segments));
	while (*template != '\0') {
		if (*template != '{') {
			if (p == end || *p != *template)
				return false;
			p++;
			template ++;
			continue;
		}
		segments[n].p = p;
		while (p < end && *p != '/')
			p++;
		segments[n].n = (size_t)(p - segments[n].p);
		if (segments[n++].n == 0)
			return false;
		template = strchr(template, '}') + 1;
	}
	return p == end;
}

static const struct api_route *route_find(
	const struct httphead *h, struct httphead_text *segments, struct err *err)
{
	bool path_known = false;

	for (size_t i = 0; i < api_route_count; i++) {
		const struct api_route *r = &api_routes[i];

		if (!path_matches(r->path, h->path, segments))
			continue;
		path_known = true;
		if (strlen(r->method) == h->method.n &&
			memcmp(r->method, h->method.p, h->method.n) == 0)
			return r;
	}
	if (path_known)
		(void)err_raise(err, ERR_METHOD, "%.*s is not a method of this route",
			(int)h->method.n, h->method.p);
	else
		(void)err_raise(err, ERR_NOT_FOUND, "no route '%.*s'",
			(int)(h->path.n < 200 ? h->path.n : 200), h->path.p);
	return NULL;
}

/* "Allow: GET, DELETE": the methods of the path. */
static void put_allowed(struct buf *out, const struct httphead *h)
{
	struct httphead_text segments[API_SEGMENTS_MAX];
	const char *sep = "Allow: ";

	for (size_t i = 0; i < api_route_count; i++) {
		if (!path_matches(api_routes[i].path, h->path, segments))
			continue;
		buf_fmt(out, "%s%s", sep, api_routes[i].method);
		sep = ", ";
	}
	buf_str(out, "\r\n");
}

/* --- the query --- */

static unsigned int times(const struct api_call *call, const struct api_parameter *p)
{
	unsigned int n = 0;

	for (size_t i = 0; i < call->n_values; i++)
		n += call->values[i].parameter == p;
	return n;
}

static void add_value(struct api_call *call, const struct api_parameter *p, const char *text)
{
	BUG_ON(call->n_values == API_VALUES_MAX); /* tools/gen_api.py adds up what a route takes */
	call->values[call->n_values++] = (struct api_value){ p, str_dup(text) };
}

static int take_parameter(
	struct api_call *call, const char *name, const char *value, struct err *err)
{
	for (size_t i = 0; i < call->route->n_parameters; i++) {
		const struct api_parameter *p = &call->route->parameters[i];

		if (!str_eq(p->name, name))
			continue;
		if (times(call, p) == p->most)
			return err_member(err,
				p->most == 1 ? err_raise(err, ERR_INVALID,
						       "parameter '%s' is there twice", name)
					     : err_raise(err, ERR_INVALID,
						       "parameter '%s' is there more than %u times",
						       name, p->most),
				"%s", name);
		add_value(call, p, value);
		return schema_check_text(p->schema, value, name, err);
	}
	return err_member(
		err, err_raise(err, ERR_INVALID, "unknown parameter '%.100s'", name), "%s", name);
}

static int parse_query(struct api_call *call, struct httphead_text query, struct err *err)
{
	const char *p = query.p, *end = query.p + query.n;

	while (p != NULL && p < end) {
		const char *stop = memchr(p, '&', (size_t)(end - p));
		const char *last = stop != NULL ? stop : end;
		const char *equals = memchr(p, '=', (size_t)(last - p));
		const char *name_end = equals != NULL ? equals : last;
		char name[128], value[API_VALUE_MAX];
		int rc = httphead_decode(p, (size_t)(name_end - p), true, name, sizeof(name));

		if (rc == 0 && equals != NULL)
			rc = httphead_decode(equals + 1, (size_t)(last - equals - 1), true, value,
				sizeof(value));
		else
			value[0] = '\0';
		if (rc < 0)
			return err_raise(err, rc == -EMSGSIZE ? ERR_TOO_LARGE : ERR_INVALID,
				"the query is malformed or a value is too long");
		rc = take_parameter(call, name, value, err);
		if (rc < 0)
			return rc;
		p = last + 1;
	}
	for (size_t i = 0; i < call->route->n_parameters; i++) {
		const struct api_parameter *want = &call->route->parameters[i];

		if (times(call, want) > 0)
			continue;
		if (want->required)
			return err_member(err,
				err_raise(
					err, ERR_INVALID, "parameter '%s' is missing", want->name),
				"%s", want->name);
		if (want->fallback != NULL)
			add_value(call, want, want->fallback);
	}
	return 0;
}

/* --- the body --- */

/* A form of a web page cannot send this type, so no page can make a browser call a route. */
static int check_type(const struct api_call *call, struct err *err)
{
	static const char wanted[] = "application/json";
	struct httphead_text type = httphead_get(http_head(call->conn), "Content-Type");
	size_t n = strlen(wanted);

	if (ablated("content_type"))
		return 0;
	if (type.n >= n && strncasecmp(type.p, wanted, n) == 0 &&
		(type.n == n || type.p[n] == ';' || type.p[n] == ' '))
		return 0;
	return err_raise(err, ERR_INVALID, "the Content-Type of the body must be %s", wanted);
}

static int parse_body(struct api_call *call, struct err *err)
{
	static const struct schema nothing = { .kind = SCHEMA_OBJECT, .max = INT64_MAX };
	cleanup_buf struct buf text =
		BUF_INIT(ablated("body_limit") ? (size_t)256 << 20 : (size_t)BODY_MAX);
	int rc;

	if (call->route->body_raw)
		return 0;
	rc = http_body_all(call->conn, &text);
	if (rc == -EMSGSIZE)
		return err_raise(err, ERR_TOO_LARGE, "the body is larger than %u bytes", BODY_MAX);
	if (rc == -ESHUTDOWN)
		return err_raise(
			err, ERR_SHUTTING_DOWN, "the server is shutting down; nothing was done");
	if (rc < 0)
		return err_raise(err, ERR_INVALID, "the body is malformed or incomplete");
	if (text.n == 0) {
		if (call->route->body_required)
			return err_raise(err, ERR_INVALID, "a JSON body is needed");
		call->body = json_object();
		return 0;
	}
	rc = check_type(call, err);
	if (rc < 0)
		return rc;
	rc = schema_parse(text.p, text.n, &call->body, err);
	return rc < 0 ? rc
		      : schema_check(call->route->body != NULL ? call->route->body : &nothing,
				call->body, "", err);
}

/* --- all of it --- */

static int prepare(struct api_call *call, struct err *err)
{
	struct httphead_text raw[API_SEGMENTS_MAX] = { 0 };
	const struct httphead *h = http_head(call->conn);
	int rc = 0;

	call->route = route_find(h, raw, err);
	if (call->route == NULL)
		return -EINVAL;
	for (size_t i = 0; i < API_SEGMENTS_MAX && rc == 0; i++) {
		if (raw[i].p != NULL)
			rc = httphead_decode(raw[i].p, raw[i].n, false, call->segments[i],
				sizeof(call->segments[i]));
	}
	if (rc < 0)
		return err_raise(err, ERR_INVALID, "the path is malformed");
	if (call->route->upgrade && !(httphead_has_word(h, "Connection", "upgrade") &&
					    httphead_has_word(h, "Upgrade", "cay-frames")))
		return err_raise(err, ERR_INVALID,
			"this route needs 'Connection: Upgrade' and 'Upgrade: cay-frames'");
	rc = parse_query(call, h->query, err);
	if (rc == 0)
		rc = parse_body(call, err);
	return rc < 0 ? rc : keys_begin(call, err);
}

void api_dispatch(struct http_conn *conn, void *ctx)
{
	struct api_call *call = xnew(struct api_call);
	struct err *err = xnew(struct err);
	struct requester requester;
	int rc;

	call->srv = ctx;
	call->conn = conn;
	runs_settle(call->srv);
	requester_begin(&requester, conn);
	rc = prepare(call, err);
	if (rc == 0)
		rc = call->route->handler(call, err);
	if (rc < 0 && !http_replied(conn)) {
		cleanup_buf struct buf allow = BUF_INIT(1024);

		if (err->code == ERR_METHOD)
			put_allowed(&allow, http_head(conn));
		server_flush(call->srv);
		reply_error(conn, err, allow.n > 0 ? buf_cstr(&allow) : NULL);
	}
	requester_end();
	keys_end(call);
	for (size_t i = 0; i < call->n_values; i++)
		free(call->values[i].text);
	json_decref(call->body);
	json_decref(call->made);
	free(call->key);
	free(err);
	free(call);
}
