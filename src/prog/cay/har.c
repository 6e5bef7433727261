/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/har.h"
#include "base/str.h"

#include <strings.h>

static const char *text_of(const json_t *o, const char *key, const char *otherwise)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s != NULL ? s : otherwise;
}

/* Microseconds since the exchange began; -1 when it did not come to that. */
static json_int_t moment(const json_t *timing, const char *key)
{
	const json_t *v = json_object_get(timing, key);

	return json_is_integer(v) ? json_integer_value(v) : -1;
}

static json_t *milliseconds(json_int_t us)
{
	return us < 0 ? json_integer(-1) : json_real((double)us / 1000);
}

/* [["name","value"]] -> [{"name":…,"value":…}] */
static json_t *headers(const json_t *side)
{
	json_t *list = json_array();
	const json_t *pair;
	size_t i;

	json_array_foreach (json_object_get(side, "headers"), i, pair)
		(void)json_array_append_new(
			list, json_pack("{s:O, s:O}", "name", json_array_get(pair, 0), "value",
				      json_array_get(pair, 1)));
	return list;
}

static const char *header(const json_t *side, const char *name)
{
	const json_t *pair;
	size_t i;

	json_array_foreach (json_object_get(side, "headers"), i, pair)
		if (strcasecmp(json_string_value(json_array_get(pair, 0)), name) == 0)
			return json_string_value(json_array_get(pair, 1));
	return "";
}

/* Adds "name=value"; without '=' all of it is the value, as browsers see it. */
static void add_cookie(json_t *list, const char *pair, size_t n)
{
	const char *equals = memchr(pair, '=', n);
	size_t name = equals != NULL ? (size_t)(equals - pair) : 0;
	size_t value = equals != NULL ? name + 1 : 0;

	if (n > 0)
		(void)json_array_append_new(list, json_pack("{s:s%, s:s%}", "name", pair, name,
							  "value", pair + value, n - value));
}

/* Of a request ("cookie": all in one), or of an answer ("set-cookie": one each, its attributes behind it). */
static json_t *cookies(const json_t *side, const char *header_name, bool many)
{
	json_t *list = json_array();
	const json_t *pair;
	size_t i;

	json_array_foreach (json_object_get(side, "headers"), i, pair) {
		const char *text = json_string_value(json_array_get(pair, 1));

		if (strcasecmp(json_string_value(json_array_get(pair, 0)), header_name) != 0)
			continue;
		do {
			text += strspn(text, "; ");
			add_cookie(list, text, strcspn(text, ";"));
			text += strcspn(text, ";");
		} while (many && *text != '\0');
	}
	return list;
}

static json_t *query(const char *text)
{
	json_t *list = json_array();

	while (text != NULL && *text != '\0') {
		size_t n = strcspn(text, "&"), name = strcspn(text, "=&");
		size_t value = name < n ? name + 1 : n;

		(void)json_array_append_new(list, json_pack("{s:s%, s:s%}", "name", text, name,
							  "value", text + value, n - value));
		text += n + (text[n] == '&');
	}
	return list;
}

static json_t *url(const json_t *data)
{
	const char *scheme = text_of(data, "scheme", "http"), *q = text_of(data, "query", NULL);
	json_int_t port = json_integer_value(json_object_get(data, "port"));
	bool usual = port == (str_eq(scheme, "https") ? 443 : 80);
	const char *host = text_of(data, "host", "?");
	bool six = strchr(host, ':') != NULL;
	cleanup_free char *number = usual ? str_dup("") : str_dupf(":%lld", port);

	return json_sprintf("%s://%s%s%s%s%s%s%s", scheme, six ? "[" : "", host, six ? "]" : "",
		number, text_of(data, "path", "/"), q != NULL ? "?" : "", q != NULL ? q : "");
}

static json_t *bytes(const json_t *side)
{
	json_t *n = json_object_get(side, "bytes");

	return json_is_integer(n) ? json_incref(n) : json_integer(0);
}

static void add_text(json_t *o, const json_t *side)
{
	json_t *encoded = json_object_get(side, "body_base64");

	if (encoded != NULL) {
		(void)json_object_set(o, "text", encoded);
		(void)json_object_set_new(o, "encoding", json_string("base64"));
	} else if (json_object_get(side, "body") != NULL) {
		(void)json_object_set(o, "text", json_object_get(side, "body"));
	}
	if (json_is_true(json_object_get(side, "body_cut")))
		(void)json_object_set_new(o, "comment", json_string("the beginning of it"));
}

