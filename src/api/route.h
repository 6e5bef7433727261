/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/route.h - from an HTTP request to the function that answers it, by the tables made from defs/openapi.yaml.
 */
#ifndef CAY_API_ROUTE_H
#define CAY_API_ROUTE_H

#include "api/schema.h"
#include "io/http_server.h"

#define API_SEGMENTS_MAX 3
#define API_VALUES_MAX   32
#define API_VALUE_MAX    4096

struct server;
struct api_call;

/** api_handler - answer @call; 0 when it did, or -errno with @err set and nothing answered yet. Context: a fiber of the connection. */
typedef int api_handler(struct api_call *call, struct err *err);

struct api_parameter {
	const char *name;
	bool required;
	const struct schema *schema;
	const char *fallback; /* value when it is missing, or NULL */
	unsigned int most;    /* how often it may be there */
};

/** struct api_value - of one query parameter, as it came. */
struct api_value {
	const struct api_parameter *parameter;
	char *text; /* decoded and checked; owned */
};

struct api_route {
	const char *method;
	const char *path; /* with {name} segments */
	const char *operation;
	api_handler *handler;
	const struct api_parameter *parameters;
	size_t n_parameters;
	const struct schema *body; /* NULL: no JSON body */
	bool body_required;
	bool body_raw; /* the handler reads the body */
	bool upgrade;
	bool keyed; /* understands Idempotency-Key */
};

extern const struct api_route api_routes[];
extern const size_t api_route_count;

/** struct api_call - one request, checked. */
struct api_call {
	struct server *srv;
	struct http_conn *conn;
	const struct api_route *route;
	char segments[API_SEGMENTS_MAX][256]; /* decoded {…} parts in order */
	struct api_value
		values[API_VALUES_MAX]; /* in the order in which they came, fallbacks behind them */
	size_t n_values;
	json_t *body; /* an object; {} when there was none */
	char *key;    /* Idempotency-Key, or NULL */
	char key_hash[65];
	json_t *made; /* what a request with this key had done before it was answered (keys_note()), or NULL */
	bool remembered; /* the answer is written under the key */
};

/** api_dispatch() - http_handler: find the route, check everything, call it, answer its error. @ctx: struct server. */
void api_dispatch(struct http_conn *conn, void *ctx);

/** api_text() - value of a query parameter, or NULL. */
const char *api_text(const struct api_call *call, const char *name);

/** api_next_text() - the next value of a query parameter that may be there more than once, or NULL. @pos: 0 at first; how far it has been looked. */
const char *api_next_text(const struct api_call *call, const char *name, size_t *pos);

/** api_number() - the same as a number; 0 when missing. */
uint64_t api_number(const struct api_call *call, const char *name);

/** api_flag() - the same as a boolean; false when missing. */
bool api_flag(const struct api_call *call, const char *name);

/** api_reply() - answer with a JSON object (stolen), or without a body when NULL. Remembers it under the idempotency key. Return: 0. */
int api_reply(struct api_call *call, int status, json_t *object);

/** struct api_part - a member of an answer that is JSON already. */
struct api_part {
	const char *member;
	const struct buf *json;
};

/**
 * api_reply_parts() - as api_reply(), with further members behind those of @object, which has some. For what may be large: to write it out of values, and to free those, takes the
 * loop's time all at once.
 */
int api_reply_parts(
	struct api_call *call, int status, json_t *object, const struct api_part *parts, size_t n);

/** api_caller_groups() - supplementary groups of whoever asks, as a list of numbers for a job; NULL with *@err. */
json_t *api_caller_groups(const struct api_call *call, struct err *err);

/** api_reply_error() - answer with the one error shape. */
void api_reply_error(struct http_conn *conn, const struct err *err);

#endif
