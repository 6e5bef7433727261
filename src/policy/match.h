/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: policy/match.h - the conditions of one rule and how they are judged. Pure. */
#ifndef CAY_POLICY_MATCH_H
#define CAY_POLICY_MATCH_H

#include "policy/policy.h"

/** struct name_pattern - a condition on a header or a query parameter. */
struct name_pattern {
	char *name;
	bool absent;  /* must not be there */
	char **globs; /* one of them must match; none = any value */
	size_t n_globs;
};

/** struct field_pattern - a condition on a value of the body. */
struct field_pattern {
	char *pointer;
	bool absent;
	json_t *values; /* array of scalars, one of them equal; NULL = not asked */
	char **globs;   /* for strings */
	size_t n_globs;
	bool negated; /* none of the globs may match; what is no string matches */
	bool ranged;
	double min, max; /* inclusive */
	size_t reads;    /* bytes of a string that decide; SIZE_MAX: all */
};

/** enum match_member - the members of a rule's match, in the order in which they become known. */
enum match_member {
	MATCH_HOST,
	MATCH_PORT,
	MATCH_TRANSPORT,
	MATCH_RECORD,
	MATCH_UPGRADE,
	MATCH_METHOD,
	MATCH_PATH,
	MATCH_QUERY,
	MATCH_HEADERS,
	MATCH_JSON,
	MATCH_MEMBER_COUNT
};

#define POLICY_TRANSPORTS_ALL ((1U << POLICY_TRANSPORT_COUNT) - 1)

/** struct policy_match - all must hold; an empty list asks nothing. */
struct policy_match {
	bool closes; /* of a rule that denies: any of several values is enough, and what cannot be read matches */
	unsigned int transports; /* bits 1 << enum policy_transport */
	unsigned int records;    /* bits 1 << enum policy_record; 0: not asked */
	unsigned int asked;      /* bits 1 << enum match_member; match_seal() */
	bool websocket; /* of requests that ask for a WebSocket, and no others; @methods is GET then, @fields empty */
	char **hosts;
	size_t n_hosts;
	struct policy_port_range *ports;
	size_t n_ports;
	char **methods;
	size_t n_methods;
	char **paths;
	size_t n_paths;
	struct name_pattern *headers, *query;
	size_t n_headers, n_query;
	struct field_pattern *fields;
	size_t n_fields;
};

enum match_result { MATCH_NO, MATCH_YES, MATCH_LATER };

/**
 * match_test() - does @rq match, as far as it is known?
 * @ret_because: set to the member that said no or later ("host", "json", …); static; "" for a match.
 */
enum match_result match_test(
	const struct policy_match *m, const struct policy_request *rq, const char **ret_because);

/** match_reads_header() - is @name, also written with '_' for '-', a header that @m looks at? */
bool match_reads_header(const struct policy_match *m, struct policy_text name);

/** match_seal() - note which members are asked for; once, when the rule is complete. */
void match_seal(struct policy_match *m);

/** match_free() - NULL is allowed. */
void match_free(struct policy_match *m);

#endif