static json_t *request(const json_t *data)
{
	const json_t *side = json_object_get(data, "request");
	json_t *o = json_pack("{s:s, s:o, s:s, s:o, s:o, s:o, s:i, s:o}", "method",
		text_of(data, "method", ""), "url", url(data), "httpVersion",
		text_of(data, "protocol", ""), "cookies", cookies(side, "cookie", true), "headers",
		headers(side), "queryString", query(text_of(data, "query", NULL)), "headersSize",
		-1, "bodySize", bytes(side));
	json_t *post;

	if (json_integer_value(json_object_get(side, "bytes")) > 0) {
		post = json_pack("{s:s, s:[], s:s}", "mimeType", header(side, "content-type"),
			"params", "text", "");
		add_text(post, side);
		(void)json_object_set_new(o, "postData", post);
	}
	return o;
}

static json_t *response(const json_t *data)
{
	const json_t *side = json_object_get(data, "response");
	json_t *content = json_pack(
		"{s:o, s:s}", "size", bytes(side), "mimeType", header(side, "content-type"));

	add_text(content, side);
	return json_pack("{s:I, s:s, s:s, s:o, s:o, s:o, s:s, s:i, s:o}", "status",
		json_integer_value(json_object_get(data, "status")), "statusText", "",
		"httpVersion", text_of(data, "protocol", ""), "cookies",
		cookies(side, "set-cookie", false), "headers", headers(side), "content", content,
		"redirectURL", header(side, "location"), "headersSize", -1, "bodySize",
		bytes(side));
}

/* What passed until @moment since the last one that came, which it becomes; @absent (us) when it did not come. */
static json_t *until(json_int_t *last, json_int_t moment, json_int_t absent)
{
	json_int_t passed = moment - *last;

	if (moment < *last)
		return milliseconds(absent);
	*last = moment;
	return milliseconds(passed);
}

/* Together they are all the time that it took. The format wants a time for three of them. */
static json_t *timings(const json_t *timing)
{
	json_int_t last = 0;
	json_t *o = json_object();

	(void)json_object_set_new(o, "blocked", until(&last, moment(timing, "decided_us"), -1));
	(void)json_object_set_new(o, "dns", json_integer(-1));
	(void)json_object_set_new(o, "connect", until(&last, moment(timing, "connected_us"), -1));
	(void)json_object_set_new(o, "send", until(&last, moment(timing, "sent_us"), 0));
	(void)json_object_set_new(o, "wait", until(&last, moment(timing, "answered_us"), 0));
	(void)json_object_set_new(o, "receive", until(&last, moment(timing, "ended_us"), 0));
	(void)json_object_set_new(o, "ssl", json_integer(-1));
	return o;
}

static void add_process(json_t *o, const json_t *data)
{
	if (json_object_get(data, "pid") == NULL)
		return;
	(void)json_object_set(o, "_pid", json_object_get(data, "pid"));
	(void)json_object_set(o, "_inner_pid", json_object_get(data, "inner_pid"));
	(void)json_object_set(o, "_process", json_object_get(data, "comm"));
}

json_t *har_entry(const json_t *event)
{
	const json_t *data = json_object_get(event, "data"),
		     *timing = json_object_get(data, "timing");
	json_int_t ended = moment(timing, "ended_us");
	json_t *o = json_pack("{s:s, s:o, s:o, s:o, s:{}, s:o}", "startedDateTime",
		text_of(data, "began", text_of(event, "time", "")), "time",
		milliseconds(ended >= 0 ? ended : 0), "request", request(data), "response",
		response(data), "cache", "timings", timings(timing));

	(void)json_object_set_new(o, "connection",
		json_sprintf("%lld", json_integer_value(json_object_get(data, "connection"))));
	(void)json_object_set_new(o, "_outcome", json_string(text_of(data, "outcome", "")));
	(void)json_object_set(o, "_rule",
		json_object_get(data, "rule") != NULL ? json_object_get(data, "rule")
						      : json_null());
	(void)json_object_set(o, "_exec", json_object_get(event, "exec"));
	add_process(o, data);
	(void)json_object_set(o, "_seq", json_object_get(event, "seq"));
	return o;
}
