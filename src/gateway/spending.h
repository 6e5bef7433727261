/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/spending.h - reads from an answer's body what budgets on its fields count (tokens that a model used, amounts that were charged).
 *
 * Of a JSON body, however long, only these fields are kept (policy/sieve.h). Of an event stream (text/event-stream) the members that budgets name are laid over each other, as they stand in its JSON events or in a "message" or
 * "response" of them, so that the last word on each counts: model APIs say at the end what they used.
 */
#ifndef CAY_GATEWAY_SPENDING_H
#define CAY_GATEWAY_SPENDING_H

#include "base/buf.h"
#include "gateway/channel.h"

#include <jansson.h>

#define SPENDING_LINE_MAX (4U << 20) /* bytes of a line of a stream; a longer one says nothing */
#define SPENDING_DECODED_MAX \
	(64U << 20) /* bytes of a decoded answer; of a larger one nothing is counted */
#define SPENDING_KEPT_MAX (64U << 10) /* of fields in one body or line */
#define SPENDING_SAID_MAX 4096        /* fields that a stream says in all */

struct body_decoder;
struct sieve;
struct sieve_paths;

struct spending {
	bool on, stream;
	const struct policy_rule *rule; /* borrowed; its budgets */
	struct sieve_paths *paths;      /* of its fields, also in envelopes */
	struct sieve *sieve;            /* of a body; NULL of a stream */
	struct body_decoder *decoder;
	struct buf line; /* of a stream: begun */
	bool skips;      /* the line is too long */
	json_t *said;    /* of a stream; NULL: nothing yet */
	size_t n_said;
};

/** spending_wanted() - does @rule count fields of answers? NULL is allowed. */
bool spending_wanted(const struct policy_rule *rule);

/** spending_begin() - an answer with @head comes to a request that @rule decided. */
void spending_begin(struct spending *m, const struct policy_rule *rule, const struct head *head);

/** spending_of_request() - does @rule count fields of requests? NULL is allowed. */
bool spending_of_request(const struct policy_rule *rule);

/** spending_lacks() - is a field that @rule counts missing in @said (NULL: all are)? */
bool spending_lacks(const struct policy_rule *rule, const json_t *said);

/** spending_feed() - a piece of its body, as it travels. */
void spending_feed(struct spending *m, const char *p, size_t n);

/** spending_end() - what it said; a new reference; NULL: nothing that could be read. */
json_t *spending_end(struct spending *m) attr_must_use;

/** spending_fini() - free. A zeroed one is fine. */
void spending_fini(struct spending *m);

#endif
